import assert from "node:assert/strict";
import test from "node:test";

import { Card } from "../../assets/player/figure/card.js";
import { Figure } from "../../assets/player/figure/figure.js";
import { times } from "../../assets/player/story/times.js";
import { token } from "../../assets/player/story/token.js";
import { worth } from "../../assets/player/story/worth.js";
import { documentOf, El, Event } from "./elements.js";
import { two } from "./worlds.js";

test("play ends at the last step, of a single one too", ({ mock }) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const played = (/** @type {number} */ from, /** @type {number} */ to) => {
    /** @type {number[]} */
    const steps = [];
    const card = Object.assign(Object.create(Card.prototype), {
      slider: { key: "n", from: 0, to },
      held: { n: from },
      take(/** @type {{n: number}} */ now) {
        card.held = now;
        steps.push(now.n);
      },
    });
    card.play(true);
    for (let n = 0; n < 9; n += 1) mock.timers.tick(500);
    return steps;
  };
  assert.deepEqual([played(1, 3), played(3, 3), played(0, 0)], [[2, 3], [0, 1, 2, 3], [0]]);
});

test("a card stands where a hand or else the text has put it, and else at its first place", () => {
  const at = (held, wanted) =>
    Object.assign(Object.create(Card.prototype), {
      ...{ slider: { key: "n", from: 2, to: 9 }, held, wanted },
    }).position();
  const places = [
    [{ n: 4 }, { n: 5 }],
    [null, { n: 5.4 }],
    [null, { n: 99 }],
    [null, { other: 1 }],
    [null, null],
  ];
  assert.deepEqual(
    places.map((place) => at(...place)),
    [4, 5, 9, 2, 2],
  );
});

test("a figure that is given back to the text stands, and offers the way back only where there is one", ({
  mock,
}) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const cardOf = (/** @type {object | null} */ wanted) =>
    Object.assign(Object.create(Card.prototype), {
      ...{
        slider: { key: "n", from: 0, to: 9 },
        wanted,
        held: null,
        back: new El(),
        says: new El(),
      },
      redraw() {},
    });
  const card = cardOf({ n: 4 });
  card.play(true);
  mock.timers.tick(300);
  assert.deepEqual([card.held, card.back.hidden], [{ n: 5 }, false]);
  card.release(false);
  mock.timers.tick(3000);
  assert.deepEqual([card.held, card.back.hidden], [null, true]);
  const alone = cardOf(null);
  alone.take({ n: 2 });
  assert.equal(alone.back.hidden, true);
});

test("a step by hand ends what plays, and goes no further than the first and the last", ({
  mock,
}) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  globalThis.matchMedia = /** @type {any} */ (() => ({ matches: true }));
  const card = Object.assign(Object.create(Card.prototype), {
    ...{ slider: { key: "n", from: 1, to: 4 }, wanted: null, held: { n: 2 } },
    ...{ back: new El(), says: new El(), redraw() {} },
  });
  const step = (/** @type {number} */ by) => (card.step(by), card.held.n);
  card.play(true);
  assert.equal(step(1), 3);
  mock.timers.tick(3000);
  assert.deepEqual(card.held, { n: 3 }, "it stands");
  assert.deepEqual([1, 1, -1, -9].map(step), [4, 4, 3, 1]);
});

test("a figure taken by hand shows a whole step with all its requests", () => {
  const figure = Object.assign(Object.create(Figure.prototype), {
    slider: { key: "at", from: 1, to: 9 },
    wanted: { at: 2.4, focus: "D" },
    held: null,
    back: new El(),
    says: new El(),
    redraw() {},
  });
  figure.take({});
  assert.deepEqual(figure.held, { at: 3, focus: "" });
});

test("a figure lights the letters that its text names, or the request that is pointed at alone", () => {
  const run = two();
  const [a, b] = run.requests;
  const lit = (/** @type {string} */ focus, /** @type {RunRequest | null} */ pointed = null) => {
    /** @type {any} */
    let seen = null;
    const figure = Object.assign(Object.create(Figure.prototype), {
      ...{ run, lit: pointed, hot: null, root: {}, _sentence: () => [] },
      views: [{ draw: (/** @type {ViewState} */ state) => (seen = state) }],
    });
    figure.paint({ at: 1.25, focus });
    assert.deepEqual([seen.index, seen.share, seen.pass.index], [1, 0.25, 0]);
    return seen.focus;
  };
  assert.deepEqual([lit("A"), lit("BA"), lit("")], [[a], [a, b], null]);
  assert.deepEqual([lit("A", b), lit("", b)], [[b], [b]]);
});

