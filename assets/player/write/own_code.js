// The visitor's code and the tasks that it solved, kept in this browser; and code in a link, packed
// after the #.

import { keepEntry, keptEntries } from "../parts/kept.js";
import { pack, unpack } from "../watch/address.js";

const KEY = "inflight-write"; // {task: {code, done}}
const MOST = 20000; // characters, as in visualizer/write/code.py

export class OwnCode {
  constructor() {
    this._all = keptEntries("good", KEY);
  }

  /** The visitor's code for a task, or null. @param {string} task @returns {string | null} */
  of(task) {
    const { code } = this._all[task] || {};
    return typeof code === "string" ? code : null;
  }

  isDone(/** @type {Json} */ task) {
    return Boolean(this._all[task]?.done);
  }

  /** Keep a change: {code} or {done}; null code is forgotten. */
  keep(/** @type {Json} */ task, /** @type {object} */ changed) {
    this._all = keepEntry("good", KEY, this._all, task, changed);
  }
}

/** Code for an address, or null if it is too long for one. @param {string} code */
export const packed = (code) => pack({ code });

/** The code in an address, or null. @param {string} text @returns {Promise<string | null>} */
export async function unpacked(text) {
  try {
    const { code } = await unpack(text);
    return typeof code === "string" && code.length <= MOST ? code : null;
  } catch {
    return null;
  }
}
