// The sentence about a step, its warnings and, one click away, the reason for every decision. The
// words come with the replay; this view only shows them.

import { dims } from "../parts/colours.js";
import { find, findAll, h, isRedrawn, put, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { plain, spans } from "../parts/chips.js";
import { warningsOf } from "../run/events.js";

/**
 * A warning of a step, with a chip for each request that it quotes. @param {Run} run @param
 * {string} warning @returns {Span[]}
 */
export const warned = (run, warning) =>
  t(warning)
    .split(/([“„][^“”]*[“”])/)
    .map((part, n) => {
      const request = n % 2 ? run.request(part.slice(1, -1)) : null;
      return request ? { request } : part;
    });

/** A line of a step, as elements. @param {ViewState} state @param {Span[]} line */
function said(state, line) {
  const holding = new Set(state.frame.lanes.map(({ request }) => request));
  return spans(state, line, (request) => holding.has(request));
}

export class Narration {
  /** @param {HTMLElement} panel */
  constructor(panel) {
    /** @type {ViewState | null} */
    this.state = null; // the state drawn last
    this.pill = find(panel, ".pill");
    this.sentence = find(panel, ".sentence");
    this.button = find(panel, ".why-button");
    this.list = find(panel, ".why-list");
    this.live = find(panel, ".live");
    /**
     * @type {{caption?: Caption | null, run?: Run, focus?: Focus, simple?: boolean,
     * language?: string}}
     */
    this._shown = {};
    /** @type {number | undefined} */
    this._timer = undefined;
    this.button.addEventListener("click", () => this.open(Boolean(this.list.hidden)));
  }

  /** @param {boolean} on */
  open(on) {
    this.list.hidden = !on;
    this.button.setAttribute("aria-expanded", String(on));
    if (on && this.state) this._fill(this.state);
  }

  /** @param {ViewState} state */
  draw(state) {
    const { run, frame, focus, simple } = (this.state = state);
    tell(this.pill, `step ${frame.event.step}`);
    const { caption } = frame;
    const isOther = this._shown.run !== run;
    const isAnew = isRedrawn(this._shown, { caption, run, simple, language: state.language });
    if (isAnew) {
      if (isOther) setText(this.live, ""); // it held a sentence of another run
      const odd = warningsOf(frame.event).map((warning) =>
        h("span", { class: "odd" }, " ", ...said(state, warned(run, warning))),
      );
      put(this.sentence, ...said(state, this.say(frame, simple)), ...odd);
      const n = frame.caption ? frame.caption.why.length : 0;
      this.button.hidden = !n && !odd.length;
      const warnings = odd.length ? `${odd.length} [warning|warnings], ` : "";
      tell(find(this.button, "span"), `${warnings}${n} [reason|reasons]`);
      if (!this.list.hidden) this._fill(state);
    }
    if (isRedrawn(this._shown, { focus }) || isAnew)
      for (const el of findAll(this.sentence, ".chip"))
        el.classList.toggle("dim", dims(focus, run.requests[Number(el.dataset.request)]));
    // a screen reader hears the step that stays, not every step that passes by
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      const lines = warningsOf(frame.event).map((warning) => warned(run, warning));
      const said = [this.say(frame, simple), ...lines].map((line) => plain(state, line));
      setText(this.live, [t(`Step ${frame.event.step}.`), ...said].join(" "));
    }, 350);
  }

  /** The sentence of a step. @param {Frame} frame @param {boolean} simple in plain words */
  say(frame, simple) {
    if (frame.caption) return (simple && frame.caption.simple) || frame.caption.say;
    const { decode, prefill } = frame.event.budget;
    const passes = frame.passes.length === 1 ? "one pass" : `${frame.passes.length} passes`;
    return [`${decode} decode and ${prefill} prefill tokens in ${passes}.`];
  }

  /** @param {ViewState} state */
  _fill(state) {
    const { frame, run } = state;
    const reasons = frame.caption ? frame.caption.why : [];
    const line = (/** @type {string | null} */ kind, /** @type {Span[]} */ words) =>
      h("li", { class: kind }, ...said(state, words));
    this.list.replaceChildren(
      ...warningsOf(frame.event).map((warning) => line("odd", warned(run, warning))),
      ...reasons.map((reason) => line(null, reason)),
    );
  }
}
