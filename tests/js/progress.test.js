import assert from "node:assert/strict";
import test from "node:test";

import { Progress } from "../../assets/player/learn/progress.js";

test("two tabs on one lesson keep each other's answers", () => {
  const store = new Map();
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (/** @type {string} */ key) => store.get(key) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ text) => store.set(key, text),
  });
  const stops = ["p", "q"].map((name) => ({ name, ask: {} }));
  const lesson = { name: "l", stops };
  const [one, other] = [new Progress(), new Progress()];
  one.reached(lesson, 1);
  one.answered(lesson, stops[0]);
  other.answered(lesson, stops[1]);
  one.reached(lesson, 0);
  assert.deepEqual(new Progress().of(lesson), { at: 0, answered: ["p", "q"], done: true });
});
