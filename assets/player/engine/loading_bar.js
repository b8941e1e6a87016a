// The bar shown while the tab's engine loads: what is being fetched, how large it is, and a button
// to stop it; or why loading failed, and a button to try again.

import { h, newButton, setText } from "../parts/dom.js";
import { t } from "../parts/speech.js";

const PATIENCE = 500; // ms before the bar appears, because a second start takes little longer

/** @param {number} n */
const megabytes = (n) => (n / 1e6).toFixed(1);

/** What a file belongs to, in the words of the bar. @param {string} file */
function nameOf(file) {
  if (!file) return "";
  if (file.includes("/")) return t("the model {name}", { name: file.split("/")[0] });
  return file.startsWith("py") ? "Python" : t("the engine");
}

export class LoadingBar {
  constructor() {
    this.element = null;
    /** @type {Element | undefined} */ this.host = undefined;
    /** @type {((chosen: boolean) => void) | undefined} */ this._answer = undefined;
  }

  /** Loading has begun: show progress after a moment. @param {() => void} cancel */
  open(cancel) {
    if (this._answer) return;
    this._clear();
    this._later = setTimeout(() => this._show(cancel), PATIENCE);
  }

  /**
   * reads: whether the bytes are read from a file of this machine.
   * @param {{what: string, done: number, total: number, kept?: boolean, reads?: boolean}} progress
   */
  progress({ what, done, total, kept = true, reads = false }) {
    const verb = reads ? "Reading" : "Fetching";
    this._words = what
      ? t(`${verb} {what}: ${megabytes(done)} of ${megabytes(total)} MB.`, { what: nameOf(what) })
      : t("Starting the engine in this tab.");
    if (!kept) this._words += ` ${t("This browser keeps nothing of it for the next visit.")}`;
    this._share = total ? done / total : 0;
    this._draw();
  }

  _show(/** @type {() => void} */ cancel) {
    this._put(newButton({ class: "button", onclick: cancel }, t("Cancel")));
    this._draw();
  }

  _draw() {
    if (!this.words || !this.part) return;
    setText(this.words, this._words || t("Starting the engine in this tab."));
    this.part.style.transform = `scaleX(${this._share || 0})`;
  }

  /** Loading failed: show why; resolves to whether to try again. @param {string} sentence */
  failed(sentence) {
    return this._choice(t(sentence), "Try again", "Close");
  }

  /**
   * Ask whether to fetch a large model; resolves to the answer. @param {string} model
   * @param {{size?: number, arrived?: number, kept?: boolean}} about arrived: bytes of it that are
   * here already
   * @param {AbortSignal | undefined} signal ends the question
   */
  offer(model, { size = 0, arrived = 0, kept }, signal) {
    const megabytes = Math.round(size / 1e6);
    const here = arrived ? ` ${t(`${Math.round(arrived / 1e6)} MB of it are here already.`)}` : "";
    const once = kept ? "fetched once" : "fetched";
    const words = t(`To run here, {name} is ${once}: ${megabytes} MB.`, { name: model });
    return this._choice(words + here, "Fetch it", "Cancel", signal);
  }

  /**
   * Ask a question; another question meanwhile answers it with no.
   * @param {string} words @param {string} yes @param {string} no @param {AbortSignal | undefined}
   * signal chooses no @returns {Promise<boolean>}
   */
  _choice(words, yes, no, signal = undefined) {
    this._clear();
    return new Promise((resolve) => {
      this._answer = resolve;
      const choose = (/** @type {boolean} */ chosen) => {
        resolve(chosen);
        if (this._answer === resolve) this._clear();
      };
      const button = (/** @type {string} */ text, /** @type {boolean} */ chosen) =>
        newButton(
          { class: `button${chosen ? " primary" : ""}`, onclick: () => choose(chosen) },
          t(text),
        );
      this._put(button(yes, true), button(no, false));
      if (this.part?.parentElement) this.part.parentElement.hidden = true;
      this.part = null; // progress of a load meanwhile is not drawn over the question
      if (this.words) setText(this.words, words);
      signal?.addEventListener("abort", () => choose(false), { once: true });
      this.host?.addEventListener("close", () => choose(false), { once: true });
    });
  }

  _put(/** @type {Child[]} */ ...buttons) {
    this.words = h("p", { role: "status" });
    this.part = h("i");
    const theme = document.querySelector(".inflight")?.getAttribute("data-theme");
    this.element = h(
      "div",
      { class: "inflight engine-bar surface", "data-theme": theme },
      h("div", {}, this.words, h("div", { class: "run-progress" }, this.part)),
      ...buttons,
    );
    // while a modal dialog is open, nothing outside it can be pressed
    this.host = [...document.querySelectorAll("dialog:modal")].at(-1) ?? document.body;
    this.host.append(this.element);
  }

  /** Nothing is loading any more: remove the bar, unless a question waits for its answer. */
  close() {
    if (!this._answer) this._clear();
  }

  _clear() {
    clearTimeout(this._later);
    this._answer?.(false);
    this._answer = undefined;
    this.element?.remove();
    this.element = this.words = null;
  }
}
