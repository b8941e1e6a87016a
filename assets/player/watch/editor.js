// The workload editor: requests, limits and sampling as a form, whose contents are a spec to run.

import { download, h, iconButton, setText } from "../parts/dom.js";
import { goToPart } from "../parts/look.js";
import { count } from "../parts/format.js";
import { keep, keptData } from "../parts/kept.js";
import { t } from "../parts/speech.js";
import { Drawer } from "../parts/drawer.js";
import { FILE_AGAIN, ModelField, isFile } from "../parts/model_field.js";
import { DeviceField } from "../engine/device_field.js";
import { optional, restoreFork } from "./what_if.js";
import { Messages, withLast } from "./messages.js";
import { canonical, isSpec, pack, SAMPLING_DEFAULTS, unpack } from "./address.js";
import { loadWorkload } from "./workload_file.js";

const NUMBERS = ["max_num_seqs", "max_num_batched_tokens", "block_size"];
const SAMPLING = ["temperature", "top_k", "top_p", "seed"];
const CHECKS = ["chunked_prefill", "prefill_first", "prefix_caching"];
const TYPED = "inflight-typed"; // in the session's storage: the visitor's latest edits, as a spec
const OFF_ELSEWHERE = ["prefill_first", "prefix_caching"]; // off if the policy does not use them

export class Editor {
  constructor(/** @type {Root & HTMLFormElement} */ drawer, /** @type {App} */ app) {
    this.drawer = drawer;
    this.app = app;
    /** @type {Json[]} */
    this.rows = []; // {el, prompt, tokens, arrival, priority, request, messages, conversation}
    /** @type {Record<string, number>} */
    this.limits = {};
    /** @type {Promise<void> | null} */
    this._asking = null; // the question that `ready` waits for
    this._opening = false; // whether a recording that matches the form is being opened
    this.isByPriority = false; // whether the chosen policy goes by priority
    this.isChosenByHand = false; // whether the visitor chose the model; it may have no facts yet
    const $ = /** @type {Finder} */ ((s) => drawer.querySelector(s));
    this.$ = $;
    /** @type {Finder} */
    this.field = (name) => drawer.elements.namedItem(name);
    this.frame = new Drawer(drawer, "Edit requests", {
      close: () => this.toggle(false),
      cancel: () => app.live.cancel(),
    });
    this.frame.button.disabled = true; // until the form is filled
    $(".add-request").addEventListener("click", () => {
      const { isOffered, isOn } = this.messages;
      const asked = isOffered ? "Why is the sky blue?" : "To be, or not to be";
      const given = isOn ? { messages: [{ role: "user", content: asked }] } : { prompt: asked };
      // an answer in a conversation ends within so many tokens
      this._row({ ...given, arrival: this.rows.length }, isOffered ? 64 : 16).prompt.focus();
      this.touch();
    });
    $(".save-workload").addEventListener("click", () => {
      const text = JSON.stringify(this.spec(), null, 1);
      download("inflight-workload.json", new Blob([text], { type: "application/json" }));
    });
    $(".load-workload").addEventListener("click", () => $(".workload-file").click());
    $(".workload-file").addEventListener("change", (/** @type {Happened} */ e) =>
      loadWorkload(this, e.target),
    );
    const compare = $(".compare-these");
    compare.hidden = !app.options.tabs.some((tab) => tab.name === "compare");
    compare.addEventListener("click", () => goToPart(app.root, "compare", "watched"));
    this.field("preset").addEventListener("change", () =>
      this.setAside(() => this._preset(this.field("preset").value)),
    );
    this.field("policy").addEventListener("change", () => this._policy());
    drawer.addEventListener("input", (e) => {
      const at = /** @type {HTMLInputElement} */ (e.target);
      this.refused = null;
      const { name } = at;
      if (SAMPLING.includes(name) || name === "ignore_eos") this.touchedSampling.add(name);
      if (name === "model" || name === "own_model") this.isChosenByHand = true;
      if (this.isChosenByHand || at.closest(".request-row textarea")) this._letEnd();
      this.touch();
    });
    drawer.addEventListener("submit", (e) => {
      e.preventDefault();
      this.run();
    });
    this.touchedSampling = new Set();
    // tells why a link was not run, while the form still has the link's spec; otherwise null
    this.refused = null;
    this.model = new ModelField(drawer, {
      ...app.engines?.forModels,
      device: () => this.device.value,
      blockSize: () => Number(this.field("block_size").value),
      changed: () => this._modelChanged(),
    });
    this.device = new DeviceField(this.field("device"), app.engines, () => this.model.spec);
    const edited = () => {
      this._letEnd();
      this.touch();
    };
    this.messages = new Messages(drawer, () => this.rows, edited);
  }

