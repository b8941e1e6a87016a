// The waiting queue at a step, in its order. Pure; core/trace/run_state.py keeps the same queue.

/**
 * The requests that wait in step i: the next in turn, then the preempted, those of the latest step
 * first, then those in the order that was recorded last, then the others by arrival. With
 * `requeue`, where the preempted go to the end of the queue, they are in the order of joining.
 * @param {Run} run @param {number} i
 */
export function waitingAt(run, i) {
  const next = run.events[i]?.waiting.request;
  return inOrder(run, i).sort(
    (a, b) => Number(b.request.id === next) - Number(a.request.id === next),
  );
}

/** @param {Run} run @param {number} i */
function inOrder(run, i) {
  const order = run.queues.findLast(({ from }) => from <= i);
  let waiting = /** @type {Waiting[]} */ ([]);
  for (const request of run.requests) {
    for (let w = request.waits.length - 1; w >= 0; w -= 1) {
      const [from, to, preempted, since = from] = request.waits[w];
      if (from > i) continue;
      const place = order && from <= order.from ? (order.places.get(request.id) ?? null) : null;
      if (to >= i) waiting.push({ request, since, preempted, place });
      break;
    }
  }
  const placed = waiting
    .filter((w) => w.place !== null)
    .sort((a, b) => (a.place ?? 0) - (b.place ?? 0));
  waiting = waiting.filter((w) => w.place === null);
  // its place among those preempted in the same step, if that step is here
  const turn = (/** @type {Waiting} */ { request, since }) =>
    run.events[since]?.preempted.findIndex((p) => p.request === request.id) ?? 0;
  if ((run.header.batching || {}).requeue) {
    const rank = (/** @type {Waiting} */ w) => (w.preempted ? 1 + turn(w) : 0);
    return [...placed, ...waiting.sort((a, b) => a.since - b.since || rank(a) - rank(b))];
  }
  // each preempted request goes to the front, so the last of a step stands first
  const front = waiting
    .filter((w) => w.preempted)
    .sort((a, b) => b.since - a.since || turn(b) - turn(a));
  return [...front, ...placed, ...waiting.filter((w) => !w.preempted)];
}
