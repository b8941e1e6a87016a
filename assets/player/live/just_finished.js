// Who has just finished, with how long they waited for their first token. Names are data: text nodes alone.

import { chip } from "../parts/chips.js";
import { h, setText } from "../parts/dom.js";
import { count, duration } from "../parts/format.js";
import { speaking, t } from "../parts/speech.js";
import { timesOf } from "../views/request_card.js";

const MOST = 6;

export class JustFinished {
  /**
   * @param {HTMLElement} section
   * @param {import("./own_requests.js").OwnRequests} mine
   * @param {() => {app: App, run: Run | null}} shown
   */
  constructor(section, mine, shown) {
    this.section = section;
    this.list = section.querySelector("ul");
    this.mine = mine;
    this.shown = shown;
    this._key = "";
    /** @type {Run | null} */
    this._run = null;
  }

  draw() {
    const { app, run } = this.shown();
    const over = run ? run.requests.filter((r) => r.finished && r.finished.reason !== "cancelled").sort((a, b) => b.finished.step - a.finished.step).slice(0, MOST) : [];
    this.section.hidden = !over.length;
    const key = [speaking(), ...over.map((r) => r.id + r.letter)].join();
    if (key === this._key && this._run === run) return;
    [this._key, this._run] = [key, run];
    this.list.replaceChildren(...over.map((request) => {
      const { ttft } = timesOf(run, request, run.length - 1);
      const words = h("span", { class: "finished-words" });
      setText(words, [request.by, t(`${count(run.numGenerated(request, run.length - 1))} [token|tokens]`), ttft === null ? null : `TTFT ${t(duration(ttft))}`].filter(Boolean).join(" · "));
      return h("li", {}, chip(app, request, false), words);
    }));
  }
}
