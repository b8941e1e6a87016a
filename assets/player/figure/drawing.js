// Drawings: figures that show what no view of a run shows. A kind of drawing is a plain object whose functions depend on its data
// and state alone; here are the card around it and the pen that it draws with.

import { canvasIn, find, h, newButton, onDrag, pointIn, setAttr, setText } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { fillBox, roundBox, setFont, shorten, Surface } from "../parts/surface.js";
import { Card, rangeOf } from "./card.js";
import { visible } from "../run/passes.js";

const SMALL = 420; // pixels; narrower drawings are laid out for a phone

/**
 * A token as a drawing writes it. A piece without text, of the chat template or at the end of an
 * answer, is a dot. @param {string} piece
 */
export const shownPiece = (piece) => (piece ? visible(piece) : "·");

export class Pen {
  /** @param {Ink} g @param {number} w @param {number} h @param {Palette} palette */
  constructor(g, w, h, palette) {
    this.g = g;
    this.w = w;
    this.h = h;
    this.palette = palette;
    this.small = w < SMALL;
  }

  /** @param {number} px @param {number} weight @param {boolean} mono */
  font(px, weight = 400, mono = false) {
    setFont(
      this.g,
      `${weight} ${Math.round(px)}px ${mono ? this.palette.mono : this.palette.sans}`,
    );
  }

  /**
   * @param {string} words @param {number} x @param {number} y its middle @param {string} colour
   * @param {CanvasTextAlign} align
   */
  text(words, x, y, colour = this.palette.ink, align = "left") {
    const { g } = this;
    g.fillStyle = colour;
    g.textAlign = align;
    g.textBaseline = "middle";
    g.fillText(words, x, y);
    g.textAlign = "left";
  }

  /** @param {string} words @param {number} width */
  fit(words, width) {
    return shorten(this.g, words, width);
  }

  /**
   * @param {number} x @param {number} y @param {number} w @param {number} h
   * @param {string | CanvasPattern | null} fill @param {number} r radius of its corners
   * @param {string | null} stroke
   */
  box(x, y, w, h, fill, r = 3, stroke = null) {
    if (w <= 0 || h <= 0) return;
    if (r <= 1 && fill && !stroke) return fillBox(this.g, fill, x, y, w, h);
    roundBox(this.g, { x, y, w, h }, r, fill, stroke);
  }

  /** @param {number[][]} points @param {string} colour @param {number[]} dash */
  line(points, colour, dash = [], width = 1.5) {
    const { g } = this;
    g.strokeStyle = colour;
    g.lineWidth = width;
    g.setLineDash(dash);
    g.beginPath();
    points.forEach(([x, y], i) => (i ? g.lineTo(x, y) : g.moveTo(x, y)));
    g.stroke();
    g.setLineDash([]);
  }

  /**
   * Draw a straight line. @param {number} x0 @param {number} y0 @param {number} x1
   * @param {number} y1 @param {string} colour @param {number[]} [dash] @param {number} [width]
   */
  rule(x0, y0, x1, y1, colour, dash, width) {
    const ends = [x0, y0, x1, y1];
    this.line([ends.slice(0, 2), ends.slice(2)], colour, dash, width);
  }

  /** Draw with less opacity. @param {number} alpha @param {() => void} act */
  faded(alpha, act) {
    if (alpha <= 0.01) return;
    const { g } = this;
    const was = g.globalAlpha;
    g.globalAlpha = was * Math.min(1, alpha);
    act();
    g.globalAlpha = was;
  }

  /**
   * Draw a request's letter in its colours. @param {string} letter @param {number} hue
   * @param {number} x @param {number} y its middle @param {number} size
   */
  chip(letter, hue, x, y, size = 18) {
    const { palette } = this;
    this.box(x, y - size / 2, size, size, palette.hues[hue].tint, 4, palette.hues[hue].solid);
    this.font(size * 0.66, 700, true);
    this.text(letter, x + size / 2, y + 0.5, palette.ink, "center");
  }
}

