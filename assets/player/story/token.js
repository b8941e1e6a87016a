// Drawing: the text feeds the model and the model the text; then the tokens become the rows of a
// triangle, which shows which token attends to which, with and without a cache. Data: {prompt:
// [piece], output: [piece], hue}. State: step, whole or on the way to the next; fold, from running
// text to triangle; kept, from attention to counts of work; off, 1 without a cache.

import { clamp } from "../parts/dom.js";
import { mix } from "../parts/colours.js";
import { t } from "../parts/speech.js";
import { ease } from "../figure/card.js";
import { measure } from "../parts/surface.js";
import { shownPiece } from "../figure/drawing.js";

/** @typedef {{prompt: string[], output: string[], hue: number}} TokenData */

/**
 * The layout of the triangle on a canvas.
 * @param {{w: number, h: number, small: boolean}} size @param {TokenData} data
 */
function gridOf({ w, h, small }, { prompt, output }) {
  const rows = prompt.length + output.length - 1;
  const label = small ? 58 : 84;
  return {
    rows,
    label,
    left: label + 8,
    top: 22,
    cell: Math.min((w - label - 40) / rows, (h - 28) / rows),
  };
}

/**
 * The place in the loop: the step k, how far into it, and the number of tokens.
 * @param {DrawingState} state @param {TokenData} data
 */
function placeOf(state, { prompt, output }) {
  const last = output.length - 1;
  const k = clamp(Math.floor(state.step + 1e-6), 0, last);
  return { k, size: prompt.length + k, share: k === last ? 0 : state.step - k };
}

/** Each token's place in the text: [x, middle, width]. @param {Pen} pen @param {string[]} pieces */
function flowOf(pen, pieces) {
  const [line, pad] = pen.small ? [27, 5] : [34, 7];
  let [x, y] = [1, pen.small ? 16 : 26];
  return pieces.map((piece) => {
    const width = measure(pen.g, piece) + 2 * pad;
    if (x + width >= pen.w) [x, y] = [1, y + line];
    x += width + 4;
    return [x - width - 4, y, width];
  });
}

/**
 * @param {Pen} pen @param {number[][]} flow @param {string[]} pieces @param {ReturnType<typeof
 * placeOf>} at @param {number} reads @param {Colours} colours
 */
function model(pen, flow, pieces, { size, share }, reads, colours) {
  const { w, h, small, palette, g } = pen;
  const [width, height] = [Math.min(w * 0.62, 330), small ? 60 : 92];
  const [x, y] = [
    (w - width) / 2,
    Math.min(Math.max(h * 0.46, flow[flow.length - 1][1] + 70), h - height - 1),
  ];
  for (let i = 0; i < size; i += 1) {
    if (reads === 1 && i < size - 1) continue;
    const [from, middle, wide] = flow[i];
    const to = x + width * (0.15 + 0.7 * (reads > 1 ? i / size : 0.5));
    g.strokeStyle = colours.cached;
    g.lineWidth = 1.5;
    g.beginPath();
    g.moveTo(from + wide / 2, middle + 13);
    g.bezierCurveTo(from + wide / 2, y - 30, to, y - 40, to, y);
    g.stroke();
  }
  pen.box(x, y, width, height, palette.empty, 12, palette.rule);
  pen.font(small ? 15 : 18, 600);
  pen.text(t("the model"), w / 2, y + height / 2 - 10, palette.ink, "center");
  pen.font(13);
  const remembers = size > reads ? `, remembers ${size - reads}` : "";
  const said = t(`reads ${reads} [token|tokens]${remembers}`);
  pen.text(said, w / 2, y + height / 2 + 14, palette.soft, "center");
  if (size >= pieces.length) return;
  const fly = ease(clamp((share - 0.15) / 0.7, 0, 1));
  const [fx, fy, fw] = flow[size];
  const cx = (w - fw) / 2 + (fx - (w - fw) / 2) * fly;
  const cy = y + height + 34 + (fy - y - height - 34) * fly - Math.sin(fly * Math.PI) * 20;
  if (fly < 0.05) pen.rule(w / 2, y + height + 4, w / 2, y + height + 18, palette.soft);
  pen.box(cx, cy - 14, fw, 28, colours.fill, 5);
  pen.font(small ? 14 : 16, 400, true);
  pen.text(pieces[size], cx + fw / 2, cy, colours.text, "center");
}

