// Terms of the glossary: hover, focus or tap one and a card says what it means, what vLLM calls it, and where it can be seen.

import { h } from "../parts/dom.js";

export class Terms {
  constructor(learn) {
    this.learn = learn;
    this.card = learn.$(".term-card");
    const of = (e) => e.target.closest?.(".term[data-term]");
    for (const kind of ["pointerover", "focusin"]) learn.root.addEventListener(kind, (e) => {
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
    card.replaceChildren(h("b", {}, term.word), h("p", {}, term.means), h("p", { class: "vllm" }, `${words.in_vllm} ${term.vllm}`));
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
