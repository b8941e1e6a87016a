// What arrives after its visitor has left, stopped or chosen something else.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Sandbox } from "../../assets/engine/sandbox.js";
import { EquivalencePanel } from "../../assets/player/compare/equivalence.js";
import { PlanPanel } from "../../assets/player/compare/plan.js";
import { NewComparison } from "../../assets/player/compare/new_comparison.js";
import { BrowserEngine } from "../../assets/player/engine/browser_engine.js";
import { Engines } from "../../assets/player/engine/engines.js";
import { LoadingBar } from "../../assets/player/engine/loading_bar.js";
import { Teacher } from "../../assets/player/live/teacher.js";
import { Beside } from "../../assets/player/watch/beside.js";
import { Weights } from "../../assets/player/watch/weights.js";
import { Trials } from "../../assets/player/write/trials.js";
import { documentOf, El, Event, of } from "./elements.js";

globalThis.window = /** @type {any} */ ({});
await import("../../assets/player/parts/tabs.js");
const pageParts = /** @type {any} */ (window).inflightParts;
const { Write } = await import("../../assets/player/write/write.js");

const { setTimeout: wait } = globalThis; // not a test's own
const soon = () => new Promise((done) => wait(done));

/** A promise, and what settles it. */
function later() {
  let settle;
  const promise = new Promise((done, fail) => (settle = { done, fail }));
  return { promise, ...settle };
}

const NO_BAR = { open() {}, close() {}, progress() {} };

/** The engine in this tab, whose worker only hears: `last` is what it was asked to do. */
function engineHere(/** @type {any} */ bar = NO_BAR) {
  const posted = [];
  Object.assign(globalThis, {
    window: { addEventListener() {} },
    document: { baseURI: "http://page.test/" },
    location: { protocol: "http:" },
    Worker: class {
      postMessage(message) {
        posted.push(message);
      }
      terminate() {}
    },
  });
  const engine = new BrowserEngine("engine/", bar);
  const last = (what) => posted.filter((message) => message.do === what).at(-1);
  const hear = (kind, { id }, more = {}) => engine._hear({ kind, id, ...more });
  const ready = async (model) => {
    const loading = engine.ready(model);
    hear("ready", last("load"));
    await loading;
  };
  return { engine, last, hear, ready };
}

test("in the tab a job that waits is cancelled alone, and one that computes may end the engine", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { engine, ready } = engineHere();
  await ready("small");
  const first = await engine.begin("run", { model: "small" }, "");
  const second = await engine.begin("run", { model: "small" }, "");
  await engine.cancel(second); // before the worker, which is in a pass, has said that it waits
  t.mock.timers.tick(10_000);
  assert.ok(engine.worker);
  const said = [];
  for await (const delta of engine.follow(second)) said.push(delta);
  assert.deepEqual(said.at(-1), { done: true, stopped: "Cancelled." });
  await engine.cancel(first);
  t.mock.timers.tick(10_000);
  assert.equal(engine.worker, null);
});

test("a job that is cancelled has stopped, whatever its worker says then; another one has failed", async () => {
  const { engine, last, hear, ready } = engineHere();
  await ready("small");
  const ended = async (cancels) => {
    const job = await engine.begin("run", { model: "small" }, "");
    if (cancels) await engine.cancel(job);
    hear("failed", last("begin"), { sentence: "It broke." });
    const said = [];
    for await (const delta of engine.follow(job)) said.push(delta);
    engine.end();
    await ready("small");
    return said;
  };
  assert.deepEqual(await ended(false), [{ done: true, error: "It broke." }]);
  assert.deepEqual(await ended(true), [{ done: true, stopped: "It broke." }]);
});

test("whoever is cancelled leaves a load to the others who wait for it", async () => {
  const { engine, last, hear } = engineHere();
  const stop = new AbortController();
  const run = engine.begin("run", { model: "small", dtype: "float32" }, "");
  const small = last("load");
  const others = [engine.ready("", stop.signal), engine.ready("small", stop.signal)];
  stop.abort();
  for (const other of others) await assert.rejects(other, /Abort/);
  hear("ready", small);
  assert.match(await run, /^tab-job-/);
  assert.deepEqual(last("begin").spec, { model: "small" }, "its one number format needs no name");
});

