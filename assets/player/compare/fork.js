// Fork here: one knob changed, the same requests again, the step where the two runs part, and the two of them side by side.

import { h, setText } from "../parts/dom.js";
import { Race } from "./race.js";
import { RaceBar } from "./race_bar.js";

export class Fork {
  /** el: the panel. options: {ask, base() → spec or null, fetchDoc(url), policies(), race: options of a Race}. */
  constructor(el, options) {
    this.options = options;
    const $ = (s) => el.querySelector(s);
    this.$ = $;
    this.knob = $("[name=knob]");
    this.choice = $("[name=choice]");
    this.number = $("[name=number]");
    this.knob.addEventListener("change", () => this._values());
    $(".fork-form").addEventListener("submit", (e) => {
      e.preventDefault();
      this._run();
    });
    $(".fork-cancel").addEventListener("click", () => this._cancel?.());
    this.race = new Race($(".fork-race"), { ...options.race, onchange: () => this.bar.draw() });
    this.bar = new RaceBar($(".fork-bar"), $(".fork-tools"), this.race, "Fork");
  }

  /** knobs: {name, title} of each. */
  knobs(knobs) {
    this.knob.replaceChildren(...knobs.map(({ name, title }) => h("option", { value: name }, title)));
    this.knob.value = (knobs.find(({ name }) => name === "max_num_seqs") || knobs[0]).name;
    this._values();
  }

  /** Another run to fork from. */
  reset() {
    setText(this.$(".fork-says"), "");
    setText(this.$(".fork-after"), "");
    this._stand(false);
    this._message("");
    this._values();
  }

  _values() {
    const config = this.options.base()?.config;
    if (!config) return;
    const name = this.knob.value;
    const was = config[name] ?? null;
    const choices = name === "policy" ? this.options.policies().filter((p) => p !== was) : typeof was === "boolean" ? [was ? "off" : "on"] : null;
    this.choice.hidden = !choices;
    this.number.hidden = Boolean(choices);
    if (choices) this.choice.replaceChildren(...choices.map((c) => h("option", { value: c }, c)));
    else this.number.value = String(was === null ? 16 : name === "max_num_batched_tokens" ? Math.max(config.max_num_seqs, Math.round(was / 4)) : Math.max(1, was - 1));
    setText(this.$(".was"), `from ${was === null ? "enough" : typeof was === "boolean" ? (was ? "on" : "off") : was} to`);
  }

  async _run() {
    const base = this.options.base();
    if (!base) return this._message("Choose requests first.", true);
    const name = this.knob.value;
    const value = this.choice.hidden ? Number(this.number.value) : name === "policy" ? this.choice.value : this.choice.value === "on";
    this.$("[type=submit]").disabled = true;
    this._message("starting");
    try {
      const answer = await this.options.ask("fork", { ...base, knob: name, value }, (progress, cancel) => {
        this._cancel = cancel;
        this.$(".fork-cancel").hidden = false;
        this._message(progress.ahead ? `${progress.ahead} ahead of yours` : progress.total ? `run ${progress.index + 1} of ${progress.total}` : "loading the model");
      });
      this.show(await this.options.fetchDoc(answer.url));
      this._message("");
    } catch (error) {
      this._message(error.message, true);
    }
    this.$("[type=submit]").disabled = false;
    this.$(".fork-cancel").hidden = true;
  }

  show(doc) {
    const [says, after = ""] = doc.says.fork;
    setText(this.$(".fork-says"), says);
    setText(this.$(".fork-after"), after);
    this._stand(true);
    this.race.clock = false; // steps: they part at one
    this.race.show(doc);
    this.bar.fit();
  }

  get stands() {
    return !this.$(".fork-race").hidden;
  }

  _stand(on) {
    this.race.toggle(false);
    this.$(".fork-race").hidden = this.$(".fork-bar").hidden = this.$(".fork-tools").hidden = !on;
  }

  _message(words, bad = false) {
    setText(this.$(".fork-message"), words);
    this.$(".fork-message").classList.toggle("bad", bad);
  }
}
