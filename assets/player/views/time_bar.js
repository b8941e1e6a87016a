// Where a request's time went, as one bar: the parts side by side, each as long as it took, and a
// sentence for screen readers.

import { h } from "../parts/dom.js";
import { milliseconds } from "../parts/format.js";
import { t } from "../parts/speech.js";

const SEEN = 0.02; // the least share of the whole that is visible

/** @typedef {NonNullable<ReturnType<typeof import("../run/delays.js").timeOf>>} RequestTime */

/** The bar in words. @param {RequestTime} time */
const timeWords = (time) =>
  `${t(milliseconds(time.whole))}: ${time.parts.map(({ label, seconds }) => `${t(label)} ${t(milliseconds(seconds))}`).join(", ")}`;

/**
 * What a part means and what it consists of, in words.
 * @param {RequestTime} time @param {RequestTime["parts"][number]} part
 */
function partWords(time, { name, label, means, seconds, steps }) {
  const head = `${t(label)}: ${t(milliseconds(seconds))}${steps ? `, ${t(`${steps} [step|steps]`)}` : ""}`;
  const bound = name === "queued" ? time.limits : [];
  const limits = bound.map((limit) => `${t(limit.words)}: ${t(milliseconds(limit.seconds))}`);
  const apart = `${milliseconds(time.uncompared)} of it with prompts of others in the pass: not comparable, the run has no pass like it without`;
  const uncompared = name === "decode" && time.uncompared ? [t(apart)] : [];
  return [head, ...limits, ...uncompared, t(means)].join("\n");
}

/** The bar. @param {RequestTime} time @param {number} most seconds at the full width */
export function timeBar(time, most = time.whole) {
  const parts = time.parts.map((part) => {
    const el = h("i", { class: `went went-${part.name}`, title: partWords(time, part) });
    el.style.flexGrow = String(Math.round(part.seconds * 1e6));
    return el;
  });
  const props = { class: "time-bar", role: "img", "aria-label": timeWords(time) };
  const bar = h("span", props, ...parts);
  bar.style.width = `${(100 * time.whole) / Math.max(most, 1e-9)}%`;
  return bar;
}

/**
 * The legend: a part in words with its colour. The bar's own words also have those that are too
 * small to be seen. @param {RequestTime} time
 */
export function timeLegend(time) {
  const seen = time.parts.filter((part) => part.seconds >= SEEN * time.whole);
  return seen.map((part) => {
    const colour = h("i", { class: `went went-${part.name}`, "aria-hidden": "true" });
    const long = h("b", {}, t(milliseconds(part.seconds)));
    return h("li", { title: partWords(time, part) }, colour, `${t(part.label)} `, long);
  });
}
