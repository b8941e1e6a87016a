// What crosses panels in a step's motion, drawn on one canvas over the stage: requests between queue and lanes, tokens from lanes to the row and from
// there to the mask, computed positions to their blocks, new tokens to their texts. Views report where things are; nothing is measured on the way.
//
//   of many things a few dozen fly, evenly chosen; the others appear in their places

import { dims } from "../parts/colours.js";
import { h, setAttr } from "../parts/dom.js";
import { measure, roundBox, setFont, Surface } from "../parts/surface.js";
import { queryOf, written } from "../run/passes.js";
import { along, easeBoth, easeOut, inFlight, lerp, movingIn, phase, some, turn } from "./phases.js";

const MOST = { requests: 24, rows: 40, blocks: 24, texts: 24, toTab: 6 }; // that fly at once
const ARC = 14; // pixels; the height of a flight's arc
const PRESENTED = 1.7; // how much larger everything is on a projector

/**
 * @typedef {{x: number, y: number, w: number, h: number}} Place in pixels of the stage
 * @typedef {{lanes: import("./lanes.js").LanesView, strip: import("./strip.js").StripView, row:
 * import("./packed_row.js").PackedRow, mask: MaskView, blocks: import("./kv.js").BlocksView, queue:
 * import("./queue.js").QueueView, door: import("./door.js").DoorView, texts:
 * import("./texts.js").TextsView}} Views
 */

/** The centre of a place. @param {Place} place */
const middle = ({ x, y, w, h }) => ({ x: x + w / 2, y: y + h / 2 });

export class Flights {
  /** @param {HTMLElement} stage @param {Views} views @param {() => void} redraw */
  constructor(stage, views, redraw) {
    this.stage = stage;
    this.views = views;
    /** @type {import("./lane_chart.js").LaneChart} */
    this.lanes = views.lanes; // those that are on screen, of Full or Simple
    this.canvas = h("canvas", { class: "flights", "aria-hidden": "true" });
    stage.append(this.canvas);
    this.surface = new Surface(this.canvas, redraw);
    /** @type {Map<object, {x: number, y: number}>} */
    this.origins = new Map(); // of each view's canvas
    /** @type {Map<string, Place | null>} */
    this.places = new Map(); // places of what is not on a canvas
    /** @type {unknown[]} */
    this._of = []; // the state that they were measured for
  }

  /** Whether tokens fly to the row; otherwise they appear there. @param {ViewState} state */
  carries(state) {
    this.lanes = state.simple ? this.views.strip : this.views.lanes;
    return this.lanes.surface.visible && this.views.row.surface.visible;
  }

  /** @param {ViewState} state */
  draw(state) {
    const moving = movingIn(state);
    setAttr(this.canvas, "data-moving", String(Boolean(moving)));
    if (!moving || !this.surface.visible) return;
    this.lanes = state.simple ? this.views.strip : this.views.lanes;
    this._measure(state, moving);
    const g = this.surface.begin();
    g.textBaseline = "middle";
    this._tokens(g, state);
    this._queries(g, state);
    this._kept(g, state, moving);
    this._requests(g, state, moving);
    this._sampled(g, state, moving);
    g.globalAlpha = 1;
  }

  // -- where things stand ------------------------------------------------------------------------

