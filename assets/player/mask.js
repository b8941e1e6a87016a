// The attention mask of one pass: queries down, keys across. Exact cells where they fit, else tiles by difference arrays in
// O(rows + pixels). Zoom, minimap and the words for a hovered cell. Derives who may look at whom from passes.js alone.

import { clamp, h, measure, plural, setAttr, setFont, setText, shorten, Surface } from "./dom.js";
import { allowedKeys, itemAt, overrunWords, visible } from "./passes.js";
import { rgbOf } from "./colours.js";
import { Weights } from "./weights.js";

const BAND = 22; // the letters above the keys
const KEY_TEXT = 46; // key tokens, written upwards where columns are wide enough
const MAX_CELL = [44, 46];

export class MaskView {
  constructor(panel, app) {
    this.app = app;
    this.panel = panel;
    this.key = panel.querySelector(".key");
    this.tools = panel.querySelector(".tools");
    this.surface = new Surface(panel.querySelector("canvas"), () => app.redraw());
    this.zoom = null; // {request} or {view: [q0, q1, k0, k1]}
    this.layer = null; // null: the widest window
    this.weights = new Weights(app);
    this._pointers();
  }

  pass(frame) {
    return frame.passes[this.app.passIndex(frame)] || null;
  }

  window() {
    const { windows } = this.app.run;
    if (this.layer !== null) return windows[this.layer];
    return windows.includes(null) ? null : Math.max(...windows);
  }

  reset() {
    this.zoom = null;
    this.layer = null;
    this.weights.reset();
  }

  zoomTo(request) {
    this.zoom = request && !(this.zoom && this.zoom.request === request) ? { request } : null;
    this.app.redraw();
    this.app.changed();
  }

  _view(pass) {
    const whole = [0, pass.nq, 0, pass.nk];
    if (!this.zoom) return whole;
    if (this.zoom.view) {
      const [a, b, c, e] = this.zoom.view;
      return b > pass.nq || e > pass.nk ? whole : [a, b, c, e];
    }
    const item = pass.items.find((x) => x.request === this.zoom.request && x.length);
    return item ? [item.q0, item.q0 + item.pads + item.length, item.k0, item.k0 + item.kvLen] : whole;
  }

  // -- geometry ------------------------------------------------------------------------------------------------------

  _layout(pass) {
    const { w, h: height, d } = this.surface;
    const view = this._view(pass);
    const [rows, cols] = [view[1] - view[0], view[3] - view[2]];
    const compact = w < 420;
    const big = this.app.presenter ? 1.5 : 1;
    const gutter = (compact ? 46 : 66) * big;
    const cw = Math.min(MAX_CELL[0] * big, (w - gutter) / cols);
    const words = height > 200 ? this._keyWords(pass, view, cw, big) : null;
    const top = BAND * big + (words ? words.room : 0);
    const ch = Math.min(MAX_CELL[1] * big, (height - top - 1) / rows);
    const exact = cw * d >= 1 && ch * d >= 1;
    const snap = (x) => Math.round(x * d) / d;
    return {
      view, rows, cols, gutter, top, cw, ch, exact, words, compact, big,
      x: (k) => snap(gutter + (k - view[2]) * cw),
      y: (q) => snap(top + (q - view[0]) * ch),
    };
  }

  /** The keys' tokens, where columns leave room: across if each fits its column, else upwards. */
  _keyWords(pass, view, cw, big) {
    if (cw < 9 * big) return null;
    const { run, palette } = this.app;
    const { g } = this.surface;
    setFont(g, `${11 * big}px ${palette.mono}`);
    const texts = [];
    for (const item of pass.items) {
      for (let k = Math.max(item.k0, view[2]); k < Math.min(item.k0 + item.kvLen, view[3]); k += 1) texts.push(visible(run.tokenText(item.request, k - item.k0), 7));
    }
    if (texts.every((t) => measure(g, t) <= cw - 1)) return { texts, across: true, room: 16 * big };
    return cw >= 13 * big ? { texts, across: false, room: KEY_TEXT * big } : null;
  }

