// The opening: on a first visit, Watch begins with twenty seconds about two recorded runs, then shows the second run in the player ("the hood"). The
// picture is a function of the time (scene.js), and the sentences are computed from the runs (plot.js); this file has its clock, its keys and its end.
//
//   begins by itself, once per browser: any key or tap but Space ends it      asked for, or paused: Space, ← → go by sentences, Esc leaves
//   #opening in the address plays it, #opening=12.5 stops at that second; reduced motion: four still pictures

import {
  canvasIn,
  clamp,
  find,
  h,
  icon,
  onDrag,
  pointIn,
  reducedMotion,
  setAttr,
  setText,
} from "../../parts/dom.js";
import { plain, spans } from "../../parts/chips.js";
import { keep, kept } from "../../parts/kept.js";
import { putLanguage } from "../../parts/language.js";
import { addressed } from "../../parts/link.js";
import { hrefOf, isOurKey } from "../../parts/look.js";
import { isUnspoken, runOf, speaking, t, tell } from "../../parts/speech.js";
import { Surface } from "../../parts/surface.js";
import { Run } from "../../run/run.js";
import { SEEN } from "../bar.js";
import { isOnWatch } from "../layout.js";
import { OwnQuestion } from "../own_question.js";
import { inWords, LENGTH, Plot } from "./plot.js";
import { drawOpening } from "./scene.js";

const PLAYED = "inflight-opening";
const FIRST_LESSON = "one-token";
const HARMLESS = ["theme", "lang", "detail", "opening"]; // parameters that name nothing to show
const OTHERS_KEYS =
  /^(Tab|Shift|Control|Alt|AltGraph|Meta|CapsLock|NumLock|ScrollLock|ContextMenu|PrintScreen|Dead|Unidentified|F\d+|(Fn|Audio|Media|Browser|Launch).*)$/;
const SCROLLING = /^( |Arrow.*|Page.*|Home|End)$/;

/** No plot: its document has not arrived, or the page has none. */
const NO_PLOT = /** @type {Plot} */ (/** @type {unknown} */ (null));

