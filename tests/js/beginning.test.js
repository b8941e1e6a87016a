// How Watch begins, how far a run is and how it ends, and what the page cannot do, in words.

import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El } from "./elements.js";
import { runOf, two } from "./worlds.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: { documentElement: { dataset: {} }, addEventListener() {} },
  location: { hash: "", search: "", href: "http://x/", origin: "http://x" },
});
const { take } = await import("../../assets/player/watch/export.js");
const { Live } = await import("../../assets/player/watch/live.js");
const { Opening } = await import("../../assets/player/watch/opening/opening.js");
const { OwnQuestion } = await import("../../assets/player/watch/own_question.js");
const { present } = await import("../../assets/player/watch/presenter.js");
const { showSlow } = await import("../../assets/player/watch/slow.js");
const { showWhatIf } = await import("../../assets/player/watch/what_if.js");
const { none, playerOf } = await import("./players.js");

test("what this page cannot do now is said in a sentence", async () => {
  /** @type {string[]} */
  const said = [];
  const app = (/** @type {any} */ state = {}, more = {}) =>
    playerOf(
      { run: runOf([]), ...state },
      { toast: (words) => said.push(words), ranks: {}, ...more },
    );
  const engine = (/** @type {string} */ name) => ({ run: runOf([], {}, { engine: { name } }) });
  const root = (clientWidth, clientHeight) => ({
    ...{ clientWidth, clientHeight, dataset: {}, querySelector: () => ({}) },
    classList: { toggle: none, remove: none },
  });
  const opening = (plot) => {
    const of = { app: app({}, { transport: { toggle: none } }), plot, _show: async () => false };
    return Opening.prototype.play.call(of);
  };
  const there = "There is no vLLM here. Open its recording, and its settings can be planned.";
  const small = "The presenter needs a window of 1000 by 600 pixels.";
  const going = { edge: { going: true } };
  for (const [act, words] of /** @type {[() => any, string | null][]} */ ([
    [() => showWhatIf(app(engine("vLLM"))), there],
    [() => showWhatIf(app(engine("vLLM"), { engines: { can: () => false } })), there],
    [() => showWhatIf(app(going)), "A run is in progress: wait for it to end, or cancel it."],
    [() => showWhatIf(app({}, { editor: { specOnScreen: async () => null } })), null],
    [() => showSlow(app({ run: null })), "Where the time went is known when the run has ended."],
    [() => showSlow(app()), "Where the time went is known when the run has ended."],
    [() => present(app({}, { root: root(999, 600) }), true, false), small],
    [() => present(app({}, { root: root(1000, 599) }), true, false), small],
    [() => present(app({}, { root: root(999, 600) }), true, true), null],
    [
      () => present(app({}, { root: root(1000, 600), sized: none }), true, false),
      "Space plays, R shows the reasons, 1 to 6 show one view, F fills the screen, Esc leaves.",
    ],
    [
      () => app().absent("write"),
      "Write is not on this page: it needs the engine that runs in a visitor’s tab.",
    ],
    [() => app().show({ header: {} }), "This is not a replay."],
    [() => app().show(null), "This is not a replay."],
    [() => app().absent("paint"), "This page has no part of this name: paint."],
    [() => app().missing("ten"), "This recorded run is not available: ten."],
    [() => opening(null), "The opening could not be fetched."],
    [() => opening({}), null], // another run is opened
    [
      () => take(app({ entry: null }), "jsonl"),
      "Only recorded, uploaded and finished runs can be exported.",
    ],
  ])) {
    await act();
    assert.deepEqual(said.splice(0), words === null ? [] : [words], String(act));
  }
});

