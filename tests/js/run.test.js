import assert from "node:assert/strict";
import test from "node:test";

import {
  clockLabel,
  countLaneSteps,
  indexAt,
  lanePieces,
  laneScale,
  queueColumns,
  roundUnit,
  windowScale,
} from "../../assets/player/run/lane_layout.js";
import { allowedKeys, guessAt, itemAt, passesOf, visible } from "../../assets/player/run/passes.js";
import { countUpTo, DECODE, PREFILL } from "../../assets/player/run/run.js";
import { slowSteps, waitedBy, waitedSoFar } from "../../assets/player/run/delays.js";
import { whereabouts } from "../../assets/player/live/whereabouts.js";
import { Beside } from "../../assets/player/watch/beside.js";
import { BlocksView } from "../../assets/player/views/kv.js";
import { PackedRow } from "../../assets/player/views/packed_row.js";
import { some } from "../../assets/player/views/phases.js";
import { laneWords } from "../../assets/player/views/lane_chart.js";
import { LanesView } from "../../assets/player/views/lanes.js";
import { budgetParts, timeParts } from "../../assets/player/views/queue.js";
import { cacheWords, timesOf } from "../../assets/player/views/request_card.js";
import {
  admissions,
  arrivals,
  decode,
  event,
  pass,
  prefill,
  runOf,
  samples,
  two,
} from "./worlds.js";

test("countUpTo is the number of entries that are at most x", () => {
  for (let n = 0; n < 200; n += 1) {
    const list = Array.from({ length: n % 9 }, (_, i) => (i * (n % 5)) % 7).sort((a, b) => a - b);
    const x = (n % 11) - 2;
    assert.equal(countUpTo(list, x), list.filter((entry) => entry <= x).length);
  }
});

test("a run knows who held which lane, who waited, how long each cache was", () => {
  const run = two();
  assert.deepEqual(run.statuses, [
    [PREFILL, 0],
    [DECODE, PREFILL],
    [DECODE, DECODE],
  ]);
  assert.deepEqual(run.kvLens, [
    [3, 0],
    [4, 2],
    [5, 3],
  ]);
  assert.deepEqual(run.numWaiting, [1, 0, 0]);
  assert.deepEqual(
    run.frame(0).waiting.map((w) => w.request.letter),
    ["B"],
  );
  assert.equal(run.numGenerated(run.request("a"), 1), 2);
  assert.equal(run.indexOf(3), 2);
  assert.equal(run.indexOf(2), 1, "an idle turn has no event: the step before it is meant");
});

test("the token by which the model ended an answer says nothing", () => {
  const run = two();
  run.header.model = { eos_token_ids: [7] };
  const [ended, limited] = run.requests;
  [ended.finished, limited.finished] = ["stop", "length"].map((reason) => ({ step: 3, reason }));
  run.texts.output = { a: [" Paris", "<end>"], b: [" Rome", "<end>"] };
  assert.deepEqual(run.answer(ended), [" Paris", ""]);
  assert.deepEqual(run.answer(limited), [" Rome", "<end>"]);
  run.header.model.eos_token_ids = [8];
  assert.deepEqual(run.answer(ended), [" Paris", "<end>"], "it ended at a string of the request's");
});

test("a frame is the same whether stepped to or jumped to", () => {
  const [stepped, jumped] = [two(), two()];
  for (let i = 0; i < stepped.length; i += 1) stepped.frame(i);
  const plain = ({ lanes, waiting }) => [
    lanes.map((l) => [l.lane, l.request?.id, l.status, l.kvLen, l.before]),
    waiting.map((w) => w.request.id),
  ];
  assert.deepEqual(plain(jumped.frame(2)), plain(stepped.frame(2)));
});