  _modelChanged() {
    const { facts, isOwn, value } = this.model;
    this.device.named();
    this.$(".model-nature").hidden = value !== "smollm2";
    const takes = facts ? Boolean(facts.has_chat_template) : isOwn || !value ? null : false;
    this.messages.offer(takes);
    if (this.isChosenByHand && takes !== null) {
      this.isChosenByHand = false;
      this.messages.turn(takes);
    }
    this._compare();
  }

  /** Let answers of a visitor's own requests end where the model ends them. */
  _letEnd() {
    if (!this.field("ignore_eos").checked) return;
    this.field("ignore_eos").checked = false;
    this.touchedSampling.add("ignore_eos");
  }

  async toggle(on = !this.frame.isOpen) {
    this.frame.toggle(on, this.app.$(".edit-button"));
    if (!on) return;
    if (this.state) this.model.named();
    this.device.named();
    this.model.weigh();
    await this._follow();
  }

  /** Fill the form with the run on screen unless it has edits. False if no engine answers. */
  async _follow() {
    if (!(await this.ready())) return false;
    const { run } = this.app;
    if (!run || this.refused || (this.asShown !== undefined && this.shown === run)) return true;
    const act = () => this.setAside(() => this._fromRun());
    const edits = "These are your edits; another run is on screen.";
    if (this.edited) this.frame.say(edits, false, { text: "Show its requests", act });
    else this._fromRun();
    return true;
  }

  /** Choose the model in a visitor's file. @param {File} file */
  async openModel(file) {
    await this.toggle(true);
    if (!this.state) return;
    this.isChosenByHand = true;
    await this.model.open(file);
    this.touch();
  }

  /** The spec that runs the requests on screen again, or null. */
  async specOnScreen() {
    return (await this.ready()) && this.app.run ? this._specOf(this.app.run) : null;
  }

  named() {
    if (!this.state) return;
    this.model.named();
    this.device.named();
    const titles = [t("the run on screen"), ...this.state.presets.map((p) => t(p.title))];
    for (const [n, option] of [...this.field("preset").options].entries())
      option.textContent = titles[n];
    const preset = this.state.presets.find((p) => p.name === this.field("preset").value);
    if (preset) setText(this.$(".preset-shows"), t(preset.shows));
    this._policy();
    if (!this.app.running) this._compare();
  }

  /** Another run was put on screen. */
  followed() {
    const { app } = this;
    if (this._opening)
      this.shown = app.run; // this run matches the form
    else if (this.frame.isOpen && this.state) this._follow();
  }

  /** Whether the form differs from the run on screen. */
  get changed() {
    return this.asShown !== JSON.stringify(this.spec());
  }

  get edited() {
    return this.asShown !== undefined && this.changed;
  }

  /**
   * Fill the form again; edits that this overwrites can be restored. @param {() => void} fill
   * @returns {Action | null} an action that restores them
   */
  setAside(fill) {
    const edits = this.edited ? this.spec() : null;
    if (edits) keep("visit", TYPED, null);
    fill();
    if (!edits) return null;
    const restore = { text: "Restore your edits", act: () => this.edit(edits) };
    this.frame.say("Your edits were set aside.", false, restore);
    return restore;
  }

  /** Put a spec into the form as edits, of which no run is on screen yet. */
  edit(/** @type {Json} */ spec) {
    this.fill(spec);
    this.asShown = null;
    this.touch();
  }

  /** The visitor's edits from before a reload, or null; not in Learn, where a task begins with its own requests. */
  get typed() {
    const spec = keptData("visit", TYPED);
    return isSpec(spec) && document.documentElement.dataset.part !== "learn" ? spec : null;
  }

  async take(/** @type {Json} */ spec) {
    if (!(await this.ready())) return;
    this.setAside(() => this.fill(spec));
    this.shown = this.app.run;
  }

