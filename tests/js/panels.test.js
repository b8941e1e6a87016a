// What the panels beside the lanes say of a step, and that nothing of another step or run stays.

import assert from "node:assert/strict";
import test from "node:test";

import { speak } from "../../assets/player/parts/speech.js";
import { DoorView } from "../../assets/player/views/door.js";
import { BlocksView } from "../../assets/player/views/kv.js";
import { LaneChart } from "../../assets/player/views/lane_chart.js";
import { laneScale } from "../../assets/player/run/lane_layout.js";
import { slowSteps, waitedBy } from "../../assets/player/run/delays.js";
import { LanesView } from "../../assets/player/views/lanes.js";
import { LengthsView } from "../../assets/player/views/lengths.js";
import { Narration } from "../../assets/player/views/narration.js";
import { QueueView, timeParts } from "../../assets/player/views/queue.js";
import { PeopleView } from "../../assets/player/views/people.js";
import { gapsOf } from "../../assets/player/views/request_card.js";
import { TextsView } from "../../assets/player/views/texts.js";
import { timeBar, timeLegend } from "../../assets/player/views/time_bar.js";
import { documentOf, El, finding, of } from "./elements.js";
import { admissions, arrivals, event, prefill, Recorder, runOf, samples, two } from "./worlds.js";

Object.assign(globalThis, { document: documentOf(), HTMLElement: El });

/** A panel that has whatever is looked for in it. */
const panelOf = () => {
  const known = finding();
  return { querySelector: known, known: known.known };
};

test("the door names as many as there is room for, counts the others, and says when nobody waits", () => {
  const panel = panelOf();
  const door = new DoorView(panel, { desk: 3 });
  const run = two();
  let now = 0;
  const told = (/** @type {number} */ n) => {
    const waiting = Array.from({ length: n }, (_, index) => ({
      request: {
        index,
        letter: "ABCDE"[index],
        by: "",
        laneSpans: [],
        waits: [[0, Infinity, false]],
      },
    }));
    const frame = { i: now, waiting };
    door.draw({ run, frame, simple: true, layout: "desk", focus: null });
    const named = door.rows.filter(({ el }) => !el.hidden).map(({ box }) => box.textContent);
    assert.equal(door.title.hidden, n === 0);
    return [named.join(""), door.more.textContent];
  };
  assert.deepEqual([1, 3, 4, 5, 0].map(told), [
    ["A", ""],
    ["ABC", ""],
    ["AB", "and 2 more"],
    ["AB", "and 3 more"],
    ["", "Nobody waits at the door."],
  ]);
  run.isHeld = () => true; // for the run that follows this one
  assert.deepEqual(told(0), ["", "Nobody waits at the door."], "when this step ran nobody did");
  now = run.length - 1;
  assert.deepEqual(
    [told(0), told(1)],
    [
      ["", ""],
      ["A", ""],
    ],
  );
});

test("at the door everybody has their name but the one who looks", () => {
  const door = new DoorView(panelOf(), { desk: 3 });
  const waiting = ["Eve", "Me", ""].map((by, index) => ({
    request: {
      ...{ index, letter: "ABC"[index], by, isOwn: by === "Me" },
      ...{ laneSpans: [], waits: [[0, Infinity, false]], arrived: 0 },
    },
  }));
  const state = { run: two(), simple: true, layout: "desk", focus: null };
  door.draw({ ...state, frame: { i: 0, waiting } });
  const names = door.rows.map(({ name }) => (name.hidden ? null : name.textContent));
  assert.deepEqual(names, ["Eve", null, null]);
  assert.deepEqual(
    door.rows.map(({ words }) => words.textContent),
    ["waits 0.50 s", "you wait 0.50 s", "waits 0.50 s"],
  );
});

