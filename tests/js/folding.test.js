import assert from "node:assert/strict";
import test from "node:test";

import { speak, t } from "../../assets/player/parts/speech.js";
import { betweenSteps } from "../../assets/player/run/happenings.js";
import { placesAt } from "../../assets/player/run/holdings.js";
import { written } from "../../assets/player/run/passes.js";
import {
  DECODE,
  OVERRUN,
  PREEMPTED,
  PREFILL,
  Run,
  STALLED,
  WASTED,
} from "../../assets/player/run/run.js";
import { BlocksView } from "../../assets/player/views/kv.js";
import { RequestCard } from "../../assets/player/views/request_card.js";
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
  two,
} from "./worlds.js";

const taken = (/** @type {string} */ request, /** @type {number[]} */ ...added) => ({
  request,
  added,
  group: 0,
  left: [],
  released: false,
});

test("a lane is told what its request did, and how it left", () => {
  const run = runOf(
    [
      event(0, {
        arrived: arrivals("a", "b", "c", "d"),
        admitted: admissions(["a", 0], ["b", 1], ["c", 2]),
        segments: [prefill("a", 0, 3), prefill("b", 1, 2), prefill("c", 2, 2)],
      }),
      event(1, {
        finished: ["c", "d"].map((request) => ({ request, finishReason: "cancelled" })),
        released: [{ request: "c", lane: 2, when: "before" }],
        stalled: [{ request: "a", why: null }],
        passes: [pass(1, 1.2), pass(1.2, 1.5)],
        segments: [
          { ...prefill("b", 1, 4), start: 2, length: 2 },
          { ...decode("b", 1, 4), passIndex: 1 },
        ],
      }),
      event(2, {
        preempted: [{ request: "b", tokensLost: 5, lane: 1 }],
        arrived: arrivals("e"),
        admitted: admissions(["e", 1]),
        segments: [decode("a", 0, 3), prefill("e", 1, 2)],
        overrun: [{ request: "a", rows: 1 }],
      }),
      event(3, { passes: [pass(3, 3.5, { finishedRows: [{ request: "a", lane: 0 }] })] }),
    ],
    { max_num_seqs: 3 },
  );
  assert.deepEqual(run.statuses, [
    [PREFILL, PREFILL, PREFILL],
    [STALLED, PREFILL | DECODE, 0],
    [OVERRUN, PREEMPTED | PREFILL, 0],
    [WASTED, 0, 0],
  ]);
  assert.deepEqual(
    run.laneSpans.map(({ request, from, to, end }) => `${request.id} ${from} ${to} ${end}`),
    ["a 0 Infinity null", "b 0 1 preempted", "c 0 0 finished", "e 2 Infinity null"],
  );
  assert.deepEqual([run.numWaiting, run.request("d").waits], [[1, 0, 1, 1], [[0, 0, false]]]);
  assert.equal(run.longest, 5);
});

test("a policy of one lane has one, and a pool as many blocks as were made", () => {
  const made = runOf([], {}, { batching: { one_lane: true }, num_blocks: 6 });
  assert.deepEqual([made.numLanes, made.numBlocks], [1, 6]);
  const asked = runOf([]);
  assert.deepEqual([asked.numLanes, asked.numBlocks, asked.complete], [2, 8, true]);
});

test("a position is a piece of the prompt or the answer; of a simulated run only the prompt's are", () => {
  const run = two();
  const [a] = run.requests;
  run.texts = { prompt: { a: ["O", " R", "omeo"] }, output: { a: ["x", "y"] } };
  const texts = () => [
    ...[2, 3, 4, 5].map((position) => run.tokenText(a, position)),
    ...[0, 1].flatMap((i) => run.newPieces(a, i)),
  ];
  assert.deepEqual(texts(), ["omeo", "x", "y", "", "x", "y"]);
  run.header.source = "simulated";
  assert.deepEqual(texts(), ["omeo", "—", "—", "—", "—", "—"]);
});

test("captions come in every language that there is, and one that is replaced becomes a reason", () => {
  const said = (/** @type {string} */ text) => ({ say: [text], why: [], waits: "", bound: "" });
  const run = new Run({
    header: two().header,
    events: [event(0)],
    captions: [said("joins")],
    totals: ["all"],
    others: { de: { captions: [said("kommt dazu")], totals: ["alles"] }, fr: null },
    complete: false,
    delays: { parts: [], limits: {}, requests: {} },
  });
  assert.deepEqual([run.complete, run.delays?.parts, run.totals], [false, [], ["all"]]);
  run.append([event(1)], [said("ends")], { translations: { de: [said("endet")] } });
  assert.deepEqual(run.captionAt(1), said("ends"));
  assert.equal(run.captionAt(2), null);
  const read = (i) => {
    const { say, why } = /** @type {Caption} */ (run.captionAt(i));
    return [...say, ...why].flat();
  };
  const inBoth = (i) => {
    const english = read(i);
    speak({ name: "de", words: { leaves: "geht" } });
    const both = [english, read(i)];
    speak(null);
    return both;
  };
  assert.deepEqual(inBoth(0), [["joins"], ["kommt dazu"]]);
  run.replaceCaption(1, () => [t("leaves")]);
  assert.deepEqual(inBoth(1), [
    ["leaves", "ends"],
    ["geht", "endet"],
  ]);
  run.replaceCaption(2, () => [t("leaves")]);
  assert.deepEqual(inBoth(2), [["leaves"], ["geht"]]);
  assert.deepEqual(run.totalsIn, { "": ["all"], de: ["alles"] });
});

