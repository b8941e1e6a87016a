// One sentence a step and, one click away, the reason of every decision. The words come with the replay; here they are only shown.

import { dims } from "../parts/colours.js";
import { h, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { plain, spans } from "../parts/chips.js";

export class Narration {
  constructor(panel, app) {
    this.app = app;
    this.pill = panel.querySelector(".pill");
    this.sentence = panel.querySelector(".sentence");
    this.button = panel.querySelector(".why-button");
    this.list = panel.querySelector(".why-list");
    this.live = panel.querySelector(".live");
    this._caption = this._run = this._focus = this._dimmed = null; // what is shown
    this.button.addEventListener("click", () => this.open(this.list.hidden));
  }

  open(on) {
    this.list.hidden = !on;
    this.button.setAttribute("aria-expanded", String(on));
    if (on) this._fill(this.app.frame);
  }

  draw(frame) {
    const { app } = this;
    tell(this.pill, `step ${frame.event.step}`);
    if (this._caption !== frame.caption || this._run !== app.run) {
      [this._caption, this._run] = [frame.caption, app.run];
      const holding = new Set(frame.lanes.map((l) => l.request));
      this.sentence.replaceChildren(...spans(app, this.say(frame), (r) => holding.has(r)));
      const n = frame.caption ? frame.caption.why.length : 0;
      this.button.hidden = !n;
      if (n) tell(this.button.querySelector("span"), n === 1 ? "1 reason" : `${n} reasons`);
      if (!this.list.hidden) this._fill(frame);
    }
    if (this._focus !== app.focus || this._dimmed !== this._caption) {
      [this._focus, this._dimmed] = [app.focus, this._caption];
      for (const el of this.sentence.querySelectorAll(".chip")) el.classList.toggle("dim", dims(app.focus, app.run.requests[Number(el.dataset.request)]));
    }
    clearTimeout(this._timer); // a screen reader hears the step that stays, not every one that flies by
    this._timer = setTimeout(() => setText(this.live, `${t(`Step ${frame.event.step}.`)} ${plain(app, this.say(frame))}`), 350);
  }

  say(frame) {
    if (frame.caption) return frame.caption.say;
    const { decode, prefill } = frame.event.budget;
    return [`${decode} decode and ${prefill} prefill tokens in ${frame.passes.length === 1 ? "one pass" : `${frame.passes.length} passes`}.`];
  }

  _fill(frame) {
    const holding = new Set(frame.lanes.map((l) => l.request));
    const reasons = frame.caption ? frame.caption.why : [];
    this.list.replaceChildren(...reasons.map((reason) => h("li", {}, ...spans(this.app, reason, (r) => holding.has(r)))));
  }
}
