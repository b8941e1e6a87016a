// Where a request's time went, as visualizer/documents/delays.py tells it, and which steps took
// long. Pure: knows no DOM and no word of its own.

const SLOW = 2; // times the median step: worth a mark

/**
 * The steps that took at least twice as long as the median step, by index: how many times as long.
 * @param {Run} run @returns {Map<number, number>}
 */
export function slowSteps(run) {
  const took = run.events.map((e) => e.tEnd - e.tStart);
  const median = [...took].sort((a, b) => a - b)[(took.length - 1) >> 1];
  return new Map(
    took
      .map((t, i) => /** @type {[number, number]} */ ([i, t / median]))
      .filter(([, times]) => times >= SLOW && Number.isFinite(times)),
  );
}

/**
 * Seconds that a request has waited by the end of step i, or by a moment in it: since it arrived, or
 * since it lost its lane. Null if it does not wait then, or lost its lane before the first step here.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function waitedBy(run, request, i, now = run.events[i].tEnd) {
  const wait = request.waits.findLast(([from]) => from <= i);
  if (!wait || wait[1] < i) return null;
  const [from, , preempted] = wait;
  const since = preempted ? (run.events[from]?.tStart ?? null) : request.arrived;
  return since === null ? null : Math.max(0, now - since);
}

/**
 * Seconds that a request has waited in all by the end of step i, or by a moment in it, whether or
 * not it waits then.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function waitedSoFar(run, request, i, now = run.events[i].tEnd) {
  const waits = request.waits.filter(([from, to]) => from <= i && to >= 0);
  const long = (/** @type {number} */ to) =>
    to < i ? waitedBy(run, request, to) : waitedBy(run, request, i, now);
  return waits.reduce((sum, [, to]) => sum + (long(to) || 0), 0);
}

/**
 * In how many steps a request has waited by the end of step i.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function stepsWaited(run, request, i) {
  return request.waits
    .filter(([from]) => from <= i)
    .reduce((sum, [from, to]) => sum + run.stepOf(Math.min(to, i)) - run.stepOf(from) + 1, 0);
}

/**
 * A request's time in parts, those that are nothing left out; null where it is not known: of a run
 * that goes on, or of a request that it does not know. whole: in seconds; the parts add up to it.
 * limits: of the part "queued", the longest first.
 * @param {Run} run @param {RunRequest} request
 */
export function timeOf(run, request) {
  const found = run.delays?.requests[request.id];
  if (!run.delays || !found) return null;
  const parts = run.delays.parts
    .map(([name, label, means], n) => ({
      name,
      label,
      means,
      seconds: found.us[n] / 1e6,
      steps: found.steps[n],
    }))
    .filter(({ seconds }) => seconds > 0);
  const { limits } = run.delays;
  const queued = Object.entries(found.queued)
    .sort((a, b) => b[1] - a[1])
    .map(([limit, us]) => ({ limit, words: limits[limit], seconds: us / 1e6 }));
  const whole = found.us.reduce((a, b) => a + b, 0) / 1e6;
  return { whole, parts, limits: queued, uncompared: found.uncompared / 1e6, ended: found.ended };
}
