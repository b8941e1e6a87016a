// Requests by their ids: another engine's own, which its clients and its log have too. Pure: knows
// no DOM and no word of its own.

/**
 * The request that has this id, or else the first to arrive whose id begins with it: a client of
 * vLLM sees `cmpl-96b6fd43cab70ef3`, and the engine's own id is `cmpl-96b6fd43cab70ef3-0-bc5b0971`.
 * Null where there is none.
 * @param {Run} run @param {string | null} [id]
 */
export function requestNamed(run, id) {
  if (!id) return null;
  const begins = (/** @type {string} */ start) =>
    run.requests.find((request) => request.id.startsWith(start));
  // “req-1” is rather “req-1-0-bc5b0971” than “req-10”
  return run.request(id) || begins(`${id}-`) || begins(id) || null;
}

/**
 * The index of the step in which a request is first computed, or in which it arrives. @param
 * {RunRequest} request
 */
export const firstStepOf = (request) =>
  Math.max(0, request.laneSpans[0]?.from ?? request.waits[0]?.[0] ?? 0);

/**
 * Of some requests those with this letter, then those that have it in their ids, in either case in
 * their order. Capitals count as small letters.
 * @template {{request: RunRequest}} T @param {T[]} among @param {string} text
 */
export function matching(among, text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return among;
  const isIt = (/** @type {T} */ { request }) => request.letter.toLowerCase() === wanted;
  return [
    ...among.filter(isIt),
    ...among.filter((one) => !isIt(one) && one.request.id.toLowerCase().includes(wanted)),
  ];
}
