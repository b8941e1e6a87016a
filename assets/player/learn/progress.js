// How far somebody has come, in this browser alone: {lesson: {at: index of the stop, done}}. Without storage nothing is kept.

import { keep, keptData } from "../parts/kept.js";

const KEY = "inflight-lessons";

export class Progress {
  constructor() {
    this.lessons = keptData("good", KEY) || {};
  }

  of(lesson) {
    return (Object.hasOwn(this.lessons, lesson.name) && this.lessons[lesson.name]) || { at: 0, done: false };
  }

  reached(lesson, at) {
    const done = this.of(lesson).done || at === lesson.stops.length - 1;
    this.lessons[lesson.name] = { at, done };
    keep("good", KEY, JSON.stringify(this.lessons));
  }
}
