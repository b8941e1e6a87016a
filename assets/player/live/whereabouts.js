// Where a visitor's own request is, in a sentence: behind whom in the queue, in which lane, or how
// it ended. All of this follows from the run's events and the server's counts of them
// (visualizer/documents/live.py). No DOM.

import { count, duration, joined } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { callsItself } from "../views/texts.js";

/** A name that keeps its own writing direction within a sentence. @param {string} name */
const isolated = (name) => `\u2068${name}\u2069`;

/**
 * How a request ended, as the server counted it. @typedef {{waited_s: number | null, tokens: number,
 * steps: number, others: number}} Ended
 */

/** Its tokens, steps and company: "40 tokens in 60 steps with 5 others". @param {Ended} ended */
function work({ tokens, steps, others }) {
  const company = others ? ` with ${count(others)} [other|others]` : ", alone";
  return t(`${count(tokens)} [token|tokens] in ${count(steps)} [step|steps]${company}`);
}

/** How a finished request went, in words for every visitor. @param {Ended} ended */
export function howItWent(ended) {
  const { waited_s: waited } = ended;
  return joined([work(ended), waited !== null && t(`waited ${duration(waited)}`)]);
}

/**
 * How many tokens of a request both have arrived as text and are in the run that is drawn. Text and
 * steps come in two streams, and either may be ahead.
 * @param {Run | null} run null while nothing is known
 * @param {{id: string, ended?: Json, ends?: number[]}} own
 */
export function numWritten(run, { id, ended, ends = [] }) {
  if (ended || !run) return ends.length;
  const request = run.request(id);
  return Math.min(ends.length, request ? run.numGenerated(request, run.length - 1) : 0);
}

/**
 * @param {Run | null} run
 * @param {{id: string, lost?: string, ended?: Json, went?: Ended | null, ends?: number[],
 * isChat?: boolean}} own
 */
export function whereabouts(run, own) {
  const { id, lost, ended, went } = own;
  if (lost) return t(lost);
  if (ended?.error) return t(ended.error);
  if (ended?.finish_reason === "cancelled") return t("Cancelled.");
  if (ended) {
    const waited = went ? went.waited_s : ended.queue_s;
    if (waited === null) return t("Done.");
    const says =
      own.isChat && ended.finish_reason === "length" // any other text is as long as asked
        ? "Cut at its limit: you waited {time}, wrote {work}."
        : "Done: you waited {time}, wrote {work}.";
    return t(says, {
      time: t(duration(waited)),
      work: went ? work(went) : t(`${count(ended.tokens)} [token|tokens]`),
    });
  }
  const total = numWritten(run, own);
  const request = run && run.request(id);
  if (!request) return t(total ? `${count(total)} [token|tokens] so far.` : "On its way.");
  const waiting = run.waitingAt(run.length - 1);
  const place = waiting.findIndex((w) => w.request === request);
  if (place === 0) return t("You are next.");
  if (place > 0) {
    const ahead = waiting[place - 1].request;
    const before = t(`${count(place)} [request|requests] before yours.`);
    if (ahead.by && ahead.by === request.by) return before; // nobody waits behind themselves
    const name = isolated(callsItself(ahead) || ahead.letter);
    return `${before} ${t("You are behind {name}.", { name })}`;
  }
  const laneSpan = request.laneSpans.at(-1);
  if (!laneSpan || (!total && laneSpan.to !== Infinity)) return t("On its way.");
  const most = request.maxNew ? ` of ${count(request.maxNew)}` : "";
  const said = total
    ? t(`${count(total)}${most} [token|tokens] so far.`)
    : run.numGenerated(request, run.length - 1)
      ? ""
      : t("It reads the prompt.");
  return `${laneSpan.to === Infinity ? t(`Your lane: ${laneSpan.lane}.`) : ""} ${said}`.trim();
}
