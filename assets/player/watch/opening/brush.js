// What the opening's pictures are drawn with: text at a place, rounded boxes, a request's chip.

import { measure, roundBox, setFont } from "../../parts/surface.js";

/**
 * A text, its middle at y. @param {Ink} g @param {string} text @param {number} x @param {number} y
 * @param {string} font @param {string} colour @param {number} align 0: from x on, 0.5: around x, 1:
 * up to x
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
 * A request's letter around a point; dashed while it holds no lane. @param {Ink} g @param {Palette}
 * palette @param {RunRequest} request @param {import("../../views/phases.js").Point} middle
 * @param {number} h @param {boolean} waits
 */
export function chipAt(g, palette, request, { x, y }, h, waits) {
  const colours = palette.of(request);
  roundBox(
    g,
    { x: x - h * 0.55, y: y - h / 2, w: h * 1.1, h },
    5,
    waits ? palette.panel : colours.tint,
    colours.solid,
    waits ? 1.3 : 1.5,
    waits ? [3, 2.5] : [],
  );
  write(
    g,
    request.letter,
    x,
    y + 0.5,
    `700 ${Math.max(12, Math.round(h * 0.62))}px ${palette.mono}`,
    palette.ink,
    0.5,
  );
}

/** @param {Box} a @param {Box} b @param {number} p @returns {Box} */
export const between = (a, b, p) => ({
  x: a.x + (b.x - a.x) * p,
  y: a.y + (b.y - a.y) * p,
  w: a.w + (b.w - a.w) * p,
  h: a.h + (b.h - a.h) * p,
});
