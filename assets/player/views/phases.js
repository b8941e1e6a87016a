// The phases of a step's motion, as shares of it: from the queue to a lane, into the row, from the
// row to the mask, into blocks, to the text. Pure: a picture at share 0.4 is always the same.

import { clamp } from "../parts/dom.js";
import { betweenSteps } from "../run/happenings.js";

/** @type {Record<Phase, [number, number]>} */
const PHASES = {
  leave: [0, 0.24], // blocks given back, a preempted request to the queue
  lane: [0, 0.3],
  row: [0.16, 0.5],
  mask: [0.4, 0.7],
  keep: [0.6, 0.78], // what was computed, on its way to the cache
  block: [0.7, 0.88],
  text: [0.76, 1],
};

/**
 * How much of a phase has happened, 0 to 1. @param {number | undefined} share left out: all has
 * happened @param {Phase} name
 */
export function phase(share, name) {
  const [from, to] = PHASES[name];
  return share === undefined || share >= 1 ? 1 : clamp((share - from) / (to - from), 0, 1);
}

/**
 * The progress of the n-th of `total` things, each of which begins before the last one is done.
 * @param {number} done of all, 0 to 1 @param {number} n @param {number} total
 */
export const turn = (done, n, total) => clamp(done * 1.7 - (n / Math.max(1, total)) * 0.7, 0, 1);

const FLOWN = 0.4; // share of a row's turn in the mask: first its word flies, then its stripe grows
/** The progress of the flight at share t of a row's turn. @param {number} t */
export const inFlight = (t) => Math.min(1, t / FLOWN);
/** The progress of the growth after the flight. @param {number} t */
export const afterFlight = (t) => Math.max(0, (t - FLOWN) / (1 - FLOWN));

/** @type {(a: number, b: number, t: number) => number} */
export const lerp = (a, b, t) => a + (b - a) * t;
/**
 * The point at share t between two points. @typedef {{x: number, y: number}} Point
 * @param {Point} from @param {Point} to @param {number} t @returns {Point}
 */
export const along = (from, to, t) => ({ x: lerp(from.x, to.x, t), y: lerp(from.y, to.y, t) });
/** Fast, then slow. @param {number} t */
export const easeOut = (t) => 1 - (1 - t) ** 3;
/** Slow, fast, slow. @param {number} t */
export const easeBoth = (t) => (t < 0.5 ? 4 * t ** 3 : 1 - (2 - 2 * t) ** 3 / 2);

/** What moves in a picture, or null if nothing does. @param {ViewState} state */
export const movingIn = ({ share = 1, run, frame }) =>
  share < 1 ? betweenSteps(run, frame.i) : null;

/**
 * At most `most` entries of a list, evenly spread, with the first and the last; only these fly, and
 * the others appear in their places.
 * @template T
 * @param {T[]} list @param {number} most @returns {Set<T>}
 */
export function some(list, most) {
  if (list.length <= most) return new Set(list);
  return new Set(
    Array.from({ length: most }, (_, n) => list[Math.round((n * (list.length - 1)) / (most - 1))]),
  );
}