test("what a screen reader heard of a run is gone once another run is on screen", ({ mock }) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const panel = panelOf();
  const told = new Narration(panel);
  told.button.append(new El("span"));
  const live = panel.known[".live"];
  const [run, other] = [two(), two()];
  const show = (/** @type {Run} */ shown, /** @type {number} */ i) =>
    told.draw({ run: shown, frame: shown.frame(i), index: i, focus: null, language: "en" });
  show(run, 0);
  mock.timers.tick(349);
  assert.equal(live.textContent, "");
  mock.timers.tick(1);
  assert.match(live.textContent, /^Step 0\. /);
  show(run, 1);
  assert.match(live.textContent, /^Step 0\. /, "the same run goes on");
  show(other, 1);
  assert.equal(live.textContent, "");
  mock.timers.tick(350);
  assert.match(live.textContent, /^Step 1\. /);
});

test("how many reasons a step has is told anew in another language, and which odd things it has", () => {
  const panel = panelOf();
  const told = new Narration(panel);
  told.button.append(new El("span"));
  const run = runOf([event(0, { warnings: ["Odd."] })]);
  run.captions = /** @type {any} */ ([{ say: ["It runs."], simple: ["Runs."], why: [["Why."]] }]);
  const show = (/** @type {any} */ speaks, simple = false) => {
    speak(speaks);
    const language = speaks?.name ?? "en";
    told.draw(
      /** @type {any} */ ({ run, frame: run.frame(0), index: 0, focus: null, language, simple }),
    );
    return [panel.known[".sentence"], told.button.querySelector("span")].map(
      (el) => el.textContent,
    );
  };
  assert.deepEqual(show(null), ["It runs. Odd.", "1 warning, 1 reason"]);
  assert.deepEqual(show({ name: "de", words: { "Odd.": "Seltsam." } })[0], "It runs. Seltsam.");
  assert.deepEqual(show(null, true)[0], "Runs. Odd.");
  told.list.hidden = true; // as in the markup
  told.button.click();
  assert.equal(told.list.hidden, false);
  assert.deepEqual(
    told.list.children.map((el) => [el.textContent, [...el.classes].join()]),
    [
      ["Odd.", "odd"],
      ["Why.", ""],
    ],
  );
  told.button.click();
  assert.equal(told.list.hidden, true, "a second press closes it");
});

test("a step's seconds have no part below nothing; beside a device the host's are no part of the rest", () => {
  const timings = { schedule: 1, prepare: 2, forward: 4, sample: 2 };
  const parts = (/** @type {boolean} */ asynchronous, /** @type {number} */ tEnd) =>
    timeParts({ asynchronous }, { tStart: 0, tEnd, timings });
  assert.deepEqual(parts(false, 10), { ...timings, other: 1 });
  assert.equal(parts(false, 8).other, 0);
  assert.deepEqual(parts(true, 10), {
    ...{ forward: 4, sample: 2, other: 4 },
    ...{ "host: schedule": 1, "host: prepare": 2 },
  });
  assert.equal(parts(true, 5).other, 0);
});

test("each part of a request's time says what it is made of, and nothing of the others", () => {
  const part = (/** @type {string} */ name, /** @type {number} */ seconds, steps = 0) => ({
    ...{ name, label: name, means: `means ${name}`, seconds, steps },
  });
  const time = {
    whole: 10,
    parts: [part("queued", 6, 2), part("decode", 3.9, 3), part("prefill", 0.1)],
    limits: [{ limit: "lanes", words: "no lane", seconds: 6 }],
    uncompared: 0.5,
    ended: true,
  };
  const bar = timeBar(/** @type {any} */ (time));
  assert.equal(bar.style.width, "100%");
  assert.equal(timeBar(/** @type {any} */ (time), 40).style.width, "25%", "beside a longer one");
  const [queued, decode, prefilled] = bar.children.map((el) =>
    el.getAttribute("title").split("\n"),
  );
  assert.deepEqual(queued, ["queued: 6000 ms, 2 steps", "no lane: 6000 ms", "means queued"]);
  assert.equal(decode.length, 3);
  assert.match(decode[1], /^500 ms of it with prompts of others/);
  assert.deepEqual(prefilled, ["prefill: 100 ms", "means prefill"]);
  assert.deepEqual(
    timeLegend(/** @type {any} */ (time)).map((el) => el.textContent),
    ["queued 6000 ms", "decode 3900 ms"],
    "a hundredth cannot be seen",
  );
});

