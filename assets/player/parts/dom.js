// Small helpers around the DOM and canvases. Knows nothing of runs. Everything shown goes through textContent or fillText.

export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") el.className = value;
    else if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.filter((c) => c !== null && c !== undefined));
  return el;
}

/** An icon from the sprite in player.html. */
export function icon(name) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(ns, "use");
  use.setAttribute("href", `#inflight-${name}`);
  svg.append(use);
  return svg;
}

/** Set text only where it changes: an unchanged node costs no layout. */
export function setText(el, text) {
  if (el._text !== text) {
    el._text = text;
    el.textContent = text;
  }
}

export function setAttr(el, name, value) {
  const key = `_attr_${name}`;
  if (el[key] !== value) {
    el[key] = value;
    el.setAttribute(name, value);
  }
}

/** 12,345: `toLocaleString` would cost more than all the rest of a step. */
export const count = (n) => (n < 1000 ? String(n) : String(n).replace(/\B(?=(\d{3})+$)/g, ","));
export const plural = (n, word, many = `${word}s`) => `${count(n)} ${n === 1 ? word : many}`;
export const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

export function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 10000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms >= 100 ? Math.round(ms) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)} ms`;
}

/** A canvas that fills its parent: its size is observed, so that drawing never asks for layout. */
export class Surface {
  constructor(canvas, onresize) {
    this.canvas = canvas;
    this.g = canvas.getContext("2d");
    this.w = this.h = 0; // CSS pixels
    this.d = 1; // device pixels per CSS pixel
    const measure = () => {
      const d = Math.min(window.devicePixelRatio || 1, 3);
      const { clientWidth: w, clientHeight: hh } = canvas.parentElement;
      if (w === this.w && hh === this.h && d === this.d) return;
      [this.w, this.h, this.d] = [w, hh, d];
      canvas.width = Math.max(1, Math.round(w * d));
      canvas.height = Math.max(1, Math.round(hh * d));
      this.g._font = null; // a new size forgets the state
      onresize();
    };
    this.measure = measure;
    new ResizeObserver(measure).observe(canvas.parentElement);
  }

  get visible() {
    return this.w > 4 && this.h > 4;
  }

  /** Clear and return the context, scaled to CSS pixels. */
  begin() {
    const { g, d } = this;
    g.setTransform(d, 0, 0, d, 0, 0);
    g.globalAlpha = 1;
    g.clearRect(0, 0, this.w, this.h);
    return g;
  }
}

/** Set a context's font where it changes; the widths of texts are remembered by font. */
const fonts = new Map();
export function setFont(g, font) {
  if (g._font === font) return;
  g._font = g.font = font;
  if (!fonts.has(font)) fonts.set(font, new Map());
  g._widths = fonts.get(font);
}

export function measure(g, text) {
  let width = g._widths.get(text);
  if (width === undefined) {
    if (g._widths.size > 20000) g._widths.clear();
    width = g.measureText(text).width;
    g._widths.set(text, width);
  }
  return width;
}

/** The longest beginning that fits `width`, with an ellipsis where it was cut. */
export function shorten(g, text, width) {
  if (measure(g, text) <= width) return text;
  let cut = text;
  while (cut && measure(g, `${cut}…`) > width) cut = cut.slice(0, -1);
  return cut ? `${cut}…` : "";
}