test("a model's load is cancelled at once, beside what runs and is kept; the engine's ends the worker", async () => {
  let cancel = () => {};
  const { engine, last, hear, ready } = engineHere({ ...NO_BAR, open: (by) => (cancel = by) });
  await ready("small");
  await engine.begin("run", { model: "small" }, "");
  const stop = new AbortController();
  const [form, bar] = [engine.ready("large", stop.signal), engine.ready("other")];
  stop.abort();
  await assert.rejects(form, /Abort/);
  assert.equal(last("leave").model, "large");
  cancel();
  await assert.rejects(bar, /because that was cancelled/);
  assert.equal(last("leave").model, "other");
  assert.ok(engine.worker);
  const again = engine.ready("large");
  hear("ready", last("load"));
  await again;
  engine.end();
  const first = engine.ready("small");
  cancel();
  await assert.rejects(first, /because that was cancelled/);
  assert.equal(engine.worker, null);
});

test("a large model that was taken out of the browser is asked for again", async () => {
  let asked = 0;
  const offer = async () => Boolean((asked += 1));
  const { engine, last, hear } = engineHere({ ...NO_BAR, offer });
  const loads = async () => {
    const ready = engine.ready("large");
    if (!last("load").agreed) hear("failed", last("load"), { sentence: "", more: { size: 1e8 } });
    await soon();
    hear("ready", last("load"));
    await ready;
    return [last("load").agreed, asked];
  };
  assert.deepEqual(await loads(), [true, 1]);
  engine.end();
  assert.deepEqual(await loads(), [true, 1]);
  const removing = engine.remove("large");
  hear("answer", last("remove"));
  await removing;
  assert.deepEqual(await loads(), [true, 2]);
});

test("a load that begins or ends leaves the question about another model open", () => {
  const answers = [];
  const bar = of(LoadingBar, { _answer: (yes) => answers.push(yes) });
  bar.open(() => {});
  bar.close();
  assert.deepEqual(answers, []);
});

test("what is asked of an engine is cancelled before it has said anything, too", async () => {
  const cancelled = [];
  const [begun, gone] = [later(), later()];
  const tab = {
    begin: (_kind, _spec, _who, signal) =>
      Promise.race([
        begun.promise,
        new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason))),
      ]),
    async *follow() {
      await gone.promise;
      yield { done: true, stopped: "Cancelled here." };
    },
    cancel: async (job) => gone.done(cancelled.push(job)),
  };
  const engines = new Engines(/** @type {any} */ (tab), null, { models: ["m"] });
  const asked = (stop) => engines.ask("compare", { model: "m" }, "", () => {}, stop.signal);
  const loading = new AbortController();
  const first = asked(loading);
  loading.abort();
  await assert.rejects(first, /^Error: Cancelled\.$/);
  begun.done("tab-job-1");
  const going = new AbortController();
  const second = asked(going);
  await soon();
  going.abort();
  await assert.rejects(second, /Cancelled here/);
  assert.deepEqual(cancelled, ["tab-job-1"]);
});

test("a sandbox that was ended while it started is not what the next job waits for", async () => {
  const sandbox = new Sandbox(() => new Promise(() => {}), "small");
  const begin = () => {
    const stop = new AbortController();
    const job = sandbox.run("policy", {}, stop.signal).next();
    job.catch(() => {});
    return [stop, job];
  };
  const [stopped, job] = begin();
  await soon();
  stopped.abort();
  await assert.rejects(job, /Abort/);
  assert.ok(sandbox.waiting, "stopped, it is left to the next job");
  const [left, another] = begin();
  await soon();
  left.abort();
  sandbox.end(); // the part is left
  await assert.rejects(another, /Abort/);
  assert.equal(sandbox.waiting, undefined);
});

/** A job of a sandbox whose frame only hears: `say` is what its worker says. */
async function trial(/** @type {any} */ t) {
  const frame = Object.assign(new El("iframe"), { remove() {} });
  /** @type {any} */ let port;
  frame.contentWindow = { postMessage: (_handed, _origin, [given]) => (port = given) };
  globalThis.document = documentOf({ createElement: () => frame, body: new El() });
  t.mock.timers.enable({ apis: ["setInterval"] });
  const sandbox = new Sandbox(async () => ({}), "small");
  const job = sandbox.run("policy", {});
  const first = job.next();
  sandbox.warm = () => {}; // it starts no other
  t.after(() => sandbox.end());
  const say = async (message) => {
    port.postMessage(typeof message === "string" ? message : JSON.stringify(message));
    for (let n = 0; n < 3; n += 1) await soon();
  };
  await soon();
  frame.dispatchEvent(new Event("load"));
  for (const kind of ["started", "loading", "alive", "ready"]) await say({ kind, id: 1 });
  return { job, first, say };
}

