import assert from "node:assert/strict";
import test from "node:test";

import { laneScale, queueColumns } from "../../assets/player/run/lane_layout.js";
import { written } from "../../assets/player/run/passes.js";
import { LaneInk } from "../../assets/player/views/lane_ink.js";
import { BlocksView } from "../../assets/player/views/kv.js";
import {
  admissions,
  arrivals,
  decode,
  event,
  pass,
  prefill,
  Recorder,
  runOf,
  samples,
} from "./worlds.js";

// `a` reads, writes, is preempted in step 2 and comes back in step 5, after a turn without an
// event; `b` goes on and has overrun at the end.
const WAITS = { count: 1, request: "a", why: null };
const run = runOf([
  event(0, {
    arrived: arrivals("a", "b"),
    admitted: admissions(["a", 0], ["b", 1]),
    segments: [prefill("a", 0, 3), prefill("b", 1, 2)],
    sampled: samples("a", "b"),
  }),
  event(1, { segments: [decode("a", 0, 3), decode("b", 1, 2)], sampled: samples("a", "b") }),
  event(2, {
    preempted: [{ request: "a", lane: 0, tokensLost: 4 }],
    waiting: WAITS,
    segments: [decode("b", 1, 3)],
    sampled: samples("b"),
  }),
  event(3, { waiting: WAITS, stalled: [{ request: "b", why: null }] }),
  event(5, {
    waiting: WAITS,
    segments: [decode("b", 1, 4)],
    sampled: samples("b"),
    finished: [{ request: "b", finishReason: "stop" }],
  }),
  event(6, {
    admitted: admissions(["a", 0]),
    segments: [prefill("a", 0, 5), decode("b", 1, 5)],
    sampled: samples("a"),
    overrun: [{ request: "b", rows: 1 }],
    released: [{ request: "b", lane: 1, when: "after" }],
  }),
]);
run.texts.output = { a: ["a1", "a2", "a3"], b: ["b1", "b2", "b3", "b4"] };

const PER = 60;
function drawn(of = run, until = Infinity) {
  const [g, ink] = [new Recorder(), new LaneInk()];
  ink.place(
    of,
    { w: 500, h: 100, d: 1 },
    { scale: laneScale(run, false, 24, PER), axis: 0, font: 11, end: 500, words: 12, until },
  );
  ink.drawLanes(g, { run: of, palette: g.palette, focus: null, presenter: false });
  const step = (x) => Math.floor((x - 24) / PER);
  const lane = (y) => Math.floor(y / ink.pitch);
  return {
    boxes: g.boxes.map((box) => ({ ...box, step: step(box.x), lane: lane(box.y) })),
    texts: g.texts.map((text) => ({ ...text, step: step(text.x), lane: lane(text.y) })),
    queue: 100 - ink.queueHeight,
  };
}

test("a cell is what its request did in the step, in its lane", () => {
  const { boxes, queue } = drawn();
  const cells = boxes
    .filter(({ y, w }) => y < queue && w > PER / 2)
    .map(({ step, lane, style }) => `${step} ${lane} ${style}`)
    .sort();
  assert.deepEqual(cells, [
    "0 0 A tint",
    "0 1 B tint",
    "1 0 A fill",
    "1 1 B fill",
    "2 1 B fill",
    "3 1 B cached",
    "5 1 B fill",
    "6 0 A tint",
    "6 1 hatched",
  ]);
  assert.deepEqual(
    boxes
      .filter(({ style, w }) => style === "warn" && w === 2.5)
      .map(({ x, w, lane }) => [x + w / 2, lane]),
    [[24 + 2 * PER, 0]],
    "where a lost its lane",
  );
});

test("a cell's word is what its step wrote, and none is written before its time", () => {
  const words = ({ texts }) =>
    texts
      .filter(({ text }) => /^[ab]\d/.test(text))
      .map(({ text, step, lane }) => `${step} ${lane} ${text}`)
      .sort();
  const all = ["0 0 a1", "0 1 b1", "1 0 a2", "1 1 b2", "2 1 b3", "5 1 b4", "6 0 a3"];
  assert.deepEqual(words(drawn()), all);
  assert.deepEqual(
    words(drawn(run, 2)),
    all.filter((word) => Number(word[0]) <= 2),
  );
});

test("the queue below has a column for each stretch of steps, none for a turn without an event", () => {
  assert.deepEqual(queueColumns(run), [
    { from: 2, end: 4, waiting: 1 },
    { from: 4, end: 5, waiting: 1 },
  ]);
  const { boxes, queue } = drawn();
  assert.deepEqual(
    boxes.filter(({ y }) => y >= queue).map(({ x, w }) => [(x - 24) / PER, w / PER]),
    [
      [2, 2],
      [5, 1],
    ],
  );
});

test("on the clock of an asynchronous run each lane is struck through where the device was idle", () => {
  const of = (asynchronous = true) =>
    runOf(
      [0, 1, 4].map((step) => event(step)),
      {},
      { execution: { asynchronous } },
    );
  const struck = (/** @type {Run} */ run, clock = true, end = 500) => {
    const [g, ink] = [new Recorder(), new LaneInk()];
    const scale = laneScale(run, clock, 24, 10);
    ink.place(run, { w: end, h: 100, d: 1 }, { scale, axis: 20, font: 11, end });
    ink.drawLanes(g, { run, palette: g.palette, focus: null, presenter: false });
    const boxes = g.boxes.map(({ x, y, w, h, style }) => [style, x, y, w, h]);
    return [ink.idle, ...boxes];
  };
  // half a second from 0.5 s on, 2.5 s from 1.5 s on, in lanes of 40 pixels
  assert.deepEqual(struck(of()), [
    3,
    ["panel", 29, 20, 5, 80],
    ["warn", 29, 39.25, 5, 1.5],
    ["warn", 29, 79.25, 5, 1.5],
    ["panel", 39, 20, 25, 80],
    ["warn", 39, 39.25, 25, 1.5],
    ["warn", 39, 79.25, 25, 1.5],
  ]);
  assert.deepEqual(struck(of(), true, 35)[0], 0.5, "in sight");
  assert.deepEqual([struck(of(), false), struck(of(false))], [[0], [0]]);
});