test("of the triangle only rows that are there can be pointed at", () => {
  const data = { prompt: ["a", "b"], output: ["c", "d", "e", "f"], hue: 0 };
  const size = { w: 400, h: 78, small: false }; // rows of ten pixels from the 22nd on
  const rowAt = (/** @type {number} */ y, /** @type {object} */ more = {}) =>
    token.point(100, y, { step: 1, fold: 1, kept: 0, ...more }, data, size)?.row;
  assert.deepEqual(
    [21, 22, 51, 52, 62].map((y) => rowAt(y)),
    [undefined, 0, 2, undefined, undefined],
  );
  assert.equal(rowAt(62, { step: 3 }), 4);
  assert.deepEqual([rowAt(22, { fold: 0.5 }), rowAt(22, { kept: 1 })], [undefined, undefined]);
});

let wantsLess = false; // motion
/** The story's class, on a page without sections. */
async function storyOf() {
  const data = { language: "en", sections: {}, hero: { names: [], runs: [] } };
  const story = Object.assign(new El("script"), { textContent: JSON.stringify(data) });
  const asked = (/** @type {string} */ query) => ({
    matches: query.includes("reduced-motion") && wantsLess,
    addEventListener() {},
  });
  Object.assign(globalThis, {
    window: { addEventListener() {} },
    document: documentOf({
      body: new El("body"),
      getElementById: () => story,
      querySelector: () => new El(),
      querySelectorAll: (/** @type {string} */ found) =>
        found.startsWith(".hero") ? [new El()] : [],
    }),
    HTMLElement: El,
    matchMedia: asked,
    getComputedStyle: () => ({ getPropertyValue: () => "#123456" }),
    requestAnimationFrame() {},
    ResizeObserver: class {
      observe() {}
    },
  });
  return (await import("../../assets/player/story/story.js")).Story.prototype;
}

test("while it is scrolled the story's picture moves, for who wants less motion from state to state", async () => {
  const { _show } = await storyOf();
  /** @type {number[]} */
  const shown = [];
  const card = { show: (/** @type {{grow: number}} */ { grow }) => shown.push(grow) };
  const section = { spec: { beats: [{ grow: [0, 1] }] }, at: 0, card };
  const scroll = () => _show.call({ resting: false }, section, 0.25);
  scroll();
  wantsLess = true;
  scroll();
  wantsLess = false;
  assert.deepEqual(shown, [0.25, 1]);
});

test("another paragraph takes its figure back from the hand, the same one and the first do not", async () => {
  const { _turn } = await storyOf();
  let released = 0;
  const beats = [new El(), new El()];
  const section = { at: -1, card: { release: () => (released += 1) }, beats };
  const turn = (/** @type {number} */ at) => {
    _turn.call({}, section, at);
    return [released, ...beats.map((beat) => beat.classes.has("on"))];
  };
  assert.deepEqual([0, 0, 1, 1, 0].map(turn), [
    [0, true, false],
    [0, true, false],
    [1, false, true],
    [1, false, true],
    [2, true, false],
  ]);
});

test("the contents say which section is read and how much of each, and of none before the first", async () => {
  const { _mark } = await storyOf();
  const where = new El();
  const toc = ["One", "Two"].map((name) => {
    const a = Object.assign(new El("a"), { textContent: name });
    return { a, fill: { style: { transform: "" } } };
  });
  const story = {
    ...{ toc, where, bar: { style: { transform: "" } }, _here: -2, _height: 1200 },
    sections: [
      { top: 400, bottom: 600 },
      { top: 600, bottom: 1000 },
    ],
  };
  const read = (/** @type {number} */ y) => {
    _mark.call(story, y, 200); // what is 100 pixels below is read
    const now = toc.map(({ a }) => a.getAttribute("aria-current") === "true");
    return [where.textContent, now, toc.map(({ fill }) => fill.style.transform)];
  };
  const no = "scaleY(0.000)";
  assert.deepEqual(read(100), ["", [false, false], [no, no]]);
  assert.deepEqual(read(301), ["One", [true, false], ["scaleY(0.005)", no]]);
  assert.deepEqual(read(450), ["One", [true, false], ["scaleY(0.750)", no]]);
  assert.deepEqual(read(600), ["Two", [false, true], ["scaleY(1.000)", "scaleY(0.250)"]]);
  assert.equal(story.bar.style.transform, "scaleX(0.6000)");
  assert.deepEqual(read(0)[1], [false, false]);
});