test("a trial may take its time while it speaks, and is ended once it is silent for long", async (t) => {
  const { job, first, say } = await trial(t);
  const delta = { step: 1 };
  await say({ kind: "delta", id: 1, delta: { step: 9 } }); // of no job
  await say({ kind: "delta", id: 2, delta });
  assert.deepEqual((await first).value, delta);
  for (let n = 0; n < 2; n += 1) {
    const next = job.next();
    t.mock.timers.tick(4000);
    await say({ kind: "delta", id: 2, delta });
    assert.deepEqual((await next).value, delta);
  }
  const silent = job.next();
  t.mock.timers.tick(6500);
  await assert.rejects(silent, /Nothing was heard from this code for 6 seconds/);
});

test("what a stranger's code answers is short, and of a known kind", async (t) => {
  const failed = async (...messages) => {
    const { first, say } = await trial(t);
    const reason = first.then(
      ({ value }) => value,
      (error) => error.message,
    );
    for (const message of messages) await say(message);
    t.mock.timers.reset();
    return reason;
  };
  const odd = "This code answered with something that is not an answer.";
  assert.equal(
    await failed({ kind: "failed", id: 2, sentence: "x".repeat(5000) }),
    "x".repeat(1000),
  );
  assert.equal(await failed({ kind: "failed", id: 2, sentence: ["x"] }), odd);
  assert.equal(await failed({ kind: "delta", id: 2, delta: [1] }), odd);
  assert.equal(await failed({ kind: "delta", id: 2, delta: "1" }), odd);
  assert.equal(await failed({ kind: "answer", id: 2, value: 1 }), odd);
  assert.equal(await failed("no JSON"), odd);
  const delta = { done: true };
  const alive = { kind: "alive" };
  assert.deepEqual(await failed(alive, { kind: "delta", id: 2, delta, more: "<b>" }), delta);
});

test("the page's engine that took a picture of the interpreter is ended unless somebody has used it", async () => {
  const ended = async (used) => {
    const tab = {
      worker: null,
      requests: 4,
      isEnded: false,
      async ready() {
        this.requests += 1;
      },
      end() {
        this.isEnded = true;
      },
    };
    const looks = [null, null, "a picture"];
    const files = { manifest() {}, keeps: true, snapshot: async () => looks.shift() };
    const trials = new Trials({ engine: "", model: "" }, () => /** @type {any} */ (tab));
    const pictured = trials._pictured(files, undefined);
    await soon();
    if (used) tab.requests += 2; // a run: its model, and itself
    await pictured;
    return tab.isEnded;
  };
  assert.deepEqual([await ended(false), await ended(true)], [true, false]);
});

test("a part that was left before its script came is not shown, and Watch does not play on unseen", async () => {
  const [arrived, page] = [later(), { dataset: {} }];
  const shown = [];
  const watch = { pause: () => shown.push("paused"), follow() {}, redraw() {} };
  Object.assign(globalThis, {
    window: { addEventListener() {}, slow: () => arrived.promise, inflightWatch: watch },
    document: {
      documentElement: page,
      addEventListener() {},
      querySelector: () => null,
      createElement: () => ({}),
    },
    location: { hash: "" },
  });
  const parts = { slow: { mounts: "slow", options: {} } };
  const open = pageParts({ append() {} }, parts);
  const opening = open("slow");
  await open("watch");
  arrived.done({ shown: () => shown.push("slow") });
  await opening;
  assert.deepEqual([page.dataset.part, shown.splice(0)], ["watch", ["paused"]]);
  await open("slow");
  assert.deepEqual([page.dataset.part, shown.splice(0)], ["slow", ["paused", "slow"]]);
  await open("slow");
  assert.deepEqual(shown, ["slow"]);
});