test("a gap has the number of the token that it is before, those of earlier steps counted", () => {
  const run = two();
  const a = run.request("a");
  const told = () => gapsOf(run, a, 2).map(({ token, seconds }) => [token, seconds]);
  assert.deepEqual(told(), [
    [2, 1],
    [3, 2],
  ]);
  a.before = /** @type {any} */ ({ generated: 5, token: 0 });
  assert.deepEqual(
    told().map(([token]) => token),
    [7, 8],
  );
});

/** A run whose lanes share block 0; `b` has one of its own, too. */
const sharing = () =>
  runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0], ["b", 1]),
      segments: [prefill("a", 0, 4), prefill("b", 1, 6)],
      sampled: samples("a", "b"),
      kv: {
        ...{ used: 2, total: 8 },
        changes: [
          { request: "a", added: [0] },
          { request: "b", added: [0, 1] },
        ],
        prefixHits: [{ request: "b", numCachedTokens: 4 }],
      },
    }),
  ]);

test("of blocks it is told how many are in use and how many of them are shared", () => {
  const run = sharing();
  const g = new Recorder();
  const canvas = new El("canvas");
  const view = Object.assign(Object.create(BlocksView.prototype), {
    ...{ surface: { visible: true, w: 80, h: 20, canvas, begin: () => g }, key: new El() },
    ...{ owned: new Map(), _before: {}, forgotten: new Map(), shown: new Map() },
  });
  const state = { run, frame: run.frame(0), palette: g.palette, focus: null, language: "en" };
  view.draw(state);
  assert.equal(canvas.getAttribute("aria-label"), "Block map: 2 of 8 blocks in use, 1 shared");
  assert.equal(view.key.textContent, "2 of 8 · 4 tokens each");
  const said = (/** @type {number} */ block) => {
    const { x, y } = view.tiles[block];
    return view
      .hit(x + 1, y + 1)
      .lines.map((/** @type {Span[]} */ line) =>
        line.map((span) => /** @type {any} */ (span).request?.letter ?? span).join(""),
      );
  };
  assert.deepEqual(said(0), [
    "Block 0: A positions 0 to 3, 4 of 4 filled, new in this step",
    "Block 0: B positions 0 to 3, 4 of 4 filled",
    "Shared by 2: one copy in memory",
  ]);
  assert.deepEqual(said(1), ["Block 1: B positions 4 to 7, 2 of 4 filled, new in this step"]);
  assert.deepEqual(said(2), ["Block 2 is free"]);
});

test("under a pointer lies the lane whose ink is there, to its last pixel", () => {
  const run = two();
  const view = { pitch: 20, state: { run, frame: run.frame(1) }, held: new Map() };
  const said = (/** @type {number} */ y) => {
    const found = LengthsView.prototype.hit.call(view, 5, y);
    return found && [found.request?.letter, found.lines[0].at(-1)];
  };
  assert.deepEqual([0, 19, 20, 39, 40].map(said), [
    ["A", " holds 4 [position|positions], 1 of them new in this step"],
    ["A", " holds 4 [position|positions], 1 of them new in this step"],
    ["B", " holds 2 [position|positions], 2 of them new in this step"],
    ["B", " holds 2 [position|positions], 2 of them new in this step"],
    null,
  ]);
});

