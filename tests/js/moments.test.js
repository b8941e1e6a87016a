import assert from "node:assert/strict";
import test from "node:test";

import { busy, momentsOf, standing } from "../../assets/player/run/moments.js";
import { event, runOf } from "./worlds.js";

// Steps of half a second at 0, 1, 3 and, on a clock whose zero is a second later, at 0 and 2 of its own: 1 and 3 of the common one.
const first = { run: runOf([event(0), event(1), event(3)]), offset: 0 };
const second = { run: runOf([event(0), event(2)]), offset: 1 };

test("a run stands at the last step that has begun, inside it or after it", () => {
  assert.deepEqual([-0.1, 0, 0.4, 0.5, 0.9, 1, 3.2, 9].map((t) => standing(first, t)), [
    { i: -1, inside: false }, { i: 0, inside: true }, { i: 0, inside: true }, { i: 0, inside: false }, { i: 0, inside: false }, { i: 1, inside: true }, { i: 2, inside: true }, { i: 2, inside: false },
  ]);
  assert.deepEqual([0.9, 1, 3.4].map((t) => standing(second, t).i), [-1, 0, 1]);
});

test("moments are those of all runs in order, those of the same time one", () => {
  const moments = momentsOf([second, first]);
  assert.deepEqual(moments.map(({ t, steps }) => [t, steps.length]), [[0, 1], [1, 2], [3, 2]]);
  assert.deepEqual(moments[1].steps.map(({ placed, i }) => [placed === first, i]).sort(), [[false, 0], [true, 1]]);
});

test("the share of the time in which a run computes", () => assert.equal(busy(first, 0, 4), 1.5 / 4));
