// The drawer that starts a new comparison: requests, policies and limits.

import { h, setText } from "../parts/dom.js";
import { Drawer } from "../parts/drawer.js";
import { DeviceField } from "../engine/device_field.js";
import { ModelField, loadingWords } from "../parts/model_field.js";
import { count } from "../parts/format.js";
import { t } from "../parts/speech.js";

const WATCHED = ""; // stands for the requests of the Watch tab, among presets by name
const FIRST = ["static", "continuous"]; // policies that are chosen at first
const LIMITS = ["max_num_seqs", "max_num_batched_tokens"];

export class NewComparison {
  /**
   * form: its element. options: {engines, ask(kind, spec, onprogress, signal), done(url, spec),
   * watched() → {spec, says}, which throws a sentence, or null where there is no Watch tab, opener,
   * phone()}.
   */
  constructor(/** @type {HTMLFormElement} */ form, /** @type {Json} */ options) {
    this.options = options;
    this.drawer = new Drawer(form, "New comparison", {
      close: () => this.toggle(false),
      cancel: () => this._stop?.abort(),
    });
    /** @type {Finder} */ this.$ = (s) => form.querySelector(s);
    this.fields = /** @type {Foreign} */ (form.elements);
    /** @type {Preset[]} */
    this.presets = [];
    this.model = new ModelField(form, {
      ...options.engines?.forModels,
      changed: () => this.device?.named(),
    });
    this.device = new DeviceField(this.fields.device, options.engines, () => this.model.spec);
    this.fields.device.parentElement.hidden = !options.engines?.tab;
    options.opener.addEventListener("click", () => this.toggle());
    this.fields.preset.addEventListener("change", () => this._chosen());
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      this._run();
    });
  }

  fill(/** @type {ComparisonOffers} */ { presets, policies, most_repeats: most, note, offered }) {
    if (offered) this.model.fill(offered);
    if (offered?.model) this.model.choose(offered);
    this.presets = presets;
    this.policies = policies;
    this.note = note; // where the comparison will be computed, if that is unexpected
    /** @type {HTMLElement} */
    this.watched = h("option", { value: WATCHED });
    this.fields.preset.replaceChildren(
      ...(this.options.watched ? [this.watched] : []),
      ...presets.map((p) => h("option", { value: p.name })),
    );
    this.$(".policy-rows").replaceChildren(
      ...policies.map(({ name: value }) => {
        const checked = FIRST.includes(value);
        const box = h("input", { type: "checkbox", name: "policy", value, checked });
        return h("label", { class: "check" }, box, h("span", {}, value, h("small")));
      }),
    );
    this.fields.repeats.max = String(most);
    this.fields.repeats.value = String(Math.min(3, most));
    this.named();
    if (presets.length) this.begin(presets[0].name);
  }

  named() {
    if (!this.policies) return;
    this.model.named();
    this.device.named();
    setText(this.watched, t("those in Watch or Live"));
    for (const option of this.fields.preset.options)
      if (option !== this.watched) option.textContent = t(this._preset(option.value).title);
    for (const [n, row] of [...this.$(".policy-rows").querySelectorAll("small")].entries())
      setText(row, t(this.policies[n].shows));
    this._say();
  }

  toggle(on = !this.drawer.isOpen) {
    this.drawer.toggle(on, this.options.opener);
    if (this.policies) this.model.named();
    this.device.named();
    if (on) this.fields.preset.focus({ preventScroll: true });
    if (on && this.fields.preset.value === WATCHED) this._chosen();
  }

  /** Begin with a preset's requests, those on screen, unless the form is open. */
  begin(/** @type {string} */ preset) {
    if (this.isOpen) return;
    this.fields.preset.value = preset;
    this._chosen();
  }

  /** Open the drawer with the requests of the run in Watch or Live chosen. */
  openOnWatched() {
    this.fields.preset.value = WATCHED;
    this.toggle(true);
  }

  get isOpen() {
    return this.drawer.isOpen;
  }

  _preset(/** @type {string} */ name) {
    return /** @type {Preset} */ (this.presets.find((p) => p.name === name));
  }

  /** The spec of the chosen requests, with the limits they come with; throws a sentence. */
  async _spec() {
    const name = this.fields.preset.value;
    if (name === WATCHED) return this.options.watched();
    const { spec, shows: says } = this._preset(name);
    return { spec, says };
  }

  /** Describe the choice; returns its spec, or null if it has none or was changed meanwhile. */
  async _say() {
    const name = this.fields.preset.value;
    const { spec, says, error } = await this._spec().catch((error) => ({ error }));
    if (this.fields.preset.value !== name) return null;
    const said = [says].flat().filter(Boolean);
    setText(this.$(".preset-shows"), said.map((sentence) => t(sentence)).join(" "));
    if (!this._running) this.drawer.say(error?.message ?? this.note, Boolean(error));
    return spec || null;
  }

  async _chosen() {
    const spec = await this._say();
    if (!spec) return;
    for (const limit of LIMITS) this.fields[limit].value = String(spec.config[limit]);
    // a visitor's own model stays, one that came with other requests does not
    if (!this.model.isOwn || this.model.value === this._presetModel) this.model.choose(spec);
    this._presetModel = spec.model;
    this.device.choose(spec.device || "auto");
  }

  async _run() {
    if (this._running) return;
    this._running = true;
    this._stop = new AbortController();
    this.drawer.busy(true);
    try {
      const { spec: chosen } = await this._spec();
      const limits = Object.fromEntries(
        LIMITS.map((name) => [name, Number(this.fields[name].value)]),
      );
      if (this.model.fault) throw new Error(this.model.fault);
      const { dtype, ...rest } = chosen; // the form has a field for it
      const spec = {
        ...rest,
        ...this.model.spec,
        device: this.device.value,
        config: { ...chosen.config, ...limits },
      };
      const policies = [...this.drawer.form.querySelectorAll("[name=policy]:checked")].map(
        (/** @type {Json} */ box) => box.value,
      );
      const repeats = Number(this.fields.repeats.value);
      this.drawer.say("The model is loaded …");
      const answer = await this.options.ask(
        "compare",
        { ...spec, policies, repeats },
        (/** @type {Json} */ progress) => this._progress(progress),
        this._stop.signal,
      );
      await this.options.done(answer.url, spec);
      this.drawer.say(
        answer.rounds < repeats
          ? `Time was up after ${answer.rounds} of ${repeats} rounds: the race shows these.`
          : repeats > 1
            ? "Done: the race shows the runs of median time."
            : "Done: the race shows the run of each.",
      );
      if (this.options.phone()) this.toggle(false);
    } catch (/** @type {Foreign} */ error) {
      this.drawer.say(error.message, true);
    }
    this.drawer.busy(false);
    this._running = false;
  }

  _progress(
    /** @type {Json} */ {
      ahead,
      total,
      index,
      round,
      contender,
      loading,
      ended = 0,
      requests = 1,
      tokens,
    },
  ) {
    if (loading) {
      const [share, words] = loadingWords(loading);
      this.drawer.progress(share);
      return this.drawer.say(words);
    }
    if (ahead) this.drawer.say(`${ahead} ahead of you.`);
    if (ahead || !total) return;
    this.drawer.progress((index + ended / requests) / total);
    const turn = t(round ? `round ${round}` : "warm-up");
    if (!contender) return this.drawer.say("The cost of a step on this device …");
    const run = t(`Run ${index + 1} of ${total}: {who}, {turn}.`, { who: contender, turn });
    if (tokens === undefined) return this.drawer.say(run);
    const done = `${count(ended)} of ${count(requests)} [request|requests] done`;
    this.drawer.say(`${run} ${t(`${done}, ${count(tokens)} [token|tokens] written.`)}`);
  }
}
