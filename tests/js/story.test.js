// What the story's drawings say, and when a paragraph takes its figure back.

import assert from "node:assert/strict";
import test from "node:test";

import { shownPiece } from "../../assets/player/figure/drawing.js";
import { setFont } from "../../assets/player/parts/surface.js";
import { cost } from "../../assets/player/story/cost.js";
import { fold } from "../../assets/player/story/fold.js";
import { token } from "../../assets/player/story/token.js";
import { Run } from "../../assets/player/run/run.js";
import { event, prefill, decode, runOf } from "./worlds.js";

/** A pen that keeps what is written, paler things too as long as they can be seen. */
function writing(/** @type {DrawingKind} */ kind, state, data) {
  /** @type {string[]} */
  const texts = [];
  const hue = { solid: "#000000", tint: "", cached: "", fill: "", text: "" };
  const g = {
    ...{ font: "", save() {}, restore() {}, beginPath() {}, rect() {}, clip() {} },
    ...{ moveTo() {}, bezierCurveTo() {}, stroke() {}, measureText: () => ({ width: 40 }) },
  };
  const pen = {
    ...{ g, w: 600, h: 400, small: false },
    palette: { hues: [hue], hatch: () => "", panel: "#ffffff", ink: "#000000", soft: "" },
    font: (/** @type {number} */ px) => setFont(/** @type {any} */ (g), `${px}px sans`),
    ...{ box: () => 0, rule: () => 0, line: () => 0, chip: () => 0 },
    fit: (/** @type {string} */ words) => words,
    text: (/** @type {string} */ words) => texts.push(words),
    faded: (/** @type {number} */ alpha, /** @type {() => void} */ act) => alpha > 0.01 && act(),
  };
  kind.draw(/** @type {any} */ (pen), state, data);
  return texts;
}

test("a token is shown as it is, what nobody said as a dot", () => {
  assert.deepEqual(["the", " cat", " ", "\n", ""].map(shownPiece), ["the", "cat", "␣", "↵", "·"]);
});

test("what a step costs is told by the step and by the token, and in steps once it is folded", () => {
  const order = [
    { letter: "A", hue: 0, length: 3, lane: 0, from: 0 },
    { letter: "B", hue: 1, length: 2, lane: 1, from: 0 },
  ];
  const curve = [
    [1, 20],
    [4, 22],
  ];
  const said = (/** @type {number} */ size, seat = 0) =>
    cost.says({ size, seat }, { curve, order });
  assert.equal(said(0), "1 token in one step: 20.0 ms, which is 20.00 ms a token.");
  assert.equal(said(1), "4 tokens in one step: 22.0 ms, which is 5.50 ms a token.");
  assert.equal(said(9), said(1), "beyond what was measured");
  assert.equal(said(1, 0.5), "One request after the other: 5 steps.");
  assert.match(said(1, 1), /: 3 steps instead of 5, if somebody knew every length\.$/);
  assert.deepEqual(
    [0.3, 0.31].map((seat) => cost.isMeasured({ seat })),
    [true, false],
  );
});

test("a rectangle has its pads, a row has none, and the hand finds the run's steps as it left them", () => {
  const rows = [2, 1].map((tokens, n) => ({
    ...{ letter: "AB"[n], hue: 0, phase: "prefill", pads: n, pieces: Array(tokens).fill("x") },
  }));
  const data = { rows, width: 2, steps: [[3, 1]], at: 0 };
  const says = (/** @type {number} */ folded) => fold.says({ fold: folded }, data);
  assert.equal(says(0), "A rectangle of 2 rows and 2 columns: 3 tokens and 1 pad.");
  assert.equal(says(1), "One row of 3 tokens, each computed for somebody.");
  assert.ok(writing(fold, { build: 1, sum: 0, fold: 0 }, data).includes("3 tokens and 1 pad"));
  assert.ok(writing(fold, { build: 1, sum: 0, fold: 1 }, data).includes("3 tokens, no pads"));
  const settled = (/** @type {number} */ sum, /** @type {number} */ folded) =>
    fold.settled({ build: 0.3, sum, fold: folded });
  assert.deepEqual(settled(0.6, 0.4), { build: 1, sum: 1, fold: 0 });
  assert.deepEqual(settled(0.4, 0.6), { build: 1, sum: 0, fold: 1 });
});

test("with the cache each token is worked on once, without it all of them at every token", () => {
  const data = { prompt: ["a", "b"], output: ["c", "d", ""], hue: 0 };
  const worked = (/** @type {number} */ step) => {
    const texts = writing(token, { step, fold: 1, kept: 1, off: 0 }, data);
    const after = (/** @type {string} */ words) => texts[texts.indexOf(words) + 1];
    return ["tokens of work, with the cache", "tokens of work, without it"].map(after);
  };
  // two of the prompt; then one more each time, or two, and three, and four
  assert.deepEqual([0, 1, 2].map(worked), [
    ["2", "2"],
    ["3", "5"],
    ["4", "9"],
  ]);
  const said = (/** @type {number} */ step, off = 0) =>
    token.says({ step, fold: 0, kept: 0, off }, data).replace(/^Token (\d) of 3: /, "$1 ");
  assert.equal(said(0), "1 2 tokens go in, all at once; out comes “c”.");
  assert.equal(said(1), "2 one goes in, “c”; 2 are remembered; out comes “d”.");
  assert.match(said(2), /^3 one goes in, “d”; 3 are remembered; out comes the sign/);
  assert.match(said(0, 1), /^1 without the cache, too, all 2 tokens are computed/);
  assert.match(said(1, 1), /all 3 tokens are computed, 2 of them again; out comes “d”\.$/);
  assert.match(said(2, 1), /all 4 tokens are computed, 3 of them again; out comes the sign/);
});

test("a run opens on the first of the steps that show most", () => {
  const mixed = (/** @type {number} */ step, length = 9) =>
    event(step, { segments: [decode("a", 0, 4), prefill("b", 1, length)] });
  const alone = (/** @type {number} */ step) => event(step, { segments: [decode("a", 0, 4)] });
  const opens = (/** @type {object[]} */ ...events) => runOf(events).openingStep();
  assert.equal(opens(alone(0), mixed(1), alone(2), mixed(3)), 1);
  assert.equal(opens(alone(0), mixed(1, 2), mixed(2), mixed(3)), 2, "enough tokens to be seen");
  assert.equal(opens(alone(0), alone(1), alone(2), alone(3)), 2, "none mixes: the middle");
});

test("of messages there is a break between two, none where the template's tokens begin or end", () => {
  const said = [null, "Be", " brief", null, "Why", "?", null, null, null, "So", null];
  const run = new Run(
    /** @type {any} */ ({
      ...{ header: {}, events: [event(0, { arrived: [{ request: "a", t: 0 }] })] },
      texts: { prompt: { a: said.map((piece) => piece ?? "<|x|>") }, said: { a: said } },
    }),
  );
  assert.equal(run.said(run.request("a")).join(""), "Be brief\nWhy?\nSo ");
});
