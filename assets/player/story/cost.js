// Drawing: what a step costs. The weights are read once a step, however many tokens it has:
// measured times of a step by its tokens. Then requests that run one at a time fold into lanes.
// Data: {curve: [[tokens, ms]], weights, order: [{letter, hue, length, lane, from}]}: requests in
// the order in which they run alone, and their places in the best schedule. State: size, an index
// of the curve; read, the share of the weights that is read; seat, from one at a time to lanes.

import { clamp } from "../parts/dom.js";
import { mix } from "../parts/colours.js";
import { count } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { ease } from "../figure/card.js";

/**
 * @typedef {{curve: number[][], weights: number, order: {letter: string, hue: number, length:
 * number, lane: number, from: number}[]}} CostData
 */

/** A time as the texts write it. @param {number} ms @param {number} digits */
const written = (ms, digits = 1) => t(ms.toFixed(digits));
/** The steps that the requests take one at a time, and in lanes. @param {CostData} data */
const steps = ({ order }) => [
  order.reduce((n, r) => n + r.length, 0),
  Math.max(...order.map((r) => r.from + r.length)),
];

/** @param {Pen} pen @param {DrawingState} state @param {CostData} data */
function bars(pen, state, { curve, weights }) {
  const { w, h, small, palette } = pen;
  const at = clamp(Math.round(state.size), 0, curve.length - 1);
  const [tokens] = curve[at];
  const part = state.size - Math.floor(state.size);
  const read = state.read < 1 ? state.read : part > 0.02 && part < 0.98 ? (part + 0.5) % 1 : 1;
  const [columns, rows, height] = small ? [44, 3, 8] : [44, 6, 12];
  pen.font(small ? 12 : 13);
  pen.text(t(`the model: ${count(weights)} numbers, read once a step`), 0, 8, palette.soft);
  for (let i = 0; i < columns * rows; i += 1) {
    const column = i % columns;
    const grey = mix(palette.ink, palette.panel, 0.45 + 0.3 * (((i * 37) % 11) / 11));
    const ink = column / columns < read ? grey : palette.empty;
    const top = 22 + Math.floor(i / columns) * height;
    pen.box(column * (w / columns), top, w / columns - 1.5, height - 1.5, ink, 1);
  }
  const y = 22 + rows * height + (small ? 18 : 26);
  pen.font(small ? 12 : 13);
  pen.text(t(`${tokens} [token|tokens] in the step`), 0, y, palette.soft);
  const cell = Math.min(small ? 10 : 20, w / 32);
  for (let i = 0; i < tokens; i += 1) {
    const top = y + 12 + Math.floor(i / 32) * cell;
    pen.box((i % 32) * cell, top, cell - 2, cell - 2, palette.hues[i % 6].solid);
  }
  const [top, base] = [y + (small ? 78 : 92), h - 22];
  const most = Math.max(...curve.map(([, ms]) => ms)) * 1.15;
  const Y = (/** @type {number} */ ms) => base - (base - top) * Math.min(ms / most, 1.2);
  const slot = w / curve.length;
  pen.text(t("time of one step, ms"), 0, top - (small ? 36 : 14), palette.soft);
  const linear = curve
    .filter(([n]) => curve[0][1] * n <= most * 1.15)
    .map(([n], i) => [i * slot + slot * 0.4, Y(curve[0][1] * n)]);
  pen.g.save();
  pen.g.beginPath();
  pen.g.rect(0, top - 8, w, h);
  pen.g.clip();
  pen.line(linear, palette.soft, [4, 4]);
  pen.g.restore();
  const [tokensAtMost] = curve[curve.length - 1];
  const alike = `${count(Math.round(curve[0][1] * tokensAtMost))} ms at ${tokensAtMost}`;
  const words = t(`if each cost as much as the first: ${alike}`);
  pen.font(12);
  pen.text(words, w, top - (small ? 20 : 14), palette.soft, "right");
  curve.forEach(([n, ms], i) => {
    const [isChosen, hue] = [i === at, palette.hues[0].solid];
    const [x, high] = [i * slot + slot * 0.4, base - Y(ms)];
    pen.box(i * slot, Y(ms), slot * 0.8, high, isChosen ? hue : mix(hue, palette.panel, 0.66), 4);
    pen.font(13, isChosen ? 700 : 400);
    pen.box(x - 17, Y(ms) - 18, 34, 16, palette.panel);
    const ink = isChosen ? palette.ink : palette.soft;
    pen.text(written(ms), x, Y(ms) - 10, ink, "center");
    pen.text(String(n), x, base + 13, ink, "center");
  });
}

/** @param {Pen} pen @param {number} share @param {CostData} data */
function seats(pen, share, data) {
  const { w, h, small, palette } = pen;
  const [alone, best] = steps(data);
  const fold = ease(clamp((share - 0.35) / 0.65, 0, 1));
  const column = w / alone + (w / best - w / alone) * fold;
  const height = small ? 30 : 42;
  const top = h * 0.3;
  const lanes = Math.max(...data.order.map((r) => r.lane)) + 1;
  pen.font(small ? 13 : 15, 600);
  const seated = `${lanes} at a time, seated as well as can be: ${best} steps`;
  pen.text(t(fold < 0.5 ? `one at a time: ${alone} steps` : seated), 0, top - 26);
  let from = 0;
  for (const { letter, hue, length, lane, from: seat } of data.order) {
    const y = top + lane * (height + 4) * fold;
    const x = from * (w / alone) + (seat * (w / best) - from * (w / alone)) * fold;
    for (let i = 0; i < length; i += 1)
      pen.box(x + i * column, y, column - 1, height, palette.hues[hue].solid);
    pen.chip(letter, hue, x + 3, y + height / 2, 15);
    from += length;
  }
  pen.faded(fold * 2 - 1, () => {
    pen.font(13);
    const below = top + lanes * (height + 4) + 18;
    pen.text(t("Not a run but arithmetic: the mark to reach."), 0, below, palette.soft);
  });
}

/** @type {DrawingKind} */
export const cost = {
  slider: ({ curve }) => ({
    key: "size",
    from: 0,
    to: curve.length - 1,
    word: "Tokens in the step",
  }),
  settled: (state) => ({ ...state, size: Math.round(state.size), read: 1, seat: 0 }),
  print: ({ curve }) => ({ size: curve.length - 1, read: 1, seat: 0 }),
  draw(pen, state, data) {
    pen.faded(1 - state.seat * 3, () => bars(pen, state, data));
    pen.faded((state.seat - 0.3) * 3, () => seats(pen, state.seat, data));
  },
  isMeasured: (state) => state.seat <= 0.3,
  says(state, data) {
    const [alone, best] = steps(data);
    if (state.seat > 0.68)
      return t(
        `As many at once as there are lanes: ${best} steps instead of ${alone}, if somebody knew every length.`,
      );
    if (state.seat > 0.2) return t(`One request after the other: ${alone} steps.`);
    const [tokens, ms] = data.curve[clamp(Math.round(state.size), 0, data.curve.length - 1)];
    return t(
      `${tokens} [token|tokens] in one step: ${ms.toFixed(1)} ms, which is ${(ms / tokens).toFixed(2)} ms a token.`,
    );
  },
};
