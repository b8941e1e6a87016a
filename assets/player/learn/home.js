// The first page of the Learn tab: all lessons, common questions and the glossary.

import { h, newButton, setText } from "../parts/dom.js";
import { goToPart } from "../parts/look.js";
import { Picture } from "./picture.js";
import { questionsOf } from "./progress.js";
import { sentence } from "./sentences.js";

const PAPERS = ["teacher", "learner", "offline"]; // kinds of files of a lesson

export class Home {
  constructor(/** @type {Learn} */ learn) {
    this.learn = learn;
    this.pictures = new Map(); // lesson → Picture
  }

  draw() {
    const { learn } = this;
    const { $, words, doc } = learn;
    setText($(".home-title"), words.title);
    setText($(".lead"), words.lead);
    setText($(".keys-line"), words.keys);
    this._howFar();
    $(".lesson-list").replaceChildren(...doc.lessons.map((lesson) => this._lesson(lesson)));
    $(".papers").hidden = !this._hasPapers({ name: "" });
    $(".papers").replaceChildren(
      newButton({ class: "link", onclick: () => this._paper({ name: "" }, "plan") }, words.plan),
    );
    this._questions($(".asked"), doc.questions);
    setText($(".terms h2"), words.glossary);
    $(".terms dl").replaceChildren(
      ...Object.entries(doc.terms).flatMap(([term, t]) => {
        const vllm = h("span", { class: "vllm soft" }, `${words.in_vllm} ${t.vllm}`);
        return [
          h("dt", { id: `term-${term.replaceAll(" ", "-")}` }, t.word),
          h("dd", {}, t.means, " ", vllm, " ", this._see(t)),
        ];
      }),
    );
  }

  /** Bring a section below the lessons into sight: "questions" or "glossary". */
  go(/** @type {string} */ section) {
    const place = section === "questions" ? ".asked" : section === "glossary" ? ".terms" : null;
    if (!place) return;
    this.learn.$(place).scrollIntoView();
    this.learn.$(`${place} h2`).focus({ preventScroll: true });
  }

  /** Show how far the learner is, once a question is answered. */
  _howFar() {
    const { learn } = this;
    const { $, words, doc, progress } = learn;
    const { lessons } = doc;
    const of = lessons.map((lesson) => progress.of(lesson));
    const asked = lessons.flatMap(questionsOf).length;
    const answered = of.flatMap((one) => one.answered).length;
    $(".how-far").hidden = !answered || lessons.length < 2;
    $(".how-far").replaceChildren(
      h(
        "p",
        {},
        h("b", {}, `${of.filter(({ done }) => done).length} ${words.of} ${lessons.length}`),
        ` ${words.lessons_done}, `,
        h("b", {}, `${answered} ${words.of} ${asked}`),
        ` ${words.questions_answered}`,
      ),
      h(
        "div",
        { class: "how-far-bar", "aria-hidden": "true" },
        h("i", { style: `width: ${(100 * answered) / asked}%` }),
      ),
    );
  }

  _lesson(/** @type {Lesson} */ lesson) {
    const { learn } = this;
    const { words, progress } = learn;
    const { at, answered, done } = progress.of(lesson);
    const begun = at > 0 && !done;
    const start = begun ? words.continue : done ? words.again : words.start;
    const asked = questionsOf(lesson).length;
    const open = answered.length
      ? `${answered.length} ${words.of} ${asked} ${words.questions_answered}`
      : `${asked} ${words.questions}`;
    const number = done ? "✓" : String(lesson.number);
    return h(
      "li",
      { class: `lesson surface flex wrap${done ? " done" : ""}` },
      this._picture(lesson),
      h(
        "div",
        { class: "lesson-words" },
        h(
          "h2",
          {},
          h("span", { class: "lesson-number", "aria-hidden": "true" }, number),
          lesson.title,
        ),
        h("p", {}, lesson.question),
        h(
          "p",
          { class: "papers-of flex wrap fine" },
          h(
            "span",
            {},
            `${lesson.minutes} ${words.minutes} · ${lesson.stops.length} ${words.stops} · `,
            h("span", { class: "lesson-asked" }, done ? words.done : open),
          ),
          ...(this._hasPapers(lesson) ? PAPERS : []).map((kind) =>
            newButton({ class: "link", onclick: () => this._paper(lesson, kind) }, words[kind]),
          ),
        ),
      ),
      newButton(
        {
          class: "button primary start-button",
          "aria-label": `${words.lesson} ${lesson.number}: ${start}`,
          onclick: () => learn.open(lesson, begun ? at : 0),
        },
        start,
      ),
    );
  }

  /**
   * The picture of a lesson. It is drawn once and kept when the list is redrawn; a press on it
   * opens the lesson, as the button does.
   */
  _picture(/** @type {Lesson} */ lesson) {
    const { pictures, learn } = this;
    if (!lesson.picture) return null;
    if (!pictures.has(lesson.name))
      pictures.set(lesson.name, new Picture(learn.watch, lesson.picture));
    const { el } = pictures.get(lesson.name);
    const onclick = (/** @type {Happened} */ e) =>
      /** @type {Root} */ (e.currentTarget.parentElement).querySelector(".start-button").click();
    return h("div", { class: "picture-place", onclick }, el);
  }

  _hasPapers(/** @type {Pick<Lesson, "name">} */ lesson) {
    return Boolean(
      this.learn.engines?.can("lesson_file") || this.learn.options.papers[lesson.name],
    );
  }

  /** Open a lesson's sheet in a tab, or its file: made on request or stored beside the page. */
  async _paper(/** @type {Pick<Lesson, "name">} */ lesson, /** @type {string} */ kind) {
    const { learn } = this;
    const { language, options, engines, watch } = learn;
    // opened at once, since a tab that is opened later counts as a pop-up
    const tab = kind === "offline" ? null : window.open("", "_blank");
    const made = engines?.can("lesson_file")
      ? await engines
          .call("lesson_file", lesson.name, kind, language)
          .catch((error) => ({ error: error.message }))
      : { url: options.papers[lesson.name][`${kind}-${language}`] };
    if (!made.url) {
      tab?.close();
      return watch.toast(made.error);
    }
    const download = made.url.split("/").at(-1);
    if (!tab) return h("a", { href: made.url, download, target: "_blank" }).click();
    tab.opener = null;
    tab.location.replace(new URL(made.url, document.baseURI).href);
  }

  _questions(/** @type {Root} */ section, /** @type {Lesson} */ questions) {
    const { learn } = this;
    section.hidden = Boolean(learn.options.only);
    setText(section.querySelector("h2"), questions.title);
    const asked = questions.stops.flatMap((q, i) => {
      const says = q.text.flatMap((spans) => sentence(spans, learn.watch.state, learn.doc.terms));
      const onclick = () => learn.open(questions, i);
      const see = newButton({ class: "link", onclick }, learn.words.see_it);
      return [h("dt", { id: `asked-${q.name}` }, q.title), h("dd", {}, ...says, " ", see)];
    });
    section.querySelector("dl").replaceChildren(...asked);
  }

  /** A button that opens a term's run at its step in the Watch tab. */
  _see(/** @type {Term} */ { run, step, view }) {
    const { learn } = this;
    const { watch, words } = learn;
    const entry = watch.recorded(run);
    if (!entry || !learn.options.tabs.length) return "";
    const onclick = async () => {
      goToPart(learn.root, "watch");
      await watch.open(entry, { step, tab: view });
      watch.changed();
    };
    return newButton({ class: "link", onclick }, words.see_it);
  }
}
