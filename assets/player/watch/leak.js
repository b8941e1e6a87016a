// The leak: the requests on screen once more with the mask's wall taken away, run by the engine. The two runs are a pair: the mask shows what
// leaked, the texts what came of it.

import { plural } from "../parts/format.js";
import { firstChange } from "../run/changes.js";
import { Run } from "../run/run.js";

export class Leak {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.working = ""; // how far the engine is
  }

  /** Whether an engine can run it: the run is over, and is not a leak itself. */
  get offered() {
    const { app } = this;
    return Boolean(app.server && !app.running && app.run && !app.run.goesOn);
  }

  get on() {
    return Boolean(this.app.run?.header.leak);
  }

  async toggle() {
    const { app } = this;
    if (app.pair.leaks && app.pair.other) return app.pair.flip();
    if (this.working || this.on) return;
    const before = { run: app.run, entry: app.entry, replay: app.replay, name: "with the mask" };
    try {
      this._tell("starting");
      const spec = await app.editor.specOnScreen();
      if (!spec) return;
      const answer = await app.server.ask("leak", spec, app.visit.visitor, ({ step, ahead }) => this._tell(ahead ? `${ahead} ahead` : step === null ? "starting" : `step ${step}`));
      if (!answer.url) throw new Error(answer.unkept || "the server kept nothing");
      const replay = await app.fetch(answer.url);
      if (app.run !== before.run) return; // another was opened meanwhile
      const run = new Run(replay);
      const change = firstChange(before.run, run);
      app.pair.open({
        members: [before, { run, entry: { name: null, id: answer.id, url: answer.url }, replay, name: "with the leak" }], leaks: true, step: change && change.step,
        says: change ? `Every request also reads the next one's keys: ${change.texts} of ${plural(run.requests.length, "text")} change.` : "Every request also reads the next one's keys; no token changes.",
        told: change ? ["The leak: ", { r: change.id }, ` writes “${change.writes}”, where it wrote “${change.wrote}” with the mask.`] : [],
      });
    } catch (error) {
      app.toast(error.message, 8000);
    } finally {
      this._tell("");
    }
  }

  _tell(words) {
    this.working = words;
    this.app.redraw();
  }
}
