// The story: an essay whose figures follow the scroll and can be changed by hand. A paragraph has
// two states, which are blended while it moves up the screen, so every picture is a function of the
// scroll position: scrolling back works, and nothing is remembered. When scrolling stops, the
// figure stays at the last state of the paragraph that is being read. The text is in the page and
// complete without this script.

import { clamp, find, findAll, h, reducedMotion, setAttr, setText } from "../parts/dom.js";
import { prefersDark } from "../parts/look.js";
import { speak } from "../parts/speech.js";
import { blend } from "../figure/card.js";
import { Figure } from "../figure/figure.js";
import { Run } from "../run/run.js";
import { cost } from "./cost.js";
import { Drawing } from "../figure/drawing.js";
import { fold } from "./fold.js";
import { hand } from "../figure/hand.js";
import { Hero } from "./hero.js";
import { times } from "./times.js";
import { token } from "./token.js";
import { worth } from "./worth.js";

/** @type {Record<string, DrawingKind>} */
const KINDS = { token, cost, fold, hand, times, worth };
// as in story.css: screens on which the figure stands above the text
const SMALL = matchMedia("(max-width: 760px), (max-width: 900px) and (orientation: portrait)");
const BAR = 44; // pixels of the bar at the top

/**
 * @typedef {Record<string, [number, number] | string>} Beat
 * @typedef {{figure: {run: string | null, drawing: string, views: string[], claim: string, source:
 * string, link: string, columns: number, clock: boolean, future: boolean,
 * print: number}, beats: Beat[]}}
 * SectionSpec
 * @typedef {{el: HTMLElement, fig: HTMLElement, spec: SectionSpec, beats: HTMLElement[], card: Figure | Drawing | null,
 * at: number, top: number, bottom: number, middles: number[], near: boolean}} Section
 */

export class Story {
  /**
   * @param {Json} page what visualizer/page/story.py sends: {language, words, runs, drawings,
   * sections: {id: SectionSpec}, hero: {names, runs}, again}
   */
  constructor(page) {
    this.page = page;
    speak(page.language === "en" ? null : { name: page.language, words: page.words });
    /** @type {Map<string, Run>} */
    this.runs = new Map();
    /** @type {Section[]} */
    this.sections = findAll(document, "section.scrolly").map((el) => ({
      el,
      fig: find(el, ".fig"),
      spec: page.sections[el.id],
      beats: findAll(el, ".beat"),
      card: null,
      at: -1,
      top: 0,
      bottom: 0,
      middles: [],
      near: false,
    }));
    this.printing = false;
    this.resting = true; // nobody is scrolling
    this._soon = false;
    this._here = -2;
    this._height = 1;
    this.toc = [...document.querySelectorAll(".toc li a")].map((a) => ({
      a,
      fill: find(a, "i i"),
    }));
    this.bar = find(document, ".toc .bar i");
    this.where = find(document, ".toc .here");
    this.contents = /** @type {HTMLDetailsElement} */ (document.querySelector(".toc details"));
    document.documentElement.classList.add("live");
    /** @type {{names: string[], runs: string[]}} */
    const { names, runs } = page.hero;
    const members = names.map((name, n) => ({ name, run: this.run(runs[n]) }));
    this.heroes = findAll(document, ".hero .fig").map((fig) => {
      const card = h("div", {});
      fig.append(card);
      return new Hero(card, members, page.again, fig.dataset.label || "");
    });
    this._listen();
    this.measure();
    this.heroes[0].play(); // the last one, at the end of the page, stays still
  }

  /** @param {string} name */
  run(name) {
    let run = this.runs.get(name);
    if (!run) this.runs.set(name, (run = new Run(this.page.runs[name])));
    return run;
  }

  /** Make the figure of a section, once it comes near. @param {Section} section */
  mount(section) {
    if (section.card) return;
    const { figure } = section.spec;
    const card = h("div", { class: "story-card" });
    section.fig.replaceChildren(card);
    section.card = figure.run
      ? new Figure(card, this.run(figure.run), figure)
      : new Drawing(card, KINDS[figure.drawing], this.page.drawings[section.el.id], figure);
  }

