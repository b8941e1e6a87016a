// Where each request's time went, from the data of visualizer/documents/delays.py, and which steps
// were slow. Pure: no DOM and no sentences of its own.

const SLOW = 2; // a step that takes this many times the median is marked as slow

/**
 * The steps that took at least SLOW times as long as the median step: a map from the index of a
 * step to how many times as long it took. @param {Run} run @returns {Map<number, number>}
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
 * Seconds that a request has waited by the time `now`, which is the end of step i by default: since
 * it arrived, or since it was preempted. Null if it does not wait in step i, or was preempted
 * before the first step here. @param {Run} run @param {RunRequest} request @param {number} i
 */
export function waitedBy(run, request, i, now = run.events[i].tEnd) {
  const wait = request.waits.findLast(([from]) => from <= i);
  if (!wait || wait[1] < i) return null;
  const [from, , preempted] = wait;
  const since = preempted ? (run.events[from]?.tStart ?? null) : request.arrived;
  return since === null ? null : Math.max(0, now - since);
}

/**
 * Seconds that a request has waited in all by the time `now`, which is the end of step i by
 * default, whether or not it waits in step i.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function waitedSoFar(run, request, i, now = run.events[i].tEnd) {
  const waits = request.waits.filter(([from, to]) => from <= i && to >= 0);
  const long = (/** @type {number} */ to) =>
    to < i ? waitedBy(run, request, to) : waitedBy(run, request, i, now);
  return waits.reduce((sum, [, to]) => sum + (long(to) || 0), 0);
}

/**
 * The number of steps in which a request has waited by the end of step i.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function stepsWaited(run, request, i) {
  return request.waits
    .filter(([from]) => from <= i)
    .reduce((sum, [from, to]) => sum + run.stepOf(Math.min(to, i)) - run.stepOf(from) + 1, 0);
}

/**
 * How a request's time divides into parts, without those of zero seconds. Null if not known: the
 * run goes on, or its data lacks the request. whole: the sum of the parts, in seconds. limits: how
 * the part "queued" divides by limit, the longest first.
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
