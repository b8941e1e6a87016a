// What a race tells of its runs at a moment, without a page.

import assert from "node:assert/strict";
import test from "node:test";

import { Race, RaceBar, raceTable } from "../../assets/player/compare/race.js";
import { Racer } from "../../assets/player/compare/racer.js";
import { documentOf, El, of } from "./elements.js";
import { admissions, arrivals, event, pass, runOf, samples, two } from "./worlds.js";

// Steps 0, 1 and 3, of half a second each.
const racerOf = (/** @type {boolean} */ clock) =>
  Object.assign(Object.create(Racer.prototype), {
    name: "r",
    run: two(),
    race: { clock, unit: clock ? "seconds" : "steps" },
    startStep: 0,
    seconds: 3.5,
    steps: 4,
    tokens: [],
    completions: [],
  });

test("a step without work is none of those counted, on either axis", () => {
  const [timed, stepped] = [true, false].map(racerOf);
  assert.equal(stepped.inAll(), "3 steps");
  const place = { clock: false, layout: "desk", now: 4, span: stepped.length };
  assert.equal(Race.prototype.readout.call(place), "step 4 of 4");
  assert.deepEqual(
    [0.4, 0.5, 2, 3.5].map((t) => timed.stepsAt(t)),
    [0, 1, 2, 3],
  );
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((step) => stepped.stepsAt(step)),
    [0, 1, 2, 2, 3],
  );
});

test("before its first step, between two and after its last a run holds no lane", () => {
  const told = (/** @type {boolean} */ clock) => (/** @type {number} */ now) => {
    const { rows } = raceTable({ now, readout: () => "", racers: [racerOf(clock)] });
    return rows[0].slice(1, 3);
  };
  const first = ["0", "0: A prefill; 1: free"];
  assert.deepEqual([-1, 0.2, 0.7, 3.5].map(told(true)), [
    ["idle", ""],
    first,
    ["idle", ""],
    ["done", ""],
  ]);
  assert.deepEqual([0, 2, 4].map(told(false)), [first, ["idle", ""], ["done", ""]]);
});

test("pointing behind the end of a run tells of nothing", () => {
  const told = [];
  const tooltip = { show: ([[name]]) => told.push(name), hide: () => told.push("") };
  const stage = { contains: () => true, getBoundingClientRect: () => ({ left: 0, top: 0 }) };
  const lanes = { hit: () => ({ request: null, lines: [[]] }) };
  const race = { page: { tooltip }, racers: [{ name: "r", stage, lanes, end: () => 90 }] };
  for (const clientX of [90, 91])
    Race.prototype._hover.call({ ...race, focus: null }, { target: {}, clientX, clientY: 5 });
  assert.deepEqual(told, ["r: ", ""]);
});

test("a token counts at the end of its own pass, in steps at the end of its step", () => {
  const passes = [pass(0, 0.25), pass(0.25, 1)];
  const sampled = [0, 1].map((passIndex) => ({ ...samples("a")[0], passIndex }));
  const run = runOf([
    event(0, { tEnd: 1, arrived: arrivals("a"), admitted: admissions(["a", 0]), passes, sampled }),
  ]);
  Object.assign(globalThis, {
    document: documentOf(),
    ResizeObserver: class {
      observe() {}
    },
  });
  const race = { unit: "seconds", hues: {}, watches: null };
  const racer = new Racer(/** @type {any} */ (race), "r", run);
  assert.deepEqual(
    [0, 0.25, 0.9, 1].map((now) => racer.tokensAt(now)),
    [0, 1, 1, 2],
  );
  race.unit = "steps";
  assert.deepEqual([racer.tokensAt(0.9), racer.tokensAt(1)], [0, 2]);
});

test("a run that is watched from a race leaves the race standing", () => {
  const done = [];
  const race = { now: 1.2, toggle: (on) => done.push(on), watches: (...how) => done.push(...how) };
  Race.prototype.watch.call(race, racerOf(true));
  assert.deepEqual(done, [false, "r", 1]);
});