  // -- where the reader is -----------------------------------------------------------------------

  /** Measure all positions when the layout changes, so that scrolling needs no measurement. */
  measure() {
    if (this.printing) return;
    const y = window.scrollY;
    this.small = SMALL.matches;
    if (window.innerWidth >= 1380) this.contents.open = true;
    /** @type {number} */
    this._figure = this.small ? this.sections[0].fig.offsetHeight : 0;
    for (const section of this.sections) {
      const box = section.el.getBoundingClientRect();
      [section.top, section.bottom] = [box.top + y, box.bottom + y];
      section.middles = section.beats.map((beat) => {
        const words = (beat.firstElementChild || beat).getBoundingClientRect();
        return words.top + words.height / 2 + y;
      });
    }
    this._height = document.documentElement.scrollHeight;
    this.frame();
  }

  /**
   * The heights in the window between which a paragraph's middle takes its figure from the first
   * state to the last, which is reached before the paragraph is in the middle of the window.
   */
  get span() {
    const above = this.small ? BAR + this._figure : 0;
    const room = window.innerHeight - above;
    return [above + room * 0.86, above + room * 0.58];
  }

  frame() {
    this._soon = false;
    if (this.printing) return;
    const y = window.scrollY;
    const height = window.innerHeight;
    const [from, to] = this.span;
    for (const section of this.sections) {
      section.near = section.bottom > y - 100 && section.top < y + height + 100;
      if (!section.near) continue;
      this.mount(section);
      let [at, share] = [0, 0];
      section.middles.forEach((middle, i) => {
        const passed = (from - (middle - y)) / (from - to);
        if (i === 0 || passed > 0) [at, share] = [i, clamp(passed, 0, 1)];
      });
      this._turn(section, at);
      this._show(section, share);
    }
    this._mark(y, height);
  }

  /** Turn to another paragraph; release the figure. @param {Section} section @param {number} at */
  _turn(section, at) {
    if (at === section.at) return;
    if (section.at >= 0) section.card?.release();
    section.at = at;
    section.beats.forEach((beat, i) => beat.classList.toggle("on", i === at));
  }

  /** Show the state of the current paragraph. @param {Section} section @param {number} share */
  _show(section, share) {
    const [from, to] = ends(section.spec.beats[section.at]);
    const still = this.resting || reducedMotion();
    const state = blend(from, to, still ? Math.ceil(share) : share);
    if (!(section.card instanceof Figure)) return section.card?.show(state);
    const at = still ? Math.ceil(Number(state.at)) : Number(state.at);
    const index = Math.max(0, Math.ceil(at - 1e-6) - 1);
    section.card.show({ index, share: at - index, focus: String(state.focus || "") });
  }

  /** Mark in the contents how far the reader is. @param {number} y @param {number} height */
  _mark(y, height) {
    const line = y + height * 0.5;
    let here = -1;
    this.sections.forEach(({ top, bottom }, i) => {
      const share = clamp((line - top) / (bottom - top), 0, 1);
      this.toc[i].fill.style.transform = `scaleY(${share.toFixed(3)})`;
      if (line > top) here = i;
    });
    this.bar.style.transform = `scaleX(${clamp(y / (this._height - height), 0, 1).toFixed(4)})`;
    if (here === this._here) return;
    this._here = here;
    this.toc.forEach(({ a }, i) =>
      i === here ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current"),
    );
    setText(this.where, here < 0 ? "" : this.toc[here].a.textContent || "");
  }

  // -- what the reader does ----------------------------------------------------------------------

