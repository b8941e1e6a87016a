// The Learn tab: lessons that drive the page's own player. All its texts come in one document (visualizer/lessons/document.py).
//
//   document ─→ home (lessons, questions, glossary) ─→ lesson, stop by stop ─→ Stage ─→ the player

import { h, hasMoved, newButton, setText, tableOf } from "../parts/dom.js";
import { joined } from "../parts/format.js";
import { besidePlayer, fillPart, fillTabs, isTyping, pageWatch } from "../parts/look.js";
import { keepLanguage, wantedLanguage } from "../parts/language.js";
import { addressed, writeAddress } from "../parts/link.js";
import { Engines } from "../engine/engines.js";
import { fetchJson } from "../parts/server.js";
import { Home } from "./home.js";
import { Progress } from "./progress.js";
import { Choose, Paint } from "./questions.js";
import { speak, t } from "../parts/speech.js";
import { byPointer, sentence, sentenceText } from "./sentences.js";
import { Stage } from "./stage.js";
import { onSwipe } from "./swipe.js";
import { Task } from "./task.js";

const ROOMY = "(min-width: 701px) and (min-height: 501px)"; // as in learn.css: larger than a phone

export class Learn {
  /**
   * root: the element of learn.html. options: {tabs, server, base, engine: see engine/engines.js,
   * documents: {language: url} (without a server), papers: {lesson: {kind: url}}, captions: {run:
   * {language: url}} (without a server), only: a lesson's name (a file with one lesson)}.
   */
  constructor(/** @type {Root} */ root, /** @type {Json} */ options = {}) {
    this.root = root;
    /** @type {{tabs: Tab[], [more: string]: Json}} */
    this.options = { tabs: [], server: false, documents: {}, papers: {}, captions: {}, ...options };
    this.page = document.documentElement;
    /** @type {Finder} */ this.$ = (s) => root.querySelector(s);
    this.engines = /** @type {Engines} null where nothing can run */ (Engines.of(this.options));
    this.progress = new Progress();
    /** @type {Json} */
    this.lesson = null;
    this.at = 0;
    this.large = false;
    this._theme = besidePlayer(root);
    fillTabs(root, this.options.tabs, "learn");
    this.home = new Home(this);
    this.task = new Task(this);
    this._buttons();
    document.addEventListener("keydown", (e) => this._key(e), true);
    new MutationObserver(() => this.watch && this._speak()).observe(this.page, {
      attributes: true,
      attributeFilter: ["data-part"],
    });
    window.addEventListener(
      "hashchange",
      () =>
        this.doc && // until it is there, `shown` follows the address
        this.page.dataset.part === "learn" &&
        location.hash !== this._written &&
        this._follow(),
    );
    this.ready = this._begin(wantedLanguage());
  }

  // -- the part is opened and left ---------------------------------------------------------------

  async shown() {
    this._theme();
    await this.ready;
    this._speak();
    await this._follow();
  }

  left() {
    this._close(this.task.made); // a run that the learner made stays on screen
  }

  /** Set all parts to the lessons' language; the run in Watch is reopened for its sentences. */
  _speak() {
    const { watch } = this;
    const { part = "watch" } = this.page.dataset;
    speak(this.speech);
    if (part === "watch" && !watch.isTranslated) watch.reopen();
  }

  async _begin(/** @type {string} */ language) {
    /** @type {Watch} */
    this.watch = await pageWatch();
    /** @type {Stage} */
    this.stage = new Stage(this.watch);
    await this._load(language).catch(() => this._load("en")); // an address may name any language
  }

  /** Load the lessons in a language; false if another was chosen meanwhile. */
  async _load(/** @type {string} */ language) {
    this._asked = language;
    let url = this.options.documents[language] || this.options.documents.en;
    if (this.engines?.can("lessons")) {
      const answer = await this.engines.call("lessons", language);
      if (answer.error) throw new Error(answer.error.replace(/\.$/, ""));
      url = answer.url;
    }
    const doc = await fetchJson(url);
    if (this._asked !== language) return false;
    /** @type {LessonsDocument} */
    this.doc = doc;
    /** @type {Record<string, string>} */
    this.words = Object.fromEntries(
      Object.entries(this.doc.words).map(([name, text]) => [name, byPointer(text)]),
    );
    /** @type {string} */
    this.language = this.doc.language;
    this.root.lang = this.language;
    const { title, question: shows, stops: asked } = this.doc.questions;
    this.speech =
      this.language === "en"
        ? null
        : {
            name: this.language,
            words: this.doc.catalogue,
            terms: this.doc.terms,
            asked: { title, shows, asked },
            captions: (/** @type {Json} */ entry) => this._captions(entry.name),
          };
    this._speak();
    this._labels();
    this.home.draw();
    return true;
  }

