// Draws a run's lanes in a box at the origin of any canvas: which request held which lane when, prefill, decode, waste, preemptions, and the queue
// below. lane_chart.js gives them a canvas of their own.
//
//   place       where moments and lanes lie: a scale (run/lane_layout.js) says where each step begins and ends, by steps, by seconds, or in a window
//               around "now"; only the steps between `gutter` and `end` are drawn, so that a window of a long run costs no more than a short run
//   drawGround  the empty lanes, and what the caller marks on the axis
//   drawLanes   what happened. With `words` as a font size, cells that are wide enough say what was read and written in them

import { dims } from "../parts/colours.js";
import { clamp } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { fillBox, measure, setFont, shorten, strokeBox } from "../parts/surface.js";
import { indexAt, lanePieces, queueColumns } from "../run/lane_layout.js";
import { written } from "../run/passes.js";
import { DECODE, OVERRUN, PREFILL, WASTED } from "../run/run.js";

export const GUTTER = 24; // pixels left of the lanes, for their numbers
/** @type {LaneScale} */
// the scale before `place`
const NOWHERE = { clock: false, left: 0, per: 1, start: 0, x: () => 0, from: () => 0, to: () => 0 };

export class LaneInk {
  constructor() {
    this.scale = NOWHERE;
    this.box = { w: 0, h: 0, d: 1 };
    this.axis = 0; // the height of the axis
    this.font = 11;
    this.end = 0; // where the lanes end
    this.gutter = GUTTER;
    this.words = 0; // the font size of words in cells; 0: none
    this.until = Infinity; // the index of the last step whose words are written
    this.most = 0; // the most requests waiting at once
    this.queueHeight = 0;
    this.pitch = 0;
    this.gap = 0;
    this.idle = 0; // seconds of an idle device that were drawn
    this.strength = 1;
    /** @type {ReturnType<typeof lanePieces>} */
    this.pieces = [];
    /** @type {Run | null} */
    this._of = null; // the run of these pieces, and its length then
    this._length = 0;
    this._seen = [0, 0]; // steps from ≤ i < end that are in sight
  }

  /**
   * Lay out a run.
   * @param {Run} run
   * @param {{w: number, h: number, d: number}} box d: device pixels per CSS pixel
   * @param {LaneLayout} layout
   */
  place(
    run,
    box,
    { scale, axis, font, end, gutter = GUTTER, words = 0, until = Infinity, queue = true },
  ) {
    Object.assign(this, { scale, box, axis, font, end, gutter, words, until });
    if (this._of !== run || this._length !== run.length) {
      [this._of, this._length] = [run, run.length];
      this.pieces = lanePieces(run);
      this.most = run.numWaiting.reduce((a, b) => Math.max(a, b), 0);
    }
    this.queueHeight = queue && this.most ? clamp(box.h * 0.13, 12, 22) : 0;
    this.pitch = (box.h - axis - this.queueHeight) / run.numLanes;
    this.gap = words && this.pitch >= 30 ? 4 : this.pitch >= 7 ? 2 : this.pitch >= 4 ? 1 : 0;
    this._seen = [indexAt(run, scale, gutter), indexAt(run, scale, Math.max(end, box.w)) + 1];
  }

  /** The top of a lane's ink, and its height. @param {number} lane */
  lane(lane) {
    return [this.axis + lane * this.pitch + this.gap / 2, Math.max(1, this.pitch - this.gap)];
  }

  /**
   * Draw everything that happened.
   * @param {Ink} g @param {LaneState} state @param {number} strength of the ink, 0 to 1
   */
  drawLanes(g, state, strength = 1) {
    const { run } = state;
    this.strength = strength;
    const [first, end] = this._seen;
    for (const piece of this.pieces)
      if (piece.laneSpan >= 0 && piece.from < end && piece.end > first)
        this._piece(g, state, piece);
    for (let i = first; i < end; i += 1)
      for (const { lane, request } of run.events[i].preempted)
        this._cross(g, state, i, lane, run.request(request));
    this._idle(g, state);
    this._letters(g, state);
    if (this.queueHeight) this._queue(g, state);
    g.globalAlpha = strength;
  }

  /**
   * Draw empty lanes, their numbers, and the marks on the axis.
   * @param {Ink} g @param {LaneState} state @param {(g: Ink) => void} mark
   */
  drawGround(g, { run, palette }, mark) {
    g.fillStyle = palette.empty;
    for (let lane = 0; lane < run.numLanes; lane += 1) {
      const [y, height] = this.lane(lane);
      g.fillRect(this.gutter, y, this.end - this.gutter, height);
    }
    setFont(g, `${this.font}px ${palette.sans}`);
    g.fillStyle = palette.soft;
    g.textBaseline = "alphabetic";
    mark(g);
    if (this.gutter < GUTTER) return;
    if (this.pitch >= 9) {
      g.textBaseline = "middle";
      const every = Math.ceil(this.font / this.pitch);
      for (let lane = 0; lane < run.numLanes; lane += every)
        g.fillText(String(lane), 6, this.axis + (lane + 0.5) * this.pitch);
    }
    if (!this.queueHeight) return;
    const y = this.box.h - this.queueHeight / 2; // three short lines stand for the queue
    for (const dy of [-4, 0, 4]) g.fillRect(6, y + dy - 0.5, 9, 1.5);
  }