export class Opening {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.offer = app.options.embedded ? null : app.options.opening || null; // {url}
    this.el = app.$(".opening");
    const $ = (/** @type {string} */ s) => find(this.el, s);
    this.pill = $(".pill");
    this.sentence = $(".opening-sentence");
    this.line = $(".opening-line");
    this.bar = $(".opening-line i");
    this.playButton = $(".opening-play");
    this.hint = $(".opening-hint");
    this.pictures = $(".opening-pictures");
    this.surface = new Surface(canvasIn(this.el, ".opening-stage canvas"), () => this.draw());
    this.question = new OwnQuestion(app); // the visitor's own question, at the end
    /** @type {Json} */
    this.doc = null; // see visualizer/documents/opening.py
    /** @type {Plot} */
    this.plot = NO_PLOT;
    this.on = this.playing = false;
    this.still = false; // whether four still pictures are shown
    this.mine = false; // whether the visitor asked for it, so that keys control it
    this.at = 0; // seconds since it began
    this._frame = 0;
    this.lastMs = 0; // ms that drawing the last picture took
    /** @type {Surface[]} */
    this._stills = [];
    this._said = "";
    app.views.push(this);
    document.addEventListener("keydown", (e) => this._key(e), true);
    this.el.addEventListener("click", (/** @type {MouseEvent} */ e) =>
      this._tap(/** @type {HTMLElement} */ (e.target)),
    );
    app.$(".top").addEventListener("click", () => this._besides(), true);
    document.addEventListener("inflight-tab", () => this.close());
    window.addEventListener("hashchange", () => this.close());
    this.playButton.addEventListener("click", () => this.toggle(!this.playing));
    this.hood = $(".opening-hood");
    this.hood.addEventListener("click", () => this.openHood());
    this._slide();
  }

  /** Whether it begins by itself: on a first visit without an address, or if one asks for it. */
  get isDue() {
    if (!this.offer || this.app.options.model || !isOnWatch()) return false;
    if (new URLSearchParams(location.search).has("trace")) return false;
    const address = addressed();
    if ([...address.keys()].some((key) => !HARMLESS.includes(key))) return false;
    return address.has("opening") || !(kept("good", PLAYED) || kept("good", SEEN));
  }

  /** Begin by itself, if due, with its run in the player below; false if another is to open. */
  async begin() {
    if (!this.isDue) return false;
    const place = Number.parseFloat(addressed().get("opening") || "");
    keep("good", PLAYED, "1");
    if (!(await this._show())) return false;
    this.mine = Number.isFinite(place);
    this._start(this.mine ? place : 0);
    if (!this.app.isOpening) this._putHood();
    return true;
  }

  /** Play it because the visitor asked. */
  async play() {
    this.app.transport.toggle(false);
    if (!(await this._show()))
      return this.plot ? undefined : this.app.toast("The opening could not be fetched.");
    this.mine = true;
    this._start(0);
    this.playButton.focus({ preventScroll: true });
  }

  /** Cover Watch and fetch the two runs; false if they cannot be had. */
  async _show() {
    const { app } = this;
    /** @type {HTMLElement[]} */
    this._beside = [...app.$(".stage").children].filter((el) => !el.matches(".head, .opening"));
    for (const el of this._beside) el.inert = true;
    app.root.toggleAttribute("data-opening", true);
    this.el.hidden = false;
    this.el.classList.remove("leaving");
    this.on = true;
    this.still = reducedMotion();
    // shown until the runs are here
    if (!this.plot) setText(this.sentence, t("One model serves many people at once."));
    try {
      this.doc ??= await app.fetch(this.offer.url);
      const [before, after] = ["before", "after"].map((name) => this.doc.runs[this.doc[name]]);
      this.plot ??= Plot.of(new Run(before), new Run(after)) || NO_PLOT;
    } catch {
      this.plot = NO_PLOT; // Watch works without the opening
    }
    if (!this.plot) this.close(false);
    else this.question.offer(this.doc.comparison).then(() => this._tell());
    return Boolean(this.plot) && this.on;
  }

  /** @param {number} at */
  _start(at) {
    this._said = "";
    this.el.classList.toggle("still", this.still);
    this.pictures.hidden = !this.still;
    if (this.still) return this._hang();
    this.surface.measure();
    this.at = clamp(at, 0, LENGTH);
    this.toggle(!at);
    this.draw();
  }

  /** The context in which its sentences name requests. */
  get _shown() {
    return { run: this.plot.fast.run, index: Infinity };
  }

  /** Put the second run into the player, at the step before the next request joins. */
  _putHood() {
    const { app, doc, plot } = this;
    const racer = doc.after;
    const { comparison, title } = doc;
    const entry = { name: null, title: `${title}: ${racer}`, comparison, racer };
    app.openReplay(runOf(doc, racer), { step: plot.fast.run.stepOf(plot.hood) }, entry);
  }

  /** End it and show its second run in the player. */
  openHood() {
    const { app, plot, doc } = this;
    if (!plot) return this.close(false); // its runs are still loading: Watch opens without it
    const { comparison, racer } = app.entry || {};
    const isIt = comparison === doc.comparison && racer === doc.after;
    if (!isIt || app.index !== plot.hood) this._putHood();
    this.close();
  }

  /** End the opening. slowly: the picture fades. */
  close(slowly = true) {
    if (!this.on) return;
    this.toggle(false);
    this.on = false;
    const { app, el } = this;
    app.root.toggleAttribute("data-opening", false);
    for (const one of this._beside) one.inert = false;
    if (el.contains(document.activeElement))
      app
        .$(app.presenter ? ".present-bar .button" : ".transport .play")
        .focus({ preventScroll: true });
    const gone = () => {
      if (!this.on) el.hidden = true;
    };
    el.classList.add("leaving");
    if (slowly && !reducedMotion()) setTimeout(gone, 280);
    else gone();
    app.sized(); // only now that the bar is visible again, what fits in it can be measured
  }

  // -- time --------------------------------------------------------------------------------------

  /** Play or pause; at the end, play again. @param {boolean} on */
  toggle(on) {
    if (on && this.at >= LENGTH) this.at = 0;
    this.playing = on;
    /** @type {number} */
    this._last = performance.now();
    cancelAnimationFrame(this._frame);
    if (on) this._frame = requestAnimationFrame((now) => this._tick(now));
    this._tell();
  }

  /** @param {number} now */
  _tick(now) {
    if (!this.playing) return;
    // time in the background does not count
    if (!isUnspoken()) this.at = Math.min(LENGTH, this.at + clamp(now - this._last, 0, 100) / 1000);
    this._last = now;
    this.draw();
    if (this.at >= LENGTH) this.toggle(false);
    else this._frame = requestAnimationFrame((next) => this._tick(next));
  }

  /** Stop at a second of the opening. @param {number} at */
  seek(at) {
    this.toggle(false);
    this.at = clamp(at, 0, LENGTH);
    this.mine = true;
    this._tell();
    this.draw();
  }

  /**
   * Go to the end of the current or next sentence, or back to that of an earlier one, where its
   * picture is complete. @param {number} by
   */
  turn(by) {
    if (!this.plot) return; // its runs are still loading
    const { said } = this.plot;
    // a sentence's picture is complete when the sentence ends
    const ends = said.map((_, i) => (i + 1 < said.length ? said[i + 1][0] - 0.05 : LENGTH));
    const next = ends.find((at) => at > this.at + 0.01) ?? LENGTH;
    const last = ends.findLast((at) => at < this.at - 0.01) ?? 0;
    this.seek(by > 0 ? next : last);
  }

  // -- drawing -----------------------------------------------------------------------------------

  /** Draw the current picture. */
  draw() {
    const { plot, surface, app, at } = this;
    if (!this.on || !plot) return;
    const t0 = performance.now();
    if (this.still)
      for (const [n, one] of this._stills.entries()) this._paint(one, plot.pictures[n][0], n > 0);
    else {
      this._paint(surface, at, false);
      setText(this.pill, t(`${plot.moment(at).toFixed(3)} s`));
      this.bar.style.transform = `scaleX(${at / LENGTH})`;
    }
    const n = this.still ? plot.said.length - 1 : plot.sentence(at);
    const said = `${n}/${speaking()}/${app.palette.dark}`;
    if (said !== this._said) {
      this._said = said;
      this._say(plot.said[n][1]());
      this._tell();
      const heard = plot.pictures.map(([, say]) => plain(this._shown, say())).join(" ");
      setAttr(this.surface.canvas, "aria-label", heard);
      if (this.still) this._caption();
    }
    this.lastMs = performance.now() - t0;
  }

  /** @param {Surface} surface @param {number} at @param {boolean} bare */
  _paint(surface, at, bare) {
    if (!surface.visible) return;
    const g = surface.begin();
    const { w, h } = surface;
    const larger = Math.min(w / 1280, h / 560); // scale for the last row, where there is room
    const k = larger > 1.15 ? Math.min(larger, 2) : 1;
    g.scale(k, k);
    const box = { x: 1, y: 1, w: w / k - 2, h: h / k - 2 };
    drawOpening(g, box, this.plot, this.app.palette, at, surface.d * k, bare);
  }

  /** @param {Span[]} line */
  _say(line) {
    const { plot } = this;
    const n = plot.sentence(this.at);
    this.sentence.classList.toggle("sum", this.still || n === plot.said.length - 1);
    this.sentence.replaceChildren(...this._spans(line, n === 3));
    setAttr(this.line, "aria-valuenow", String(n + 1));
    setAttr(this.line, "aria-valuetext", plain(this._shown, line));
  }

  /** A sentence as nodes. shut: some wait outside. @param {Span[]} line @param {boolean} shut */
  _spans(line, shut) {
    const waiting = shut ? this.plot.shut.map((r) => this.plot.fast.lives[r].request) : [];
    const nodes = spans(this._shown, line, (request) => !waiting.includes(request));
    // in the run below, the same index is another request
    for (const node of nodes)
      if (node instanceof HTMLElement)
        for (const name of ["data-request", "title"]) node.removeAttribute(name);
    return nodes;
  }

  /** Lay out the four still pictures. */
  _hang() {
    this._stills = [];
    this.pictures.replaceChildren(
      ...this.plot.pictures.map((_, n) => {
        const canvas = h("canvas", { role: "img" });
        const figure = h(
          "figure",
          { class: "surface stack" },
          h("figcaption", { class: "large" }),
          h("div", { class: "canvas" }, canvas),
        );
        canvas.setAttribute("aria-label", `${t("Picture")} ${n + 1}`);
        this._stills.push(new Surface(canvas, () => this.draw()));
        return figure;
      }),
    );
    this.draw();
  }

  _caption() {
    [...this.pictures.querySelectorAll("figcaption")].forEach((caption, n) =>
      caption.replaceChildren(...this._spans(this.plot.pictures[n][1](), n === 1)),
    );
    setText(this.pill, t("in {many} pictures", { many: inWords(this.plot.pictures.length) }));
  }

  /** Update the buttons to what can be done now. */
  _tell() {
    const over = this.at >= LENGTH;
    const touch = matchMedia("(pointer: coarse)").matches;
    this.el.classList.toggle("asks", Boolean(this.question.preset) && (over || this.still));
    this.el.classList.toggle("told", over || this.still);
    this._doors();
    setText(this.hood, t(over || this.still ? "Explore" : "Open the hood"));
    setAttr(this.playButton, "aria-label", t(this.playing ? "Pause" : over ? "Once more" : "Play"));
    this.playButton.replaceChildren(icon(this.playing ? "pause" : over ? "first" : "play"));
    const skips = touch ? "A tap skips" : "Space pauses · any other key skips";
    const obeys = touch ? "" : `Space ${this.playing ? "pauses" : "plays"} · ← → a sentence`;
    setText(this.hint, this.still || over ? "" : t(this.mine ? obeys : skips));
  }

  /** Update the links to other parts, which are shown at the end. */
  _doors() {
    const { tabs = [] } = this.app.options;
    const lesson = new URLSearchParams({ part: "learn", lesson: FIRST_LESSON });
    putLanguage(lesson);
    const door = (/** @type {string} */ name, /** @type {(tab: Json) => string[]} */ leads) => {
      const el = find(this.el, `[data-door=${name}]`);
      const tab = tabs.find((one) => one.name === name);
      el.hidden = !tab;
      if (!tab) return;
      const [href, words] = leads(tab);
      setAttr(el, "href", href);
      tell(el, words);
    };
    door("story", ({ href, minutes }) => [
      hrefOf(href),
      `Read the story (${minutes[speaking()] ?? minutes.en} min)`,
    ]);
    door("learn", () => [`#${lesson}`, "Try lesson 1"]);
  }

  // -- keys and pointer --------------------------------------------------------------------------

  /** @param {KeyboardEvent} e */
  _key(e) {
    const { app } = this;
    const el = /** @type {HTMLElement} */ (e.target);
    if (!this.on || !isOurKey(e, app.root) || OTHERS_KEYS.test(e.key)) return;
    if (app.root.querySelector("dialog[open]") || el.closest?.(".menu, form")) return;
    // these keys press a button or link
    if (el.closest?.("button, a") && (e.key === "Enter" || e.key === " ")) return;
    e.stopPropagation(); // the player below must not react
    if (this.still && SCROLLING.test(e.key)) return;
    // on the slider, keys are the opening's own even if it began by itself
    if ((this.mine || e.key === " " || el === this.line) && !this.still) {
      this.mine = true;
      const act = {
        " ": () => this.toggle(!this.playing),
        ArrowRight: () => this.turn(1),
        ArrowUp: () => this.turn(1),
        ArrowLeft: () => this.turn(-1),
        ArrowDown: () => this.turn(-1),
        Home: () => this.seek(0),
        End: () => this.seek(LENGTH),
        Escape: () => this.close(),
      }[e.key];
      if (!act) return;
      act();
    } else this.openHood();
    e.preventDefault();
  }

  /** @param {HTMLElement} target */
  _tap(target) {
    if (!this.on || !this.plot || this.still || target.closest(".opening-foot")) return;
    if (this.mine) this.toggle(!this.playing);
    else this.openHood();
  }

  /** Something outside the opening was pressed: pause. */
  _besides() {
    if (!this.on || !this.plot || this.still) return;
    this.mine = true;
    this.toggle(false);
  }

  _slide() {
    const seek = (/** @type {PointerEvent} */ e) => {
      const share = pointIn(this.line, e)[0] / this.line.getBoundingClientRect().width;
      if (this.plot) this.seek(share * LENGTH);
    };
    onDrag(this.line, (e) => {
      seek(e);
      return seek;
    });
  }
}
