import assert from "node:assert/strict";
import test from "node:test";

import { firstStepOf, matching, requestNamed } from "../../assets/player/run/ids.js";
import { admissions, event, prefill, runOf } from "./worlds.js";

const come = (/** @type {string[]} */ ...ids) => ids.map((request) => ({ request, t: 0 }));

test("a client's id is that of the request behind it, and no longer number of another", () => {
  const run = runOf([event(0, { arrived: come("req-10", "req-1-0-bc5b", "req-2", "req-20") })]);
  const found = (/** @type {string | null} */ id) => requestNamed(run, id)?.id ?? null;
  assert.equal(found("req-10"), "req-10");
  assert.equal(found("req-1"), "req-1-0-bc5b");
  assert.equal(found("req-2"), "req-2");
  assert.equal(found("req-1-0"), "req-1-0-bc5b");
  assert.deepEqual([null, "", "x", "eq-2"].map(found), [null, null, null, null]);
});

test("a request begins where it is computed, or waits where it came", () => {
  const run = runOf([
    event(0, { arrived: come("a") }),
    event(1, {
      arrived: come("b"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
    }),
  ]);
  assert.deepEqual(run.requests.map(firstStepOf), [1, 1]);
});

test("whoever has the letter comes first, and nobody twice", () => {
  const run = runOf([event(0, { arrived: come("bat", "a", "cab", "b", "x") })]);
  const among = run.requests.map((request) => ({ request }));
  const found = (/** @type {string} */ text) =>
    matching(among, text).map(({ request }) => request.id);
  assert.deepEqual(found(" B "), ["b", "bat", "cab"]);
  assert.deepEqual(found("A"), ["a", "bat", "cab"]);
  assert.deepEqual(found(" "), ["bat", "a", "cab", "b", "x"]);
  assert.deepEqual(found("y"), []);
});