test("n and p lead to the next paragraph and the one before, and before the first to the top", async () => {
  const { _key } = await storyOf();
  /** @type {number[]} */
  const gone = [];
  Object.assign(window, { scrollTo: (/** @type {{top: number}} */ { top }) => gone.push(top) });
  const sections = [{ middles: [1000, 2000] }, { middles: [3000] }];
  const press = (/** @type {string} */ key, /** @type {number} */ scrollY, more = {}) => {
    Object.assign(window, { scrollY });
    _key.call({ sections, span: [700, 502] }, { key, ...more });
    return gone.splice(0);
  };
  const at = [500, 1500, 2500]; // where each is read
  assert.deepEqual(
    [0, ...at].map((y) => press("n", y)),
    [[500], [1500], [2500], []],
  );
  assert.deepEqual(
    [0, ...at, 2600].map((y) => press("p", y)),
    [[0], [0], [500], [1500], [2500]],
  );
  assert.deepEqual([press("n", 0, { ctrlKey: true }), press("x", 0)], [[], []]);
});

test("a finger that has tapped leaves what it found, a mouse that goes away does not", () => {
  const canvas = new El("canvas");
  Object.assign(canvas, { getBoundingClientRect: () => ({ left: 0, top: 0 }) });
  /** @type {unknown[]} */
  const hovered = [];
  const figure = { hover: (/** @type {unknown} */ found) => hovered.push(found) };
  const view = { surface: { canvas }, hit: (/** @type {number} */ x) => ({ x }) };
  Figure.prototype._pointed.call(figure, canvas, view);
  const act = (/** @type {string} */ type, /** @type {string} */ pointerType) => {
    canvas.dispatchEvent(Object.assign(new Event(type), { pointerType, clientX: 5, clientY: 5 }));
    return hovered.splice(0);
  };
  const all = (/** @type {string} */ pointer) =>
    ["pointermove", "click", "pointerleave"].map((type) => act(type, pointer));
  assert.deepEqual(all("mouse"), [[{ x: 5 }], [{ x: 5 }], [null]]);
  assert.deepEqual(all("touch"), [[], [{ x: 5 }], []]);
});

test("a usual step is one without the long prompt", () => {
  const steps = [
    [5, 2, 0],
    [50, 99, 98],
    [60, 99, 98],
    [7, 2, 1],
    [6, 2, 0],
  ];
  assert.equal(
    times.says({ slice: 0 }, { runs: [{ steps }] }),
    "196 tokens are read in 2 steps, the longest of 60.0 ms; a step without them takes 6.0 ms, as a rule.",
  );
});

test("at the end of two clocks both runs are done", () => {
  /** @type {string[]} */
  const said = [];
  const lanes = ["static", "continuous"].map((policy, n) => ({ policy, seconds: 2 - n, bars: [] }));
  const pen = {
    ...{ w: 400, h: 300, palette: {}, font() {}, box() {}, rule() {} },
    text: (/** @type {string} */ words) => said.push(words),
    faded: (/** @type {number} */ alpha, /** @type {() => void} */ act) => alpha > 0 && act(),
  };
  const done = (/** @type {number} */ time) => {
    worth.draw(/** @type {any} */ (pen), { time, dots: 0 }, { lanes, gains: [] });
    return said.splice(0).filter((words) => words.startsWith("done")).length;
  };
  assert.deepEqual([done(0.25), done(0.5), done(1)], [0, 1, 2]);
});

test("a run that could not be fetched is not said of the one that was asked for after it", async () => {
  const main = new El("main");
  const page = new El("script");
  const titles = { title: { en: "" }, urls: { en: "one.json" } };
  page.textContent = JSON.stringify({ runs: { one: titles }, words: {}, player: "" });
  /** @type {() => void} */
  let fails = () => {};
  Object.assign(globalThis, {
    window: { addEventListener() {} },
    location: { hash: "#run=one" },
    HTMLElement: El,
    document: documentOf({
      body: new El("body"),
      querySelector: (/** @type {string} */ found) => (found === "main" ? main : page),
    }),
    matchMedia: () => ({ matches: false, addEventListener() {} }),
    fetch: () => new Promise((_, fail) => (fails = () => fail(new Error("away")))),
  });
  await import("../../assets/player/figure/embed.js");
  const embed = /** @type {any} */ (window).inflightEmbed;
  const soon = () => new Promise((done) => setTimeout(done));
  const failed = async () => {
    await soon();
    fails();
    await soon();
    return main.textContent;
  };
  assert.equal(await failed(), "The run could not be fetched.");
  embed.open();
  location.hash = "#run=other";
  embed.open();
  assert.equal(await failed(), "There is no recorded run of this name here.");
});
