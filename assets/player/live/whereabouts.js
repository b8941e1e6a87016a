// Where one's own request stands, in a sentence: in the queue behind whom, in which lane, how it
// went. From the run's events and what the server counted in them (visualizer/documents/live.py),
// nothing else. No DOM.

import { count, duration, joined } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { callsItself } from "../views/texts.js";

/** A name in a sentence, whichever way it is written. @param {string} name */
const isolated = (name) => `\u2068${name}\u2069`;

/**
 * How a request went, as the server counted it. @typedef {{waited_s: number | null, tokens: number,
 * steps: number, others: number}} Ended
 */

/** "40 tokens in 60 steps with 5 others". @param {Ended} ended */
function work({ tokens, steps, others }) {
  const company = others ? ` with ${count(others)} [other|others]` : ", alone";
  return t(`${count(tokens)} [token|tokens] in ${count(steps)} [step|steps]${company}`);
}

/** How a finished request went, for everybody. @param {Ended} ended */
export function howItWent(ended) {
  const { waited_s: waited } = ended;
  return joined([work(ended), waited !== null && t(`waited ${duration(waited)}`)]);
}

/**
 * How many tokens of a request have come as text and are drawn: its text and the steps come in two
 * streams, and either may be ahead.
 * @param {Run | null} run null while nothing is known
 * @param {{id: string, ended?: Json, ends?: number[]}} own
 */
export function written(run, { id, ended, ends = [] }) {
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
      own.isChat && ended.finish_reason === "length" // another text is as long as asked
        ? "Cut at its limit: you waited {time}, wrote {work}."
        : "Done: you waited {time}, wrote {work}.";
    return t(says, {
      time: t(duration(waited)),
      work: went ? work(went) : t(`${count(ended.tokens)} [token|tokens]`),
    });
  }
  const total = written(run, own);
  const request = run && run.request(id);
  if (!request) return t(total ? `${count(total)} [token|tokens] so far.` : "On its way.");
  const waiting = run.waitingAt(run.length - 1);
  const place = waiting.findIndex((w) => w.request === request);
  if (place === 0) return t("You are next.");
  if (place > 0) {
    const ahead = waiting[place - 1].request;
    const before = t(`${count(place)} [request|requests] before yours.`);
    if (ahead.by && ahead.by === request.by) return before; // one is not behind oneself
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