/** The height of what `work` draws. @param {{small: boolean}} size */
const workHeight = ({ small }) => (small ? 74 : 90);

/**
 * Draw two bars: the tokens computed up to this step, with the cache and without it.
 * @param {Pen} pen @param {number} x @param {number} y @param {number} width
 * @param {{k: number}} at @param {TokenData} data @param {boolean} off @param {Colours} colours
 */
function work(pen, x, y, width, { k }, { prompt, output }, off, colours) {
  const { palette, small } = pen;
  const p = prompt.length;
  const without = (/** @type {number} */ n) => ((n + 1) * (2 * p + n)) / 2;
  /**
   * @param {number} top @param {string} label @param {number} value @param {string} colour
   * @param {boolean} on
   */
  const row = (top, label, value, colour, on) => {
    const long = Math.max(2, (width - 36) * (value / without(output.length - 1)));
    pen.font(small ? 12 : 13, on ? 650 : 400);
    pen.text(t(label), x, top, on ? palette.ink : palette.soft);
    pen.box(x, top + 11, long, small ? 10 : 14, colour);
    pen.font(13, 650);
    pen.text(String(value), x + long + 6, top + (small ? 16 : 18.5));
  };
  pen.box(x - 8, y - 12, width + 8, workHeight(pen), palette.panel, 4);
  row(y, small ? "with the cache" : "tokens of work, with the cache", p + k, colours.solid, !off);
  row(
    y + (small ? 34 : 44),
    small ? "without it" : "tokens of work, without it",
    without(k),
    palette.soft,
    off,
  );
}

