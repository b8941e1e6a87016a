// The choice of a model in a form: the page's models, a visitor's GGUF file for the engine in the
// tab, and, where the page allows any model, a folder or hub id. Facts about the model are shown
// below before it is loaded; a model is loaded only when a run needs it.

import { find, h, newButton, put, setText } from "./dom.js";
import { bytes, count } from "./format.js";
import { keep, keptList } from "./kept.js";
import { t } from "./speech.js";

const OWN = "\u0000own"; // the choice that opens the field for a name
const FILE = "\u0000file"; // the choice that opens the field for a file
const KEPT = "inflight-models"; // storage key of the names that were entered, the last one first
const MOST_KEPT = 5;
// of each field: its label, and the note below it
const LABELS = [
  ["Model", "Who computes the tokens."],
  [
    "GGUF file",
    "A Llama, Qwen 2 or Qwen 3. It is read in this tab and sent nowhere; after a reload it is chosen again.",
  ],
  ["Folder or hub id"],
];

/**
 * What the page says about its models: `inflight/state`.
 * @typedef {{models: string[], builtin: string[], any_model: boolean, dtypes: string[], model: string,
 * facts: Record<string, Json>}} Offered facts: what is known, by name, of models about which no server
 * needs to be asked
 */

/** @returns {HTMLElement} */
const labelOf = (/** @type {HTMLElement} */ field) =>
  /** @type {HTMLElement} */ (field.closest("label"));

const sized = (/** @type {number} */ n) => bytes(n, t);

export class ModelField {
  /**
   * form: has the field dtype, and a `.model-field` if there are other models to choose. options:
   * call asks the engine; device and blockSize give the form's values; changed is called when
   * another model was chosen or facts have arrived; kept returns the bytes of a model in this
   * browser, and remove deletes them; own returns what is known of the visitor's files, by name,
   * and open reads another one, if there is an engine in the tab.
   * @param {HTMLFormElement} form
   * @param {{call?: (name: string, ...args: unknown[]) => Promise<Json>, device?: () => string,
   * blockSize?: () => number, changed?: () => void, kept?: (name: string) => Promise<number>,
   * remove?: (name: string) => Promise<void>, own?: () => Record<string, Json>,
   * open?: (file: File) => Promise<Json>}} options
   */
  constructor(form, options) {
    this.options = {
      call: async () => ({}),
      device: () => "auto",
      blockSize: () => 16,
      changed: () => {},
      kept: async () => 0,
      remove: async () => {},
      own: () => /** @type {Record<string, Json>} */ ({}),
      ...options,
    };
    this.select = h("select", { name: "model" });
    this.own = h("input", {
      name: "own_model",
      type: "text",
      autocapitalize: "off",
      autocomplete: "off",
      spellcheck: "false",
      maxlength: "1000",
    });
    this.file = h("input", { type: "file", accept: ".gguf" });
    this.says = h("div", { class: "model-says box fine", role: "status", hidden: true });
    this.labels = [this.select, this.file, this.own].map((field, n) => {
      const [name, words] = LABELS[n];
      const more = h("small", {}, words);
      return h("label", { class: "field", hidden: n > 0 }, h("span", {}, name), field, more);
    });
    const examples = ["~/Qwen3-0.6B", "Qwen/Qwen3-0.6B"].map((name) => h("code", {}, name));
    find(this.labels[2], "small").append(examples[0], ", ", examples[1]);
    (form.querySelector(".model-field") || form).prepend(...this.labels, this.says);
    this.dtype = /** @type {HTMLSelectElement} */ (form.elements.namedItem("dtype"));
    /** @type {Offered} */
    this.offered = {
      models: [],
      builtin: [],
      any_model: false,
      dtypes: ["auto"],
      model: "",
      facts: {},
    };
    /** @type {Json} what the server says about the chosen model, null until it has answered */
    this.facts = null;
    this.kept = 0; // bytes of the chosen model in this browser
    this.file.addEventListener("change", () => {
      const file = this.file.files?.[0];
      this.file.value = ""; // so that the same file can be chosen again
      if (file) this.open(file);
    });
    this._asked = 0;
    this.select.addEventListener("change", () => this._chosen());
    this.own.addEventListener("change", () => this.own.value.trim() && this._look(this.own.value));
    this.own.addEventListener("keydown", (e) => {
      if (e.key !== "Enter") return;
      e.preventDefault(); // look the model up instead of sending the form
      if (this.own.value.trim()) this._look(this.own.value);
    });
    this.dtype.addEventListener("change", () => {
      const { value } = this;
      if (value && !this._known(value) && (this.facts || this.looking || this.error))
        this._look(value);
    });
  }

  /** Set the available choices. @param {Offered} offered */
  fill(offered) {
    this.offered = { ...this.offered, ...offered };
    this.dtype.replaceChildren(
      ...this.offered.dtypes.map((name) => h("option", { value: name }, name)),
    );
    labelOf(this.dtype).hidden = this.offered.dtypes.length < 2;
    this.named();
  }

