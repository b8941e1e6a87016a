// "Now you", a lesson's task: the learner changes the run, with the task and the way back in sight; the engine that made a run checks it.
//
//   begin ─→ html[data-task], the requests open ─→ "inflight-ran" {id} ─→ lesson_check ─→ a mark and a sentence for each goal
//   all goals are met ─→ the step that answers the task, in the learner's run, and the next lesson ─→ end

import { h, newButton, put, setText } from "../parts/dom.js";
import { goalItem } from "../parts/goal.js";
import { sentence, sentenceText } from "./sentences.js";

export class Task {
  /** learn: the Learn tab. */
  constructor(/** @type {Learn} */ learn) {
    this.learn = learn;
    this.page = document.documentElement;
    this.strip = learn.$(".task-strip");
    this.on = false;
    this.made = false; // whether the learner has made a run since `begin`
    this.isAnswered = false; // whether all goals have been met since then
    this.awaited = false; // whether its run goes on after the learner has left
    /** @type {Record<string, Json>} */
    this.found = {}; // goal → {met, says} from the runs so far; a goal once met stays met
    /** @type {string[]} */
    this.ran = []; // the ids of these runs
    this.next = learn.$(".task-next");
    this.next.addEventListener("click", () => learn.open(learn.nextLesson));
    learn.$(".task-edit").addEventListener("click", () => learn.watch.edit());
    learn.$(".task-back").addEventListener("click", () => learn.open(learn.lesson, learn.at));
    document.addEventListener(
      "inflight-ran",
      (/** @type {CustomEventInit} */ e) => (this.on || this.awaited) && this._check(e.detail.id),
    );
    new ResizeObserver(() =>
      this.page.style.setProperty("--strip", `${this.strip.offsetHeight}px`),
    ).observe(this.strip);
  }

  /** Fill the place below the text of the stop's card. */
  offer(/** @type {Root} */ holder, /** @type {Stop} */ stop) {
    const { learn } = this;
    const { words } = learn;
    const before = this.lesson;
    this.stop = stop;
    this.lesson = learn.lesson;
    if (before?.name !== this.lesson.name) this._recall();
    else if (before !== this.lesson) this.renew();
    const engine = learn.watch.engines && learn.options.tabs.length > 0;
    const begin = { class: "button tall primary edit-run", onclick: () => learn.beginTask() };
    const next = { class: "button tall", onclick: () => learn.open(learn.nextLesson) };
    put(
      holder,
      engine ? this._goals() : h("p", { class: "quiet soft" }, words.edit_offline),
      engine && newButton(begin, words.edit),
      learn.nextLesson && (this.solved || !engine) && newButton(next, this._toNext()),
    );
  }

  /** Begin with the goals that were met in earlier visits; what those runs showed is gone. */
  _recall() {
    this.found = {};
    this.ran = [];
    for (const name of this.learn.progress.of(this.lesson).met)
      this.found[name] = { met: true, says: [] };
  }

  /** Whether the runs so far have met every goal. */
  get solved() {
    return this.stop.goals.every((/** @type {Json} */ { name }) => this.found[name]?.met);
  }

  _toNext() {
    const { words, nextLesson } = this.learn;
    return `${words.next_lesson} ${nextLesson.title}`;
  }

  begin() {
    const { learn } = this;
    this.on = true;
    this.made = this.isAnswered = false;
    this.page.dataset.task = learn.lesson.name;
    this._draw();
    this.strip.hidden = false;
    learn.watch.edit(true);
  }

  /** Switch to another language; what was typed and found stays. */
  async renew() {
    const { lesson, at } = this.learn;
    this.lesson = lesson;
    this.stop = lesson.stops[at];
    if (this.on) this._draw();
    for (const id of this.ran) await this._ask(id);
    this._told();
  }

  /** Show what was found, if the task is still on screen. */
  _told() {
    const { learn, stop } = this;
    if (this.on) this._draw();
    else if (learn.lesson?.stops[learn.at] === stop) learn._do(stop);
  }

  end() {
    if (!this.on) return;
    const { watch } = this.learn;
    this.on = this.made = false;
    this.awaited = watch.running;
    this.strip.hidden = true;
    delete this.page.dataset.task;
    watch.edit(false);
  }

  async _check(/** @type {string} */ id) {
    const { learn } = this;
    this.made = this.on;
    this.awaited = false;
    const goals = await this._ask(id);
    if (!goals) return;
    this.ran.push(id);
    if (!this.on) return this._told();
    if (this.solved) this._answer(Math.max(...goals.map((/** @type {Json} */ { step }) => step)));
    this._draw();
    const { goal_met: isMet, goal_open: isOpen } = learn.words;
    const heard = goals.map((/** @type {Json} */ { name }) => {
      const { met, says } = this.found[name];
      return `${met ? isMet : isOpen} ${sentenceText(says)}`;
    });
    learn._heard(heard.join(" "));
  }

  /** Ask what a run shows of the goals, in the current language. @param {string} id */
  async _ask(id) {
    const { learn, lesson, found } = this;
    const { name } = lesson;
    const { goals, error } = await learn.engines
      .call("lesson_check", name, id, learn.language)
      .catch((error) => ({ error: error.message }));
    if (this.lesson.name !== name) return null;
    if (!goals) return learn.watch.toast(error);
    for (const goal of goals) {
      if (goal.met) learn.progress.add(lesson, "met", goal.name);
      if (goal.met || !found[goal.name]?.met) found[goal.name] = goal;
    }
    return goals;
  }

  /** All goals are met: show the step that answers the task. @param {number} step */
  _answer(step) {
    const { learn } = this;
    learn.watch.edit(false);
    learn.watch.turnToStep(step);
    learn.stage.point(this.stop.views);
    this.isAnswered = true;
  }

  _draw() {
    const { learn, isAnswered } = this;
    const { $, words } = learn;
    setText($(".task-title"), isAnswered ? words.solved : words.task);
    $(".task-text").replaceChildren(
      ...(isAnswered ? [[words.solved_look]] : this.stop.text).map(
        (/** @type {LessonSpan[]} */ spans) =>
          h("p", {}, ...sentence(spans, learn.watch.state, learn.doc.terms)),
      ),
    );
    $(".task-goals").replaceChildren(this._goals());
    setText($(".task-edit"), words.edit);
    setText($(".task-back"), words.to_lesson);
    const next = isAnswered && Boolean(learn.nextLesson);
    this.next.hidden = !next;
    this.strip.classList.toggle("solved", next);
    $(".task-back").classList.toggle("primary", !next);
    if (next) setText(this.next, this._toNext());
  }

  /** The goals, each with what the learner's run shows of it. */
  _goals() {
    const { learn } = this;
    const { words, doc } = learn;
    return h(
      "ul",
      { class: "goals grid spaced" },
      ...this.stop.goals.map((/** @type {Json} */ { name, text }) => {
        const { met = false, says = null } = this.found[name] || {};
        const told = (/** @type {LessonSpan[]} */ line) =>
          sentence(line, learn.watch.state, doc.terms);
        const heard = met ? words.goal_met : words.goal_open;
        return goalItem({ met, asks: told(text), says: says && told(says), heard });
      }),
    );
  }
}
