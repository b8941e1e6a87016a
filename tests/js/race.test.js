// What a race tells of its runs at a moment, without a page.

import assert from "node:assert/strict";
import test from "node:test";

import { Race, raceTable } from "../../assets/player/compare/race.js";
import { Racer } from "../../assets/player/compare/racer.js";
import { two } from "./worlds.js";

// Steps 0, 1 and 3, of half a second each.
const racerOf = (/** @type {boolean} */ clock) =>
  Object.assign(Object.create(Racer.prototype), {
    name: "r",
    run: two(),
    race: { clock, unit: clock ? "seconds" : "steps" },
    startStep: 0,
    seconds: 3.5,
    steps: 4,
    tokens: [],
    landings: [],
  });

test("a step without work is none of those counted, on either axis", () => {
  const [timed, stepped] = [true, false].map(racerOf);
  assert.equal(stepped.inAll(), "3 steps");
  const place = { clock: false, layout: "desk", now: 4, span: stepped.length };
  assert.equal(Race.prototype.readout.call(place), "step 4 of 4");
  assert.deepEqual(
    [0.4, 0.5, 2, 3.5].map((t) => timed.stepsAt(t)),
    [0, 1, 2, 3],
  );
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((step) => stepped.stepsAt(step)),
    [0, 1, 2, 2, 3],
  );
});

test("before its first step, between two and after its last a run holds no lane", () => {
  const told = (/** @type {boolean} */ clock) => (/** @type {number} */ now) => {
    const { rows } = raceTable({ now, readout: () => "", racers: [racerOf(clock)] });
    return rows[0].slice(1, 3);
  };
  const first = ["0", "0: A prefill; 1: free"];
  assert.deepEqual([-1, 0.2, 0.7, 3.5].map(told(true)), [
    ["idle", ""],
    first,
    ["idle", ""],
    ["done", ""],
  ]);
  assert.deepEqual([0, 2, 4].map(told(false)), [first, ["idle", ""], ["done", ""]]);
});
