// What moved between the step before and this one, from the events alone: who came, joined, went
// back, left; what was computed and sampled; which blocks changed hands. Knows nothing of drawing;
// core/trace/run_state.py would list the same.

import { placesAt } from "./holdings.js";

/** @type {WeakMap<Run, {i: number, event: StepEvent, between: Between | null}>} */
const latest = new WeakMap();

/**
 * The way from the step before to step i; null where there is none: at the first step, or after
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
 * In the order in which it happened: leaving, coming, computing, sampling.
 * @param {Run} run @param {number} i a step that has one before it
 * @returns {Happenings}
 */
function happeningsOf(run, i) {
  const event = run.events[i];
  const spansAt = (/** @type {number} */ step) =>
    run.holders[step].filter((index) => index >= 0).map((index) => run.laneSpans[index]);
  const now = spansAt(i);
  const gone = spansAt(i - 1).filter((span) => span.to < i);
  const who = (/** @type {string} */ id) => run.request(id);
  const joined = now.flatMap((span) =>
    span.places
      .filter((place) => place.from === i && place.to >= i)
      .map((place) => ({ ...heldPlace(span, place), found: isFound(run, span, place) })),
  );
  /** @type {Happenings["sampled"]} */
  const sampled = [];
  for (const { request, passIndex } of event.sampled) {
    const last = sampled.find((one) => one.request.id === request && one.passIndex === passIndex);
    if (last) last.count += 1;
    else sampled.push({ request: who(request), passIndex, count: 1 });
  }
  return {
    arrived: event.arrived.map(({ request }) => who(request)),
    left: gone
      .filter((span) => span.end !== "preempted")
      .map(({ request, lane }) => ({ request, lane })),
    preempted: event.preempted.map(({ request, lane, tokensLost }) => ({
      request: who(request),
      lane,
      tokensLost,
    })),
    admitted: event.admitted.map(({ request, lane }) => ({
      request: who(request),
      lane,
      resumes: who(request).laneSpans.some((span) => span.from < i),
    })),
    computed: event.segments.map(({ request, lane, passIndex, phase, start, length, kvLen }) => ({
      request: who(request),
      lane,
      passIndex,
      phase,
      start,
      length,
      kvLen,
    })),
    sampled,
    finished: event.finished.map(({ request, finishReason }) => ({
      request: who(request),
      reason: finishReason,
    })),
    given: [
      ...gone.flatMap((span) =>
        placesAt(span, i - 1).map((place) => ({
          ...heldPlace(span, place),
          why: span.end === "preempted" ? "preempted" : "over",
        })),
      ),
      ...now.flatMap((span) =>
        span.places
          .filter((place) => place.to === i - 1 && place.from < i)
          .map((place) => ({ ...heldPlace(span, place), why: "window" })),
      ),
    ],
    taken: joined.filter(({ found }) => !found),
    shared: joined.filter(({ found }) => found),
    evicted: evictedBy(
      run,
      i,
      joined.filter(({ found }) => !found),
    ),
  };
}

/** @param {LaneSpan} span @param {BlockPlace} place */
const heldPlace = ({ request, lane }, { block, group, at }) => ({
  request,
  lane,
  block,
  group,
  at,
});

/**
 * Whether a block came with its contents: it was found in the prefix cache. @param {Run} run @param
 * {LaneSpan} span @param {BlockPlace} place
 */
function isFound(run, { hit = 0 }, { group, at }) {
  const { blockSize, units } = run.groups[group];
  return Math.floor(at / units) * blockSize < hit;
}

/**
 * Of blocks that are overwritten, those that the prefix cache could still be asked for: their
 * last holders had filled them. Not where layers differ, as their windows give blocks back unasked.
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
      last.set(block, {
        to: end,
        request,
        full: end >= 0 && run.kvLens[end][lane] >= (at + 1) * run.blockSize,
      });
    }
  }
  return [...last].flatMap(([block, holder]) =>
    holder?.full ? [{ block, request: holder.request }] : [],
  );
}
