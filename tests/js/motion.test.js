// What moves from one step to the next, and how far a picture has come.

import assert from "node:assert/strict";
import test from "node:test";

import { FigureLanes } from "../../assets/player/figure/lanes.js";
import { betweenSteps } from "../../assets/player/run/happenings.js";
import { blocksBetween } from "../../assets/player/views/blocks_between.js";
import { Flights } from "../../assets/player/views/flights.js";
import { StripView } from "../../assets/player/views/strip.js";
import { Hero } from "../../assets/player/story/hero.js";
import { El, Event } from "./elements.js";
import { admissions, arrivals, decode, event, prefill, Recorder, runOf, two } from "./worlds.js";

/** Each computes in a step of its own, in the one block that there is. [id, tokens] */
const inTurns = (/** @type {[string, number][]} */ ...turns) =>
  runOf(
    turns.map(([request, tokens], i) =>
      event(i, {
        arrived: arrivals(request),
        admitted: admissions([request, 0]),
        segments: [prefill(request, 0, tokens)],
        kv: { used: 1, total: 1, changes: [{ request, added: [0] }], prefixHits: [] },
        released: [{ request, lane: 0, when: "after" }],
      }),
    ),
    { prefix_caching: true },
  );
const evicted = (/** @type {Run} */ run) =>
  betweenSteps(run, run.length - 1)?.happened.evicted.map(({ block, request }) => [
    block,
    request.id,
  ]);

test("a block that is overwritten loses what its last holder left in it, if that had filled it", () => {
  assert.deepEqual(evicted(inTurns(["a", 4], ["b", 2])), [[0, "a"]]);
  assert.deepEqual(evicted(inTurns(["a", 2], ["b", 2])), []);
  assert.deepEqual(evicted(inTurns(["a", 4], ["b", 4], ["c", 2])), [[0, "b"]]);
  assert.deepEqual(evicted(inTurns(["a", 4], ["b", 2], ["c", 2])), [], "b has overwritten it");
});

test("a shared block was last held by who left it last, not by who came to it last", () => {
  const had = (/** @type {string} */ request, /** @type {number[]} */ ...added) => ({
    request,
    added,
  });
  const leaves = (/** @type {string} */ request, lane = 0) => [{ request, lane, when: "after" }];
  const kv = (/** @type {any[]} */ changes, /** @type {any[]} */ prefixHits = []) => ({
    kv: { used: 3, total: 3, changes, prefixHits },
  });
  const run = runOf(
    [
      event(0, {
        arrived: arrivals("a", "b", "c"),
        admitted: admissions(["a", 0]),
        segments: [prefill("a", 0, 5)],
        ...kv([had("a", 0, 1)]),
      }),
      event(1, {
        admitted: admissions(["b", 1]),
        segments: [decode("a", 0, 5), { ...prefill("b", 1, 1), start: 4, kvLen: 5 }],
        released: leaves("b", 1),
        ...kv([had("b", 0, 2)], [{ request: "b", numCachedTokens: 4 }]),
      }),
      event(2, { segments: [decode("a", 0, 6)], released: leaves("a") }),
      event(3, {
        admitted: admissions(["c", 0]),
        segments: [prefill("c", 0, 2)],
        ...kv([had("c", 0)]),
      }),
    ],
    { prefix_caching: true },
  );
  assert.deepEqual(evicted(run), [[0, "a"]]);
});

test("who leaves a shared block drains from it, and whoever stays keeps it as it is", () => {
  const [a, b] = [{ index: 0 }, { index: 1 }];
  const owner = (/** @type {object} */ request) => ({ request, at: 0, group: 0, fill: 1 });
  const both = new Map([[0, [owner(a), owner(b)]]]);
  const one = new Map([[0, [owner(a)]]]);
  const shown = (
    /** @type {typeof both} */ from,
    /** @type {typeof both} */ to,
    share,
    shared = [],
  ) => blocksBetween(from, to, { shared, evicted: [] }, share).shown.get(0);
  const [stays, goes] = shown(both, one, 0.12);
  assert.deepEqual([stays.request, stays.fill, stays.strength], [a, 1, undefined]);
  assert.equal(goes.request, b);
  assert.ok(goes.fill > 0 && goes.fill < 1 && goes.strength === goes.fill);
  assert.deepEqual(shown(both, one, 0.5), [owner(a)]);
  const found = [{ request: b, block: 0 }];
  assert.deepEqual(shown(one, both, 0, found), [owner(a)]);
  const [, comes] = shown(one, both, 0.03, found);
  assert.deepEqual([comes.fill, comes.strength < 1], [1, true], "it is full when it is found");
  assert.deepEqual(shown(one, both, 0.5, found).length, 2);
});

test("who joins comes to its lane of this step, who gives way goes from that of the step before", () => {
  /** @type {unknown[]} */
  const flown = [];
  const flights = {
    lanes: { surface: { visible: true } },
    _lane: (/** @type {number} */ lane, /** @type {number} */ i) => [lane, i],
    _request: (_g, _state, request, when, lane, come) => flown.push([request, when, lane, come]),
  };
  const happened = {
    admitted: [{ request: "a", lane: 0 }],
    preempted: [{ request: "b", lane: 1 }],
  };
  const at = (/** @type {number} */ share) => {
    Flights.prototype._requests.call(flights, null, { share, index: 7 }, { happened });
    return flown.splice(0);
  };
  assert.deepEqual(at(0.06), [
    ["a", "before", [0, 7], 0.2],
    ["b", "after", [1, 6], 0.75],
  ]);
  assert.deepEqual(at(0.27), [["a", "before", [0, 7], 0.27 / 0.3]]);
  assert.deepEqual(at(0.3), []);
});

