import assert from "node:assert/strict";
import test from "node:test";

import { slowSteps, stepsWaited, timeOf } from "../../assets/player/run/delays.js";
import { admissions, arrivals, event, runOf, two } from "./worlds.js";

test("beside steps that took no time none is slow", () => {
  const run = runOf([0, 0, 0, 1].map((seconds, i) => event(i, { tStart: i, tEnd: i + seconds })));
  assert.deepEqual([...slowSteps(run)], []);
});

test("whoever waits does so through turns without an event, too, and later waits are not known yet", () => {
  const run = runOf([
    event(2, { arrived: arrivals("a") }),
    event(3),
    event(5),
    event(6, { admitted: admissions(["a", 0]) }),
    event(7, { preempted: [{ request: "a", tokensLost: 1, lane: 0 }] }),
  ]);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((i) => stepsWaited(run, run.request("a"), i)),
    [1, 2, 4, 4, 5],
  );
});

test("of a request's time the parts that are nothing are left out, the longest limit comes first", () => {
  const run = two();
  assert.equal(timeOf(run, run.request("a")), null);
  run.delays = {
    parts: [
      ["queued", "queue", "waits"],
      ["lost", "lost", "again"],
      ["decode", "decode", "answers"],
    ],
    limits: { lanes: "no lane", blocks: "no block" },
    requests: {
      a: {
        us: [500000, 0, 1500000],
        steps: [1, 0, 3],
        queued: { lanes: 100000, blocks: 400000 },
        uncompared: 250000,
        ended: true,
      },
    },
  };
  assert.equal(timeOf(run, run.request("b")), null);
  assert.deepEqual(timeOf(run, run.request("a")), {
    whole: 2,
    parts: [
      { name: "queued", label: "queue", means: "waits", seconds: 0.5, steps: 1 },
      { name: "decode", label: "decode", means: "answers", seconds: 1.5, steps: 3 },
    ],
    limits: [
      { limit: "blocks", words: "no block", seconds: 0.4 },
      { limit: "lanes", words: "no lane", seconds: 0.1 },
    ],
    uncompared: 0.25,
    ended: true,
  });
});
