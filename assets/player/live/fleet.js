// All ranks of the engine that is followed: a batch each, in one stream, placed on one clock as the server says. Knows no DOM.
//
//   inflight/live/steps?of=A&of=B ─→ {of, messages} ─→ a Batch each ─→ picture: the last stretch of time in which every rank's steps are kept

import { clamp } from "../parts/dom.js";
import { stretch } from "../run/moments.js";
import { Batch } from "./batch.js";

const MOST = 64; // seconds in the picture
const KEPT = 16; // chapters of all ranks together, and at least two of each

/**
 * @typedef {object} Going
 * @property {string} of
 * @property {number} rank
 * @property {number} offset
 * @property {import("../run/run.js").Run} run
 */

export class Fleet {
  /**
   * @param {import("../parts/server.js").Server} server
   * @param {string[]} names of their streams
   * @param {number} most chapters that are kept of one
   * @param {() => void} changed
   */
  constructor(server, names, most, changed) {
    this.server = server;
    this.names = names;
    this.most = clamp(Math.floor(KEPT / names.length), 2, most);
    this.changed = changed;
    this.broken = "";
    this.batches = new Map(names.map((of) => [of, this._batch()]));
    /** @type {Going[]} */
    this.members = []; // those with steps, by rank
  }

  _batch() {
    const changed = () => { this._hasChanged = true; };
    const batch = new Batch(this.server, () => false, { begins: changed, steps: changed, state: changed });
    batch.most = this.most;
    return batch;
  }

  /** Follow until the signal says no. */
  async follow(signal) {
    const of = this.names.map((name) => `&of=${encodeURIComponent(name)}`).join("");
    const deltas = this.server.deltas(`inflight/live/steps?chapters=${this.most}${of}`, { signal, broke: (sentence) => {
      this.broken = sentence;
      this.changed();
    } });
    try {
      for await (const { of: name, messages } of deltas) for (const message of messages) this.take(name, message);
    } catch (error) {
      if (error.name !== "AbortError") throw error;
    }
  }

  take(name, message) {
    this.broken = "";
    this._hasChanged = false;
    this.batches.get(name)?.take(message);
    if (this._hasChanged) this.changed();
  }

  /** What the server says of all: see `Followed._together`. */
  get followed() {
    return [...this.batches.values()].map((batch) => batch.state.followed).find(Boolean);
  }

  /** How each rank's recording stands, where its steps do not say it. */
  get sentences() {
    return this.members.map(({ rank, of }) => [rank, this.batches.get(of)?.state.followed?.sentence]).filter(([, sentence]) => sentence);
  }

  /** The picture as it is now; null while no rank has steps. A run that the server has not placed yet is left out. */
  get picture() {
    const placed = (this.followed?.ranks || []).filter(({ of, run }) => this.batches.get(of)?.run?.length && this.batches.get(of).number === run);
    const known = new Map(this.members.map((member) => [member.of, member]));
    const members = placed.map(({ of, rank, offset }) => Object.assign(known.get(of) || { of }, { rank, offset, run: this.batches.get(of).run }));
    if (members.length !== this.members.length || members.some((member, n) => member !== this.members[n])) this.members = members;
    if (!members.length) return null;
    const begins = members.map((member) => stretch(member, 0)[0]);
    const span = Math.max(...members.map((member) => stretch(member, member.run.length - 1)[1]));
    const gone = begins.filter((_, n) => members[n].run.stepOf(-1) >= 0); // of ranks whose earlier steps are no longer kept
    const from = Math.max(Math.min(...begins), span - MOST, ...gone);
    return { members: this.members, from, span, room: clamp(2 ** Math.ceil(Math.log2(span - from)), 1, MOST) };
  }
}
