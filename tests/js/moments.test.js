import assert from "node:assert/strict";
import test from "node:test";

import {
  busy,
  differsAt,
  firstChange,
  momentsOf,
  stepAt,
} from "../../assets/player/run/moments.js";
import { event, runOf } from "./worlds.js";

// Steps of half a second at 0, 1, 3 and, on a clock whose zero is a second later, at 0 and 2 of its
// own: 1 and 3 of the common one.
const first = { run: runOf([event(0), event(1), event(3)]), offset: 0 };
const second = { run: runOf([event(0), event(2)]), offset: 1 };

test("a run stands at the last step that has begun, inside it or after it", () => {
  assert.deepEqual(
    [-0.1, 0, 0.4, 0.5, 0.9, 1, 3.2, 9].map((t) => stepAt(first, t)),
    [
      { i: -1, inside: false },
      { i: 0, inside: true },
      { i: 0, inside: true },
      { i: 0, inside: false },
      { i: 0, inside: false },
      { i: 1, inside: true },
      { i: 2, inside: true },
      { i: 2, inside: false },
    ],
  );
  assert.deepEqual(
    [0.9, 1, 3.4].map((t) => stepAt(second, t).i),
    [-1, 0, 1],
  );
});

test("moments are those of all runs in order, those of the same time one", () => {
  const moments = momentsOf([second, first]);
  assert.deepEqual(
    moments.map(({ t, steps }) => [t, steps.length]),
    [
      [0, 1],
      [1, 2],
      [3, 2],
    ],
  );
  assert.deepEqual(moments[1].steps.map(({ placed, i }) => [placed === first, i]).sort(), [
    [false, 0],
    [true, 1],
  ]);
});

test("the share of the time in which a run computes", () => {
  assert.equal(busy(first, 0, 4), 1.5 / 4);
  assert.equal(busy(first, 0.25, 1.25), 0.5); // of both steps a half
});

const texts = (output, samples) => ({
  texts: { output },
  requests: Object.keys(output).map((id) => ({ id, samples: samples[id] })),
  stepOf: (i) => i + 100,
});

test("texts depart at the first other token, or where one of them ends", () => {
  const [one, other] = [
    texts({ a: ["x", "y", "z"], b: ["x"] }, { a: [1, 2, 3], b: [1] }),
    texts({ a: ["x", "q", "z"], b: ["x", "y"] }, { a: [1, 2, 3], b: [1, 4] }),
  ];
  assert.equal(differsAt(one, other, "a"), 1);
  assert.equal(differsAt(one, other, "b"), 1);
  assert.equal(differsAt(one, one, "a"), null);
});

test("the first change is that of the earliest step, whoever's it is", () => {
  const before = texts({ a: ["x", "y"], b: ["p", "q"] }, { a: [5, 6], b: [1, 2] });
  const after = texts({ a: ["X", "y"], b: ["p", "Q"] }, { a: [5, 6], b: [1, 2] });
  assert.deepEqual(firstChange(before, after), {
    step: 102,
    id: "b",
    writes: "Q",
    wrote: "q",
    texts: 2,
  });
  assert.equal(firstChange(before, before), null);
  assert.equal(firstChange(before, texts({ a: ["x"] }, { a: [5] })), null, "ends sooner");
});

test("steps that begin within a microsecond begin at one moment, those a millisecond apart do not", () => {
  const begins = (/** @type {number[]} */ ...times) =>
    /** @type {any} */ ({ events: times.map((tStart) => ({ tStart, tEnd: tStart + 1 })) });
  const moments = (/** @type {number} */ apart) =>
    momentsOf([
      { run: begins(0, 2), offset: 1 },
      { run: begins(0, 3), offset: 1 + apart },
    ]).map(({ t, steps }) => [Math.round(t), steps.length]);
  assert.deepEqual(moments(5e-7), [
    [1, 2],
    [3, 1],
    [4, 1],
  ]);
  assert.deepEqual(moments(9e-4), [
    [1, 1],
    [1, 1],
    [3, 1],
    [4, 1],
  ]);
});
