// What changed from the step before to this one, computed from the events alone: requests admitted
// and preempted, tokens computed and sampled, blocks taken, shared and evicted. Draws nothing; the
// states of core/trace/run_state.py change in the same way.

/** @type {WeakMap<Run, {i: number, event: StepEvent, between: Between | null}>} */
const latest = new WeakMap();

/**
 * The change from the step before to step i. Null if there is none: at the first step, or after
 * steps that are not shown.
 * @param {Run} run @param {number} i
 * @returns {Between | null}
 */
export function betweenSteps(run, i) {
  const event = run.events[i];
  const known = latest.get(run);
  if (known && known.i === i && known.event === event) return known.between;
  const between =
    i > 0 && event && !event.resumed
      ? { before: run.frame(i - 1), happened: happeningsOf(run, i) }
      : null;
  latest.set(run, { i, event, between });
  return between;
}

/**
 * What happened in step i, in order: preemptions, admissions, tokens computed and sampled, blocks
 * taken, shared and evicted.
 * @param {Run} run @param {number} i a step other than the first
 * @returns {Happenings}
 */
function happeningsOf(run, i) {
  const event = run.events[i];
  /** @type {<T extends {request: string}>(rows: T[]) => (Omit<T, "request"> & {request: RunRequest})[]} */
  const named = (rows) => rows.map((row) => ({ ...row, request: run.request(row.request) }));
  /** @type {(HeldPlace & {found: boolean})[]} */
  const joined = [];
  for (const index of run.holders[i]) {
    if (index < 0) continue;
    const { request, lane, places, hit = 0 } = run.laneSpans[index];
    for (const { block, group, at, from, to } of places) {
      if (from !== i || to < i) continue;
      const { blockSize, units } = run.groups[group];
      const found = Math.floor(at / units) * blockSize < hit; // in the prefix cache
      joined.push({ request, lane, block, group, at, found });
    }
  }
  /** @type {Happenings["sampled"]} */
  const sampled = [];
  for (const { request, passIndex } of named(event.sampled)) {
    const last = sampled.find((one) => one.request === request && one.passIndex === passIndex);
    if (last) last.count += 1;
    else sampled.push({ request, passIndex, count: 1 });
  }
  const taken = joined.filter(({ found }) => !found);
  return {
    preempted: named(event.preempted),
    admitted: named(event.admitted),
    computed: named(event.segments),
    sampled,
    taken,
    shared: joined.filter(({ found }) => found),
    evicted: evictedBy(run, i, taken),
  };
}

/**
 * Of the blocks that step i overwrites, those with contents that the prefix cache could still have
 * found: their last holders had filled them. None where layers differ, since their windows give
 * blocks back while a request runs.
 * @param {Run} run @param {number} i @param {Happenings["taken"]} taken
 */
function evictedBy(run, i, taken) {
  if (!taken.length || run.isGrouped || !run.header.config?.prefix_caching) return [];
  /** @type {Map<number, {to: number, request: RunRequest, full: boolean} | null>} */
  const last = new Map(taken.map(({ block }) => [block, null]));
  for (const { request, lane, from, to, places } of run.laneSpans) {
    if (from >= i) continue;
    for (const { block, at, to: until } of places) {
      const known = last.get(block);
      const end = Math.min(to, until);
      if (known === undefined || end >= i || (known && known.to > end)) continue;
      const full = end >= 0 && run.kvLens[end][lane] >= (at + 1) * run.blockSize;
      last.set(block, { to: end, request, full });
    }
  }
  return [...last].flatMap(([block, holder]) =>
    holder?.full ? [{ block, request: holder.request }] : [],
  );
}
