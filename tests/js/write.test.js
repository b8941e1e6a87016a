// The Write tab: what is believed of a trial, what is said of it, and whose code is in the field.

import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El, finding, of } from "./elements.js";
import { event } from "./worlds.js";

const head = new El("head");
Object.assign(globalThis, {
  ...{ window: {}, HTMLElement: El, location: { hash: "", search: "" } },
  document: documentOf({ head }),
});
window.parent = window;
const { believed } = await import("../../assets/player/write/believed.js");
const { CodeField } = await import("../../assets/player/write/code_field.js");
const { Outcome } = await import("../../assets/player/write/outcome.js");
const { packed, unpacked } = await import("../../assets/player/write/own_code.js");
const { Write } = await import("../../assets/player/write/write.js");

test("a number of a trial is a whole one from nought on, an address is nowhere but in the learner's own words", () => {
  const isBelieved = (/** @type {object} */ delta) => {
    try {
      return believed(delta) === delta;
    } catch ({ message }) {
      assert.equal(message, "This code answered with something that is not an answer.");
      return false;
    }
  };
  const goal = { name: "g", met: false, says: null };
  const fault = { says: "wrong", line: 0, step: null, holes: {} };
  const attempt = { task: "t", goals: [goal], help: null, fault: null, replay: null };
  const trial = (/** @type {object} */ change = {}) =>
    isBelieved({ done: true, attempt: { ...attempt, ...change } });
  assert.ok(trial() && trial({ fault }) && trial({ printed: "https://a.test" }));
  const spoiled = [
    ...[-1, 0.5, "1", 2 ** 60].map((line) => ({ fault: { ...fault, line } })),
    ...[-1, 1.5, true].map((step) => ({ fault: { ...fault, step } })),
    { goals: [{ ...goal, met: 1 }] },
    { help: "see https://a.test" },
    { help: "//a.test/x.png" },
    { help: "<a href=x>" },
    { printed: 5 },
    { src: "x" },
    { figure: { urls: [] } },
  ];
  const run = (lanes = 2, steps = 3, total = 4) => ({
    replay: {
      header: { config: { max_num_seqs: lanes } },
      events: Array.from({ length: steps }, (_, step) =>
        event(step, { kv: { used: 0, total, changes: [], prefixHits: [] } }),
      ),
    },
  });
  assert.ok(trial(run()) && trial(run(64, 1000, 1e6)));
  spoiled.push(run(65), run(2, 1001), run(2, 3, 1e6 + 1));
  for (const change of spoiled) assert.equal(trial(change), false, JSON.stringify(change));
  const going = (/** @type {object} */ progress) => isBelieved({ progress });
  assert.deepEqual([{ step: 0 }, { step: 3 }, { step: -1 }, { step: "3" }].map(going), [
    ...[true, true, false, false],
  ]);
  assert.ok(isBelieved({ done: true, stopped: "It was stopped." }));
  assert.equal(isBelieved({ done: true, error: "https://a.test" }), false);
});

test("that no run reaches a case is said of a fault without a step that has a whole run, and of no other", () => {
  const said = (/** @type {number | null} */ step, /** @type {object | null} */ replay) => {
    const $ = finding();
    const part = { $, options: { tasks: [] }, task: { goals: [] }, own: {}, code: {}, watch: {} };
    const fault = { says: "It stands.", holes: {}, line: 2, step };
    const shown = { lines: ["f(1)"], expected: "2", got: null, printed: "x\n\ny" };
    new Outcome(part).show({ fault, goals: [], replay, case: shown });
    const box = $(".outcome");
    const places = box.querySelector(".places").children.filter((el) => el?.textContent);
    const help = box.querySelectorAll(".help").map((el) => el.textContent);
    const [words] = box.querySelectorAll("pre").map((el) => el.textContent);
    assert.equal(words, "f(1)\n# expected 2\n# printed x\n# printed y");
    return [help, places.map((el) => el.textContent)];
  };
  const unseen = "No run reaches this case, so a whole one is drawn.";
  assert.deepEqual(said(null, {}), [[unseen], ["Line 2"]]);
  assert.deepEqual(said(3, {}), [[], ["Line 2", "Step 3"]]);
  assert.deepEqual(said(0, {}), [[], ["Line 2", "Step 0"]]);
  assert.deepEqual(said(3, null), [[], ["Line 2"]], "there is nothing to turn to");
});

