// One stop of a lesson on the player: puts the real views in a state, dims the rest, and restores everything afterwards.

import { shownBy } from "../parts/look.js";
import { t } from "../parts/speech.js";

const SIDE = ["kv", "queue", "text"]; // panels that share a place on narrow pages

export class Stage {
  /** app: the player of the page. */
  constructor(app) {
    this.app = app;
    this.page = document.documentElement;
    this.before = null;
  }

  /** Take over the player; `leave` restores what it showed. */
  enter() {
    this.app.detail.need("full"); // lessons speak of budgets and blocks
    this.before ??= { opened: this.app.speech.opened, ...shownBy(this.app) };
  }

  /** Show {run, step, views, pin}. veil: "say" hides what would reveal the answer, "future" hides later steps. */
  async show({ run, step, views, pin }, veil = "") {
    const { app, page } = this;
    page.dataset.views = views.join(" ");
    page.dataset.veil = veil;
    app.transport.toggle(false);
    const tab =
      app.layout === "phone"
        ? views.find((v) => v === "mask" || SIDE.includes(v))
        : views.find((v) => SIDE.includes(v));
    const entry = app.options.catalogue.find((e) => e.name === run);
    if (!entry) return app.toast(`${t("This recorded run is not available:")} ${run}.`);
    if (app.entry !== entry || app.speech.opened !== app.speech.language)
      await app.open(entry, { step, pin, tab });
    else {
      const from = app.index;
      app.clear();
      app.seekStep(step);
      app.motion.went(from, app.index, true);
      if (pin) app.pin(app.run.requests.find((r) => r.letter === pin));
      if (tab) app.chooseTab(tab);
    }
  }

  /** Nothing is dimmed or veiled: the player is the learner's. */
  free() {
    delete this.page.dataset.views;
    delete this.page.dataset.veil;
  }

  /** keep: the run stays on screen, for the Watch tab. */
  leave(keep = false) {
    const { app, before } = this;
    app.detail.need(null);
    this.free();
    this.before = null;
    if (!before || keep || !before.shown.run) return;
    app.speech.opened = before.opened;
    Object.assign(app, before.shown);
    app.entered(before);
  }
}
