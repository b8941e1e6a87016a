import assert from "node:assert/strict";
import test from "node:test";

import { El } from "./elements.js";

globalThis.window = /** @type {any} */ ({});
const { Home } = await import("../../assets/player/learn/home.js");
const { Learn } = await import("../../assets/player/learn/learn.js");
const { Paint } = await import("../../assets/player/learn/questions.js");
const { Stage } = await import("../../assets/player/learn/stage.js");
const { onSwipe } = await import("../../assets/player/learn/swipe.js");
const { Task } = await import("../../assets/player/learn/task.js");

test("of two languages chosen in a row the last one stays, whichever comes first", async () => {
  const come = {};
  const documentOf = (language) =>
    `data:application/json,${JSON.stringify({ language, words: {}, questions: {} })}`;
  const none = () => {};
  const learn = Object.assign(Object.create(Learn.prototype), {
    options: { documents: {} },
    engines: {
      can: () => true,
      call: (_, language) =>
        new Promise((resolve) => {
          come[language] = () => resolve({ url: documentOf(language) });
        }),
    },
    root: {},
    task: {},
    home: { draw: none },
    ...Object.fromEntries(["_speak", "_labels", "_remember"].map((name) => [name, none])),
  });
  const both = ["de", "en"].map((language) => learn.speak(language));
  await new Promise((resolve) => setTimeout(resolve));
  come.en();
  await both[1];
  come.de();
  await both[0];
  assert.equal(learn.language, "en");
});

test("a sheet that could not be made leaves no empty tab of the browser", async () => {
  const done = [];
  window.open = () => /** @type {any} */ ({ close: () => done.push("closed") });
  const call = async () => {
    throw new Error("The server cannot be reached.");
  };
  const learn = {
    options: {},
    engines: { can: () => true, call },
    watch: { toast: (words) => done.push(words) },
  };
  await Home.prototype._paper.call({ learn }, { name: "l" }, "learner");
  assert.deepEqual(done, ["closed", "The server cannot be reached."]);
});

test("what runs of a task showed is told in the language that is chosen", async () => {
  const call = async (_check, _lesson, id, language) => ({
    goals: [{ name: "x", met: id === "first", says: `${id}, ${language}` }],
  });
  const lesson = { name: "l", stops: [{}] };
  const task = Object.assign(Object.create(Task.prototype), {
    on: true,
    ran: ["first", "second"],
    found: { x: { met: true, says: "first, en" } },
    learn: { engines: { call }, language: "de", lesson, at: 0 },
    _draw() {},
  });
  task.renew();
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(task.found.x.says, "first, de");
});

test("Enter belongs to what it selects, on a canvas that is walked too", () => {
  const gone = [];
  globalThis.document = /** @type {any} */ ({ querySelector: () => null });
  const learn = Object.assign(Object.create(Learn.prototype), {
    page: { dataset: { part: "learn" } },
    lesson: {},
    task: {},
    go: (by) => gone.push(by),
  });
  const press = (on) =>
    learn._key({
      key: "Enter",
      target: { closest: (selectors) => selectors.split(", ").includes(on) },
      preventDefault() {},
      stopImmediatePropagation() {},
    });
  for (const on of ["button", "summary", "[role=listbox]"]) press(on);
  assert.deepEqual(gone, []);
  press("div");
  assert.deepEqual(gone, [1]);
  learn.task.on = true; // the player is the learner's
  press("div");
  assert.deepEqual(gone, [1]);
});

test("a mask that was shown and cleared is the learner's own again", () => {
  const own = [];
  const line = [{ r: "A", text: "x" }];
  const paint = Object.assign(Object.create(Paint.prototype), {
    ask: { allowed: ["1"], queries: line, keys: line, why: "" },
    words: {},
    answer: {},
    cells: [[new El()]],
    judge: (right, _verdict, _said, _reasons, isOwn) => own.push([right, isOwn]),
  });
  paint.reveal();
  paint.check(); // what was shown
  paint.clear();
  paint._set(0, 0, true);
  paint.check();
  assert.deepEqual(own, [
    [true, false],
    [true, false],
    [true, true],
  ]);
});

test("a stop turns to the first of its panels that takes turns, on a phone the mask is one", () => {
  const turned = (layout) => {
    const watch = { state: { layout }, chooseTab() {} };
    return Stage.prototype.point.call({ watch, _light() {} }, ["lanes", "mask", "kv"]);
  };
  assert.deepEqual(["desk", "phone"].map(turned), ["kv", "mask"]);
});

test("a finger that paints or moves names turns no page, one that sweeps elsewhere does", () => {
  const turned = [];
  const heard = {};
  onSwipe({ addEventListener: (name, act) => (heard[name] = act) }, (by) => turned.push(by));
  const sweep = (on, to) => {
    const target = { closest: (selectors) => selectors.split(", ").includes(on) };
    const finger = { pointerType: "touch", isPrimary: true, target, clientY: 50 };
    heard.pointerdown({ ...finger, clientX: 200 });
    heard.pointerup({ ...finger, clientX: to });
  };
  for (const on of [".paint", ".names"]) sweep(on, 40);
  assert.deepEqual(turned, []);
  sweep("p", 40);
  sweep("p", 360);
  sweep("p", 150); // a shaky tap
  assert.deepEqual(turned, [1, -1]);
});
