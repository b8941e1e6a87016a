// What views say of a step, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { speak } from "../../assets/player/parts/speech.js";
import { OwnRequests } from "../../assets/player/live/own_requests.js";
import { laneScale } from "../../assets/player/run/lane_layout.js";
import { covered, knobAt } from "../../assets/player/views/lane_chart.js";
import { Flights } from "../../assets/player/views/flights.js";
import { LanesView } from "../../assets/player/views/lanes.js";
import { LengthsView } from "../../assets/player/views/lengths.js";
import { warned } from "../../assets/player/views/narration.js";
import { PackedRow } from "../../assets/player/views/packed_row.js";
import { RequestCard } from "../../assets/player/views/request_card.js";
import { PeopleView } from "../../assets/player/views/people.js";
import { saidOf } from "../../assets/player/watch/happens.js";
import { budgetParts } from "../../assets/player/views/queue.js";
import { documentOf, El } from "./elements.js";
import {
  admissions,
  arrivals,
  decode,
  event,
  pass,
  prefill,
  Recorder,
  runOf,
  two,
} from "./worlds.js";

test("pads are no part of a budget that has a limit", () => {
  const passes = [pass(0, 1, { padding: 3 })];
  const parts = (limit) => {
    const run = runOf([event(0, { passes, budget: { limit, decode: 1, prefill: 0, unused: 0 } })]);
    const found = budgetParts(run, run.frame(0));
    return [found.parts.map(({ phase, n }) => [phase, n]), found.total];
  };
  assert.deepEqual(parts(null), [[["pads", 3]], 4]);
  assert.deepEqual(parts(16), [[], 16]);
});

test("a number on an axis lies whole beside the playhead or is not drawn", () => {
  const beside = [100, 116].map((x) => covered(x, x + 10, knobAt(109)));
  assert.deepEqual(beside, [true, true]);
  assert.deepEqual([covered(91, 101, knobAt(109)), covered(117, 127, knobAt(109))], [false, false]);
  assert.equal(covered(130, 150, knobAt(109), [118, 131]), true); // under the words beside it
});

test("a run's steps span all of them, those that nobody recorded too", () => {
  const span = (clock) => two().span(clock);
  assert.deepEqual([span(false), span(true)], [4, 3.5]); // steps 0, 1 and 3
});

test("a text stays in its lane for a while after its end, and nobody's is in use", () => {
  const [request, other] = [{ finished: { step: 2 } }, { finished: null }];
  const span = { lane: 0, to: 2, end: "finished", request };
  const away = { lane: 1, to: 1, end: "preempted", request }; // it went on in lane 0
  const still = { lane: 1, to: Infinity, end: null, request: other };
  const run = { numLanes: 2, laneSpans: [away, span, still] };
  const left = (i) => [...PeopleView.prototype._left(run, { i }).keys()];
  assert.deepEqual([left(2), left(3), left(18), left(19)], [[], [0], [0], []]);
  const key = { textContent: "" };
  const lanes = [
    { lane: 0, request },
    { lane: 1, request: other },
  ];
  const view = {
    panel: { isConnected: true, classList: { remove() {} } },
    invite: {},
    why: {},
    rows: [],
    door: { draw() {} },
    key,
    ...Object.fromEntries(
      ["_named", "_rows", "_free", "_fill", "_passing"].map((n) => [n, () => {}]),
    ),
    _left: () => new Map(),
  };
  PeopleView.prototype.draw.call(view, { run, frame: { i: 2, lanes, waiting: [] } });
  assert.equal(key.textContent, "1 of 2 in use, 1 just done");
  // static: its lane is held until the wave ends
  PeopleView.prototype.draw.call(view, { run, frame: { i: 3, lanes, waiting: [] } });
  assert.equal(key.textContent, "1 of 2 in use");
  request.finished.reason = "error";
  PeopleView.prototype.draw.call(view, { run, frame: { i: 2, lanes, waiting: [] } });
  assert.equal(key.textContent, "1 of 2 in use");
});

test("what is folded says which positions it holds", () => {
  const item = { request: {}, kvLen: 9 };
  const cell = { x: 0, y: 0, w: 9, h: 9, item, fold: 5, from: 4 };
  const { lines } = PackedRow.prototype.hit.call({ cells: [cell], state: {} }, 1, 1);
  assert.equal(lines[0][1], " 5 more [token|tokens], positions 4 to 8");
});

