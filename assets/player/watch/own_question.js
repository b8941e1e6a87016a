// The visitor's own question, asked below the opening's last picture. It replaces one of a preset's
// six questions, which are run in three lanes like any requests of the editor. A line says which
// letter the question has, and which requests it waits for.

import { spans } from "../parts/chips.js";
import { find, put, setText } from "../parts/dom.js";
import { unbroken, wallClock } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { waitedSoFar } from "../run/delays.js";
import { isDone } from "../run/run.js";

export class OwnQuestion {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    const form = app.$(".opening-ask");
    const field = /** @type {HTMLInputElement} */ (find(form, "input"));
    this.line = app.$(".own-line");
    /** @type {Json} its last question is replaced; null if it cannot be run here */
    this.preset = null;
    this.asked = false; // true until the run has something to show
    app.views.push(this);
    form.addEventListener("submit", (/** @type {Event} */ e) => {
      e.preventDefault();
      this.ask(field.value.trim());
    });
  }

  /** Find out whether a preset can be run here. @param {string} name */
  async offer(name) {
    const { engines, editor } = this.app;
    if (this.preset || !engines || !(await editor.ready())) return;
    this.preset = editor.state.presets.find((one) => one.name === name) || null;
  }

  /** @param {string} question */
  async ask(question) {
    if (!question) return;
    const { app, preset } = this;
    const { workload } = preset.spec;
    const last = workload.requests.at(-1);
    const own = { ...last, messages: [{ role: "user", content: question }] };
    const requests = workload.requests.with(-1, own);
    const spec = { ...preset.spec, workload: { ...workload, name: "custom", requests } };
    app.opening.close();
    app.chooseTab("text"); // the view in which the answer grows
    await app.editor.take(spec);
    const maxNew = own.sampling.max_new_tokens;
    this.asked = true;
    app.redraw();
    await app.editor.runSpec(spec, { [own.id]: { by: t("you"), maxNew, isOwn: true } });
    this.asked = false;
    app.redraw();
  }

  /** @param {ViewState} state */
  draw({ run, frame }) {
    const own = run.requests.find((request) => request.isOwn);
    this.line.hidden = !own && !this.asked;
    const says = find(this.line, "span");
    const soon = "Your question is on its way. Until it joins, you see the recorded run.";
    const holds = (/** @type {RunRequest} */ { laneSpans }) =>
      laneSpans.some(({ from, to }) => from <= frame.i && to >= frame.i);
    if (own) put(says, ...spans({ run, index: frame.i }, whereabouts(run, own, frame), holds));
    else setText(says, this.asked ? t(soon) : "");
  }
}

/**
 * A sentence about where the visitor's request is. @param {Run} run @param {RunRequest} request
 * @param {Frame} frame @returns {Span[]}
 */
function whereabouts(run, request, { i, waiting }) {
  const own = { request };
  const stay = request.laneSpans.find(({ from }) => from <= i);
  if (!stay) {
    const place = waiting.findIndex((one) => one.request === request);
    if (place < 1) return [own, t(" is you: the next free lane is yours.")];
    const ahead = waiting.slice(0, place).flatMap((one) => [" ", { request: one.request }]);
    return [own, t(" is you: you wait for a lane. Ahead of you:"), ...ahead];
  }
  const before = run.laneSpans.findLast(({ lane, to }) => lane === stay.lane && to < stay.from);
  const time = unbroken(t(wallClock(waitedSoFar(run, request, i))));
  const waited = t(" is you: you waited {time}, until ", { time });
  const began = before
    ? [waited, { request: before.request }, t(" was done.")]
    : [t(" is you: a lane was free at once.")];
  const small = t("The model, SmolLM2, is small and often wrong: watch the scheduling.");
  return [own, ...began, ended(run, request, i), " ", small];
}

/**
 * A sentence about how it ended, if it ended by step i; else "". @param {Run} run
 * @param {RunRequest} request @param {number} i
 */
function ended(run, { finished, arrived, maxNew }, i) {
  if (!finished || finished.step > i || !isDone(finished.reason)) return "";
  const time = unbroken(t(wallClock(run.events[finished.step].tEnd - (arrived ?? 0))));
  const cut = " Your answer was cut at its limit, {most} tokens, after {time}.";
  const whole = " You had your answer after {time}.";
  return t(finished.reason === "length" ? cut : whole, { most: String(maxNew), time });
}