test("lanes are painted anew for another run, size, theme, focus or layout, and else once", () => {
  const g = { setTransform() {} };
  const canvas = { getContext: () => g };
  const chart = Object.assign(Object.create(LaneChart.prototype), {
    ...{
      _stamp: null,
      painted: null,
      chart: canvas,
      ground: canvas,
      scale: { left: 24 },
      gutter: 24,
    },
    ...{ place() {}, drawLanes() {}, drawGround() {} },
    surface: { canvas, w: 100, h: 50, d: 1 },
  });
  const [run, palette] = [two(), {}];
  let [state, stamp] = [{ run, palette, focus: /** @type {any} */ (null) }, "steps"];
  const painted = () => chart.paint(state, stamp, () => ({}));
  assert.deepEqual([painted(), painted()], [true, false]);
  for (const change of [
    () => (state = { ...state, focus: [run.request("b")] }),
    () => (state = { ...state, focus: [run.request("a")] }),
    () => (state = { ...state, focus: null }),
    () => (state = { ...state, palette: {} }),
    () => (state = { ...state, run: two() }),
    () => (chart.surface.w = 120),
    () => (chart.surface.d = 2),
    () => (stamp = "seconds"),
  ]) {
    change();
    assert.deepEqual([painted(), painted()], [true, false], String(change));
  }
});

test("a text says from where on a leak has changed it, and what stands there with the mask", () => {
  const [run, masked] = [two(), two()];
  run.texts.output = { a: ["one", " two", " six"], b: ["x", "y"] };
  masked.texts.output = { a: ["one", " too", " ten"], b: ["x", "y"] };
  const texts = new TextsView(/** @type {any} */ (panelOf()));
  const said = (/** @type {number} */ i, on = true) => {
    const pair = { leaks: true, members: [{ run: masked }] };
    const state = { run, frame: run.frame(i), index: i, pair, leak: { on }, focus: null };
    texts.draw(/** @type {any} */ ({ ...state, language: "en" }));
    const { output, changed, fresh, masked: instead } = texts.rows[0];
    const words = [output, changed, fresh, instead].map((el) => el.textContent);
    return [...words, fresh.classes.has("changed")];
  };
  assert.deepEqual(said(0), ["", "", "one", "", false]);
  assert.deepEqual(said(1), ["one", "", " two", "with the mask:  too", true]);
  assert.deepEqual(said(2), ["one", " two", " six", "with the mask:  too ten", true]);
  assert.deepEqual(said(2, false), ["one two", "", " six", "", false]);
});

test("a step that took long is told against the median of its run", () => {
  const run = two();
  const lanes = { slow: slowSteps(run) };
  const took = (/** @type {number} */ i) => LanesView.prototype._took.call(lanes, run, i);
  assert.equal(took(0), "step 0 took 500 ms");
  run.events[2].tEnd = run.events[2].tStart + 1.7;
  lanes.slow = slowSteps(run);
  assert.deepEqual(
    [took(1), took(2)],
    ["step 1 took 500 ms", "step 3 took 1700 ms, 3.4 times the median step"],
  );
});

test("nothing of a run lies above its lanes or left of them", () => {
  const run = two();
  const chart = Object.assign(Object.create(LaneChart.prototype), {
    ...{ painted: { run }, scale: laneScale(run, false, 24, 10), gutter: 24, axis: 18, pitch: 20 },
  });
  const at = (/** @type {number} */ x, /** @type {number} */ y) => chart.hit(x, y)?.request?.letter;
  assert.deepEqual(
    [at(26, 18), at(26, 17), at(21, 30), at(36, 39)],
    ["A", undefined, undefined, "B"],
  );
  assert.deepEqual([chart.hit(26, 17), chart.hit(21, 30)], [null, null]);
  assert.deepEqual(chart.hit(26, 60).lines, [["step 0: 1 [request|requests] waiting"]]);
});

