// A canvas that follows its parent's size, and text measured once. Knows nothing of runs. Everything shown goes through fillText.

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
      resize(canvas, Math.max(1, Math.round(w * d)), Math.max(1, Math.round(hh * d)));
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

/** Give a canvas a new size, in device pixels; its context, which then forgets its state. */
export function resize(canvas, width, height) {
  [canvas.width, canvas.height] = [width, height];
  const g = canvas.getContext("2d");
  g._font = null;
  return g;
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