  /** @param {Ink} g @param {Focus} focus @param {RunRequest} request */
  _light(g, focus, request) {
    g.globalAlpha = this.strength * (dims(focus, request) ? 0.2 : 1);
  }

  /**
   * @param {Ink} g @param {LaneState} state @param {ReturnType<typeof lanePieces>[number]} piece
   */
  _piece(g, state, { lane, from, end, status, laneSpan }) {
    const { run, palette, focus } = state;
    const { scale, words } = this;
    const { request } = run.laneSpans[laneSpan];
    const [y, height] = this.lane(lane);
    const colours = palette.of(request);
    this._light(g, focus, request);
    const step = scale.to(from) - scale.from(from);
    const [first, last] = [Math.max(from, this._seen[0]), Math.min(end, this._seen[1])];
    /** @type {number[][]} */
    const parts = [];
    const gap = step >= 5 && (!scale.clock || words) ? 1 : 0;
    const apart = gap || (step >= 5 && status & PREFILL); // each chunk has a frame
    for (let n = first; n < last; n += 1) {
      // other steps that touch become one part: drawn one by one, some would show a seam
      const before = parts.at(-1);
      if (before && !apart && scale.from(n) - before[1] < 0.75) before[1] = scale.to(n);
      else parts.push([scale.from(n), scale.to(n), n]);
    }
    for (const [left, right, n] of parts) {
      const x = Math.round(left * this.box.d) / this.box.d;
      const width = Math.max(0.6, right - x - gap);
      const half = status & PREFILL && status & DECODE ? width / 2 : 0; // a half for each
      if (status & PREFILL) prefill(g, x, y, half || width, height, colours);
      if (status & DECODE)
        fillBox(g, words ? colours.fill : colours.solid, x + half, y, width - half, height);
      else if (status & (WASTED | OVERRUN))
        fillBox(g, palette.hatch(g, palette.pad, palette.empty), x, y, width, height);
      // the request holds the lane, and nothing is computed
      else if (!(status & PREFILL))
        fillBox(g, colours.cached, x, y + height * 0.4, width, Math.max(1, height * 0.2));
      if (words && !half && step >= 5 && n <= this.until && status & (PREFILL | DECODE))
        this._write(g, state, request, n, Boolean(status & PREFILL), x, width, y + height / 2);
    }
  }

  /**
   * Write into a step's cell what it did for a request: for a prefill, how many tokens it read and
   * the token that came out; for a decode, the new token, or that the answer ends.
   * @param {Ink} g @param {LaneState} state @param {RunRequest} request @param {number} i @param
   * {boolean} reads @param {number} x @param {number} width @param {number} y
   */
  _write(g, { run, palette }, request, i, reads, x, width, y) {
    const { words, pitch, gap } = this;
    if (pitch - gap < words + 2 || width < words * 1.7) return;
    // width for the letter before the words
    const letter = reads || x < this.gutter + 1 ? this._letterSize(false) * 0.9 + 6 : 0;
    const room = width - 6 - letter;
    const token = written(run, request, i);
    const small = `${Math.min(words, 12)}px`;
    const family = token === "" ? palette.sans : palette.mono;
    let said = token === "" ? t("end") : (token ?? "");
    g.textBaseline = "middle";
    setFont(g, `${words}px ${family}`);
    if (measure(g, said) > room) setFont(g, `${small} ${family}`);
    said = shorten(g, said, room);
    const wide = measure(g, said);
    g.fillStyle = reads ? palette.ink : palette.of(request).text;
    if (said !== "…")
      g.fillText(said, reads ? x + width - 5 - wide : x + (letter + width - wide) / 2, y + 0.5);
    if (!reads) return;
    const mine = run.events[i].segments.filter((s) => s.request === request.id);
    const length = mine.reduce((n, s) => n + s.length, 0);
    setFont(g, `${small} ${palette.sans}`);
    const telling = t(`reads ${count(length)} [token|tokens]`);
    g.fillStyle = palette.soft;
    if (measure(g, telling) < room - wide - 6) g.fillText(telling, x + letter + 2, y + 0.5);
  }