  draw(frame) {
    const { surface, app } = this;
    const pass = this.pass(frame);
    this._tools(frame, pass);
    if (!surface.visible) return;
    const g = surface.begin();
    const { palette } = app;
    this.drawn = null;
    if (!pass) {
      setText(this.key, "");
      g.fillStyle = palette.soft;
      setFont(g, `13px ${palette.sans}`);
      g.fillText("Nothing was computed in this step.", 4, 24);
      return;
    }
    const at = this._layout(pass);
    const [q0, q1, k0, k1] = at.view;
    const right = at.x(k1);
    const bottom = at.y(q1);
    const window = this.window();
    const focus = app.focus;
    const items = pass.items.filter((i) => i.q0 < q1 && i.q0 + i.pads + i.length > q0);

    g.fillStyle = palette.empty;
    g.fillRect(at.gutter, at.top, right - at.gutter, bottom - at.top);
    // a request's own block, blocked or not, and the rows of pads
    for (const item of items) {
      const first = item.q0 + item.pads;
      if (item.length) {
        g.globalAlpha = focus && focus !== item.request ? 0.2 : 1;
        g.fillStyle = palette.ofItem(item).faint;
        const [x, y] = [at.x(clamp(item.k0, k0, k1)), at.y(Math.max(first, q0))];
        g.fillRect(x, y, at.x(clamp(item.k0 + item.kvLen, k0, k1)) - x, at.y(Math.min(first + item.length, q1)) - y);
        g.globalAlpha = 1;
      }
      if (item.pads && first > q0) {
        g.fillStyle = palette.hatch(g);
        const y = at.y(Math.max(item.q0, q0));
        g.fillRect(at.gutter, y, right - at.gutter, at.y(Math.min(first, q1)) - y);
      }
    }
    const weights = at.exact ? this.weights.of(frame, pass) : null;
    if (weights) this._weighed(g, at, items, window, focus, weights);
    else if (at.exact) this._cells(g, at, items, window, focus);
    else this._tiles(g, at, pass, items, window, focus);
    this._rules(g, at, items, right, bottom);
    this._labels(g, at, pass, items, focus);
    this._hot(g, at, pass, right, bottom);
    if (this.zoom) this._minimap(g, at, pass, right);

    const pads = pass.padding ? `, of them ${plural(pass.padding, "pad")}` : "";
    setText(this.key, `${plural(pass.nq, "query", "queries")}${pads} × ${plural(pass.nk, "key")}${at.exact ? "" : " · tiles"}`);
    setAttr(surface.canvas, "aria-label",
      `Attention mask, ${pass.nq} queries by ${pass.nk} keys, ${pass.items.filter((i) => i.length).length} requests on the diagonal${pads}`);
    this.drawn = { pass, at, window, weights };
  }

  _cells(g, at, items, window, focus) {
    const { palette } = this.app;
    const [q0, q1, k0, k1] = at.view;
    for (const item of items) {
      if (!item.length) continue;
      const colours = palette.ofItem(item);
      g.globalAlpha = focus && focus !== item.request ? 0.2 : 1;
      const first = item.q0 + item.pads;
      const cachedEnd = clamp(item.k0 + item.start, k0, k1);
      const from = Math.max(first, q0);
      const to = Math.min(first + item.length, q1);
      for (const cached of [true, false]) {
        g.fillStyle = cached ? colours.cached : colours.solid;
        for (let q = from; q < to; q += 1) {
          const [a, b] = allowedKeys(item, q, window);
          const left = Math.max(a, cached ? k0 : cachedEnd);
          const end = Math.min(b, cached ? cachedEnd : k1);
          if (end <= left) continue;
          const [x, y] = [at.x(left), at.y(q)];
          g.fillRect(x, y, at.x(end) - x, at.y(q + 1) - y);
        }
      }
    }
    g.globalAlpha = 1;
  }