  /** Write what depends on the language. */
  named() {
    const chosen = this.select.value;
    const { models, any_model: any } = this.offered;
    const { own, open } = this.options;
    const others = chosen && ![OWN, FILE].includes(chosen) ? [chosen] : [];
    put(
      this.select,
      ...[...new Set([...models, ...Object.keys(own()), ...this._kept, ...others])].map(option),
      open && h("option", { value: FILE }, t("Your own GGUF file …")),
      any && h("option", { value: OWN }, t("Another: a folder or a hub id …")),
    );
    if (chosen) this.select.value = chosen;
    this.labels.forEach((label, n) =>
      LABELS[n].forEach((words, small) => setText(label.children[2 * small], t(words))),
    );
    this._show();
  }

  get _kept() {
    const isName = (/** @type {Json} */ name) => typeof name === "string";
    return this.offered.any_model ? keptList("good", KEPT, isName).slice(0, MOST_KEPT) : [];
  }

  /** Whether a model is the page's, or one that this visitor has named. @param {string} name */
  knows(name) {
    return [...this.offered.models, ...this._kept].includes(name) || name in this.options.own();
  }

  /** The name of the chosen model, empty while there is none. @returns {string} */
  get value() {
    const { value } = this.select;
    return value === OWN ? this.own.value.trim() : value === FILE ? "" : value;
  }

  /** The fields of a spec that name the model. */
  get spec() {
    return {
      model: this.value,
      ...(this.dtype.value && this.dtype.value !== "auto" ? { dtype: this.dtype.value } : {}),
    };
  }

  /** Whether the chosen model is not a built-in one. */
  get isOwn() {
    return Boolean(this.value) && !this.offered.builtin.includes(this.value);
  }

  /** Why nothing can be run with this choice, or null. */
  get fault() {
    if (this.value) return null;
    return this.select.value === FILE
      ? "Choose a GGUF file."
      : "Name a model: a folder, or an id on the Hugging Face hub.";
  }

  /**
   * Choose the model of a spec, without looking up a model that only a link or a file names.
   * @param {{model?: string, dtype?: string, seen?: boolean}} spec seen: scroll to it
   */
  choose({ model, dtype, seen = false }) {
    if (seen) this.select.scrollIntoView({ block: "center" });
    if (model) this._pick(model);
    this.dtype.value = dtype && this.offered.dtypes.includes(dtype) ? dtype : "auto";
    this._chosen();
  }

  _chosen() {
    const own = this.select.value === OWN;
    labelOf(this.own).hidden = !own;
    labelOf(this.file).hidden = this.select.value !== FILE;
    this.facts = this._known(this.select.value);
    this.kept = 0;
    this.error = "";
    this._asked += 1;
    this.looking = false;
    if (own && this.own.value.trim()) this._look(this.own.value);
    else if (own) this.own.focus();
    else if (!this.facts && this.isOwn && this.knows(this.value)) this._look(this.value);
    this._show();
    this.options.changed();
    this.weigh();
  }

  /** Update how much of the chosen model this browser keeps, since runs change that. */
  async weigh() {
    const name = this.value;
    const kept = await this.options.kept(name);
    if (name !== this.value || kept === this.kept) return;
    this.kept = kept;
    this._show();
  }

  async _remove() {
    const { facts, value } = this;
    await this.options.remove(value);
    if (facts?.file) this.choose({ model: this.offered.models[0] });
    this.named();
    await this.weigh();
  }

  /** What is known of a model without asking a server, or null. @param {string} name */
  _known(name) {
    return this.offered.facts[name] ?? this.options.own()[name] ?? null;
  }

  /** Read a visitor's own file and choose its model. @param {File} file */
  async open(file) {
    this.select.value = FILE;
    this._chosen();
    const { open = async () => ({}) } = this.options;
    const asked = open(file).catch((error) => ({ error: error.message }));
    await this._ask(asked, ({ name }) => {
      this._pick(name);
      this._chosen();
    });
  }

  /** Choose a model, after adding it to the list if it is not there. @param {string} name */
  _pick(name) {
    if (![...this.select.options].some(({ value }) => value === name))
      this.select.prepend(option(name));
    this.select.value = name;
  }

  /** Ask the server what a model is. @param {string} name */
  async _look(name) {
    const { call, device } = this.options;
    const asked = { model: name, device: device(), dtype: this.dtype.value || "auto" };
    const answer = call("model", asked).catch((error) => ({
      error: `The engine cannot be reached: ${error.message}.`,
    }));
    await this._ask(answer, (facts) => this._found(facts));
  }

  /** Wait for the facts. @param {Promise<Json>} answer @param {(facts: Json) => void} found */
  async _ask(answer, found) {
    this._asked += 1;
    const asked = this._asked;
    this.looking = true;
    this.facts = null;
    this.error = "";
    this._show();
    const facts = await answer;
    if (asked !== this._asked) return; // another model was chosen meanwhile
    this.looking = false;
    if (facts.error) this.error = facts.error;
    else found(facts);
    this._show();
    this.options.changed();
  }

