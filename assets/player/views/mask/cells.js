// Draws the cells of a mask: exact, or by attention weight if requested, or as tiles if they do not
// fit. It works on a given geometry, without labels and pointers.

import { dims, rgbOf } from "../../parts/colours.js";
import { clamp } from "../../parts/dom.js";
import { allowedKeys, itemAt } from "../../run/passes.js";
import { coverTiles } from "./geometry.js";

/**
 * Fill the cells of a request's rows and the keys from ≤ k < end, as far as they are in sight.
 * @param {MaskSheet} sheet @param {PassItem} item @param {number} from @param {number} end
 */
export function fillKeys({ g, at }, { q0: top, pads, length }, from, end) {
  const [q0, q1, k0, k1] = at.view;
  const first = top + pads;
  const [x, y] = [at.x(clamp(from, k0, k1)), at.y(Math.max(first, q0))];
  g.fillRect(x, y, at.x(clamp(end, k0, k1)) - x, at.y(Math.min(first + length, q1)) - y);
}

/** Draw the allowed cells: cached keys pale, new ones full. @param {MaskSheet} sheet */
export function inkCells({ g, palette, at, items, window, focus, reach }) {
  const [q0, q1, k0, k1] = at.view;
  for (const item of items) {
    if (!item.length) continue;
    const colours = palette.ofItem(item);
    g.globalAlpha = dims(focus, item.request) ? 0.2 : 1;
    const first = item.q0 + item.pads;
    const cachedEnd = clamp(item.k0 + item.start, k0, k1);
    const from = Math.max(first, q0);
    const to = Math.min(first + item.length, q1);
    for (const cached of [true, false]) {
      g.fillStyle = cached ? colours.cached : colours.solid;
      for (let q = from; q < to; q += 1) {
        const [a, b] = allowedKeys(item, q, window) || [0, 0];
        const left = Math.max(a, cached ? k0 : cachedEnd);
        const end = Math.min(b, cached ? cachedEnd : k1);
        if (end <= left) continue;
        const [x, y] = [at.x(left), at.y(q)];
        let right = at.x(end);
        if (reach) {
          const begin = at.x(Math.max(a, k0));
          right = Math.min(right, begin + (at.x(Math.min(b, k1)) - begin) * reach(q));
        }
        if (right > x) g.fillRect(x, y, right - x, at.y(q + 1) - y);
      }
    }
  }
  g.globalAlpha = 1;
}

/** Draw what a leak allows as well: the next request's keys. @param {MaskSheet} sheet */
export function inkLeaks(sheet) {
  const { g, palette, items, focus } = sheet;
  g.fillStyle = palette.warn;
  for (const item of items) {
    const { request, leak } = item;
    g.globalAlpha = dims(focus, request) ? 0.2 : 1;
    if (leak) fillKeys(sheet, item, leak.k0, leak.k0 + leak.kvLen);
  }
  g.globalAlpha = 1;
}

/**
 * Draw the allowed cells, each as strong as its weight relative to the strongest in its row; of
 * keys that share a column of pixels, the strongest is drawn. withoutFirst: a request's first token
 * is grey, and not on this scale.
 * @param {MaskSheet} sheet @param {NonNullable<WeightsState["found"]>} weights
 * @param {boolean} withoutFirst
 */
export function inkWeights({ g, palette, at, items, window, focus }, weights, withoutFirst) {
  const [q0, q1, k0, k1] = at.view;
  for (const item of items) {
    const found = weights.get(item.request.id);
    if (!item.length || !found) continue;
    const colours = palette.ofItem(item);
    const strength = dims(focus, item.request) ? 0.2 : 1;
    const first = item.q0 + item.pads;
    for (let q = Math.max(first, q0); q < Math.min(first + item.length, q1); q += 1) {
      const row = found.weights[q - first];
      const [a, b] = allowedKeys(item, q, window) || [0, 0];
      const onScale = item.k0 + Number(withoutFirst); // the first key on the scale
      const most = row.reduce((m, w, n) => (item.k0 + n < onScale ? m : Math.max(m, w)), 1e-6);
      const [y, height] = [at.y(q), at.y(q + 1) - at.y(q)];
      const [left, end] = [Math.max(a, k0), Math.min(b, k1)];
      if (end <= left) continue;
      const scaled = at.x(Math.min(Math.max(left, onScale), end));
      g.globalAlpha = strength;
      g.fillStyle = palette.soft;
      g.fillRect(at.x(left), y, scaled - at.x(left), height);
      g.fillStyle = colours.tint;
      g.fillRect(scaled, y, at.x(end) - scaled, height);
      g.fillStyle = colours.solid;
      let [x, here] = [scaled, 0];
      for (let k = Math.max(left, onScale); k < end; k += 1) {
        here = Math.max(here, row[k - item.k0] || 0);
        const right = at.x(k + 1);
        if (right === x) continue;
        g.globalAlpha = strength * Math.sqrt(here / most);
        g.fillRect(x, y, right - x, height);
        [x, here] = [right, 0];
      }
    }
  }
  g.globalAlpha = 1;
}

