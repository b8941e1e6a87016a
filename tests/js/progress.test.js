import assert from "node:assert/strict";
import test from "node:test";

import { Progress } from "../../assets/player/learn/progress.js";

const store = new Map();
globalThis.localStorage = /** @type {any} */ ({
  getItem: (/** @type {string} */ key) => store.get(key) ?? null,
  setItem: (/** @type {string} */ key, /** @type {string} */ text) => store.set(key, text),
});
const stops = ["p", "q"].map((name) => ({ name, ask: {} }));
const lesson = { name: "l", stops };

test("two tabs on one lesson keep each other's answers", () => {
  const [one, other] = [new Progress(), new Progress()];
  one.reached(lesson, 1);
  one.add(lesson, "answered", "p");
  other.add(lesson, "answered", "q");
  other.add(lesson, "met", "goal");
  one.reached(lesson, 0);
  assert.deepEqual(new Progress().of(lesson), {
    at: 0,
    answered: ["p", "q"],
    met: ["goal"],
    done: true,
  });
});

test("a lesson that has become shorter goes on at its last stop", () => {
  const progress = new Progress();
  progress.reached(lesson, 8);
  assert.equal(progress.of(lesson).at, 1);
});

test("where storage is full, what was answered in this visit stays answered", (t) => {
  const progress = new Progress();
  progress.reached({ name: "other" }, 0);
  const full = () => {
    throw new Error("full");
  };
  t.mock.method(localStorage, "setItem", full);
  const long = { name: "long", stops: [...stops, { name: "r", ask: {} }] };
  for (const [n, stop] of long.stops.entries()) {
    progress.reached(long, n);
    progress.add(long, "answered", stop.name);
  }
  progress.reached(lesson, 1);
  assert.equal(progress.of(lesson).at, 1);
  assert.deepEqual(progress.of(long), { at: 2, answered: ["p", "q", "r"], met: [], done: true });
});
