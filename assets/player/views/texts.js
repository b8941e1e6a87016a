// Each running request's prompt and its text so far, the new token marked. Prompts and outputs are
// data: always text nodes.

import { dims } from "../parts/colours.js";
import { find, h, isRedrawn, setStyle, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { chip } from "../parts/chips.js";
import { unbroken, waitOf } from "../parts/format.js";
import { waitedBy } from "../run/delays.js";
import { differsAt } from "../run/moments.js";
import { isDone } from "../run/run.js";
import { movingIn, phase } from "./phases.js";

const PROMPT = 90; // characters shown of the prompt's end
const OUTPUT = 170; // … of the text so far
const WAITING = 5; // the most waiting requests shown in Simple: the next in turn
const SEEN = 6; // the most requests shown in Simple, unless more are running

/**
 * Whole words from the end of `pieces[0 … end)`, at most `most` characters; control characters,
 * which could move other text, are shown as marks.
 * @param {string[]} pieces @param {number} end @param {number} most
 */
export function tail(pieces, end, most) {
  let text = "";
  let from = end;
  while (from > 0 && text.length < most) {
    from -= 1;
    text = pieces[from] + text;
  }
  const kept = text.slice(-most);
  if (from === 0 && kept === text) return clean(text);
  return `…${clean(kept.replace(/^\S{0,24}\s+/, " "))}`; // from a whole word on
}

/** Words with a time of a run, marked if it is simulated. @param {Run} run @param {string} words */
export const timed = (run, words) => `${run.isSimulated ? `${t("Simulated")}: ` : ""}${t(words)}`;

/**
 * The end of what a request has written so far. A simulated run has no text.
 * @param {Run} run @param {string[]} pieces @param {number} end @param {number} most
 */
export const outputTail = (run, pieces, end, most) =>
  run.isSimulated ? (end > 0 ? ` (${t("simulated: no text")}) ` : "") : tail(pieces, end, most);

/** Text whose line breaks and control characters are shown as marks. @param {string} text */
export const clean = (text) =>
  text
    .replace(/\r?\n/g, "↵ ")
    .replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g, "◌");

const NAME = 40; // characters shown of a name

/** The sender's name as they gave it, shortened, or "". @param {RunRequest} request */
export const callsItself = ({ by }) => clean([...by].slice(0, NAME).join(""));

/**
 * @typedef {Record<"el" | "chip" | "by" | "prompt" | "output" | "changed" | "fresh" | "note" |
 * "masked", HTMLElement> & {request?: RunRequest, run?: Run, holds?: boolean}} TextRow
 */

