// Draws what is around and over a mask's cells: rules, letters and words, the hovered token, the
// minimap.

import { dims } from "../../parts/colours.js";
import { t } from "../../parts/speech.js";
import { fillBox, measure, setFont, shorten, strokeBox } from "../../parts/surface.js";
import { BAND } from "./geometry.js";
import { queryOf, visible } from "../../run/passes.js";

/** Draw lines between requests, and between cells if they are large. @param {MaskSheet} sheet */
export function inkRules({ g, palette, at, items, right, bottom }) {
  const [q0, q1, k0, k1] = at.view;
  g.beginPath();
  if (at.cw >= 4.5)
    for (let k = k0 + 1; k < k1; k += 1) {
      g.moveTo(at.x(k), at.top);
      g.lineTo(at.x(k), bottom);
    }
  if (at.ch >= 4.5)
    for (let q = q0 + 1; q < q1; q += 1) {
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
  if (items.length <= 64)
    for (const item of items) {
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

/** @param {number} n */
const padWords = (n) => t(n === 1 ? "pad" : `${n} pads`);

/**
 * Draw letters and words of keys above and of queries at the left; a query's word comes with its
 * row. @param {MaskSheet} sheet
 */
export function inkLabels({ g, run, palette, at, pass, items, focus, reach }) {
  const [q0, q1, k0, k1] = at.view;
  g.textBaseline = "middle";
  // keys: a band of letters, and the tokens themselves where there is room
  let word = 0;
  for (const item of pass.items) {
    if (!item.kvLen || item.k0 >= k1 || item.k0 + item.kvLen <= k0) continue;
    const x = at.x(Math.max(item.k0, k0));
    const width = at.x(Math.min(item.k0 + item.kvLen, k1)) - x;
    const colours = palette.ofItem(item);
    g.globalAlpha = dims(focus, item.request) ? 0.2 : 1;
    fillBox(g, colours.tint, x, 0, Math.max(width - 1, 0.5), (BAND - 4) * at.big);
    fillBox(g, colours.solid, x, (BAND - 5) * at.big, Math.max(width - 1, 0.5), 1.5);
    setFont(g, `700 ${12 * at.big}px ${palette.mono}`);
    g.fillStyle = palette.ink;
    g.textAlign = "left";
    const { letter } = item.request;
    const spare = width - measure(g, letter);
    if (spare > 2) g.fillText(letter, x + Math.min(5, spare / 2), 9 * at.big);
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
  // queries: words if rows are at least 9 px high, else one letter per request
  g.textAlign = "right";
  const end = at.gutter - 7;
  const lettered = [-Infinity]; // where the lowest letter of each column is
  for (const item of items) {
    g.globalAlpha = dims(focus, item.request) ? 0.2 : 1;
    const first = item.q0 + item.pads;
    const [top, bottom] = [at.y(Math.max(item.q0, q0)), at.y(Math.min(first + item.length, q1))];
    const { solid } = palette.ofItem(item);
    fillBox(g, solid, at.gutter - 4, top + 0.5, 2.5, Math.max(1, bottom - top - 1));
    g.fillStyle = palette.ink;
    if (at.ch >= (at.big > 1 ? 18 : 9) && !at.compact) {
      setFont(g, `${Math.min(11 * at.big, Math.max(11, Math.floor(at.ch)))}px ${palette.mono}`);
      for (let q = Math.max(first, q0); q < Math.min(first + item.length, q1); q += 1) {
        if (reach?.(q) === 0) continue;
        const text = visible(run.tokenText(item.request, item.start + q - first), 8);
        g.fillText(shorten(g, text, end - 2), end, at.y(q) + at.ch / 2);
      }
      if (item.pads && first > q0) {
        g.fillStyle = palette.soft;
        const y = (at.y(Math.max(item.q0, q0)) + at.y(Math.min(first, q1))) / 2;
        g.fillText(padWords(item.pads), end, y);
      }
    } else {
      const y = (top + bottom) / 2;
      let column = 0; // letters of one-row requests keep clear of each other
      while (y - lettered[column] < 11 * at.big) column += 1;
      const x = end - column * 10 * at.big;
      if (x < 9 * at.big) continue;
      lettered[column] = y;
      setFont(g, `700 ${12 * at.big}px ${palette.mono}`);
      const isTall = item.pads && bottom - top >= 26 * at.big;
      g.fillText(item.request.letter, x, y - (isTall ? 7 * at.big : 0));
      if (isTall && !at.compact) {
        setFont(g, `${11 * at.big}px ${palette.mono}`);
        g.fillStyle = palette.soft;
        g.fillText(padWords(item.pads), end, y + 7 * at.big);
      }
    }
  }
  g.globalAlpha = 1;
  g.textAlign = "left";
}

/**
 * Below the rows, if there is room: the text that each request may attend to.
 * @param {MaskSheet} sheet @param {number} height
 */
export function inkReading({ g, run, palette, at, items, focus, bottom }, height) {
  const line = 17 * at.big;
  const most = Math.floor((height - 8) / line);
  if (most < 2 || at.words || run.isSimulated) return;
  g.textBaseline = "middle";
  for (const { request, k0, kvLen } of items) {
    const x = at.x(Math.max(k0, at.view[2])) + 4;
    const width = at.x(Math.min(k0 + kvLen, at.view[3])) - x - 8;
    if (width < 70 * at.big) continue;
    setFont(g, `${12 * at.big}px ${palette.sans}`);
    const lines = [""];
    const said = Array.from({ length: kvLen }, (_, n) =>
      run.isTemplate(request, n) ? " " : run.tokenText(request, n),
    );
    for (const word of said.join("").split(/\s+/).filter(Boolean)) {
      const longer = `${lines.at(-1)} ${word}`.trim();
      if (measure(g, longer) <= width) lines[lines.length - 1] = longer;
      else lines.push(shorten(g, word, width));
    }
    if (lines.splice(0, lines.length - most).length)
      for (lines[0] = `… ${lines[0]}`; measure(g, lines[0]) > width;)
        lines[0] = lines[0].replace(/^… ?\S*/, "…");
    g.globalAlpha = dims(focus, request) ? 0.2 : 1;
    g.fillStyle = palette.soft;
    lines.forEach((text, n) => g.fillText(text, x, bottom + 8 + (n + 0.5) * line));
  }
  g.globalAlpha = 1;
}

/**
 * Frame the row and the column of the token hovered here or in another view.
 * @param {MaskSheet} sheet @param {Hot | null} hot
 */
export function inkHot({ g, palette, at, pass, right, bottom }, hot) {
  if (!hot) return;
  const [q0, q1, k0, k1] = at.view;
  const item = pass.items.find((i) => i.request === hot.request && i.length);
  g.strokeStyle = palette.ink;
  g.lineWidth = 1.2;
  const row = hot.row ?? (item && hot.q !== undefined ? queryOf(item, hot.q) : undefined);
  const isInSight = row !== undefined && row >= q0 && row < q1;
  const isComputed = item && hot.q !== undefined && hot.q >= item.start && hot.q < item.kvLen;
  if (isInSight && (hot.row !== undefined || isComputed)) {
    const height = Math.max(1, at.y(row + 1) - at.y(row));
    g.strokeRect(at.gutter + 0.5, at.y(row), right - at.gutter - 1, height);
  }
  /** @type {number[] | null} */
  let range = null;
  if (hot.column !== undefined) range = [hot.column, hot.column + 1];
  else if (item && hot.keys)
    range = [item.k0 + hot.keys[0], item.k0 + Math.min(hot.keys[1], item.kvLen)];
  if (range && range[0] < k1 && range[1] > k0 && range[1] > range[0]) {
    const x = at.x(Math.max(range[0], k0));
    const width = Math.max(1, at.x(Math.min(range[1], k1)) - x);
    g.strokeRect(x, at.top + 0.5, width, bottom - at.top - 1);
  }
}

/**
 * Draw the whole mask in a corner, with the view framed; returns its place.
 * @param {MaskSheet} sheet @param {number} room
 */
export function inkMinimap({ g, palette, at, pass, right }, room) {
  const [w, height] = [104, 72];
  const [x, y] = [Math.min(room, Math.max(right, at.gutter + 160)) - w - 6, at.top + 6];
  g.globalAlpha = 0.94;
  fillBox(g, palette.panel, x - 3, y - 3, w + 6, height + 6);
  g.globalAlpha = 1;
  strokeBox(g, palette.rule, 1, x - 3, y - 3, w + 6, height + 6);
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
  strokeBox(g, palette.ink, 1.5, x + k0 * sx, y + q0 * sy, (k1 - k0) * sx, (q1 - q0) * sy);
  return { x, y, w, h: height };
}
