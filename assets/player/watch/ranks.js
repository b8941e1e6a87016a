// The ranks of one engine, a run for each, on one clock: which rank is on screen and at which
// moment, or all ranks in one picture. The ranks and the sentences about them come in one document
// (visualizer/documents/replay.py).

import { clamp, h, newButton, renew } from "../parts/dom.js";
import { momentOf } from "../parts/format.js";
import { t, tell } from "../parts/speech.js";
import { momentsOf, stepAt, stretch } from "../run/moments.js";
import { requestNamed } from "../run/ids.js";
import { Run, countUpTo } from "../run/run.js";

export class Ranks {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {Rank[]} */
    this.members = []; // the loaded ranks, in order; or none
    this.doc = null; // the ranks' document
    this.all = false; // whether one picture shows all
    this.from = this.span = 0; // first and last moment of which steps are known
    this.room = 1; // seconds for which the picture has room
    this.number = 0; // the number of the rank on screen
    /** @type {((member: Rank, index: number | null) => void) | null} */
    this.alone = null; // for ranks in progress: shows one rank
    /** @type {{run: Run, index: number, now: number} | null} */
    // the moment chosen for the step on screen, within that step or after it
    this._held = null;
    this.line = app.$(".rank-line");
    this.names = app.$(".rank-names");
    this.words = app.$(".rank-says");
    this.moment = app.$(".rank-at");
  }

  /**
   * Put ranks on screen. doc: their document; wanted: {rank, at, step, …} of an address.
   * @param {Json} doc @param {Wanted} [wanted] @param {Entry | null} [entry]
   */
  show(doc, wanted = {}, entry = null) {
    const { app } = this;
    this.members = doc.ranks.map((/** @type {Json} */ { rank, offset, id, replay }) => ({
      rank,
      offset,
      id,
      replay,
      run: new Run(replay),
    }));
    this.doc = doc;
    this.says = doc.says;
    this.all = false;
    this._held = null;
    this.alone = null;
    this.from = 0;
    const ends = this.members.flatMap((m) => (m.run.length ? stretch(m, m.run.length - 1)[1] : []));
    this.span = this.room = Math.max(1e-9, ...ends);
    this._walk();
    app.store.set({ following: false });
    this._put(this._first, entry);
    const isOne = [wanted.step, wanted.rank].some(Number.isInteger) || wanted.request;
    this.look(isOne ? wanted : { ...wanted, rank: "all" });
  }

  /**
   * Show all ranks in progress as they are now: the same members with more steps, or others.
   * @param {{members: Rank[], from: number, span: number, room: number}} picture
   * @param {(member: Rank, index: number | null) => void} alone
   */
  renew(picture, alone) {
    const { app } = this;
    const begins = !this.alone;
    const now = begins ? 0 : this.now;
    Object.assign(this, picture, { alone, doc: null, says: [""], all: true });
    this._walk();
    const member = this.members.find((m) => m.rank === this.number) || this.members[0];
    if (begins || app.run !== member.run) this._put(member);
    app.root.toggleAttribute("data-ranks", true);
    this.hold(begins || app.following ? this.span : now);
  }

  leave() {
    this.alone = null;
    this.members = [];
    this.entered();
  }

  _walk() {
    /** @type {ReturnType<typeof momentsOf>} */
    this._moments = momentsOf(this.members).filter((moment) => moment.t >= this.from);
    /** @type {number[]} */
    this._times = this._moments.map((moment) => moment.t);
  }

  /** Apply an address. wanted: {rank: a number, "all" or null, at: seconds or null, step} */
  look(/** @type {Wanted} */ wanted) {
    const { app } = this;
    const having = [this.current, ...this.members].find(
      (m) => m && requestNamed(m.run, wanted.request),
    );
    const member =
      this.members.find((m) => m.rank === wanted.rank) || having || this.current || this.members[0];
    if (member !== this.current) this._put(member);
    if (wanted.rank === "all") this.showAll(true, wanted.at ?? this.now);
    else this.showAll(false);
    app.look(wanted);
  }

  /** The state for views, if all ranks are on screen. @returns {RanksState | null} */
  get state() {
    if (!this.all) return null;
    const { members, now, from, span, room, readout } = this;
    return { members, now, from, span, room, readout };
  }

  /** The rank on screen, or null. */
  get current() {
    return this.members.find((m) => m.run === this.app.run) || null;
  }

  /** The first rank that has steps: without a step nothing can be drawn. */
  get _first() {
    return this.members.find((m) => m.run.length) || this.members[0];
  }

  /** What a page needs, beside the step, to open at the same place; empty if there are no ranks. */
  get place() {
    if (!this.current) return {};
    return this.all ? { step: null, rank: null, at: this.now } : { rank: this.current.rank };
  }

  /**
   * The current moment in seconds on the common clock: the start of the step on screen, or the
   * moment within or after it that was chosen.
   */
  get now() {
    const { run, index } = this.app;
    const held = this._held;
    if (held && held.run === run && held.index === index) return held.now;
    if (!run.length) return 0;
    return stretch(/** @type {Rank} */ (this.current), Math.min(index, run.length - 1))[0];
  }

  /** Go to a moment; the run on screen goes to the last step that began by then. */
  hold(/** @type {number} */ now) {
    const { app } = this;
    const at = clamp(now, this.from, this.span);
    app.store.set({ index: Math.max(0, stepAt(/** @type {Rank} */ (this.current), at).i) });
    this._held = { run: app.run, index: app.index, now: at };
    if (this.alone) app.store.set({ following: this.at >= this.length - 1 });
    app.redraw();
    app.changed();
  }

  /** Show a rank, at the same moment or at a given step. */
  choose(/** @type {Rank | null} */ member, /** @type {number | null} */ index = null) {
    if (!member || !this.members.includes(member)) return;
    if (this.alone) return this.alone(member, index);
    const now = this.current ? this.now : null;
    this.showAll(false);
    if (member !== this.current) this._put(member);
    if (index !== null) this.app.seek(index, true);
    else if (now !== null) this.hold(now);
  }

  turn(/** @type {number} */ by) {
    const at = this.members.indexOf(/** @type {Rank} */ (this.current));
    if (at >= 0) this.choose(this.members[(at + by + this.members.length) % this.members.length]);
  }

  /** @param {Rank} rank @param {Entry | null} entry */
  _put({ run, replay, rank }, entry = this.app.entry) {
    const { app } = this;
    app.transport.toggle(false);
    this.number = rank;
    app.enter({ run, entry, replay });
  }

  /** Show all ranks in one picture, at a moment; or again the rank that was on screen. */
  showAll(/** @type {boolean} */ on, now = this.members.length ? this.now : 0) {
    if (on && this.members.length < 2) return;
    if (!on && this.alone) return this.choose(this.current);
    const { app } = this;
    if (on && !app.run.length) this._put(this._first);
    if (on !== this.all) app.transport.toggle(false);
    this.all = on;
    app.root.toggleAttribute("data-ranks", on);
    this._buttons();
    if (on) this.hold(now);
    else app.redraw();
    app.changed();
  }

  /** A run was put on screen: one of these, one paired with it, or another, which ends this. */
  entered() {
    const { app } = this;
    if (!this.current && !app.pair.members.length) this.members = [];
    if (!this.current && this.all) {
      this.all = false;
      app.root.toggleAttribute("data-ranks", false);
    }
    this.line.hidden = !this.current;
    this._buttons();
  }

  _buttons() {
    const { current } = this;
    if (!current) return;
    /** @param {string} text @param {boolean} on @param {() => void} act */
    const button = (text, on, act) =>
      newButton({ class: "button", "aria-pressed": String(on), onclick: act }, t(text));
    const all = button("All ranks", this.all, () => this.showAll(!this.all));
    const each = this.members.map((m) =>
      button(m.name || `Rank ${m.rank}`, !this.all && m === current, () => this.choose(m)),
    );
    renew(this.names, this.members.length > 1 && all, ...each);
    const [aligned, ...faults] = this.says;
    const odd = faults.map((/** @type {Json} */ fault) => h("b", {}, h("bdi", {}, t(fault)), " "));
    this.words.replaceChildren(...odd, this.members.length > 1 ? t(aligned) : "");
    this.words.title = this.words.textContent;
  }

  draw() {
    const { current } = this;
    if (!current) return;
    const { i, inside } = stepAt(current, this.now);
    // in Simple, the lanes already show this rank's place on its own clock
    this.moment.hidden = this.all || this.members.length < 2 || (inside && this.app.detail.simple);
    const before = i < 0 ? "before its first step" : `idle after step ${current.run.stepOf(i)}`;
    tell(this.moment, inside ? `All ranks at ${this.readout}` : `${this.readout}: ${before}`);
  }

  // -- what the transport moves along if all ranks are on screen: the moments at which one of them
  // begins a step ---

  get at() {
    return Math.max(0, countUpTo(this._times, this.now + 1e-9) - 1);
  }

  get length() {
    return this._moments.length;
  }

  seek(/** @type {number} */ index) {
    this.hold(this._times[clamp(index, 0, this.length - 1)]);
  }

  /** Indices of the moments at which something of a kind happens; see `Run.eventSteps`. */
  eventSteps(/** @type {string} */ kind) {
    const steps = new Map(this.members.map((m) => [m, new Set(m.run.eventSteps(kind))]));
    const has = (/** @type {Json} */ { placed, i }) => steps.get(placed)?.has(i);
    return this._moments.flatMap((moment, n) => (moment.steps.some(has) ? n : []));
  }

  get readout() {
    return momentOf(this.now, this.span);
  }
}