  _listen() {
    const soon = () => {
      this.resting = false;
      if (this._soon) return;
      this._soon = true;
      requestAnimationFrame(() => this.frame());
    };
    window.addEventListener("scroll", soon, { passive: true });
    window.addEventListener("scrollend", () => {
      this.resting = true;
      for (const { card, near } of this.sections) if (near) card?.glideFrom(card.drawn);
      this.frame();
    });
    new ResizeObserver(() => this.measure()).observe(document.body);
    window.addEventListener("resize", () => this.measure());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      this.theme(prefersDark()),
    );
    matchMedia("(prefers-reduced-motion: reduce)").addEventListener("change", () => this.frame());
    document.addEventListener("keydown", (e) => this._key(e));
    window.addEventListener("beforeprint", () => this.print());
    window.addEventListener("afterprint", () => this.printed());
    for (const type of ["pointerover", "pointerout", "click"])
      document.addEventListener(type, (e) => this._light(e));
    for (const ask of findAll(document, ".guess"))
      ask.addEventListener("click", (e) => this._guess(ask, /** @type {HTMLElement} */ (e.target)));
    for (const { a } of this.toc)
      a.addEventListener("click", () => {
        this.contents.open = window.innerWidth >= 1380;
      });
  }

  /** Highlight in the figure the request under the pointer in the text. @param {Event} e */
  _light(e) {
    const who = /** @type {HTMLElement | null} */ (
      /** @type {Element} */ (e.target).closest?.(".who")
    );
    if (!who) return;
    const section = this.sections.find(({ el }) => el.contains(who));
    if (section?.card instanceof Figure)
      section.card.light(e.type === "pointerout" ? "" : who.textContent || "");
  }

  /** @param {HTMLElement} ask @param {HTMLElement} button */
  _guess(ask, button) {
    if (button.tagName !== "BUTTON") return;
    for (const other of ask.querySelectorAll("button"))
      setAttr(other, "aria-pressed", String(other === button));
    const verdict = find(/** @type {HTMLElement} */ (ask.parentElement), ".verdict");
    setText(verdict, button.dataset.says || "");
  }

  /** n and p: go to the next or the previous paragraph. @param {KeyboardEvent} e */
  _key(e) {
    if ((e.key !== "n" && e.key !== "p") || e.ctrlKey || e.metaKey || e.altKey) return;
    const goals = this.sections.flatMap(({ middles }) =>
      middles.map((middle) => middle - this.span[1] + 2),
    );
    const goal =
      e.key === "n"
        ? goals.find((y) => y > window.scrollY + 8)
        : (goals.filter((y) => y < window.scrollY - 8).at(-1) ?? 0);
    if (goal !== undefined)
      window.scrollTo({ top: goal, behavior: reducedMotion() ? "auto" : "smooth" });
  }

  /** @param {boolean} dark */
  theme(dark) {
    for (const hero of this.heroes) hero.theme(dark);
    for (const { card } of this.sections) card?.theme(dark);
  }

  // -- on paper ----------------------------------------------------------------------------------

  /** Prepare for printing: one figure at rest for each section, in light colours. */
  print() {
    this.printing = true;
    document.documentElement.classList.add("printing");
    this.theme(false);
    for (const section of this.sections) {
      this.mount(section);
      const { card, spec } = section;
      card?.release(false);
      if (card instanceof Figure) card.show({ index: spec.figure.print });
      else card?.show(card.kind.print(card.data, ends(spec.beats[0])[1]));
      for (const view of card instanceof Figure ? card.views : [card]) view?.surface?.measure?.();
      card?.draw();
    }
    for (const hero of this.heroes) {
      for (const { chart } of hero.charts) chart.surface.measure();
      hero.settle();
    }
  }

  printed() {
    this.printing = false;
    document.documentElement.classList.remove("printing");
    this.theme(prefersDark());
    this.measure();
  }
}

/** The two states of a paragraph. @param {Beat} beat */
function ends(beat) {
  /** @type {DrawingState[]} */
  const [from, to] = [{}, {}];
  for (const [key, value] of Object.entries(beat)) {
    if (Array.isArray(value)) [from[key], to[key]] = value;
    else if (key === "focus") from[key] = to[key] = value;
  }
  return [from, to];
}

window.inflightStory = new Story(
  JSON.parse(
    /** @type {HTMLElement} */ (document.getElementById("story-data")).textContent || "{}",
  ),
);