test("who types while the editor is fetched types on in it, and nobody else's focus is taken", () => {
  const become = (/** @type {boolean} */ isTyping) => {
    const done = [];
    const field = Object.assign(new El("textarea"), {
      value: "x = 1",
      remove: () => done.push("gone"),
    });
    document.activeElement = /** @type {any} */ (isTyping ? field : document);
    class EditorView {
      contentDOM = new El();
      constructor({ state }) {
        this.state = state;
      }
      focus() {
        done.push("focus");
      }
    }
    const code = Object.assign(Object.create(CodeField.prototype), {
      ...{ field, view: null, options: {}, holder: new El() },
      _state: (text) => ({ doc: text }),
    });
    code._become({ EditorView });
    assert.equal(code.code, "x = 1");
    assert.equal(code.view.contentDOM.getAttribute("aria-label"), "Your code, in Python");
    return done;
  };
  assert.deepEqual([become(true), become(false)], [["gone", "focus"], ["gone"]]);
});

test("a task that is opened has its own code, and nothing is offered of the task before", () => {
  const [toast, opened] = [new El(), []];
  const root = { querySelector: (selector) => (selector === ".toast" ? toast : new El()) };
  const [one, two] = ["one", "two"].map((name) => ({ name, code: `given ${name}` }));
  const write = Object.assign(Object.create(Write.prototype), {
    ...{ root, task: one, came: null, code: { code: "typed" }, _clear: () => opened.push("clear") },
    own: { of: (name) => (name === "one" ? "mine" : null) },
    ...Object.fromEntries(["_draw", "_remember"].map((name) => [name, () => {}])),
  });
  toast.hidden = false;
  write.open(one);
  assert.deepEqual([toast.hidden, write.code.code, opened], [false, "typed", []], "it is open");
  write.open(two);
  assert.deepEqual([toast.hidden, write.code.code, opened], [true, "given two", ["clear"]]);
  write.open(one);
  assert.equal(write.code.code, "mine");
});

test("a task is done once every goal is met, and not before", () => {
  const kept = [];
  const outcome = new El();
  const write = Object.assign(Object.create(Write.prototype), {
    ...{ task: { name: "t", title: "T" }, own: { keep: (...what) => kept.push(what) } },
    ...{ code: { mark() {} }, outcome: { show() {} }, _draw() {}, $: () => outcome },
  });
  const tried = (/** @type {boolean[]} */ ...met) => {
    write._tried({ goals: met.map((one) => ({ met: one })), replay: null, fault: null });
    return kept.splice(0);
  };
  assert.deepEqual([tried(true, false), tried(false, false)], [[], []]);
  assert.deepEqual(tried(true, true), [["t", { done: true }]]);
});

test("a picture is that of the task only as long as its own run is on screen", () => {
  const ours = (/** @type {object | null} */ entry, /** @type {object} */ shown, name = "t") =>
    Object.assign(Object.create(Write.prototype), {
      ...{ entry, watch: { state: { entry: shown } }, task: { name } },
    })._isOurs;
  const entry = { written: "t" };
  assert.equal(ours(entry, entry), true);
  assert.equal(ours(entry, entry, "other"), false);
  assert.equal(ours(entry, { written: "t" }), false, "another run");
  assert.equal(ours(null, {}), false);
});