  /**
   * Measure, once a motion, where things are on the stage: the canvases, the letters in the queue
   * before and after, the new texts, the tabs. @param {ViewState} state @param {Between} moving
   */
  _measure(state, { happened }) {
    const { lanes } = this;
    const { row, mask, blocks, queue, door, texts } = this.views;
    const waits = state.simple ? door : queue;
    const canvases = [lanes, row, mask, blocks];
    const { run, index, layout, language, pinned, simple, presenter, alone } = state;
    const sizes = [this, ...canvases].flatMap(({ surface }) => [surface.w, surface.h]);
    const of = [run, index, layout, language, pinned, simple, presenter, alone, ...sizes];
    if (of.every((x, n) => x === this._of[n])) return;
    this._of = of;
    this.places.clear();
    const stage = this.stage.getBoundingClientRect();
    const placed = (/** @type {DOMRect | undefined} */ r) =>
      r && r.width
        ? { x: r.left - stage.left, y: r.top - stage.top, w: r.width, h: r.height }
        : null;
    for (const view of canvases) {
      const r = view.surface.canvas.getBoundingClientRect();
      this.origins.set(view, { x: r.left - stage.left, y: r.top - stage.top });
    }
    for (const name of ["queue", "kv", "text"]) {
      const tab = this.stage.querySelector(`.view-tabs [data-tab="${name}"]`);
      this.places.set(`tab ${name}`, placed(tab?.getClientRects()[0]));
    }
    const { admitted, preempted, sampled } = happened;
    for (const [list, share, when] of /** @type {const} */ ([
      [admitted, 0, "before"],
      [preempted, 1, "after"],
    ])) {
      if (!list.length) continue;
      waits.draw({ ...state, share });
      for (const { request } of list) {
        const r = waits.boxOf(request)?.getClientRects()[0];
        this.places.set(`${when} ${request.index}`, placed(r));
      }
      waits.draw(state);
    }
    const shown = texts.box.checkVisibility
      ? texts.box.checkVisibility({ visibilityProperty: true })
      : texts.box.getClientRects().length > 0;
    const room = texts.box.getBoundingClientRect();
    for (const { request } of shown ? sampled : []) {
      const r = texts.freshOf(request)?.getClientRects()[0];
      const isSeen = r && r.bottom > room.top && r.top < room.bottom;
      this.places.set(`text ${request.index}`, isSeen ? placed(r) : null);
    }
  }

  /** A view's place on the stage. @param {object} view @param {Place} place @returns {Place} */
  _on(view, place) {
    const origin = /** @type {{x: number, y: number}} */ (this.origins.get(view));
    return { ...place, x: place.x + origin.x, y: place.y + origin.y };
  }

  /** A lane's cell of step i, as far as it is shown. @param {number} lane @param {number} i */
  _lane(lane, i) {
    const { lanes } = this;
    const { scale, surface } = lanes;
    const [y, h] = lanes.lane(lane);
    const [from, to] = [scale.from(i), scale.to(i)].map((x) => Math.max(0, Math.min(x, surface.w)));
    return this._on(lanes, { x: from, y, w: to - from, h });
  }

  /**
   * Where a request waits: its letter in the queue, else the queue's tab, else below the lanes.
   * @param {string} when @param {RunRequest} request @param {Place} lane @returns {Place}
   */
  _door(when, request, lane) {
    const { lanes } = this;
    const below = this._on(lanes, lane).y - lane.y + lanes.surface.h;
    return (
      this.places.get(`${when} ${request.index}`) ||
      this.places.get("tab queue") || { ...lane, y: below, h: 0 }
    );
  }

  /**
   * The point from which a request's result of a pass flies: in the mask, or else in the row.
   * @param {RunRequest} request @param {number} passIndex @returns {{x: number, y: number} | null}
   */
  _source(request, passIndex) {
    const { mask, row } = this.views;
    const drawn = mask.surface.visible ? mask.drawn : null;
    const item =
      drawn && drawn.pass.index === passIndex
        ? drawn.pass.items.find((one) => one.request === request && one.length)
        : null;
    if (drawn && item) {
      const { at } = drawn;
      const q = queryOf(item, item.kvLen - 1);
      const [q0, q1, k0, k1] = at.view;
      const k = item.k0 + item.kvLen;
      if (q >= q0 && q < q1 && k > k0)
        return middle(this._on(mask, { x: at.x(Math.min(k, k1)), y: at.y(q), w: 0, h: at.ch }));
    }
    const cell = row.surface.visible
      ? row.cells.findLast((one) => one.item.request === request)
      : null;
    return cell ? middle(this._on(row, cell)) : null;
  }

  // -- what flies --------------------------------------------------------------------------------

  /**
   * Draw requests that fly from the queue to a lane, or back.
   * @param {Ink} g @param {ViewState} state @param {Between} moving
   */
  _requests(g, state, { happened: { admitted, preempted } }) {
    if (!this.lanes.surface.visible) return;
    const [come, leave] = [phase(state.share, "lane"), phase(state.share, "leave")];
    for (const { request, lane } of come < 1 ? some(admitted, MOST.requests) : [])
      this._request(g, state, request, "before", this._lane(lane, state.index), come);
    for (const { request, lane } of leave < 1 ? some(preempted, MOST.requests) : [])
      this._request(g, state, request, "after", this._lane(lane, state.index - 1), 1 - leave);
  }

