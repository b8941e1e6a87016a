// What this browser keeps for the page: for good, or for this visit alone. Storage may be switched off or full: then nothing is kept, and
// nothing is found.

import { jsonIn } from "./dom.js";

const STORES = { good: () => localStorage, visit: () => sessionStorage }; // where it is switched off, asking for it throws

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

/** Keep a text; null drops it. @param {Store} store @param {string} key @param {string | null} text */
export function keep(store, key, text) {
  try {
    if (text === null) STORES[store]().removeItem(key);
    else STORES[store]().setItem(key, text);
  } catch {
    // nothing is kept
  }
}
