// Technical terms on the page: pointing at a term in any text, or tapping it, shows what it means
// and what vLLM calls it. The word under the pointer is found by position, so that texts need no
// markup; the terms that a lesson marks are buttons, so that the keyboard reaches them.

import { h } from "./dom.js";
import { t } from "./speech.js";

const DWELL = 350; // ms that the pointer must rest on a word
const LEAVE = "canvas, input, textarea, select, button, .texts, .tooltip";

export class Glossary {
  /** terms: () → {term: {word, means, vllm, words}} in the current language. One per page. */
  constructor(/** @type {Json} */ terms) {
    this._terms = terms;
    this._timer = 0;
    this.card = h("div", {
      class: "tooltip term-hint surface plain",
      role: "tooltip",
      hidden: true,
    });
    document.addEventListener("pointermove", (e) => {
      clearTimeout(this._timer);
      if (e.pointerType !== "touch") this._timer = setTimeout(() => this._look(e), DWELL);
    });
    for (const kind of ["click", "focusin"]) document.addEventListener(kind, (e) => this._look(e));
    document.addEventListener(
      "keydown",
      (e) => {
        if (e.key === "Escape" && !this.card.hidden) e.stopPropagation();
        this.card.hidden = true;
      },
      true,
    );
  }

  /** Note the current terms, and the pattern that finds them in a text. */
  _use() {
    const terms = this._terms();
    if (terms === this.terms) return;
    this.terms = terms;
    /** @type {Map<string, string>} */
    this.words = new Map(
      Object.entries(terms).flatMap(([term, { words }]) =>
        words.map((/** @type {string} */ word) => [word.toLowerCase(), term]),
      ),
    );
    const spelled = [...this.words.keys()]
      .sort((a, b) => b.length - a.length)
      .map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    /** @type {RegExp} */
    this.pattern = new RegExp(`(?<![\\p{L}\\d_-])(${spelled.join("|")})(?![\\p{L}\\d_-])`, "giu");
  }

  /** The term at a point and its rectangle. within: the element that was there, if it still is. */
  at(/** @type {number} */ x, /** @type {number} */ y, /** @type {Json} */ within) {
    const caret = document.caretPositionFromPoint?.(x, y);
    const node = caret?.offsetNode;
    if (!node || node.nodeType !== Node.TEXT_NODE || !within.contains(node)) return null;
    this._use();
    for (const found of (node.textContent || "").matchAll(this.pattern)) {
      if (found.index > caret.offset || found.index + found[0].length < caret.offset) continue;
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      const box = range.getBoundingClientRect();
      if (x >= box.left && x <= box.right && y >= box.top && y <= box.bottom)
        return { term: this.words.get(found[0].toLowerCase()) || "", box };
    }
    return null;
  }

  _look(/** @type {Json} */ e) {
    const root = e.target.closest?.(".inflight");
    const marked = root && e.target.closest(".term[data-term]");
    const found = marked
      ? { term: marked.dataset.term, box: marked.getBoundingClientRect() }
      : root && e.clientX !== undefined && !e.target.closest(LEAVE)
        ? this.at(e.clientX, e.clientY, e.target)
        : null;
    this.card.hidden = !found;
    if (!found) return;
    this._use();
    const { word, means, vllm } = this.terms[found.term];
    this.card.replaceChildren(
      h("b", {}, word),
      ` ${means} `,
      h("i", {}, `${t("In vLLM:")} ${vllm}`),
    );
    root.append(this.card);
    const { width, height } = this.card.getBoundingClientRect();
    const edge = root.getBoundingClientRect();
    this.card.style.left = `${Math.max(8, Math.min(found.box.left, edge.right - width - 8)) - edge.left}px`;
    this.card.style.top = `${(found.box.bottom + height + 12 > edge.bottom ? found.box.top - height - 6 : found.box.bottom + 6) - edge.top}px`;
  }
}
