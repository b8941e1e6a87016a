// Draws a run's lanes over time: which request held which lane when, prefill, decode, waste, preemptions, the queue below; and the axis above. The
// Watch tab has one, a race one for each run. The caller provides the scale, the length of the lanes and the labels of the axis.
//
//   painted once per run, size, theme and focus; `show` puts the past at full strength and the rest faint

import { dims } from "../parts/colours.js";
import { clamp } from "../parts/dom.js";
import { count, milliseconds } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { fillBox, measure, resize, setFont, strokeBox, Surface } from "../parts/surface.js";
import { clockLabel, countLaneSteps, indexAt, lanePieces, queueColumns, roundUnit } from "../run/lane_layout.js";
import { DECODE, OVERRUN, PREEMPTED, PREFILL, STALLED, WASTED } from "../run/run.js";

export const GUTTER = 24; // left of the lanes: their numbers
/** @type {LaneScale} */
const NOWHERE = { clock: false, left: 0, per: 1, start: 0, from: () => 0, to: () => 0 }; // before it is painted

/** What the device did between two steps of an asynchronous run. @param {{seconds: number, forHost: boolean}} idle @param {number} before */
function idleWords({ seconds, forHost }, before) {
  return forHost ? `device waited ${milliseconds(seconds)} for the host before step ${before}` : `device idle for ${milliseconds(seconds)} before step ${before}: nobody to serve`;
}

export class LaneChart {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {() => void} redraw
   */
  constructor(canvas, redraw) {
    this.canvas = canvas;
    this.surface = new Surface(canvas, () => {
      this._stamp = null;
      redraw();
    });
    this.chart = document.createElement("canvas"); // what happened
    this.ground = document.createElement("canvas"); // empty lanes, the axis
    this.scale = NOWHERE;
    this.axis = 0; // its height
    this.font = 11;
    this.end = 0; // where the lanes end
    this.queueHeight = 0;
    this.pitch = 0;
    this.gap = 0;
    this.counted = { prefill: 0, decode: 0, wasted: 0, overrun: 0, stalled: 0, preempted: 0, waiting: 0 }; // lane-steps, by what was done
    this.idle = 0; // seconds of it, on the clock
    /** @type {string | null} */
    this._stamp = null;
    /** @type {LaneState | null} */
    this.painted = null; // as it was painted last
  }

  /**
   ** Repaint if needed; returns whether it was.
   * @param {LaneState} state
   * @param {string} stamp what else the picture depends on
   * @param {() => {scale: LaneScale, axis: number, font: number, end: number}} layout axis: its height; end: where the lanes end
   * @param {(g: CanvasRenderingContext2D) => void} [mark] draws on the axis
   */
  paint(state, stamp, layout, mark = () => {}) {
    const { surface } = this;
    const { run, palette, focus } = state;
    const all = `${stamp}/${run.length}/${surface.w}x${surface.h}@${surface.d}/${focus ? focus.map((r) => r.index).join() : ""}`;
    if (all === this._stamp && this.painted?.run === run && this.painted.palette === palette) return false;
    [this._stamp, this.painted] = [all, state];
    ({ scale: this.scale, axis: this.axis, font: this.font, end: this.end } = layout());
    const most = run.numWaiting.reduce((a, b) => Math.max(a, b), 0);
    this.queueHeight = most ? clamp(surface.h * 0.13, 12, 22) : 0;
    this.pitch = (surface.h - this.axis - this.queueHeight) / run.numLanes;
    this.gap = this.pitch >= 7 ? 2 : this.pitch >= 4 ? 1 : 0;
    const g = this._begin(this.chart);
    if (this.scale.left < GUTTER) { // it began before the time that is shown
      g.beginPath();
      g.rect(GUTTER, 0, surface.w, surface.h);
      g.clip();
    }
    const pieces = lanePieces(run);
    this.counted = countLaneSteps(run, pieces);
    for (const piece of pieces) if (piece.laneSpan >= 0) this._piece(g, state, piece);
    for (let i = 0; i < run.length; i += 1) for (const { lane, request } of run.events[i].preempted) this._cross(g, state, i, lane, run.request(request));
    this._idle(g, state);
    this._letters(g, state);
    if (most) this._queue(g, state, most);
    this._ground(state, mark);
    return true;
  }

