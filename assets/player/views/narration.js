// One sentence a step and, one click away, the reason of every decision. The words come with the replay; here they are only shown.

import { dims } from "../parts/colours.js";
import { find, h, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { plain, spans } from "../parts/chips.js";

export class Narration {
  /** @param {HTMLElement} panel */
  constructor(panel) {
    /** @type {ViewState | null} */
    this.state = null; // as it was drawn last
    this.pill = find(panel, ".pill");
    this.sentence = find(panel, ".sentence");
    this.button = find(panel, ".why-button");
    this.list = find(panel, ".why-list");
    this.live = find(panel, ".live");
    this._caption = this._run = this._focus = this._dimmed = null; // what is shown
    this.button.addEventListener("click", () => this.open(this.list.hidden));
  }

  open(on) {
    this.list.hidden = !on;
    this.button.setAttribute("aria-expanded", String(on));
    if (on && this.state) this._fill(this.state);
  }

  /** @param {ViewState} state */
  draw(state) {
    const { run, frame, focus } = this.state = state;
    tell(this.pill, `step ${frame.event.step}`);
    if (this._caption !== frame.caption || this._run !== run) {
      [this._caption, this._run] = [frame.caption, run];
      const holding = new Set(frame.lanes.map((l) => l.request));
      this.sentence.replaceChildren(...spans(state, this.say(frame), (r) => holding.has(r)));
      const n = frame.caption ? frame.caption.why.length : 0;
      this.button.hidden = !n;
      if (n) tell(this.button.querySelector("span"), `${n} [reason|reasons]`);
      if (!this.list.hidden) this._fill(state);
    }
    if (this._focus !== focus || this._dimmed !== this._caption) {
      [this._focus, this._dimmed] = [focus, this._caption];
      for (const el of /** @type {NodeListOf<HTMLElement>} */ (this.sentence.querySelectorAll(".chip"))) el.classList.toggle("dim", dims(focus, run.requests[Number(el.dataset.request)]));
    }
    clearTimeout(this._timer); // a screen reader hears the step that stays, not every one that flies by
    this._timer = setTimeout(() => setText(this.live, `${t(`Step ${frame.event.step}.`)} ${plain(state, this.say(frame))}`), 350);
  }

  say(frame) {
    if (frame.caption) return frame.caption.say;
    const { decode, prefill } = frame.event.budget;
    return [`${decode} decode and ${prefill} prefill tokens in ${frame.passes.length === 1 ? "one pass" : `${frame.passes.length} passes`}.`];
  }

  _fill(state) {
    const { frame } = state;
    const holding = new Set(frame.lanes.map((l) => l.request));
    const reasons = frame.caption ? frame.caption.why : [];
    this.list.replaceChildren(...reasons.map((reason) => h("li", {}, ...spans(state, reason, (r) => holding.has(r)))));
  }
}
