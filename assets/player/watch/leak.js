// The leak: the requests on screen run again with a leaking mask, by the engine, or recorded if the
// page has none. The two runs are a pair: the mask shows what leaked, the texts show the effect.

import { showCard } from "../parts/floating.js";
import { h, newButton } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { t, translateLine } from "../parts/speech.js";
import { firstChange } from "../run/moments.js";
import { Run } from "../run/run.js";

export class Leak {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.working = ""; // words for the engine's progress
  }

  /** Whether a leak can be shown: the run is over, and there is an engine or a recorded leak. */
  get offered() {
    const { app } = this;
    const can = app.engines || this._recorded.length;
    return Boolean(can && !app.running && app.run && !app.run.goesOn);
  }

  get state() {
    const { offered, on, working } = this;
    return { offered, on, working };
  }

  get _recorded() {
    return this.app.options.catalogue.filter((entry) => entry.leak);
  }

  get on() {
    return Boolean(this.app.run?.header.leak);
  }

  async toggle() {
    const { app } = this;
    if (app.pair.leaks && app.pair.other) return app.pair.flip();
    if (this.working || this.on) return;
    const recorded = app.entry?.leak;
    if (!recorded && !app.engines) return this._sayWhere();
    const before = {
      run: app.run,
      entry: app.entry,
      replay: app.replay,
      name: () => t("with the mask"),
    };
    try {
      this._tell("starting");
      const answer = recorded ? { url: recorded } : await this._run();
      if (!answer) return;
      const replay = await app.fetch(answer.url);
      if (app.run !== before.run) return; // a different run was opened meanwhile
      const run = new Run(replay);
      const change = firstChange(before.run, run);
      const entry = { name: null, id: answer.id, url: answer.url };
      const says = change
        ? `Every request also reads the next one's keys: ${change.texts} of ${count(run.requests.length)} [text|texts] change.`
        : "Every request also reads the next one's keys; no token changes.";
      const wrote = ` writes “${change?.writes}”, where it wrote “${change?.wrote}” with the mask.`;
      app.pair.open({
        members: [before, { run, entry, replay, name: () => t("with the leak") }],
        leaks: true,
        step: change && change.step,
        says: () => t(says),
        caption: () => (change ? translateLine(["The leak: ", { r: change.id }, wrote]) : []),
      });
    } catch (/** @type {Foreign} */ error) {
      app.toast(error.message, 8000);
    } finally {
      this._tell("");
    }
  }

  /** Have the engine run it; returns its answer, or null if there are no requests to run. */
  async _run() {
    const { app } = this;
    const spec = await app.editor.specOnScreen();
    if (!spec) return null;
    const progress = (/** @type {Json} */ { step, ahead, loading }) => {
      const runs = step === null ? "starting" : `step ${step}`;
      this._tell(loading ? "loading the model" : ahead ? `${ahead} ahead` : runs);
    };
    const answer = await app.engines?.ask("leak", spec, app.visit.visitor, progress);
    if (!answer.url) throw new Error(answer.unkept || "the server kept nothing");
    return answer;
  }

  /** On a page without an engine, list the runs whose leak was recorded. */
  _sayWhere() {
    const { app } = this;
    const why =
      "To break the mask, an engine has to run the requests again, and this page has none. It was recorded for these runs:";
    const open = async (/** @type {Entry} */ entry) => {
      card.close();
      await app.open(entry);
      if (app.entry === entry) await this.toggle();
    };
    const choices = this._recorded.map((entry) =>
      newButton({ class: "button", onclick: () => open(entry) }, t(entry.title)),
    );
    const list = h("div", { class: "choices flex spaced wrap" }, ...choices);
    const card = showCard(app.root, "Leak", h("p", {}, t(why)), list);
  }

  _tell(/** @type {Json} */ words) {
    this.working = words;
    this.app.redraw();
  }
}