test("two tokens of one step came at the ends of their own passes", () => {
  const passes = [pass(0, 1), pass(1, 3)];
  const run = runOf([
    event(0, {
      tEnd: 3,
      passes,
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3), { ...decode("a", 0, 3), passIndex: 1 }],
      sampled: [...samples("a"), { ...samples("a")[0], passIndex: 1 }],
    }),
    event(3, { passes: [pass(3, 4)], segments: [decode("a", 0, 4)], sampled: samples("a") }),
  ]);
  run.texts.output = { a: ["x", "y", "z"] };
  const came = PackedRow.prototype.table({ run, frame: run.frame(0) }).rows;
  assert.deepEqual(
    came.map((row) => row.at(-1)),
    ["x", "y"],
  );
  const row = Object.create(PackedRow.prototype);
  const frame = run.frame(0);
  const out = ({ out: word }) => word;
  const cells = frame.passes.map((p) => row._cellsOf(run, p, { most: 9 }, frame).map(out));
  assert.deepEqual(cells, [[undefined, undefined, "x"], ["y"]]);
  const at = (i) => timesOf(run, run.request("a"), i);
  assert.deepEqual([at(0).ttft, at(0).gaps, at(0).tpot], [1, [2], 2]);
  assert.deepEqual([at(1).gaps, at(1).tpot], [[2, 1], 1.5]);
});

test("what was guessed wrongly leaves the cache: the next step begins where the right guesses end, computed or stalled", () => {
  const guess = {
    passIndex: 0,
    request: "a",
    lane: 0,
    phase: "decode",
    start: 3,
    length: 4,
    kvLen: 7,
  };
  const run = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
      sampled: samples("a"),
    }),
    event(1, {
      segments: [guess],
      sampled: samples("a", "a"),
      drafts: [{ request: "a", drafted: 3, accepted: 1 }],
    }),
    event(2, { stalled: [{ request: "a", why: null }] }),
    event(3, { segments: [decode("a", 0, 5)], sampled: samples("a") }),
  ]);
  assert.deepEqual(
    run.events.map((_, i) => [run.frame(i).lanes[0].before, run.frame(i).lanes[0].kvLen]),
    [
      [0, 3],
      [3, 7],
      [5, 5],
      [5, 6],
    ],
  );
});

test("a device that was launched ahead was idle for the host if somebody was there to serve, from the end of one step to the next", () => {
  const at = (step, tStart, tEnd, given) => event(step, { tStart, tEnd, ...given });
  const run = runOf([
    at(0, 0, 1, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
      sampled: samples("a"),
    }),
    at(1, 1.25, 2, { segments: [decode("a", 0, 3)], sampled: samples("a") }),
    at(2, 2, 3, {
      segments: [decode("a", 0, 4)],
      sampled: samples("a"),
      finished: [{ request: "a", finishReason: "length" }],
      released: [{ request: "a", lane: 0, when: "after" }],
    }),
    at(3, 5, 6, {
      arrived: arrivals("b", "c"),
      admitted: admissions(["b", 0]),
      segments: [prefill("b", 0, 3)],
      sampled: samples("b"),
    }),
    at(4, 6.5, 10.5, { segments: [decode("b", 0, 3)], sampled: samples("b") }),
    at(5, 10.53125, 14.5, { segments: [decode("b", 0, 4)], sampled: samples("b") }),
  ]);
  run.header.execution = { asynchronous: true };
  assert.deepEqual(
    run.events.map((_, i) => run.idleBefore(i)),
    [
      null,
      { seconds: 0.25, forHost: true, worth: true },
      null,
      { seconds: 2, forHost: false, worth: true },
      { seconds: 0.5, forHost: true, worth: true },
      { seconds: 0.03125, forHost: true, worth: false },
    ],
  );
  run.header.execution = { asynchronous: false };
  assert.equal(run.idleBefore(1), null);
});

test("lane pieces join equal neighbours, and never across a turn without an event", () => {
  const run = two();
  const pieces = lanePieces(run).map(({ lane, from, end, status }) => [lane, from, end, status]);
  assert.deepEqual(pieces, [
    [0, 0, 1, PREFILL],
    [0, 1, 2, DECODE],
    [0, 2, 3, DECODE],
    [1, 0, 1, 0],
    [1, 1, 2, PREFILL],
    [1, 2, 3, DECODE],
  ]);
  assert.deepEqual(countLaneSteps(run, lanePieces(run)), {
    prefill: 2,
    decode: 3,
    wasted: 0,
    overrun: 0,
    stalled: 0,
    preempted: 0,
    waiting: 1,
  });
  assert.deepEqual(queueColumns(run), [{ from: 0, end: 1, waiting: 1 }]);
});