test("a language that could not be fetched leaves the part that speaks it as it is", async () => {
  let [mounts, isAway] = [0, true];
  const heard = {};
  const speak = async () => {
    if (isAway) throw new Error("The server cannot be reached.");
  };
  Object.assign(globalThis, {
    window: {
      addEventListener() {},
      inflightWatch: { toast: () => (isAway = false) },
      make: () => (mounts += 1) && { speak },
    },
    document: {
      documentElement: { dataset: {} },
      addEventListener: (name, act) => (heard[name] = act),
      querySelector: () => null,
      createElement: () => ({}),
    },
    location: { hash: "", search: "" },
  });
  const tabs = [{ name: "learn", speaks: {} }];
  pageParts({ append() {} }, { learn: { mounts: "make", options: { tabs } } });
  for (let n = 0; n < 2; n += 1) await heard["inflight-language"]({ detail: { language: "de" } });
  assert.deepEqual([mounts, isAway], [1, false]);
});

test("a trial and its picture are of the code that is in the field", async () => {
  const [task, came, drawn] = [{ name: "a" }, later(), []];
  globalThis.location = /** @type {any} */ ({ hash: "#part=write&task=a&code=xyz" });
  const write = of(Write, {
    task,
    came: null,
    code: { code: "mine", mark() {} },
    own: { keep: () => drawn.push("done") },
    outcome: { begin() {}, clear() {}, say() {}, named() {}, show: () => drawn.push("goals") },
    trials: {
      async *run() {
        await came.promise;
        yield { done: true, attempt: { goals: [] } };
      },
    },
    ...Object.fromEntries(["_acts", "_draw", "_remember"].map((name) => [name, () => {}])),
  });
  const running = write.run();
  write.entry = { written: "a" };
  write.open(task, "of a link");
  came.done();
  await running;
  assert.deepEqual([write.code.code, write.entry, drawn], ["of a link", null, []]);
  write.entry = { written: "a" };
  write.open(task, "of a link"); // its visitor is back from another part
  assert.ok(write.entry);
});

test("an equivalence belongs to the comparison that it was measured for", async () => {
  const measured = later();
  const said = [];
  const panel = of(EquivalencePanel, {
    kept: {},
    leak: { checked: false },
    options: { base: () => ({}), ask: () => measured.promise },
    $: () => ({}),
    say() {},
    _message: (words) => said.push(words),
  });
  const [first, other] = [{}, {}];
  panel.el = {};
  panel.show(first);
  const running = panel._run();
  panel.show(other);
  measured.done({ result: "of the first" });
  await running;
  panel.show(first);
  assert.deepEqual(
    [panel.kept, other, said],
    [{ honest: "of the first" }, {}, ["", "starting", "", ""]],
  );
});

test("a plan that is on its way is cancelled by the offer to plan another run", async () => {
  const field = { value: "" };
  const answer = (_kind, _spec, _told, signal) =>
    new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
  const shown = [];
  const plan = of(PlanPanel, {
    run: "a",
    el: { hasAttribute: () => false, toggleAttribute() {} },
    options: { ask: answer, done: (url) => shown.push(url) },
    $: () => field,
    _message() {},
  });
  const running = plan._run();
  plan.offer({ run: "b", tried: { lanes: "8" } });
  await running;
  assert.deepEqual([plan.run, field.value, shown], ["b", "8", []]);
});

test("in another language a form says what is chosen again, and what was typed stays", async () => {
  const preset = { name: "six", shows: "Six.", spec: { config: { max_num_seqs: 4 } } };
  const said = [];
  const form = of(NewComparison, {
    presets: [preset],
    note: "",
    options: { watched: () => Promise.reject(new Error("Nothing to run.")) },
    fields: { preset: { value: "six" }, max_num_seqs: { value: "7" } },
    drawer: { say: (...words) => said.push(words) },
    $: () => ({ firstChild: null, childNodes: [] }),
  });
  assert.equal(await form._say(), preset.spec);
  assert.deepEqual([form.fields.max_num_seqs.value, said], ["7", [["", false]]]);
  form.fields.preset.value = "";
  const gone = form._say();
  form.fields.preset.value = "six"; // chosen before the other was found to have nothing
  assert.equal(await gone, null);
  assert.equal(said.length, 1);
});