test("of each status of a lane is said what the step did there, and who was sent away from it", () => {
  const run = two();
  const chart = Object.assign(Object.create(LaneChart.prototype), {
    ...{ painted: { run }, scale: laneScale(run, false, 24, 10), gutter: 24, axis: 18, pitch: 20 },
  });
  const said = (/** @type {number} */ status) => {
    run.statuses[1][0] = status;
    return chart.hit(36, 20).lines[0].at(-1);
  };
  const finished = "finished; its row is computed as padding until the wave ends";
  assert.deepEqual([0, 1, 2, 3, 4, 8, 32].map(said), [
    "nothing computed; it had stopped, and its lane is free after this step",
    "reads (prefill)",
    "writes (decode)",
    "reads (prefill), then writes (decode)",
    finished,
    "stalled, nothing computed",
    "overrun: it had stopped when this step was already launched, computed for nothing",
  ]);
  run.events[1].preempted = [{ request: "b", lane: 0, tokensLost: 4 }];
  assert.deepEqual(chart.hit(36, 20).lines[1], [
    ...[{ request: run.request("b") }, " was preempted here and lost 4 cached [token|tokens]"],
  ]);
  assert.equal(chart.hit(36, 40).lines.length, 1, "from its lane alone");
});

/** `a` is answered in the first step, `b` comes four seconds after it and goes on. */
const slack = (asynchronous = true) =>
  runOf(
    [
      event(0, {
        arrived: arrivals("a"),
        admitted: admissions(["a", 0]),
        segments: [prefill("a", 0, 3)],
        finished: [{ request: "a", finishReason: "stop" }],
        released: [{ request: "a", lane: 0, when: "after" }],
      }),
      event(4, {
        arrived: arrivals("b"),
        admitted: admissions(["b", 1]),
        segments: [prefill("b", 1, 2)],
      }),
      event(5, { segments: [prefill("b", 1, 2)] }),
    ],
    {},
    { execution: { asynchronous } },
  );

test("where the device was idle is said why, on the clock of an asynchronous run alone", () => {
  const said = (/** @type {boolean} */ clock, asynchronous = true) => {
    const run = slack(asynchronous);
    const chart = Object.assign(Object.create(LaneChart.prototype), {
      ...{ painted: { run }, scale: laneScale(run, clock, 24, 10), gutter: 24, axis: 0, pitch: 20 },
    });
    // after the steps at 0, 4 and 5 seconds, in the lane of `b`
    return [40, 71, 81].map((x) => chart.hit(x, 30).lines[0].at(-1));
  };
  const nothing = "nothing is computed here";
  assert.deepEqual(said(true), [
    "device idle for 3500 ms before step 4: nobody to serve",
    "device waited 500 ms for the host before step 5",
    nothing,
  ]);
  assert.deepEqual(said(true, false), [nothing, ` holds lane 1; ${nothing}`, nothing]);
  assert.deepEqual(said(false), [nothing, "reads (prefill)", "reads (prefill)"]);

  const queue = Object.assign(Object.create(QueueView.prototype), {
    ...{ timeKey: new El(), waited: new El() },
    times: Array.from({ length: 5 }, () => ({ name: new El(), bar: new El(), value: new El() })),
  });
  const told = (/** @type {Run} */ run) =>
    run.events.map((_, i) => {
      queue._time({ run, frame: run.frame(i) });
      return queue.waited.hidden ? "" : queue.waited.textContent;
    });
  assert.deepEqual(told(slack()), [
    ...["", "Device idle 3500 ms: nobody to serve", "Device waited 500 ms for the host"],
  ]);
  assert.equal(queue.timeKey.textContent, "500 ms on the device");
  assert.deepEqual(told(slack(false)), ["", "", ""]);
  assert.equal(queue.timeKey.textContent, "500 ms");
});