test("a scale maps steps and seconds to pixels and back", () => {
  const run = two();
  for (const clock of [false, true]) {
    const scale = laneScale(run, clock, 24, 10);
    for (let i = 0; i < run.length; i += 1) {
      assert.equal(indexAt(run, scale, scale.from(i)), i);
      assert.equal(indexAt(run, scale, scale.to(i) - 0.01), i);
    }
    assert.deepEqual([scale.from(0), scale.to(2)], clock ? [24, 59] : [24, 64]);
    assert.equal(indexAt(run, scale, -100), 0);
  }
  const late = runOf([event(4, { tStart: 7, tEnd: 9 }), event(6, { tStart: 9, tEnd: 10 })]);
  const ends = [false, true].map((clock) => {
    const scale = laneScale(late, clock, 24, 10);
    return [scale.from(0), scale.from(1), scale.to(1)];
  });
  assert.deepEqual(ends, [
    [24, 44, 54],
    [24, 44, 54],
  ]);
});

test("an axis has round marks, at most as many as asked", () => {
  for (const span of [0.003, 0.7, 1, 12, 99, 4096])
    for (const most of [3, 7, 20]) {
      const unit = roundUnit(span, most, false);
      assert.ok(span / unit <= most + 1e-9);
      assert.ok(
        [1, 2, 5].some(
          (m) => Math.abs(Math.log10(unit / m) - Math.round(Math.log10(unit / m))) < 1e-9,
        ),
      );
    }
  assert.equal(roundUnit(5, 20, true), 1);
  assert.deepEqual(
    [clockLabel(0, 1), clockLabel(0.05, 0.3), clockLabel(1.5, 4)],
    ["0", "50 ms", "1.5 s"],
  );
});

test("passes of a padded wave: pads before tokens, a finished row has no keys, a pad sees nothing", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0], ["b", 1]),
      passes: [pass(0, 1, { layout: "padded", rows: 2, width: 3, tokens: 4, padding: 2 })],
      segments: [prefill("a", 0, 3), prefill("b", 1, 1)],
    }),
    event(1, {
      passes: [
        pass(1, 2, {
          layout: "padded",
          rows: 2,
          padding: 1,
          finishedRows: [{ request: "b", lane: 1 }],
        }),
      ],
      segments: [decode("a", 0, 3)],
    }),
  ]);
  const [wave] = passesOf(run, run.events[0]);
  assert.deepEqual(
    wave.items.map((i) => [i.pads, i.q0, i.k0]),
    [
      [0, 0, 0],
      [2, 3, 3],
    ],
  );
  assert.deepEqual([wave.nq, wave.nk], [6, 4]);
  assert.equal(allowedKeys(wave.items[1], 4, null), null, "the second pad of b");
  assert.deepEqual(allowedKeys(wave.items[1], 5, null), [3, 4]);
  for (const axis of ["q", "k"])
    assert.deepEqual(
      [2, 3].map((x) => itemAt(wave, x, axis)),
      wave.items,
    );
  const [later] = passesOf(run, run.events[1]);
  assert.equal(later.items[1].finished, true);
  assert.equal(allowedKeys(later.items[1], 1, null), null);
  assert.equal(itemAt(later, 3, "k"), later.items[0], "a finished row has no keys");
});

test("a leak reads the keys of the next request that computes, after the last those of the first", () => {
  const layout = { layout: "padded", rows: 3, finishedRows: [{ request: "b", lane: 1 }] };
  const row = event(1, { passes: [pass(1, 2, layout)] });
  row.segments = [decode("a", 0, 3), decode("c", 2, 5)];
  const joined = { arrived: arrivals("a", "b", "c"), admitted: admissions(["a", 0], ["c", 2]) };
  const run = runOf([event(0, joined), row], { max_num_seqs: 3 }, { leak: true });
  const leaks = passesOf(run, row)[0].items.map(({ leak }) => leak?.request.id);
  assert.deepEqual(leaks, ["c", undefined, "a"]);
});

