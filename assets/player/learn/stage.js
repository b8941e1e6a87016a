// Shows one stop of a lesson in the player: puts the real views in a state, dims the rest, and
// restores everything afterwards.

import { findAll } from "../parts/dom.js";

const SIDE = ["kv", "queue", "text"]; // panels that share a place on narrow pages
const PHONE = ["mask", ...SIDE];

export class Stage {
  /** @param {Watch} watch */
  constructor(watch) {
    this.watch = watch;
    this.page = document.documentElement;
    this.panels = findAll(document, "#watch .panel");
    /** @type {import("../watch/page_actions.js").Held | null} */
    this.before = null;
  }

  /** Take over the player until `leave`. simple: in Simple, without budgets and blocks. */
  enter(simple = false) {
    this.watch.edit(false);
    this.watch.need(simple ? "simple" : "full");
    this.before ??= this.watch.held();
  }

  /** Show a stop. veil: "say" hides what would reveal the answer, "future" later steps as well. */
  async show(/** @type {Stop} */ { run, step, views, pin }, veil = "") {
    const { watch, page } = this;
    page.dataset.veil = veil;
    watch.pause();
    const tab = this.point(views);
    const entry = watch.recorded(run);
    if (!entry) return watch.missing(run);
    if (watch.state.entry !== entry || !watch.isTranslated)
      await watch.open(entry, { step, pin, tab });
    else {
      watch.turnToStep(step);
      if (pin) watch.pin(watch.state.run.requests.find((r) => r.letter === pin) || null);
    }
  }

  /** Highlight panels, and turn to the one that is on a tab. @param {string[]} views */
  point(views) {
    const { watch } = this;
    this._light(views);
    const shared = watch.state.layout === "phone" ? PHONE : SIDE;
    const tab = views.find((view) => shared.includes(view));
    if (tab) watch.chooseTab(tab);
    return tab;
  }

  /** Highlight the panels that the stop is about. @param {string[]} views */
  _light(views) {
    this.page.dataset.views = views.join(" ");
    for (const panel of this.panels)
      panel.classList.toggle("lit", views.includes(panel.dataset.view || ""));
  }

  /** Remove dimming and veil: the learner uses the player freely. */
  free() {
    this._light([]);
    delete this.page.dataset.views;
    delete this.page.dataset.veil;
  }

  /** Give the player back. keep: the run stays on screen, for the Watch tab. */
  leave(keep = false) {
    const { watch, before } = this;
    watch.need(null);
    this.free();
    this.before = null;
    if (before && !keep && before.shown.run) watch.restore(before);
  }
}