  /**
   * Draw one request on its flight. come: how far it is from the queue to its lane.
   * @param {Ink} g @param {ViewState} state @param {RunRequest} request
   * @param {string} when it waits, "before" or "after" @param {Place} lane @param {number} come
   */
  _request(g, { palette, focus, presenter }, request, when, lane, come) {
    const e = easeBoth(come);
    const thrown = Math.sin(come * Math.PI);
    const big = presenter ? PRESENTED : 1;
    const size = lerp(19 * big, Math.max(13, Math.min(24 * big, lane.h)), e) + thrown * 5;
    setFont(g, `700 ${size > 17 ? 13 * big : 11}px ${palette.mono}`);
    const w = Math.max(size, measure(g, request.letter) + 9);
    const at = along(middle(this._door(when, request, lane)), middle(lane), e);
    const [x, y] = [at.x, at.y - thrown * ARC];
    const colours = palette.of(request);
    g.globalAlpha = (dims(focus, request) ? 0.2 : 1) * Math.min(1, (1 - come) * 6);
    const box = { x: x - w / 2, y: y - size / 2, w, h: size };
    roundBox(g, box, 5, colours.tint, colours.solid, 1.5, come < 0.4 ? [3, 2] : []);
    g.fillStyle = palette.ink;
    g.textAlign = "center";
    g.fillText(request.letter, x, y + 0.5);
    g.textAlign = "left";
  }

  /**
   * Draw tokens that fly into the row: one read for the first time from its request's current cell,
   * one fed back from the cell in which it was written. @param {Ink} g @param {ViewState} state
   */
  _tokens(g, state) {
    const { row } = this.views;
    for (const cell of row.cells) {
      const { come = 1, item } = cell;
      if (!cell.flies || come <= 0 || come >= 1) continue;
      const from = this._lane(item.lane, item.phase === "decode" ? state.index - 1 : state.index);
      const [start, end] = [middle(from), middle(this._on(row, cell))];
      const e = easeOut(come);
      const y = lerp(start.y, end.y, come * come * (3 - 2 * come));
      const at = { x: lerp(start.x, end.x, e), y };
      const size = lerp(Math.max(0.5, Math.min(1, from.h / cell.h)), 1, e);
      this._token(g, state, cell, at, size, Math.min(1, come * 6));
    }
  }

  /** Draw copies of tokens that fly to the mask. @param {Ink} g @param {ViewState} state */
  _queries(g, state) {
    const { row, mask } = this.views;
    const grown = phase(state.share, "mask");
    const { drawn } = mask;
    if (!drawn || !mask.surface.visible || !row.surface.visible || grown <= 0 || grown >= 1) return;
    const { at, pass } = drawn;
    const [q0, q1] = at.view;
    const rowOf = (/** @type {import("./packed_row.js").PlacedCell} */ { item, position }) =>
      queryOf(item, /** @type {number} */ (position));
    const cells = row.cells
      .filter(({ position, item }) => position !== undefined && pass.items.includes(item))
      .filter((cell) => rowOf(cell) >= q0 && rowOf(cell) < q1);
    for (const cell of some(cells, MOST.rows)) {
      const q = rowOf(cell);
      const t = inFlight(turn(grown, q - q0, q1 - q0));
      if (t <= 0 || t >= 1) continue;
      const e = easeBoth(t);
      const from = middle(this._on(row, cell));
      const size = lerp(1, Math.max(0.4, Math.min(1, at.ch / cell.h)), e);
      const x = at.gutter - 7 - (cell.w * size) / 2;
      const to = this._on(mask, { x, y: at.y(q) + at.ch / 2, w: 0, h: 0 });
      this._token(g, state, cell, along(from, to, e), size, 1 - e * 0.5);
    }
  }