test("the page begins with what its address names, what it was made with, or what was typed", async () => {
  const [first, six] = [{ name: "first" }, { name: "six" }];
  const begun = async (/** @type {any} */ wanted, /** @type {any} */ more = {}) => {
    /** @type {string[]} */
    const did = [];
    const act =
      (/** @type {string} */ name) =>
      (/** @type {any} */ what, /** @type {any} */ how = {}) => {
        const named = what?.name ?? what?.url ?? (typeof what === "object" ? "" : what);
        const { request = "", step = "", rank = "", at = "" } = how ?? {};
        did.push(
          [name, named, request, step, rank, at].filter((x) => x !== null && x !== "").join(" "),
        );
      };
    const { options = {}, engines = null, edited = false, typed = null, resumes = false } = more;
    const app = playerOf(
      {},
      {
        options: { catalogue: [first, six], tabs: [{ name: "learn" }], ...options },
        ...{ engines, opening: { begin: async () => Boolean(more.opens) }, address: {} },
        ...{ show: act("show"), open: act("open"), missing: act("missing"), absent: act("absent") },
        ...{ toast: act("toast"), empty: act("empty"), fetching: null },
        editor: {
          ...{ edited, typed, resume: async () => resumes, toggle: act("form") },
          ...{ restore: act("restore"), model: { choose: act("model") } },
        },
      },
    );
    app.address.read = () => ({ trace: [], step: null, rank: null, at: null, ...wanted });
    await app.start();
    return did;
  };
  const engines = {};
  for (const [wanted, more, did] of /** @type {[any, any, string[]][]} */ ([
    [{}, {}, ["open first"]],
    [{ run: "six", step: 3 }, {}, ["open six 3"]],
    [{ run: "ten" }, {}, ["open first", "missing ten"]],
    [{}, { options: { step: 4 } }, ["open first 4"]],
    [{ step: 3 }, { options: { step: 4 } }, ["open first 3"]],
    [{ rank: 2 }, { options: { step: 4, rank: 1, at: 0.5 } }, ["open first 4 2 0.5"]],
    [{ request: "r" }, { options: { step: 4, rank: 1, at: 0.5 } }, ["open first r 1"]],
    [
      { trace: ["http://["], request: "r" },
      {},
      ["toast The run at this address could not be opened: it is no address.", "open first"],
    ],
    [
      { comparison: "c", racer: "x", request: "r" },
      {},
      [
        "toast This run of a comparison could not be opened: there is no comparison c here.",
        "open first",
      ],
    ],
    [{ part: "learn" }, {}, ["open first"]],
    [{ part: "write" }, {}, ["absent write", "open first"]],
    [{}, { opens: true }, []],
    [{}, { options: { replay: { name: "own" } } }, ["show own"]],
    [{ run: "six" }, { options: { replay: { name: "own" } } }, ["open six"]],
    [{}, { options: { url: "/u", catalogue: [] } }, ["open /u"]],
    [
      {},
      { options: { catalogue: [] } },
      ["empty There is no recorded run here yet. Edit requests and run them."],
    ],
    [
      { spec: "s", request: "r" },
      {},
      ["open first", "toast This link describes a run that only a page with an engine can make."],
    ],
    [{ spec: "s" }, { engines }, ["open first", "restore"]],
    [{ spec: "s" }, { engines, resumes: true }, ["open first"]],
    [{}, { engines, options: { model: "m" } }, ["open first", "form true", "model"]],
    [{}, { engines, options: { model: "m" }, edited: true }, ["open first", "form true"]],
    [{ run: "six" }, { engines, options: { model: "m" } }, ["open six"]],
    [{}, { engines, typed: {} }, ["open first", "toast What you typed is still here."]],
    [{}, { typed: {} }, ["open first"]],
  ])) {
    assert.deepEqual(await begun(wanted, more), did, JSON.stringify([wanted, more]));
  }
});

