// What the opening tells of two runs, and what it draws at a second of its twenty.

import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf, El } from "./elements.js";
import {
  admissions,
  arrivals,
  decode,
  event,
  prefill,
  Recorder,
  runOf,
  samples,
} from "./worlds.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "" },
});
const { Opening } = await import("../../assets/player/watch/opening/opening.js");
const { drawPerson } = await import("../../assets/player/watch/opening/people.js");
const { LENGTH, Plot } = await import("../../assets/player/watch/opening/plot.js");
const { drawOpening, layOut } = await import("../../assets/player/watch/opening/scene.js");

const leave = (...requests) => requests.map((request) => ({ request, when: "after" }));

/**
 * A step of a second in which these in lanes write a token each, those in `enter` their first.
 * @param {number} n @param {string} lanes who is in them and writes, "-" for nobody
 * @param {{enter?: string, done?: string, gone?: string}} given
 */
function step(n, lanes, { enter = "", done = "", gone = "" } = {}) {
  const here = [...lanes].flatMap((request, lane) => (request === "-" ? [] : [{ request, lane }]));
  return event(n, {
    tEnd: n + 1,
    arrived: n ? [] : arrivals(..."abcde"),
    admitted: admissions(
      ...here.filter((one) => enter.includes(one.request)).map((one) => [one.request, one.lane]),
    ),
    segments: here.map(({ request, lane }) =>
      enter.includes(request) ? prefill(request, lane, 2) : decode(request, lane, n + 1),
    ),
    sampled: samples(...here.map(({ request }) => request)),
    finished: [...done].map((request) => ({ request, finishReason: "stop" })),
    released: leave(...gone),
  });
}

/**
 * Three lanes: `a` writes two tokens, `b` four, `c` three, `d` and `e` two. Under the old policy
 * the last two come in when all others have left, at 4 s; under the new one at 2 and 3 s.
 */
function plotOf() {
  const slow = [
    step(0, "abc", { enter: "abc" }),
    step(1, "abc", { done: "a" }),
    step(2, "-bc", { done: "c" }),
    step(3, "-b-", { done: "b", gone: "abc" }),
    step(4, "de", { enter: "de" }),
    step(5, "de", { done: "de", gone: "de" }),
  ];
  const fast = [
    step(0, "abc", { enter: "abc" }),
    step(1, "abc", { done: "a", gone: "a" }),
    step(2, "dbc", { enter: "d", done: "c", gone: "c" }),
    step(3, "dbe", { enter: "e", done: "bd", gone: "bd" }),
    step(4, "--e", { done: "e", gone: "e" }),
  ];
  const [before, after] = [slow, fast].map((events) => runOf(events, { max_num_seqs: 3 }));
  return /** @type {NonNullable<ReturnType<typeof Plot.of>>} */ (Plot.of(before, after));
}

/** Ink that knows all that a canvas does, and remembers what was written. */
function inkOf() {
  const ink = new Recorder();
  const g = new Proxy(ink, {
    get: (of, name) => of[name] ?? (() => {}),
    set: (of, name, value) => Object.assign(of, { [name]: value }) && true,
  });
  const hues = Array(8).fill({ solid: "hue", tint: "tint", fill: "hue", text: "ink" });
  return { g, texts: () => ink.texts.map(({ text }) => text), palette: { ...ink.palette, hues } };
}

test("what the opening tells is counted from its runs: who waits, how long, and for how many", () => {
  const plot = plotOf();
  const told = plot.pictures.map(([, say]) =>
    say()
      .map((span) => span.request?.letter ?? span)
      .join("")
      .replaceAll("\u00a0", " "),
  );
  assert.deepEqual(told, [
    "Five people ask one model at the same moment. It has three lanes.",
    "d e wait 4.00 s, while two of three lanes work for nobody.",
    "A is done, so d takes its lane at once. It waited 2.00 s, not 4.00 s.",
    "The same five requests: done in 5.0 s instead of 6.0 s.",
  ]);
  const { first, longest, next, hood, shut } = plot;
  assert.deepEqual([first, longest, next, hood, shut], [0, 1, 3, 1, [3, 4]]);
  assert.deepEqual(
    [0, 5.2, 11.6, 18.2, 20].map((at) => plot.moment(at)),
    [0, 0, 0, 6, 6],
  );
});

/** The texts of the opening at a second. */
function drawn(/** @type {any} */ plot, /** @type {number} */ at) {
  const { g, texts, palette } = inkOf();
  const canvas = () => ({ getContext: () => inkOf().g });
  globalThis.document = documentOf({ createElement: canvas });
  drawOpening(g, { x: 0, y: 0, w: 1200, h: 560 }, plot, /** @type {any} */ (palette), at);
  return texts();
}

