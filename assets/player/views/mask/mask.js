// The attention mask of one pass: queries down, keys across. Exact cells where they fit, otherwise
// tiles by difference arrays in O(rows + pixels). Only passes.js decides which query may attend to
// which key; cells, labels, tools and pointers have separate files.

import { dims } from "../../parts/colours.js";
import { find, setAttr, setText } from "../../parts/dom.js";
import { t, tell } from "../../parts/speech.js";
import { count, joined } from "../../parts/format.js";
import { CanvasView, fillBox, measure, setFont } from "../../parts/surface.js";
import { fillKeys, inkCells, inkLeaks, inkWeights, Tiles } from "./cells.js";
import { columnsOf, KEY_TEXT, layoutMask, viewOf } from "./geometry.js";
import { inkHot, inkLabels, inkMinimap, inkReading, inkRules } from "./labels.js";
import { maskPointers, onMinimap } from "./pointers.js";
import { MaskTools } from "./tools.js";
import { itemAt, overrunWords, visible } from "../../run/passes.js";
import { afterFlight, easeOut, movingIn, phase, turn } from "../phases.js";

const PRESENTED = 1.85; // how much larger words are on a projector: 11 px become 20

export class MaskView extends CanvasView {
  /** @type {Phase[]} */
  moves = ["row", "mask"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions);
    this.tools = new MaskTools(this, find(panel, ".tools"));
    this.tiles = new Tiles();
    /** @type {Zoom | null} */
    this.zoom = null; // {request} or {view: [q0, q1, k0, k1]}
    /** @type {number | null} */
    this.layer = null; // null: the widest window
    /** @type {{x: number, y: number, w: number, h: number} | null} */
    this.minimap = null; // its place, while zoomed
    /** @type {DrawnMask | null} */
    this.drawn = null;
    maskPointers(this);
  }

  /** The window of the chosen layer, or the widest; null: none. @param {Run} run */
  window({ windows }) {
    if (this.layer !== null) return windows[this.layer];
    return windows.includes(null) ? null : Math.max(...windows);
  }

  reset() {
    this.zoom = null;
    this.layer = null;
  }

  /** Zoom to a request, or out again. @param {RunRequest | null} request */
  zoomTo(request) {
    this.zoom = request && !(this.zoom && this.zoom.request === request) ? { request } : null;
    this.actions.redraw();
    this.actions.changed();
  }

  /** @param {ViewState} state @param {Pass} pass */
  _layout({ run, palette, presenter }, pass) {
    const { surface } = this;
    const view = viewOf(pass, this.zoom);
    const big = presenter ? PRESENTED : 1;
    const { cw } = columnsOf(surface.w, view, big);
    const isTall = surface.h > 200 * big;
    const words = isTall ? this._keyWords(run, palette, pass, view, cw, big) : null;
    return layoutMask(surface, view, big, words);
  }

  /**
   * The keys' tokens, if columns leave room: horizontal if each fits its column, otherwise
   * vertical.
   * @param {Run} run @param {Palette} palette @param {Pass} pass @param {number[]} view @param
   * {number} cw @param {number} big
   */
  _keyWords(run, palette, pass, view, cw, big) {
    if (cw < 9 * big) return null;
    const { g } = this.surface;
    setFont(g, `${11 * big}px ${palette.mono}`);
    const texts = [];
    for (const { request, k0, kvLen } of pass.items)
      for (let k = Math.max(k0, view[2]); k < Math.min(k0 + kvLen, view[3]); k += 1)
        texts.push(visible(run.tokenText(request, k - k0), 7));
    if (texts.every((text) => measure(g, text) <= cw - 1))
      return { texts, across: true, room: 16 * big };
    return cw >= 13 * big ? { texts, across: false, room: KEY_TEXT * big } : null;
  }

  /** @param {ViewState} state */
  draw(state) {
    const { surface } = this;
    const { run, pass, palette, focus, leak } = state;
    const { on, withoutFirst } = state.weights;
    const moving = surface.visible && pass ? movingIn(state) : null;
    if (this.minimap) this.state = null; // a part of a mask is no picture of the step before
    const stamp = JSON.stringify([this.zoom?.view, this.zoom?.request?.index, this.layer]);
    const past = moving && this.past(state, moving.before, stamp);
    this.state = state;
    this.tools.show(state);
    this.panel.classList.toggle("weighed", Boolean(state.weights.found));
    this.panel.classList.toggle("weighing", on);
    this.panel.classList.toggle("without-first", withoutFirst);
    this.panel.classList.toggle("leaking", leak.on);
    setText(this.key, ""); // also if there is no room for the picture
    if (!surface.visible) return;
    const g = surface.begin();
    this.drawn = null;
    if (!pass) {
      g.fillStyle = palette.soft;
      setFont(g, `${state.presenter ? 22 : 13}px ${palette.sans}`);
      g.fillText(t("Nothing was computed in this step."), 4, 24);
      return;
    }
    const at = this._layout(state, pass);
    const [q0, q1, , k1] = at.view;
    const right = at.x(k1);
    const bottom = at.y(q1);
    const window = this.window(run);
    const items = pass.items.filter((i) => i.q0 < q1 && i.q0 + i.pads + i.length > q0);
    // only if each query has at least one row of pixels
    const weights = at.ch * surface.d >= 1 ? state.weights.found : null;
    if (!weights) this.panel.classList.remove("weighed");
    this.drawn = { pass, at, window, weights };
    const pads = pass.padding ? `, of them ${count(pass.padding)} [pad|pads]` : "";
    const [nq, nk] = [count(pass.nq), count(pass.nk)];
    const full = `${nq} [query|queries]${pads} × ${nk} [key|keys]${at.exact ? "" : " · tiles"}`;
    tell(this.key, state.simple ? `${nq} [row|rows] × ${nk} [column|columns]` : full);
    const grown = phase(state.share, "mask");
    if (past && !grown) {
      // the mask of the step before, until the tokens have come
      g.globalAlpha = 1 - 0.85 * phase(state.share, "row");
      g.drawImage(past, 0, 0, surface.w, surface.h);
      g.globalAlpha = 1;
      return;
    }
    const reach =
      past && grown < 1
        ? (/** @type {number} */ q) => easeOut(afterFlight(turn(grown, q - q0, q1 - q0)))
        : null;

    const sheet = { g, run, palette, at, pass, items, window, focus, reach, right, bottom };
    fillBox(g, palette.empty, at.gutter, at.top, right - at.gutter, bottom - at.top);
    // each request's own block, allowed or not, and the rows of pads
    for (const item of items) {
      const first = item.q0 + item.pads;
      if (item.length) {
        g.globalAlpha = dims(focus, item.request) ? 0.2 : 1;
        g.fillStyle = palette.ofItem(item).faint;
        fillKeys(sheet, item, item.k0, item.k0 + item.kvLen);
        g.globalAlpha = 1;
      }
      if (item.pads && first > q0) {
        g.fillStyle = palette.hatch(g);
        const y = at.y(Math.max(item.q0, q0));
        g.fillRect(at.gutter, y, right - at.gutter, at.y(Math.min(first, q1)) - y);
      }
    }
    if (weights) inkWeights(sheet, weights, withoutFirst);
    else if (at.exact) inkCells(sheet);
    else this.tiles.ink(sheet, surface.d, grown);
    if (grown === 1) inkLeaks(sheet);
    inkRules(sheet);
    inkLabels(sheet);
    inkReading(sheet, surface.h - bottom);
    inkHot(sheet, state.hot);
    this.minimap = this.zoom ? inkMinimap(sheet, surface.w) : null;

    const present = pass.items.filter((i) => i.length).length;
    const heard = [
      `${t("Attention mask")}: ${this.key.textContent}`,
      t(`${count(present)} [request|requests] on the diagonal`),
      leak.on && t("a leak: each also reads the next one's keys"),
    ];
    setAttr(surface.canvas, "aria-label", joined(heard, "; "));
  }

  // -- pointing ----------------------------------------------------------------------------------

  /** The query and the key at a point. @param {number} x @param {number} y */
  cellAt(x, y) {
    if (!this.drawn) return null;
    const { at, pass } = this.drawn;
    const [q0, q1, k0, k1] = at.view;
    const q = Math.floor(q0 + (y - at.top) / at.ch);
    const k = Math.floor(k0 + (x - at.gutter) / at.cw);
    const inRows = q >= q0 && q < q1;
    const inCols = k >= k0 && k < k1;
    return { q, k, inRows, inCols, pass, band: y < at.top, side: x < at.gutter };
  }

  /** @param {number} q @param {number} k */
  explain(q, k) {
    return this.state && this.drawn && explainCell(this.state, this.drawn, q, k);
  }

  /**
   * What is under the pointer: a key, a query or a cell, and its description. @param {number} x
   * @param {number} y @returns {Found | null}
   */
  hit(x, y) {
    const cell = this.cellAt(x, y);
    if (!cell) return null;
    if (onMinimap(this, x, y))
      return { request: null, keepsPin: true, lines: [["The whole mask: drag to move the view"]] };
    if (cell.band && cell.inCols) {
      const { request, kvLen, start, length } = itemAt(cell.pass, cell.k, "k");
      const words = ` ${count(kvLen)} [key|keys]: ${start} cached, ${length} new`;
      return { request, lines: [[{ request }, words]] };
    }
    if (!cell.inRows) return null;
    if (cell.side) {
      const item = itemAt(cell.pass, cell.q, "q");
      const { request, length, phase } = item;
      const lines = [[{ request }, ` ${count(length)} [query|queries], ${phase}`]];
      if (item.overrun) lines.push(overrunWords(item));
      return { request, hot: { request, row: cell.q }, lines };
    }
    if (!cell.inCols) return null;
    const said = this.explain(cell.q, cell.k);
    if (!said) return null;
    const { request, position, keyPosition } = said;
    /** @type {Hot} */
    const hot = { request, row: cell.q, column: cell.k, q: position };
    if (said.reason === "allowed" && keyPosition !== undefined)
      hot.keys = [keyPosition, keyPosition + 1];
    return { request, hot, lines: said.lines };
  }

  /** The cells in reading order; none if they are tiles. */
  places() {
    if (!this.drawn || !this.drawn.at.exact) return [];
    const { at } = this.drawn;
    const [q0, q1, k0, k1] = at.view;
    const places = [];
    for (let q = q0; q < q1; q += 1)
      for (let k = k0; k < k1; k += 1)
        places.push({ x: at.x(k), y: at.y(q), w: at.x(k + 1) - at.x(k), h: at.y(q + 1) - at.y(q) });
    return places;
  }

  /** @param {ViewState} state */
  table({ run, pass }) {
    if (!pass) return { caption: t("Attention mask: nothing was computed"), columns: [], rows: [] };
    const window = this.window(run);
    const leaks = (/** @type {PassItem} */ { request }) =>
      `${t("leak: also all keys of")} ${request.letter}`;
    const sees = `its own, up to itself${window === null ? "" : `, at most ${window} back`}`;
    return {
      caption: t(`Attention mask of pass ${pass.index + 1}`),
      columns: ["Request", "Queries", "Sees keys", "Cached", "New", "Pads", "Note"],
      rows: pass.items.map((i) => [
        i.request.letter,
        i.length ? t(`${i.start} to ${i.kvLen - 1}`) : t("none (finished)"),
        t(i.length ? sees : "nothing"),
        String(i.start),
        String(i.length),
        String(i.pads),
        i.leak ? leaks(i.leak) : i.overrun ? t("overrun: computed for nothing") : "",
      ]),
    };
  }
}