test("short of room the row counts its template's tokens and shows what was asked", () => {
  const request = { letter: "D" };
  const run = {
    isTemplate: (_, position) => position < 5 || position > 7,
    tokenText: (_, position) => `word${position}`,
  };
  const item = { request, start: 1, length: 9, kvLen: 10, phase: "prefill" };
  const row = Object.create(PackedRow.prototype);
  const texts = (fold) => row._cellsOf(run, { items: [item] }, fold).map(({ text }) => text);
  const words = ["word5", "word6", "word7"];
  assert.deepEqual(texts({ most: 9, dots: true }), [..."····", ...words, ..."··"]);
  assert.deepEqual(texts({ most: 6 }), ["·×4", ...words, ..."··"]);
  assert.deepEqual(texts({ most: 3 }), ["·×4", "word5", "… +4"]);
  assert.deepEqual(texts({ most: 0 }), ["D 9"]);
  const [cell] = row._cellsOf(run, { items: [item] }, { most: 3 });
  Object.assign(cell, { x: 0, y: 0, w: 9, h: 9 });
  const { lines } = row.hit.call({ cells: [cell], state: { run } }, 1, 1);
  assert.equal(lines[0][1], " 4 [token|tokens], positions 1 to 4");
});

test("of a pass that reads a prompt again only its prompt tokens are counted as such", () => {
  const item = { request: {}, start: 2, length: 5, kvLen: 7, phase: "prefill" };
  const run = { isTemplate: () => false, promptLength: () => 4, tokenText: () => "" };
  const said = (position) => {
    const cell = { x: 0, y: 0, w: 9, h: 9, item, position, text: "" };
    return PackedRow.prototype.hit.call({ cells: [cell], state: { run } }, 1, 1).lines.flat();
  };
  assert.ok(said(3).includes("Prefill: one of 2 prompt [token|tokens] in this pass"));
  assert.ok(said(4).includes("Prefill: a token it wrote, computed again after its preemption"));
});

/** What the row shows of passes that read so many tokens each, in so much room. */
function rowOf(/** @type {number[]} */ lengths, /** @type {number} */ w, /** @type {number} */ h) {
  const ids = lengths.map((_, n) => `r${n}`);
  const run = runOf(
    [
      event(0, {
        arrived: arrivals(...ids),
        admitted: admissions(...ids.map((id, n) => [id, n])),
        passes: lengths.map((tokens) => pass(0, 1, { tokens })),
        segments: lengths.map((length, n) => ({ ...prefill(ids[n], n, length), passIndex: n })),
      }),
    ],
    { max_num_seqs: lengths.length },
  );
  const g = Object.assign(new Recorder(), { roundRect() {} });
  const canvas = { setAttribute() {}, getAttribute: () => null };
  const row = Object.assign(Object.create(PackedRow.prototype), {
    ...{ surface: { visible: true, w, h, canvas, begin: () => g }, title: {}, key: {} },
  });
  row.draw({ run, frame: run.frame(0), palette: g.palette, focus: null });
  const tops = [...new Set(row.cells.map((/** @type {any} */ cell) => cell.y))];
  const numbers = g.texts.filter(({ x }) => x === 2).map(({ text, y }) => [text, y]);
  const lines = tops.map((top) =>
    row.cells.filter(({ y }) => y === top).map((/** @type {any} */ { text }) => text),
  );
  return { row, numbers, lines };
}

test("passes that find no room are counted with their tokens, whether in a line or at the end", () => {
  assert.deepEqual(rowOf([1, 1], 200, 50).lines.length, 2);
  // three lines of 14 pixels: the first pass, the last, and those between them
  const six = [9, 9, 9, 9, 9, 9];
  const { row, lines, numbers } = rowOf(six, 200, 44);
  assert.deepEqual([lines.length, lines[1]], [3, ["… 4 more passes: 36 tokens"]]);
  assert.deepEqual(
    numbers.map(([text]) => text),
    ["1", "6"],
  );
  const { x, y } = row.cells.find((/** @type {any} */ cell) => cell.sum);
  assert.deepEqual(row.hit(x + 1, y + 1).lines, [["… 4 more passes: 36 tokens"]]);
  // two lines have no room for three: the passes follow each other, and those left are counted
  const flowing = rowOf(six, 170, 30);
  assert.deepEqual(flowing.lines, [["r0 9", "r1 9", "r2 9", "r3 9"], ["+18 tokens of 2 requests"]]);
  assert.deepEqual(flowing.numbers, []);
  assert.deepEqual(rowOf(six, 400, 15).lines, [
    ["r0 9", "r1 9", "r2 9", "r3 9", "r4 9", "+9 tokens of 1 request"],
  ]);
  assert.deepEqual(rowOf(six, 100, 8).lines, [], "no line at all");
});

