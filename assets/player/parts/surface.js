// A canvas that follows its parent's size, and texts whose width is measured only once. Text is
// drawn with fillText, never parsed as markup.

import { canvasIn, find } from "./dom.js";

/** A canvas that fills its parent: its size is observed, so that drawing never asks for layout. */
export class Surface {
  /** @param {HTMLCanvasElement} canvas inside its parent @param {() => void} onresize */
  constructor(canvas, onresize) {
    const parent = /** @type {HTMLElement} */ (canvas.parentElement);
    this.canvas = canvas;
    this.g = /** @type {Ink} */ (canvas.getContext("2d"));
    this.w = this.h = 0; // CSS pixels
    this.d = 1; // device pixels per CSS pixel
    this.empty = true; // nothing was drawn since the last change of size
    const measure = () => {
      const d = Math.min(window.devicePixelRatio || 1, 3);
      const { clientWidth: w, clientHeight: hh } = parent;
      if (w === this.w && hh === this.h && d === this.d) return;
      [this.w, this.h, this.d] = [w, hh, d];
      this.empty = true;
      resize(canvas, Math.max(1, Math.round(w * d)), Math.max(1, Math.round(hh * d)));
      onresize();
    };
    this.measure = measure;
    new ResizeObserver(measure).observe(parent);
  }

  get visible() {
    return this.w > 4 && this.h > 4;
  }

  /** Clear the canvas and return its context, scaled to CSS pixels. */
  begin() {
    const { g, d } = this;
    this.empty = false;
    g.setTransform(d, 0, 0, d, 0, 0);
    g.globalAlpha = 1;
    g.clearRect(0, 0, this.w, this.h);
    return g;
  }
}

/** A view on a canvas in its panel, with a readout beside the panel's heading. */
export class CanvasView {
  /**
   * @param {HTMLElement} panel @param {ViewActions} actions @param {string} key selector of the
   * readout
   */
  constructor(panel, actions, canvas = "canvas", key = ".key") {
    /** @type {ViewState | null} */
    this.state = null; // the last state that was drawn
    this.panel = panel;
    this.actions = actions;
    this.key = find(panel, key);
    this.surface = new Surface(canvasIn(panel, canvas), actions.redraw);
    /**
     * @type {{stamp: string, run: Run | null, palette: Palette | null, canvas: HTMLCanvasElement}}
     */
    this._past = { stamp: "", run: null, palette: null, canvas: document.createElement("canvas") };
  }

  /** Implemented by each view. @param {ViewState} _state */
  draw(_state) {}

  /**
   * A picture of the step before: the canvas itself if it still shows that step, otherwise drawn
   * once per motion. Call this before the view draws or notes its state.
   * @param {ViewState} state @param {Frame} before @param {string} stamp what else the picture depends on
   */
  past(state, before, stamp = "") {
    const {
      surface: { w, h, d, canvas },
      _past: past,
    } = this;
    const { run, palette, focus, pass, frame } = state;
    const now = [
      state.index,
      w,
      h,
      d,
      state.language,
      state.layout,
      state.presenter,
      state.alone,
      focus ? focus.map((r) => r.index).join(" ") : "",
      pass?.index,
      stamp,
    ].join("/");
    if (past.stamp === now && past.run === run && past.palette === palette) return past.canvas;
    Object.assign(past, { stamp: now, run, palette });
    const last = before.passes.length - 1;
    const shown = pass && pass.index < frame.passes.length - 1 ? Math.min(pass.index, last) : last;
    if (!this._stillShows(state, before, before.passes[shown]))
      this.draw({
        ...state,
        frame: before,
        index: before.i,
        pass: before.passes[shown] || null,
        share: 1,
        hot: null,
        weights: { ...state.weights, found: null },
      });
    resize(past.canvas, canvas.width, canvas.height).drawImage(canvas, 0, 0);
    return past.canvas;
  }

  /**
   * Whether the canvas still shows the step before, at rest and with nothing highlighted.
   * @param {ViewState} state @param {Frame} before @param {Pass | undefined} pass
   */
  _stillShows(state, before, pass) {
    const was = this.state;
    if (!was || this.surface.empty || was.index !== before.i || was.pass?.index !== pass?.index)
      return false;
    const isLit = was.focus || state.focus || was.hot || was.weights.found || was.leak.on;
    if (isLit || (was.share ?? 1) < 1) return false;
    return /** @type {const} */ ([
      "run",
      "palette",
      "language",
      "layout",
      "presenter",
      "alone",
      "simple",
    ]).every((name) => was[name] === state[name]);
  }
}

