// How far somebody has come, in this browser alone: {lesson: {at: index of the stop, done}}. Without storage nothing is kept.

const KEY = "inflight-lessons";

export class Progress {
  constructor() {
    try {
      this.lessons = JSON.parse(localStorage.getItem(KEY)) || {};
    } catch {
      this.lessons = {};
    }
  }

  of(lesson) {
    return (Object.hasOwn(this.lessons, lesson.name) && this.lessons[lesson.name]) || { at: 0, done: false };
  }

  reached(lesson, at) {
    const done = this.of(lesson).done || at === lesson.stops.length - 1;
    this.lessons[lesson.name] = { at, done };
    try {
      localStorage.setItem(KEY, JSON.stringify(this.lessons));
    } catch {
      // a page without storage of its own
    }
  }
}
