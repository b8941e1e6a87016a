// The requests that wait at the door, in the order in which they will be admitted, each with its
// sender's name if it has one and the seconds waited so far. Shown in Simple (in Full the queue
// says more) and below lanes with people's names.

import { dims } from "../parts/colours.js";
import { chip, wasAdmitted } from "../parts/chips.js";
import { find, h, icon, isRedrawn, put, setText } from "../parts/dom.js";
import { waitOf } from "../parts/format.js";
import { tell } from "../parts/speech.js";
import { waitedBy } from "../run/delays.js";
import { movingIn, phase } from "./phases.js";
import { callsItself } from "./texts.js";

const MOST = { desk: 6, tablet: 3, phone: 2 }; // the most requests shown, by layout

/**
 * @typedef {{el: HTMLElement, box: HTMLElement, name: HTMLElement, words: HTMLElement, request?:
 * RunRequest, run?: Run, seen?: boolean}} Waiter
 */

export class DoorView {
  /** @type {Phase[]} */
  moves = ["lane"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {Record<string, number>} most requests shown, by layout */
  constructor(panel, most = MOST) {
    this.most = most;
    this.el = find(panel, ".door");
    this.title = find(panel, ".door-title");
    this.more = h("span", { class: "door-more" });
    /** @type {Waiter[]} */
    this.rows = [];
    this.el.append(this.more);
  }

  /** @param {ViewState} state */
  draw(state) {
    if (!state.simple) return;
    const moving = movingIn(state);
    // the queue of the step before, until requests move to their lanes
    const { waiting, i } = moving && !phase(state.share, "lane") ? moving.before : state.frame;
    const { run, layout, focus } = state;
    const most = Math.min(this.most[layout], this._room(state));
    const shown = waiting.slice(0, waiting.length > most ? most - 1 : most);
    while (this.rows.length < shown.length) {
      const row = {
        box: h("span", {}),
        name: h("bdi", { class: "waiter-name clip strong" }),
        words: h("span", {}),
      };
      const el = h("span", { class: "waiter" }, row.box, row.name, row.words);
      this.rows.push({ ...row, el });
      this.more.before(el);
    }
    this.rows.forEach((row, n) => {
      row.el.hidden = !shown[n];
      if (!shown[n]) return;
      const { request } = shown[n];
      const seen = wasAdmitted(request, i);
      if (isRedrawn(row, { request, run, seen, language: state.language })) {
        put(row.box, request.isBot && icon("bot"), chip(state, request, false));
        setText(row.name, callsItself(request));
        row.name.hidden = !request.by || request.isOwn;
        row.el.dataset.request = String(request.index);
      }
      const waited = waitedBy(run, request, i);
      const verb = request.isOwn ? "you wait" : "waits";
      tell(row.words, waited === null ? verb : `${verb} ${waitOf(waited, run.span(true))}`);
      row.el.classList.toggle("dim", dims(focus, request));
    });
    this.title.hidden = !waiting.length;
    const rest = waiting.length - shown.length;
    const more = rest ? `and ${rest} more` : "";
    const isNow = i === run.length - 1;
    const none = isNow && run.isHeld() ? "" : "Nobody waits at the door.";
    tell(this.more, waiting.length ? more : none);
  }

  /**
   * How many requests fit on one line, each with its seconds; where names wrap, there is no limit.
   * @param {ViewState} state
   */
  _room({ presenter }) {
    if (this.most !== MOST) return Infinity;
    const [title, each] = presenter ? [110, 165] : [70, 120];
    return Math.max(2, Math.floor((this.el.clientWidth - title) / each));
  }

  /** Where a waiting request is drawn, or null; what is hidden has no place on screen. @param {RunRequest} request */
  boxOf(request) {
    return this.rows.find((row) => row.request === request)?.box || null;
  }
}
