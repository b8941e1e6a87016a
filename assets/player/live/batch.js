// The shared batch as this page receives it: chapters of deltas, folded into a run that drops its oldest steps as new ones come; and all ranks
// of a followed engine, each a batch of its own, in one stream. No DOM.
//
//   inflight/live/steps ─→ chapters (a beginning, then deltas) ─→ Run ─→ listener.steps(run) | listener.begins(run) | listener.state(…)
//   inflight/live/steps?of=A&of=B ─→ {of, last, messages} ─→ a Batch each ─→ picture: the last stretch of time in which every rank's steps are kept

import { clamp } from "../parts/dom.js";
import { stretch } from "../run/moments.js";
import { Run } from "../run/run.js";

const MINE = "★"; // appended to the letters of the visitor's own requests
const CHAPTER = 64; // steps in a chapter, roughly: see visualizer/server/live.py
const MOST = 64; // seconds in the picture of all ranks at most
const ENDED = 256; // ended requests whose outcome is kept
const KEPT = 16; // chapters kept of all ranks together, but at least two of each

/**
 * Take each delta of `names`, from the newest `chapters` on. more: options of `Server.deltas`.
 * @param {Json} server @param {string[]} names @param {Json} chapters @param {Json} more
 * @param {Function} take
 */
async function follow(server, names, chapters, more, take) {
  const of = names.map((name) => `&of=${encodeURIComponent(name)}`).join("");
  try {
    for await (const delta of server.deltas(`inflight/live/steps?chapters=${chapters}${of}`, more))
      take(delta);
  } catch (/** @type {Foreign} */ error) {
    if (error.name !== "AbortError") throw error;
  }
}

/**
 * The shared batch. listener: begins(run): there is a new run, or the same one with other steps
 * kept; steps(delta): the run has more steps; state(): other facts have changed; ended(how): how
 * requests ended, by id.
 */
export class Batch {
  /**
   * @param {import("../parts/server.js").Server} server
   * @param {(id: string) => boolean} isMine
   * @param {{begins(run: Run, same: boolean): void, steps(): void, state(): void, ended?(how:
   * Record<string, import("./whereabouts.js").Ended>): void}} listener
   */
  constructor(server, isMine, listener) {
    this.server = server;
    this.isMine = isMine;
    this.listener = listener;
    /** @type {Run | null} */
    this.run = null; // null until there are steps
    /** @type {Json} */
    this.state = {}; // {class, pace, shadow …}: the latest value of each
    this.missed = false; // whether steps have just been skipped
    this.broken = ""; // a sentence that says why no messages come
    this.of = ""; // which stream, if several are followed
    this.next = null; // the number of the next message; null before the first
    this.most = 8; // chapters that are kept
    /** @type {Json[]} */
    this.chapters = []; // {beginning, deltas}
    this.first = undefined; // the chapter with which the run begins
    /** @type {Map<string, import("./whereabouts.js").Ended>} */
    this.ended = new Map(); // how the latest requests ended: see whereabouts.js
  }

  /** How many steps the axis has room for. */
  get room() {
    return this.most * CHAPTER;
  }

  follow(/** @type {AbortSignal | undefined} */ signal) {
    const broke = (/** @type {string} */ sentence) => {
      this.broken = sentence;
      this.listener.state();
    };
    const reached = (/** @type {Json} */ next) => {
      this.next = next;
    };
    return follow(
      this.server,
      this.of ? [this.of] : [],
      this.most,
      { signal, from: this.next, reached, broke },
      (/** @type {Json} */ delta) => this.take(delta),
    );
  }

  /** Switch to another stream, with what is already known of it. */
  choose(
    /** @type {string} */ of,
    { run, state, chapters, first, next } = new Batch(this.server, this.isMine, this.listener),
  ) {
    Object.assign(this, { of, run, state, chapters, first, next });
  }

  get number() {
    return this.chapters[0]?.beginning.begin.run;
  }

  take(/** @type {Json} */ delta) {
    const wasBroken = this.broken;
    this.broken = delta.broken || "";
    const anew = delta.kind === "skipped";
    if (anew) {
      this.chapters = [];
      this.missed = delta.messages > 0;
    }
    const {
      kind,
      messages,
      header,
      begin,
      events,
      captions,
      translations,
      letters,
      hues,
      asked,
      texts,
      ended,
      broken,
      ...state
    } = delta;
    for (const [id, how] of Object.entries(ended || {})) this.ended.set(id, how);
    while (this.ended.size > ENDED) this.ended.delete(this.ended.keys().next().value || "");
    if (ended && Object.keys(ended).length) this.listener.ended?.(ended);
    if (begin) this._begin(delta);
    else if (events) this._more(delta);
    if (Object.keys(state).length || anew || wasBroken !== this.broken) {
      Object.assign(this.state, state);
      this.listener.state();
    }
  }

  /** Mark the visitor's own requests again after they have changed. */
  relabel() {
    if (this.run && this.chapters.length) this._fold();
  }

  _begin(/** @type {Json} */ beginning) {
    const last = this.chapters.at(-1);
    const same = last && last.beginning.begin.run === beginning.begin.run;
    if (!same) this.chapters = [];
    this.chapters.push({ beginning, deltas: [] });
    if (same && this.chapters.length > this.most) {
      this.chapters.shift();
      this._fold();
    }
  }