  /**
   * @param {Ink} g @param {ViewState} state @param {import("./packed_row.js").PlacedCell} cell
   * @param {import("./phases.js").Point} middle @param {number} size 1: as in the row @param
   * {number} alpha
   */
  _token(g, state, cell, { x, y }, size, alpha) {
    const { d } = this.surface;
    const { row } = this.views;
    setFont(g, `${row.style.font}px ${state.palette.mono}`);
    g.setTransform(d * size, 0, 0, d * size, x * d, y * d);
    row.ink(g, state, { ...cell, x: -cell.w / 2, y: -cell.h / 2 }, alpha);
    g.setTransform(d, 0, 0, d, 0, 0);
  }

  /**
   * Draw computed positions that fly to the blocks that keep them.
   * @param {Ink} g @param {ViewState} state @param {Between} moving
   */
  _kept(g, state, { happened: { computed } }) {
    const done = phase(state.share, "keep");
    if (done <= 0 || done >= 1) return;
    const { blocks } = this.views;
    const tab = this.places.get("tab kv");
    if (!blocks.surface.visible && !tab) return;
    const { frame, run, palette, focus } = state;
    const side = 10 * (state.presenter ? PRESENTED : 1);
    const { blockSize: size, units } = run.groups[0];
    const flying = computed.flatMap(({ request, passIndex, lane, start, kvLen }) => {
      if (!blocks.surface.visible)
        return [{ request, passIndex, to: middle(/** @type {Place} */ (tab)) }];
      const [first, end] = [Math.floor(start / size) * units, Math.ceil(kvLen / size) * units];
      const held = (frame.lanes[lane]?.laneSpan?.places || []).filter(
        ({ group, at, from, to }) =>
          group === 0 && at >= first && at < end && from <= state.index && to >= state.index,
      );
      return held.flatMap(({ block }) => {
        const tile = blocks.tiles[Math.floor(block / blocks.group)];
        return tile ? [{ request, passIndex, to: middle(this._on(blocks, tile)) }] : [];
      });
    });
    const shown = [...some(flying, blocks.surface.visible ? MOST.blocks : MOST.toTab)];
    for (const [n, { request, passIndex, to }] of shown.entries()) {
      const t = turn(done, n, MOST.blocks);
      const from = t > 0 && t < 1 ? this._source(request, passIndex) : null;
      if (!from) continue;
      const e = easeBoth(t);
      g.globalAlpha = dims(focus, request) ? 0.2 : 1;
      const at = along(from, to, e);
      const [x, y] = [at.x - side / 2, at.y - side / 2 - Math.sin(t * Math.PI) * ARC];
      roundBox(g, { x, y, w: side, h: side }, 3, palette.of(request).solid, palette.panel);
    }
  }

  /** Draw new tokens' flights. @param {Ink} g @param {ViewState} state @param {Between} moving */
  _sampled(g, state, { happened: { sampled } }) {
    const done = phase(state.share, "text");
    if (done <= 0 || done >= 1) return;
    const { run, index, palette, focus } = state;
    const tab = this.places.get("tab text");
    const flying = sampled.flatMap(({ request, passIndex }) => {
      const place = this.places.get(`text ${request.index}`);
      const to = place || (this.places.has(`text ${request.index}`) ? null : tab);
      const text = written(run, request, index, passIndex);
      return to && text ? [{ request, passIndex, text, to, isText: Boolean(place) }] : [];
    });
    const big = state.presenter ? PRESENTED : 1;
    setFont(g, `${12 * big}px ${palette.mono}`);
    const e = easeBoth(done);
    const most = flying[0]?.isText ? MOST.texts : MOST.toTab;
    for (const { request, passIndex, text, to, isText } of some(flying, most)) {
      const from = this._source(request, passIndex);
      if (!from) continue;
      const w = Math.max(12, measure(g, text) + 10 * big);
      const end = isText ? { x: to.x + w / 2 - 4, y: to.y + to.h / 2 } : middle(to);
      const at = along(from, end, e);
      const [x, y] = [at.x, at.y - Math.sin(done * Math.PI) * ARC];
      const colours = palette.of(request);
      g.globalAlpha = (dims(focus, request) ? 0.2 : 1) * Math.min(1, done * 8);
      const box = { x: x - w / 2, y: y - 11 * big, w, h: 22 * big };
      roundBox(g, box, 4, colours.tint, colours.solid);
      g.fillStyle = palette.ink;
      g.fillText(text, x - w / 2 + 5 * big, y + 0.5);
    }
  }
}
