// In Simple, play stops at each step in which something happens, and a line on a panel says what happens there. The steps between these pass quickly,
// since in them every request only gets one more token; how long a stop lasts depends on how much happens in the run.

import { h, setText } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { whoIsDone } from "../run/run.js";

const MOST = 45; // seconds that the stops of a run should take at most in all
const STANDS = [0.6, 1.8]; // shortest and longest stop, in seconds
const PASSES = 0.8; // seconds for all steps between two stops
const BEFORE = 0.5; // seconds of the last step before a stop, so that it is seen to move

/**
 * What may happen in a step; the line tells the first kind that applies. Each has the panels where
 * it is seen, the best first, a function to the requests of that kind, and the words.
 * @type {[string[], (e: StepEvent) => {request: string}[], (n: number) => string][]}
 */
const KINDS = [
  [["kv", "lanes"], (e) => e.preempted, (n) => `{who} [=${n} gives|give] the memory back`],
  [["lanes"], (e) => e.admitted, (n) => `{who} [=${n} takes|take] a lane`],
  [["text", "lanes"], whoIsDone, (n) => `{who} [=${n} is|are] done`],
  // another engine does not record why: its client left, or a stop string came
  [["text", "lanes"], (e) => e.finished, (n) => `{who} [=${n} leaves|leave]`],
  [["row"], (e) => e.segments.filter((s) => s.phase === "prefill"), () => "more of {who} is read"],
];

/** @type {WeakMap<Run, number[]>} */
const known = new WeakMap();

/** The steps at which play stops. @param {Run} run */
function stopsOf(run) {
  let stops = known.get(run);
  if (stops?.at(-1) !== run.length)
    known.set(run, (stops = [...run.eventSteps("any"), run.length]));
  return stops;
}

/** Steps a second from `at` on, and the step to stop next. @param {Run} run @param {number} at */
export function paceOf(run, at) {
  const stops = stopsOf(run);
  const next = stops.findIndex((stop) => stop > at);
  const [last, goal] = [stops[next - 1] ?? 0, stops[next]];
  const stands = Math.max(STANDS[0], Math.min(STANDS[1], MOST / stops.length));
  if (last === at) return { rate: 1 / stands, goal };
  return { rate: goal - at === 1 ? 1 / BEFORE : Math.max(4, (goal - last) / PASSES), goal };
}

export class Happens {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.line = h("span", { class: "happens-line clip plain strong" });
    /** @type {Element | null} */
    this.panel = null;
  }

  /** @param {ViewState} state */
  draw({ run, frame, index, simple }) {
    const { app } = this;
    const isHere = simple && !app.following && app.transport.played === index;
    const said = isHere ? saidOf(run, frame.event) : null;
    const panel = (said?.panels || [])
      .map((name) => app.$(`.panel.${name}`))
      .find((one) => one.getClientRects().length);
    if (panel !== this.panel) {
      this.panel?.classList.remove("happens");
      this.line.remove();
      panel?.classList.add("happens");
      panel?.append(this.line);
      this.panel = panel || null;
    }
    if (said) setText(this.line, said.words);
  }
}

/** @param {Run} run @param {StepEvent} event */
export function saidOf(run, event) {
  for (const [panels, find, words] of KINDS) {
    const who = [...new Set(find(event).map(({ request }) => run.request(request).letter))];
    if (who.length) return { panels, words: t(words(who.length), { who: who.join(", ") }) };
  }
  return null;
}
