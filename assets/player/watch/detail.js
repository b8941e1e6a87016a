// How much Watch shows. Simple, for visitors who have never chosen, has lanes, row, mask, memory
// and texts, with names in plain words. Full adds what engineers measure: the token budget, caches,
// numbered blocks, latencies, axes, events. The first of these that is known decides: what a lesson
// needs, the address, the visitor's last choice, the kind of run.

import { findAll, setAttr } from "../parts/dom.js";
import { keep, kept } from "../parts/kept.js";

const KEPT = "inflight-detail";
/** @type {Record<string, string | null>} */
// parameters of an address that only Full can show; null: with any value
const ONLY_FULL = {
  rank: null,
  layer: null,
  request: null,
  axis: "time",
  view: "kv",
  tab: "queue",
};

/** @typedef {"simple" | "full"} HowMuch */

/** @param {string | null | undefined} text @returns {HowMuch | null} */
const known = (text) => (text === "simple" || text === "full" ? text : null);

/** How much an address asks for: in words, or by what only Full has. @param {URLSearchParams} p */
function detailOf(p) {
  const isOnlyFull = Object.entries(ONLY_FULL).some(
    ([name, value]) => p.has(name) && (value === null || p.get(name) === value),
  );
  return known(p.get("detail")) || (isOnlyFull ? "full" : null);
}

export class Detail {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {HowMuch | null} */
    this.needed = null; // what a lesson needs while it is open
    /** @type {HowMuch | null} */
    this.linked = null; // what the address asks for
    this.buttons = findAll(app.root, "[data-show]");
    for (const button of this.buttons)
      button.addEventListener("click", () => this.choose(button.dataset.show || ""));
    this.apply();
  }

  /** What the address asks for, else the visitor's last choice, else null. */
  get chosen() {
    return this.linked || known(kept("good", KEPT));
  }

  /** @returns {HowMuch} */
  get now() {
    const own = isBrought(this.app) ? "full" : "simple";
    return this.needed || this.chosen || known(this.app.options.detail) || own;
  }

  get simple() {
    return this.now === "simple";
  }

  /** Show as much as the visitor chooses, and remember the choice. */
  choose(/** @type {string} */ detail) {
    this.linked = null;
    keep("good", KEPT, known(detail));
    this.apply();
    this.app.changed();
  }

  turn() {
    this.choose(this.simple ? "full" : "simple");
  }

  /** Show as much as a lesson needs; null once it has ended. @param {HowMuch | null} detail */
  need(detail) {
    this.needed = detail;
    this.apply();
  }

  /** Read a new address. @param {URLSearchParams} p */
  follow(p) {
    this.linked = detailOf(p) || this.linked;
    this.apply();
  }

  /** Show as much as is wanted at present. */
  apply() {
    const { app, now } = this;
    for (const button of this.buttons)
      setAttr(button, "aria-pressed", String(button.dataset.show === now));
    if (app.root.dataset.detail === now) return;
    app.root.dataset.detail = now;
    app.store.set({ detail: now });
    app.tooltip?.hide();
    if (app.views) app.sized();
  }
}

/**
 * Whether the visitor brought the run: a person who opens a recording of vLLM wants to see its
 * blocks and budget. @param {App} app
 */
function isBrought({ run, entry }) {
  const { source, engine } = run?.header || {};
  return source === "uploaded" || (engine && !entry?.name && !entry?.comparison);
}
