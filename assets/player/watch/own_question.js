// One's own question, asked under the opening's last picture: it joins five of the house in three
// lanes, run like any requests from the editor. A line says which letter is one's own, and for whom
// it waits.

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
    /** @type {Json} whose last question gives way to one's own; null where it cannot be run */
    this.preset = null;
    this.asked = false; // and nothing of it is on screen yet
    app.views.push(this);
    form.addEventListener("submit", (/** @type {Event} */ e) => {
      e.preventDefault();
      this.ask(field.value.trim());
    });
  }

  /** Look whether a preset can be run here. @param {string} name */
  async offer(name) {
    const { engines, editor } = this.app;
    if (this.preset || !engines || !(await editor.ready())) return;
    this.preset = editor.state.presets.find((/** @type {Json} */ one) => one.name === name) || null;
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
    app.chooseTab("text"); // where the answer grows
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
    if (own) put(says, ...spans({ run, index: frame.i }, standing(run, own, frame), holds));
    else setText(says, this.asked ? t(soon) : "");
  }
}

/**
 * Where one's own request stands. @param {Run} run @param {RunRequest} request @param {Frame} frame
 * @returns {Span[]}
 */
function standing(run, request, { i, waiting }) {
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

/** How it ended by step i, or "". @param {Run} run @param {RunRequest} request @param {number} i */
function ended(run, { finished, arrived, maxNew }, i) {
  if (!finished || finished.step > i || !isDone(finished.reason)) return "";
  const time = unbroken(t(wallClock(run.events[finished.step].tEnd - (arrived ?? 0))));
  const cut = " Your answer was cut at its limit, {most} tokens, after {time}.";
  const whole = " You had your answer after {time}.";
  return t(finished.reason === "length" ? cut : whole, { most: String(maxNew), time });
}
