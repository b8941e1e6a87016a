// All ranks of an engine at one moment, without a page.

import assert from "node:assert/strict";
import test from "node:test";

import { laneScale } from "../../assets/player/run/lane_layout.js";
import { RankLanes } from "../../assets/player/views/rank_lanes.js";
import { documentOf, El, Event, finding } from "./elements.js";
import { admissions, arrivals, event, prefill, Recorder, runOf } from "./worlds.js";

const createTextNode = (/** @type {string} */ textContent) =>
  Object.assign(new El("text"), { textContent });
Object.assign(globalThis, {
  ...{ document: documentOf({ createTextNode }), HTMLElement: El, window: {} },
  ResizeObserver: class {
    observe() {}
  },
});

/** Steps 0 and 4 of half a second each: in the first `b` waits for `a`. */
const rankOf = () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0]),
      segments: [prefill("a", 0, 2)],
    }),
    event(4, { segments: [prefill("a", 0, 3)] }),
  ]);
  run.captions = /** @type {any} */ ([
    { say: [{ r: "a" }, " joins."], simple: ["Somebody joins."], why: [] },
    { say: [{ r: "a" }, " goes on."], why: [] },
  ]);
  return run;
};
const view = new RankLanes(
  /** @type {any} */ ({ querySelector: finding() }),
  /** @type {any} */ ({}),
);
view.axis = /** @type {any} */ ({
  ...{ visible: true, w: 226, h: 20 },
  begin: () => new Recorder(),
});
const members = [0, 1].map((rank) => ({ rank, name: "", run: rankOf(), offset: 10 * rank }));
const shown = (/** @type {number} */ now, more = {}) => {
  const ranks = { members, now, from: 0, span: 20, room: 20, readout: `${now} s` };
  const state = { ranks, palette: {}, language: "en", simple: false, ...more };
  view.draw(/** @type {any} */ (state));
  return /** @type {any} */ (view.table(/** @type {any} */ (state))).rows;
};

test("each rank says what it does at the moment, in its gaps for how long it does nothing", () => {
  const idle = "Its first step begins at 10.0 s.";
  assert.deepEqual(shown(0.2), [
    ["0", "0", "0: A prefill; 1: free", "1", "A joins."],
    ["1", "idle", "", "0", idle],
  ]);
  assert.deepEqual(shown(2)[0], [
    ...["0", "idle", "", "1", "Nothing for 3.50 s between step 0 and step 4."],
  ]);
  assert.deepEqual(shown(14.2), [
    ["0", "idle", "", "1", "Nothing after step 4."],
    ["1", "4", "0: A prefill; 1: free", "1", "A goes on."],
  ]);
  assert.equal(shown(0.2, { simple: true })[0].at(-1), "Somebody joins.");
});

test("a request in the sentence of a rank is none of the run on screen", () => {
  shown(0.2);
  const [{ sentence, pill }] = view.bands;
  assert.deepEqual([pill.textContent, sentence.textContent], ["step 0", "A joins."]);
  const [chip] = sentence.querySelectorAll("bdi");
  assert.deepEqual([chip.textContent, chip.getAttribute("data-request")], ["A", null]);
});

test("a rank without steps, one that broke off and one that goes on say so after their last step", () => {
  const say = (/** @type {object} */ more, run = rankOf()) => {
    const members = [{ rank: 0, name: "", run: Object.assign(run, more), offset: 0 }];
    const ranks = { members, now: 9, from: 0, span: 20, room: 20, readout: "" };
    const state = { ranks, palette: {}, language: "en", simple: false };
    view.draw(/** @type {any} */ (state));
    const [, step, , , words] = view.table(/** @type {any} */ (state)).rows[0];
    return [step, words];
  };
  assert.deepEqual(say({}), ["idle", "Nothing after step 4."]);
  assert.deepEqual(say({ complete: false }), ["over", "Its recording breaks off after step 4."]);
  assert.deepEqual(say({ complete: false, goesOn: true }), [
    ...["so far", "Nothing is recorded after step 4 so far."],
  ]);
  assert.deepEqual(say({}, runOf([])), ["idle", "It has no steps."]);
});

test("what lies under a pointer is said of the rank or the engine whose lanes are there", () => {
  const said = (/** @type {string} */ name) => {
    const [run] = [rankOf()];
    const named = [{ rank: 3, name, run, offset: 10 }];
    const ranks = { members: named, now: 0, from: 0, span: 20, room: 20, readout: "" };
    view.draw(/** @type {any} */ ({ ranks, palette: {}, language: "en", simple: false }));
    const [band] = view.bands;
    const scale = laneScale(run, true, view.x(10), view.per); // 10 pixels a second
    Object.assign(band.chart, { painted: { run }, scale, gutter: 24, axis: 9, pitch: 20 });
    return [23, 126, 128, 150].map((x) => {
      const found = band.hit(x, x === 128 ? 5 : 12);
      const words = found?.lines[0].map(
        (span) => /** @type {any} */ (span).request?.letter ?? span,
      );
      return found && [found.step, found.request?.letter ?? null, words?.join("")];
    });
  };
  assert.deepEqual(said(""), [
    null,
    [0, "A", "rank 3: A lane 0, step 0: reads (prefill)"],
    [0, null, "rank 3: step 0"], // above its lanes
    [null, null, "rank 3 computes nothing here"],
  ]);
  assert.deepEqual(said("left"), [
    null,
    [0, "A", "left: A lane 0, step 0: reads (prefill)"],
    [0, null, "left: step 0"],
    [null, null, "left: nothing is computed here"],
  ]);
});

