// The geometry of a mask: where its cells lie and how much of each pixel is allowed, as numbers.
// Pure, without a canvas.

const MAX_CELL = [44, 46];
export const BAND = 22; // pixels for the letters above the keys
export const KEY_TEXT = 46; // pixels for key tokens, written upwards if columns are wide enough

/**
 * The visible part of a pass, [first query, end, first key, end]: all of it, unless zoomed to a
 * view or to a request in it.
 * @param {Pass} pass @param {{view?: number[], request?: RunRequest} | null} zoom
 * @returns {number[]}
 */
export function viewOf(pass, zoom) {
  const whole = [0, pass.nq, 0, pass.nk];
  if (!zoom) return whole;
  if (zoom.view) return zoom.view[1] > pass.nq || zoom.view[3] > pass.nk ? whole : [...zoom.view];
  const item = pass.items.find((x) => x.request === zoom.request && x.length);
  return item ? [item.q0, item.q0 + item.pads + item.length, item.k0, item.k0 + item.kvLen] : whole;
}

/**
 * The left edge and the width of the cells, into which the words above the keys must fit.
 * @param {number} w width of the canvas
 * @param {number[]} view
 * @param {number} big 1, or more on a projector
 */
export function columnsOf(w, view, big) {
  const compact = w < 420;
  const gutter = (compact ? 46 : 66) * big;
  return {
    compact,
    gutter,
    cw: Math.min(MAX_CELL[0] * big ** 2.2, (w - gutter) / (view[3] - view[2])),
  };
}

/**
 * Maps cells to pixels. exact: every cell has at least one device pixel.
 * @param {{w: number, h: number, d: number}} size of the canvas; d: device pixels per CSS pixel
 * @param {number[]} view @param {number} big
 * @param {{room: number, across: boolean, texts: string[]} | null} words above the keys
 */
export function layoutMask({ w, h, d }, view, big, words) {
  const [rows, cols] = [view[1] - view[0], view[3] - view[2]];
  const { compact, gutter, cw } = columnsOf(w, view, big);
  const top = BAND * big + (words ? words.room : 0);
  const ch = Math.min(MAX_CELL[1] * big ** 2.2, (h - top - 1) / rows);
  const snap = (/** @type {number} */ x) => Math.round(x * d) / d;
  return {
    view,
    rows,
    cols,
    gutter,
    top,
    cw,
    ch,
    exact: cw * d >= 1 && ch * d >= 1,
    words,
    compact,
    big,
    x: (/** @type {number} */ k) => snap(gutter + (k - view[2]) * cw),
    y: (/** @type {number} */ q) => snap(top + (q - view[0]) * ch),
  };
}

/**
 * The share of each tile that is allowed, from the ends of row intervals alone: O(rows + tiles).
 * @param {PassItem[]} items @param {number[]} view @param {number | null} window
 * @param {number} width tiles across
 * @param {number} height tiles down
 * @param {Float32Array} shares the result, width × height
 */
export function coverTiles(items, [q0, q1, k0, k1], window, width, height, shares) {
  const [sx, sy] = [width / (k1 - k0), height / (q1 - q0)];
  const rowOf = (/** @type {number} */ q) => Math.min(height - 1, ((q - q0) * sy) | 0);
  const stride = width + 2;
  const edges = new Float32Array(stride * height);
  const rows = new Float32Array(height);
  for (let q = q0; q < q1; q += 1) rows[rowOf(q)] += 1;
  for (const item of items) {
    const first = item.q0 + item.pads;
    for (let q = Math.max(first, q0); q < Math.min(first + item.length, q1); q += 1) {
      const position = item.start + q - first;
      const a = item.k0 + (window === null ? 0 : Math.max(0, position - window + 1));
      const x0 = Math.max(0, (a - k0) * sx);
      const x1 = Math.min(width, (item.k0 + position + 1 - k0) * sx);
      if (x1 <= x0) continue;
      const row = rowOf(q) * stride;
      const [i0, i1] = [x0 | 0, x1 | 0];
      edges[row + i0] += 1 - (x0 - i0);
      edges[row + i0 + 1] += x0 - i0;
      edges[row + i1] -= 1 - (x1 - i1);
      edges[row + i1 + 1] -= x1 - i1;
    }
  }
  for (let y = 0; y < height; y += 1) {
    let sum = 0;
    const norm = 1 / rows[y];
    for (let x = 0; x < width; x += 1) {
      sum += edges[y * stride + x];
      shares[y * width + x] = sum * norm;
    }
  }
}
