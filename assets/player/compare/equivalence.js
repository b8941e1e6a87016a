// The equivalence panel: each request's text when it runs alone and when it runs in a batch, and
// where they diverge. Texts are data and go through textContent.

import { h, setText } from "../parts/dom.js";
import { inLanguage, t, tell } from "../parts/speech.js";
import { tail } from "../views/texts.js";

const UNMEASURED =
  "Run every request alone and then in the batch: not a token may differ. With the leak, many do.";
const SEEN = 120; // characters of a prompt's end that are shown: the compared tokens follow it

function number(/** @type {number} */ x) {
  if (x === null || x === undefined) return "–";
  if (x === 0) return "0";
  return t(x < 0.01 ? x.toExponential(1) : x.toFixed(2));
}

function split(/** @type {string} */ text, /** @type {string} */ other) {
  const [a, b] = [[...text], [...other]];
  let i = 0;
  while (i < a.length && i < b.length && a[i] === b[i]) i += 1;
  return [a.slice(0, i).join(""), a.slice(i).join("")];
}

/**
 * @param {string} prompt @param {string} text @param {string} other @param {Json} parted
 * @param {Json} of
 */
function textOf(prompt, text, other, parted, of) {
  const pieces = (prompt || "").split(/(?=\s)/);
  const asked = prompt?.length > SEEN ? tail(pieces, pieces.length, SEEN) : prompt;
  const said = (/** @type {import("../parts/dom.js").Child[]} */ ...words) =>
    h(
      "p",
      { class: "saying", "data-of": of },
      asked && h("span", { class: "asked" }, asked),
      ...words,
    );
  if (!parted) return said(text || null);
  const [same, rest] = split(text, other);
  const [all, space, first] = /** @type {RegExpExecArray} */ (/^(\s*)(\S*)/u.exec(rest));
  return said(h("s", {}, same), space, first && h("mark", {}, first), rest.slice(all.length));
}

export class EquivalencePanel {
  /**
   * el: the panel. options: {ask(kind, spec, progress, signal) → answer, base() → spec or null, can:
   * whether an engine can measure it}.
   */
  constructor(/** @type {HTMLElement} */ el, /** @type {Json} */ options) {
    this.el = el;
    this.options = options;
    /** @type {Finder} */ this.$ = (s) => el.querySelector(s);
    /** @type {Json} */
    this.kept = {};
    this.prompts = new Map();
    this.leak = this.$("[name=leak]");
    this.leak.addEventListener("change", () => this.say());
    this.$(".equivalence-run").addEventListener("click", () => this._run());
    this.$(".equivalence-cancel").addEventListener("click", () => this._stop?.abort());
  }

  /** found: {honest, leak}: equivalences with their sentences, or absent. prompts: by request. */
  show(/** @type {Json} */ found, prompts = new Map()) {
    this.kept = found; // new measurements are added to this object
    this.prompts = prompts;
    const canRun = this.options.can && this.options.base();
    this.$(".equivalence-run").hidden = !canRun; // without a spec there is nothing to run
    this.el.hidden = !canRun && !found.honest && !found.leak;
    this._message("");
    this.say();
  }

  say() {
    const found = this.kept[this.leak.checked ? "leak" : "honest"];
    setText(this.$(".lead"), found ? inLanguage(found).says : t(UNMEASURED));
    if (!found) return this.$(".pairs").replaceChildren();
    const heads = h(
      "div",
      { class: "pair heads grid fine strong" },
      h("span"),
      h("span", {}, t("alone")),
      h("span", {}, t(found.leak ? "in the batch, reading a neighbour" : "in the batch")),
      h("span", {}, t("difference")),
    );
    const rows = found.requests.map((/** @type {Json} */ r, /** @type {number} */ i) => {
      const { parting } = r;
      const letter = h("bdi", { class: "chip", title: `${t("request")} ${r.request}` }, r.letter);
      letter.style.setProperty("--tint", `var(--tint-${i % 8})`);
      const { solo, batched, generated } = r;
      const all = Math.max(solo.length, batched.length);
      const differ = parting ? `${r.differing_tokens} of ${all}` : `0 of ${solo.length}`;
      const from = `from token ${parting?.position} on, where alone the best token led by {margin}; `;
      const compared = Math.max(generated?.length ?? 0, batched.length);
      /** @param {Json} mine @param {string} other @param {Json} of */
      const told = (mine, other, of) =>
        textOf(this.prompts.get(r.request), mine, other, parting, t(of));
      const generate = `; from model.generate ${r.differing_from_generate} of ${compared} differ`;
      return h(
        "div",
        { class: `pair grid${parting ? " parted" : ""}` },
        letter,
        told(r.solo_text, r.batched_text, "alone"),
        told(r.batched_text, r.solo_text, "in the batch"),
        h(
          "p",
          { class: "why" },
          h("b", {}, t(`${differ} tokens differ`)),
          parting && t(from, { margin: number(parting.margin) }),
          t("largest logit difference {size}", { size: number(r.max_logit_difference) }),
          generated && t(generate),
        ),
      );
    });
    this.$(".pairs").replaceChildren(heads, ...rows);
  }

  async _run() {
    const base = this.options.base();
    const leak = this.leak.checked;
    const { kept } = this;
    // only while the comparison for which this was requested is on screen
    const message = (/** @type {Json} */ words, bad = false) =>
      kept === this.kept && this._message(words, bad);
    this._stop = new AbortController();
    this.$(".equivalence-run").disabled = true;
    this.$(".equivalence-cancel").hidden = false;
    message("starting");
    try {
      const answer = await this.options.ask(
        "equivalence",
        { ...base, leak },
        (/** @type {Json} */ { ahead, step }) =>
          message(ahead ? `${ahead} ahead of yours` : step ? `step ${step}` : "loading the model"),
        this._stop.signal,
      );
      kept[leak ? "leak" : "honest"] = answer.result;
      message("measured here, just now");
      this.say();
    } catch (/** @type {Foreign} */ error) {
      message(error.message, true);
    }
    this.$(".equivalence-run").disabled = false;
    this.$(".equivalence-cancel").hidden = true;
  }

  _message(/** @type {Json} */ words, bad = false) {
    tell(this.$(".equivalence-message"), words);
    this.$(".equivalence-message").classList.toggle("bad", bad);
  }
}
