// Several runs on one clock: where each lies on it, and the moments at which one of them begins a step. Pure: knows no canvas.

/**
 * A run and the second of the common clock at which its own time 0 lies.
 * @typedef {{run: Run, offset: number}} Placed
 */

/**
 * When step i of a run begins and ends on the common clock.
 * @param {Placed} placed
 * @param {number} i
 */
export const stretch = ({ run, offset }, i) => [offset + run.events[i].tStart, offset + run.events[i].tEnd];

/**
 * The step that a run stands at: the last that has begun, -1 before its first. inside: it is being computed at that moment.
 * @param {Placed} placed
 * @param {number} now
 */
export function standing(placed, now) {
  const { run, offset } = placed;
  let low = 0;
  let high = run.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (offset + run.events[mid].tStart <= now + 1e-9) low = mid + 1;
    else high = mid;
  }
  const i = low - 1;
  return { i, inside: i >= 0 && now < stretch(placed, i)[1] - 1e-9 };
}

/**
 * The moments at which runs of these begin a step, in order; those within a microsecond are one.
 * @param {Placed[]} all
 * @returns {{t: number, steps: {placed: Placed, i: number}[]}[]}
 */
export function momentsOf(all) {
  const moments = [];
  const begun = all.flatMap((placed) => placed.run.events.map((_, i) => ({ t: stretch(placed, i)[0], placed, i })));
  for (const { t, placed, i } of begun.sort((a, b) => a.t - b.t)) {
    if (!moments.length || t - moments.at(-1).t > 1e-6) moments.push({ t, steps: [] });
    moments.at(-1).steps.push({ placed, i });
  }
  return moments;
}

/**
 * The share of the time from one moment to another in which a run computes steps.
 * @param {Placed} placed
 * @param {number} from
 * @param {number} to
 */
export function busy({ run, offset }, from, to) {
  const inside = (e) => Math.max(0, Math.min(to, offset + e.tEnd) - Math.max(from, offset + e.tStart));
  return run.events.reduce((n, e) => n + inside(e), 0) / (to - from || 1e-9);
}