test("a mask is causal within a request and blind between requests, at any window", () => {
  const run = two();
  const [pass] = passesOf(run, run.events[1]);
  for (const window of [null, 1, 2])
    for (const item of pass.items)
      for (let q = item.q0; q < item.q0 + item.length; q += 1) {
        const [from, end] = allowedKeys(item, q, window);
        const position = item.start + q - item.q0;
        assert.equal(end, item.k0 + position + 1);
        assert.equal(end - from, window === null ? position + 1 : Math.min(window, position + 1));
        assert.ok(from >= item.k0 && end <= item.k0 + item.kvLen);
      }
});

test("invisible characters are made visible, long pieces are cut", () => {
  assert.equal(visible("a\u202eb"), "a◌b");
  assert.equal(Array.from(visible("x".repeat(50), 8)).length, 8);
  assert.equal(visible("x".repeat(8), 8), "xxxxxxxx", "as long as there is room for");
  assert.equal(visible("x".repeat(8), 4), "xxx…", "and again where there is less room");
  for (const length of [99, 100, 200, 201, 5000])
    for (const again of [1, 2])
      assert.equal(
        visible("x".repeat(length), 14),
        `${"x".repeat(13)}…`,
        `${length}, time ${again}`,
      );
  assert.equal(visible(`${" ".repeat(150)}x`), "x");
  assert.equal(visible(`${" ".repeat(200)}x`), "␣␣␣␣", "the beginning of what is very long");
  const pieces = [" ", "   ", " ".repeat(9), " a b ", "\r\n\t", "\u0007", ""];
  const shown = ["␣", "␣␣␣", "␣␣␣␣", "a␣b", "↵⇥", "␇", "◌"];
  assert.deepEqual(
    pieces.map((piece) => visible(piece)),
    shown,
  );
});

test("a window of steps stands still around now while the run passes by", () => {
  const run = two(); // steps 0, 1 and 3
  const at = (index) => windowScale(run, index, 100, 10);
  assert.deepEqual(
    [0, 1, 2].map((i) => at(i).from(i)),
    [100, 100, 100],
  );
  assert.deepEqual([at(1).from(0), at(1).to(1), at(1).from(2)], [90, 110, 120]);
  assert.deepEqual(
    [at(0.5).from(0), at(1.5).from(1), at(2.5).from(2)],
    [95, 90, 95],
    "half way to the next step, however far that is",
  );
});

test("the memory of a cache is its positions times the model's bytes for each", () => {
  const run = two();
  assert.equal(cacheWords(run, 5), null, "unknown");
  run.header.model = { kv_bytes_per_token: 3072, layers: 6 };
  assert.deepEqual(
    [1, 5, 340, 341, 1000].map((n) => cacheWords(run, n)[0]),
    ["3.0 KiB", "15 KiB", "1020 KiB", "1023 KiB", "2.93 MiB"],
  );
});

test("slow is a step that takes twice the median or more", () => {
  const took = [1, 1, 2, 1, 9, 1.5];
  const run = runOf(took.map((seconds, i) => event(i, { tStart: 10 * i, tEnd: 10 * i + seconds })));
  assert.deepEqual(
    [...slowSteps(run)],
    [
      [2, 2],
      [4, 9],
    ],
  );
});

/**
 * `b` waits until `a` is sent back in step 2, and is sent back itself in step 4. Steps take half a
 * second.
 */
const sentBack = () =>
  runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0]),
      waiting: { count: 1, request: "b", why: null },
      segments: [prefill("a", 0, 3)],
      sampled: samples("a"),
    }),
    event(1, { waiting: { count: 1, request: "b", why: null }, segments: [decode("a", 0, 3)] }),
    event(2, {
      preempted: [{ request: "a", tokensLost: 4, lane: 0 }],
      admitted: admissions(["b", 0]),
      waiting: { count: 1, request: "a", why: null },
      segments: [prefill("b", 0, 2)],
    }),
    event(3, { admitted: admissions(["a", 1]), segments: [decode("b", 0, 2)] }),
    event(4, {
      preempted: [{ request: "b", tokensLost: 3, lane: 0 }],
      waiting: { count: 1, request: "b", why: null },
    }),
  ]);

