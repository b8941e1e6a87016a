// What this browser keeps for the page: permanently, or for this visit only. If storage is switched
// off or full, nothing is kept or found.

import { jsonIn } from "./dom.js";

// if switched off, accessing it throws
const STORES = { good: () => localStorage, visit: () => sessionStorage };

/** @typedef {keyof typeof STORES} Store */

/** The text kept under a key, or null. @param {Store} store @param {string} key */
export function kept(store, key) {
  try {
    return STORES[store]().getItem(key);
  } catch {
    return null;
  }
}

/** The data kept under a key as JSON, or null. @param {Store} store @param {string} key */
export function keptData(store, key) {
  return jsonIn(kept(store, key));
}

/** Keys for which there was no room: the page knows more than is kept. @type {Set<string>} */
const unkept = new Set();

/**
 * The object kept under a key, whose entries another tab may have written meanwhile. known: what it
 * is where nothing is kept.
 * @param {Store} store @param {string} key @param {Record<string, Json>} known
 * @returns {Record<string, Json>}
 */
export function keptEntries(store, key, known = {}) {
  return { ...known, ...(unkept.has(key) ? {} : keptData(store, key)) };
}

/**
 * Change one entry of such an object; returns the object.
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
 * Keep a text; null drops it. Returns whether it is kept.
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
