// A question with options: the answer and the reasons come with the lesson, computed from the trace.

import { h } from "../parts/dom.js";
import { sentence, sentenceText } from "./sentences.js";

export class Choose {
  /** ask: {text, why, options: [{text, right, why}]}. on: {say(text), answered(right)}. */
  constructor(holder, ask, { app, terms, words, say, answered }) {
    this.ask = ask;
    this.words = words;
    this.tell = { say, answered };
    this.tried = false;
    this.show = (spans) => sentence(spans, app, terms);
    this.buttons = ask.options.map((option, i) => h("button", { type: "button", class: "option", onclick: () => this.choose(i) },
      h("kbd", { "aria-hidden": "true" }, String(i + 1)), h("span", {}, ...this.show(option.text))));
    this.answer = h("div", { class: "answer", hidden: true });
    holder.replaceChildren(h("p", { class: "asked-text" }, ...this.show(ask.text)), h("div", { class: "options", role: "group" }, ...this.buttons), this.answer);
  }

  /** By digit, from 1. */
  key(digit) {
    if (!this.buttons[digit - 1]) return false;
    this.choose(digit - 1);
    return true;
  }

  choose(i) {
    const option = this.ask.options[i];
    const { words } = this;
    this.buttons[i].classList.add(option.right ? "right" : "wrong");
    this.buttons[i].setAttribute("aria-pressed", "true");
    const verdict = h("b", {}, option.right ? words.right : words.wrong);
    const why = option.right ? this.ask.why : option.why;
    this.answer.hidden = false;
    this.answer.className = `answer ${option.right ? "right" : "wrong"}`;
    this.answer.replaceChildren(h("p", {}, verdict, " ", ...this.show(why)));
    this.tell.say(`${verdict.textContent} ${sentenceText(why)}`);
    if (option.right) for (const button of this.buttons) button.disabled = true;
    this.tell.answered(option.right, !this.tried);
    this.tried = true;
  }
}