test("a cell that stands for no token of a request says what it stands for", () => {
  const request = { letter: "A" };
  const said = (/** @type {object} */ cell, item = {}) => {
    const all = { request, kvLen: 9, ...item };
    const cells = [{ x: 0, y: 0, w: 9, h: 9, item: all, text: "", ...cell }];
    const { lines } = PackedRow.prototype.hit.call({ cells, state: { run: {} } }, 1, 1);
    return lines.map((/** @type {any[]} */ spans) => spans.at(-1));
  };
  const over = " had stopped when this step was already launched: overrun, computed for nothing";
  assert.deepEqual(said({ graph: 3, bucket: 8 }), [
    "Graph padding: the CUDA graph has 8 [position|positions], 3 of them for no request",
  ]);
  assert.deepEqual(said({ pads: 2 }), [" 2 [pad|pads]: fewer tokens than this pass has columns"]);
  assert.deepEqual(said({ pads: 1 }, { finished: true }), [
    " 1 [pad|pads]: finished; its row is still computed until the wave ends",
  ]);
  assert.deepEqual(said({ guess: "forgotten", position: 4 }), [
    " position 4: a token that was guessed and not used; it is forgotten",
  ]);
  assert.deepEqual(said({ fold: 5, from: 4 }, { overrun: true }), [
    ...[" 5 more [token|tokens], positions 4 to 8", over],
  ]);
  const graph = { graphPads: 2, items: [], index: 0 };
  const frame = { passes: [graph, { ...graph, graphPads: 0, index: 1 }] };
  assert.deepEqual(PackedRow.prototype.table.call({}, { run: {}, frame }).rows, [
    ["1", "nobody", "graph padding", "–", "", "2", ""],
  ]);
});

test("a token fed back comes from where it was written, others from where their request stands", () => {
  const froms = [];
  const cell = (phase) => ({
    come: 0.5,
    flies: true,
    x: 0,
    y: 0,
    w: 1,
    h: 1,
    item: { lane: 0, phase },
  });
  const view = {
    views: { row: { cells: [cell("decode"), cell("prefill")] } },
    _lane: (lane, i) => froms.push([lane, i]) && { x: 0, y: 0, w: 1, h: 1 },
    _on: (_view, place) => place,
    _token() {},
  };
  Flights.prototype._tokens.call(view, {}, { index: 7 });
  assert.deepEqual(froms, [
    [0, 6],
    [0, 7],
  ]);
});

test("a warning names a request by its chip in every language, and quotes the rest", () => {
  const a = { id: "a" };
  const run = { request: (id) => (id === "a" ? a : null) };
  const odd = () => warned(run, "Request “a” is not in the phase “b”.");
  assert.deepEqual(odd(), ["Request ", { request: a }, " is not in the phase ", "“b”", "."]);
  const words = { "Request “…” is not in the phase “…”.": "Anfrage “…” ist nicht in Phase “…”." };
  speak({ name: "de", words });
  const german = odd();
  speak(null);
  assert.deepEqual(german, ["Anfrage ", { request: a }, " ist nicht in Phase ", "„b“", "."]);
});

test("a stream that is resumed goes on behind what has come", () => {
  const own = { key: "k", text: "", ends: [], next: 0 };
  const mine = { requests: [own], changed() {} };
  const take = (delta) => OwnRequests.prototype._take.call(mine, { of: "k", ...delta });
  take({ last: 2, messages: [{ text: "a" }, { text: "b" }, { text: "c" }] });
  take({ last: 3, messages: [{ ended: { tokens: 4 } }] });
  assert.deepEqual([own.text, own.next, own.ended], ["abc", 4, { tokens: 4 }]);
  assert.deepEqual(own.ends, [1, 2, 3, 3]);
  take({ gone: true });
  const lost = () => String(/** @type {any} */ (own).lost);
  assert.match(lost(), /^It did not reach the server/);
  Object.assign(own, { id: "live-1" });
  take({ gone: true });
  assert.match(lost(), /^It is no longer on the server/);
});

test("of what was guessed the row says how much was right", () => {
  const key = { textContent: "" };
  const drafts = [{ drafted: 3, accepted: 1 }];
  const run = runOf([event(0, { drafts })]);
  PackedRow.prototype.draw.call(
    { surface: { visible: false }, title: { textContent: "" }, key },
    { run, frame: run.frame(0) },
  );
  assert.match(key.textContent, /, 3 guessed: 1 used/);
});

