// A run's lanes over time on a canvas of their own: one chart in Watch, one for each run in a race. The caller provides the layout (`LaneLayout`: the
// scale, the length of the lanes and more, see lane_ink.js) and the labels of the axis. What has passed is drawn at full strength and the rest faint;
// `hit` says in words what lies under the pointer.
//
//   painted once per run, size, theme, focus and `stamp`

import { clamp, pointIn } from "../parts/dom.js";
import { count, milliseconds } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { measure, resize, setFont, Surface } from "../parts/surface.js";
import { clockLabel, countLaneSteps, indexAt, roundUnit } from "../run/lane_layout.js";
import { DECODE, OVERRUN, PREEMPTED, PREFILL, STALLED, WASTED } from "../run/run.js";
import { GUTTER, LaneInk } from "./lane_ink.js";

/**
 * What the device did between two steps of an asynchronous run. @param {{seconds: number, forHost:
 * boolean}} idle @param {number} before
 */
function idleWords({ seconds, forHost }, before) {
  return forHost
    ? `device waited ${milliseconds(seconds)} for the host before step ${before}`
    : `device idle for ${milliseconds(seconds)} before step ${before}: nobody to serve`;
}

export class LaneChart extends LaneInk {
  /** @param {HTMLCanvasElement} canvas @param {() => void} redraw */
  constructor(canvas, redraw) {
    super();
    this.canvas = canvas;
    this.surface = new Surface(canvas, () => {
      this._stamp = null;
      redraw();
    });
    this.chart = document.createElement("canvas"); // what happened
    this.ground = document.createElement("canvas"); // empty lanes, the axis
    /** @type {string | null} */
    this._stamp = null;
    /** @type {LaneState | null} */
    this.painted = null; // the state painted last
  }

  get counted() {
    return countLaneSteps(/** @type {LaneState} */ (this.painted).run, this.pieces);
  }

  /**
   * Repaint if needed; returns whether it was needed.
   * @param {LaneState} state
   * @param {string} stamp what else the picture depends on
   * @param {() => LaneLayout} layout
   * @param {(g: CanvasRenderingContext2D) => void} [mark] draws on the axis
   */
  paint(state, stamp, layout, mark = () => {}) {
    const { surface } = this;
    const { run, palette, focus } = state;
    const all = `${stamp}/${run.length}/${surface.w}x${surface.h}@${surface.d}/${focus ? focus.map((r) => r.index).join() : ""}`;
    if (all === this._stamp && this.painted?.run === run && this.painted.palette === palette)
      return false;
    [this._stamp, this.painted] = [all, state];
    this.place(run, surface, layout());
    const g = this._begin(this.chart);
    if (this.scale.left < this.gutter) {
      // the run began before the time that is shown
      g.beginPath();
      g.rect(this.gutter, 0, surface.w, surface.h);
      g.clip();
    }
    this.drawLanes(g, state);
    this.drawGround(this._begin(this.ground), state, mark);
    return true;
  }

  /** Copy the chart to the surface: full strength left of `x`, the rest faint. @param {number} x */
  show(x, faint = 0.22) {
    const { w, h, d, canvas } = this.surface;
    const g = this.surface.begin();
    g.drawImage(this.ground, 0, 0, w, h);
    const cut = clamp(Math.round(x * d), 1, canvas.width);
    const rest = canvas.width - cut;
    g.drawImage(this.chart, 0, 0, cut, canvas.height, 0, 0, cut / d, h);
    if (!rest) return g;
    g.globalAlpha = faint;
    g.drawImage(this.chart, cut, 0, rest, canvas.height, cut / d, 0, w - cut / d, h);
    g.globalAlpha = 1;
    return g;
  }

  /** @param {HTMLCanvasElement} canvas */
  _begin(canvas) {
    const { surface } = this;
    const g = resize(canvas, surface.canvas.width, surface.canvas.height);
    g.setTransform(surface.d, 0, 0, surface.d, 0, 0);
    return g;
  }

  /** The index of the step under a pointer; null before anything is painted. @param {MouseEvent} e */
  indexUnder(e) {
    const { painted, scale, gutter, surface } = this;
    const x = clamp(pointIn(this.canvas, e)[0], gutter, surface.w);
    return painted && indexAt(painted.run, scale, x);
  }

