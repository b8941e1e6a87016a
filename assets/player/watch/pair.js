// Two runs of the same requests, the original and one with something changed, of which one is on
// screen. A pair knows which one that is, where the two diverge, and the words about them.
// what_if.js, leak.js and beside.js make pairs.

import { h, newButton, setText } from "../parts/dom.js";
import { t } from "../parts/speech.js";

/** @typedef {Shown & {name: () => string}} Member name: in the current language */

export class Pair {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {Member[]} */
    this.members = []; // [original, changed], or empty
    /** @type {number | null} */
    this.step = null; // the first step that differs
    this.leaks = false;
    this.says = () => "";
    /** @type {Record<string, string> | null} */
    this.link = null; // the parameters of an address that shows both again
    this.line = app.$(".pair-line");
    const $ = /** @type {Finder} */ ((s) => this.line.querySelector(s));
    this.names = $(".pair-names");
    this.words = $(".pair-says");
    this.go = $(".pair-go");
    this.go.addEventListener("click", () => app.seekStep(this.step ?? 0));
    $(".pair-close").addEventListener("click", () => this.close());
  }

  /**
   * members: original, changed. says: gives the words about them in the current language; caption:
   * those that replace the caption of the step where they diverge. leaks: whether the second has a leaking mask.
   * link: see `address`. front, at: the run that is shown first and its step, by default the second
   * run, where they diverge.
   * @param {{members: Member[], step: number | null, says: () => string, caption?: () => Span[], leaks?:
   * boolean, link?: Record<string, string> | null, front?: Member, at?: number}} pair
   */
  open({ members, step, says, caption, leaks = false, link = null, ...shown }) {
    const { front = members[1], at = step } = shown;
    const { run, entry, replay, index } = this.app;
    /** @type {Omit<Member, "name"> & {step: number}} */
    this.back = { run, entry, replay, step: run.stepOf(index) };
    const [before, after] = members.map((m) => m.run);
    for (const request of after.requests)
      request.hue = before.request(request.id)?.hue ?? request.hue;
    if (step !== null && caption)
      for (const { run } of leaks ? [members[1]] : members)
        run.replaceCaption(run.indexOf(step), caption);
    Object.assign(this, { members, step, says, leaks, link });
    this.show(front, leaks ? this.back.step : (at ?? this.back.step));
  }

  /** The run of the pair that is not on screen, or null. */
  get other() {
    return this.members.find((m) => m.run !== this.app.run) || null;
  }

  /**
   * The parameters of an address that shows both runs again, with the same one in front; null if
   * there is no pair, or no address can show it.
   */
  get address() {
    const { members, link, app } = this;
    if (!members.length || !link) return null;
    const isFirst = app.run === members[0].run;
    if (!link.beside) return isFirst ? { ...link, side: "before" } : link;
    return isFirst ? link : { ...link, racer: link.beside, beside: link.racer };
  }

  /** The pair's state for views. @returns {PairState} */
  get state() {
    const { members, other, charted, step, leaks } = this;
    return { members, other, charted, step, leaks };
  }

  /** The runs whose lanes are drawn one below the other. */
  get charted() {
    return this.leaks ? [] : this.members.map((m) => m.run);
  }

  /** Show one of the two, or another run, at a step. @param {Shown} shown */
  show({ run, entry, replay }, step = this.app.run.stepOf(this.app.index)) {
    const { pinned, pass } = this.app;
    const wanted = { step, pin: pinned?.letter, pass: pass === Infinity ? null : pass };
    this.app.put({ run, entry, replay }, wanted);
  }

  flip() {
    if (this.other) this.show(this.other);
  }

  /** Return to the run that was on screen before. */
  close() {
    if (!this.members.length) return;
    this.members = [];
    this.show(this.back, this.back.step);
  }

  /** A run was put on screen: the pair ends unless it is one of the two. */
  entered() {
    if (!this.members.some((m) => m.run === this.app.run)) this.members = [];
    this.line.hidden = !this.members.length;
    this.app.root.toggleAttribute("data-pair", this.charted.length > 0);
    this.app.$(".what-button").hidden = !this.app.engines || this.members.length > 0;
    if (!this.members.length) return;
    this.named();
  }

  /** Write the words again in the current language. */
  named() {
    const buttons = this.members.map((member) => {
      const isShown = member.run === this.app.run;
      const onclick = () => !isShown && this.show(member);
      return newButton(
        { class: "button", "aria-pressed": String(isShown), onclick },
        member.name(),
      );
    });
    this.names.replaceChildren(...buttons);
    setText(this.words, this.says());
    this.go.hidden = this.step === null;
    if (this.step === null) return;
    const words = h("span", { class: "long" }, t("Where they diverge: "));
    this.go.replaceChildren(words, t(`step ${this.step}`));
  }
}