  /** The form's spec for other parts that want to run it: {spec, says}. Throws a sentence. */
  async said() {
    if (!(await this._follow())) throw new Error(this.frame.message.textContent);
    const fault = this._fault();
    if (fault) throw new Error(`The Watch tab's requests cannot be run: ${fault}`);
    const spec = this.spec();
    const { arrival_unit: unit, requests } = spec.workload;
    const last = unit === "s" ? Math.max(...requests.map(({ arrival }) => arrival)) : 0;
    const { changed } = this;
    const whose = changed ? "as edited there" : "those of the run on screen there";
    const steps = "Each comes in the step in which it came: pauses and pace are left out.";
    const long = `The last comes after ${last.toFixed(1)} s: each run takes longer than that.`;
    const many = `${count(this.rows.length)} [request|requests], ${whose}.`;
    const says = [many, !changed && this.app.run.isInteractive && steps, last > 1 && long];
    return { spec, says };
  }

  /** Ask the engine once what can be run here; false if none answers. */
  async ready() {
    if (!this.state)
      await (this._asking ??= this._ask().finally(() => {
        this._asking = null;
      }));
    return Boolean(this.state);
  }

  async _ask() {
    try {
      /** @type {Offers} */
      this.state = await this.app.engines.get("inflight/state");
    } catch (/** @type {Foreign} */ error) {
      this.frame.say(`The engine cannot be reached: ${error.message}.`, true);
      return;
    }
    const { presets, policies, limits } = this.state;
    this.limits = limits || {};
    const option = (/** @type {Json} */ value, /** @type {Json} */ words) =>
      h("option", { value }, words);
    const chosen = presets.map((p) => option(p.name, t(p.title)));
    this.field("preset").replaceChildren(option("", t("the run on screen")), ...chosen);
    this.field("policy").replaceChildren(...policies.map(({ name }) => option(name, name)));
    this.model.fill(this.state);
    if (this.typed) this.edit(this.typed);
    this.frame.button.disabled = false;
  }

  // -- the form ----------------------------------------------------------------------------------

  _row(/** @type {Json} */ request, maxNew = request.sampling?.max_new_tokens ?? 32) {
    const ids = request.prompt_token_ids;
    const heard = t(`Prompt of request ${this.rows.length + 1}`);
    const prompt = h("textarea", { rows: "1", "aria-label": heard, spellcheck: "false" });
    prompt.value = ids ? `${ids.length} token ids` : request.prompt || "";
    if (ids) prompt.title = t("Given as token ids; type to replace them with text");
    /**
     * @param {string} label @param {Json} value @param {string} inputmode
     * @param {number | null} min @param {number | string} step
     */
    const number = (label, value, inputmode, min, step) =>
      h("input", { type: "number", inputmode, min, step, value, "aria-label": t(label) });
    const tokens = number("New tokens", maxNew, "numeric", 1, 1);
    const arrival = number("Arrival", request.arrival ?? 0, "decimal", 0, "any");
    const priority = number("Priority", request.priority ?? 0, "numeric", null, 1);
    priority.classList.add("priority");
    const remove = iconButton("trash", t("Remove this request"), () => {
      this.rows.splice(this.rows.indexOf(row), 1);
      el.remove();
      this.touch();
    });
    const el = h("div", { class: "request-row grid" }, prompt, tokens, arrival, priority, remove);
    const row = { el, prompt, tokens, arrival, priority, request, asGiven: prompt.value };
    this.rows.push(row);
    this.$(".request-rows").append(el);
    this.messages.added(row);
    return row;
  }

  fill(/** @type {Json} */ { workload, config, model, device, dtype = undefined }) {
    this.refused = null;
    this.isChosenByHand = false;
    /** @type {Json[]} */
    this.rows = [];
    this.$(".request-rows").replaceChildren();
    const { requests = [], name, arrival_unit: unit } = workload || {};
    for (const request of requests) this._row(request);
    this.workloadName = name;
    this.field("arrival_unit").value = unit || "step";
    this.field("policy").value = config.policy;
    for (const name of [...NUMBERS, "num_blocks"]) this.field(name).value = config[name] ?? "";
    for (const name of CHECKS) this.field(name).checked = Boolean(config[name]);
    this.model.choose({ model, dtype });
    this.device.choose(device || "auto");
    for (const name of SAMPLING)
      this.field(name).value =
        requests[0]?.sampling?.[name] ?? /** @type {Json} */ (SAMPLING_DEFAULTS)[name];
    this.field("ignore_eos").checked = requests.some(
      (/** @type {Json} */ request) => request.sampling?.ignore_eos,
    );
    this.touchedSampling.clear();
    this._policy();
    this.asShown = JSON.stringify(this.spec());
    this._compare();
  }