test("until its clock has gone back the new policy's lanes stand at their beginning", () => {
  const plot = plotOf();
  const times = (at) => drawn(plot, at).filter((text) => /^(all done: )?[\d.]+ s$/.test(text));
  const title = "Continuous batching";
  assert.ok(!drawn(plot, 10).includes(title) && drawn(plot, 11.5).includes(title));
  const back = 11.5; // the old lanes still show how far their clock has come
  assert.ok(plot.moment(back) > 0);
  assert.ok(times(back).includes("0.00 s"), times(back).join());
  const over = times(LENGTH);
  assert.ok(over.includes("all done: 6.00 s") && over.includes("all done: 5.00 s"), over.join());
});

test("before its clock begins everybody is drawn, whether they enter a lane at once or wait", () => {
  const plot = plotOf();
  assert.equal(plot.moment(5), 0);
  const letters = drawn(plot, 5).filter((text) => /^[A-Za-e]$/.test(text));
  assert.equal(letters.sort().join(""), "AABBccddee", "on a card, and as a chip");
});

test("an answer of which only the end has room begins with dots, on a card and in a line", () => {
  const plot = plotOf();
  plot.prompts.fill("Why?");
  const words = Array.from({ length: 30 }, (_, n) => ` w${n}`);
  const { lives, run } = plot.fast;
  const wrote = (n, box) => {
    const { g, texts, palette } = inkOf();
    Object.assign(run, { answer: () => words.slice(0, n) });
    plot.fast.written = () => n;
    const scene = { plot, palette, moment: 1.5, both: true, settled: 1 };
    drawPerson(/** @type {any} */ (g), /** @type {any} */ (scene), 0, { x: 0, y: 0, ...box });
    return texts().filter((text) => /w\d/.test(text));
  };
  assert.equal(lives[0].request.letter, "A");
  assert.deepEqual(wrote(3, { w: 300, h: 90 }), ["w0 w1 w2"]);
  const cut = wrote(30, { w: 300, h: 90 });
  assert.match(cut[0], /^… w\d+/);
  assert.match(cut.at(-1) || "", /w29$/);
  assert.ok(cut.slice(1).every((line) => !line.startsWith("…")));
  assert.deepEqual(wrote(2, { w: 400, h: 34 }), ["w0 w1"]);
  assert.match(wrote(30, { w: 400, h: 34 })[0], /^… .*w29$/);
});

test("played again at its end the opening begins anew; paused, it stays where it is", () => {
  globalThis.requestAnimationFrame = () => 1;
  globalThis.cancelAnimationFrame = () => {};
  const opening = Object.assign(Object.create(Opening.prototype), { at: 0, _tell() {} });
  const after = (at, on) => {
    opening.at = at;
    opening.toggle(on);
    return [opening.at, opening.playing];
  };
  assert.deepEqual(after(LENGTH, false), [LENGTH, false]);
  assert.deepEqual(after(LENGTH, true), [0, true]);
  assert.deepEqual(after(7, true), [7, true]);
});

test("until its runs are here the opening says what it is about; then its plot says the rest", () => {
  globalThis.matchMedia = /** @type {any} */ (() => ({ matches: false }));
  const said = (plot) => {
    const [stage, sentence] = [{ children: [] }, { textContent: "" }];
    const app = {
      $: () => stage,
      root: { toggleAttribute() {} },
      fetch: () => new Promise(() => {}),
    };
    const el = { hidden: true, classList: { remove() {} } };
    Object.assign(Object.create(Opening.prototype), { app, el, sentence, plot, offer: {} })._show();
    return [el.hidden, sentence.textContent];
  };
  assert.deepEqual(said(undefined), [false, "One model serves many people at once."]);
  assert.deepEqual(said({}), [false, ""]);
});

test("the opening plays by itself on a first visit to the plain page, or where the address asks for it", () => {
  const stored = new Set();
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (key) => (stored.has(key) ? "1" : null),
  });
  const isDue = (hash = "", { search = "", offer = {}, options = {}, seen = [] } = {}) => {
    Object.assign(globalThis, { location: { hash, search } });
    stored.clear();
    for (const key of seen) stored.add(key);
    return Object.assign(Object.create(Opening.prototype), { offer, app: { options } }).isDue;
  };
  assert.equal(isDue(), true);
  assert.equal(isDue("#lang=de&theme=dark"), true);
  const keys = ["inflight-opening", "inflight-seen"];
  for (const key of keys) {
    assert.equal(isDue("", { seen: [key] }), false);
    assert.equal(isDue("#opening", { seen: [key] }), true);
  }
  assert.equal(isDue("#run=kv-pressure"), false);
  assert.equal(isDue("#opening&run=kv-pressure"), false);
  assert.equal(isDue("#part=learn"), false);
  assert.equal(isDue("#opening", { search: "?trace=a.jsonl" }), false);
  assert.equal(isDue("#opening", { offer: null }), false);
  assert.equal(isDue("#opening", { options: { model: "m" } }), false);
});

