// Pointing at requests with pointer or keys: hovering highlights a request everywhere; a click, a
// tap or Enter pins it. On a canvas its view finds items: `hit(x, y)` under a point, and
// `places()`, boxes in reading order for arrow keys; elsewhere elements have data-request.

import { plain } from "../parts/chips.js";
import { h, hasMoved, pointIn, setAttr, setText } from "../parts/dom.js";
import { Glossary } from "../parts/glossary.js";
import { t, translateLine } from "../parts/speech.js";

/**
 * view: has `surface` and `hit(x, y)` → {request, lines, keepsPin} or null. seeks: whether a click
 * seeks instead of pinning. @param {App} app @param {PointedView & { dragging?: boolean }} view
 */
export function pointCanvas(app, view, seeks = false) {
  const { canvas } = view.surface;
  const find = (/** @type {Json} */ e) => (app.run ? view.hit(...pointIn(canvas, e)) : null);
  canvas.addEventListener("pointermove", (e) => {
    if (e.pointerType === "touch" || view.dragging || !hasMoved(e)) return;
    app.hover(find(e), e.clientX, e.clientY);
  });
  canvas.addEventListener("pointerleave", () => app.hover(null));
  /** @type {number[] | null} */
  let down = null;
  canvas.addEventListener("pointerdown", (e) => {
    down = [e.clientX, e.clientY];
  });
  canvas.addEventListener("click", (e) => {
    // the end of a drag is not a click
    if (seeks || (down && Math.hypot(e.clientX - down[0], e.clientY - down[1]) > 5)) return;
    const found = find(e);
    if (found && found.keepsPin) return;
    if (e.pointerType === "touch" || e.pointerType === "pen")
      app.hover(found, e.clientX, e.clientY);
    app.pin(found ? found.request : null);
  });
}

export function pointElements(/** @type {App} */ app) {
  if (app.options.terms) new Glossary(() => app.speech.language?.terms || app.options.terms);
  const of = (/** @type {Event} */ e) => {
    const at = /** @type {Element} */ (e.target);
    const el = /** @type {HTMLElement | null} */ (at.closest && at.closest("[data-request]"));
    return el && app.run ? app.run.requests[Number(el.dataset.request)] : null;
  };
  app.root.addEventListener("pointerover", (e) => {
    if (
      e.pointerType === "touch" ||
      /** @type {Element} */ (e.target).tagName === "CANVAS" ||
      !hasMoved(e)
    )
      return;
    const request = of(e);
    if (request !== app.store.state.hovered) app.hover(request && { request });
  });
  app.root.addEventListener("click", (e) => {
    const request = of(e);
    if (request) app.pin(request);
  });
}

const HOW = "arrow keys move, Enter selects the request, Escape leaves";
const MOST = 20000; // places at most that arrow keys can visit

/** @typedef {{x: number, y: number, w: number, h: number}} Target */

/**
 * The index of the place next to `at` in a direction: in a row the next one, between rows the
 * nearest place of the nearest row.
 * @param {Target[]} places @param {number} at @param {string} key
 */
export function neighbour(places, at, key) {
  if (key === "Home") return 0;
  if (key === "End") return places.length - 1;
  const here = places[at];
  const [x, y] = [here.x + here.w / 2, here.y + here.h / 2];
  if (key === "ArrowRight") return Math.min(at + 1, places.length - 1);
  if (key === "ArrowLeft") return Math.max(at - 1, 0);
  const down = key === "ArrowDown";
  let best = at;
  let least = Infinity;
  places.forEach((place, i) => {
    const dy = (place.y + place.h / 2 - y) * (down ? 1 : -1);
    if (dy <= Math.min(here.h, place.h) / 2) return;
    const distance = dy * 1e4 + Math.abs(place.x + place.w / 2 - x);
    if (distance < least) [best, least] = [i, distance];
  });
  return best;
}

export class Cursor {
  /**
   * @param {App} app
   * @param {PointedView} view has surface, places and hit
   * @param {string} name what its places are
   */
  constructor(app, view, name) {
    this.app = app;
    this.view = view;
    this.at = 0;
    this.name = name;
    this.said = h("span", { class: "hidden-text" }, HOW);
    const id = `cursor-${name.replaceAll(" ", "-")}`;
    const option = { role: "option", class: "cursor-at", "aria-selected": "false", id };
    this.option = h("span", option, this.said);
    this._shown = ""; // the last position shown
    const list = { role: "listbox", tabindex: "0", "aria-activedescendant": id };
    this.el = h("div", { class: "cursor", ...list }, this.option);
    /** @type {HTMLElement} */ (view.surface.canvas.parentElement).append(this.el);
    this.el.addEventListener("keydown", (e) => this._key(e));
    this.el.addEventListener("focus", () => this.draw());
    this.el.addEventListener("blur", () => {
      this._shown = "";
      app.hover(null);
    });
  }

  get _walked() {
    return document.activeElement === this.el && this.el.matches(":focus-visible");
  }

  _key(/** @type {KeyboardEvent} */ e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const places = this._places();
    if (e.key === "Escape") {
      this.el.blur();
    } else if (!places.length) return;
    else if (/^(Arrow|Home$|End$)/.test(e.key)) {
      this.at = neighbour(places, Math.min(this.at, places.length - 1), e.key);
      this.draw();
    } else if (e.key === "Enter") {
      const found = this._found(places);
      if (found) this.app.pin(found.request);
    } else return;
    e.preventDefault();
  }

  _places() {
    const places = this.app.run && this.view.surface.visible ? this.view.places() : [];
    return places.length > MOST ? [] : places;
  }

  _found(/** @type {Json} */ places) {
    const { x, y, w, h: height } = places[this.at];
    return this.view.hit(x + w / 2, y + height / 2);
  }

  /** Show what the cursor is on in this step: announced, highlighted everywhere, with a tooltip. */
  draw() {
    setAttr(this.el, "aria-label", t(this.name));
    if (!this._walked) return setText(this.said, t(HOW));
    const places = this._places();
    this.el.classList.toggle("nothing", !places.length);
    if (!places.length) return setText(this.said, t("nothing to walk through in this step"));
    this.at = Math.min(this.at, places.length - 1);
    const place = places[this.at];
    const found = this._found(places);
    const [left, top, width, height] = [place.x, place.y, place.w, place.h].map((n) => `${n}px`);
    Object.assign(this.option.style, { left, top, width, height });
    const words = (found?.lines || []).map((line) => plain(this.app, translateLine(line)));
    setText(this.said, words.join(". ") || t("nothing"));
    const isPinned = Boolean(found?.request && found.request === this.app.pinned);
    setAttr(this.option, "aria-selected", String(isPinned));
    setAttr(this.option, "aria-posinset", String(this.at + 1));
    setAttr(this.option, "aria-setsize", String(places.length));
    const shown = JSON.stringify([this.app.frame.i, place.x, place.y, place.w, place.h]);
    if (shown === this._shown) return;
    this._shown = shown;
    const box = this.el.getBoundingClientRect();
    this.app.hover(found, box.left + place.x + place.w / 2, box.top + place.y + place.h);
  }
}