  /** The preset whose recording is on screen. */
  get _known() {
    const { entry } = this.app;
    return entry && this.state.presets.find((p) => p.name === entry.name);
  }

  _specOf(/** @type {Run} */ run) {
    if (this._known) return this._known.spec;
    const kept = this.app.visit.runs.find((other) => other.run === run);
    if (kept) return kept.spec;
    const { header } = run;
    const name = (header.model && header.model.name) || "";
    const lastOf = (/** @type {string} */ path) => path.split("/").at(-1);
    const model = this.state.models.find((m) => lastOf(m) === lastOf(name)) || name;
    return { workload: run.workload, config: header.config, model, device: "auto" };
  }

  _fromRun() {
    const known = this._known;
    this.shown = this.app.run;
    this.field("preset").value = known ? known.name : "";
    setText(this.$(".preset-shows"), t(known ? known.shows : ""));
    this.fill(this._specOf(this.app.run));
    this.frame.say("");
  }

  _preset(/** @type {string} */ name) {
    const preset = this.state.presets.find((p) => p.name === name);
    if (!preset) return this._fromRun();
    setText(this.$(".preset-shows"), t(preset.shows));
    // a model that the visitor brought stays chosen
    const isOurs = this.state.presets.some(({ spec }) => spec.model === this.model.value);
    const own = !isOurs && this.model.isOwn && this.model.facts && this.model.spec;
    this.fill(own ? { ...preset.spec, ...own } : preset.spec);
    this.isChosenByHand = Boolean(own);
    const entry = this.app.options.catalogue.find((e) => e.name === name);
    if (entry && entry !== this.app.entry) {
      // the preset is recorded, so its run is shown at once
      this._opening = true;
      this.app.open(entry).finally(() => {
        this._opening = false;
      });
    }
    this.asShown = entry && !own ? JSON.stringify(this.spec()) : null;
    this._compare();
  }

  _policy() {
    const policy =
      this.state && this.state.policies.find((p) => p.name === this.field("policy").value);
    if (!policy) return;
    setText(this.$(".policy-shows"), t(policy.shows));
    this.isByPriority = policy.order_by === "priority";
    this.drawer.classList.toggle("by-priority", this.isByPriority);
    for (const name of optional(this.state.policies)) {
      this.field(name).disabled = !policy.knobs.includes(name);
      if (this.field(name).disabled && OFF_ELSEWHERE.includes(name))
        this.field(name).checked = false;
    }
  }

  /** The form as a spec for the engine. */
  spec() {
    const number = (/** @type {string} */ name) => Number(this.field(name).value);
    const requests = this.rows.map((row, i) => {
      const { prompt, tokens, arrival, priority, request, asGiven, messages } = row;
      const sampling = { ...(request.sampling || {}), max_new_tokens: Number(tokens.value) };
      const isSet = (/** @type {string} */ name) =>
        this.touchedSampling.has(name) || !request.sampling;
      for (const name of SAMPLING.filter(isSet))
        sampling[name] = number(name) + (name === "seed" ? i : 0);
      if (isSet("ignore_eos")) delete sampling.ignore_eos;
      if (isSet("ignore_eos") && this.field("ignore_eos").checked) sampling.ignore_eos = true;
      const given = messages
        ? { messages: withLast(messages, prompt.value) }
        : request.prompt_token_ids && prompt.value === asGiven
          ? { prompt_token_ids: request.prompt_token_ids }
          : { prompt: prompt.value };
      // fields that the form does not show, such as when a client leaves
      const { prompt: _, prompt_token_ids: __, messages: ___, priority: ____, ...others } = request;
      return {
        ...others,
        id: request.id || this._freshId(),
        ...given,
        sampling,
        arrival: Number(arrival.value),
        ...(Number(priority.value) ? { priority: Number(priority.value) } : {}),
      };
    });
    requests.forEach((r, i) => {
      this.rows[i].request = { ...this.rows[i].request, id: r.id };
    });
    /** @type {Json} */ const config = { policy: this.field("policy").value };
    for (const name of NUMBERS) config[name] = number(name);
    config.num_blocks = this.field("num_blocks").value === "" ? null : number("num_blocks");
    for (const name of CHECKS) config[name] = this.field(name).checked;
    const name = this.workloadName || "custom";
    const unit = this.field("arrival_unit").value;
    const workload = { schema: 1, name, arrival_unit: unit, requests };
    return { workload, config, ...this.model.spec, device: this.device.value };
  }