test("the opening begins where its address says, and keys obey whoever came by such an address", async () => {
  const begun = async (hash) => {
    Object.assign(globalThis, { location: { hash, search: "" } });
    const starts = [];
    const opening = Object.assign(Object.create(Opening.prototype), {
      ...{ app: { isOpening: true }, offer: {}, mine: false, el: { hidden: true } },
      _show: async () => true,
      _start: (at) => starts.push(at),
    });
    Object.defineProperty(opening, "isDue", { value: true });
    assert.equal(await opening.begin(), true);
    return [...starts, opening.mine];
  };
  assert.deepEqual(await begun("#opening=7.5"), [7.5, true]);
  assert.deepEqual(await begun("#opening"), [0, false]);
});

test("no chip is on its way to a lane of either policy in a picture that begins once all have landed", () => {
  const plot = plotOf();
  const entries = [plot.slow, plot.fast].map((course) => plot.entries(course, true));
  for (const [own, other] of [entries, entries.toReversed()]) {
    const alone = own.filter(
      (at) => at < Infinity && other.every((one) => Math.abs(one - at) > 0.6),
    );
    assert.ok(alone.length, "one comes when none of the other policy does");
    for (const at of alone) {
      const still = plot._landed(at);
      assert.ok(entries.flat().every((one) => still < one || still >= one + 0.5));
    }
  }
});

test("each request goes through the door when the clock comes to it, the second time anew", () => {
  const plot = plotOf();
  const [, , , d, e] = plot.entries(plot.slow, false);
  assert.equal(d, e);
  assert.ok(d > 7 && d < 10.8 && Math.abs(plot.moment(d) - 4) < 0.1, `${d}`);
  const again = plot.entries(plot.fast, true);
  assert.ok(again.slice(0, 3).every((at) => at === 11.9));
  assert.ok(again[3] > 11.9 && again[3] < again[4] && again[4] < 18.2);
  assert.ok(Math.abs(plot.moment(again[3]) - 2) < 0.1);
});

test("at every size what the opening shows together has its own place, and all of the room is used", () => {
  const right = (box) => box.x + box.w;
  const foot = (box) => box.y + box.h;
  const meet = (a, b) =>
    a.x < right(b) - 1e-6 && b.x < right(a) - 1e-6 && a.y < foot(b) - 1e-6 && b.y < foot(a) - 1e-6;
  const sizes = [
    [1200, 620, 5],
    [840, 480, 6],
    [819, 900, 6],
    [700, 400, 6],
    [480, 419, 5],
    [470, 380, 4],
    [360, 640, 6],
  ];
  for (const [w, h, n] of sizes) {
    const box = { x: 10, y: 20, w, h };
    const [all, bare] = [false, true].map((bare) => layOut(box, n, bare));
    const { people, asking, model, alone, slow, fast } = all;
    assert.deepEqual([people.length, asking.length, all.small], [n, n, w < 820]);
    const scenes = [
      [...asking, model],
      [...people, alone],
      [...people, slow, fast],
    ];
    if (w < 820) scenes.push([bare.slow, bare.fast], [bare.alone]);
    for (const scene of scenes) {
      for (const [i, one] of scene.entries()) {
        const where = `${w} × ${h}, ${i} of ${scene.length}: ${JSON.stringify(one)}`;
        assert.ok(one.w > 0 && one.h > 0, where);
        assert.ok(one.x >= 10 - 1e-6 && right(one) <= 10 + w + 1e-6, where);
        assert.ok(one.y >= 20 - 1e-6 && foot(one) <= 20 + h + 1e-6, where);
        assert.ok(!scene.some((other) => other !== one && meet(one, other)), where);
      }
    }
    const lanes = w < 820 ? [fast, bare.fast, bare.alone] : [];
    for (const one of lanes) assert.ok(Math.abs(foot(one) - 20 - h) < 1e-6, "down to the foot");
  }
  const { people, asking, alone, slow, fast } = layOut({ x: 0, y: 0, w: 600, h: 400 }, 4, false);
  // two columns of 26 pixels and 4 between; 10 below them begin the lanes
  assert.deepEqual(people[3], { x: 304, y: 30, w: 296, h: 26 });
  assert.deepEqual(alone, { x: 0, y: 66, w: 600, h: 250 });
  assert.deepEqual([slow.h, fast.y], [163, 237]);
  // a model of 88 pixels and 16 above it leave two rows of questions 148 each, of which 58 are used
  assert.deepEqual(asking[3], { x: 300, y: 148, w: 292, h: 58 });
  const both = layOut({ x: 0, y: 0, w: 600, h: 300 }, 4, true);
  assert.deepEqual(
    [both.slow, both.fast],
    [0, 305].map((x) => ({ x, y: 0, w: 295, h: 300 })),
  );
  const phone = layOut({ x: 0, y: 0, w: 360, h: 640 }, 4, true);
  assert.deepEqual(phone.fast, { x: 0, y: 324, w: 360, h: 316 });
  assert.equal(phone.people[1].y, 39);
});