  /** Copy it to the surface: left of `x` at full strength, the rest at `faint`. @param {number} x */
  show(x, faint = 0.22) {
    const { surface } = this;
    const g = surface.begin();
    const { d } = surface;
    g.drawImage(this.ground, 0, 0, surface.w, surface.h);
    const cut = clamp(Math.round(x * d), 1, surface.canvas.width);
    g.drawImage(this.chart, 0, 0, cut, surface.canvas.height, 0, 0, cut / d, surface.h);
    if (cut < surface.canvas.width) {
      g.globalAlpha = faint;
      g.drawImage(this.chart, cut, 0, surface.canvas.width - cut, surface.canvas.height, cut / d, 0, surface.w - cut / d, surface.h);
      g.globalAlpha = 1;
    }
    return g;
  }

  /** @param {HTMLCanvasElement} canvas */
  _begin(canvas) {
    const { surface } = this;
    const g = resize(canvas, surface.canvas.width, surface.canvas.height);
    g.setTransform(surface.d, 0, 0, surface.d, 0, 0);
    return g;
  }

  /** The top of a lane's ink, and its height. @param {number} lane */
  _lane(lane) {
    return [this.axis + lane * this.pitch + this.gap / 2, Math.max(1, this.pitch - this.gap)];
  }

  /** @param {Ink} g @param {Focus} focus @param {RunRequest} request */
  _light(g, focus, request) {
    g.globalAlpha = dims(focus, request) ? 0.2 : 1;
  }

  /** @param {Ink} g @param {LaneState} state @param {ReturnType<typeof lanePieces>[number]} piece */
  _piece(g, { run, palette, focus }, { lane, from, end, status, laneSpan }) {
    const { scale } = this;
    const { request } = run.laneSpans[laneSpan];
    const [y, height] = this._lane(lane);
    const colours = palette.of(request);
    this._light(g, focus, request);
    const step = scale.to(from) - scale.from(from);
    /** @type {number[][]} */
    const parts = [];
    for (let n = from; n < end; n += 1) { // narrow steps that touch are one piece
      const before = parts.at(-1);
      if (before && step < 5 && scale.from(n) - before[1] < 0.75) before[1] = scale.to(n);
      else parts.push([scale.from(n), scale.to(n)]);
    }
    const gap = step >= 5 && !scale.clock ? 1 : 0;
    for (const [left, right] of parts) {
      const x = Math.round(left * this.surface.d) / this.surface.d;
      const width = Math.max(0.6, right - x - gap);
      const half = (status & PREFILL) && (status & DECODE) ? width / 2 : 0; // each has its own
      if (status & PREFILL) prefill(g, x, y, half || width, height, colours);
      if (status & DECODE) fillBox(g, colours.solid, x + half, y, width - half, height);
      else if (status & (WASTED | OVERRUN)) fillBox(g, palette.hatch(g, palette.pad, palette.empty), x, y, width, height);
      else if (!(status & PREFILL)) fillBox(g, colours.cached, x, y + height * 0.4, width, Math.max(1, height * 0.2)); // holds the lane, computes nothing
    }
  }

  /** On the clock of an asynchronous run: the device idle between two steps, dotted across all lanes. @param {Ink} g @param {LaneState} state */
  _idle(g, { run, palette }) {
    const { scale } = this;
    this.idle = 0;
    if (!scale.clock || !run.asynchronous) return;
    g.globalAlpha = 1;
    for (let i = 1; i < run.length; i += 1) {
      const idle = run.idleBefore(i);
      if (!idle) continue;
      this.idle += idle.seconds;
      const from = scale.to(i - 1);
      const width = scale.from(i) - from;
      if (width < 0.4) continue;
      fillBox(g, palette.panel, from, this.axis, width, run.numLanes * this.pitch);
      g.fillStyle = palette.warn;
      for (let lane = 0; lane < run.numLanes; lane += 1) g.fillRect(from, this.axis + (lane + 0.5) * this.pitch - 0.75, width, 1.5);
    }
  }