/** @type {DrawingKind} */
export const token = {
  slider: ({ output }) => ({ key: "step", from: 0, to: output.length - 1, word: "Token" }),
  settled: (state) => ({
    ...state,
    step: Math.floor(state.step + 1e-6),
    fold: Math.round(state.fold),
    kept: Math.round(state.kept),
  }),
  print: ({ output }, { fold }) => ({ step: output.length - 1, fold, kept: 0 }),
  switches: { key: "off", words: ["Cache on", "Cache off"] },
  /** The row of the triangle under the pointer. */
  point(x, y, state, data, size) {
    if (state.fold < 0.9 || state.kept > 0.5) return null;
    const { top, cell, left, rows } = gridOf(size, data);
    const row = Math.floor((y - top) / cell);
    return row >= 0 && row < Math.min(rows, placeOf(state, data).size) && x < left + rows * cell
      ? { row }
      : null;
  },
  draw(pen, state, data) {
    const { palette, small, w } = pen;
    const colours = palette.hues[data.hue];
    const at = placeOf(state, data);
    const { k, size } = at;
    const pieces = [...data.prompt, ...data.output].map(shownPiece);
    const p = data.prompt.length;
    const fold = ease(state.fold);
    const off = Math.round(state.off || 0) === 1;
    const reads = off || k === 0 ? size : 1;
    const text = small ? 14 : 16;
    pen.font(text, 400, true);
    const flow = flowOf(pen, pieces);
    const { rows, label, left, top, cell } = gridOf(pen, data);
    pen.faded(1 - fold * 1.6, () => model(pen, flow, pieces, at, reads, colours));
    const isRead = (/** @type {number} */ i) => i >= size - reads && i < size;
    for (let i = 0; i < Math.min(size, fold > 0.5 ? rows : pieces.length); i += 1) {
      const [fx, fy, fw] = flow[i];
      const x = fx + (label - fw + 7 - fx) * fold;
      const y = fy + (top + i * cell + cell / 2 - fy) * fold;
      pen.faded(1 - fold, () =>
        pen.box(
          x,
          y - 14,
          fw,
          28,
          i < p ? colours.tint : mix(colours.solid, palette.panel, 0.62),
          5,
          isRead(i) ? colours.solid : null,
        ),
      );
      pen.font(text + (clamp(cell * 0.8, 11, 13) - text) * fold, 400, true);
      const said = fold > 0.9 ? pen.fit(pieces[i], label) : pieces[i];
      const colour = fold > 0.5 && state.kept > 0.5 && !isRead(i) ? palette.soft : palette.ink;
      if (fold < 0.99 || cell >= 11)
        pen.text(said, fold > 0.9 ? label : x + fw / 2, y, colour, fold > 0.9 ? "right" : "center");
    }
    pen.faded((fold - 0.4) / 0.6, () => {
      const looking = state.kept < 0.5;
      const lit = Math.min(state.row ?? p + 5, size - 1);
      /** @type {(i: number, j: number) => string | null} the colour of cell (i, j): query, key */
      const inkOf = (i, j) => {
        if (j > i) return looking || isRead(i) ? palette.empty : null;
        if (looking) return i === lit ? colours.solid : mix(colours.solid, palette.panel, 0.66);
        if (!isRead(i)) return colours.tint;
        return j === i || reads > 1 ? colours.solid : colours.cached;
      };
      const many = Math.min(size, rows);
      for (let i = 0; i < many; i += 1)
        for (let j = 0; j < many; j += 1) {
          const ink = inkOf(i, j);
          if (ink) pen.box(left + j * cell, top + i * cell, cell - 1, cell - 1, ink, 1);
        }
      pen.faded(state.kept, () => {
        if (!off) {
          for (let j = 0; j < many; j += 1) {
            const ink = j < size - reads ? colours.cached : colours.solid;
            pen.box(left + j * cell, 4, cell - 1, 9, ink, 2);
          }
          pen.font(12);
          pen.text(t("kept"), label, 9, palette.soft, "right");
        }
        const x = left + workHeight(pen) + 12; // to the right of the rows at this height
        work(pen, x, top + 14, Math.max(90, w - x - 4), at, data, off, colours);
      });
    });
  },
  says(state, data) {
    const { k, size } = placeOf(state, data);
    const pieces = [...data.prompt, ...data.output].map(shownPiece);
    if (state.fold > 0.5 && state.kept < 0.5) {
      const row = Math.min(state.row ?? data.prompt.length + 5, size - 1);
      return row
        ? t(`“${pieces[row]}” looks at itself and at ${row} [token|tokens] before it.`)
        : t(`“${pieces[row]}” is the first and looks only at itself.`);
    }
    const which = t(`Token ${k + 1} of ${data.output.length}:`);
    const isEnd = data.output[k] === "";
    if (Math.round(state.off || 0)) {
      if (!k)
        return `${which} ${t(`without the cache, too, all ${size} tokens are computed; out comes “${pieces[size]}”.`)}`;
      return isEnd
        ? `${which} ${t(`without the cache all ${size} tokens are computed, ${size - 1} of them again; out comes the sign that the answer is over.`)}`
        : `${which} ${t(`without the cache all ${size} tokens are computed, ${size - 1} of them again; out comes “${pieces[size]}”.`)}`;
    }
    if (isEnd)
      return `${which} ${t(`one goes in, “${pieces[size - 1]}”; ${size - 1} [is|are] remembered; out comes the sign that the answer is over.`)}`;
    if (!k)
      return `${which} ${t(`${size} tokens go in, all at once; out comes “${pieces[size]}”.`)}`;
    return `${which} ${t(`one goes in, “${pieces[size - 1]}”; ${size - 1} [is|are] remembered; out comes “${pieces[size]}”.`)}`;
  },
};
