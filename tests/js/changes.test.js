import assert from "node:assert/strict";
import test from "node:test";

import { departs, firstChange } from "../../assets/player/run/changes.js";

const run = (output, samples) => ({ texts: { output }, requests: Object.keys(output).map((id) => ({ id, samples: samples[id] })), stepOf: (i) => i + 100 });

test("texts depart at the first other token, or where one of them ends", () => {
  const [one, other] = [run({ a: ["x", "y", "z"], b: ["x"] }, { a: [1, 2, 3], b: [1] }), run({ a: ["x", "q", "z"], b: ["x", "y"] }, { a: [1, 2, 3], b: [1, 4] })];
  assert.equal(departs(one, other, "a"), 1);
  assert.equal(departs(one, other, "b"), 1);
  assert.equal(departs(one, one, "a"), null);
});

test("the first change is that of the earliest step, whoever's it is", () => {
  const before = run({ a: ["x", "y"], b: ["p", "q"] }, { a: [5, 6], b: [1, 2] });
  const after = run({ a: ["X", "y"], b: ["p", "Q"] }, { a: [5, 6], b: [1, 2] });
  assert.deepEqual(firstChange(before, after), { step: 102, id: "b", writes: "Q", wrote: "q", texts: 2 });
  assert.equal(firstChange(before, before), null);
});
