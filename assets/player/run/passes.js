// The rows, queries and keys of each forward pass of a step, before anything is drawn. Mirrors core/trace/mask.py.
//
//   queries: in packed order (in our own engine lane order, others have theirs); a padded row is its pads, then its tokens
//   keys:    request by request, each from 0 to kv_len - 1, cached keys first, then new ones

/** The passes of a step. @param {Run} run @param {StepEvent} event @returns {Pass[]} */
export function passesOf(run, event) {
  /** @type {Segment[][]} */
  const byPass = event.passes.map(() => []);
  for (const segment of event.segments) byPass[segment.passIndex].push(segment);
  const overrun = new Set(event.overrun.map((o) => o.request)); // computed for nothing
  const sampled = new Set(event.sampled.map((s) => `${s.passIndex} ${s.request}`));
  // the drafts of speculative decoding are the last positions of a segment
  const drafts = new Map(event.drafts.map((d) => [d.request, d]));
  return event.passes.map((forward, index) => {
    const padded = forward.layout === "padded";
    const items = /** @type {PassItem[]} */ ([
      ...byPass[index].map((s) => {
        const { drafted = 0, accepted = 0 } = drafts.get(s.request) || {};
        return {
          ...s,
          request: run.request(s.request),
          finished: false,
          overrun: overrun.has(s.request),
          sampled: sampled.has(`${index} ${s.request}`),
          drafted,
          rejected: drafted - accepted,
        };
      }),
      ...forward.finishedRows.map(({ request, lane }) => {
        const nothing = { phase: "finished", start: 0, length: 0, kvLen: 0, finished: true };
        return { request: run.request(request), lane, ...nothing };
      }),
    ]);
    if (forward.finishedRows.length) items.sort((a, b) => a.lane - b.lane);
    let q = 0;
    let k = 0;
    for (const item of items) {
      item.pads = padded ? forward.width - item.length : 0;
      item.q0 = q; // first query, pads included
      item.k0 = k; // first key
      q += item.pads + item.length;
      k += item.kvLen;
    }
    if (run.header.leak) leaksOf(items);
    // CUDA graphs exist in a few sizes, and a pass is padded to one of them
    const graphPads = forward.bucket
      ? Math.max(0, forward.bucket - forward.rows * forward.width)
      : 0;
    return { index, ...forward, padded, items, nq: q, nk: k, graphPads };
  });
}

/**
 * Mark what leaks in a run whose mask leaks: every request also attends to all keys of the next one
 * in the pass, and the last to those of the first. @param {PassItem[]} items
 */
function leaksOf(items) {
  const present = items.filter((item) => item.length);
  if (present.length > 1)
    present.forEach((item, i) => {
      item.leak = present[(i + 1) % present.length];
    });
}

/** Why an item's positions were wasted, in words. @param {PassItem} item */
export function overrunWords(item) {
  return [
    { request: item.request },
    " had stopped when this step was already launched: overrun, computed for nothing",
  ];
}

/**
 * Whether a position held a draft of speculative decoding, and if so whether it was accepted: ""
 * for no draft, "taken" or "forgotten". @param {PassItem} item @param {number} position
 */
export function guessAt(item, position) {
  if (position >= item.kvLen || position < item.kvLen - item.drafted) return "";
  return position >= item.kvLen - item.rejected ? "forgotten" : "taken";
}

export const NOT_USED = "✗"; // shown in place of a rejected draft

/**
 * The item whose queries (or keys) include position x of a pass.
 * @param {Pass} pass @param {number} x @param {"q" | "k"} axis
 */
export const itemAt = (pass, x, axis) =>
  /** @type {PassItem} */ (pass.items.findLast((item) => item[`${axis}0`] <= x));

/**
 * The keys that query `q` of an item may attend to, as [first, end) among all keys of the pass;
 * null for a pad and for a finished row.
 * @param {PassItem} item @param {number} q @param {number | null} window
 */
export function allowedKeys(item, q, window) {
  const offset = q - item.q0 - item.pads;
  if (offset < 0 || item.finished) return null;
  const position = item.start + offset;
  const first = window === null ? 0 : Math.max(0, position - window + 1);
  return [item.k0 + first, item.k0 + position + 1];
}

/**
 * The index of the query with which an item computes a position of its request.
 * @param {PassItem} item @param {number} position
 */
export const queryOf = (item, position) => item.q0 + item.pads + position - item.start;

/**
 * What a step, or one of its passes, wrote for a request, as a cell shows it: null for nothing, ""
 * if only the token that ends the answer.
 * @param {Run} run @param {RunRequest} request @param {number} i @param {number | null} passIndex
 */
export function written(run, request, i, passIndex = null) {
  const mine = run.events[i].sampled.filter((s) => s.request === request.id);
  const count = run.numGenerated(request, i) - run.numGenerated(request, i - 1);
  // skip the tokens of steps that are not shown
  const pieces = run
    .newPieces(request, i)
    .slice(count - mine.length)
    .filter((_, n) => passIndex === null || mine[n].passIndex === passIndex);
  if (!pieces.length) return null;
  const text = pieces.join("");
  const isLast = passIndex === null || mine[mine.length - 1].passIndex === passIndex;
  const ends = !text && isLast && request.samples.at(-1) === i && run.endedItself(request);
  return ends ? "" : visible(text);
}

const shownPieces = new Map();

/** Text as a cell shows it: at most `most` characters, all made visible. @param {string} piece */
export function visible(piece, most = 14) {
  const key = piece.length < 100 ? `${most}${piece}` : null;
  let shown = key === null ? undefined : shownPieces.get(key);
  if (shown === undefined) {
    shown = makeVisible(piece, most);
    if (shownPieces.size > 20000) shownPieces.clear();
    if (key !== null) shownPieces.set(key, shown);
  }
  return shown;
}

/** @param {string} piece @param {number} most */
function makeVisible(piece, most) {
  if (piece === "") return "◌";
  const trimmed = piece.length > 200 ? piece.slice(0, 200) : piece;
  let shown = trimmed.replace(/\r\n|\n/g, "↵").replace(/\t/g, "⇥");
  if (/^ +$/.test(shown)) return "␣".repeat(Math.min(shown.length, 4));
  shown = shown.trim().replace(/ /g, "␣");
  shown = shown.replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0)));
  shown = shown.replace(/[\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, "◌");
  const characters = Array.from(shown);
  return characters.length > most ? `${characters.slice(0, most - 1).join("")}…` : shown || "␣";
}
