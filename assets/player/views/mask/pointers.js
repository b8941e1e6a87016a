// Zooming and panning in a mask: wheel, double click, two fingers, drag, and drag on the minimap.

import { clamp, pointIn } from "../../parts/dom.js";

/** Whether a point is on the minimap. @param {MaskView} mask @param {number} x @param {number} y */
export function onMinimap(mask, x, y) {
  const m = mask.minimap;
  return Boolean(m && x >= m.x && x <= m.x + m.w && y >= m.y && y <= m.y + m.h);
}

/**
 * A range of `size` of n cells in which the cell `at` (a fraction counts) is at the share `share`.
 * @param {number} at @param {number} share @param {number} size @param {number} n
 */
function around(at, share, size, n) {
  const count = clamp(Math.round(size) || 1, Math.min(4, n), n);
  const from = clamp(Math.round(at - count * share), 0, n - count);
  return [from, from + count];
}

/** Follow the pointers on a mask. @param {MaskView} mask */
export function maskPointers(mask) {
  const { canvas } = mask.surface;
  const fingers = new Map(); // pointer id -> [x, y], in the canvas
  /** @type {((at: number[]) => void) | null} */
  let held = null; // moves the view with the pointers that are down

  const point = (/** @type {MouseEvent} */ e) => pointIn(canvas, e);
  const show = (/** @type {number[]} */ view, /** @type {Pass} */ { nq, nk }) => {
    mask.zoom = view[1] - view[0] === nq && view[3] - view[2] === nk ? null : { view };
    mask.actions.redraw();
    mask.actions.changed();
  };
  /** The place of a point among the cells that are drawn, as shares: down, across. */
  const shares = (/** @type {number[]} */ [x, y]) => {
    const { at } = drawn();
    return [
      clamp((y - at.top) / (at.ch * at.rows), 0, 1),
      clamp((x - at.gutter) / (at.cw * at.cols), 0, 1),
    ];
  };
  /**
   * `view` with `times` as many cells, where the point at the shares `from` moves to `to`.
   * @type {(view: number[], times: number, from: number[], to: number[], pass: Pass) => number[]}
   */
  const scaled = (view, times, from, to, { nq, nk }) => {
    const [a, b, c, d] = view;
    return [
      ...around(a + (b - a) * from[0], to[0], (b - a) * times, nq),
      ...around(c + (d - c) * from[1], to[1], (d - c) * times, nk),
    ];
  };

  // pointers are followed only on a mask that is drawn
  const drawn = () => /** @type {DrawnMask} */ (mask.drawn);

  const pinch = () => {
    const [p, q] = [...fingers.values()];
    return {
      apart: Math.max(1, Math.hypot(p[0] - q[0], p[1] - q[1])),
      middle: shares([(p[0] + q[0]) / 2, (p[1] + q[1]) / 2]),
    };
  };
  const byPinch = () => {
    const [first, { view }] = [pinch(), drawn().at];
    return () => {
      const [now, { pass }] = [pinch(), drawn()];
      show(scaled(view, first.apart / now.apart, first.middle, now.middle, pass), pass);
    };
  };
  const byMinimap =
    () =>
    (/** @type {number[]} */ [x, y]) => {
      const { minimap: m } = mask;
      if (!m) return;
      const { at, pass } = drawn();
      const [a, b, c, d] = at.view;
      const rows = around(((y - m.y) / m.h) * pass.nq, 0.5, b - a, pass.nq);
      const columns = around(((x - m.x) / m.w) * pass.nk, 0.5, d - c, pass.nk);
      show([...rows, ...columns], pass);
    };
  const byDrag = (/** @type {number[]} */ start) => {
    const { view } = drawn().at;
    return (/** @type {number[]} */ [x, y]) => {
      const { at, pass } = drawn();
      const [a, b, c, d] = view;
      const dq = clamp(Math.round((start[1] - y) / at.ch), -a, pass.nq - b);
      const dk = clamp(Math.round((start[0] - x) / at.cw), -c, pass.nk - d);
      if (dq || dk || mask.zoom?.view) show([a + dq, b + dq, c + dk, d + dk], pass);
    };
  };

  canvas.addEventListener(
    "wheel",
    (e) => {
      if (!mask.drawn) return;
      e.preventDefault();
      const share = shares(point(e));
      const { at, pass } = mask.drawn;
      show(scaled(at.view, e.deltaY > 0 ? 1.25 : 0.8, share, share, pass), pass);
    },
    { passive: false },
  );
  canvas.addEventListener("dblclick", (e) => {
    const found = mask.hit(...point(e));
    if (found && found.keepsPin) return;
    if (mask.zoom) mask.zoomTo(null);
    else if (found) mask.zoomTo(found.request);
  });
  canvas.addEventListener("pointerdown", (e) => {
    if (e.button || !mask.drawn) return;
    const at = point(e);
    fingers.set(e.pointerId, at);
    if (fingers.size === 2) held = byPinch();
    else if (fingers.size > 2) held = null;
    else if (onMinimap(mask, ...at)) {
      held = byMinimap();
      canvas.setPointerCapture(e.pointerId);
      held(at);
    } else held = mask.zoom ? byDrag(at) : null;
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!fingers.has(e.pointerId)) return;
    fingers.set(e.pointerId, point(e));
    if (held && mask.drawn) held(point(e));
  });
  for (const end of /** @type {const} */ (["pointerup", "pointercancel", "pointerleave"]))
    canvas.addEventListener(end, (e) => {
      if (end === "pointerleave" && canvas.hasPointerCapture(e.pointerId)) return;
      fingers.delete(e.pointerId);
      held = null;
    });
}
