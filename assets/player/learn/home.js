// All lessons, common questions and the glossary, on one page.

import { h, setText } from "../parts/dom.js";
import { keep, keptData } from "../parts/kept.js";
import { sentence } from "./sentences.js";

const KEPT_AS = "inflight-lessons";
const PAPERS = ["teacher", "learner", "offline"]; // files of a lesson

export class Home {
  constructor(learn) {
    this.learn = learn;
  }

  draw() {
    const { learn } = this;
    const { $, words, doc } = learn;
    setText($(".home-title"), words.title);
    setText($(".lead"), words.lead);
    setText($(".keys-line"), words.keys);
    $(".lesson-list").replaceChildren(...doc.lessons.map((lesson) => this._lesson(lesson)));
    $(".papers").hidden = !this._hasPapers({ name: "" });
    $(".papers").replaceChildren(h("button", { type: "button", class: "link", onclick: () => this._paper({ name: "" }, "plan") }, words.plan));
    this._questions($(".asked"), doc.questions);
    setText($(".terms h2"), words.glossary);
    $(".terms dl").replaceChildren(...Object.entries(doc.terms).flatMap(([term, t]) => [
      h("dt", { id: `term-${term.replaceAll(" ", "-")}` }, t.word),
      h("dd", {}, t.means, " ", h("span", { class: "vllm" }, `${words.in_vllm} ${t.vllm}`), " ", this._see(t)),
    ]));
  }

  _lesson(lesson) {
    const { learn } = this;
    const { words, progress } = learn;
    const { at, done } = progress.of(lesson);
    const begun = at > 0 && !done;
    return h("li", { class: done ? "lesson done" : "lesson" },
      h("span", { class: "lesson-number", "aria-hidden": "true" }, done ? "✓" : String(lesson.number)),
      h("div", {},
        h("h2", {}, lesson.title), h("p", {}, lesson.question),
        h("p", { class: "papers-of" }, `${lesson.minutes} ${words.minutes} · ${lesson.stops.length} ${words.stops}`,
          ...PAPERS.filter(() => this._hasPapers(lesson)).map((kind) => h("button", { type: "button", class: "link", onclick: () => this._paper(lesson, kind) }, words[kind])))),
      h("button", { type: "button", class: "button primary start-button", "aria-label": `${words.lesson} ${lesson.number}: ${begun ? words.continue : done ? words.again : words.start}`,
        onclick: () => learn.open(lesson, begun ? at : 0) }, begun ? words.continue : done ? words.again : words.start));
  }

  _hasPapers(lesson) {
    return Boolean(this.learn.server || this.learn.options.papers[lesson.name]);
  }

  /** A sheet, in a tab of its own, or the lesson as a file: made by the server on request, or stored beside the page. */
  async _paper(lesson, kind) {
    const { learn } = this;
    const { language, options, server, app } = learn;
    const tab = kind === "offline" ? null : window.open("", "_blank"); // at once: later it would count as a pop-up
    const made = server ? await server.call("lesson_file", lesson.name, kind, language) : { url: options.papers[lesson.name][`${kind}-${language}`] };
    if (!made.url) {
      tab?.close();
      return app.toast(made.error);
    }
    if (!tab) return h("a", { href: made.url, download: made.url.split("/").at(-1), target: "_blank" }).click();
    tab.opener = null;
    tab.location.replace(new URL(made.url, document.baseURI).href);
  }

  _questions(section, questions) {
    const { learn } = this;
    section.hidden = Boolean(learn.options.only);
    setText(section.querySelector("h2"), questions.title);
    section.querySelector("dl").replaceChildren(...questions.stops.flatMap((q, i) => [
      h("dt", { id: `asked-${q.name}` }, q.title),
      h("dd", {}, ...q.text.flatMap((spans) => sentence(spans, learn.app, learn.doc.terms)), " ",
        h("button", { type: "button", class: "link", onclick: () => learn.open(questions, i) }, learn.words.see_it)),
    ]));
  }

  /** Opens the run at its step in the Watch tab. */
  _see({ run, step, view }) {
    const { learn } = this;
    const { app, words } = learn;
    const entry = app.options.catalogue.find((e) => e.name === run);
    if (!entry || !learn.options.tabs.length) return "";
    return h("button", { type: "button", class: "link", onclick: async () => {
      learn.root.dispatchEvent(new CustomEvent("inflight-tab", { detail: { name: "watch" }, bubbles: true }));
      await app.open(entry, { step, tab: view });
      app.changed();
    } }, words.see_it);
  }
}

/** The learner's progress, kept only in this browser: {lesson: {at: index of the stop, done}}. Without storage nothing is kept. */
export class Progress {
  constructor() {
    this.lessons = keptData("good", KEPT_AS) || {};
  }

  of(lesson) {
    return (Object.hasOwn(this.lessons, lesson.name) && this.lessons[lesson.name]) || { at: 0, done: false };
  }

  reached(lesson, at) {
    const done = this.of(lesson).done || at === lesson.stops.length - 1;
    this.lessons[lesson.name] = { at, done };
    keep("good", KEPT_AS, JSON.stringify(this.lessons));
  }
}
