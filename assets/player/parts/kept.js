// What this browser stores for the page, permanently or for this visit only. If storage is switched
// off or full, nothing is stored and nothing is found.

import { jsonIn } from "./dom.js";

// where storage is switched off, accessing these objects throws
const STORES = { good: () => localStorage, visit: () => sessionStorage };

/** @typedef {keyof typeof STORES} Store */

/** The text stored under a key, or null. @param {Store} store @param {string} key */
export function kept(store, key) {
  try {
    return STORES[store]().getItem(key);
  } catch {
    return null;
  }
}

/** The data stored under a key as JSON, or null. @param {Store} store @param {string} key */
export function keptData(store, key) {
  return jsonIn(kept(store, key));
}

/**
 * The entries of a list stored under a key that are of one kind; others may be those of another
 * version of the page. @template T @param {Store} store @param {string} key
 * @param {(entry: Json) => entry is T} isOne @returns {T[]}
 */
export function keptList(store, key, isOne) {
  const found = keptData(store, key);
  return Array.isArray(found) ? found.filter(isOne) : [];
}

/** Keys whose latest text found no room: the page knows more than is stored. @type {Set<string>} */
const unkept = new Set();

/**
 * The object stored under a key, whose entries another tab may have written meanwhile. known:
 * entries that count where none are stored.
 * @param {Store} store @param {string} key @param {Record<string, Json>} known
 * @returns {Record<string, Json>}
 */
export function keptEntries(store, key, known = {}) {
  return { ...known, ...(unkept.has(key) ? {} : keptData(store, key)) };
}

/**
 * Change one entry of such an object and store it; returns the object.
 * @param {Store} store @param {string} key @param {Record<string, object>} known @param {string} name
 * @param {object} change
 */
export function keepEntry(store, key, known, name, change) {
  const all = keptEntries(store, key, known);
  all[name] = { ...all[name], ...change };
  if (keep(store, key, JSON.stringify(all))) unkept.delete(key);
  else unkept.add(key);
  return all;
}

/**
 * Store a text; null removes it. Returns whether that succeeded.
 * @type {(store: Store, key: string, text: string | null) => boolean}
 */
export function keep(store, key, text) {
  try {
    if (text === null) STORES[store]().removeItem(key);
    else STORES[store]().setItem(key, text);
    return true;
  } catch {
    return false;
  }
}