/**
 * Why a cell is allowed or blocked, in words. @param {ViewState} state @param {DrawnMask} drawn
 * @param {number} q @param {number} k
 */
function explainCell({ run, weights, simple }, { pass, window, weights: found }, q, k) {
  const query = itemAt(pass, q, "q");
  const key = itemAt(pass, k, "k");
  const offset = q - query.q0 - query.pads;
  const keyPosition = k - key.k0;
  const tokenWords = (/** @type {PassItem} */ item, /** @type {number} */ at) =>
    ` token ${at} “${visible(run.tokenText(item.request, at), 24)}”`;
  const { request } = query;
  if (offset < 0) {
    const why = query.finished
      ? " has finished; its row is computed as padding until the wave ends"
      : " has fewer tokens than this pass has columns";
    const lines = [
      ["Pad: ", { request }, why],
      ["Blocked: a pad attends to nothing and nothing attends to it"],
    ];
    return { request, reason: "padding", lines };
  }
  const position = query.start + offset;
  const isCached = keyPosition < key.start;
  const [asks, told] = [tokenWords(query, position), tokenWords(key, keyPosition)];
  const other = { request: key.request };
  const lines = simple
    ? [
        [{ request }, asks],
        ["→ ", other, told],
      ]
    : [
        ["Query ", { request }, `${asks}, ${query.phase}`],
        ["Key ", other, `${told}, ${isCached ? "cached" : "new"}`],
      ];
  if (query.leak === key) {
    lines.push([{ request }, " may read it by the leak alone: it belongs to another request"]);
    return { request, reason: "leak", lines, position, keyPosition };
  }
  const back = position - keyPosition;
  let reason = "allowed";
  if (request !== key.request) reason = "another request";
  else if (back < 0) reason = "the future";
  else if (window !== null && back >= window) reason = "outside the window";
  const allowed = reason === "allowed";
  const how = back ? `${count(back)} [token|tokens] back` : "itself";
  const where = isCached ? "read from the cache" : "computed in this pass";
  /** @type {Record<string, string>} */
  const plainly = {
    allowed: `It may look: ${how}, ${isCached ? "remembered" : "new"}`,
    "another request": "It may not look: somebody else’s",
    "the future": `It may not look: ${count(-back)} [token|tokens] in the future`,
    "outside the window": `It may not look: ${back} tokens back, outside the window of ${window}`,
  };
  /** @type {Record<string, string>} */
  const exactly = {
    allowed: `Allowed: ${how}, ${where}`,
    "another request": "Blocked: the key belongs to another request",
    "the future": `Blocked: the key is ${count(-back)} [token|tokens] in the future`,
    "outside the window": `Blocked: ${back} tokens back, outside the window of ${window}`,
  };
  if (query.overrun) lines.push(overrunWords(query));
  lines.push([(simple ? plainly : exactly)[reason]]);
  const weighed = allowed && found?.get(request.id);
  if (weighed) {
    const { layer, head, withoutFirst } = weights;
    const weight = weighed.weights[offset][keyPosition];
    lines.push([`Weight ${weight} in layer ${layer}, head ${head}`]);
    if (withoutFirst && keyPosition === 0)
      lines.push(["The first token: it is not on the scale of the others"]);
  }
  return { request, reason, lines, position, keyPosition };
}
