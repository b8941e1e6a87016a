// The cells of a mask as ink: exact, or by their weight where the model's attention is asked for. tiles.js draws them where they do not fit. Knows
// the geometry that it is given, nothing of labels and pointers.

import { clamp } from "../../parts/dom.js";
import { allowedKeys } from "../../run/passes.js";
import { dims } from "../../parts/colours.js";

/** The allowed cells of each request: cached keys pale, new ones full. */
export function inkCells(g, palette, at, items, window, focus) {
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

/** What a run that leaks also allows: the next request's keys. */
export function inkLeaks(g, palette, at, items, focus) {
  const [q0, q1, k0, k1] = at.view;
  g.fillStyle = palette.warn;
  for (const { request, leak, q0: top, pads, length } of items) {
    if (!leak) continue;
    const first = top + pads;
    const [x, y] = [at.x(clamp(leak.k0, k0, k1)), at.y(Math.max(first, q0))];
    g.globalAlpha = dims(focus, request) ? 0.2 : 1;
    g.fillRect(x, y, at.x(clamp(leak.k0 + leak.kvLen, k0, k1)) - x, at.y(Math.min(first + length, q1)) - y);
  }
  g.globalAlpha = 1;
}

/** The allowed cells, each as strong as its weight against the strongest of its row. */
export function inkWeights(g, palette, at, items, window, focus, weights) {
  const [q0, q1, k0, k1] = at.view;
  for (const item of items) {
    const found = weights.get(item.request.id);
    if (!item.length || !found) continue;
    const colours = palette.ofItem(item);
    const strength = dims(focus, item.request) ? 0.2 : 1;
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

