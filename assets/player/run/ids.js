// Finds requests by their ids. In a recording these are the other engine's own ids, which its
// clients and its log show too. Pure: no DOM and no sentences of its own.

/**
 * The request with this id, or else the first to arrive whose id begins with it: a client of vLLM
 * sees `cmpl-96b6fd43cab70ef3`, and the engine's own id is `cmpl-96b6fd43cab70ef3-0-bc5b0971`. Null
 * if there is none. @param {Run} run @param {string | null} [id]
 */
export function requestNamed(run, id) {
  if (!id) return null;
  const begins = (/** @type {string} */ start) =>
    run.requests.find((request) => request.id.startsWith(start));
  // “req-1” means “req-1-0-bc5b0971” rather than “req-10”
  return run.request(id) || begins(`${id}-`) || begins(id) || null;
}

/**
 * The index of the step in which a request is first computed, or else in which it first waits.
 * @param {RunRequest} request
 */
export const firstStepOf = (request) =>
  Math.max(0, request.laneSpans[0]?.from ?? request.waits[0]?.[0] ?? 0);

/**
 * The entries whose request has this letter, then those whose request has the text in its id, both
 * in the given order. Case is ignored, and an empty text matches all.
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
