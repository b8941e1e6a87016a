import assert from "node:assert/strict";
import test from "node:test";

globalThis.window = /** @type {any} */ ({ addEventListener() {} });
globalThis.document = /** @type {any} */ ({
  createElementNS: () => ({ setAttribute() {}, append() {} }),
});
const { Compare } = await import("../../assets/player/compare/compare.js");
const { Card } = await import("../../assets/player/figure/card.js");
const { Task } = await import("../../assets/player/learn/task.js");

test("what a figure's button does stands in its tooltip, too", () => {
  const told = {};
  const player = {
    replaceChildren() {},
    setAttribute(/** @type {string} */ name, /** @type {string} */ value) {
      told[name] = value;
    },
  };
  const card = Object.assign(Object.create(Card.prototype), {
    slider: { key: "n", from: 0, to: 3 },
    held: { n: 0 },
    player,
  });
  card.play(true);
  assert.deepEqual(told, { "aria-label": "Pause", title: "Pause" });
  card.play(false);
  assert.deepEqual(told, { "aria-label": "Play", title: "Play" });
});

test("that a task could not be checked is said", async () => {
  /** @type {string[]} */
  const said = [];
  const call = async () => {
    throw new Error("The server cannot be reached.");
  };
  const lesson = { name: "l" };
  const watch = { toast: (/** @type {string} */ words) => said.push(words) };
  const learn = { engines: { call }, watch, language: "en" };
  await Task.prototype._ask.call({ learn, lesson, found: {} }, "run");
  assert.deepEqual(said, ["The server cannot be reached."]);
});

test("the form for a plan stays, though a comparison was on its way", async () => {
  const none = () => {};
  /** @type {string[]} */
  const shown = [];
  const page = Object.assign(Object.create(Compare.prototype), {
    root: { toggleAttribute: none },
    race: { toggle: none },
    plan: { show: () => shown.push("form") },
    chooser: { mark: none },
    catalogue: { presets: [] },
    $: () => ({}),
    ...Object.fromEntries(["empty", "_say", "toast"].map((name) => [name, none])),
    show: () => shown.push("comparison"),
  });
  const opened = page.open({ name: "c", url: "data:application/json,{}" });
  page._showPlan(null);
  await opened;
  assert.deepEqual(shown, ["form"]);
});
