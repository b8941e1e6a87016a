import assert from "node:assert/strict";
import test from "node:test";

import { Batch, Fleet } from "../../assets/player/live/batch.js";
import { arrivals, event } from "./worlds.js";

const HEADER = { config: { policy: "continuous", max_num_seqs: 2, block_size: 4, num_blocks: 8 } };
const state = (...ranks) => ({ followed: { ranks, says: [], count: ranks.length } });
const placed = (of, rank, offset, run = 1) => ({ of, rank, offset, run });

/** Two ranks of whom b lies 10 s after a on their clock. */
function fleet(told = () => {}) {
  const two = new Fleet(null, "ranks", ["a", "b"], 2, told);
  for (const of of ["a", "b"])
    two.take({ of, last: 0, messages: [state(placed("a", 0, 0), placed("b", 1, 10))] });
  return two;
}

/** A chapter of steps, a second each. */
function chapter(fleet, of, first, length, run = 1) {
  const beginning = {
    header: HEADER,
    begin: { run, step: first, queue: [], requests: [] },
    letters: {},
  };
  const steps = {
    events: Array.from({ length }, (_, n) => event(first + n)),
    captions: [],
    letters: {},
  };
  fleet.take({ of, last: first + length, messages: [beginning, steps] });
}

test("the picture begins with the first step of all while all are kept, and has room to grow", () => {
  const two = fleet();
  assert.equal(two.picture, null);
  chapter(two, "b", 0, 2);
  assert.deepEqual(
    two.picture.members.map((m) => [m.of, m.rank, m.run.length]),
    [["b", 1, 2]],
  );
  chapter(two, "a", 3, 5); // steps 3 to 7, since earlier ones are no longer kept
  const { members, from, span, room } = two.picture;
  assert.deepEqual([members.map((m) => m.of), from, span, room], [["a", "b"], 3, 11.5, 16]);
});

test("it begins where all are still kept, and shows no more than its room", () => {
  const two = fleet();
  chapter(two, "a", 0, 64);
  chapter(two, "b", 20, 10); // from 30 s of the common clock on
  assert.deepEqual([two.picture.from, two.picture.span, two.picture.room], [30, 63.5, 64]);
  const long = fleet();
  chapter(long, "a", 0, 200);
  chapter(long, "b", 0, 1);
  assert.deepEqual(
    [long.picture.from, long.picture.span, long.picture.room],
    [199.5 - 64, 199.5, 64],
  );
});

test("a rank that was started again is left out until it has been placed again; the others stay who they are", () => {
  const two = fleet();
  chapter(two, "a", 0, 2);
  chapter(two, "b", 0, 2);
  const [a] = two.picture.members;
  chapter(two, "b", 0, 3, 2);
  assert.deepEqual(two.picture.members, [a]);
  for (const of of ["a", "b"])
    two.take({ of, last: 9, messages: [state(placed("a", 0, 0), placed("b", 1, 4, 2))] });
  assert.deepEqual(
    two.picture.members.map((m) => [m.of, m.offset, m.run.length]),
    [
      ["a", 0, 2],
      ["b", 4, 3],
    ],
  );
  assert.equal(two.picture.members[0], a);
});

test("hours take no memory: of every rank so many chapters are kept", () => {
  const two = fleet();
  for (let n = 0; n < 40; n += 1) for (const of of ["a", "b"]) chapter(two, of, n * 64, 64);
  for (const batch of two.batches.values())
    assert.deepEqual([batch.chapters.length, batch.run.length], [2, 128]);
});

test("whoever goes on with one of them asks for what follows, not for all of it again", () => {
  const two = fleet();
  chapter(two, "a", 0, 5);
  assert.deepEqual(
    [...two.batches.values()].map((batch) => batch.next),
    [6, 1],
  );
});

test("a request that is sent while a server that was started again has told no step changes no letter", () => {
  const two = fleet();
  chapter(two, "a", 0, 2);
  const batch = two.batches.get("a");
  const { run } = batch;
  batch.take({ kind: "skipped", messages: 0 });
  batch.relabel();
  assert.equal(batch.run, run);
});

test("how the latest requests went is known, and of earlier ones no more", () => {
  const { batches } = fleet();
  const batch = batches.get("a");
  for (let n = 0; n < 300; n += 1) batch.take({ ended: { [`r${n}`]: { tokens: n } } });
  assert.deepEqual([batch.ended.has("r0"), batch.ended.get("r299")], [false, { tokens: 299 }]);
});

test("of a batch only one's own letters have a star, and nothing was missed before it was watched", () => {
  const heard = { begins() {}, steps() {}, state() {} };
  const batch = new Batch(/** @type {any} */ (null), (id) => id === "a", heard);
  batch.take({ kind: "skipped", messages: 0 });
  assert.equal(batch.missed, false);
  const begin = { run: 1, step: 0, queue: [], requests: [] };
  batch.take({ header: HEADER, begin, letters: { a: "A", b: "B" } });
  batch.take({ events: [event(0, { arrived: arrivals("a", "b") })], captions: [] });
  assert.deepEqual(
    batch.run?.requests.map(({ letter }) => letter),
    ["A★", "B"],
  );
  assert.equal(batch.run?.isHeld(), false);
  batch.take({ class: { held: 2 } });
  assert.equal(batch.run?.isHeld(), true);
  batch.take({ kind: "skipped", messages: 3 });
  assert.equal(batch.missed, true);
});