  _more(/** @type {Json} */ delta) {
    const chapter = this.chapters.at(-1);
    if (!chapter) return;
    chapter.deltas.push(delta);
    if (this.run && this.first === this.chapters[0]) {
      this._append(this.run, delta);
      this.listener.steps();
    } else this._fold();
  }

  /** Build the run anew from the chapters that are kept. */
  _fold() {
    const [first, ...others] = this.chapters;
    const before = this.first;
    this.first = first;
    const run = new Run({ ...this._mine(first.beginning), complete: false });
    run.goesOn = true;
    run.room = this.room;
    run.isHeld = () => this.state.class?.held > 0;
    for (const { deltas } of [first, ...others])
      for (const delta of deltas) this._append(run, delta);
    this.run = run;
    this.listener.begins(run, before?.beginning.begin.run === first.beginning.begin.run);
  }

  _append(/** @type {Run} */ run, /** @type {Json} */ delta) {
    run.append(delta.events, delta.captions, this._mine(delta));
  }

  /** A delta with the letters of the visitor's own requests marked. */
  _mine(/** @type {Json} */ delta) {
    const letters = Object.entries(delta.letters || {}).map(([id, letter]) => [
      id,
      this.isMine(id) ? letter + MINE : letter,
    ]);
    return { ...delta, letters: Object.fromEntries(letters) };
  }
}

/** @typedef {{of: string, rank: number, name?: string, offset: number, run: Run}} Going */

/** All ranks of the followed engine, on one clock as the server places them. */
export class Fleet {
  /**
   * @param {import("../parts/server.js").Server} server
   * @param {"ranks" | "all"} scope the ranks of one engine, or those of all engines
   * @param {string[]} names of the ranks' streams
   * @param {number} most chapters that are kept of each rank
   * @param {() => void} changed
   */
  constructor(server, scope, names, most, changed) {
    this.server = server;
    this.scope = scope;
    this.names = names;
    this.most = clamp(Math.floor(KEPT / names.length), 2, most);
    this.changed = changed;
    this.broken = "";
    this.batches = new Map(names.map((of) => [of, this._batch()]));
    /** @type {Going[]} */
    this.members = []; // the ranks that have steps, in order
  }

  _batch() {
    const changed = () => {
      this._hasChanged = true;
    };
    const listener = { begins: changed, steps: changed, state: changed };
    const batch = new Batch(this.server, () => false, listener);
    batch.most = this.most;
    return batch;
  }

  follow(/** @type {AbortSignal | undefined} */ signal) {
    const broke = (/** @type {string} */ sentence) => {
      this.broken = sentence;
      this.changed();
    };
    return follow(
      this.server,
      this.names,
      this.most,
      { signal, broke },
      (/** @type {Json} */ part) => this.take(part),
    );
  }

  /** Take news of one rank, whose stream alone resumes after `last`: see `events_together`. */
  take(/** @type {Json} */ { of, last, messages }) {
    const batch = this.batches.get(of);
    if (!batch) return;
    this.broken = "";
    for (const message of messages) {
      this._hasChanged = false;
      batch.take(message);
      if (this._hasChanged) this.changed();
    }
    batch.next = last + 1;
  }

  /** What the server says about all ranks together: see `Followed._together`. */
  get followed() {
    return [...this.batches.values()].map((batch) => batch.state.followed).find(Boolean);
  }

  /** The sentence about each rank's recording, for ranks that have one. */
  get sentences() {
    return this.members
      .map((member) => [member, this.batches.get(member.of)?.state.followed?.sentence])
      .filter(([, sentence]) => sentence);
  }

  /** The current picture; null while no rank has steps. Ranks not yet on the clock are left out. */
  get picture() {
    const placed = (this.followed?.[this.scope] || []).filter(
      (/** @type {Json} */ { of, run }) =>
        this.batches.get(of)?.run?.length && this.batches.get(of)?.number === run,
    );
    const known = new Map(this.members.map((member) => [member.of, member]));
    const members = placed.map((/** @type {Json} */ { of, rank, offset, name }) => {
      const run = this.batches.get(of)?.run;
      return Object.assign(known.get(of) || { of }, { rank, offset, name, run });
    });
    if (
      members.length !== this.members.length ||
      members.some(
        (/** @type {Json} */ member, /** @type {number} */ n) => member !== this.members[n],
      )
    )
      this.members = members;
    if (!members.length) return null;
    const begins = members.map((/** @type {Json} */ member) => stretch(member, 0)[0]);
    const span = Math.max(
      ...members.map((/** @type {Json} */ member) => stretch(member, member.run.length - 1)[1]),
    );
    // starts of the ranks whose earlier steps are no longer kept
    const gone = begins.filter(
      (/** @type {unknown} */ _, /** @type {number} */ n) => members[n].run.stepOf(-1) >= 0,
    );
    const from = Math.max(Math.min(...begins), span - MOST, ...gone);
    return {
      members: this.members,
      from,
      span,
      room: clamp(2 ** Math.ceil(Math.log2(span - from)), 1, MOST),
    };
  }
}