test("weights are asked of the layer that they are kept under, and of no other run", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = [];
  const app = {
    runId: "a",
    engines: { can: () => true, call: async (...what) => asked.push(what) && { segments: [] } },
    leak: {},
    run: { header: { model: { layers: 2 } } },
    transport: {},
    lanes: {},
    redraw() {},
  };
  const weights = new Weights(/** @type {any} */ (app));
  const look = () =>
    weights.state(/** @type {any} */ ({ event: { step: 3 } }), /** @type {any} */ ({ index: 0 }));
  [weights.on, weights.layer] = [true, 1];
  look();
  weights.layer = 0; // before it was asked
  t.mock.timers.tick(1000);
  await soon();
  assert.deepEqual(
    [asked, [...weights.known.keys()]],
    [[["attention", "a", 3, 0, 1, 0]], ["3/0/1/0"]],
  );
  look();
  weights.reset(); // another run is on screen
  t.mock.timers.tick(1000);
  assert.equal(asked.length, 1);
});

test("a teacher's token is tried until the server has answered, and forgotten if it is wrong", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const kept = new Map();
  globalThis.sessionStorage = /** @type {any} */ ({
    setItem: (key, text) => kept.set(key, text),
    removeItem: (key) => kept.delete(key),
  });
  const answers = [new Error("The server cannot be reached."), { status: 503 }, { bursts: [] }];
  const get = async () => {
    const answer = answers.shift();
    if (!answer?.bursts) throw answer;
    return answer;
  };
  const teacher = of(Teacher, {
    token: "",
    isOn: false,
    _asking: 0,
    live: { server: { get }, redraw() {}, address() {} },
    _build() {},
    _toggle() {},
  });
  teacher.read(new URLSearchParams("teacher=secret"));
  for (let n = 0; n < 2; n += 1) {
    await soon();
    assert.deepEqual([teacher.isOn, [...kept.values()]], [false, ["secret"]]);
    t.mock.timers.tick(5000);
  }
  await soon();
  assert.ok(teacher.isOn);
  teacher.isOn = false;
  answers.push({ status: 403 });
  teacher.read(new URLSearchParams());
  await soon();
  t.mock.timers.tick(5000);
  assert.deepEqual([teacher.token, kept.size, teacher.isOn], ["", 0, false]);
  answers.push(new Error("The server cannot be reached."));
  let told = "";
  teacher._ask = (sentence) => (told = sentence);
  await teacher._begin("typed", true);
  assert.deepEqual([teacher.token, told], ["", "The server cannot be reached."]);

  const asked = {};
  teacher.live.server.get = (_path, { "X-Teacher-Token": token }) =>
    (asked[token] = later()).promise;
  const [old, right] = [teacher._begin("old"), teacher._begin("right", true)];
  asked.right.done({});
  await right;
  asked.old.fail({ status: 403 });
  await old;
  assert.deepEqual([teacher.isOn, teacher.token, [...kept.values()]], [true, "right", ["right"]]);
});

test("a comparison that comes once another run is on screen is not put below it", async () => {
  Object.assign(globalThis, {
    localStorage: { getItem: () => null },
    location: { hash: "", search: "" },
  });
  const opened = [];
  const app = {
    ...{ run: {}, entry: { racer: "static" }, index: 0 },
    options: { comparisons: [{ name: "c", url: "c" }] },
    pair: { open: (given) => opened.push(given) },
  };
  let asked = later();
  app.fetch = () => asked.promise;
  const beside = of(Beside, { app });
  const left = beside._recorded("c");
  app.run = {};
  asked.done({});
  await left;
  assert.equal(opened.length, 0);
  asked = later();
  const stayed = beside._recorded("c");
  asked.done({});
  await assert.rejects(stayed, TypeError, "with the same run on screen the comparison is read");
});

