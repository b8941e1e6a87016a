// Players without a page. Imported once a test has put its stand-in for the document in place.

import { Player } from "../../assets/player/watch/player.js";
import { Store } from "../../assets/player/watch/store.js";
import { of } from "./elements.js";

export const none = () => {};

/** A player with this state, and with these fields besides. */
export const playerOf = (state, more = {}) => {
  const store = new Store(/** @type {any} */ ({}));
  store.set(state);
  return of(Player, { store, redraw: none, changed: none, ...more });
};
