// A figure: chosen views of one recorded run at one moment. Used by the story, the embeddable page and the pictures of lessons.
//
//   new Figure(root, replay, {views: ["lanes", "mask"], …});  figure.show({index: 4, share: 0.5, focus: "D"})

import { clamp, h, pointIn } from "../parts/dom.js";
import { layoutOf } from "../parts/look.js";
import { isSameHot, spans } from "../parts/chips.js";
import { speaking, t, translateLine } from "../parts/speech.js";
import { Run } from "../run/run.js";
import { BlocksView } from "../views/kv.js";
import { MaskView } from "../views/mask/mask.js";
import { PackedRow } from "../views/packed_row.js";
import { TextsView } from "../views/texts.js";
import { Card } from "./card.js";
import { FigureLanes } from "./lanes.js";

/**
 * The views a figure may have, by name: the title, and what draws in the panel. @type {Record<string,
 * [string, (at: HTMLElement, actions: ViewActions, columns: number, future: boolean) => View]>}
 */
const VIEWS = {
  lanes: ["Lanes", (...given) => new FigureLanes(...given)],
  row: ["One forward pass", (at, actions) => new PackedRow(at, actions)],
  mask: ["Who may look at whom", (at, actions) => new MaskView(at, actions)],
  kv: ["Memory blocks", (at, actions) => new BlocksView(at, actions)],
  text: ["Text so far", (at) => new TextsView(at)],
};

/** The panel of a view. @param {string} name @param {string} title */
function panelOf(name, title) {
  const [key, canvas] = name === "kv" ? ["blocks-key", "canvas blocks"] : ["key", "canvas"];
  return h(
    "section",
    { class: `panel ${name} surface`, "aria-label": t(title) },
    h(
      "h3",
      {},
      h("span", { class: "title" }, t(title)),
      h("span", { class: "tools" }),
      h("i", { class: key }),
    ),
    name === "text"
      ? h("div", { class: "texts scrolls" })
      : h("div", { class: canvas }, h("canvas", { role: "img" })),
  );
}

/** The state of what a figure lacks: a second run, a leak, weights, ranks. */
const ALONE = {
  pinned: null,
  simple: true,
  presenter: false,
  alone: "",
  fast: false,
  ranks: null,
  pair: { members: [], other: null, charted: [], step: null, leaks: false },
  leak: { offered: false, on: false, working: "" },
  weights: {
    offered: false,
    on: false,
    layer: 0,
    head: 0,
    withoutFirst: false,
    loading: false,
    error: null,
    found: null,
  },
};

export class Figure extends Card {
  /**
   * views: names of VIEWS, from top to bottom; columns: the length of the lanes' axis, if figures
   * share a scale; future: whether later steps are drawn, pale; clock: whether the axis is measured
   * time.
   * @param {HTMLElement} root
   * @param {Replay | Run} replay or the run itself, which several figures may share
   * @param {import("./card.js").CardOptions & {views: string[], columns?: number, future?: boolean,
   * clock?: boolean}} options
   */
  constructor(root, replay, { views, columns = 0, future = true, clock = false, ...options }) {
    const run = replay instanceof Run ? replay : new Run(replay);
    super(root, { key: "at", from: 1, to: run.length, word: "Step" }, options);
    this.run = run;
    root.style.setProperty("--lanes", String(Math.min(run.numLanes, 8)));
    this.clock = clock;
    this.future = future;
    /** @type {RunRequest | null} */
    this.lit = null; // the request that the pointer is on
    /** @type {Hot | null} */
    this.hot = null;
    /** @type {Caption | null | undefined} */
    this._said = undefined;
    this._index = 0; // the index of the step drawn
    /** @type {ViewActions} */
    this.actions = {
      redraw: () => this.redraw(),
      changed: () => {},
      explain: (lines) => this.explain(lines),
      hover: (found) => this.hover(found),
      pin: () => {},
      scrub: (index) => this.take({ at: index + 1 }),
      choosePass: () => {},
      toggleLeak: () => {},
      weigh: () => {},
      turnTo: () => {},
      hold: () => {},
      chooseRank: () => {},
    };
    this.views = views
      .filter((name) => Object.hasOwn(VIEWS, name))
      .map((name) => {
        const [title, make] = VIEWS[name];
        const at = panelOf(name, title);
        const view = make(at, this.actions, columns, future);
        this.body.append(at);
        if ("hit" in view) this._pointed(at, /** @type {PointedView} */ (view));
        return view;
      });
    // these scroll the page and do not zoom the mask
    for (const gesture of ["wheel", "dblclick"])
      this.body.addEventListener(gesture, (e) => e.stopPropagation(), {
        capture: true,
        passive: true,
      });
    this.body.addEventListener("pointerover", (e) => this._chip(e));
  }

