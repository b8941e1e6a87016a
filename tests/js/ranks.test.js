// All ranks of an engine at one moment, without a page.

import assert from "node:assert/strict";
import test from "node:test";

import { RankLanes } from "../../assets/player/views/rank_lanes.js";
import { documentOf, El, finding } from "./elements.js";
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
