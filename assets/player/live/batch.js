// The shared batch as it reaches this page: chapters of deltas, folded into a run whose oldest steps go as new ones come. Knows no DOM.
//
//   inflight/live/steps ─→ chapters (a beginning, then deltas) ─→ Run ─→ listener.steps(run) | listener.begins(run) | listener.state(…)

import { Run } from "../run/run.js";

const MINE = "★"; // behind the letter of one's own requests

/** Who listens: begins(run): another run, or the same with other steps kept; steps(delta): more of it; state(): what else is known has changed. */
export class Batch {
  /**
   * @param {import("../parts/server.js").Server} server
   * @param {(id: string) => boolean} isMine
   * @param {{begins(run: Run, same: boolean): void, steps(): void, state(): void}} listener
   */
  constructor(server, isMine, listener) {
    this.server = server;
    this.isMine = isMine;
    this.listener = listener;
    /** @type {Run | null} */
    this.run = null; // once it has steps
    this.state = {}; // {class, pace, shadow …}: the latest of each
    this.missed = false; // whether steps were skipped just now
    this.broken = ""; // why nothing comes
    this.of = ""; // which, where several are followed
    this.next = null; // the number of the next message, once one is here
    this.most = 8; // chapters that are kept
    /** @type {any[]} */
    this.chapters = []; // {beginning, deltas}
    this.first = undefined; // the chapter that the run begins with
  }

  /** Steps that the axis has room for. */
  get room() {
    return this.most * CHAPTER;
  }

  /** Follow until the signal says no. */
  async follow(signal) {
    const of = this.of && `&of=${encodeURIComponent(this.of)}`;
    const deltas = this.server.deltas(`inflight/live/steps?chapters=${this.most}${of}`, { signal, from: this.next, reached: (next) => { this.next = next; }, broke: (sentence) => {
      this.broken = sentence;
      this.listener.state();
    } });
    try {
      for await (const delta of deltas) this.take(delta);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  /** Another one from now on, as it is known so far. */
  choose(of, { run, state, chapters, first, next } = new Batch(this.server, this.isMine, this.listener)) {
    Object.assign(this, { of, run, state, chapters, first, next });
  }

  /** The number of the run that is told of. */
  get number() {
    return this.chapters[0]?.beginning.begin.run;
  }

  take(delta) {
    const wasBroken = this.broken;
    this.broken = delta.broken || "";
    const anew = delta.kind === "skipped";
    if (anew) {
      this.chapters = [];
      this.missed = delta.messages > 0;
    }
    const { kind, messages, header, begin, events, captions, translations, letters, hues, asked, texts, broken, ...state } = delta;
    if (begin) this._begin(delta);
    else if (events) this._more(delta);
    if (Object.keys(state).length || anew || wasBroken !== this.broken) {
      Object.assign(this.state, state);
      this.listener.state();
    }
  }

  /** One's own requests are others now. */
  relabel() {
    if (this.run) this._fold();
  }

  _begin(beginning) {
    const last = this.chapters.at(-1);
    const same = last && last.beginning.begin.run === beginning.begin.run;
    if (!same) this.chapters = [];
    this.chapters.push({ beginning, deltas: [] });
    if (same && this.chapters.length > this.most) {
      this.chapters.shift();
      this._fold();
    }
  }

  _more(delta) {
    const chapter = this.chapters.at(-1);
    if (!chapter) return;
    chapter.deltas.push(delta);
    if (this.run && this.first === this.chapters[0]) {
      this._append(this.run, delta);
      this.listener.steps();
    } else this._fold();
  }

  /** The run anew from what is kept. */
  _fold() {
    const [first, ...others] = this.chapters;
    const before = this.first;
    this.first = first;
    const run = new Run({ ...this._mine(first.beginning), complete: false });
    run.goesOn = true;
    run.room = this.room;
    for (const { deltas } of [first, ...others]) for (const delta of deltas) this._append(run, delta);
    this.run = run;
    this.listener.begins(run, Boolean(before && before.beginning.begin.run === first.beginning.begin.run));
  }

  _append(run, delta) {
    run.append(delta.events, delta.captions, this._mine(delta));
  }

  /** With one's own letters marked. */
  _mine(delta) {
    const letters = Object.entries(delta.letters || {}).map(([id, letter]) => [id, this.isMine(id) ? letter + MINE : letter]);
    return { ...delta, letters: Object.fromEntries(letters) };
  }
}

const CHAPTER = 64; // steps, about: see visualizer/server/live.py