/** A mask as tiles. canvas: the tiles drawn last, a pixel each. Buffers are kept, and may grow. */
export class Tiles {
  constructor() {
    this.canvas = document.createElement("canvas");
    this._g = /** @type {Ink} */ (this.canvas.getContext("2d"));
    /** @type {ImageData | null} */
    this._image = null;
    this._shares = new Float32Array(0);
    /** @type {unknown[]} */
    this._of = []; // what the tiles were made from
  }

  /**
   * Draw how much of each pixel is allowed, from the ends of row intervals alone. d: device pixels
   * per CSS pixel; grown: the share of rows that are drawn.
   * @param {MaskSheet} sheet @param {number} d @param {number} grown
   */
  ink(sheet, d, grown) {
    const { g, palette, at, pass, window, focus } = sheet;
    const [, q1, , k1] = at.view;
    const [areaW, areaH] = [at.x(k1) - at.gutter, at.y(q1) - at.top];
    const of = [palette, pass, window, focus, d, areaW, areaH, ...at.view];
    // while they grow, frame by frame, the tiles stay as they were made
    if (grown === 1 || of.some((x, n) => x !== this._of[n])) this._make(sheet, d);
    this._of = of;
    const { canvas } = this;
    const rows = Math.round(canvas.height * grown);
    g.imageSmoothingEnabled = false;
    const height = (areaH * rows) / canvas.height;
    if (rows) g.drawImage(canvas, 0, 0, canvas.width, rows, at.gutter, at.top, areaW, height);
  }

  /** @param {MaskSheet} sheet @param {number} d */
  _make({ palette, at, pass, items, window, focus }, d) {
    const [, q1, k0, k1] = at.view;
    const [areaW, areaH] = [at.x(k1) - at.gutter, at.y(q1) - at.top];
    const scale = d > 1 && areaW * areaH * d * d > 400000 ? 1 : d;
    const W = Math.max(1, Math.min(Math.round(areaW * scale), at.cols));
    const H = Math.max(1, Math.min(Math.round(areaH * scale), at.rows));
    const image = this._sized(W, H);
    const pixels = new Uint32Array(image.data.buffer);
    coverTiles(items, at.view, window, W, H, this._shares);
    const sx = W / at.cols;
    const colour = new Uint32Array(W);
    const weight = new Float32Array(W);
    for (let x = 0; x < W; x += 1) {
      const k = Math.min(k1 - 1, k0 + Math.floor((x + 0.5) / sx));
      const item = itemAt(pass, k, "k");
      const { cached, solid } = palette.ofItem(item);
      const [r, gr, b] = rgbOf(k - item.k0 < item.start ? cached : solid);
      colour[x] = (b << 16) | (gr << 8) | r;
      weight[x] = dims(focus, item.request) ? 0.2 : 1;
    }
    for (let y = 0; y < H; y += 1) {
      for (let x = 0; x < W; x += 1) {
        const share = this._shares[y * W + x];
        // even the least allowed tile is visible
        const alpha = share <= 1e-3 ? 0 : weight[x] * (share >= 0.999 ? 1 : 0.3 + 0.7 * share);
        pixels[y * W + x] = alpha ? ((alpha * 255) << 24) | colour[x] : 0;
      }
    }
    this._g.putImageData(image, 0, 0);
  }

  /** An image of this size, and the shares of its pixels. @param {number} W @param {number} H */
  _sized(W, H) {
    const canvas = this.canvas;
    if (!this._image || canvas.width !== W || canvas.height !== H) {
      [canvas.width, canvas.height] = [W, H];
      this._image = this._g.createImageData(W, H);
    }
    if (this._shares.length < W * H) this._shares = new Float32Array(W * H);
    return this._image;
  }
}