  /** The sentences about a run in the language of the lessons; null if only English has them. */
  async _captions(/** @type {string} */ run) {
    const { language, options, engines } = this;
    if (!this.watch.recorded(run)) return null;
    const url = engines?.can("lesson_file")
      ? (await engines.call("lesson_file", run, "captions", language)).url
      : options.captions[run]?.[language];
    return url ? this.watch.fetch(url) : null;
  }

  async speak(/** @type {string} */ language) {
    await this.ready;
    if (!(await this._load(language))) return;
    keepLanguage(language);
    const lesson = this.lesson && this._lesson(this.lesson.name);
    if (this.task.on) {
      this.lesson = lesson;
      this.task.renew();
    } else if (lesson) await this.open(lesson, this.at);
    this._remember();
  }

  /** A lesson by its name, or the common questions. */
  _lesson(/** @type {string} */ name) {
    return [...this.doc.lessons, this.doc.questions].find((l) => l.name === name);
  }

  /** The lesson after the one that is open, or null. @returns {Json} */
  get nextLesson() {
    return this.options.only ? null : this.doc.lessons[this.lesson.number] || null;
  }

  async _follow() {
    const wanted = addressed();
    const lesson = this._lesson(wanted.get("lesson") || this.options.only);
    if (wanted.get("large") === "1") this.enlarge(true);
    if (!lesson) {
      this.close();
      return this.home.go(wanted.get("at") || "");
    }
    const at = lesson.stops.findIndex((s) => s.name === wanted.get("stop"));
    await this.open(lesson, Math.max(0, at));
  }

  _remember() {
    if (this.page.dataset.part !== "learn") return;
    const p = new URLSearchParams({ part: "learn" });
    if (this.lesson) {
      p.set("lesson", this.lesson.name);
      p.set("stop", this.lesson.stops[this.at].name);
    }
    if (this.language !== "en") p.set("lang", this.language);
    if (this.large) p.set("large", "1");
    this._written = writeAddress(p, "lesson", this._written);
  }

  // -- a lesson ----------------------------------------------------------------------------------

  async open(/** @type {Lesson} */ lesson, at = 0) {
    this.task.end();
    if (this.task.awaited) this.watch.stay(); // keeps the lesson's run on screen
    this.lesson = lesson;
    this.at = at;
    this.drawn = "";
    this.page.dataset.lesson = lesson.name;
    this.$(".home").hidden = true;
    this.$(".stop-card").hidden = false;
    this.stage.enter(lesson.simple);
    this._fit();
    this.progress.reached(lesson, at);
    await this._draw();
    this._remember();
  }

  /** Go back to all lessons. keep: the player keeps what it shows. */
  close(keep = false) {
    this._close(keep);
    this.home.draw();
    this._remember();
  }

  _close(/** @type {boolean} */ keep) {
    this.task.end();
    if (this.lesson) this.stage.leave(keep);
    /** @type {Json} */
    this.lesson = null;
    delete this.page.dataset.lesson;
    this._fit();
    this.$(".home").hidden = false;
    this.$(".stop-card").hidden = true;
    for (const part of [".lessons-button", ".where", ".presenter-button"])
      this.$(part).hidden = true;
  }

  async go(/** @type {number} */ by) {
    const to = this.at + by;
    if (to < 0) return;
    if (by > 0 && !this.drawn) return; // nobody has seen this stop, whose run is on the way
    if (to >= this.lesson.stops.length) return this.options.only ? undefined : this.close();
    await this.open(this.lesson, to);
  }

  async _draw() {
    const { $, lesson, words } = this;
    const stop = lesson.stops[this.at];
    const { ask } = stop;
    await this.stage.show(stop, ask && stop.then ? "future" : ask || stop.quiet ? "say" : "");
    // the learner has moved on meanwhile
    if (this.lesson !== lesson || lesson.stops[this.at] !== stop) return;
    for (const part of [".where", ".presenter-button"]) $(part).hidden = false;
    $(".lessons-button").hidden = Boolean(this.options.only);
    setText($(".where"), lesson.number ? `${lesson.number} · ${lesson.title}` : lesson.title);
    this._dots();
    setText($(".stop-title"), stop.title);
    $(".stop-text").lang = lesson.language;
    $(".stop-text").replaceChildren(
      ...stop.text.map((/** @type {LessonSpan[]} */ spans) =>
        h("p", {}, ...sentence(spans, this.watch.state, this.doc.terms)),
      ),
    );
    if (stop.table) $(".stop-text").append(this._table(stop.table));
    this._ask(stop);
    this._do(stop);
    this._fitType();
    setText($(".stop-count"), `${this.at + 1} ${words.of} ${lesson.stops.length}`);
    setText($(".next-button"), this.at === lesson.stops.length - 1 ? words.finish : words.next);
    $(".next-button").hidden = Boolean(this.options.only) && this.at === lesson.stops.length - 1;
    $(".back-button").disabled = this.at === 0;
    $(".stop-scroll").scrollTop = 0;
    this._heard(
      `${stop.title}. ${stop.text.map(sentenceText).join(" ")} ${ask ? sentenceText(ask.text) : ""}`,
    );
    $(".stop-card").focus({ preventScroll: true });
    this.drawn = `${lesson.name}/${stop.name}`;
  }

