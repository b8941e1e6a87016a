import assert from "node:assert/strict";
import test from "node:test";

import { neighbour, pointCanvas } from "../../assets/player/watch/pointing.js";
import { El, Event } from "./elements.js";

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

test("a press that moves more than five pixels is a drag and selects nobody; a finger also shows what it found", () => {
  const canvas = new El("canvas");
  canvas.getBoundingClientRect = () => ({ left: 0, top: 0 });
  let found = { request: "A" };
  const done = [];
  const app = {
    run: {},
    pin: (request) => done.push(`selects ${request}`),
    hover: ({ request }) => done.push(`shows ${request}`),
  };
  pointCanvas(/** @type {any} */ (app), { surface: { canvas }, hit: () => found });
  const pressed = (clientX, clientY, more = {}) => {
    const happens = (type, at) =>
      canvas.dispatchEvent(Object.assign(new Event(type), { ...at, ...more }));
    happens("pointerdown", { clientX: 0, clientY: 0 });
    happens("click", { clientX, clientY });
    return done.splice(0).join();
  };
  assert.equal(pressed(3, 4), "selects A");
  assert.equal(pressed(6, 0), "");
  assert.equal(pressed(0, 0, { pointerType: "touch" }), "shows A,selects A");
  found = { request: "B", keepsPin: true };
  assert.equal(pressed(0, 0), "");
  found = null;
  assert.equal(pressed(0, 0), "selects null");
});