test("how far a trial is, is told by its turn, its step, its cases or what is loaded", () => {
  const $ = finding();
  const outcome = new Outcome({ $, options: { tasks: [] }, stop: {} });
  const bar = $(".progress");
  const told = (/** @type {object} */ delta) => {
    outcome.progress(delta);
    return bar.hidden ? null : bar.textContent;
  };
  assert.equal(told({ progress: { index: 0, total: 4, step: 9 } }), "Turn 1 of 4");
  assert.equal(told({ progress: { index: 3, total: 4 } }), "Turn 4 of 4");
  assert.equal(told({ progress: { step: 9 } }), "Step 9");
  assert.equal(told({ progress: { cases: 0 } }), "0 right so far");
  assert.equal(told({}), "Starting …");
  assert.match(
    told({ loading: { what: "x", done: 2 ** 20, total: 2 ** 21 } }),
    /1\.00 MiB of 2\.00 MiB$/,
  );
});

test("of the tasks that which is open is the current one, and those done have a mark", () => {
  const $ = finding();
  globalThis.document = documentOf();
  const tasks = ["one", "two"].map((name) => ({
    name,
    title: `Do ${name}`,
    says: "`x`",
    before: "",
  }));
  const opened = [];
  const write = Object.assign(Object.create(Write.prototype), {
    ...{
      $,
      task: tasks[1],
      entry: null,
      came: null,
      options: { tasks },
      watch: { state: {}, redraw() {} },
    },
    page: { dataset: { side: "code" }, toggleAttribute() {} },
    ...{ own: { isDone: (name) => name === "one" }, outcome: { goals() {} } },
    open: ({ name }) => opened.push(name),
  });
  write._draw();
  const buttons = $(".task-list").querySelectorAll("button");
  assert.deepEqual(
    buttons.map((el) => [
      el.textContent,
      ...["aria-current", "aria-label"].map((n) => el.getAttribute(n)),
    ]),
    [
      ["✓", null, "1: Do one, done"],
      ["2", "step", "2: Do two"],
    ],
  );
  Object.assign(write, { page: { dataset: { side: "picture" }, toggleAttribute() {} } });
  write._draw();
  assert.equal(write.page.dataset.side, "code", "there is no picture of this task");
  buttons[0].click();
  assert.deepEqual([opened, $(".task-title").textContent], [["one"], "Do two"]);
});

test("code as long as may be comes by a link, longer code does not", async () => {
  const back = async (length) => (await unpacked(await packed("x".repeat(length))))?.length ?? null;
  assert.deepEqual([await back(20000), await back(20001)], [20000, null]);
});

test("whoever changes the code of a link, or starts over, can go back to their own if there is any", () => {
  const offered = (act, { own = null, code = "other" } = {}) => {
    const said = [];
    const write = of(Write, {
      task: { name: "t", code: "given" },
      came: "link",
      own: { of: () => own, keep() {} },
      code: { code },
      toast: (sentence, action) => said.push(sentence, action.text),
      ...Object.fromEntries(["_clear", "_draw", "_remember"].map((name) => [name, () => {}])),
    });
    write[act]();
    return said;
  };
  assert.deepEqual(offered("_changed", { own: "mine" }), [
    "This is your code now.",
    "Back to my code",
  ]);
  assert.deepEqual(offered("_changed"), []);
  assert.deepEqual(offered("_startOver"), [
    "This is the code that you were given.",
    "Back to my code",
  ]);
  assert.deepEqual(offered("_startOver", { code: "given" }), []);
});

test("a fault is marked in its line where the code has that line, and nothing breaks where it has not", () => {
  const line = (n) => (n > 2 ? assert.fail("no such line") : { from: 10, to: 20, text: "  x" });
  const marked = [];
  const field = of(CodeField, {
    view: { state: { doc: { lines: 2, line } }, dispatch() {} },
    cm: { setDiagnostics: (_state, faults) => marked.push(faults.map(({ from }) => from)) },
  });
  for (const n of [2, 3, null]) field.mark(n, "wrong");
  assert.deepEqual(marked, [[12], [], []]);
});