  /** The allowed cells, each as strong as its weight against the strongest of its row. */
  _weighed(g, at, items, window, focus, weights) {
    const { palette } = this.app;
    const [q0, q1, k0, k1] = at.view;
    for (const item of items) {
      const found = weights.get(item.request.id);
      if (!item.length || !found) continue;
      const colours = palette.ofItem(item);
      const strength = focus && focus !== item.request ? 0.2 : 1;
      const first = item.q0 + item.pads;
      for (let q = Math.max(first, q0); q < Math.min(first + item.length, q1); q += 1) {
        const row = found.weights[q - first];
        const [a, b] = allowedKeys(item, q, window);
        const most = row.reduce((m, w) => Math.max(m, w), 1e-6);
        const [y, height] = [at.y(q), at.y(q + 1) - at.y(q)];
        const [left, end] = [Math.max(a, k0), Math.min(b, k1)];
        if (end <= left) continue;
        g.globalAlpha = strength;
        g.fillStyle = colours.tint;
        g.fillRect(at.x(left), y, at.x(end) - at.x(left), height);
        g.fillStyle = colours.solid;
        for (let k = left; k < end; k += 1) {
          g.globalAlpha = strength * Math.sqrt((row[k - item.k0] || 0) / most);
          g.fillRect(at.x(k), y, at.x(k + 1) - at.x(k), height);
        }
      }
    }
    g.globalAlpha = 1;
  }