export class Drawing extends Card {
  /**
   * @param {HTMLElement} root
   * @param {DrawingKind} kind
   * @param {Json} data what it draws, computed from recorded runs
   * @param {import("./card.js").CardOptions} options
   */
  constructor(root, kind, data, options) {
    super(root, kind.slider(data), options);
    this.kind = kind;
    this.data = data;
    this.body.append(h("div", { class: "canvas drawn" }, h("canvas", { role: "img" })));
    this.surface = new Surface(canvasIn(this.body), () => this.redraw());
    if (kind.switches) this._switches(kind.switches);
    if (kind.point) this._points(kind.point);
    this.knobs = (kind.knobs?.(data) || []).map((knob) => this._knob(knob));
    if (!this.knobs.length) return;
    root.classList.add("knobbed");
    find(root, ".figure-hand").replaceWith(
      h("div", { class: "figure-knobs plain" }, ...this.knobs.map(({ label }) => label)),
      h("div", { class: "figure-foot flex wrap between" }, this.says, this.back),
    );
    this._drags();
  }

  /** A slider with its label. @param {Knob} knob */
  _knob({ key, says, ...slider }) {
    const words = h("span", {});
    const range = rangeOf(slider, (n) => this.take({ [key]: n }));
    return { key, says, words, range, label: h("label", {}, words, range) };
  }

  _drags() {
    const { surface, kind, data } = this;
    const { canvas } = surface;
    const found = (/** @type {PointerEvent} */ e) =>
      kind.grab?.(...pointIn(canvas, e), this.now(), data, surface) || null;
    onDrag(canvas, (e) => {
      const key = found(e);
      const { drag } = kind;
      const from = { ...this.now() };
      if (!key || !drag) return null;
      return ({ clientX }) =>
        this.take({ [key]: drag(key, clientX - e.clientX, from, data, surface) });
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!e.buttons) canvas.style.cursor = found(e) ? "ew-resize" : "";
    });
  }

  /**
   * Add buttons for a state of two or three values: in place of the slider if it sets the same
   * state, otherwise beside it. @param {NonNullable<DrawingKind["switches"]>} switches
   */
  _switches({ key, words }) {
    const alone = key === this.slider.key;
    this.root.classList.toggle("switched", alone);
    this.buttons = words.map((word, n) =>
      newButton(
        { class: "button", "aria-pressed": "false", onclick: () => this.turn({ [key]: n }) },
        t(word),
      ),
    );
    this.tools.append(...this.buttons);
  }

  /** Change the state by hand, in a short motion. @param {DrawingState} change */
  turn(change) {
    const from = this.now();
    this.take(change);
    this.glideFrom(from);
  }

  /** Let the pointer choose in the picture. @param {NonNullable<DrawingKind["point"]>} point */
  _points(point) {
    const { canvas } = this.surface;
    const find = (/** @type {MouseEvent} */ e) => {
      const { w, h } = this.surface;
      const size = { w, h, small: w < SMALL };
      const found = point(...pointIn(canvas, e), this.now(), this.data, size);
      if (found) this.take(found);
    };
    canvas.addEventListener("pointermove", (e) => {
      if (e.pointerType === "mouse" || e.buttons) find(e);
    });
    canvas.addEventListener("click", find);
  }

  /** @param {DrawingState} state */
  settled(state) {
    return this.kind.settled ? this.kind.settled(state) : state;
  }

  /** @param {DrawingState} state */
  paint(state) {
    const { surface, kind, data } = this;
    const said = kind.says(state, data);
    if (!surface.visible) return said;
    kind.draw(new Pen(surface.begin(), surface.w, surface.h, this.palette), state, data);
    setAttr(surface.canvas, "aria-label", said);
    this.root.classList.toggle("reckoned", kind.isMeasured?.(state) === false);
    const chosen = kind.switches && Math.round(Number(state[kind.switches.key] || 0));
    this.buttons?.forEach((button, n) => {
      setAttr(button, "aria-pressed", String(n === chosen));
      button.classList.toggle("on", n === chosen);
    });
    for (const { key, says, words, range } of this.knobs) {
      const n = Number(state[key]);
      setText(words, says(n));
      range.value = String(n);
      setAttr(range, "aria-label", words.textContent || "");
    }
    return said;
  }
}
