// The form that adds a prompt to the batch. The name is remembered in this browser alone.

import { setText } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { keep, kept } from "../parts/kept.js";

const NAME = "inflight-nickname"; // in the browser's storage

export class AskForm {
  /**
   * @param {HTMLFormElement} form
   * @param {import("./mine.js").Mine} mine
   * @param {() => void} asked
   */
  constructor(form, mine, asked) {
    this.form = form;
    this.mine = mine;
    this.asked = asked;
    /** @type {(name: string) => any} */
    this.field = (name) => form.elements.namedItem(name);
    /** @type {HTMLElement} */
    this.error = form.querySelector(".ask-error");
    /** @type {HTMLButtonElement} */
    this.button = form.querySelector(".ask-button");
    this.field("nickname").value = kept("good", NAME) || "";
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      this._send();
    });
    this.field("prompt").addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && !e.isComposing) {
        e.preventDefault();
        form.requestSubmit();
      }
    });
  }

  async _send() {
    const nickname = this.field("nickname").value.trim();
    keep("good", NAME, nickname);
    this.button.disabled = true;
    this._say("");
    try {
      await this.mine.ask({ prompt: this.field("prompt").value, tokens: Number(this.field("tokens").value), nickname });
      this.field("prompt").value = "";
      this.asked();
    } catch (error) {
      this._say(`${t(error.message)}${error.retryAfter ? t(` Try again in ${error.retryAfter} s.`) : ""}`);
    }
    this.button.disabled = false;
  }

  _say(sentence) {
    setText(this.error, sentence);
    this.error.hidden = !sentence;
  }
}