  /** Tiles: how much of each pixel is allowed, from the ends of row intervals alone. */
  _tiles(g, at, pass, items, window, focus) {
    const { palette } = this.app;
    const { d } = this.surface;
    const [q0, q1, k0, k1] = at.view;
    const areaW = at.x(k1) - at.gutter;
    const areaH = at.y(q1) - at.top;
    const scale = d > 1 && areaW * areaH * d * d > 400000 ? 1 : d;
    const W = Math.max(1, Math.min(Math.round(areaW * scale), at.cols));
    const H = Math.max(1, Math.min(Math.round(areaH * scale), at.rows));
    const off = this._off || (this._off = document.createElement("canvas"));
    if (off.width !== W || off.height !== H) {
      [off.width, off.height] = [W, H];
      this._image = null;
    }
    const og = off.getContext("2d");
    const image = this._image || (this._image = og.createImageData(W, H));
    const pixels = new Uint32Array(image.data.buffer);
    const stride = W + 2;
    if (!this._cover || this._cover.length < stride * H) this._cover = new Float32Array(stride * H);
    const cover = this._cover.fill(0, 0, stride * H);
    const perRow = new Float32Array(H);
    const [sx, sy] = [W / at.cols, H / at.rows];
    for (let q = q0; q < q1; q += 1) perRow[Math.min(H - 1, ((q - q0) * sy) | 0)] += 1;
    for (const item of items) {
      const first = item.q0 + item.pads;
      for (let q = Math.max(first, q0); q < Math.min(first + item.length, q1); q += 1) {
        const position = item.start + q - first;
        const a = item.k0 + (window === null ? 0 : Math.max(0, position - window + 1));
        const x0 = Math.max(0, (a - k0) * sx);
        const x1 = Math.min(W, (item.k0 + position + 1 - k0) * sx);
        if (x1 <= x0) continue;
        const row = Math.min(H - 1, ((q - q0) * sy) | 0) * stride;
        const [i0, i1] = [x0 | 0, x1 | 0];
        const [f0, f1] = [x0 - i0, x1 - i1];
        cover[row + i0] += 1 - f0;
        cover[row + i0 + 1] += f0;
        cover[row + i1] -= 1 - f1;
        cover[row + i1 + 1] -= f1;
      }
    }
    const colour = new Uint32Array(W);
    const weight = new Float32Array(W);
    for (let x = 0; x < W; x += 1) {
      const k = Math.min(k1 - 1, k0 + Math.floor((x + 0.5) / sx));
      const item = itemAt(pass, k, "k");
      const { cached, solid } = palette.ofItem(item);
      const [r, gr, b] = rgbOf(k - item.k0 < item.start ? cached : solid);
      colour[x] = (b << 16) | (gr << 8) | r;
      weight[x] = focus && focus !== item.request ? 0.2 : 1;
    }
    for (let y = 0; y < H; y += 1) {
      let sum = 0;
      const norm = 1 / perRow[y];
      const [from, to] = [y * stride, y * W];
      for (let x = 0; x < W; x += 1) {
        sum += cover[from + x];
        const share = sum * norm;
        const alpha = share <= 1e-3 ? 0 : weight[x] * (share >= 0.999 ? 1 : 0.3 + 0.7 * share); // the least allowed tile is seen
        pixels[to + x] = alpha ? ((alpha * 255) << 24) | colour[x] : 0;
      }
    }
    og.putImageData(image, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(off, at.gutter, at.top, areaW, areaH);
  }

  /** Lines between cells where cells are large, between requests always. */
  _rules(g, at, items, right, bottom) {
    const { palette } = this.app;
    const [q0, q1, k0, k1] = at.view;
    g.beginPath();
    if (at.cw >= 4.5) for (let k = k0 + 1; k < k1; k += 1) {
      g.moveTo(at.x(k), at.top);
      g.lineTo(at.x(k), bottom);
    }
    if (at.ch >= 4.5) for (let q = q0 + 1; q < q1; q += 1) {
      g.moveTo(at.gutter, at.y(q));
      g.lineTo(right, at.y(q));
    }
    g.strokeStyle = palette.panel;
    g.globalAlpha = 0.55;
    g.lineWidth = 0.7;
    g.stroke();
    g.globalAlpha = 1;
    g.beginPath();
    g.lineWidth = 1;
    if (items.length <= 64) for (const item of items) {
      if (item.q0 > q0) {
        g.moveTo(at.gutter, at.y(item.q0));
        g.lineTo(right, at.y(item.q0));
      }
      if (item.kvLen && item.k0 > k0 && item.k0 < k1) {
        g.moveTo(at.x(item.k0), at.top);
        g.lineTo(at.x(item.k0), bottom);
      }
    }
    g.stroke();
  }

  _labels(g, at, pass, items, focus) {
    const { run, palette } = this.app;
    const [q0, q1, k0, k1] = at.view;
    g.textBaseline = "middle";
    // keys: a band of letters, and the tokens themselves where there is room
    let word = 0;
    for (const item of pass.items) {
      if (!item.kvLen || item.k0 >= k1 || item.k0 + item.kvLen <= k0) continue;
      const x = at.x(Math.max(item.k0, k0));
      const width = at.x(Math.min(item.k0 + item.kvLen, k1)) - x;
      const colours = palette.ofItem(item);
      g.globalAlpha = focus && focus !== item.request ? 0.2 : 1;
      g.fillStyle = colours.tint;
      g.fillRect(x, 0, Math.max(width - 1, 0.5), (BAND - 4) * at.big);
      g.fillStyle = colours.solid;
      g.fillRect(x, (BAND - 5) * at.big, Math.max(width - 1, 0.5), 1.5);
      setFont(g, `700 ${12 * at.big}px ${palette.mono}`);
      g.fillStyle = palette.ink;
      g.textAlign = "left";
      if (width > measure(g, item.request.letter) + 2) g.fillText(item.request.letter, x + Math.min(5, (width - measure(g, item.request.letter)) / 2), 9 * at.big);
      if (at.words) {
        setFont(g, `${11 * at.big}px ${palette.mono}`);
        for (let k = Math.max(item.k0, k0); k < Math.min(item.k0 + item.kvLen, k1); k += 1) {
          const middle = (at.x(k) + at.x(k + 1)) / 2;
          const text = at.words.texts[word];
          word += 1;
          if (at.words.across) {
            g.fillText(text, middle - measure(g, text) / 2, at.top - 8 * at.big);
            continue;
          }
          g.save();
          g.translate(middle, at.top - 5);
          g.rotate(-Math.PI / 2);
          g.fillText(shorten(g, text, at.words.room - 6), 0, 0);
          g.restore();
        }
      }
    }
    // queries: words from 9 px a row, else one letter a request
    g.textAlign = "right";
    const end = at.gutter - 7;
    let lettered = -Infinity;
    for (const item of items) {
      g.globalAlpha = focus && focus !== item.request ? 0.2 : 1;
      const first = item.q0 + item.pads;
      const [top, bottom] = [at.y(Math.max(item.q0, q0)), at.y(Math.min(first + item.length, q1))];
      g.fillStyle = palette.ofItem(item).solid;
      g.fillRect(at.gutter - 4, top + 0.5, 2.5, Math.max(1, bottom - top - 1));
      g.fillStyle = palette.ink;
      if (at.ch >= 9 * at.big && !at.compact) {
        setFont(g, `${11 * at.big}px ${palette.mono}`);
        for (let q = Math.max(first, q0); q < Math.min(first + item.length, q1); q += 1) {
          const text = visible(run.tokenText(item.request, item.start + q - first), 8);
          g.fillText(shorten(g, text, end - 2), end, at.y(q) + at.ch / 2);
        }
        if (item.pads && first > q0) {
          g.fillStyle = palette.soft;
          const y = (at.y(Math.max(item.q0, q0)) + at.y(Math.min(first, q1))) / 2;
          g.fillText(item.pads === 1 ? "pad" : `${item.pads} pads`, end, y);
        }
      } else if ((top + bottom) / 2 - lettered >= 11 * at.big) { // letters of one-row requests keep clear of each other
        lettered = (top + bottom) / 2;
        setFont(g, `700 ${12 * at.big}px ${palette.mono}`);
        const letter = item.request.letter;
        const pads = item.pads && bottom - top >= 26 ? `${item.pads} pad` : "";
        g.fillText(letter, end, (top + bottom) / 2 - (pads ? 7 : 0));
        if (pads && !at.compact) {
          setFont(g, `11px ${palette.mono}`);
          g.fillStyle = palette.soft;
          g.fillText(pads, end, (top + bottom) / 2 + 7);
        }
      }
    }
    g.globalAlpha = 1;
    g.textAlign = "left";
  }

  /** The hovered token, here or in any other view: its row, its column. */
  _hot(g, at, pass, right, bottom) {
    const { hot, palette } = this.app;
    if (!hot) return;
    const [q0, q1, k0, k1] = at.view;
    const item = pass.items.find((i) => i.request === hot.request && i.length);
    g.strokeStyle = palette.ink;
    g.lineWidth = 1.2;
    const row = hot.row ?? (item && hot.q !== undefined ? item.q0 + item.pads + hot.q - item.start : undefined);
    const isQuery = row !== undefined && row >= q0 && row < q1 && (hot.row !== undefined || (hot.q >= item.start && hot.q < item.kvLen));
    if (isQuery) g.strokeRect(at.gutter + 0.5, at.y(row), right - at.gutter - 1, Math.max(1, at.y(row + 1) - at.y(row)));
    let range = null;
    if (hot.column !== undefined) range = [hot.column, hot.column + 1];
    else if (item && hot.keys) range = [item.k0 + hot.keys[0], item.k0 + Math.min(hot.keys[1], item.kvLen)];
    if (range && range[0] < k1 && range[1] > k0 && range[1] > range[0]) {
      const x = at.x(Math.max(range[0], k0));
      g.strokeRect(x, at.top + 0.5, Math.max(1, at.x(Math.min(range[1], k1)) - x), bottom - at.top - 1);
    }
  }

  _minimap(g, at, pass, right) {
    const { palette } = this.app;
    const [w, height] = [104, 72];
    const [x, y] = [Math.min(this.surface.w, Math.max(right, at.gutter + 160)) - w - 6, at.top + 6];
    g.globalAlpha = 0.94;
    g.fillStyle = palette.panel;
    g.fillRect(x - 3, y - 3, w + 6, height + 6);
    g.globalAlpha = 1;
    g.strokeStyle = palette.rule;
    g.lineWidth = 1;
    g.strokeRect(x - 3, y - 3, w + 6, height + 6);
    const [sx, sy] = [w / pass.nk, height / pass.nq];
    for (const item of pass.items) {
      if (!item.length) continue;
      const top = y + (item.q0 + item.pads) * sy;
      const left = x + item.k0 * sx;
      g.fillStyle = palette.ofItem(item).solid;
      g.beginPath();
      g.moveTo(left, top);
      g.lineTo(left + Math.max(1, (item.start + 1) * sx), top);
      g.lineTo(left + Math.max(1, item.kvLen * sx), top + Math.max(1, item.length * sy));
      g.lineTo(left, top + Math.max(1, item.length * sy));
      g.fill();
    }
    const [q0, q1, k0, k1] = at.view;
    g.strokeStyle = palette.ink;
    g.lineWidth = 1.5;
    g.strokeRect(x + k0 * sx, y + q0 * sy, (k1 - k0) * sx, (q1 - q0) * sy);
    this._mini = { x, y, w, h: height };
  }

  _tools(frame, pass) {
    const { app } = this;
    const pinned = app.pinned;
    const zoomable = pinned && pass && pass.items.some((i) => i.request === pinned && i.length);
    const windows = new Set(app.run.windows);
    const signature = JSON.stringify([frame.passes.length, app.passIndex(frame), frame.passes.map((p) => p.items.length + p.layout),
      zoomable && pinned.letter, Boolean(this.zoom), this.layer, app.run.windows, this.weights.signature]);
    if (signature === this._signature) return;
    this._signature = signature;
    const buttons = [];
    if (frame.passes.length > 1) {
      frame.passes.forEach((p, i) => {
        const what = p.padded ? "decode" : p.items.map((x) => x.request.letter).join(" ");
        buttons.push(h("button", {
          type: "button", class: "mini", "aria-pressed": String(i === app.passIndex(frame)), title: `Pass ${i + 1} of ${frame.passes.length}`,
          onclick: () => app.choosePass(i, frame),
        }, `${i + 1} ${what}`));
      });
    }
    if (windows.size > 1) {
      const select = h("select", { class: "mini", "aria-label": "Layer", onchange: () => {
        this.layer = select.value === "" ? null : Number(select.value);
        app.redraw();
      } }, h("option", { value: "" }, "widest layer"), ...app.run.windows.map((w, i) => h("option", { value: String(i) }, `layer ${i}: ${w === null ? "full" : `window ${w}`}`)));
      select.value = this.layer === null ? "" : String(this.layer);
      buttons.push(select);
    }
    if (this.zoom) buttons.push(h("button", { type: "button", class: "mini", onclick: () => { this.zoom = null; app.redraw(); app.changed(); } }, "Whole mask"));
    else if (zoomable) buttons.push(h("button", { type: "button", class: "mini", onclick: () => this.zoomTo(pinned) }, `Zoom to ${pinned.letter}`));
    this.tools.replaceChildren(...buttons, ...this.weights.controls());
  }

  // -- pointing ------------------------------------------------------------------------------------------------------

  cellAt(x, y) {
    if (!this.drawn) return null;
    const { at, pass } = this.drawn;
    const [q0, q1, k0, k1] = at.view;
    const q = Math.floor(q0 + (y - at.top) / at.ch);
    const k = Math.floor(k0 + (x - at.gutter) / at.cw);
    const inRows = q >= q0 && q < q1;
    const inCols = k >= k0 && k < k1;
    return { q, k, inRows, inCols, pass, band: y < at.top, side: x < at.gutter };
  }

  /** Why a cell is allowed or blocked, in words. */
  explain(q, k) {
    const { run } = this.app;
    const { pass, window } = this.drawn;
    const query = itemAt(pass, q, "q");
    const key = itemAt(pass, k, "k");
    const offset = q - query.q0 - query.pads;
    const keyPosition = k - key.k0;
    const keyWords = [{ request: key.request }, ` token ${keyPosition} “${visible(run.tokenText(key.request, keyPosition), 24)}”, ${keyPosition < key.start ? "cached" : "new"}`];
    if (offset < 0) {
      const why = query.finished ? " has finished; its row is computed as padding until the wave ends" : " is shorter than this pass is wide";
      return { request: query.request, allowed: false, reason: "padding", lines: [["Pad: ", { request: query.request }, why], ["Blocked: a pad looks at nothing and nothing looks at it"]] };
    }
    const position = query.start + offset;
    const lines = [
      ["Query ", { request: query.request }, ` token ${position} “${visible(run.tokenText(query.request, position), 24)}”, ${query.phase}`],
      ["Key ", ...keyWords],
    ];
    let reason;
    if (query.request !== key.request) reason = "another request";
    else if (keyPosition > position) reason = "the future";
    else if (window !== null && position - keyPosition >= window) reason = "outside the window";
    const words = {
      "another request": "Blocked: the key belongs to another request",
      "the future": `Blocked: the key is ${plural(keyPosition - position, "token")} in the future`,
      "outside the window": `Blocked: ${position - keyPosition} tokens back, outside the window of ${window}`,
    };
    const allowed = reason === undefined;
    const how = keyPosition === position ? "itself" : `${plural(position - keyPosition, "token")} back`;
    if (query.overrun) lines.push(overrunWords(query));
    lines.push([allowed ? `Allowed: ${how}, ${keyPosition < query.start ? "read from the cache" : "computed in this pass"}` : words[reason]]);
    const weighed = allowed && this.drawn.weights && this.drawn.weights.get(query.request.id);
    if (weighed) lines.push([`Weight ${weighed.weights[offset][keyPosition]} in layer ${this.weights.layer}, head ${this.weights.head}`]);
    return { request: query.request, allowed, reason: reason || "allowed", lines, position, keyPosition };
  }

  hit(x, y) {
    const cell = this.cellAt(x, y);
    if (!cell) return null;
    if (cell.band && cell.inCols) {
      const item = itemAt(cell.pass, cell.k, "k");
      return { request: item.request, lines: [[{ request: item.request }, ` ${plural(item.kvLen, "key")}: ${item.start} cached, ${item.length} new`]] };
    }
    if (!cell.inRows) return null;
    if (cell.side) {
      const item = itemAt(cell.pass, cell.q, "q");
      return { request: item.request, hot: { request: item.request, row: cell.q }, lines: [[{ request: item.request }, ` ${plural(item.length, "query", "queries")}, ${item.phase}`], ...(item.overrun ? [overrunWords(item)] : [])] };
    }
    if (!cell.inCols) return null;
    const said = this.explain(cell.q, cell.k);
    const hot = { request: said.request, row: cell.q, column: cell.k, q: said.position };
    if (said.allowed) hot.keys = [said.keyPosition, said.keyPosition + 1];
    return { request: said.request, hot, lines: said.lines };
  }

  _pointers() {
    const { canvas } = this.surface;
    canvas.addEventListener("wheel", (e) => {
      if (!this.drawn) return;
      e.preventDefault();
      const { at, pass } = this.drawn;
      const [q0, q1, k0, k1] = at.view;
      const f = e.deltaY > 0 ? 1.25 : 0.8;
      const span = (a, b, share, n) => {
        const size = clamp(Math.round((b - a) * f) || 1, Math.min(4, n), n);
        const from = clamp(Math.round(a + (b - a - size) * share), 0, n - size);
        return [from, from + size];
      };
      const r = canvas.getBoundingClientRect();
      const sx = clamp((e.clientX - r.left - at.gutter) / (at.cw * at.cols), 0, 1);
      const sy = clamp((e.clientY - r.top - at.top) / (at.ch * at.rows), 0, 1);
      const view = [...span(q0, q1, sy, pass.nq), ...span(k0, k1, sx, pass.nk)];
      this.zoom = view[1] - view[0] === pass.nq && view[3] - view[2] === pass.nk ? null : { view };
      this.app.redraw();
    }, { passive: false });
    canvas.addEventListener("dblclick", (e) => {
      const r = canvas.getBoundingClientRect();
      const found = this.hit(e.clientX - r.left, e.clientY - r.top);
      if (this.zoom) this.zoomTo(null);
      else if (found) this.zoomTo(found.request);
    });
    let drag = null;
    canvas.addEventListener("pointerdown", (e) => {
      if (this.zoom && this.drawn) drag = { x: e.clientX, y: e.clientY, view: this.drawn.at.view };
    });
    canvas.addEventListener("pointermove", (e) => {
      if (!drag || !e.buttons || !this.drawn) return;
      const { at, pass } = this.drawn;
      const [a, b, c, f] = drag.view;
      const dq = clamp(Math.round((drag.y - e.clientY) / at.ch), -a, pass.nq - b);
      const dk = clamp(Math.round((drag.x - e.clientX) / at.cw), -c, pass.nk - f);
      if (dq || dk) {
        this.zoom = { view: [a + dq, b + dq, c + dk, f + dk] };
        this.app.redraw();
      }
    });
    canvas.addEventListener("pointerup", () => { drag = null; });
  }

  // -- reading back --------------------------------------------------------------------------------------------------

  /** What the pixels say: queries × keys of 0 and 1, read from the middle of each cell of the visible canvas. */
  read() {
    if (!this.drawn || !this.drawn.at.exact) return null;
    const { at } = this.drawn;
    const { canvas, d } = this.surface;
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const allowed = new Set();
    const { hues, waste } = this.app.palette;
    for (const c of [...hues, waste]) for (const hex of [c.solid, c.cached]) allowed.add(parseInt(hex.slice(1), 16));
    const cells = [];
    for (let q = at.view[0]; q < at.view[1]; q += 1) {
      const row = [];
      for (let k = at.view[2]; k < at.view[3]; k += 1) {
        const px = Math.floor(((at.x(k) + at.x(k + 1)) / 2) * d);
        const py = Math.floor(((at.y(q) + at.y(q + 1)) / 2) * d);
        const o = (py * canvas.width + px) * 4;
        row.push(allowed.has((data[o] << 16) | (data[o + 1] << 8) | data[o + 2]) ? 1 : 0);
      }
      cells.push(row);
    }
    return cells;
  }

  table(frame) {
    const pass = this.pass(frame);
    if (!pass) return { caption: "Attention mask: nothing was computed", columns: [], rows: [] };
    const window = this.window();
    return {
      caption: `Attention mask of pass ${pass.index + 1}`,
      columns: ["Request", "Queries", "Sees keys", "Cached", "New", "Pads", "Note"],
      rows: pass.items.map((i) => [
        i.request.letter,
        i.length ? `${i.start} to ${i.kvLen - 1}` : "none (finished)",
        i.length ? `its own, up to itself${window === null ? "" : `, at most ${window} back`}` : "nothing",
        String(i.start), String(i.length), String(i.pads), i.overrun ? "overrun: computed for nothing" : "",
      ]),
    };
  }
}
