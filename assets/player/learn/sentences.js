// A lesson's sentences as DOM: text, `code`, the letters of requests, numbers, and terms of the
// glossary with their card. Text stays text.

import { h, newButton } from "../parts/dom.js";

/** shown: the run that has the requests; terms: the glossary by term. */
export function sentence(spans, shown, terms) {
  return spans.flatMap((span) => {
    if (typeof span === "string") return code(span);
    if (span.keys !== undefined) return [byPointer(span)];
    if (span.n !== undefined) return [h("b", { class: "number" }, span.n)];
    if (span.t !== undefined)
      return [terms[span.t] ? newButton({ class: "term", "data-term": span.t }, span.s) : span.s];
    const request = shown.run?.requests.find((r) => r.letter === span.r);
    const chip = h("bdi", { class: "chip", "data-letter": span.r }, span.r);
    if (request && request.hue >= 0) chip.style.setProperty("--tint", `var(--tint-${request.hue})`);
    return [chip];
  });
}

const code = (text) =>
  text
    .split("`")
    .map((part, i) => (i % 2 ? h("code", {}, part) : part))
    .filter((part) => part !== "");

/** Spans as text, for screen readers. */
export const sentenceText = (spans) =>
  spans
    .map((s) =>
      typeof s === "string" ? s.replaceAll("`", "") : (s.n ?? s.s ?? s.r ?? byPointer(s)),
    )
    .join("");

/** A text that has two forms, {keys, touch}: for this device's main pointer. */
export const byPointer = (text) =>
  typeof text === "string"
    ? text
    : text[matchMedia("(pointer: coarse)").matches ? "touch" : "keys"];

/** Hover, focus or tap a term and a card says what it means and what vLLM calls it. */
export class Terms {
  constructor(learn) {
    this.learn = learn;
    this.card = learn.$(".term-card");
    const of = (e) => e.target.closest?.(".term[data-term]");
    for (const kind of ["pointerover", "focusin"])
      document.addEventListener(kind, (e) => {
        if (of(e)) this.show(of(e));
        else if (!this.card.contains(e.target)) this.hide();
      });
    learn.root.addEventListener("click", (e) => of(e) && this.show(of(e)));
  }

  show(el) {
    const { card, learn } = this;
    const { words, doc } = learn;
    const term = doc.terms[el.dataset.term];
    if (!term) return;
    card.replaceChildren(
      h("b", {}, term.word),
      h("p", {}, term.means),
      h("p", { class: "vllm" }, `${words.in_vllm} ${term.vllm}`),
    );
    card.hidden = false;
    const at = el.getBoundingClientRect();
    const { width, height } = card.getBoundingClientRect();
    card.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - width - 8))}px`;
    card.style.top = `${at.bottom + height + 14 > window.innerHeight ? at.top - height - 6 : at.bottom + 6}px`;
  }

  /** Whether there was one to hide. */
  hide() {
    const had = !this.card.hidden;
    this.card.hidden = true;
    return had;
  }
}
