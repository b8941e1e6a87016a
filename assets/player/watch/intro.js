// One line that says what this is, until the page is used for the first time; `?` shows it again.

import { keep } from "../parts/kept.js";

const SEEN = "inflight-seen";

export class Intro {
  constructor(el, app) {
    this.el = el;
    this.app = app;
    el.querySelector(".intro-play").addEventListener("click", () => app.transport.toggle(true));
    app.root.addEventListener("click", (e) => {
      const button = /** @type {HTMLElement} */ (e.target).closest("button");
      if (button && !button.matches(".policy-chip, .source")) this.used();
    });
    try {
      el.hidden = Boolean(localStorage.getItem(SEEN)) || app.options.embedded;
    } catch {
      el.hidden = true; // where nothing can be stored it would be shown on every visit
    }
  }

  get words() {
    return this.el.querySelector("span").textContent;
  }

  used() {
    if (this.el.hidden) return;
    this.el.hidden = true;
    keep("good", SEEN, "1");
  }
}
