// Drawing: how long each step took, one bar per step, with a long prompt read whole and in slices.
// Data: {runs: [{steps: [[ms, tokens, those of the long prompt]]}], letter, hue}: whole, then
// sliced. State: grow, the share of the bars drawn; slice, from the first run to the second.

import { clamp } from "../parts/dom.js";
import { mix } from "../parts/colours.js";
import { t } from "../parts/speech.js";
import { ease } from "../figure/card.js";
import { roundUnit } from "../run/lane_layout.js";

/** @typedef {{runs: {steps: number[][]}[], letter: string, hue: number}} TimesData */

/** What reading the long prompt took: steps, ms, tokens. @param {{steps: number[][]}} run */
function reading({ steps }) {
  const read = steps.filter(([, , of]) => of > 1);
  return {
    count: read.length,
    most: Math.max(...read.map(([ms]) => ms)),
    tokens: read.reduce((n, [, , of]) => n + of, 0),
  };
}

/** @type {DrawingKind} */
export const times = {
  slider: () => ({ key: "slice", from: 0, to: 1, word: "Whole or in slices" }),
  settled: (state) => ({ grow: 1, slice: Math.round(state.slice) }),
  print: () => ({ grow: 1, slice: 1 }),
  switches: { key: "slice", words: ["Whole", "In slices"] },
  draw(pen, state, /** @type {TimesData} */ data) {
    const { w, h, palette } = pen;
    const most = Math.max(...data.runs.map((run) => reading(run).most)) * 1.08;
    const count = Math.max(...data.runs.map((run) => run.steps.length));
    const [left, top, base] = [34, 18, h - 22];
    const slot = (w - left) / count;
    const Y = (/** @type {number} */ ms) => base - (base - top) * Math.min(1, ms / most);
    pen.font(12);
    const unit = roundUnit(most, 8, true);
    for (let ms = 0; ms <= most; ms += unit) {
      pen.rule(left, Y(ms), w, Y(ms), palette.rule, [], 1);
      pen.text(String(ms), left - 6, Y(ms), palette.soft, "right");
    }
    pen.text("ms", 0, 6, palette.soft);
    for (let k = 0; k < count && left + k * slot + 10 < w; k += 10)
      pen.text(String(k), left + k * slot + slot / 2, base + 12, palette.soft, "center");
    const colours = palette.hues[data.hue];
    data.runs.forEach((run, n) => {
      const here = ease(n ? state.slice : 1 - state.slice);
      pen.faded(0.15 + here * 0.85, () =>
        run.steps.forEach(([ms, , of], k) => {
          const shown =
            clamp(state.grow * (count + 6) - k, 0, 1) *
            (n ? ease(clamp(state.slice * 1.6, 0, 1)) : 1);
          if (here < 0.02 && n) return;
          const top = Y(ms * shown);
          const [x, wide, high] = [left + k * slot + 1, slot - 2, base - top];
          const isChosen = n === Math.round(state.slice);
          if (of > 1)
            pen.box(x, top, wide, high, isChosen ? colours.solid : null, 2, colours.solid);
          else if (here > 0.02)
            pen.box(x, top, wide, high, mix(palette.soft, palette.panel, 0.55), 2);
        }),
      );
    });
    const run = data.runs[Math.round(state.slice)];
    const at = run.steps.findIndex(([, , of]) => of > 1);
    pen.faded(clamp(state.grow * (count + 6) - at - 1, 0, 1), () => {
      const high = Y(reading(run).most);
      pen.chip(data.letter, data.hue, left + at * slot + slot / 2 - 9, Math.max(high - 14, 12), 18);
    });
  },
  says(state, /** @type {TimesData} */ data) {
    const run = data.runs[Math.round(state.slice)];
    const { count, most, tokens } = reading(run);
    const rest = run.steps
      .filter(([, , of]) => of <= 1)
      .map(([ms]) => ms)
      .sort((a, b) => a - b);
    const usual = rest[Math.floor(rest.length / 2)].toFixed(1);
    if (count === 1)
      return t(
        `${tokens} tokens are read in one step of ${most.toFixed(1)} ms; a step without them takes ${usual} ms, as a rule.`,
      );
    return t(
      `${tokens} tokens are read in ${count} steps, the longest of ${most.toFixed(1)} ms; a step without them takes ${usual} ms, as a rule.`,
    );
  },
};
