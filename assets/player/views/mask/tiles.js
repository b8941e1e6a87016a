// A mask whose cells do not fit, as tiles by difference arrays in O(rows + pixels). Knows the geometry that it is given.

import { dims, rgbOf } from "../../parts/colours.js";
import { itemAt } from "../../run/passes.js";
import { coverTiles } from "./geometry.js";

/** canvas: the tiles as they were drawn last, a pixel each. Its buffers are made once and as large as were needed. */
export class Tiles {
  constructor() {
    this.canvas = document.createElement("canvas");
    this._image = null;
    this._shares = new Float32Array(0);
  }

  /** How much of each pixel is allowed, from the ends of row intervals alone. d: pixels of the device in one of the page. */
  ink(g, palette, at, pass, items, window, focus, d) {
    const [, q1, k0, k1] = at.view;
    const areaW = at.x(k1) - at.gutter;
    const areaH = at.y(q1) - at.top;
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
        const alpha = share <= 1e-3 ? 0 : weight[x] * (share >= 0.999 ? 1 : 0.3 + 0.7 * share); // the least allowed tile is seen
        pixels[y * W + x] = alpha ? ((alpha * 255) << 24) | colour[x] : 0;
      }
    }
    this.canvas.getContext("2d").putImageData(image, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(this.canvas, at.gutter, at.top, areaW, areaH);
  }

  /** An image of this size, and room for the share of each of its pixels. */
  _sized(W, H) {
    const canvas = this.canvas;
    if (!this._image || canvas.width !== W || canvas.height !== H) {
      [canvas.width, canvas.height] = [W, H];
      this._image = canvas.getContext("2d").createImageData(W, H);
    }
    if (this._shares.length < W * H) this._shares = new Float32Array(W * H);
    return this._image;
  }
}