test("what a request has waited by a step knows nothing of later waits", () => {
  const run = sentBack();
  const waited = (id) => [0, 1, 2, 3, 4].map((i) => waitedSoFar(run, run.request(id), i));
  assert.deepEqual(waited("b"), [0.5, 1.5, 1.5, 1.5, 2]);
  assert.deepEqual(waited("a"), [0, 0, 0.5, 0.5, 0.5]);
});

test("a lane's words are of who is in it, not of who gave way to it", () => {
  const run = sentBack();
  const back = runOf([
    event(0, { arrived: arrivals("a"), admitted: admissions(["a", 0]) }),
    event(1, {
      preempted: [{ request: "a", tokensLost: 4, lane: 0 }],
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
    }),
  ]);
  const words = (of, i) => laneWords(of.frame(i).lanes[0]);
  assert.deepEqual([words(run, 2), words(back, 1)], ["B prefill", "A preempted, then prefill"]);
  const { rows } = LanesView.prototype.table.call({}, { run, frame: run.frame(4) });
  assert.equal(rows[0].at(-1), "preempted", "of a lane that is free now");
});

test("a card tells what was lost once it is lost", () => {
  const run = sentBack();
  const lost = (id) => [0, 1, 2, 3, 4].map((i) => timesOf(run, run.request(id), i).lost);
  assert.deepEqual(
    [lost("a"), lost("b")],
    [
      [0, 0, 4, 4, 4],
      [0, 0, 0, 0, 3],
    ],
  );
});

test("the parts of a step's time add up to it, the host's beside a device", () => {
  const of = { timings: { schedule: 0.05, prepare: 0.1, forward: 0.2, sample: 0.05 } };
  const run = runOf([event(0, of)]);
  const other = () => Math.round(100 * timeParts(run, run.events[0]).other);
  assert.equal(other(), 10);
  run.header.execution = { asynchronous: true };
  assert.equal(other(), 25);
});

test("what somebody said is read without what a chat template added", () => {
  const run = two();
  const [a, b] = [run.request("a"), run.request("b")];
  const prompt = ["<|", "user", "|>", "To", " be?", "<|end|>", "<|model|>", "Yes", "<|end|>"];
  const texts = { prompt: { a: prompt, b: ["O", " Romeo"] }, output: {} };
  const own = prompt.map((piece, i) => ([3, 4, 7].includes(i) ? piece : null));
  run.append([], [], { texts: { ...texts, said: { a: own } } });
  const added = prompt.map((_, position) => run.isTemplate(a, position));
  assert.deepEqual(
    added,
    own.map((piece) => piece === null),
  );
  assert.equal(run.isTemplate(a, prompt.length), false, "a generated token");
  assert.deepEqual(run.said(a), ["To", " be?", "\n", "Yes", " "], "a break between two messages");
  assert.deepEqual(run.said(b), ["O", " Romeo"], "a prompt that no template wrote");
  assert.equal(run.isTemplate(b, 0), false);
  run.append([], [], { texts: { prompt: {}, output: {}, said: { b: [null, null] } } });
  assert.deepEqual(run.said(b), [" "], "nobody said anything");
});

test("a run opens at a step of a readable size, if one mixes prompt and answer at all", () => {
  const mixed = (/** @type {number} */ step, /** @type {number} */ length) =>
    event(step, { segments: [decode("a", 0, 9 + step), prefill("b", 1, length)] });
  const first = event(0, {
    arrived: arrivals("a", "b"),
    admitted: admissions(["a", 0], ["b", 1]),
    segments: [prefill("a", 0, 10)],
  });
  assert.equal(runOf([first, mixed(1, 2), mixed(2, 20), mixed(3, 2)]).openingStep(), 2);
});

test("an idle device is worth a word from a hundredth of a step on", () => {
  const worth = (/** @type {number} */ gap) => {
    const [first, second] = [event(0), event(1, { tStart: 0.5 + gap, tEnd: 1 + gap })];
    const run = runOf([first, second]);
    run.header.execution = { asynchronous: true };
    return run.idleBefore(1)?.worth;
  };
  assert.deepEqual([worth(0.004), worth(0.006), worth(0.02)], [false, true, true]);
});

