import assert from "node:assert/strict";
import test from "node:test";

import { neighbour } from "../../assets/player/watch/pointing.js";

// Two rows as a packed row has them: widths differ, the second is shorter.
const places = [
  [0, 0, 20],
  [22, 0, 60],
  [84, 0, 10],
  [0, 30, 40],
  [42, 30, 15],
].map(([x, y, w]) => ({ x, y, w, h: 22 }));

test("left and right go in reading order and stop at the ends", () => {
  assert.deepEqual(
    [0, 2, 4].map((at) => neighbour(places, at, "ArrowRight")),
    [1, 3, 4],
  );
  assert.deepEqual(
    [0, 3].map((at) => neighbour(places, at, "ArrowLeft")),
    [0, 2],
  );
  assert.deepEqual(
    ["Home", "End"].map((key) => neighbour(places, 2, key)),
    [0, 4],
  );
});

test("up and down go to what lies nearest in the next row, and laneSpan where there is none", () => {
  assert.deepEqual(
    [0, 1, 2].map((at) => neighbour(places, at, "ArrowDown")),
    [3, 4, 4],
  );
  assert.deepEqual(
    [3, 4].map((at) => neighbour(places, at, "ArrowUp")),
    [0, 1],
  );
  assert.equal(neighbour(places, 4, "ArrowDown"), 4);
});