  _found(/** @type {Json} */ facts) {
    this.facts = facts;
    if (this.offered.any_model && !this.offered.models.includes(facts.name)) {
      const names = new Set([facts.name, ...this._kept]);
      keep("good", KEPT, JSON.stringify([...names].slice(0, MOST_KEPT)));
    }
    if (this.select.value === facts.name) return;
    this._pick(facts.name);
    this.own.value = "";
    labelOf(this.own).hidden = true;
  }

  /** Show what is known about the chosen model. */
  _show() {
    const { facts, error, looking, says } = this;
    says.classList.toggle("bad", Boolean(error));
    if (looking) put(says, t("Looking at it …"));
    else if (error) put(says, t(error));
    else put(says, ...(facts ? this._facts(facts) : [this._unknown]));
    says.hidden = !says.hasChildNodes();
  }

  /** What to say about a model that a link or a run names and nobody has looked up. */
  get _unknown() {
    const { any_model: any, models } = this.offered;
    if (!this.isOwn || this.select.value === OWN || !models.length) return null;
    if (this.options.open && isFile(this.value))
      return h("span", {}, t(FILE_AGAIN, { name: this.value }));
    const name = this.value;
    const foreign = "This page cannot load the model {name}: choose one of its own.";
    if (!any) return models.includes(name) ? null : h("span", {}, t(foreign, { name }));
    return h(
      "span",
      {},
      `${t("Nothing is known yet about {name}.", { name })} `,
      newButton({ class: "link", onclick: () => this._look(name) }, t("Look at it")),
    );
  }

  _facts(/** @type {Json} */ facts) {
    const { parameters: n, weights, free, kv_bytes_per_token: kv, context, download } = facts;
    const block = Math.max(1, Math.floor(this.options.blockSize() || 16));
    const [unit, size] = n >= 1e9 ? [" G", 1e9] : n >= 1e6 ? [" M", 1e6] : ["", 1];
    const number = `${t(size > 1 ? (n / size).toPrecision(3) : count(n))}${unit}`;
    const fits = free === null || facts.loaded || weights <= free;
    const held = facts.loaded
      ? "{size} in {format}, loaded"
      : `{size} in {format}${free === null ? "" : ", of {free} free"}`;
    const blocks = count(Math.floor(facts.pool / (kv * block)));
    const fit = `${blocks} [block|blocks] of ${block} [token|tokens]`;
    const remove = newButton({ class: "link", onclick: () => this._remove() }, t("Remove"));
    /** @type {[string, string, HTMLElement?][]} */
    const rows = [
      ["Parameters", `${number}, ${t(`${count(facts.layers)} [layer|layers]`)}`],
      ["Stored in", facts.stored.join(", ")],
      ["Weights", t(held, { size: sized(weights), format: facts.dtype, free: sized(free ?? 0) })],
      [
        "KV cache",
        kv ? t("{size} a token; {blocks} fit", { size: sized(kv), blocks: t(fit) }) : "",
      ],
      ["Context", !context ? "" : t(`${count(context)} [token|tokens]`)],
      ["To fetch", download > this.kept ? sized(download) : ""],
      ["In this browser", this.kept ? `${sized(this.kept)} ` : "", remove],
      ["On your machine", facts.file ? `${sized(facts.file)} ` : "", remove],
    ];
    const warn = (/** @type {string} */ words) => h("span", { class: "warn" }, t(words));
    return [
      h("b", {}, facts.architecture),
      h(
        "dl",
        {},
        ...rows
          .filter(([, words]) => words)
          .flatMap(([name, words, act]) => [h("dt", {}, t(name)), h("dd", {}, words, act)]),
      ),
      !fits &&
        warn(
          "There is too little memory for it now: choose a smaller number format, or another model.",
        ),
      !facts.has_tokenizer && warn("It has no tokenizer: prompts must be token ids."),
      facts.file &&
        !facts.has_chat_template &&
        h("span", {}, t("It has no chat template: prompts are text.")),
    ];
  }
}

/** What to say of a run on a visitor's file that the page does not have. */
export const FILE_AGAIN =
  "{name} is a file on a disk: choose it, as your own GGUF file, to run this here.";

/** Whether a name can only be that of a visitor's own file. @param {string} name */
export const isFile = (name) => /^[^/\\]+\.gguf$/i.test(name);

/** A model in a list, by the last part of its name. @param {string} name */
const option = (name) =>
  h("option", { value: name, title: name }, name.split(/[/\\]/).at(-1) || name);

/**
 * The progress of loading: the share that is done, and a sentence.
 * @param {{phase: string, done: number, total: number}} loading @returns {[number, string]}
 */
export function loadingWords({ phase, done, total }) {
  const share = total ? done / total : 0;
  if (phase === "wait") return [0, "Another model is being loaded first."];
  const sizes = { done: sized(done), total: sized(total) };
  if (phase === "fetch") return [share, t("Fetching the model: {done} of {total}.", sizes)];
  if (!total) return [share, "Loading the model."];
  return [share, `Loading the model: ${count(done)} of ${count(total)} [tensor|tensors].`];
}
