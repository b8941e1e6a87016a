// The frame of a figure: its claim, the source of its data, a picture, a sentence that describes the picture, and a small transport.
// Its state is plain numbers. It comes from outside (`show`: the scroll of a text, an address) or from the reader's hand, which keeps it until
// `release`. It knows neither runs nor views: `paint(state)` of a subclass paints the picture and returns the sentence.
//
//   show(state) ─┐
//                ├─→ draw() in the next animation frame
//   hand ────────┘   (released, the picture glides to what the text wants)

import { clamp, h, newButton, reducedMotion, setAttr, setText, svg } from "../parts/dom.js";
import { drawSoon, paintTheme, prefersDark } from "../parts/look.js";
import { t } from "../parts/speech.js";

const GLIDE = 320; // milliseconds of the glide from the hand's state back to the text's

/** @typedef {(Node | string)[]} Words */
/** @typedef {Record<string, number | string>} Moment numbers are blended, words are not */
/** @typedef {{claim?: string, source?: string, link?: string, play?: boolean}} CardOptions */

const SHAPES = {
  prev: "M11 2v12L4 8z",
  next: "M5 2v12l7-6z",
  play: "M4 2v12l9-6z",
  pause: "M4 2h3v12H4zm5 0h3v12H9z",
};

/** @param {keyof typeof SHAPES} name */
function shape(name) {
  const size = { viewBox: "0 0 16 16", width: "16", height: "16" };
  const path = svg("path", { d: SHAPES[name], fill: "currentColor" });
  return svg("svg", { ...size, "aria-hidden": "true", class: "shape" }, path);
}

/** Blends two states. @param {Moment} a @param {Moment} b @param {number} u @returns {Moment} */
export function blend(a, b, u) {
  const between = { ...b };
  for (const [key, to] of Object.entries(b)) {
    const from = a[key];
    if (typeof to === "number" && typeof from === "number") between[key] = from + (to - from) * u;
  }
  return between;
}

/** Smooths a share: slow at 0 and at 1. @param {number} u */
export const ease = (u) => u * u * (3 - 2 * u);

/** A slider element. @param {Omit<Slider, "key">} slider @param {(n: number) => void} moved */
export function rangeOf({ from, to, word, step = 1 }, moved) {
  const range = h("input", {
    type: "range",
    min: String(from),
    max: String(to),
    step: String(step),
    "aria-label": t(word),
  });
  range.addEventListener("input", () => moved(Number(range.value)));
  return range;
}

export class Card {
  /** @param {HTMLElement} root @param {Slider} slider @param {CardOptions} options */
  constructor(root, slider, { claim = "", source = "", link, play = false }) {
    this.root = root;
    this.slider = slider;
    root.classList.add("inflight", "figure", "surface");
    this.palette = paintTheme(root, prefersDark());
    /** @type {Moment | null} */
    this.wanted = null; // the state set by the text
    /** @type {Moment | null} */
    this.held = null; // the state set by hand
    /** @type {Moment} */
    this.drawn = {}; // the state drawn last
    /** @type {{from: Moment, since: number} | null} */
    this._glide = null;
    this.drawsSoon = false; // see drawSoon
    this._told = false; // whether the sentence explains what the pointer is on
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this._playing = undefined;
    this.body = h("div", { class: "figure-body stack spaced" });
    this.says = h("p", { class: "figure-says", "aria-live": "off" });
    this.range = rangeOf(slider, (n) => this.take({ [slider.key]: n }));
    this.back = newButton(
      { class: "button figure-back", hidden: true, onclick: () => this.release() },
      t("Back to the text"),
    );
    this.tools = h("span", { class: "figure-tools" });
    /** @type {(name: keyof typeof SHAPES, label: string, onclick: () => void) => HTMLElement} */
    const button = (name, label, onclick) =>
      newButton(
        {
          class: `key-button figure-${name} surface fixed`,
          "aria-label": t(label),
          title: t(label),
          onclick,
        },
        shape(name),
      );
    this.player = play ? button("play", "Play", () => this.play(!this._playing)) : null;
    root.append(
      h(
        "p",
        { class: "figure-claim wrap between" },
        h("b", {}, claim),
        source && h(link ? "a" : "span", { href: link, class: "figure-source plain soft" }, source),
      ),
      this.body,
      this.says,
      h(
        "div",
        { class: "figure-hand flex spaced wrap" },
        button("prev", "Previous", () => this.step(-1)),
        this.player,
        button("next", "Next", () => this.step(1)),
        this.range,
        this.tools,
        this.back,
      ),
    );
  }