  /** @param {Ink} g @param {LaneState} state @param {number} i @param {number} lane @param {RunRequest} request */
  _cross(g, { palette, focus }, i, lane, request) {
    this._light(g, focus, request);
    const x = this.scale.from(i);
    const [y, height] = this._lane(lane);
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

  /** @param {Ink} g @param {LaneState} state */
  _letters(g, { run, palette, presenter, focus }) {
    const { scale } = this;
    const height = this.pitch - this.gap;
    const size = Math.min(presenter ? 20 : 12, height);
    if (size < 8) return;
    setFont(g, `700 ${Math.max(11, presenter ? Math.min(20, height - 2) : size)}px ${palette.mono}`);
    g.textBaseline = "middle";
    for (const laneSpan of run.laneSpans) {
      const end = Math.min(laneSpan.to, run.length - 1);
      if (end < 0) continue;
      const from = Math.max(0, laneSpan.from);
      const x = Math.max(scale.from(from), GUTTER);
      const { letter } = laneSpan.request;
      const width = measure(g, letter);
      if (end < from || scale.to(end) - x < width + 6) continue;
      this._light(g, focus, laneSpan.request);
      const y = this.axis + (laneSpan.lane + 0.5) * this.pitch;
      const dx = laneSpan.end === "preempted" || run.events[from].preempted.length ? 8 : 3;
      fillBox(g, palette.of(laneSpan.request).tint, x + dx - 1.5, y - size / 2 + 0.5, width + 3, size - 1); // a pale background: text on it is legible whatever lies below
      g.fillStyle = palette.ink;
      g.fillText(letter, x + dx, y + 0.5);
    }
  }

  /** The queue, one column per step: its height is the number waiting. @param {Ink} g @param {LaneState} state @param {number} most */
  _queue(g, { run, palette, focus }, most) {
    const { scale } = this;
    const base = this.surface.h;
    const unit = (this.queueHeight - 4) / most;
    g.globalAlpha = focus ? 0.2 : 0.75;
    g.fillStyle = palette.soft;
    for (const { from, end, waiting } of queueColumns(run)) {
      g.fillRect(scale.from(from), base - waiting * unit, Math.max(0.6, scale.to(end - 1) - scale.from(from)), waiting * unit);
    }
    g.globalAlpha = 1;
    if (!focus) return;
    for (const request of focus) {
      g.fillStyle = palette.of(request).solid;
      for (const [from, to] of request.waits) {
        const end = Math.min(to, run.length - 1);
        const start = Math.max(0, from);
        if (end >= start) g.fillRect(scale.from(start), base - 5, Math.max(1, scale.to(end) - scale.from(start)), 5);
      }
    }
  }

  /** @param {LaneState} state @param {(g: Ink) => void} mark */
  _ground({ run, palette }, mark) {
    const { surface } = this;
    const g = this._begin(this.ground);
    g.fillStyle = palette.empty;
    for (let lane = 0; lane < run.numLanes; lane += 1) {
      const [y, height] = this._lane(lane);
      g.fillRect(GUTTER, y, this.end - GUTTER, height);
    }
    setFont(g, `${this.font}px ${palette.sans}`);
    g.fillStyle = palette.soft;
    g.textBaseline = "alphabetic";
    mark(g);
    if (this.pitch >= 9) {
      g.textBaseline = "middle";
      const every = Math.ceil(this.font / this.pitch);
      for (let lane = 0; lane < run.numLanes; lane += every) g.fillText(String(lane), 6, this.axis + (lane + 0.5) * this.pitch);
    }
    if (!this.queueHeight) return;
    const y = surface.h - this.queueHeight / 2; // three short lines: a queue
    for (const dy of [-4, 0, 4]) g.fillRect(6, y + dy - 0.5, 9, 1.5);
  }

  /** What lies under a point: {request, lines}, or null. @param {number} x @param {number} y */
  hit(x, y) {
    const { painted, scale } = this;
    if (!painted?.run.length || x < GUTTER - 2 || y < this.axis) return null;
    const { run } = painted;
    const i = indexAt(run, scale, x);
    const gap = scale.clock && i + 1 < run.length && x > scale.to(i) ? run.idleBefore(i + 1) : null;
    if (gap) return { request: null, lines: [[idleWords(gap, run.stepOf(i + 1))]] };
    const when = `step ${run.stepOf(i)}`;
    const lane = Math.floor((y - this.axis) / this.pitch);
    if (lane >= run.numLanes) return { request: null, lines: [[`${when}: ${count(run.numWaiting[i])} [request|requests] waiting`]] };
    const laneSpan = run.holders[i][lane] ?? -1;
    if (laneSpan < 0) return { request: null, lines: [[`lane ${lane} is free in ${when}`]] };
    const { request } = run.laneSpans[laneSpan];
    const lines = [[{ request }, ` lane ${lane}, ${when}: ${doing(run.statuses[i][lane] || 0)}`]];
    const gone = run.events[i].preempted.find((p) => p.lane === lane);
    if (gone) lines.push([{ request: run.request(gone.request) }, ` was preempted here and lost ${count(gone.tokensLost)} cached [token|tokens]`]);
    return { request, lines };
  }
}

/** @param {Ink} g @param {number} x @param {number} y @param {number} width @param {number} height @param {Colours} colours */
function prefill(g, x, y, width, height, colours) {
  fillBox(g, colours.tint, x, y, width, height);
  if (height < 5 || width < 4) {
    const edge = Math.min(1, height / 3);
    for (const top of [y, y + height - edge]) fillBox(g, colours.solid, x, top, width, edge);
    return;
  }
  strokeBox(g, colours.solid, 1.5, x + 0.75, y + 0.75, width - 1.5, height - 1.5);
}

/** @param {number} status */
function doing(status) {
  if (status & OVERRUN) return "overrun: it had stopped when this step was already launched, computed for nothing";
  if (status & WASTED) return "finished; its row is computed as padding until the wave ends";
  if ((status & PREFILL) && (status & DECODE)) return "prefill, then its first decode";
  if (status & PREFILL) return "prefill";
  if (status & DECODE) return "decode";
  if (status & STALLED) return "stalled, nothing computed";
  return "nothing computed; it had stopped, and its lane is free after this step";
}

/** @type {[number, string][]} */
const WORDS = [[PREEMPTED, "preempted"], [PREFILL, "prefill"], [DECODE, "decode"], [WASTED, "wasted"], [OVERRUN, "overrun"], [STALLED, "stalled"]];

/** @param {number} status bits of run/run.js */
export const doingOf = (status) => WORDS.filter(([bit]) => status & bit).map(([, word]) => t(word)).join(", ") || t("idle");

/**
 * @param {import("../parts/surface.js").Surface} surface
 * @param {Palette} palette
 * @param {{span: number, per: number, clock: boolean, font: number, from?: number}} axis span: seconds or steps; per: pixels for each; font: its size; from: where it begins
 */
export function drawTimeAxis(surface, palette, { span, per, clock, font, from = 0 }) {
  const g = surface.begin();
  setFont(g, `${font}px ${palette.sans}`);
  g.fillStyle = palette.soft;
  g.textBaseline = "middle";
  const unit = roundUnit(span, Math.max(2, surface.w / 110), !clock);
  for (let i = Math.ceil(from / unit - 1e-9); i * unit <= from + span + 1e-9; i += 1) {
    const v = i * unit;
    const x = GUTTER + (v - from) * per;
    const label = t(clock ? clockLabel(v, span) : String(v));
    if (x + measure(g, label) <= surface.w) g.fillText(label, x, surface.h / 2);
  }
}