  _freshId() {
    const taken = new Set(this.rows.map((r) => r.request.id));
    for (let n = 0; ; n += 1) if (!taken.has(`r${n}`)) return `r${n}`;
  }

  /** The visitor has changed something: store it. */
  touch() {
    if (this.state) keep("visit", TYPED, JSON.stringify(this.spec()));
    this._compare();
  }

  /** Show whether the form differs from the run on screen. */
  _compare() {
    const { changed } = this;
    setText(this.frame.button, t(changed ? "Run these changes" : "Run"));
    if (this.refused) this.refused();
    else if (!this.app.running)
      this.frame.say(changed ? "Changed: the picture still shows the last run." : "");
  }

  _fault() {
    for (const el of this.drawer.querySelectorAll(".bad")) el.classList.remove("bad");
    const bad = (/** @type {HTMLElement} */ el, /** @type {string | null} */ sentence) => {
      el.classList.add("bad");
      el.focus();
      return sentence;
    };
    if (!this.rows.length) return "There is nothing to run: add a request.";
    if (this.model.fault) return bad(this.model.own, this.model.fault);
    for (const [i, row] of this.rows.entries()) {
      const who = `Request ${i + 1}`;
      if (!row.prompt.value) return bad(row.prompt, `${who} has an empty prompt.`);
      const unsaid = row.conversation?.empty;
      if (unsaid) return bad(unsaid, `${who} has an empty message.`);
      if (!/^\d+$/.test(row.tokens.value) || Number(row.tokens.value) < 1)
        return bad(row.tokens, `${who}: new tokens must be a whole number of at least 1.`);
      if (row.arrival.value === "" || !(Number(row.arrival.value) >= 0))
        return bad(row.arrival, `${who}: the arrival must be a number of at least 0.`);
      if (this.isByPriority && !/^-?\d+$/.test(row.priority.value))
        return bad(row.priority, `${who}: the priority must be a whole number.`);
    }
    for (const name of [...NUMBERS, ...SAMPLING, "num_blocks"]) {
      const el = this.field(name);
      if (el.disabled || (name === "num_blocks" && el.value === "" && el.validity.valid)) continue;
      const label = el.closest("label").querySelector("span").textContent;
      if (el.value === "" || !el.validity.valid)
        return bad(el, `${label}: ${el.validationMessage || "this needs a number"}`);
    }
    return null;
  }

  // -- running -----------------------------------------------------------------------------------

  async run() {
    const fault = this._fault();
    if (fault) return this.frame.say(fault, true);
    return this.runSpec(this.spec());
  }

  /** @param {Json} spec @param {Beside["asked"]} asked */
  async runSpec(spec, asked = null) {
    return this._running(spec, "Starting the engine.", (tell) =>
      this.app.live.start(spec, this.app.visit.visitor, tell, asked),
    );
  }

  /** Return to the run that was in progress before a reload; whether there was one. */
  async resume() {
    const { live, visit } = this.app;
    const { left } = live;
    if (!left || !(await this.ready())) return false;
    if (!this.edited) this.edit(left.spec);
    const anew = "The run that was going on starts again.";
    this.app.toast(left.job ? "The run that was going on is taken up again." : anew);
    const resume = (/** @type {Json} */ tell) => live.resume(visit.visitor, tell);
    await this._running(left.spec, "Taking up the run.", resume);
    return true;
  }