  /** Set the state that the text wants. @param {Moment} state */
  show(state) {
    this.wanted = state;
    if (!this.held) this.redraw();
  }

  /** Change the state by hand; the hand keeps it until `release`. @param {Moment} change */
  take(change) {
    this._glide = null;
    this.held = { ...this.settled(this.now()), ...change };
    const { key, from, to } = this.slider;
    this.held[key] = clamp(Number(this.held[key]), from, to);
    this.back.hidden = !this.wanted;
    this.says.setAttribute("aria-live", "polite");
    this.redraw();
  }

  /** Move one step by hand, in a short motion. @param {number} by */
  step(by) {
    const from = this.now();
    this.play(false);
    this.take({ [this.slider.key]: this.position() + by });
    this.glideFrom(from);
  }

  /** Glide from a state to what is drawn next. @param {Moment} from */
  glideFrom(from) {
    if (reducedMotion()) return;
    this._glide = { from: { ...from }, since: performance.now() };
    this.redraw();
  }

  /** Give the state back to the text, in a short glide. */
  release(glide = true) {
    this.play(false);
    this._told = false;
    if (!this.held) return;
    const from = this.held;
    this._glide = this.held = null;
    if (glide && this.wanted) this.glideFrom(from);
    this.back.hidden = true;
    this.says.setAttribute("aria-live", "off");
    this.redraw();
  }

  /** Play step by step to the end, or from the start if already there. @param {boolean} on */
  play(on) {
    clearTimeout(this._playing);
    this._playing = undefined;
    if (this.player) {
      this.player.replaceChildren(shape(on ? "pause" : "play"));
      for (const name of ["aria-label", "title"])
        setAttr(this.player, name, t(on ? "Pause" : "Play"));
    }
    if (!on) return;
    const next = () => {
      const { key, from, to } = this.slider;
      const at = this.position() < to ? this.position() + 1 : from;
      this.take({ [key]: at });
      if (at >= to) this.play(false);
      else this._playing = setTimeout(next, 500);
    };
    this._playing = setTimeout(next, this.position() >= this.slider.to ? 0 : 250);
  }

  /** The state to draw now. @returns {Moment} */
  now() {
    const target = this.held || this.wanted || {};
    if (!this._glide) return target;
    const u = (performance.now() - this._glide.since) / GLIDE;
    if (u < 1) return blend(this._glide.from, target, ease(u));
    this._glide = null;
    return target;
  }

  /** The state that the hand takes over, at rest. @type {(state: Moment) => Moment} */
  settled(state) {
    return state;
  }

  /** The value at which the slider stands, or to which it moves. */
  position() {
    const { key, from, to } = this.slider;
    return clamp(Math.round(Number((this.held || this.wanted || {})[key] ?? from)), from, to);
  }

  /** Replace the sentence by other words; null restores it. @param {Words | null} words */
  tell(words) {
    if (!words && !this._told) return;
    this._told = Boolean(words);
    if (words) this.says.replaceChildren(...words);
    else this.redraw();
  }

  redraw() {
    if (this.wanted || this.held) drawSoon(this);
  }

  draw() {
    const state = this.now();
    const sentence = this.paint(state);
    this.drawn = state;
    if (!this._told) this._say(sentence);
    const value = String(this.position());
    if (this.range.value !== value) this.range.value = value;
    setAttr(this.range, "aria-valuetext", this.says.textContent || "");
    if (this._glide) this.redraw();
  }

  /** @param {string | Words} sentence */
  _say(sentence) {
    if (typeof sentence === "string") return setText(this.says, sentence);
    this.says.replaceChildren(...sentence);
  }

  /** Paint a state; returns the sentence about it. @type {(state: Moment) => string | Words} */
  paint(_state) {
    return "";
  }

  /** Repaint in the colours of a theme. @param {boolean} dark */
  theme(dark) {
    this.palette = paintTheme(this.root, dark);
    this.redraw();
  }
}