test("the last piece of a prompt is a chunk, too; a whole prompt is none", () => {
  const rest = { ...prefill("a", 0, 2), start: 3, kvLen: 5 };
  const run = runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0], ["b", 1]),
      segments: [prefill("a", 0, 3), prefill("b", 1, 5)],
    }),
    event(1, { segments: [rest] }),
    event(2, { segments: [decode("a", 0, 5)] }),
  ]);
  run.texts.prompt = { a: [..."abcde"], b: [..."abcde"] };
  assert.deepEqual(run.eventSteps("chunk"), [0, 1]);
  run.events[0].segments.shift();
  assert.deepEqual(run.eventSteps("chunk"), [1]);
});

test("how long who was preempted before the first step here has waited is not known", () => {
  const run = /** @type {any} */ ({ events: [{ tStart: 5, tEnd: 6 }] });
  const waits = (/** @type {number} */ from, arrived = /** @type {number | null} */ (2)) =>
    waitedBy(run, /** @type {any} */ ({ waits: [[from, Infinity, true]], arrived }), 0);
  assert.deepEqual([waits(-3), waits(0), waits(-3, null)], [null, 1, null]);
  const came = /** @type {any} */ ({ waits: [[-3, Infinity, false]], arrived: null });
  assert.deepEqual([waitedBy(run, came, 0), waitedBy(run, { ...came, arrived: 2 }, 0)], [null, 4]);
});

test("what a step computes for a request begins where its cache ended, in however many passes", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      passes: [pass(0, 0.2), pass(0.2, 0.5)],
      segments: [prefill("a", 0, 3), { ...decode("a", 0, 3), passIndex: 1 }],
    }),
  ]);
  assert.equal(run.frame(0).lanes[0].before, 0);
});

test("a hue is free again once whoever had it has left", () => {
  const guests = Array.from({ length: 40 }, (_, n) => `guest ${n}`);
  const run = runOf(
    guests.map((guest, step) =>
      event(step, {
        arrived: arrivals(guest, ...(step ? [] : ["host"])),
        admitted: admissions(...(step ? [] : [["host", 0]]), [guest, 1]),
        released: [{ request: guest, lane: 1, when: "after" }],
      }),
    ),
  );
  const { hue } = run.request("host");
  assert.ok(guests.every((guest) => run.request(guest).hue !== hue));
});

test("of three guesses of which one was wrong two were taken", () => {
  const item = /** @type {any} */ ({ kvLen: 10, drafted: 3, rejected: 1 });
  assert.deepEqual(
    [6, 7, 8, 9, 10].map((position) => guessAt(item, position)),
    ["", "taken", "taken", "forgotten", ""],
  );
});

test("a graph of eight positions has two more than two rows of three", () => {
  const run = runOf([event(0, { passes: [pass(0, 0.5, { rows: 2, width: 3, bucket: 8 })] })]);
  assert.equal(passesOf(run, run.events[0])[0].graphPads, 2);
});

test("what is computed for nothing is its own part of the budget", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [decode("a", 0, 4)],
      overrun: [{ request: "a", rows: 1 }],
    }),
  ]);
  assert.deepEqual(
    budgetParts(run, run.frame(0)).parts.map(({ phase, n }) => [phase, n]),
    [["overrun", 1]],
  );
});

test("of many as many as fit are shown, the first and the last among them", () => {
  assert.deepEqual([...some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 3)], [0, 5, 9]);
});

test("a block is as full as its part of the cache, and new where nothing of it was found", () => {
  const [request] = two().requests;
  const places = [0, 1, 2].map((at) => ({ block: 5 - at, group: 0, at, from: 0, to: Infinity }));
  const run = { groups: [{ blockSize: 4, units: 1, kind: "full_attention", window: null }] };
  const lane = { request, laneSpan: { places, hit: 4 }, kvLen: 9 };
  const owned = BlocksView.prototype.owners.call({}, { i: 0, lanes: [lane] }, run);
  assert.deepEqual(
    [...owned].map(([block, [{ fill, fresh }]]) => [block, fill, fresh]),
    [
      [5, 1, false],
      [4, 1, true],
      [3, 0.25, true],
    ],
  );
});