test("only a block that was full is lost to the prefix cache when it is overwritten", () => {
  const evicted = (/** @type {number} */ length) => {
    const run = runOf(
      [
        event(0, {
          arrived: arrivals("a", "b"),
          admitted: admissions(["a", 0]),
          segments: [prefill("a", 0, length)],
          released: [{ request: "a", lane: 0, when: "after" }],
          kv: { used: 1, total: 8, changes: [taken("a", 0)], prefixHits: [] },
        }),
        event(1, {
          admitted: admissions(["b", 0]),
          segments: [prefill("b", 0, 2)],
          kv: { used: 1, total: 8, changes: [taken("b", 0)], prefixHits: [] },
        }),
      ],
      { prefix_caching: true },
    );
    return betweenSteps(run, 1)?.happened.evicted.map((one) => [one.block, one.request.id]);
  };
  assert.deepEqual([evicted(3), evicted(4)], [[], [[0, "a"]]]);
});

test("after steps that are not shown everybody is where it is told, and has waited since it came", () => {
  const carried = { tokens: [], tables: [], wasPreempted: false, computed: 0, lane: null };
  const gap = (/** @type {number} */ step, /** @type {any} */ given) =>
    event(step, { resumed: { arrived: [], ended: [], running: [], waiting: [], ...given } });
  const on = (/** @type {any} */ request, /** @type {any} */ given) => ({
    ...carried,
    request,
    ...given,
  });
  // b and a run, c and e wait; then d runs in b's lane, e has ended, and f has come
  const run = runOf([
    event(0, {
      arrived: arrivals("b", "a", "c", "e"),
      admitted: admissions(["b", 0], ["a", 1]),
      segments: [prefill("b", 0, 4), prefill("a", 1, 4)],
      sampled: samples("b", "a"),
      kv: { changes: [taken("b", 0), taken("a", 1, 2)], prefixHits: [] },
    }),
    gap(5, {
      arrived: ["d", "f"].map((request) => ({ request, t: 2 })),
      ended: [{ request: "e", finishReason: "cancelled" }],
      running: [
        on("a", { lane: 1, computed: 7, tokens: [7, 7, 7], tables: [[1, 3, null, 4]] }),
        on("d", { lane: 0, computed: 20, tables: [[5]] }),
      ],
      waiting: [on("f"), on("b", { wasPreempted: true, tokens: [7] }), on("c")],
    }),
    gap(9, {
      ended: ["b", "d", "f"].map((request) => ({ request, finishReason: "stop" })),
      running: [on("a", { lane: 1, computed: 16, tables: [[1, 3, null, 4]] })],
      waiting: [on("c")],
    }),
    event(10, { kv: { changes: [taken("a", 6)], prefixHits: [] } }),
  ]);
  const told = ["a", "b", "c", "d", "e", "f"].map((id) => {
    const { waits, samples, unseen, arrived, cameUnseen, finished } = run.request(id);
    return JSON.stringify([arrived, cameUnseen, waits, samples, unseen, finished]);
  });
  assert.deepEqual(told, [
    "[0,false,[[0,-1,false]],[0,1,1,1],[[1,3]],null]",
    '[0,false,[[0,-1,false],[1,1,true,1]],[0,1],[[1,1]],{"step":2,"reason":"stop"}]',
    "[0,false,[[0,0,false],[1,1,false,0],[2,null,false,0]],[],[],null]",
    '[2,true,[[1,0,false]],[],[],{"step":2,"reason":"stop"}]',
    '[0,false,[[0,0,false]],[],[],{"step":1,"reason":"cancelled"}]',
    '[2,true,[[1,1,false,1]],[],[],{"step":2,"reason":"stop"}]',
  ]);
  assert.deepEqual(
    run.laneSpans.map(({ request, from, to, end }) => `${request.id} ${from} ${to} ${end}`),
    ["b 0 0 unseen", "a 0 Infinity null", "d 1 1 unseen"],
  );
  const of = (/** @type {number} */ i) => [
    placesAt(run.laneSpans[1], i)
      .map(({ block, at }) => `${block} at ${at}`)
      .join(", "),
    run
      .waitingAt(i)
      .map(({ request, since }) => `${request.id} since ${since}`)
      .join(", "),
  ];
  assert.deepEqual([0, 1, 2, 3].map(of), [
    ["1 at 0, 2 at 1", "c since 0, e since 0"],
    ["1 at 0, 3 at 1, 4 at 3", "f since 1, b since 1, c since 0"],
    ["1 at 0, 3 at 1, 4 at 3", "c since 0"],
    ["1 at 0, 3 at 1, 4 at 3, 6 at 4", "c since 0"],
  ]);
  assert.deepEqual([run.numWaiting, run.kvLens[1], run.longest], [[2, 3, 1, 1], [20, 7], 20]);
});

