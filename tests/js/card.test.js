import assert from "node:assert/strict";
import test from "node:test";

import { Card } from "../../assets/player/figure/card.js";
import { Figure } from "../../assets/player/figure/figure.js";
import { times } from "../../assets/player/story/times.js";
import { token } from "../../assets/player/story/token.js";
import { worth } from "../../assets/player/story/worth.js";
import { documentOf, El } from "./elements.js";

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

test("while it is scrolled the story's picture moves, for who wants less motion from state to state", async () => {
  const data = { language: "en", sections: {}, hero: { names: [], runs: [] } };
  const story = Object.assign(new El("script"), { textContent: JSON.stringify(data) });
  const asked = (/** @type {string} */ query) => ({
    matches: query.includes("reduced-motion") && wantsLess,
    addEventListener() {},
  });
  let wantsLess = false;
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
  await import("../../assets/player/story/story.js");
  const { _show } = /** @type {any} */ (window).inflightStory;
  /** @type {number[]} */
  const shown = [];
  const card = { show: (/** @type {{grow: number}} */ { grow }) => shown.push(grow) };
  const section = { spec: { beats: [{ grow: [0, 1] }] }, at: 0, card };
  const scroll = () => _show.call({ resting: false }, section, 0.25);
  scroll();
  wantsLess = true;
  scroll();
  assert.deepEqual(shown, [0.25, 1]);
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