  /**
   * The request under a point, and what is said of the point.
   * @param {number} x @param {number} y @returns {(Found & {lines: Span[][]}) | null}
   */
  hit(x, y) {
    const { painted, scale } = this;
    if (!painted?.run.length || x < this.gutter - 2 || y < this.axis) return null;
    const { run } = painted;
    const i = indexAt(run, scale, x);
    const gap = scale.clock && i + 1 < run.length && x > scale.to(i) ? run.idleBefore(i + 1) : null;
    if (gap) return { request: null, lines: [[idleWords(gap, run.stepOf(i + 1))]] };
    const lane = Math.floor((y - this.axis) / this.pitch);
    const laneSpan = run.holders[i][lane] ?? -1;
    if (x < scale.from(i) - 2 || x > scale.to(i) + 1) {
      // between two steps, a request that goes on holds its lane
      const goesOn = laneSpan >= 0 && x > scale.to(i) && run.holders[i + 1]?.[lane] === laneSpan;
      if (!goesOn) return { request: null, lines: [["nothing is computed here"]] };
      const { request } = run.laneSpans[laneSpan];
      return { request, lines: [[{ request }, ` holds lane ${lane}; nothing is computed here`]] };
    }
    const when = `step ${run.stepOf(i)}`;
    const waiting = `${when}: ${count(run.numWaiting[i])} [request|requests] waiting`;
    if (lane >= run.numLanes) return { request: null, lines: [[waiting]] };
    if (laneSpan < 0) return { request: null, lines: [[`lane ${lane} is free in ${when}`]] };
    const { request } = run.laneSpans[laneSpan];
    const did = doing(run.statuses[i][lane] || 0);
    const lines = [[{ request }, ` lane ${lane}, ${when}: `, did]];
    const gone = run.events[i].preempted.find((p) => p.lane === lane);
    if (gone) {
      const lost = ` was preempted here and lost ${count(gone.tokensLost)} cached [token|tokens]`;
      lines.push([{ request: run.request(gone.request) }, lost]);
    }
    return { request, lines };
  }
}

/** @param {number} status */
function doing(status) {
  if (status & OVERRUN)
    return "overrun: it had stopped when this step was already launched, computed for nothing";
  if (status & WASTED) return "finished; its row is computed as padding until the wave ends";
  if (status & PREFILL && status & DECODE) return "reads (prefill), then writes (decode)";
  if (status & PREFILL) return "reads (prefill)";
  if (status & DECODE) return "writes (decode)";
  if (status & STALLED) return "stalled, nothing computed";
  return "nothing computed; it had stopped, and its lane is free after this step";
}

/** @type {[number, string][]} */
const WORDS = [
  [PREEMPTED, "preempted"],
  [PREFILL, "prefill"],
  [DECODE, "decode"],
  [WASTED, "wasted"],
  [OVERRUN, "overrun"],
  [STALLED, "stalled"],
];

/**
 * What a step did in a lane for the request that holds it, in words. A preemption counts only if
 * this same request was preempted and came back at once, or if the lane is free.
 * @param {Frame["lanes"][number]} lane
 */
export function doneIn({ request, laneSpan, status }) {
  const gaveWay = request?.waits.some(
    ([from, , preempted]) => preempted && from === laneSpan?.from,
  );
  const bits = request && !gaveWay ? status & ~PREEMPTED : status;
  const did = WORDS.filter(([bit]) => bits & bit).map(([, word]) => t(word));
  return did.join(t(", then ")) || t("idle");
}

/** A lane's request, and what a step did there. @param {Frame["lanes"][number]} lane */
export const laneWords = (lane) =>
  lane.request ? `${lane.request.letter} ${doneIn(lane)}` : t("free");

/** `laneWords` of all lanes in step i. @param {Run} run @param {number} i */
export const lanesWords = (run, i) =>
  run
    .frame(i)
    .lanes.map((lane) => `${lane.lane}: ${laneWords(lane)}`)
    .join("; ");

/**
 * Draw the labels of a time axis.
 * @param {import("../parts/surface.js").Surface} surface @param {Palette} palette
 * @param {{span: number, per: number, clock: boolean, font: number, head: number, from?: number}}
 * axis span, from: in seconds or steps; per: pixels for each; font: size; head: the playhead's x
 */
export function drawTimeAxis(surface, palette, { span, per, clock, font, head, from = 0 }) {
  const g = surface.begin();
  setFont(g, `${font}px ${palette.sans}`);
  g.fillStyle = palette.soft;
  g.textBaseline = "middle";
  const unit = roundUnit(span, Math.max(2, surface.w / 110), !clock);
  for (let i = Math.ceil(from / unit - 1e-9); i * unit <= from + span + 1e-9; i += 1) {
    const v = i * unit;
    const x = GUTTER + (v - from) * per;
    const label = t(clock ? clockLabel(v, span) : String(v));
    const end = x + measure(g, label);
    if (end <= surface.w && !covered(x, end, knobAt(head))) g.fillText(label, x, surface.h / 2);
  }
}

/** The stretch under a playhead's knob. @param {number} x @returns {[number, number]} */
export const knobAt = (x) => [x - 8, x + 8];

/**
 * Whether something covers a part of an axis: a number is drawn whole or not at all.
 * @param {number} x @param {number} end @param {[number, number][]} over
 */
export const covered = (x, end, ...over) => over.some(([a, b]) => x < b && a < end);
