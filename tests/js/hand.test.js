import assert from "node:assert/strict";
import test from "node:test";

import { hand, recorded } from "../../assets/player/figure/hand.js";
import { GUTTER } from "../../assets/player/views/lane_ink.js";

// Two settings of each knob, and so eight in all; in waves all is later by as many steps as the
// number of the setting, continuously everything is as in the first.
const rows = (/** @type {number} */ n) => [
  [0, 0, 1, 1],
  [0, 2, 3 + n, 3 + n],
  [1, 0, 4, 4],
  [0, 20 + n, 30 + n, 30 + n],
];
const settings = [0, 1, 2, 3, 4, 5, 6, 7];
const data = {
  length: [2, 4, 2, 2],
  lanes: [1, 2, 1, 2],
  arrival: [0, 5, 5, 0],
  letters: "ABCD",
  hues: [0, 90, 180, 270],
  decided: {
    static: settings.map((n) => rows(n).flat()),
    continuous: settings.map(() => rows(0).flat()),
  },
};
// ten pixels a step, pictures of 200 pixels with lanes of 79 pixels below 20 of title, 18 of axis
const size = { w: GUTTER + 8 + 480, h: 400 };

test("what is said is of the setting that lies nearest, and D waits from when it comes", () => {
  const told = (/** @type {number[]} */ [length, lanes, arrival]) =>
    hand.says({ length, lanes, arrival }, data);
  assert.equal(
    told([2, 1, 0]),
    "In waves 31 steps, continuously 31. D waits 20 steps in waves, 20 continuously.",
  );
  assert.equal(
    told([2.9, 1.4, 2.6]),
    "In waves 32 steps, continuously 31. D waits 16 steps in waves, 15 continuously.",
  );
  assert.equal(
    told([3, 1.5, 9]),
    "In waves 38 steps, continuously 31. D waits 22 steps in waves, 15 continuously.",
  );
  assert.deepEqual(recorded(data), { length: 2, lanes: 2, arrival: 0 });
});

test("the end of B's answer and the coming of D are at hand in the picture that they are in", () => {
  const state = { length: 2, lanes: 2, arrival: 5 };
  const grabbed = (/** @type {number} */ step, /** @type {number} */ y) =>
    hand.grab(GUTTER + 10 * step, y, state, data, size);
  // the setting is the fourth: in waves B ends with step 6, continuously with step 3
  assert.equal(grabbed(7, 60), "length");
  assert.equal(grabbed(4, 60), null);
  assert.equal(grabbed(4, 260), "length");
  assert.equal(grabbed(7, 260), null);
  assert.equal(grabbed(7, 180), null, "another lane");
  assert.equal(grabbed(5, 21), "arrival");
  assert.equal(grabbed(5, 205), "arrival", "on the title of the lower picture");
  assert.equal(grabbed(5, 150), null);
});

test("a drag is in steps, and comes to lie on a setting", () => {
  const from = { length: 2, lanes: 1, arrival: 0 };
  const dragged = (/** @type {string} */ knob, /** @type {number} */ by) =>
    hand.drag(knob, by, from, data, size);
  assert.deepEqual(
    [0, 9, 10, 25, 90, -40].map((by) => dragged("length", by)),
    [2, 2, 4, 4, 4, 2],
  );
  assert.deepEqual(
    [24, 25].map((by) => dragged("arrival", by)),
    [0, 5],
  );
});