  /** @param {Json} spec @param {string} words @param {(tell: Json) => Promise<boolean>} start */
  async _running(spec, words, start) {
    const { app, frame } = this;
    if (app.running) {
      app.toast("A run is already in progress: cancel it first.");
      return false;
    }
    this.refused = null;
    frame.busy(true);
    this.frame.say(words);
    const said = JSON.stringify(spec);
    const ran = await start({
      progress: (/** @type {number} */ share, /** @type {Json} */ words) => {
        frame.progress(share);
        this.frame.say(words);
        if (!frame.isOpen && !app.live.run) app.toast(words, 1500); // until the run has a step
      },
      done: (/** @type {Json} */ words) => this.frame.say(words),
      failed: (/** @type {string} */ sentence, /** @type {Action | null | ""} */ action) => {
        frame.say(sentence, true, action);
        if (!frame.isOpen) app.toast(sentence, action ? 20000 : 8000, action);
      },
    });
    frame.busy(false);
    this.model.weigh();
    const { ended } = app.live;
    if (ran && ended && ended.entry) {
      await this.keep(ended.run, ended.entry, spec, this.titleOf(spec));
      app.bar.marks();
    }
    if (ran && app.run === app.live.run) {
      this.asShown = said;
      this.shown = app.run;
      setText(frame.button, t(said === JSON.stringify(this.spec()) ? "Run" : "Run these changes"));
      app.address.write(); // at once, as the page may be reloaded
    }
    return ran;
  }

  /**
   * Add a run that reached its end to those of this visit. @param {Run} run @param {Entry} entry
   * @param {Json} spec @param {string} title
   */
  async keep(run, entry, spec, title) {
    entry.spec = await this.packed(spec);
    this.app.visit.add(run, entry, spec, title);
  }

  /** The preset whose requests a spec has. */
  _presetOf(/** @type {Json} */ spec) {
    const asked = canonical(spec.workload);
    return this.state.presets.find((p) => canonical(p.spec.workload) === asked);
  }

  /** The title that a run of this spec gets among those of this visit. */
  titleOf(/** @type {Json} */ spec) {
    const own = `${count(spec.workload.requests.length)} [request|requests] of yours`;
    return t(this._presetOf(spec)?.title ?? own);
  }

  /** A spec in its shortest form, for a link: a preset and what differs from it, else all of it. */
  packed(/** @type {Json} */ spec) {
    const preset = this._presetOf(spec);
    if (!preset) return pack(spec);
    const differs = (/** @type {Json} */ [key, value]) => preset.spec.config[key] !== value;
    const same = (/** @type {string} */ key) =>
      spec[key] === preset.spec[key] ? undefined : spec[key];
    return pack({
      preset: preset.name,
      config: Object.fromEntries(Object.entries(spec.config).filter(differs)),
      model: same("model"),
      device: same("device"),
      dtype: same("dtype"),
    });
  }

  /** Run the spec of a link and go to the link's step. */
  async restore(/** @type {Wanted} */ wanted) {
    if (this.restoring === wanted.spec) return; // returning to Watch follows the same link again
    /** @type {string | null | undefined} */ this.restoring = wanted.spec;
    this.app.address.owes = true;
    if (await this.ready()) await this._restore(wanted);
    this.app.address.owes = false;
    this.restoring = null;
  }

  async _restore(/** @type {Wanted} */ wanted) {
    let spec = await unpack(/** @type {string} */ (wanted.spec)).catch(() => null);
    if (!isSpec(spec)) return this.app.toast("This link's workload cannot be read.");
    if (spec.preset) {
      const preset = this.state.presets.find((p) => p.name === spec.preset);
      if (!preset) return this.app.toast("This link names a preset that is not here.");
      spec = {
        ...preset.spec,
        config: { ...preset.spec.config, ...spec.config },
        model: spec.model || preset.spec.model,
        device: spec.device || preset.spec.device,
        dtype: spec.dtype,
      };
    }
    // the model is a path or a hub id, which following a link must not load
    if (!this.model.knows(spec.model)) {
      const restore = this.setAside(() => this.edit(spec));
      const unknown = this.state.any_model
        ? "This link asks for the model {name}, which is not built in: run it if you trust it."
        : "This link asks for the model {name}, which this page cannot load: choose one of its own.";
      const says = this.model.options.open && isFile(spec.model) ? FILE_AGAIN : unknown;
      this.refused = () => this.frame.say(t(says, { name: spec.model }), true, restore);
      await this.toggle(true);
      return this.refused();
    }
    if (!this.edited) this.edit(spec);
    this.app.toast("Running what the link describes.");
    if (wanted.what && (await restoreFork(this.app, spec, wanted))) return;
    if ((await this.runSpec(spec)) && this.app.run === this.app.live.run) this.app.look(wanted);
  }
}