export class TextsView {
  /** @type {Phase[]} */
  moves = ["text"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel */
  constructor(panel) {
    this.key = find(panel, ".key");
    this.box = find(panel, ".texts");
    /** @type {TextRow[]} */
    this.rows = [];
    this._at = 0;
    /** @type {number | undefined} */
    this._timer = undefined;
  }

  /** A request's new text, if it is shown. @param {RunRequest} request @returns {Element | null} */
  freshOf(request) {
    const row = this.rows.find((one) => one.request === request && !one.el.hidden);
    return row && !row.fresh.hidden ? row.fresh : null;
  }

  /** @param {ViewState} state */
  draw(state) {
    const now = performance.now();
    // while playing fast, texts are drawn about 12 times a second, and always at the end
    clearTimeout(this._timer);
    if (state.fast && now - this._at < 80) {
      this._timer = setTimeout(() => this._draw(state), 90);
      return;
    }
    this._at = now;
    this._draw(state);
  }

  /** @param {ViewState} state */
  _draw(state) {
    const { run, frame, pair, focus, simple } = state;
    const held = frame.lanes.flatMap((l) => l.request || []);
    const { waiting } = frame;
    const behind = simple ? waiting.slice(0, WAITING) : waiting.filter((w) => w.preempted);
    // a finished text stays for some steps, its letter greyed
    const left = run.requests.filter(({ finished }) => {
      const ago = finished ? frame.i - finished.step : 0;
      return ago > 0 && ago <= 12;
    });
    const gone = left
      .filter((r) => !held.includes(r))
      .slice(-3)
      .reverse();
    const shown = [...new Set([...held, ...behind.map((w) => w.request), ...gone])];
    if (simple) shown.splice(Math.max(SEEN, held.length), Infinity);
    // requests keep their order, with the visitor's own first
    if (simple) shown.sort((a, b) => Number(b.isOwn) - Number(a.isOwn) || a.index - b.index);
    setStyle(this.box, "--said", String(shown.length));
    const onTheWay = Boolean(movingIn(state)) && phase(state.share, "text") < 1;
    const masked = pair.leaks && state.leak.on ? pair.members[0].run : null;
    const running = held.filter((r) => !(r.finished && r.finished.step <= frame.i)).length;
    const ending = held.filter(({ finished }) => finished?.step === frame.i);
    const ended = ending.filter(({ finished }) => isDone(finished?.reason ?? "")).length;
    tell(this.key, ended ? `${running} running, ${ended} just done` : `${running} running`);
    while (this.rows.length < shown.length) {
      const row = {
        chip: h("span", {}),
        by: h("span", { class: "by" }),
        prompt: h("span", { class: "prompt" }),
        output: h("span", { class: "output" }),
        changed: h("span", { class: "changed" }),
        fresh: h("mark", {}),
        note: h("span", { class: "note soft fine" }),
        masked: h("span", { class: "masked" }),
      };
      const { chip: letter, ...words } = row;
      const said = h("bdi", { class: "words", dir: "auto" }, ...Object.values(words));
      const el = h("div", { class: "said plain" }, letter, said);
      this.rows.push({ ...row, el });
      this.box.append(el);
    }
    this.rows.forEach((row, n) => {
      const request = shown[n];
      row.el.hidden = !request;
      if (!request) return;
      const holds = held.includes(request);
      if (isRedrawn(row, { request, run, holds, language: state.language })) {
        row.chip.replaceChildren(chip(state, request, holds));
        row.el.dataset.request = String(request.index);
      }
      const { finished } = request;
      const done = finished && finished.step + Number(onTheWay) <= frame.i ? finished : null;
      const total = run.numGenerated(request, frame.i);
      const before = run.numGenerated(request, frame.i - 1);
      const output = run.answer(request);
      const prompt = run.said(request);
      setText(row.by, callsItself(request));
      row.by.hidden = !request.by;
      setText(row.prompt, tail(prompt, prompt.length, PROMPT));
      // the first token that the leak changes
      const leaves = masked ? (differsAt(run, masked, request.id) ?? Infinity) : Infinity;
      const most = done && request.isOwn ? Infinity : OUTPUT; // the visitor's own is whole
      setText(row.output, outputTail(run, output, Math.min(before, output.length, leaves), most));
      setText(row.changed, clean(output.slice(leaves, before).join("")).slice(-OUTPUT));
      const other = masked && total > leaves ? masked.answer(request).slice(leaves, total) : null;
      const instead = other && `with the mask: ${clean(other.join("")).slice(-OUTPUT)}`;
      setText(row.masked, instead || "");
      row.fresh.classList.toggle("changed", total > leaves);
      setText(row.fresh, clean(run.newPieces(request, frame.i).join("")).slice(0, OUTPUT));
      row.fresh.hidden = total === before;
      setStyle(row.fresh, "visibility", onTheWay ? "hidden" : "");
      const { hue } = request;
      setStyle(row.el, "--tint", hue < 0 ? "var(--empty)" : `var(--tint-${hue})`);
      setStyle(row.el, "--hue", hue < 0 ? "var(--soft)" : `var(--hue-${hue})`);
      /** @type {Record<string, string>} */
      const words = {
        length: "finished",
        stop: run.endedItself(request) || request.lastToken === null ? "finished" : "stopped",
        cancelled: run.header.engine ? "ended from outside" : "cancelled",
        error: "failed",
        "not recorded": "ended unseen",
      };
      const waited = simple && !holds && !done ? waitedBy(run, request, frame.i) : null;
      const lost = !holds && request.laneSpans.some((span) => span.from <= frame.i);
      const note = done
        ? ` ${words[done.reason] || "done"}`
        : holds
          ? ""
          : waited === null
            ? " preempted, waits"
            : ` ${lost ? "lost its place, " : ""}waits ${waitOf(waited, run.span(true))}`;
      setText(row.note, unbroken(t(note)));
      row.el.classList.toggle("gone", Boolean(done && !holds));
      row.el.classList.toggle("dim", dims(focus, request));
    });
  }
}