test("who joins flies from where it waited, who gives way to where it waits then", () => {
  const box = { left: 0, top: 0, width: 1, height: 1 };
  const view = { surface: { w: 1, h: 1, canvas: { getBoundingClientRect: () => box } } };
  let left = 0;
  const queue = {
    draw: ({ share }) => {
      left = share ?? NaN;
    },
    boxOf: () => ({ getClientRects: () => [{ ...box, left }] }),
  };
  const texts = { box: { getClientRects: () => [], getBoundingClientRect: () => box } };
  const flights = {
    stage: { getBoundingClientRect: () => box, querySelector: () => null },
    surface: { w: 1, h: 1 },
    lanes: view,
    views: { row: view, mask: view, blocks: view, queue, texts },
    origins: new Map(),
    places: new Map(),
    _of: [],
  };
  const [request, other] = [{ index: 0 }, { index: 1 }];
  const happened = { admitted: [{ request }], preempted: [{ request: other }], sampled: [] };
  Flights.prototype._measure.call(flights, {}, { happened });
  assert.deepEqual(
    ["before 0", "after 1"].map((name) => flights.places.get(name).x),
    [0, 1],
  );
});

test("the other run's lanes are told of the step of the same number", () => {
  const { rows } = LanesView.prototype.besideTable({
    frame: { event: { step: 3 } },
    pair: { other: { run: two(), name: () => "other" } },
  });
  assert.deepEqual(
    rows.map(([lane, letter, since]) => [lane, letter, since]),
    [
      ["0", "A", "0"],
      ["1", "B", "1"],
    ],
  );
  const missing = LanesView.prototype.besideTable({
    frame: { event: { step: 2 } },
    pair: { other: { run: two(), name: () => "other" } },
  });
  assert.equal(missing.caption, "Lanes of the other run, other: it has no step 2");
  assert.deepEqual(missing.rows, []);
});

test("under a pointer where no step is drawn nothing is computed", () => {
  const run = two(); // steps 0, 1 and 3
  const chart = { painted: { run }, scale: laneScale(run, false, 24, 10), gutter: 24, axis: 0 };
  const view = Object.assign(Object.create(LanesView.prototype), chart, { pitch: 20, axis: 9 });
  const said = (/** @type {number} */ x, y = 12) => view.hit(x, y).lines[0].at(-1);
  const [at, nothing] = [
    (/** @type {number} */ step) => 24 + 10 * step,
    "nothing is computed here",
  ];
  assert.deepEqual(
    [0.5, 1.5, 2.5, 3.5, 4.5].map((step) => said(at(step))),
    ["reads (prefill)", "writes (decode)", ` holds lane 0; ${nothing}`, "writes (decode)", nothing],
  );
  view.slow = new Map();
  assert.deepEqual([said(at(1.5), 3), said(at(2.5), 3)], ["step 1 took 500 ms", nothing]);
});

test("who is cancelled or fails is not said to be done", () => {
  const said = (/** @type {string[]} */ ...reasons) => {
    const ends = reasons.map((finishReason, n) => ({ request: "ab"[n], finishReason }));
    const run = runOf([event(0, { arrived: arrivals("a", "b"), finished: ends })]);
    return saidOf(run, run.events[0])?.words;
  };
  assert.deepEqual(
    [said("stop", "cancelled"), said("cancelled", "error")],
    ["A is done", "A, B leave"],
  );
});

test("guesses of a decode are drawn as its tokens, not as a prompt that is read", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 4)],
    }),
    event(1, { segments: [{ ...decode("a", 0, 4), length: 3, kvLen: 7 }] }),
  ]);
  const drawn = (/** @type {number} */ i) => {
    const g = new Recorder();
    const canvas = { getAttribute: () => "", setAttribute() {} };
    LengthsView.prototype.draw.call(
      { surface: { visible: true, w: 200, h: 60, canvas, begin: () => g }, key: {} },
      { run, frame: run.frame(i), palette: g.palette, focus: null },
    );
    return g.boxes.some(({ style }) => style === "A tint");
  };
  assert.deepEqual([0, 1].map(drawn), [true, false]);
});

test("where a request's time went is told anew in another language", () => {
  const run = two();
  run.delays = /** @type {any} */ ({
    parts: [["decode", "decode", "answers"]],
    limits: {},
    requests: { a: { us: [1e6], steps: [1], queued: {}, uncompared: 0, ended: true } },
  });
  globalThis.document = documentOf();
  const card = Object.assign(Object.create(RequestCard.prototype), {
    _wentStamp: "",
    went: new El(),
    wentKey: new El(),
  });
  const told = (/** @type {string} */ id, /** @type {any} */ language = null) => {
    speak(language);
    card._went(run, run.request(id), language?.name ?? "en");
    return [card.wentKey, card.went].map((el) => el.textContent);
  };
  const words = { decode: "schreiben" };
  assert.deepEqual(told("a"), ["1000 ms to its end", "decode 1000 ms"]);
  assert.deepEqual(told("a", { name: "de", words })[1], "schreiben 1000 ms");
  run.delays.requests.a.ended = false;
  card._wentStamp = "";
  assert.equal(told("a")[0], "1000 ms, not at its end");
  assert.deepEqual(told("b"), ["known when the run has ended", ""]);
});
