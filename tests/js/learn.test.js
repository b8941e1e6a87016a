import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El, Event, finding } from "./elements.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  location: { hash: "", search: "" },
  matchMedia: () => ({ matches: true }),
  ResizeObserver: class {
    observe() {}
  },
});
window.parent = window;
const { Home } = await import("../../assets/player/learn/home.js");
const { Learn } = await import("../../assets/player/learn/learn.js");
const { Choose, Paint } = await import("../../assets/player/learn/questions.js");
const { Stage } = await import("../../assets/player/learn/stage.js");
const { Progress } = await import("../../assets/player/learn/progress.js");
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

/** A task of a lesson, and what its visitor hears of it; runs meet what `meets` names. */
function taskOf(meets) {
  const heard = {};
  globalThis.document = documentOf({ addEventListener: (name, act) => (heard[name] = act) });
  const [$, said] = [finding(), []];
  const stop = { text: [], goals: [{ name: "x", text: [] }], views: [] };
  const learn = {
    $,
    words: { task: "Task", solved: "Solved", solved_look: "Look.", next_lesson: "Next:" },
    doc: { terms: {} },
    options: { tabs: [1] },
    lesson: { name: "one", stops: [stop] },
    at: 0,
    nextLesson: { title: "Two" },
    stage: { point() {} },
    watch: { engines: {}, edit() {}, turnToStep() {}, state: {}, running: false },
    engines: {
      call: async (_check, _name, id) => ({
        goals: [{ name: "x", met: meets.includes(id), step: 1, says: [id] }],
      }),
    },
    _heard: (words) => said.push(words),
    _do: () => said.push("offered"),
  };
  const task = new Task(learn);
  const holder = new El();
  const offer = () => (task.offer(holder, stop), holder.textContent);
  const ran = async (id) => {
    heard["inflight-ran"]({ detail: { id } });
    for (let n = 0; n < 3; n += 1) await new Promise((resolve) => setTimeout(resolve));
  };
  return { task, learn, stop, said, offer, ran, title: () => $(".task-title").textContent };
}

test("a task that was solved is a task again when it is begun anew, and opens the way to the next lesson", async () => {
  const { task, learn, offer, ran, title } = taskOf(["good"]);
  assert.doesNotMatch(offer(), /Next: Two/);
  task.begin();
  await ran("bad");
  assert.equal(title(), "Task");
  await ran("good");
  assert.equal(title(), "Solved");
  task.end();
  assert.match(offer(), /Next: Two/);
  task.begin();
  assert.equal(title(), "Task");
  task.end();
  learn.lesson = { ...learn.lesson, name: "two" };
  assert.doesNotMatch(offer(), /Next: Two/, "its goals are its own");
});

test("a run of a task counts though its learner went back to the lesson before it ended", async () => {
  const { task, learn, offer, ran, said } = taskOf(["late", "other"]);
  offer();
  task.begin();
  learn.watch.running = true;
  task.end();
  await ran("late");
  assert.deepEqual(said, ["offered"]);
  assert.match(offer(), /Next: Two/);
  await ran("other"); // it was begun elsewhere
  assert.deepEqual(task.ran, ["late"]);
});

test("a lesson goes on where it was left, to its end, and its address names the stop", () => {
  const done = [];
  const written = [];
  globalThis.history = /** @type {any} */ ({
    replaceState: (_state, _title, hash) => written.push(hash),
  });
  window.parent = window;
  const lesson = { name: "l", number: 1, stops: [{ name: "a" }, { name: "b" }], minutes: 3 };
  const learn = Object.assign(Object.create(Learn.prototype), {
    page: { dataset: { part: "learn" } },
    options: { papers: {} },
    words: {},
    language: "en",
    lesson,
    at: 1,
    progress: { of: () => ({ at: 1, answered: [], done: false }) },
    open: (_lesson, at) => done.push(at),
    close: () => done.push("closed"),
  });
  learn._remember();
  assert.deepEqual(written, ["#part=learn&lesson=l&stop=b"]);
  learn.go(1); // its run is still fetched
  assert.deepEqual(done, []);
  learn.drawn = "l/b";
  for (const by of [-1, -2, 1]) learn.go(by);
  learn.options.only = "l"; // a file of one lesson
  learn.go(1);
  assert.deepEqual(done.splice(0), [0, "closed"]);
  const home = new Home(learn);
  home._lesson(lesson).querySelector(".start-button").click();
  assert.deepEqual(done, [1]);
});

test("only what a learner found by themselves counts, and a wrong answer leaves the others", () => {
  const answered = [];
  const stop = {
    ask: {
      text: [],
      why: [],
      options: [false, true].map((right) => ({ text: [], why: [], right })),
    },
  };
  const learn = Object.assign(Object.create(Learn.prototype), {
    $: finding(),
    doc: { terms: {} },
    words: { right: "Right.", wrong: "Wrong." },
    watch: { state: {} },
    stage: { show() {} },
    progress: { answered: () => answered.push("found") },
    _fitType() {},
    _dots() {},
    _heard() {},
  });
  learn._ask(stop);
  assert.ok(learn.asking instanceof Choose);
  learn.asking.tell.answered(true, false); // shown
  assert.deepEqual(answered, []);
  learn.asking.key(1);
  assert.deepEqual(answered, []);
  learn.asking.key(2);
  learn.asking.key(2);
  assert.deepEqual(answered, ["found"]);
  assert.equal(learn.asking.key(3), false);
});

test("Space paints a cell of the mask, and pressed again takes it back", () => {
  const line = [{ r: "A", text: "x" }];
  const paint = Object.assign(Object.create(Paint.prototype), {
    ask: { queries: line, keys: line },
    words: {},
    cells: [[new El()]],
    at: [0, 0],
  });
  const key = () => Object.assign(new Event("keydown"), { key: " " });
  const pressed = () => (paint._key(key()), paint._isOn(0, 0));
  assert.deepEqual([pressed(), pressed()], [true, false]);
});

test("a lesson that asks nothing is never done", () => {
  assert.equal(new Progress().of({ name: "none", stops: [{}] }).done, false);
});