  /**
   * On the clock of an asynchronous run: mark in all lanes where the device was idle between two
   * steps. @param {Ink} g @param {LaneState} state
   */
  _idle(g, { run, palette }) {
    const { scale } = this;
    const [first, end] = this._seen;
    this.idle = 0;
    if (!scale.clock || !run.asynchronous) return;
    g.globalAlpha = this.strength;
    for (let i = Math.max(1, first); i < end; i += 1) {
      const idle = run.idleBefore(i);
      if (!idle) continue;
      this.idle += idle.seconds;
      const from = scale.to(i - 1);
      const width = scale.from(i) - from;
      if (width < 0.4) continue;
      fillBox(g, palette.panel, from, this.axis, width, run.numLanes * this.pitch);
      g.fillStyle = palette.warn;
      for (let lane = 0; lane < run.numLanes; lane += 1)
        g.fillRect(from, this.axis + (lane + 0.5) * this.pitch - 0.75, width, 1.5);
    }
  }

  /**
   * @param {Ink} g @param {LaneState} state @param {number} i @param {number} lane @param
   * {RunRequest} request
   */
  _cross(g, { palette, focus }, i, lane, request) {
    this._light(g, focus, request);
    const x = this.scale.from(i);
    const [y, height] = this.lane(lane);
    fillBox(g, palette.warn, x - 1.25, y, 2.5, height);
    if (height < 8) return;
    const r = Math.min(3.2, height / 3);
    const cy = y + height / 2;
    g.beginPath();
    g.arc(x, cy, r + 2.2, 0, 7);
    g.fillStyle = palette.panel;
    g.fill();
    g.strokeStyle = palette.warn;
    g.lineWidth = 1.8;
    g.beginPath();
    g.moveTo(x - r, cy - r);
    g.lineTo(x + r, cy + r);
    g.moveTo(x + r, cy - r);
    g.lineTo(x - r, cy + r);
    g.stroke();
  }

  /** @param {boolean} presenter */
  _letterSize(presenter) {
    const height = this.pitch - this.gap;
    if (this.words) return Math.min(this.words + 1, height);
    return Math.min(presenter ? 20 : 12, height);
  }

  /** @param {Ink} g @param {LaneState} state */
  _letters(g, { run, palette, presenter, focus }) {
    const { scale } = this;
    const size = this._letterSize(presenter);
    if (size < 8) return;
    const large = presenter ? Math.min(20, this.pitch - this.gap - 2) : size;
    setFont(g, `700 ${this.words ? size : Math.max(11, large)}px ${palette.mono}`);
    g.textBaseline = "middle";
    const [first, past] = this._seen;
    for (const laneSpan of run.laneSpans) {
      const end = Math.min(laneSpan.to, run.length - 1);
      const from = Math.max(0, laneSpan.from);
      if (end < from || end < first || from >= past) continue;
      const x = Math.max(scale.from(from), this.gutter);
      const { letter } = laneSpan.request;
      const width = measure(g, letter);
      if (scale.to(end) - x < width + 6) continue;
      this._light(g, focus, laneSpan.request);
      const y = this.axis + (laneSpan.lane + 0.5) * this.pitch;
      const dx = laneSpan.end === "preempted" || run.events[from].preempted.length ? 8 : 3;
      // a pale background, so that the letter is legible on anything
      const { tint } = palette.of(laneSpan.request);
      fillBox(g, tint, x + dx - 1.5, y - size / 2 + 0.5, width + 3, size - 1);
      g.fillStyle = palette.ink;
      g.fillText(letter, x + dx, y + 0.5);
    }
  }

  /** Draw the queue, a column per step. @param {Ink} g @param {LaneState} state */
  _queue(g, { run, palette, focus }) {
    const { scale } = this;
    const base = this.box.h;
    const unit = (this.queueHeight - 4) / this.most;
    g.globalAlpha = this.strength * (focus ? 0.2 : 0.75);
    g.fillStyle = palette.soft;
    for (const { from, end, waiting } of queueColumns(run)) {
      const [x, height] = [scale.from(from), waiting * unit];
      g.fillRect(x, base - height, Math.max(0.6, scale.to(end - 1) - x), height);
    }
    g.globalAlpha = this.strength;
    for (const request of focus || []) {
      g.fillStyle = palette.of(request).solid;
      for (const [from, to] of request.waits) {
        const end = Math.min(to, run.length - 1);
        const start = Math.max(0, from);
        const x = scale.from(start);
        if (end >= start) g.fillRect(x, base - 5, Math.max(1, scale.to(end) - x), 5);
      }
    }
  }
}

/**
 * @param {Ink} g @param {number} x @param {number} y @param {number} width @param {number} height
 * @param {Colours} colours
 */
function prefill(g, x, y, width, height, colours) {
  fillBox(g, colours.tint, x, y, width, height);
  if (height < 5 || width < 4) {
    const edge = Math.min(1, height / 3);
    for (const top of [y, y + height - edge]) fillBox(g, colours.solid, x, top, width, edge);
    return;
  }
  strokeBox(g, colours.solid, 1.5, x + 0.75, y + 0.75, width - 1.5, height - 1.5);
}
