// Where the texts of two runs of the same requests depart. Pure: knows no views.

/**
 * Where a text departs from the same request's in another run: the index of its first other token, or null.
 * @param {Run} run
 * @param {Run} other
 * @param {string} id
 */
export function departs(run, other, id) {
  const [mine, theirs] = [run.texts.output[id] || [], other.texts.output[id] || []];
  const at = mine.findIndex((piece, i) => piece !== theirs[i]);
  return at >= 0 ? at : mine.length === theirs.length ? null : mine.length;
}

/**
 * The first step whose tokens differ, whose and which: {step, id, wrote, writes}; null where none does.
 * @param {Run} before
 * @param {Run} after
 */
export function firstChange(before, after) {
  const changes = after.requests.map((request) => ({ request, at: departs(after, before, request.id) })).filter(({ request, at }) => at !== null && at < request.samples.length);
  changes.sort((a, b) => a.request.samples[a.at] - b.request.samples[b.at]);
  if (!changes.length) return null;
  const [{ request, at }] = changes;
  return { step: after.stepOf(request.samples[at]), id: request.id, writes: after.texts.output[request.id][at], wrote: before.texts.output[request.id]?.[at] ?? "", texts: changes.length };
}
