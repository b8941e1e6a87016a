// Somebody else's engine, watched by the recording that it writes: what it is, which of several is shown, and that nobody here can steer it.

import { h, setAttr, setText } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { speaking, t } from "../parts/speech.js";
import { limitsOf } from "../watch/facts.js";
import { inLanes } from "./words.js";

const SILENT = 10000; // ms without a step, while requests are in lanes, after which it is said

export class FollowedView {
  /**
   * @param {HTMLElement} section
   * @param {(of: string) => void} choose
   * @param {() => void} all
   */
  constructor(section, choose, all) {
    this.section = section;
    this.choose = choose;
    this.all = all;
    this.title = h("h2", {});
    this.file = h("p", { class: "followed-file" });
    this.note = h("p", { class: "followed-note" });
    this.streams = h("nav", { class: "followed-streams" });
    this.clock = h("p", { class: "followed-note" });
    section.append(this.title, this.file, this.streams, this.clock, this.note);
  }

  /** followed: the latest state of what is on screen, {of, file, texts, streams} and `Followed._together`; all: whether all ranks are. */
  draw(/** @type {any} */ followed, run, all) {
    this.section.hidden = !followed;
    if (!followed) return;
    const engine = run?.header.engine;
    setText(this.title, engine ? `${engine.name} ${engine.version}${whose(followed, all)}` : t("Another engine"));
    setText(this.file, all ? t(`Recorded in a file for each of ${count(followed.ranks.length)} [rank|ranks]`) : t("Recorded in {file}", { file: followed.file }));
    const notes = all ? [] : (run?.header.notes || []).map((note) => t(note));
    setText(this.note, [...notes, t("This is somebody else's engine: you can watch it, but not control it."), notRecorded(run), followed.texts ? "" : t("Its texts are hidden, as others reach this page.")].filter(Boolean).join(" "));
    setText(this.clock, followed.says.length ? followed.says.map((says) => t(says)).join(" ") : followed.streams.length > 1 ? t("These are not ranks of one engine: each recording is followed separately.") : "");
    setAttr(this.streams, "aria-label", t("Recordings"));
    this.streams.hidden = followed.streams.length < 2;
    const key = JSON.stringify([speaking(), followed.streams, followed.ranks.map((rank) => rank.of), all || followed.of]);
    if (key === this._key) return;
    this._key = key;
    const button = (text, on, act) => h("button", { type: "button", class: "button", "aria-pressed": String(on), onclick: act }, text);
    const focused = [...this.streams.children].indexOf(document.activeElement);
    this.streams.replaceChildren(...(followed.ranks.length > 1 ? [button(t("All ranks"), all, this.all)] : []),
      ...followed.streams.map((of) => button(nameOf(followed, of), !all && of === followed.of, () => this.choose(of))));
    if (focused >= 0) /** @type {HTMLElement} */ (this.streams.children[focused])?.focus();
  }
}

/** Which rank of how many, as far as that is known. */
function whose({ ranks, count, of }, all) {
  if (all) return t(`, ${count(ranks.length)} [rank|ranks]`);
  const mine = ranks.find((rank) => rank.of === of);
  return mine && count > 1 ? t(`, rank ${mine.rank} of ${count}`) : "";
}

/** A recording by its rank, where no other engine's has the same. */
function nameOf({ ranks, streams }, of) {
  const mine = ranks.find((rank) => rank.of === of);
  return mine && ranks.length === streams.length ? t(`Rank ${mine.rank}`) : of;
}

function notRecorded(run) {
  const absent = run?.header.absent || [];
  return absent.length ? t("Not recorded by {engine}, and absent here: {absent}.", { engine: run.header.engine.name, absent: absent.map((what) => t(what)).join(", ") }) : "";
}

/** How the engine is set, as it says itself. */
export const followedWords = (run) => (run ? limitsOf(run).map(([words], i) => (i ? t(words) : words)).join(" · ") : "");

/** What matters most now of all ranks: how each stands that its steps do not say. */
export function allSay(fleet, silent) {
  if (fleet.broken) return `${t(fleet.broken)} ${t("Trying again.")}`;
  if (!fleet.members.length) return t("The recordings are being opened.");
  if (fleet.sentences.length) return fleet.sentences.map(([rank, sentence]) => `${t(`Rank ${rank}`)}: ${t(sentence)}`).join(" ");
  const busy = fleet.members.some(({ run }) => inLanes(run) || run.waitingAt(run.length - 1).length);
  if (!busy) return t("Nobody is in a batch of any rank now.");
  return silent > SILENT ? t(`No step of any rank has come for ${Math.round(silent / 1000)} s.`) : "";
}

/** The one sentence that matters most now. silent: ms since the last step. */
export function followedSays({ run, state, broken }, { skipped, silent, inLanes }) {
  if (broken) return `${t(broken)} ${t("Trying again.")}`;
  if (!state.followed) return t("The recording is being opened.");
  if (state.followed.sentence) return t(state.followed.sentence);
  if (skipped) return t("Your connection fell behind: some steps were skipped.");
  if (!run) return t("Its engine has computed nothing yet.");
  if (!inLanes && !run.waitingAt(run.length - 1).length) return t("Nobody is in its batch now.");
  if (silent > SILENT) return t(`No step has come for ${Math.round(silent / 1000)} s: the engine is busy with a long one, or has stopped.`);
  return "";
}
