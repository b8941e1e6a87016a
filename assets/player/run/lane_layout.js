// The geometry of lanes along an axis of steps or seconds: positions, what each lane holds, and the
// marks of the axis, as numbers. Pure, without a canvas.

import { milliseconds } from "../parts/format.js";
import { countUpTo, DECODE, OVERRUN, PREEMPTED, PREFILL, STALLED, WASTED } from "./run.js";

/**
 * Maps steps, or measured seconds, to pixels.
 * @param {Run} run
 * @param {boolean} clock seconds, not steps
 * @param {number} left where the first step begins, in pixels
 * @param {number} per pixels per second or step
 * @returns {LaneScale}
 */
export function laneScale(run, clock, left, per) {
  const [first] = run.events;
  const start = clock ? first.tStart : first.step;
  const x = (/** @type {number} */ moment) => left + (moment - start) * per;
  return {
    clock,
    left,
    per,
    start,
    x,
    from: clock ? (i) => x(run.events[i].tStart) : (i) => x(run.events[i].step),
    to: clock ? (i) => x(run.events[i].tEnd) : (i) => x(run.events[i].step + 1),
  };
}

/**
 * A scale in steps with "now" at a fixed place, past which the run scrolls.
 * @param {Run} run
 * @param {number} at the index of the step that begins at `now`; a fraction on the way from one step
 * to the next
 * @param {number} now in pixels
 * @param {number} per pixels per step
 */
export function windowScale(run, at, now, per) {
  const before = Math.floor(at);
  const step = run.stepOf(before);
  const next = before + 1 < run.length ? run.stepOf(before + 1) : step + 1;
  const passed = step + (at - before) * (next - step) - run.events[0].step;
  return laneScale(run, false, now - passed * per, per);
}

/**
 * The index of the step drawn at x, or of the last one before x.
 * @param {Run} run @param {LaneScale} scale @param {number} x
 */
export function indexAt(run, scale, x) {
  return Math.max(0, countUpTo(run.events, x, (_, i) => scale.from(i)) - 1);
}

/**
 * Stretches of steps that are alike, from ≤ i < end; a gap in the step numbers ends one.
 * @param {Run} run @param {(i: number, first: number) => boolean} isAlike
 */
function stretchesOf({ events, length }, isAlike) {
  const stretches = [];
  for (let from = 0; from < length;) {
    let end = from + 1;
    while (end < length && isAlike(end, from) && events[end].step === events[end - 1].step + 1)
      end += 1;
    stretches.push({ from, end });
    from = end;
  }
  return stretches;
}

/**
 * What each lane holds, in pieces: stretches of steps with the same request and status. laneSpan:
 * an index into run.laneSpans, or -1 if the lane is empty. @param {Run} run
 */
export function lanePieces(run) {
  const pieces = [];
  for (let lane = 0; lane < run.numLanes; lane += 1) {
    const status = (/** @type {number} */ i) => run.statuses[i][lane] || 0;
    const holder = (/** @type {number} */ i) => run.holders[i][lane] ?? -1;
    const isAlike = (/** @type {number} */ i, /** @type {number} */ first) =>
      holder(i) === holder(first) && status(i) === status(first);
    for (const { from, end } of stretchesOf(run, isAlike))
      pieces.push({ lane, from, end, status: status(from), laneSpan: holder(from) });
  }
  return pieces;
}

/**
 * The number of lane-steps of each kind, and the number of waiting requests summed over all steps.
 * @param {Run} run @param {{from: number, end: number, status: number}[]} pieces
 */
export function countLaneSteps(run, pieces) {
  const steps = (/** @type {number} */ bits) =>
    pieces.reduce((n, p) => n + (p.status & bits ? p.end - p.from : 0), 0);
  return {
    prefill: steps(PREFILL),
    decode: steps(DECODE),
    wasted: steps(WASTED | OVERRUN),
    overrun: steps(OVERRUN),
    stalled: steps(STALLED),
    preempted: steps(PREEMPTED),
    waiting: run.numWaiting.reduce((a, b) => a + b, 0),
  };
}

/** Stretches of steps in which equally many requests wait, if any do. @param {Run} run */
export function queueColumns(run) {
  const { numWaiting } = run;
  return stretchesOf(run, (i, first) => numWaiting[i] === numWaiting[first])
    .map(({ from, end }) => ({ from, end, waiting: numWaiting[from] }))
    .filter(({ waiting }) => waiting);
}

/**
 * The smallest round unit (1, 2 or 5 times a power of ten) that gives at most `most` marks over
 * `span`. whole: whether it must be a whole number.
 * @param {number} span @param {number} most @param {boolean} whole
 */
export function roundUnit(span, most, whole) {
  const rough = span / most;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].map((m) => m * magnitude).find((u) => u >= rough) || rough;
  return whole ? Math.max(1, Math.round(unit)) : unit;
}

/** A label of an axis of `span` seconds: "50 ms". @param {number} seconds @param {number} span */
export function clockLabel(seconds, span) {
  if (seconds === 0) return "0";
  return span >= 1
    ? `${Number(seconds.toFixed(3))} s`
    : milliseconds(seconds).replace(/\.0+ |(\.\d*[1-9])0+ /, "$1 ");
}
