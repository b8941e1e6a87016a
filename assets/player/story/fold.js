// Drawing: a forward pass as a rectangle with its pads; then without them, when the rows slide into
// one. Data: {rows: [{letter, hue, phase, pads, pieces}], width, steps: [[tokens, pads]], at}: a
// padded pass, what every step of its run computed, and the step of the pass. State: build, the
// share of the rectangle that is drawn; sum, that of the run; fold, from rectangle to row.

import { clamp } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { ease } from "../figure/card.js";
import { shownPiece } from "../figure/drawing.js";

/**
 * @typedef {{rows: {letter: string, hue: number, phase: string, pads: number, pieces: string[]}[],
 * width: number, steps: number[][], at: number}} FoldData
 */

/** The tokens and the pads of the pass. @param {FoldData} data */
const counts = ({ rows, width }) => {
  const tokens = rows.reduce((n, row) => n + row.pieces.length, 0);
  return { tokens, pads: rows.length * width - tokens };
};

/**
 * Draw a bar for every step of the run: its tokens, and on top its pads.
 * @param {Pen} pen @param {DrawingState} state @param {FoldData} data @param {number} top
 */
function run(pen, state, { steps, at }, top) {
  const { w, h, palette, g } = pen;
  const base = h - 20;
  const slot = (w - 28) / steps.length;
  const most = Math.max(...steps.map(([tokens, pads]) => tokens + pads));
  const room = base - top - 26;
  if (room < 30) return;
  const gone = 1 - ease(clamp(state.fold * 2.2, 0, 1));
  pen.font(13, 600);
  const says =
    state.fold < 0.5 ? "computed in each step of this run" : "tokens in each step of this run";
  pen.text(t(says), 0, top);
  steps.forEach(([tokens, pads], k) => {
    const shown = clamp(state.sum * (steps.length + 4) - k, 0, 1);
    const x = 28 + k * slot;
    const high = (room * tokens * shown) / most;
    const more = (room * pads * shown * gone) / most;
    pen.box(x, base - high, slot - 3, high, palette.soft, 2);
    if (more > 0.5)
      pen.box(x, base - high - more, slot - 3, more, palette.hatch(g), 2, palette.pad);
    pen.font(12, k === at ? 700 : 400);
    if (k === at || (k % 5 === 0 && Math.abs(k - at) > 1))
      pen.text(String(k), x + slot / 2, base + 11, k === at ? palette.ink : palette.soft, "center");
  });
}

/** @type {DrawingKind} */
export const fold = {
  slider: () => ({ key: "fold", from: 0, to: 1, word: "From rectangle to row" }),
  settled: (state) => ({ build: 1, sum: Math.round(state.sum), fold: Math.round(state.fold) }),
  print: () => ({ build: 1, sum: 1, fold: 0 }),
  switches: { key: "fold", words: ["As a rectangle", "As one row"] },
  draw(pen, state, /** @type {FoldData} */ data) {
    const { w, palette, g, small } = pen;
    const { tokens, pads } = counts(data);
    const left = 28;
    const cell = (w - left) / Math.max(data.width, small ? 0 : tokens);
    const each = Math.min(cell, 56);
    const height = small ? 26 : 44;
    const pitch = height + 8;
    const top = 34;
    const gone = ease(clamp(state.fold * 2.2, 0, 1)); // pads disappear first, then rows move
    const slide = ease(clamp((state.fold - 0.3) / 0.7, 0, 1));
    pen.font(13, 600);
    pen.text(t(state.fold < 0.5 ? "as a rectangle" : "as one packed row"), 0, 10);
    pen.font(13);
    const beside = state.fold < 0.5 ? ` and ${pads} [pad|pads]` : ", no pads";
    pen.text(t(`${tokens} [token|tokens]${beside}`), w, 10, palette.soft, "right");
    const start = small ? 0 : left; // x of the row of all tokens
    const packed = Math.min(each, (w - start) / tokens);
    const across = each + (packed - each) * slide;
    let before = 0;
    data.rows.forEach((row, n) => {
      const colours = palette.hues[row.hue];
      const y = top + n * pitch;
      const built = clamp(state.build * (data.rows.length + 1) - n, 0, 1);
      pen.faded(built, () => {
        pen.faded(1 - slide, () => pen.chip(row.letter, row.hue, 0, y + height / 2, 20));
        for (let i = 0; i < row.pads; i += 1)
          pen.faded((1 - gone) * clamp(built * data.width - i * 0.3, 0, 1), () => {
            const [x, middle] = [left + i * each, y + height / 2];
            pen.box(x, y, each - 2, height, palette.hatch(g), 4, palette.rule);
            if (each < 26) return;
            pen.font(11);
            pen.box(x + each / 2 - 13, middle - 8, 25, 16, palette.panel, 3);
            pen.text("pad", x + each / 2 - 1, middle, palette.soft, "center");
          });
        row.pieces.forEach((piece, i) => {
          const at = before + i;
          const [x0, x1] = [left + (row.pads + i) * each, start + at * packed];
          const x = x0 + (x1 - x0) * slide;
          const yy = y + (top - y) * slide;
          const decodes = row.phase === "decode";
          const [wide, high] = [across - 3.5, height - 1.5];
          if (decodes) pen.box(x, yy, across - 2, height, colours.fill, 4);
          else pen.box(x + 0.75, yy + 0.75, wide, high, colours.tint, 4, colours.solid);
          pen.font(each > 40 ? 12 : 11, 400, true);
          if (each < 18) return;
          const ink = decodes ? colours.text : palette.ink;
          const said = pen.fit(shownPiece(piece), each - 5);
          pen.text(said, x + each / 2 - 1, yy + height / 2, ink, "center");
        });
      });
      before += row.pieces.length;
    });
    pen.faded(state.sum * 2, () =>
      run(pen, state, data, top + data.rows.length * pitch + (small ? 8 : 34)),
    );
  },
  says(state, /** @type {FoldData} */ data) {
    const { tokens, pads } = counts(data);
    if (state.fold > 0.5) return t(`One row of ${tokens} tokens, each computed for somebody.`);
    return t(
      `A rectangle of ${data.rows.length} rows and ${data.width} columns: ${tokens} tokens and ${pads} [pad|pads].`,
    );
  },
};
