// Functions that the opening's pictures share: text at a place, a request's chip, boxes in between.

import { measure, roundBox, setFont } from "../../parts/surface.js";
import { along, lerp } from "../../views/phases.js";

/**
 * Write a text whose middle is at y. @param {Ink} g @param {string} text @param {number} x
 * @param {number} y @param {string} font @param {string} colour @param {number} align 0: from x on,
 * 0.5: around x, 1: up to x
 */
export function write(g, text, x, y, font, colour, align = 0) {
  setFont(g, font);
  g.textBaseline = "middle";
  g.fillStyle = colour;
  g.fillText(text, align ? x - measure(g, text) * align : x, y);
}

/** @param {Ink} g @param {string} text @param {string} font */
export function widthOf(g, text, font) {
  setFont(g, font);
  return measure(g, text);
}

/** @typedef {import("../../parts/surface.js").Box} Box */

/**
 * Draw a request's letter around a point, dashed while the request holds no lane. @param {Ink} g
 * @param {Palette} palette @param {RunRequest} request
 * @param {import("../../views/phases.js").Point} middle @param {number} h @param {boolean} waits
 */
export function chipAt(g, palette, request, { x, y }, h, waits) {
  const { tint, solid } = palette.of(request);
  const box = { x: x - h * 0.55, y: y - h / 2, w: h * 1.1, h };
  if (waits) roundBox(g, box, 5, palette.panel, solid, 1.3, [3, 2.5]);
  else roundBox(g, box, 5, tint, solid);
  const font = `700 ${Math.max(12, Math.round(h * 0.62))}px ${palette.mono}`;
  write(g, request.letter, x, y + 0.5, font, palette.ink, 0.5);
}

/** @param {Box} a @param {Box} b @param {number} p @returns {Box} */
export const between = (a, b, p) => ({
  ...along(a, b, p),
  w: lerp(a.w, b.w, p),
  h: lerp(a.h, b.h, p),
});