test("where whoever gives way joins the end of the queue, those of one step stand as it names them", () => {
  const gone = ["b", "a"].map((request, lane) => ({ request, tokensLost: 4, lane: 1 - lane }));
  const run = runOf(
    [
      event(0, { arrived: arrivals("a", "b"), admitted: admissions(["a", 0], ["b", 1]) }),
      event(1, { arrived: arrivals("c"), preempted: gone }),
    ],
    {},
    { batching: { requeue: true } },
  );
  assert.deepEqual(
    run.waitingAt(1).map(({ request }) => request.id),
    ["c", "b", "a"],
  );
});

test("an order that was given holds for those who waited then, not for who comes back later", () => {
  const run = runOf([
    event(0, { arrived: arrivals("a", "b"), queue: ["b", "a"] }),
    event(1, { admitted: admissions(["a", 0]), segments: [prefill("a", 0, 4)] }),
    event(2, { preempted: [{ request: "a", tokensLost: 4, lane: 0 }] }),
    event(3, { queue: ["b", "a"] }),
  ]);
  const order = (/** @type {number} */ i) => run.waitingAt(i).map(({ request }) => request.id);
  assert.deepEqual([0, 1, 2, 3].map(order), [["b", "a"], ["b"], ["a", "b"], ["b", "a"]]);
});

test("of the blocks with which a request joins those of its found prefix are shared, though others leave at once", () => {
  const run = runOf(
    [
      event(0, { arrived: arrivals("a") }),
      event(1, {
        admitted: admissions(["a", 0]),
        segments: [{ ...prefill("a", 0, 8), start: 4, length: 4 }],
        kv: {
          changes: [taken("a", 0, 1, 2, 3)],
          prefixHits: [{ request: "a", numCachedTokens: 4 }],
        },
      }),
    ],
    {},
    { kv_groups: [{ kind: "full_attention", units: 2 }] },
  );
  const moved = (/** @type {number} */ i) => {
    const { shared, taken } = betweenSteps(run, i)?.happened ?? { shared: [], taken: null };
    return [shared.map(({ block }) => block), taken?.map(({ block }) => block)];
  };
  assert.equal(betweenSteps(run, 2), null, "not there yet");
  const left = { ...taken("a"), left: [2, 3] };
  run.append([
    event(2, { segments: [decode("a", 0, 8)], kv: { changes: [left], prefixHits: [] } }),
  ]);
  assert.deepEqual([2, 1, 0].map(moved), [
    [[], []],
    [
      [0, 1],
      [2, 3],
    ],
    [[], undefined],
  ]);
});

test("between two steps two tokens of a pass are one happening", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 4)],
    }),
    event(1, { segments: [decode("a", 0, 4)], sampled: samples("a", "a") }),
  ]);
  const { sampled } = betweenSteps(run, 1)?.happened ?? assert.fail();
  assert.deepEqual(
    sampled.map(({ count }) => count),
    [2],
  );
});

test("who was preempted before the first step here waits all the same", () => {
  const before = { arrived: 0, laneSpans: [], kvLen: 0, tables: [], computed: 0, generated: 1 };
  const known = ["a", "b"].map((id) => ({ ...before, id, hue: 0, waits: [[2, null, true]] }));
  const { header } = runOf([]);
  const run = new Run({
    header,
    begin: { step: 5, queue: [], requests: known },
    events: [event(5)],
  });
  assert.deepEqual(
    run.waitingAt(0).map(({ request, since }) => [request.id, since]),
    [
      ["a", -3],
      ["b", -3],
    ],
  );
});