test("a block says which layers it is for, and what of it is filled", () => {
  const layers = [0, 1];
  const groups = [
    { kind: "full_attention", layers: [7] },
    { kind: "mamba", layers },
    { kind: "ring", window: 6 },
    { kind: "sliding_window", layers },
    { kind: "sliding_window", window: 3, layers: [5] },
    { kind: "chunked_local_attention", window: 8, layers },
  ];
  const changes = groups.map((_, group) => ({ request: "a", group, added: [group] }));
  const run = runOf(
    [
      event(0, {
        arrived: arrivals("a"),
        admitted: admissions(["a", 0]),
        segments: [prefill("a", 0, 3)],
        kv: { used: 6, total: 8, changes, prefixHits: [] },
      }),
    ],
    {},
    { kv_groups: groups },
  );
  const view = of(BlocksView, { key: new El(), group: 1, state: { run }, ghosts: new Map() });
  view.owned = view.owners(run.frame(0));
  view.tiles = groups.map((_, n) => ({ x: 10 * n, y: 0, w: 10, h: 10 }));
  const said = groups.map((_, n) =>
    view.hit(10 * n + 5, 5).lines.map((/** @type {Span[]} */ line) => line.at(-1)),
  );
  const filled = " positions 0 to 3, 3 of 4 filled, new in this step";
  assert.deepEqual(said, [
    [filled, "Of 1 [layer|layers] that look back over everything"],
    [" positions 0 to 3, 4 of 4 filled, new in this step", "A state of 2 [layer|layers]"],
    [
      " slots 0 to 3, 3 of 4 filled, new in this step",
      "Of layers whose newest token overwrites the one 6 before",
    ],
    [filled, "Of 2 [layer|layers] with a window"],
    [filled, "Of 1 [layer|layers] with a window of 3 [token|tokens]"],
    [filled, "Of 2 [layer|layers] that look back within chunks of 8 [token|tokens]"],
  ]);
});

test("a tile of several blocks is as full as it has blocks in use", () => {
  const owners = [{ request: { letter: "A" } }];
  const shown = new Map([4, 6].map((block) => [block, owners]));
  const drawn = (/** @type {number} */ tile) => {
    const g = new Recorder();
    const state = { palette: g.palette, focus: null, run: { numBlocks: 7 } };
    of(BlocksView, { group: 4, shown })._tile(g, state, tile, { x: 1, y: 2, w: 3, h: 4 });
    return g.boxes.map(({ style, alpha }) => [style, Number(alpha.toFixed(4))]);
  };
  assert.deepEqual(drawn(0), [["empty", 1]]);
  // two of three: the last tile has no fourth
  assert.deepEqual(drawn(1), [
    ["empty", 1],
    ["A solid", 0.7833],
  ]);
});

test("a table of lanes has the numbers of steps, not their places in the record", () => {
  const run = runOf([
    event(5, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 2)],
    }),
    event(7, {
      arrived: arrivals("b"),
      admitted: admissions(["b", 1]),
      segments: [prefill("b", 1, 2)],
    }),
  ]);
  const lanes = Object.assign(Object.create(LanesView.prototype), { counts: [] });
  const { rows } = lanes.table(/** @type {any} */ ({ run, frame: run.frame(1) }));
  assert.deepEqual(rows, [
    ["0", "A", "5", "idle"],
    ["1", "B", "7", "prefill"],
  ]);
});

test("beside a name stands how far its answer is, and at its end whether it is whole", () => {
  const run = two();
  const a = run.request("a");
  a.maxNew = 8;
  const did = (/** @type {string | null} */ reason, status = 0, i = 1) => {
    a.finished = reason ? { step: i, reason } : null;
    const parts = ["el", "chip", "name", "note", "prompt", "output", "fresh", "did"];
    const row = Object.fromEntries(parts.map((name) => [name, new El()]));
    row.el.dataset = {};
    const people = { isMine: (/** @type {string} */ id) => id === "a", _show() {} };
    const state = { run, frame: run.frame(i), index: i, focus: null, language: "en" };
    const now = { over: Boolean(reason), holds: true, status };
    PeopleView.prototype._fill.call(people, row, state, a, now);
    return [row.did.textContent, row.did.getAttribute("title")];
  };
  assert.deepEqual(did(null), ["2 / 8", "Tokens written, of those asked for"]);
  assert.deepEqual(did("length"), ["✓ 2", "Tokens written; finished"]);
  assert.deepEqual(did("stop"), ["✓ 2", "Tokens written; finished"]);
  assert.deepEqual(did("cancelled"), ["✕ 2", "Tokens written; cancelled"]);
  assert.deepEqual(did("error"), ["✕ 2", "Tokens written; failed"]);
  assert.equal(did(null, 8)[0], "stalled");
  a.samples = [1];
  assert.equal(did(null, 1, 0)[0], "reads the prompt");
});