test("of many that are done as many as fit are named, and the rest counted", () => {
  const ids = ["a", "b", "c", "d", "e"];
  const run = runOf([
    event(0, { arrived: arrivals(...ids) }),
    ...ids.map((request, n) => event(n + 1, { finished: [{ request, finishReason: "stop" }] })),
  ]);
  Object.assign(globalThis, {
    document: documentOf(),
    ResizeObserver: class {
      observe() {}
    },
  });
  const race = { unit: "steps", hues: {}, about: {}, palette: {}, layout: "phone", now: 0 };
  const racer = new Racer(/** @type {any} */ (race), "r", run);
  racer.end = () => 0;
  const shown = (now) => {
    race.now = now;
    racer.draw();
    return racer.chips.children.map((el) => el.textContent.slice(0, 2));
  };
  const letters = ids.map((id) => run.request(id)?.letter);
  assert.deepEqual(
    [shown(1), shown(3), shown(6)],
    [[], letters.slice(0, 2), ["+2", ...letters.slice(2)]],
  );
});

test("the lanes of a race say which of their work was for nothing, and why", () => {
  const said = (wasted, overrun) => {
    const canvas = new El("canvas");
    const racer = Object.assign(racerOf(false), { lanes: { canvas } });
    racer._describe({ prefill: 2, decode: 3, wasted, overrun });
    return canvas.getAttribute("aria-label").split(": ")[1];
  };
  assert.deepEqual(
    [said(0, 0), said(2, 2), said(5, 2)],
    [
      "2 prefill, 3 decode, 1 idle",
      "2 prefill, 3 decode, 2 overrun, 1 idle",
      "2 prefill, 3 decode, 3 padding, 2 overrun, 1 idle",
    ],
  );
});

test("a race that is asked for elsewhere runs from its beginning", async () => {
  globalThis.window = /** @type {any} */ ({});
  const { Compare } = await import("../../assets/player/compare/compare.js");
  const done = [];
  const entry = { name: "engines-a" };
  const part = {
    catalogue: { recorded: [entry] },
    entry: null,
    open: async () => done.push("open"),
    race: { seek: (now) => done.push(now), toggle: (on) => done.push(on) },
  };
  await Compare.prototype._grant.call(part, { race: "vllm-a" });
  assert.deepEqual(done, ["open", 0, true]);
});

test("a comparison that cannot be opened is told of, unless another was chosen meanwhile", async () => {
  globalThis.document = documentOf();
  const { Compare } = await import("../../assets/player/compare/compare.js");
  const told = [];
  let fails = () => {};
  globalThis.fetch = () => new Promise((_, fail) => (fails = () => fail(new Error("away"))));
  const part = Object.assign(Object.create(Compare.prototype), {
    catalogue: { presets: [] },
    doc: {},
    toast: (sentence) => told.push(sentence),
    show: () => told.push("shown"),
  });
  const opening = async (meanwhile) => {
    const first = part.open({ name: "a", url: "a.json" });
    await new Promise((done) => setTimeout(done));
    await meanwhile();
    fails();
    await first;
    return told.splice(0);
  };
  const other = () => part.open({ name: "b", doc: {} });
  assert.match((await opening(() => {})).join(), /^This comparison could not be opened: /);
  assert.deepEqual(await opening(other), ["shown"]);
});

test("the moment of a race is told where it stands, not while it plays", () => {
  const race = { layout: "desk", readout: () => "1.00 s" };
  const parts = ["moment", "play", "table", "clock", "title"].map((name) => [name, new El()]);
  const bar = of(RaceBar, { race, speed: { options: [] }, ...Object.fromEntries(parts) });
  const told = (playing) => {
    race.playing = playing;
    bar.draw();
    return bar.moment.getAttribute("aria-live");
  };
  assert.deepEqual([false, true, false].map(told), ["polite", "off", "polite"]);
});