test("on a clock, decodes that touch are one box without a seam, and each chunk has its own", () => {
  const timed = (/** @type {number} */ step, /** @type {object} */ what) => ({
    ...event(step, what),
    tStart: step * 0.7,
    tEnd: (step + 1) * 0.7,
  });
  const steps = runOf([
    timed(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
    }),
    timed(1, { segments: [prefill("a", 0, 3)], sampled: samples("a") }),
    ...[2, 3, 4].map((n) => timed(n, { segments: [decode("a", 0, n + 4)], sampled: samples("a") })),
  ]);
  const boxes = (/** @type {boolean} */ clock) => {
    const [g, ink] = [new Recorder(), new LaneInk()];
    const scale = laneScale(steps, clock, 24, 10);
    ink.place(steps, { w: 500, h: 100, d: 1 }, { scale, axis: 0, font: 11, end: 500 });
    ink.drawLanes(g, { run: steps, palette: g.palette, focus: null, presenter: false });
    return g.boxes.filter(({ h }) => h === g.boxes[0].h).map(({ x, w }) => [x, w]);
  };
  // 7 pixels a step, two chunks and then three decodes
  assert.deepEqual(boxes(true), [
    [24, 7],
    [31, 7],
    [38, 21],
  ]);
  assert.deepEqual(
    boxes(false),
    [24, 34, 44, 54, 64].map((x) => [x, 9]),
    "by steps",
  );
});

test("the token that ends an answer is said to be its end", () => {
  const ended = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
      sampled: samples("a"),
    }),
    event(1, {
      segments: [decode("a", 0, 3)],
      sampled: [{ passIndex: 0, request: "a", tokenId: 2, logprob: 0, margin: 0 }],
      finished: [{ request: "a", finishReason: "stop" }],
    }),
  ]);
  ended.texts.output = { a: ["a1", "<|im_end|>"] };
  const a = ended.request("a");
  assert.deepEqual(
    [0, 1].map((i) => written(ended, a, i)),
    ["a1", "<|im_end|>"],
  );
  ended.header.model = { eos_token_ids: [2] };
  assert.deepEqual(
    [0, 1].map((i) => written(ended, a, i)),
    ["a1", ""],
  );
  assert.deepEqual(ended.answer(a), ["a1", ""]);
  assert.deepEqual(ended.answer(a, 0, 1), ["a1"]);
  assert.deepEqual(
    drawn(ended)
      .texts.map(({ text }) => text)
      .filter((text) => /a1|end/.test(text)),
    ["a1", "end"],
  );
});

test("only the last pass of a step says that an answer ends in it", () => {
  const token = (/** @type {number} */ passIndex, tokenId) => ({
    ...{ passIndex, request: "a", tokenId, logprob: 0, margin: 0 },
  });
  const both = runOf(
    [
      event(0, {
        arrived: arrivals("a"),
        admitted: admissions(["a", 0]),
        passes: [pass(0, 0.2), pass(0.2, 0.5)],
        segments: [prefill("a", 0, 3), { ...decode("a", 0, 3), passIndex: 1 }],
        sampled: [token(0, 5), token(1, 2)],
        finished: [{ request: "a", finishReason: "stop" }],
      }),
    ],
    {},
    { model: { eos_token_ids: [2] } },
  );
  both.texts.output = { a: ["", "<|im_end|>"] };
  const a = both.request("a");
  assert.deepEqual(
    [0, 1, null].map((passIndex) => written(both, a, 0, passIndex)),
    ["◌", "", ""],
  );
});

test("of those that give way in one step the last waits first, or all at the end in their turn", () => {
  const waits = (/** @type {object} */ batching) => {
    const gaveWay = runOf(
      [
        event(0, {
          arrived: arrivals("a", "b", "c"),
          admitted: admissions(["a", 0], ["b", 1]),
          segments: [prefill("a", 0, 3), prefill("b", 1, 2)],
        }),
        event(1, {
          preempted: ["a", "b"].map((request, lane) => ({ request, lane, tokensLost: 2 })),
        }),
      ],
      {},
      { batching },
    );
    return gaveWay.waitingAt(1).map(({ request }) => request.id);
  };
  assert.deepEqual(waits({}), ["b", "a", "c"]);
  assert.deepEqual(waits({ requeue: true }), ["c", "a", "b"]);
});

test("what a request held when the record goes on is none of the blocks that are new in the step", () => {
  const goesOn = runOf([
    event(0),
    event(7, {
      resumed: {
        ...{ arrived: [{ request: "a", t: 0 }], ended: [], waiting: [] },
        running: [{ request: "a", lane: 0, computed: 4, tables: [[3]], tokens: [] }],
      },
      segments: [{ ...prefill("a", 0, 2), start: 4, kvLen: 6 }],
      kv: { used: 2, total: 8, changes: [{ request: "a", added: [5] }], prefixHits: [] },
    }),
  ]);
  const owners = BlocksView.prototype.owners(goesOn.frame(1), goesOn);
  assert.deepEqual(
    [...owners].map(([block, [{ at, fill, fresh }]]) => [block, at, fill, fresh]),
    [
      [3, 0, 1, false],
      [5, 1, 0.5, true],
    ],
  );
});
