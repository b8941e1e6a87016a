// Drawing: what continuous batching gains. The lanes of six other requests on one clock, in waves
// and continuously; then how many times as fast, in three measurements. Data: {lanes: [{policy,
// seconds, bars: [[lane, from, to, letter, hue]]}], gains: [{name, times, least, most}]}. State:
// time, the share of the longer run that has passed; dots, from the clocks to the measurements.

import { clamp } from "../parts/dom.js";
import { mix } from "../parts/colours.js";
import { t } from "../parts/speech.js";
import { clockLabel, roundUnit } from "../run/lane_layout.js";

/**
 * @typedef {{lanes: {policy: string, seconds: number, bars: [number, number, number, string,
 * number][]}[], gains: {name: string, times: number, least: number, most: number}[]}} WorthData
 */

/** @type {Record<string, string>} */
const NAMES = {
  static: "in waves",
  continuous: "continuously",
  differing: "answers that differ",
  arriving: "many that arrive",
  alike: "all of one length",
};

/** @type {DrawingKind} */
export const worth = {
  slider: () => ({ key: "dots", from: 0, to: 1, word: "One comparison or three" }),
  settled: (state) => ({ time: 1, dots: Math.round(state.dots) }),
  print: () => ({ time: 1, dots: 1 }),
  switches: { key: "dots", words: ["One comparison", "Three measurements"] },
  draw(pen, state, /** @type {WorthData} */ data) {
    pen.faded(1 - state.dots * 2.2, () => clocks(pen, state, data));
    pen.faded(state.dots * 2.2 - 1.2, () => dots(pen, data));
  },
  says(state, /** @type {WorthData} */ { lanes, gains }) {
    const found = gains.map(({ times }) => times.toFixed(2)).join(", ");
    if (state.dots > 0.5) return t(`Three measurements: ${found} times as fast.`);
    const [waves, own] = lanes.map(({ seconds }) => seconds.toFixed(2));
    return t(`In waves ${waves} s, continuously ${own} s.`);
  },
};

/** @param {Pen} pen @param {DrawingState} state @param {WorthData} data */
function clocks(pen, state, { lanes }) {
  const { w, h, small, palette } = pen;
  const end = Math.max(...lanes.map(({ seconds }) => seconds));
  const now = end * clamp(state.time, 0, 1);
  const height = clamp(h * 0.09, 16, 42);
  lanes.forEach(({ policy, seconds, bars }, n) => {
    const top = 30 + n * (3 * (height + 4) + (small ? 36 : 64));
    pen.font(small ? 13 : 15, 600);
    pen.text(t(NAMES[policy]), 0, top - 14);
    const clock = now >= seconds ? `done: ${seconds.toFixed(2)} s` : `${now.toFixed(2)} s`;
    pen.text(t(clock), w, top - 14, palette.ink, "right");
    const count = Math.max(...bars.map(([lane]) => lane)) + 1;
    const X = (/** @type {number} */ s) => (s / end) * w;
    const Y = (/** @type {number} */ lane) => top + lane * (height + 4);
    for (let lane = 0; lane < count; lane += 1)
      pen.box(0, Y(lane), X(seconds), height, palette.empty, 4);
    for (const [lane, from, to, letter, hue] of bars) {
      const [x, width] = [X(from), X(Math.min(now, to) - from)];
      if (width <= 0) continue;
      pen.box(x, Y(lane), width - 1, height, palette.hues[hue].solid, 4);
      const middle = Y(lane) + height / 2;
      if (width > 20) pen.chip(letter, hue, x + 4, middle, small ? 13 : 18);
      else if (width > 12) {
        pen.font(12, 700, true);
        pen.text(letter, x + width / 2, middle, palette.hues[hue].text, "center");
      }
    }
    if (now < seconds) pen.rule(X(now), top - 4, X(now), Y(count), palette.ink, [], 2);
    if (n < lanes.length - 1) return;
    pen.font(12);
    const unit = roundUnit(end, 6, false);
    for (let s = 0; s <= end; s += unit) {
      const align = !s ? "left" : end - s < unit / 4 ? "right" : "center";
      pen.text(clockLabel(s, end), X(s), Y(count) + 12, palette.soft, align);
    }
  });
}

/** @param {Pen} pen @param {WorthData} data */
function dots(pen, { gains }) {
  const { w, h, small, palette } = pen;
  const left = small ? 0 : 190;
  const [low, high] = [0.75, Math.max(...gains.map(({ most }) => most)) * 1.04];
  const X = (/** @type {number} */ times) =>
    left + ((times - low) / (high - low)) * (w - left - 52);
  const pitch = Math.min(96, (h - 60) / gains.length);
  const bottom = 36 + pitch * gains.length;
  for (const [times, label] of /** @type {[number, string][]} */ ([
    [1, "just as fast"],
    [2, "twice as fast"],
  ])) {
    pen.rule(X(times), 10, X(times), bottom, palette.soft, [4, 4]);
    pen.font(12);
    const ends = X(times) + pen.g.measureText(t(label)).width / 2 > w;
    pen.text(t(label), ends ? w : X(times), bottom + 12, palette.soft, ends ? "right" : "center");
  }
  gains.forEach(({ name, times, least, most }, n) => {
    const y = 52 + n * pitch;
    pen.font(small ? 13 : 14);
    const said = small ? `${t(NAMES[name])}: ${t(times.toFixed(2))}` : t(NAMES[name]);
    if (small) pen.box(0, y - 26, pen.g.measureText(said).width + 4, 20, palette.panel);
    pen.text(said, 0, small ? y - 16 : y);
    pen.rule(X(least), y, X(most), y, mix(palette.hues[0].solid, palette.panel, 0.5), [], 6);
    pen.g.beginPath();
    pen.g.arc(X(times), y, 8, 0, 7);
    pen.g.fillStyle = palette.hues[0].solid;
    pen.g.fill();
    if (small) return;
    pen.box(X(times) - 18, y - 26, 36, 16, palette.panel);
    pen.font(14, 650);
    pen.text(t(times.toFixed(2)), X(times), y - 18, palette.ink, "center");
  });
}
