// How far the learner is, kept only in this browser: {lesson: {at: index of the stop, answered:
// names of stops, met: names of its task's goals}}. Without storage nothing is kept.

import { clamp } from "../parts/dom.js";
import { keepEntry, keptEntries } from "../parts/kept.js";

const KEPT_AS = "inflight-lessons";

/** The stops of a lesson that ask a question. */
export const questionsOf = (/** @type {Lesson} */ lesson) =>
  lesson.stops.filter((/** @type {Stop} */ stop) => stop.ask);

export class Progress {
  constructor() {
    this.lessons = keptEntries("good", KEPT_AS);
  }

  /** {at, answered, met, done}; done: all questions are answered. Seeing all stops is not enough. */
  of(/** @type {Lesson} */ lesson) {
    const {
      at = 0,
      answered = [],
      met = [],
    } = (Object.hasOwn(this.lessons, lesson.name) && this.lessons[lesson.name]) || {};
    const asked = questionsOf(lesson).map((/** @type {Stop} */ stop) => stop.name);
    const found = asked.filter((/** @type {string} */ name) => answered.includes(name));
    const stop = clamp(at, 0, lesson.stops.length - 1); // the lesson may have become shorter
    return {
      at: stop,
      answered: found,
      met,
      done: asked.length > 0 && found.length === asked.length,
    };
  }

  reached(/** @type {Lesson} */ lesson, /** @type {Json} */ at) {
    this._keep(lesson, { at });
  }

  /**
   * A question's stop was answered, or a goal of the task met.
   * @param {Lesson} lesson @param {"answered" | "met"} list @param {string} name
   */
  add(lesson, list, name) {
    this.lessons = keptEntries("good", KEPT_AS, this.lessons); // another tab may have kept more
    const had = this.of(lesson)[list];
    if (!had.includes(name)) this._keep(lesson, { [list]: [...had, name] });
  }

  _keep(/** @type {Lesson} */ lesson, /** @type {Json} */ change) {
    this.lessons = keepEntry("good", KEPT_AS, this.lessons, lesson.name, change);
  }
}
