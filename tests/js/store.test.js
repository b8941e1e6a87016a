import assert from "node:assert/strict";
import test from "node:test";

import { Store } from "../../assets/player/watch/store.js";

test("what the pointer lights goes before what it is over, and that before what is pinned", () => {
  const store = new Store(/** @type {any} */ ({}));
  const [pinned, hovered, one, other] = "pqrs".split("").map((id) => /** @type {any} */ ({ id }));
  const focusAfter = (/** @type {any} */ patch) => {
    store.set(patch);
    return store.state.focus;
  };
  assert.deepEqual(focusAfter({ pinned }), [pinned]);
  assert.deepEqual(focusAfter({ hovered }), [hovered]);
  assert.deepEqual(focusAfter({ lit: [one, other] }), [one, other]);
  assert.deepEqual(focusAfter({ hovered: null }), [one, other]);
  assert.deepEqual(focusAfter({ lit: null, index: 3 }), [pinned]);
  assert.equal(focusAfter({ pinned: null }), null);
});

test("nobody is told of what stays as it is", () => {
  const store = new Store(/** @type {any} */ ({}));
  /** @type {string[][]} */
  const told = [];
  store.listen((changed) => told.push([...changed]));
  const before = store.state;
  store.set({ index: 0, tab: "mask" });
  assert.deepEqual([told, store.state], [[], before]);
  store.set({ index: 1, tab: "mask" });
  assert.deepEqual(told, [["index"]]);
});