  /**
   * Set the moment to show. share: how much of the step has happened, 0 to 1; focus: letters of the
   * requests to highlight. @param {{index: number, share?: number, focus?: string}} moment
   */
  show({ index, share = 1, focus = "" }) {
    super.show({ at: index + share, focus });
  }

  /** Highlight a request by its letter; "" highlights none. @param {string} letter */
  light(letter) {
    const request = this.run.requests.find((r) => r.letter === letter) || null;
    if (request === this.lit) return;
    this.lit = request;
    this.redraw();
  }

  /** @param {import("./card.js").Moment} state */
  settled(state) {
    return { ...state, at: Math.ceil(Number(state.at ?? 1) - 1e-6), focus: "" };
  }

  position() {
    return clamp(
      Math.ceil(Number((this.held || this.wanted || {}).at ?? 1) - 1e-6),
      this.slider.from,
      this.slider.to,
    );
  }

  /** @param {import("./card.js").Moment} state */
  paint(state) {
    const { run } = this;
    const at = clamp(Number(state.at), 0, run.length);
    const index = (this._index = Math.max(0, Math.ceil(at - 1e-6) - 1));
    const frame = run.frame(index);
    const named = String(state.focus || "");
    const focus = this.lit
      ? [this.lit]
      : named
        ? run.requests.filter((r) => named.includes(r.letter))
        : null;
    /** @type {ViewState} */
    const shown = {
      ...ALONE,
      run,
      frame,
      index,
      share: at - index,
      pass: frame.passes.at(-1) || null,
      palette: this.palette,
      focus,
      hot: this.hot,
      clock: this.clock,
      layout: layoutOf(this.root.clientWidth || 800),
      language: speaking(),
    };
    for (const view of this.views) view.draw(shown);
    return this._sentence(frame, shown);
  }

  /** @param {Frame} frame @param {ViewState} state */
  _sentence(frame, state) {
    const say = frame.caption?.simple || frame.caption?.say || [];
    const holding = new Set(frame.lanes.map((lane) => lane.request));
    return [
      h("b", {}, `${t(`Step ${frame.event.step}.`)} `),
      ...spans(state, say, (request) => holding.has(request)),
    ];
  }

  /** @param {string | import("./card.js").Words} sentence */
  _say(sentence) {
    const { caption } = this.run.frame(this._index);
    // the same step: its sentence is already there
    if (caption === this._said && caption && this.says.childNodes.length) return;
    this._said = caption;
    super._say(sentence);
  }

  /** @param {import("./card.js").Words | null} words */
  tell(words) {
    this._said = undefined;
    super.tell(words);
  }

  // -- pointing ----------------------------------------------------------------------------------

  /** @param {HTMLElement} at @param {PointedView} view */
  _pointed(at, view) {
    const { canvas } = view.surface;
    const find = (/** @type {PointerEvent} */ e) => this.hover(view.hit(...pointIn(canvas, e)));
    canvas.addEventListener("pointermove", (e) => {
      if (e.pointerType === "mouse") find(e);
    });
    canvas.addEventListener("click", find); // a tap
    canvas.addEventListener("pointerleave", (e) => {
      if (e.pointerType === "mouse") this.hover(null); // a finger leaves after every tap
    });
  }

  /** @param {Found | null} found */
  hover(found) {
    const [request, hot] = [found?.request || null, found?.hot || null];
    const same = request === this.lit && isSameHot(hot, this.hot);
    this.lit = request;
    this.hot = hot;
    this.explain(found?.lines || null);
    if (!same) this.redraw();
  }

  /** @param {Span[][] | null} lines */
  explain(lines) {
    const context = { run: this.run, index: this.position() - 1 };
    const said = lines?.map((line) => spans(context, translateLine(line)));
    this.tell(said?.flatMap((line, n) => [n ? ". " : "", ...line]) ?? null);
  }

  /** @param {Event} e */
  _chip(e) {
    const target = /** @type {HTMLElement} */ (e.target);
    if (target.tagName === "CANVAS") return;
    const el = target.closest("[data-request]");
    this.light(el ? this.run.requests[Number(el.getAttribute("data-request"))].letter : "");
  }
}
