// What Compare shows and says beside the race itself.

import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf, El, finding } from "./elements.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "" },
  ResizeObserver: class {
    observe() {}
  },
});
const { Chooser } = await import("../../assets/player/compare/chooser.js");
const { Compare } = await import("../../assets/player/compare/compare.js");
const { EquivalencePanel } = await import("../../assets/player/compare/equivalence.js");
const { Race } = await import("../../assets/player/compare/race.js");

/** An object of a class, without what its constructor needs. */
const of = (kind, fields) => Object.assign(Object.create(kind.prototype), fields);

test("a link names a moment by which all that is seen has happened, in the race's own unit", () => {
  const link = (now, clock = true, entry = /** @type {any} */ ({ name: "six" })) => {
    const race = { now, clock, racers: [{ name: "static" }, { name: "continuous" }] };
    const hash = of(Compare, { race, entry, palette: { dark: true } })._hash();
    return Object.fromEntries(new URLSearchParams(hash.slice(1)));
  };
  assert.equal(link(1.2341).at, "1.235");
  assert.equal(link(1.234).at, "1.234", "a moment of a link stays itself");
  assert.equal(link(0).at, "0.000");
  assert.deepEqual(link(7.9, false), {
    ...{ part: "compare", comparison: "six", at: "7", axis: "steps", who: "continuous" },
  });
  assert.deepEqual(
    link(1, true, { name: "six", doc: {} }),
    { part: "compare" },
    "it is nobody else's",
  );
});

test("on the other axis a race stands at the same share of its way", () => {
  const race = of(Race, { clock: true, now: 1, racers: [], redraw() {} });
  race.racers = [
    {
      get length() {
        return race.clock ? 4 : 60;
      },
    },
  ];
  race._spread();
  const after = (clock) => (race.setClock(clock), [race.now, race.span]);
  assert.deepEqual(
    [after(false), after(false), after(true)],
    [
      [15, 60],
      [15, 60],
      [1, 4],
    ],
  );
});

test("a number of an equivalence is short, and none and nothing are told apart", () => {
  const $ = finding();
  const panel = of(EquivalencePanel, { $, leak: { checked: false }, prompts: new Map() });
  const said = (size) => {
    const r = { request: "a", letter: "A", solo: [1], batched: [1], max_logit_difference: size };
    panel.kept = { honest: { says: "", requests: [{ ...r, solo_text: "x", batched_text: "x" }] } };
    panel.say();
    return $(".pairs")
      .querySelector(".why")
      .textContent.replace(/^.*difference /, "");
  };
  assert.deepEqual([0, null, 0.00001234, 0.0099, 0.01, 12.345].map(said), [
    "0",
    "–",
    "1.2e-5",
    "9.9e-3",
    "0.01",
    "12.35",
  ]);
});

test("comparisons for which the bar has no room are listed in their order, never the open one", () => {
  const [bar, lists, strip] = [new El(), new El(), new El()];
  bar.className = "presets";
  const places = { ".top .presets": bar, ".groups": lists, ".presets.small": strip };
  const root = {
    querySelector: (/** @type {string} */ s) => places[s],
    querySelectorAll: () => [],
  };
  const chooser = new Chooser(root, { open() {}, share() {} });
  const names = ["a", "b", "c", "d", "e"];
  chooser.fill(
    names.map((name) => ({ name, title: name, shows: "" })),
    [],
  );
  const chips = bar.querySelectorAll("[data-name]");
  for (const chip of chips) chip.dataset.name = chip.getAttribute("data-name");
  const fitted = (room, open) => {
    for (const chip of chips) chip.classList.toggle("on", chip.dataset.name === open);
    bar.clientWidth = room;
    Object.defineProperty(bar, "scrollWidth", {
      get: () => 10 * chips.filter((chip) => !chip.hidden).length,
      configurable: true,
    });
    chooser.fit();
    const listed = chooser.more.children.slice(1).map((option) => option.textContent);
    const shown = chips.filter((chip) => !chip.hidden).map((chip) => chip.textContent);
    return [shown.join(""), listed.join(""), chooser.more.hidden, bar.classes.has("tight")];
  };
  assert.deepEqual(fitted(50, "a"), ["abcde", "", true, false]);
  assert.deepEqual(fitted(30, "a"), ["abc", "de", false, false]);
  assert.deepEqual(fitted(20, "e"), ["ae", "bcd", false, false]);
  assert.deepEqual(fitted(5, "c"), ["c", "abde", false, true], "it is cut, and says so");
});