test("the slider of all ranks goes from the first moment to the last that there is, however much room there is", () => {
  shown(2.5);
  const ranks = { members, now: 7, from: 1.5, span: 12.25, room: 20, readout: "7 s" };
  view.draw(/** @type {any} */ ({ ranks, palette: {}, language: "en", simple: false }));
  const told = ["valuemin", "valuemax", "valuenow", "valuetext"].map((name) =>
    view.slider.getAttribute(`aria-${name}`),
  );
  assert.deepEqual(told, ["1.500", "12.250", "7.000", "7 s"]);
});

test("an engine among several is called by its name, a rank by its number", () => {
  const named = [
    { ...members[0], name: "left" },
    { ...members[1], name: "" },
  ];
  const ranks = { members: named, now: 0.2, from: 0, span: 20, room: 20, readout: "" };
  view.draw(/** @type {any} */ ({ ranks, palette: {}, language: "en", simple: false }));
  assert.deepEqual(
    view.bands.map(({ el }) => el.querySelector("button")?.textContent),
    ["left", "Rank 1"],
  );
  assert.deepEqual(
    view.bands.map(({ chart }) => chart.canvas.getAttribute("aria-label")),
    ["Lanes of left, 2 steps", "Lanes of rank 1, 2 steps"],
  );
});

test("a press on a step chooses it, a drag or a press beside it holds the moment, a rank's name does neither", () => {
  const did = [];
  const heard =
    (name) =>
    (...given) =>
      did.push([name, ...given]);
  const actions = { hold: heard("hold"), chooseRank: heard("choose"), explain: heard("explain") };
  const area = /** @type {any} */ (new El());
  area.getBoundingClientRect = () => ({ left: 5, top: 0 });
  let captured = false;
  Object.assign(area, { setPointerCapture: () => (captured = true) });
  area.hasPointerCapture = () => captured;
  const panel = { querySelector: finding({ ".ranks-area": area }) };
  const own = new RankLanes(/** @type {any} */ (panel), /** @type {any} */ (actions));
  own.axis = /** @type {any} */ ({ w: 226 });
  own.state = /** @type {any} */ ({ ranks: { from: 3, room: 20 } });
  const zero = own.x(3) + 5; // of the pointer at the first moment
  let found = null;
  own._found = () => found;
  const send = (kind, seconds, more = {}) => {
    const clientX = zero + seconds * own.per;
    area.dispatchEvent(Object.assign(new Event(kind), { clientX, button: 0, ...more }));
    return did.splice(0).filter(([name]) => name !== "explain");
  };
  const step = { member: "a rank", step: 4, request: null, lines: [] };
  const near = ([[name, moment], ...more]) => [name, moment.toFixed(6), more.length];
  assert.deepEqual(near(send("pointerdown", 2)), ["hold", "5.000000", 0], "beside every step");
  assert.deepEqual(near(send("pointermove", 7)), ["hold", "10.000000", 0]);
  assert.deepEqual(send("pointerup", 7), []);
  found = step;
  assert.deepEqual(send("pointerdown", 2), []);
  assert.deepEqual(send("pointermove", 2 + 5 / own.per), [], "a hand is not so still");
  assert.deepEqual(send("pointerup", 2), [["choose", "a rank", 4]]);
  send("pointerdown", 2);
  assert.deepEqual(near(send("pointermove", 2 + 6 / own.per)), [
    "hold",
    (5 + 6 / own.per).toFixed(6),
    0,
  ]);
  assert.deepEqual(send("pointerup", 2), [], "it was dragged");
  send("pointerdown", 2);
  assert.deepEqual(send("pointercancel", 2), []);
  found = { ...step, step: null };
  assert.deepEqual(near(send("pointerdown", 1)), ["hold", "4.000000", 0], "in a gap");
  send("pointerup", 1);
  own.state.ranks.from = 0;
  assert.deepEqual(
    near(send("pointerdown", 1)),
    ["hold", "1.000000", 0],
    "of ranks that begin at 0",
  );
  send("pointerup", 1);
  area.closest = (what) => (what === "h4" ? area : null); // a rank's name
  assert.deepEqual([...send("pointerdown", 2), ...send("pointerup", 2)], []);
  captured = false;
  found = step;
  const explained = (kind, more) => {
    area.dispatchEvent(Object.assign(new Event(kind), { clientX: 1, clientY: 2, ...more }));
    return did.splice(0);
  };
  assert.deepEqual(explained("pointermove", {}), [["explain", [], 1, 2]]);
  assert.deepEqual(explained("pointermove", { pointerType: "touch" }), []);
  assert.deepEqual(explained("pointerleave", {}), [["explain", null, undefined, undefined]]);
});
