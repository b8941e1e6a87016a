// The frame of a drawer: title and Close at the top; a message, progress, Run and Cancel at the
// bottom. The drawer's owner fills the space between.

import { clamp, h, icon, newButton } from "./dom.js";
import { putSentence } from "./look.js";

export class Drawer {
  /**
   * form: contains a `.drawer-body`. act: {close(), cancel()}. @param {HTMLElement} form
   * @param {string} title @param {{ close(): void, cancel(): void }} act
   */
  constructor(form, title, act) {
    this.form = form;
    this.close = newButton(
      { class: "icon-button drawer-close", "aria-label": "Close", onclick: () => act.close() },
      icon("close"),
    );
    this.message = h("p", { class: "run-message soft plain", role: "status" });
    this.bar = h("i", {});
    this.progressBar = h("div", { class: "run-progress", hidden: true }, this.bar);
    this.button = h("button", { type: "submit", class: "button primary run-button" }, "Run");
    this.cancel = newButton(
      { class: "button cancel-button", hidden: true, onclick: () => act.cancel() },
      "Cancel",
    );
    for (const number of /** @type {NodeListOf<HTMLInputElement>} */ (
      form.querySelectorAll('[type="number"]')
    ))
      number.inputMode = number.step ? "decimal" : "numeric";
    form.prepend(
      h("header", { class: "drawer-head flex fixed between" }, h("h2", {}, title), this.close),
    );
    form.append(
      h(
        "footer",
        { class: "drawer-foot fixed" },
        this.message,
        this.progressBar,
        h("div", { class: "run-buttons spaced flex" }, this.button, this.cancel),
      ),
    );
  }

  get isOpen() {
    return !this.form.hidden;
  }

  /** opener: the button that opens it, which shows its state and gets the focus back. */
  toggle(/** @type {boolean} */ on, /** @type {HTMLButtonElement} */ opener) {
    this.form.hidden = !on;
    opener.setAttribute("aria-expanded", String(on));
    opener.classList.toggle("on", on);
    if (on) this.close.focus({ preventScroll: true });
    else opener.focus();
  }

  /**
   * action: {text, act}, a button after the sentence. @param {string} sentence
   * @param {Action | null | ""} action
   */
  say(sentence, bad = false, action = null) {
    putSentence(this.message, sentence, action);
    this.message.classList.toggle("bad", bad);
  }

  busy(/** @type {boolean} */ on) {
    this.button.disabled = on;
    this.cancel.hidden = this.progressBar.hidden = !on;
    this.progress(0);
  }

  progress(/** @type {number} */ share) {
    this.bar.style.transform = `scaleX(${clamp(share, 0, 1)})`;
  }
}
