// Turns a lesson's sentences into DOM: text, `code`, the letters of requests, numbers, and terms of
// the glossary (see parts/glossary.js). Text is never read as markup.

import { h, newButton } from "../parts/dom.js";

/**
 * shown: a state with the run that has the requests; terms: the glossary by term.
 * @param {LessonSpan[]} spans @param {Json} shown @param {Json} terms
 */
export function sentence(spans, shown, terms) {
  const isTerm = (/** @type {Json} */ span) => Boolean(terms[span?.t]);
  return spans.flatMap((/** @type {Json} */ span, i) => {
    if (typeof span === "string")
      return code(isTerm(spans[i - 1]) ? span.slice(markOf(span).length) : span);
    if (span.keys !== undefined) return [byPointer(span)];
    if (span.n !== undefined) return [h("b", { class: "number nowrap" }, span.n)];
    if (isTerm(span)) {
      const term = newButton({ class: "term", "data-term": span.t }, span.s);
      return [h("span", { class: "nowrap" }, term, markOf(spans[i + 1]))];
    }
    if (span.t !== undefined) return [span.s];
    const request = shown.run?.requests.find((/** @type {RunRequest} */ r) => r.letter === span.r);
    const chip = h("bdi", { class: "chip", "data-letter": span.r }, span.r);
    if (request && request.hue >= 0) chip.style.setProperty("--tint", `var(--tint-${request.hue})`);
    return [chip];
  });
}

/** The punctuation that follows a term, which would begin a line after a button. */
const markOf = (/** @type {Json} */ span) =>
  typeof span === "string" ? String(/^[^\s\p{L}\p{N}`]*/u.exec(span)) : "";

const code = (/** @type {string} */ text) =>
  text
    .split("`")
    .map((/** @type {Json} */ part, /** @type {number} */ i) =>
      i % 2 ? h("code", {}, part) : part,
    )
    .filter((/** @type {Json} */ part) => part !== "");

/** The text of spans, for screen readers. */
export const sentenceText = (/** @type {LessonSpan[]} */ spans) =>
  spans
    .map((/** @type {Json} */ s) =>
      typeof s === "string" ? s.replaceAll("`", "") : (s.n ?? s.s ?? s.r ?? byPointer(s)),
    )
    .join("");

/** The form of a text for this device's main pointer, if it has two: {keys, touch}. */
export const byPointer = (/** @type {string} */ text) =>
  typeof text === "string"
    ? text
    : text[matchMedia("(pointer: coarse)").matches ? "touch" : "keys"];