test("a run that begins in its middle goes on from who waits, who holds what, and who has just ended", () => {
  const known = (/** @type {string} */ id, /** @type {any} */ given) => ({
    ...{ id, hue: 0, arrived: 0, waits: [], laneSpans: [], kvLen: 0, tables: [], generated: 0 },
    ...given,
  });
  const { header } = runOf([]);
  const again = [
    [0, 1, 2],
    [1, 3, null],
  ];
  const requests = [
    known("a", { waits: [[1, 2, false]], laneSpans: again, kvLen: 9, tables: [[4, null, 6]] }),
    known("b", { waits: [[4, null, false]] }),
    known("c", { laneSpans: [[0, 3, null]], kvLen: 30, tables: [[7]], reason: "stop" }),
  ];
  requests[0].generated = 3;
  const step = event(5, { segments: [decode("a", 1, 9)], sampled: samples("a") });
  const run = new Run({ header, begin: { step: 5, queue: ["b"], requests }, events: [step] });
  const { lanes, waiting } = run.frame(0);
  assert.deepEqual(
    lanes.map(({ request, before, kvLen }) => [request.id, before, kvLen]),
    [
      ["c", 30, 30],
      ["a", 9, 10],
    ],
  );
  assert.deepEqual([waiting.length, ...run.numWaiting, run.longest], [1, 1, 30]);
  const { laneSpans, waits, finished } = run.request("a");
  assert.deepEqual(
    laneSpans.map(({ from, to, end }) => [from, to, end]),
    [
      [-4, -3, "preempted"],
      [-2, Infinity, null],
    ],
  );
  assert.deepEqual(
    [waits, finished, run.request("c").finished],
    [[[-4, -3, false]], null, { step: -1, reason: "stop" }],
  );
  const places = placesAt(laneSpans[1], 0).map(({ block, at }) => [block, at]);
  assert.deepEqual(
    [places, run.numGenerated(run.request("a"), 0), run.stepOf(-1)],
    [
      [
        [4, 0],
        [6, 2],
      ],
      4,
      4,
    ],
  );
});

test("what came in steps that are not shown came out of no pass and has no time", () => {
  const carried = { request: "a", lane: 0, tokens: [7, 7], tables: [], computed: 5 };
  const resumed = { arrived: [], ended: [], running: [carried], waiting: [] };
  const gone = { ...resumed, ended: [{ request: "a", finishReason: "stop" }], running: [] };
  const run = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 3)],
      sampled: samples("a"),
    }),
    event(4, { resumed, segments: [decode("a", 0, 5)], sampled: samples("a") }),
    event(5, { segments: [decode("a", 0, 6)], sampled: samples("a") }),
    event(9, { resumed: gone }),
  ]);
  run.texts.output = { a: ["1", "2", "3", "4", "5"] };
  const a = run.request("a");
  assert.deepEqual(
    [0, 1, 2, 3].map((i) => written(run, a, i)),
    ["1", "4", "5", null],
  );
  const { rows } = RequestCard.prototype.table({ run, frame: run.frame(2), pinned: a });
  assert.deepEqual(rows, [["5", "1000 ms"]]);
  const told = {};
  const card = {
    panel: {},
    _named: { request: a, run, language: "" },
    _row: (/** @type {string} */ name, /** @type {string} */ ...said) => (told[name] = said),
    _went() {},
    _gaps() {},
  };
  const at = (/** @type {number} */ i) => {
    const state = { run, frame: run.frame(i), pinned: a, language: "" };
    RequestCard.prototype.draw.call(card, state);
    return [told.Now[0], ...told.Preempted];
  };
  assert.deepEqual(at(3), ["finished before step 9", "never", null]);
  const ends = ["cancelled", "error"].map((reason) => {
    a.finished = { step: 2, reason };
    return at(3)[0];
  });
  assert.deepEqual(ends, ["cancelled in step 5", "failed in step 5"]);
  // of a run whose first steps are no longer here
  Object.assign(a, { finished: { step: -1, reason: "stop" }, before: { generated: 6 } });
  a.waits.push([-2, -1, true]);
  assert.deepEqual(at(3), ["finished before step 0", "once", null]);
  assert.equal(
    RequestCard.prototype.table({ run, frame: run.frame(2), pinned: a }).rows[0][0],
    "11",
  );
});

test("a block that another request holds is not freed by a preemption", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0], ["b", 1]),
      segments: [prefill("a", 0, 8), prefill("b", 1, 6)],
      kv: { used: 3, total: 8, changes: [taken("a", 0, 1), taken("b", 0, 2)], prefixHits: [] },
    }),
    event(1, { preempted: [{ request: "b", lane: 1, tokensLost: 6 }] }),
  ]);
  const g = new Recorder();
  const said = {};
  const canvas = { getAttribute: () => "", setAttribute: (name, words) => (said[name] = words) };
  const view = Object.assign(Object.create(BlocksView.prototype), {
    surface: { visible: true, w: 200, h: 100, canvas, begin: () => g },
    key: { textContent: "" },
  });
  view.draw({ run, frame: run.frame(1), palette: g.palette, focus: null, hot: null });
  assert.match(said["aria-label"], /, 1 freed by preemption$/);
});