test("a new token flies to its text, to the tab that hides it, or nowhere if it is scrolled away", () => {
  const g = new Recorder();
  Object.assign(g, { roundRect() {} });
  const run = two();
  run.texts.output = { a: ["x"], b: [] };
  const a = run.request("a");
  const flown = (/** @type {[string, object | null][]} */ ...places) => {
    const flights = { places: new Map(places), _source: () => ({ x: 0, y: 0 }) };
    const happened = { sampled: [{ request: a, passIndex: 0 }] };
    const state = { share: 0.999, index: 0, run, palette: g.palette, focus: null };
    g.texts = [];
    Flights.prototype._sampled.call(flights, g, state, { happened });
    return g.texts.map(({ text, x }) => [text, Math.round(x)]);
  };
  const [text, tab] = [
    { x: 100, y: 0, w: 8, h: 10 },
    { x: 300, y: 0, w: 20, h: 10 },
  ];
  assert.deepEqual(flown(["text 0", text]), [["x", 101]]);
  assert.deepEqual(flown(["tab text", tab]), [["x", 307]]);
  assert.deepEqual(flown(["text 0", null], ["tab text", tab]), []);
  assert.deepEqual(flown(), []);
});

test("passing lanes have no word of a step before the step is over", () => {
  const strip = Object.create(StripView.prototype);
  const state = { run: two(), presenter: false, layout: "desk", frame: { i: 1 } };
  Object.assign(strip, { surface: { w: 560, h: 100 }, state });
  const until = (/** @type {number | undefined} */ share) =>
    strip._layout({ ...state, share }, 1).until;
  assert.deepEqual([0, 0.99, 1, undefined].map(until), [0, 0, 1, 1]);
});

test("a drag over passing lanes pulls them, a press goes to the step under it, and neither is both", () => {
  const run = two();
  const canvas = Object.assign(new El("canvas"), {
    setPointerCapture() {},
    getBoundingClientRect: () => ({ left: 0, top: 0 }),
  });
  /** @type {(number | null)[]} */
  const gone = [];
  const strip = Object.assign(Object.create(StripView.prototype), {
    ...{ canvas, indexUnder: () => 2, surface: { w: 560, h: 100 } },
    state: { run, index: 1, presenter: false, layout: "desk" }, // steps of 56 pixels
    actions: { hover() {}, scrub: (/** @type {number} */ i) => gone.push(i) },
  });
  strip._drag();
  const sweep = (/** @type {number[]} */ xs, end = "pointerup") => {
    const act = (/** @type {string} */ type, /** @type {number} */ clientX) =>
      canvas.dispatchEvent(Object.assign(new Event(type), { clientX, clientY: 9, pointerId: 1 }));
    act("pointerdown", xs[0]);
    for (const x of xs.slice(1)) act("pointermove", x);
    act(end, xs[xs.length - 1]);
    return gone.splice(0);
  };
  assert.deepEqual(sweep([200]), [2]);
  assert.deepEqual(sweep([200, 204]), [2], "a hand that shakes");
  assert.deepEqual(sweep([200, 260]), [0]);
  assert.deepEqual(sweep([200, 140, 0]), [2, 2], "it ends at the last step");
  assert.deepEqual(sweep([200], "pointercancel"), []);
});

test("a figure shows later steps pale, or not at all", () => {
  const canvas = new El("canvas");
  const drawn = (/** @type {boolean} */ future) => {
    /** @type {unknown[]} */
    const faint = [];
    const run = two();
    const lanes = Object.assign(Object.create(FigureLanes.prototype), {
      ...{ columns: 0, future, canvas, surface: { visible: true, w: 426, h: 80 } },
      paint(_state, _stamp, /** @type {() => {scale: LaneScale}} */ layout) {
        this.scale = layout().scale;
      },
      show: (/** @type {number} */ x, /** @type {number | undefined} */ strength) => {
        faint.push(x, strength);
        return Object.assign(new Recorder(), { arc() {} });
      },
    });
    lanes.draw({ run, index: 2, share: 0.5, palette: {}, clock: false });
    return faint;
  };
  // four steps of 100 pixels from the 24th on; the third to be recorded is step 3
  assert.deepEqual(
    [drawn(true), drawn(false)],
    [
      [374, undefined],
      [374, 0],
    ],
  );
  assert.equal(canvas.getAttribute("aria-label"), "Lanes over time: step 3 of 3");
});

test("in the first picture each run counts its own steps, up to its end", () => {
  /** @type {number[][]} */
  const shown = [];
  const counts = (/** @type {number} */ at) => {
    const charts = [3, 5].map((length) => ({
      ...{ run: { length }, says: new El() },
      chart: {
        ...{ surface: { visible: true, w: 126 }, paint() {} }, // twenty pixels a step
        show: (/** @type {number[]} */ ...given) => shown.push(given),
      },
    }));
    Hero.prototype.draw.call({ _since: NaN, columns: 5, at, charts });
    return charts.map(({ says }) => says.textContent);
  };
  assert.deepEqual(counts(1), ["1 step", "1 step"]);
  assert.deepEqual(counts(2.9), ["2 steps", "2 steps"]);
  shown.length = 0;
  assert.deepEqual(counts(5), ["3 steps", "5 steps"]);
  assert.deepEqual(shown, [
    [84, 0],
    [124, 0],
  ]);
});
