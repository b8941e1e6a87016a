// Continues a run after steps that are not shown: sets its requests, lanes, queue and blocks to the
// state that the event carries. core/trace/run_state.py does the same.

/**
 * Replace the state from before the steps that are not shown with the state after them, at step i.
 * @param {Run} run @param {Resumed} resumed @param {number} i
 */
export function goOnFrom(run, { arrived, ended, running, waiting }, i) {
  for (const { request, t } of arrived)
    Object.assign(run._meet(request), { arrived: t, cameUnseen: true });
  for (const { request, finishReason } of ended)
    run._meet(request).finished = { step: i, reason: finishReason };
  const lanes = new Map(running.map(({ request, lane }) => [request, lane]));
  for (const index of run._laneNow) {
    const laneSpan = index >= 0 ? run.laneSpans[index] : null;
    if (laneSpan && lanes.get(laneSpan.request.id) !== laneSpan.lane)
      run._leave(laneSpan, i - 1, "unseen");
  }
  const since = new Map();
  for (const request of run.requests) {
    const wait = request.waits.at(-1);
    if (wait?.[1] === Infinity) since.set(request.id, wait[3] ?? wait[0]);
    run._stopWaiting(request, i);
  }
  for (const { request, lane, computed, tables } of running) {
    const met = run._meet(request);
    if (!met.waits.length) met.waits.push([i, i - 1, false]);
    run._dealHue(met);
    const laneSpan = run._laneSpanOf(request) || run._enter(met, lane, i);
    Object.assign(laneSpan, { kvLen: computed, hit: computed });
    const open = laneSpan.places.filter((place) => place.to === Infinity);
    for (const place of open) if (tables[place.group]?.[place.at] !== place.block) place.to = i - 1;
    const held = new Set(
      open.filter((place) => place.to === Infinity).map(({ group, at }) => `${group} ${at}`),
    );
    tables.forEach((table, group) => {
      for (const [at, block] of table.entries())
        if (block !== null && !held.has(`${group} ${at}`))
          laneSpan.places.push({ block, group, at, from: i, to: Infinity });
      laneSpan.ends[group] = table.length;
    });
    run.longest = Math.max(run.longest, computed);
  }
  for (const { request, wasPreempted } of waiting) {
    const began = wasPreempted ? i : (since.get(request) ?? i);
    run._meet(request).waits.push([i, Infinity, wasPreempted, began]);
    run._waitingNow += 1;
  }
  const queue = waiting.map(({ request }) => request);
  run._order(queue, i);
  for (const { request, tokens } of [...running, ...waiting]) {
    const { samples, unseen } = run._meet(request);
    if (tokens.length) unseen.push([samples.length, tokens.length]);
    for (const _ of tokens) samples.push(i);
  }
}