test("how far a run is, and how it ended, is said in words", async () => {
  globalThis.sessionStorage = /** @type {any} */ ({ removeItem: none });
  const said = async (/** @type {any[]} */ ...deltas) => {
    const engines = {
      async *follow() {
        for (const delta of deltas) {
          if (delta instanceof Error) throw delta;
          yield delta;
        }
      },
    };
    /** @type {any[]} */
    const told = [];
    const app = { address: {}, store: { set: none }, transport: { toggle: none }, redraw: none };
    const live = Object.assign(Object.create(Live.prototype), {
      ...{ app: { ...app, engines }, _held: () => ({}), _total: none },
    });
    const tell = {
      progress: (/** @type {any[]} */ ...how) => told.push(how),
      ...{ done: (/** @type {string} */ words) => told.push(words) },
      ...{ failed: (/** @type {string} */ words) => told.push(`failed: ${words}`) },
    };
    await live._follow(tell, async () => "job-1");
    return told;
  };
  const loading = (/** @type {string} */ phase, done = 0, total = 0) => ({
    ...{ loading: { phase, done, total }, ahead: 3 },
  });
  for (const [progress, share, words] of /** @type {[object, number, string][]} */ ([
    [{ ahead: 1, tokens: 9 }, 0, "1 [run|runs] ahead of yours."],
    [{ step: 0, tokens: 3, total_tokens: 12 }, 0.25, "Step 0: 3 of 12 [token|tokens]."],
    [{ tokens: 3, total_tokens: 12 }, 0.25, "3 of 12 [token|tokens]."],
    [{ tokens: 0 }, 0, "Starting: 0 of 0 [token|tokens]."],
    [loading("wait", 1, 2), 0, "Another model is being loaded first."],
    [loading("fetch", 2 ** 20, 2 ** 22), 0.25, "Fetching the model: 1.00 MiB of 4.00 MiB."],
    [loading("load", 1, 4), 0.25, "Loading the model: 1 of 4 [tensor|tensors]."],
    [loading("load"), 0, "Loading the model."],
  ]))
    assert.deepEqual((await said({ progress }))[0], [share, words]);
  const { header, events } = two();
  const steps = [{ header }, { events, captions: [] }];
  for (const [deltas, words] of /** @type {[any[], string][]} */ ([
    [[...steps, { done: true }], "Done: 3 [step|steps]."],
    [[{ done: true }], "Done: there was nothing to compute."],
    [[...steps, { done: true, stopped: "Stopped.", unkept: "Not kept." }], "Stopped. Not kept."],
    [steps, "failed: The run broke off: the server went away."],
    [[...steps, Error("no answer")], "failed: The run broke off: no answer."],
    [[Object.assign(Error(), { name: "AbortError" })], "The run was cancelled."],
    [[...steps, { done: true, error: "It broke." }], "failed: It broke."],
  ]))
    assert.deepEqual(await said(...deltas), [words]);
});

test("one's own question: nothing is asked with an empty field, and the line names whom it waited for", async () => {
  globalThis.document = documentOf({ createTextNode: (text) => text });
  const [taken, line] = [[], new El()];
  line.append(new El("span"));
  Object.assign(globalThis, { HTMLElement: El });
  const own = Object.assign(Object.create(OwnQuestion.prototype), {
    line,
    app: { opening: { close: () => taken.push("closed") } },
  });
  await own.ask("");
  assert.deepEqual(taken, []);
  const lane = (request, from, to) => ({ lane: 0, request, from, to });
  const [a, b, mine] = ["A", "B", "C"].map((letter, index) => ({
    ...{ id: letter, letter, index, isOwn: letter === "C", waits: [], arrived: 0, finished: null },
    laneSpans: [],
  }));
  const run = two();
  Object.assign(run, { requests: [a, b, mine] });
  run.laneSpans = /** @type {any} */ ([lane(a, 0, 0), lane(b, 1, 1), lane(mine, 2, Infinity)]);
  mine.laneSpans = /** @type {any} */ ([run.laneSpans[2]]);
  const told = (i, waiting) => {
    own.draw({ run, frame: { i, waiting: waiting.map((request) => ({ request })) } });
    return line.textContent;
  };
  assert.equal(told(1, [b, mine]), "C is you: you wait for a lane. Ahead of you: B");
  assert.equal(told(1, [mine]), "C is you: the next free lane is yours.");
  assert.match(told(2, []), /^C is you: you waited .+, until B was done\./);
  const answered = (reason, i) => {
    Object.assign(mine, { finished: { step: 1, reason }, maxNew: 5 });
    return told(i, [])
      .split(" was done.")[1]
      .split(" The model")[0]
      .replace(/ [\d.]+\s\w+\.$/, "");
  };
  assert.equal(answered("stop", 2), " You had your answer after");
  assert.equal(answered("length", 2), " Your answer was cut at its limit, 5 tokens, after");
  assert.equal(answered("cancelled", 2), "");
});