/**
 * Give a canvas a new size in device pixels; returns its context, whose state is reset.
 * @type {(canvas: HTMLCanvasElement, width: number, height: number) => Ink}
 */
export function resize(canvas, width, height) {
  [canvas.width, canvas.height] = [width, height];
  const g = /** @type {Ink} */ (canvas.getContext("2d"));
  pens.delete(g);
  return g;
}

/** @typedef {{font: string, widths: Map<string, number>}} Pen a font and widths of texts in it */
/** @type {Map<string, Pen>} */
const fonts = new Map();
/** @type {WeakMap<CanvasRenderingContext2D, Pen>} */
const pens = new WeakMap(); // the current pen of each context

/** Set a context's font if it changes. @param {Ink} g @param {string} font */
export function setFont(g, font) {
  if (pens.get(g)?.font === font) return;
  g.font = font;
  const pen = fonts.get(font) || { font, widths: new Map() };
  fonts.set(font, pen);
  pens.set(g, pen);
}

/** The width of a text in the font that `setFont` has set. @param {Ink} g @param {string} text */
export function measure(g, text) {
  const { widths } = /** @type {Pen} */ (pens.get(g));
  let width = widths.get(text);
  if (width === undefined) {
    if (widths.size > 20000) widths.clear();
    width = g.measureText(text).width;
    widths.set(text, width);
  }
  return width;
}

/**
 * The longest beginning of a text that fits `width`, with an ellipsis if it was cut.
 * @type {(g: Ink, text: string, width: number) => string}
 */
export function shorten(g, text, width) {
  if (measure(g, text) <= width) return text;
  let cut = text;
  while (cut && measure(g, `${cut}…`) > width) cut = cut.slice(0, -1);
  return cut ? `${cut}…` : "";
}

/**
 * Draw within a rectangle only.
 * @type {(g: Ink, x: number, y: number, w: number, h: number, draw: () => void) => void}
 */
export function clipped(g, x, y, w, h, draw) {
  const pen = pens.get(g);
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  draw();
  g.restore(); // resets its font, too
  if (pen) pens.set(g, pen);
  else pens.delete(g);
}

/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** Whether a point lies in a rectangle. @param {Box} box @param {number} x @param {number} y */
export const isIn = (box, x, y) =>
  x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h;

/** @typedef {string | CanvasPattern} Fill */
/** @type {(g: Ink, colour: Fill, x: number, y: number, w: number, h: number) => void} */
export function fillBox(g, colour, x, y, w, h) {
  g.fillStyle = colour;
  g.fillRect(x, y, w, h);
}

/**
 * A rounded rectangle, filled, outlined or both. @param {Ink} g @param {Box} box @param {number}
 * radius @param {Fill | null} fill @param {string | null} stroke @param {number} line @param
 * {number[]} dash
 */
export function roundBox(g, { x, y, w, h }, radius, fill, stroke = null, line = 1.5, dash = []) {
  g.beginPath();
  g.roundRect(x, y, w, h, Math.max(0, Math.min(radius, w / 2, h / 2)));
  if (fill) {
    g.fillStyle = fill;
    g.fill();
  }
  if (!stroke) return;
  g.strokeStyle = stroke;
  g.lineWidth = line;
  g.setLineDash(dash);
  g.stroke();
  g.setLineDash([]);
}

/**
 * Outline a rectangle, dashed or not. @param {Ink} g @param {string} colour @param {number} line
 * @param {number} x @param {number} y @param {number} w @param {number} h @param {number[]} dash
 */
export function strokeBox(g, colour, line, x, y, w, h, dash = []) {
  g.strokeStyle = colour;
  g.lineWidth = line;
  g.setLineDash(dash);
  g.strokeRect(x, y, w, h);
  g.setLineDash([]);
}

/**
 * Outline a rectangle with the line inside it. @param {Ink} g @param {string} colour
 * @param {number} line @param {Box} box @param {number[]} [dash]
 */
export function frameBox(g, colour, line, { x, y, w, h }, dash) {
  strokeBox(g, colour, line, x + line / 2, y + line / 2, w - line, h - line, dash);
}