test("a run of the form says how it goes, and is kept and addressed only if it is what is on screen at its end", async () => {
  const { Editor } = await import("../../assets/player/watch/editor.js");
  const asked = async ({
    isOpen = true,
    ran = true,
    left = false,
    ended = {},
    changed = false,
    said = [],
  }) => {
    const did = [];
    const heard =
      (name) =>
      (...given) =>
        did.push([name, ...given].join(" "));
    const run = { run: "its" };
    const live = { run: null, ended: ended && { run, entry: ended } };
    const app = /** @type {any} */ ({
      ...{ live, running: false, toast: (words) => did.push(`toast ${words}`) },
      ...{ bar: { marks: heard("marks") }, address: { write: heard("address") } },
    });
    const button = { textContent: "" };
    const editor = of(Editor, {
      ...{ app, model: { weigh: heard("weigh") }, titleOf: () => "a title", asShown: null },
      frame: {
        busy: heard("busy"),
        say: heard("say"),
        progress: heard("progress"),
        isOpen,
        button,
      },
      keep: async (kept, entry, spec, title) => did.push(`keep ${kept === run} ${title}`),
      spec: () => ({ a: changed ? 2 : 1 }),
    });
    const start = async (tell) => {
      for (const [what, ...given] of said) tell[what](...given);
      live.run = run;
      app.run = left ? {} : run;
      return ran;
    };
    assert.equal(await editor._running({ a: 1 }, "It starts.", start), ran);
    return [did.join(" · "), editor.asShown, button.textContent];
  };
  const whole = "busy true · say It starts. · busy false · weigh";
  const kept = `${whole} · keep true a title · marks`;
  assert.deepEqual(await asked({}), [`${kept} · address`, '{"a":1}', "Run"]);
  assert.equal((await asked({ changed: true }))[2], "Run these changes");
  assert.deepEqual(await asked({ left: true }), [kept, null, ""]);
  assert.deepEqual(await asked({ ran: false }), [whole, null, ""]);
  assert.deepEqual((await asked({ ended: null }))[0], `${whole} · address`);
  const said = [
    ["progress", 0.5, "Half."],
    ["done", "Done."],
    ["failed", "It failed.", null],
  ];
  const begins = "busy true · say It starts.";
  const ends = "busy false · weigh";
  assert.equal(
    (await asked({ said, ran: false }))[0],
    `${begins} · progress 0.5 · say Half. · say Done. · say It failed. true  · ${ends}`,
  );
  assert.equal(
    (await asked({ said, ran: false, isOpen: false }))[0],
    `${begins} · progress 0.5 · say Half. · toast Half. · say Done. · say It failed. true  · toast It failed. · ${ends}`,
  );
  const busy = { running: true, toast: (words) => assert.match(words, /already in progress/) };
  assert.equal(await of(Editor, { app: busy })._running({}, "", () => {}), false);
});

test("while a leak is run it says how far that is; without a kept run it says why", async () => {
  const { Leak } = await import("../../assets/player/watch/leak.js");
  const asked = [];
  const after = async (answer, { spec = {}, steps = [], ...more } = {}) => {
    const [told, toasts] = [[], []];
    const leak = of(Leak, {
      _tell: (words) => told.push(words),
      app: {
        ...{ pair: {}, run: { header: {} }, entry: null, visit: { visitor: "me" }, ...more },
        ...{ toast: (sentence) => toasts.push(sentence), fetch: () => new Promise(() => {}) },
        editor: { specOnScreen: async () => spec },
        engines: {
          async ask(...given) {
            asked.push(given.slice(0, 3));
            for (const step of steps) given[3](step);
            return answer;
          },
        },
      },
    });
    await leak.toggle();
    return [told, toasts];
  };
  const steps = [
    { step: null, loading: {} },
    { step: null, ahead: 2 },
    { step: null },
    { step: 7 },
  ];
  const words = ["loading the model", "2 ahead", "starting", "step 7"];
  assert.deepEqual(await after({}, { spec: { a: 1 }, steps }), [
    ["starting", ...words, ""],
    ["the server kept nothing"],
  ]);
  assert.deepEqual(asked.splice(0), [["leak", { a: 1 }, "me"]]);
  assert.deepEqual((await after({ unkept: "It is full." }))[1], ["It is full."]);
  asked.length = 0;
  assert.deepEqual(await after({}, { spec: null }), [["starting", ""], []]);
  const flips = [];
  const pair = { leaks: true, other: {}, flip: () => flips.push("flipped") };
  assert.deepEqual(await after({}, { pair }), [[], []]);
  assert.deepEqual(await after({}, { run: { header: { leak: true } } }), [[], []], "it leaks");
  assert.deepEqual([flips, asked], [["flipped"], []]);
});
