// Checks what comes out of a sandbox, since the code in it may have made it up. It is accepted only
// in the form that visualizer/write/attempt.py gives it, and only if nothing in it would make the
// page fetch anything. It can still be wrong, but it can do no other harm.

import { Run } from "../run/run.js";

// the types of visualizer/charts; some others of Plotly's fetch maps
const CHARTS = ["bar", "box", "heatmap", "scatter"];
// names under which a chart or a document has addresses
const FETCHED = ["images", "src", "href", "url", "urls"];
// what the learner's code said, which the page only ever writes as text
const OWN_WORDS = ["printed", "holes", "got", "notes", "order_by"];
const ADDRESS = /:\/\/|^\s*\/\/|javascript:|<\s*a\b|<[^>]*\bstyle\s*=/i;
// of a trial: beyond them the page would count or draw for minutes
const MOST = { lanes: 64, blocks: 65536, depth: 40, steps: 1000, number: 1e6 };

/** Returns a delta of a trial of the right form; else throws an error with a sentence. */
export function believed(/** @type {Json} */ delta) {
  try {
    if (isTrial(delta)) return delta;
  } catch {
    /* a run that cannot be followed */
  }
  throw new Error("This code answered with something that is not an answer.");
}

const isText = (/** @type {Json} */ value) => typeof value === "string";
const isNumber = (/** @type {Json} */ value) => Number.isSafeInteger(value) && value >= 0;
const isRecord = (/** @type {Json} */ value) =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const orNone = (/** @type {(value: Json) => boolean} */ is) => (/** @type {Json} */ value) =>
  value === null || is(value);
const isList = (/** @type {(value: Json) => boolean} */ is) => (/** @type {Json} */ value) =>
  Array.isArray(value) && value.every(is);
const isRecordOf = (/** @type {(value: Json) => boolean} */ is) => (/** @type {Json} */ value) =>
  isRecord(value) && Object.values(value).every(is);
const has =
  (/** @type {Record<string, (value: unknown) => boolean>} */ parts) =>
  (/** @type {Json} */ value) =>
    isRecord(value) && Object.entries(parts).every(([name, is]) => is(value[name]));

const isGoal = has({
  name: isText,
  met: (/** @type {unknown} */ met) => typeof met === "boolean",
  says: orNone(isText),
});
const isFault = has({
  says: isText,
  line: orNone(isNumber),
  step: orNone(isNumber),
  holes: isRecordOf(isText),
});
const isCase = has({
  lines: isList(isText),
  expected: orNone(isText),
  got: orNone(isText),
  printed: isText,
});
const isAttempt = has({
  task: isText,
  goals: isList(isGoal),
  help: orNone(isText),
  fault: orNone(isFault),
  replay: orNone(isRun),
  case: (value) => value === undefined || orNone(isCase)(value),
  printed: (/** @type {Json} */ value) => value === undefined || isText(value),
});
const isFigure = has({
  name: isText,
  figure: has({
    data: isList(has({ type: (/** @type {Json} */ type) => CHARTS.includes(type) })),
    layout: isRecord,
  }),
});
const isComparison = has({
  name: isText,
  title: isText,
  names: isList(isText),
  runs: isRecordOf(isRun),
  figures: isList(isFigure),
  translations: isRecordOf(has({ figures: isList(isFigure) })),
});

function isTrial(/** @type {Json} */ delta) {
  if (!delta.done)
    return isRecord(delta.loading ?? {}) && isRecordOf(isNumber)(delta.progress ?? {});
  if (!isHarmless(delta, 0)) return false;
  if ("error" in delta || "stopped" in delta)
    return isText(delta.error ?? "") && isText(delta.stopped ?? "");
  return "comparison" in delta ? isComparison(delta.comparison) : isAttempt(delta.attempt);
}

/**
 * Whether a value has no address at any depth, except in the learner's own words.
 * @param {Json} value @param {number} depth @returns {boolean}
 */
function isHarmless(value, depth, isOwn = false) {
  if (isText(value)) return isOwn || !ADDRESS.test(value);
  if (typeof value !== "object" || value === null) return true;
  return (
    depth < MOST.depth &&
    Object.entries(value).every(
      ([name, part]) =>
        (Array.isArray(value) || !FETCHED.includes(name)) &&
        isHarmless(part, depth + 1, isOwn || OWN_WORDS.includes(name)),
    )
  );
}

/** @param {Json} value @returns {boolean} whether no number in it is too large */
const isSmall = (value) =>
  typeof value === "number"
    ? Math.abs(value) <= MOST.number
    : typeof value !== "object" || value === null || Object.values(value).every(isSmall);

/** Whether a run can be followed from its first step to its last. */
function isRun(/** @type {Replay} */ replay) {
  const { events = [] } = replay;
  if (events.length > MOST.steps || !isSmall(events)) return false;
  const { max_num_seqs: lanes = 1, num_blocks: blocks } = replay.header.config;
  if (!(lanes <= MOST.lanes && (replay.header.num_blocks ?? blocks ?? 0) <= MOST.blocks))
    return false;
  const run = new Run(replay);
  for (let step = 0; step < run.length; step += 1) run.frame(step);
  return true;
}