test("whoever waits is told who stands just before them", () => {
  const run = runOf([event(0, { arrived: arrivals("a", "b", "c") })]);
  const said = ["a", "b", "c"].map((id) => whereabouts(run, { id }));
  assert.equal(said[0], "You are next.");
  assert.match(said[1], /1 request before yours\. You are behind .A/);
  assert.match(said[2], /2 requests before yours. You are behind .B/);
  for (const request of run.requests) request.by = "Ada";
  assert.equal(whereabouts(run, { id: "c" }), "2 requests before yours.", "all are Ada's");
});

test("a chat's answer that was cut is told so; another text is as long as was asked", () => {
  const went = { waited_s: 2, tokens: 3, steps: 3, others: 0 };
  const told = (/** @type {boolean} */ isChat, /** @type {string} */ reason) =>
    whereabouts(null, { id: "a", ended: { finish_reason: reason }, went, isChat });
  const rest = "you waited 2.00 s, wrote 3 tokens in 3 steps, alone.";
  assert.equal(told(true, "length"), `Cut at its limit: ${rest}`);
  assert.equal(told(true, "stop"), `Done: ${rest}`);
  assert.equal(told(false, "length"), `Done: ${rest}`);
});

test("beside a step, the run below is shown as far as it had come by then", () => {
  const [run, other] = [two(), two()];
  const told = [];
  const element = { hidden: false, style: {}, getAttribute: () => "", setAttribute: () => {} };
  const members = [{ run }, { run: other }];
  const beside = {
    on: true,
    offered: true,
    policy: "static",
    lines: [{ ...element }, { ...element }],
    button: element,
    app: { root: { toggleAttribute() {} }, pair: { other: members[1], members } },
    _tell: (/** @type {any} */ _line, /** @type {any} */ _state, of, i, now) => told.push([i, now]),
  };
  const state = { run, frame: run.frame(1), clock: true, pair: { other: members[1] } };
  const below = (/** @type {number} */ tEnd) => {
    run.events[1].tEnd = tEnd;
    Beside.prototype.draw.call(beside, state);
    return told.splice(0)[1];
  };
  // its steps are from 0 to 0.5, 1 to 1.5 and 3 to 3.5
  assert.deepEqual([0.25, 0.75, 1.25, 3].map(below), [
    [0, 0.25],
    [0, 0.5],
    [1, 1.25],
    [2, 3],
  ]);
  const waited = (/** @type {number[]} */ ...at) => waitedSoFar(other, other.request("b"), ...at);
  assert.deepEqual([waited(0, 0.25), waited(0), waited(1, 1.25)], [0.25, 0.5, 0.5]);
});

test("requests that came while an engine ran come in the same steps again", () => {
  const requests = ["a", "b"].map((id) => ({ id, arrival: 90 }));
  const workload = { name: "interactive", arrival_unit: "s", requests };
  const events = [
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 2)],
    }),
    event(7, { segments: [decode("a", 0, 2)] }),
    event(9, { arrived: arrivals("b"), segments: [decode("a", 0, 3)] }),
  ];
  const again = runOf(events, {}, { workload }).workload;
  assert.deepEqual([again.name, again.arrival_unit], ["custom", "step"]); // nobody comes meanwhile
  assert.deepEqual(again.requests, [
    { id: "a", arrival: 0 },
    { id: "b", arrival: 2 },
  ]);
  for (const planned of [{ name: "mine" }, { arrival_unit: "step" }]) {
    const given = { ...workload, ...planned };
    assert.equal(runOf(events, {}, { workload: given }).workload, given);
  }
});

test("where a pair diverges both ways of reading say so, and what was said becomes a reason", () => {
  const run = two();
  const said = { say: ["A decodes."], simple: ["A writes."], why: ["It has a lane."] };
  run.captions[1] = /** @type {any} */ ({ ...said, waits: "", bound: "" });
  run.replaceCaption(1, () => ["They diverge."]);
  const { say, simple = say, why } = /** @type {any} */ (run.captionAt(1));
  assert.deepEqual(
    [say, simple, why],
    [["They diverge."], ["They diverge."], [["A decodes."], "It has a lane."]],
  );
});