test("who is let in sooner than it came has not waited for less than no time", () => {
  const run = two();
  const b = run.request("b"); // it came at 0
  assert.deepEqual(
    [waitedBy(run, b, 0), waitedBy(run, b, 0, 0.25), waitedBy(run, b, 1)],
    [0.5, 0.25, null],
  );
  b.arrived = 2;
  assert.equal(waitedBy(run, b, 0), 0);
});

test("the axis of a run that goes on has room to grow, that of one that is over or broke off has none", () => {
  const run = two(); // four steps, 3.5 seconds
  const lanes = { surface: { w: 426 } };
  const per = (/** @type {boolean} */ clock) => {
    const state = { clock, pair: { charted: [] }, presenter: false, layout: "desk", simple: false };
    return LanesView.prototype._layout.call(lanes, state, run).scale.per;
  };
  assert.deepEqual([per(false), per(true)], [100, 400 / 3.5]);
  run.complete = false;
  assert.deepEqual([per(false), per(true)], [100, 400 / 3.5]);
  run.goesOn = true;
  assert.deepEqual([per(false), per(true)], [12.5, 400 / 3.5 / 1.25]);
});

test("before any run the lanes are free, and a sentence invites only where there is one", () => {
  const view = Object.assign(Object.create(PeopleView.prototype), {
    ...{ panel: new El(), key: new El(), invite: new El("p"), why: new El(), rows: [{}, {}, {}] },
    ...{ chart: { surface: { visible: false }, painted: {} }, _named() {}, _rows() {} },
    _free: (/** @type {object} */ row) => Object.assign(row, { isFree: true }),
  });
  const free = (/** @type {number} */ lanes, /** @type {string} */ sentence) => {
    view.drawFree(lanes, sentence);
    return [view.key.textContent, view.invite.hidden, view.invite.textContent];
  };
  assert.deepEqual(free(2, "Ask."), ["2 lanes are free", false, "Ask."]);
  assert.deepEqual(
    view.rows.map(({ isFree }) => isFree),
    [true, true, undefined],
  );
  assert.equal(view.chart.painted, null, "nothing of a run is under a pointer");
  assert.deepEqual(free(1, ""), ["1 lane is free", true, ""]);
  assert.deepEqual(free(0, ""), ["", true, ""]);
});

test("what has passed is at full strength up to the playhead, in pixels of the device", () => {
  /** @type {unknown[][]} */
  const drawn = [];
  const g = {
    globalAlpha: 1,
    drawImage: (/** @type {unknown} */ image, /** @type {number[]} */ ...where) =>
      drawn.push([image, g.globalAlpha, ...where]),
  };
  const canvas = { width: 200, height: 100 };
  const chart = Object.assign(Object.create(LaneChart.prototype), {
    ...{ ground: "ground", chart: "chart" },
    surface: { w: 100, h: 50, d: 2, canvas, begin: () => g },
  });
  chart.show(30.2, 0.5);
  assert.deepEqual(drawn.splice(0), [
    ["ground", 1, 0, 0, 100, 50],
    ["chart", 1, 0, 0, 60, 100, 0, 0, 30, 50],
    ["chart", 0.5, 60, 0, 140, 100, 30, 0, 70, 50],
  ]);
  assert.equal(g.globalAlpha, 1);
  chart.show(100);
  assert.deepEqual(drawn.length, 2, "all of it has passed");
});