  /** Draw a dot for each stop of the lesson: whether it is past, and its question answered. */
  _dots() {
    const { lesson, words } = this;
    const { answered } = this.progress.of(lesson);
    this.$(".dots").replaceChildren(
      ...lesson.stops.map((/** @type {Stop} */ s, /** @type {number} */ i) => {
        const found = answered.includes(s.name);
        return h(
          "li",
          {},
          newButton({
            class:
              joined([i < this.at && "past", s.ask && "asks", found && "answered"], " ") || null,
            "aria-current": i === this.at ? "step" : null,
            "aria-label": `${i + 1}: ${s.title}${found ? `, ${words.answered}` : ""}`,
            title: s.title,
            onclick: () => this.open(lesson, i),
          }),
        );
      }),
    );
  }

  /**
   * A table below the text: what things are called elsewhere, or what was measured. Of more columns
   * than fit, the reader chooses the one beside the first.
   */
  _table(/** @type {NonNullable<Stop["table"]>} */ { label, head: columns, rows }) {
    const head = (/** @type {Json} */ { name, url }) => {
      const link = url && h("a", { href: url, target: "_blank", rel: "noopener" }, name);
      return h("th", { scope: "col" }, link || name);
    };
    const options = columns.slice(1).map(({ name }) => h("option", {}, name));
    const onchange = () => show(/** @type {HTMLSelectElement} */ (choice).selectedIndex);
    /** @type {HTMLElement} */
    const choice = h("select", { "aria-label": label, onchange }, ...options);
    const isWide = columns.length > 3;
    // long names break after an underscore
    const broken = (/** @type {string} */ name) =>
      name.split(/(?<=_)/).flatMap((part) => [h("wbr"), part]);
    const table = tableOf(
      [h("td", {}, isWide && choice), ...columns.map(head)],
      rows.map(([what, ...names]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, what),
          ...names.map((name) => h("td", {}, ...broken(name))),
        ),
      ),
    );
    const show = (/** @type {number} */ chosen) => {
      for (const row of table.querySelectorAll("tr"))
        for (const [n, cell] of [...row.children].slice(2).entries())
          /** @type {HTMLElement} */ (cell).hidden = n !== chosen;
    };
    if (isWide) show(0);
    const props = { class: "names box", tabindex: "0", role: "group", "aria-label": label };
    return h("div", props, table);
  }

  _ask(/** @type {Stop} */ stop) {
    const { ask } = stop;
    this.$(".stop-ask").hidden = !ask;
    this.asking = null;
    if (!ask) return void this.$(".stop-ask").replaceChildren(); // removes the previous question
    const Kind = ask.kind === "paint" ? Paint : Choose;
    this.asking = new Kind(this.$(".stop-ask"), ask, {
      watch: this.watch,
      terms: this.doc.terms,
      words: this.words,
      say: (/** @type {string} */ text) => this._heard(text),
      answered: (/** @type {boolean} */ right, /** @type {Json} */ own) => {
        this._fitType();
        if (!right) return;
        if (own) this.progress.add(this.lesson, "answered", stop.name);
        this._dots();
        this.stage.show({ ...stop, ...(stop.then || {}) });
        this.$(".next-button").focus({ preventScroll: true });
      },
    });
  }

  /** Offer the task of the last stop, in which the learner changes the run. */
  _do(/** @type {Stop} */ stop) {
    const last = stop.name === "now-you";
    this.$(".stop-do").hidden = !last;
    if (last) this.task.offer(this.$(".stop-do"), stop);
  }

  /** Show the player alone, with the editor of its requests open and the task above it. */
  beginTask() {
    this.stage.free();
    delete this.page.dataset.lesson;
    this._fit();
    this.$(".stop-card").hidden = true;
    this.task.begin();
  }

  // -- buttons, labels and keys ------------------------------------------------------------------

  _buttons() {
    const { $ } = this;
    // a double click must not skip a stop
    $(".next-button").addEventListener(
      "click",
      (/** @type {Happened} */ e) => e.detail !== 2 && this.go(1),
    );
    $(".back-button").addEventListener("click", () => this.go(-1));
    $(".lessons-button").addEventListener("click", () => this.close());
    $(".presenter-button").addEventListener("click", () => this.enlarge(!this.large));
    $(".language").addEventListener("change", (/** @type {Happened} */ e) =>
      this.speak(e.target.value),
    );
    window.addEventListener("resize", () => this._fitType());
    onSwipe($(".stop-scroll"), (by) => this.go(by));
    $(".stop-card").addEventListener("pointerover", (/** @type {Happened} */ e) => {
      if (!hasMoved(e)) return;
      const letter = /** @type {HTMLElement | null} */ (e.target.closest("[data-letter]"))?.dataset
        .letter;
      const request = letter && this.watch.state.run?.requests.find((r) => r.letter === letter);
      if (request || this.watch.state.hovered) this.watch.hover(request ? { request } : null);
    });
  }

  _labels() {
    const { $, words, doc } = this;
    this.root.setAttribute("aria-label", `Inflight: ${words.title}`);
    $(".tabs").setAttribute("aria-label", t("Parts of Inflight"));
    for (const [i, tab] of this.options.tabs.entries())
      setText($(".tabs").children[i], t(tab.title));
    for (const [button, word] of Object.entries({
      lessons: words.close,
      back: words.back,
      presenter: words.presenter,
    }))
      setText($(`.${button}-button`), word);
    $(".presenter-button").title = words.presenter_note;
    for (const [part, label] of [
      [".stop-card", words.lesson],
      [".stop-scroll", words.lesson],
      [".language", words.language],
    ])
      $(part).setAttribute("aria-label", label);
    $(".language").replaceChildren(
      ...Object.entries(doc.languages).map(([key, name]) =>
        h("option", { value: key, selected: key === doc.language, title: name }, key.toUpperCase()),
      ),
    );
    $(".language").hidden =
      !this.engines?.can("lessons") && Object.keys(this.options.documents).length < 2;
  }

  enlarge(/** @type {boolean} */ on) {
    this.large = on;
    this.page.toggleAttribute("data-large", on);
    this._fit();
    this.$(".presenter-button").setAttribute("aria-pressed", String(on));
    this._remember();
  }

  /** Enlarge the player too during a lesson, if there is room for it. */
  _fit() {
    if (!this.watch) return;
    this.watch.enlarge(
      this.large && Boolean(this.page.dataset.lesson) && matchMedia(ROOMY).matches,
    );
    this.watch.redraw();
    this._fitType();
  }

  /** Shrink a stop's type if its text is too long for a projector, so that it is seen whole. */
  _fitType() {
    const card = this.$(".stop-scroll");
    card.style.removeProperty("--zoom");
    if (!this.large || !matchMedia(ROOMY).matches) return;
    let zoom = Number(getComputedStyle(card).getPropertyValue("--zoom"));
    while (zoom > 0.85 && card.scrollHeight > card.clientHeight + 1)
      card.style.setProperty("--zoom", String((zoom -= 0.05)));
  }

  _heard(/** @type {string} */ text) {
    this.$(".heard").textContent = text;
  }

  _key(/** @type {Json} */ e) {
    if (
      this.page.dataset.part !== "learn" ||
      !this.lesson ||
      this.task.on ||
      e.ctrlKey ||
      e.metaKey ||
      e.altKey ||
      isTyping(e.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    const onButton = e.target.closest?.("button, a, summary, [role=gridcell], [role=listbox]");
    if (/^[1-9]$/.test(e.key) && this.asking?.key(Number(e.key))) return take(e);
    if (e.key === "PageDown" || e.key === "n" || e.key === "N" || (e.key === "Enter" && !onButton))
      this.go(1);
    else if (e.key === "PageUp" || e.key === "b" || e.key === "B") this.go(-1);
    else if (e.key === "p" || e.key === "P") this.enlarge(!this.large);
    else if (e.key === "Escape" && this.large) this.enlarge(false);
    else return;
    take(e);
  }
}

function take(/** @type {Happened} */ e) {
  e.preventDefault();
  e.stopImmediatePropagation();
}

window.inflightLearnMount = (/** @type {Root} */ holder, /** @type {Json} */ options) =>
  (window.inflightLearn = new Learn(
    fillPart(holder, window.inflightLearnFiles, ".inflight-learn"),
    options,
  ));
