// Somebody else's engine, watched by the recording that it writes: what it is, which of several is shown, and that nobody here can steer it.

import { h, setText } from "../parts/dom.js";
import { limitsOf } from "../watch/facts.js";

const SILENT = 10000; // ms without a step, while requests are in lanes, after which it is said

export class FollowedView {
  /**
   * @param {HTMLElement} section
   * @param {(of: string) => void} choose
   */
  constructor(section, choose) {
    this.section = section;
    this.choose = choose;
    this.title = h("h2", {});
    this.file = h("p", { class: "followed-file" });
    this.note = h("p", { class: "followed-note" });
    this.streams = h("nav", { class: "followed-streams", "aria-label": "Recordings" });
    this.alone = h("p", { class: "followed-note" }, "Each recording is followed by itself. Opened together on the Watch tab, those of one engine's ranks are on one clock.");
    section.append(this.title, this.file, this.streams, this.alone, this.note);
  }

  draw(/** @type {any} */ followed, run) {
    this.section.hidden = !followed;
    if (!followed) return;
    const engine = run?.header.engine;
    setText(this.title, engine ? `${engine.name} ${engine.version}${engine.ranks > 1 ? `, rank ${engine.rank} of ${engine.ranks}` : ""}` : "Another engine");
    setText(this.file, `Recorded in ${followed.file}`);
    setText(this.note, `It is somebody else's engine: it can be watched, not steered. ${notRecorded(run)}${followed.texts ? "" : " Its texts are hidden, as others reach this page."}`.trim());
    this.streams.hidden = this.alone.hidden = followed.streams.length < 2;
    const key = JSON.stringify([followed.streams, followed.of]);
    if (key === this._key) return;
    this._key = key;
    this.streams.replaceChildren(...followed.streams.map((of) => h("button", {
      type: "button", class: "button", "aria-pressed": String(of === followed.of), onclick: () => this.choose(of),
    }, of)));
  }
}

function notRecorded(run) {
  const absent = run?.header.absent || [];
  return absent.length ? `Not recorded by ${run.header.engine.name}, and absent here: ${absent.join(", ")}.` : "";
}

/** How the engine is set, as it says itself. */
export const followedWords = (run) => (run ? limitsOf(run).map(([words]) => words).join(" · ") : "");

/** The one sentence that matters most now. silent: ms since the last step. */
export function followedSays({ run, state, broken }, { skipped, silent, inLanes }) {
  if (broken) return `${broken} Trying again.`;
  if (!state.followed) return "The recording is being opened.";
  if (state.followed.sentence) return state.followed.sentence;
  if (skipped) return "Your connection fell behind: some steps were skipped.";
  if (!run) return "Its engine has computed nothing yet.";
  if (!inLanes && !run.waitingAt(run.length - 1).length) return "Nobody is in its batch now.";
  if (silent > SILENT) return `No step has come for ${Math.round(silent / 1000)} s: its engine takes long over one, or is gone.`;
  return "";
}
