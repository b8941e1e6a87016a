// Several runs side by side on one clock: when each takes a step, at which moments steps begin, and
// where the texts of a request differ. Pure, without a canvas.

import { countUpTo } from "./run.js";

/**
 * A run and its offset: the second of the common clock at which the run's own time 0 lies.
 * @typedef {{run: Run, offset: number}} Placed
 */

/** When step i begins and ends on the common clock. @param {Placed} placed @param {number} i */
export const stretch = ({ run, offset }, i) => [
  offset + run.events[i].tStart,
  offset + run.events[i].tEnd,
];

/**
 * The current step of a run: i is the last step that has begun, or -1 before the first; inside says
 * whether it is still being computed. @param {Placed} placed @param {number} now
 */
export function stepAt(placed, now) {
  const { run, offset } = placed;
  const i = countUpTo(run.events, now + 1e-9, (e) => offset + e.tStart) - 1;
  return { i, inside: i >= 0 && now < stretch(placed, i)[1] - 1e-9 };
}

/**
 * The moments at which any of these runs begins a step, in order. Steps that begin within a
 * microsecond of each other share a moment.
 * @param {Placed[]} all @returns {{t: number, steps: {placed: Placed, i: number}[]}[]}
 */
export function momentsOf(all) {
  /** @type {{t: number, steps: {placed: Placed, i: number}[]}[]} */
  const moments = [];
  const begun = all.flatMap((placed) =>
    placed.run.events.map((_, i) => ({ t: stretch(placed, i)[0], placed, i })),
  );
  for (const { t, placed, i } of begun.sort((a, b) => a.t - b.t)) {
    let moment = moments.at(-1);
    if (!moment || t - moment.t > 1e-6) moments.push((moment = { t, steps: [] }));
    moment.steps.push({ placed, i });
  }
  return moments;
}

/**
 * The fraction of the time between two moments in which a run computes steps.
 * @param {Placed} placed @param {number} from @param {number} to
 */
export function busy({ run, offset }, from, to) {
  const inside = (/** @type {StepEvent} */ e) =>
    Math.max(0, Math.min(to, offset + e.tEnd) - Math.max(from, offset + e.tStart));
  return run.events.reduce((n, e) => n + inside(e), 0) / (to - from || 1e-9);
}

/**
 * The index of the first token at which a request's text differs from its text in another run, or
 * null if the texts are equal. @param {Run} run @param {Run} other @param {string} id
 */
export function differsAt(run, other, id) {
  const [mine, theirs] = [run.texts.output[id] || [], other.texts.output[id] || []];
  const at = mine.findIndex((piece, i) => piece !== theirs[i]);
  return at >= 0 ? at : mine.length === theirs.length ? null : mine.length;
}

/**
 * The first token that differs between two runs: its step, the request's id, the token in each run
 * (`wrote` before, `writes` after), and the number of texts that differ. Null if none does.
 * @param {Run} before @param {Run} after
 */
export function firstChange(before, after) {
  const changes = after.requests
    .map((request) => ({ request, at: differsAt(after, before, request.id) ?? Infinity }))
    .filter(({ request, at }) => at < request.samples.length);
  changes.sort((a, b) => a.request.samples[a.at] - b.request.samples[b.at]);
  if (!changes.length) return null;
  const [{ request, at }] = changes;
  return {
    step: after.stepOf(request.samples[at]),
    id: request.id,
    writes: after.texts.output[request.id][at],
    wrote: before.texts.output[request.id]?.[at] ?? "",
    texts: changes.length,
  };
}
