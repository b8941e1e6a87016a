// How much Watch shows. Simple is for whoever has never chosen: lanes, row, mask, memory and texts,
// with names in plain words. Full adds what engineers measure: the token budget, caches, blocks
// with their numbers, latencies, axes, events. What is shown is decided by the first that says
// something: what a lesson needs, an address, the visitor's last choice, the run itself.

import { findAll, setAttr } from "../parts/dom.js";
import { keep, kept } from "../parts/kept.js";

const KEPT = "inflight-detail";
/** @type {Record<string, string | null>} */
// in an address: what Simple has no place for; null: with any value
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

/**
 * What an address asks for: in words, or by naming something that only Full shows. @param
 * {URLSearchParams} p
 */
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
    this.needed = null; // by a lesson, while it is open
    /** @type {HowMuch | null} */
    this.linked = null; // by the address
    this.buttons = findAll(app.root, "[data-show]");
    for (const button of this.buttons)
      button.addEventListener("click", () => this.choose(button.dataset.show));
    this.apply();
  }

  /** The visitor's choice, or the address's, if there is one. */
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

  /** What the visitor asks for: remembered. */
  choose(detail) {
    this.linked = null;
    keep("good", KEPT, known(detail));
    this.apply();
    this.app.changed();
  }

  turn() {
    this.choose(this.simple ? "full" : "simple");
  }

  /** What a lesson needs; null once it has ended. @param {HowMuch | null} detail */
  need(detail) {
    this.needed = detail;
    this.apply();
  }

  /** The address has been read. @param {URLSearchParams} p */
  follow(p) {
    this.linked = detailOf(p) || this.linked;
    this.apply();
  }

  /** Show as much as is wanted now. */
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
 * Whether its reader brought the run: whoever opens a recording of vLLM wants its blocks and its
 * budget. @param {App} app
 */
function isBrought({ run, entry }) {
  const { source, engine } = run?.header || {};
  return source === "uploaded" || (engine && !entry?.name && !entry?.comparison);
}
