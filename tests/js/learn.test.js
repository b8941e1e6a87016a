import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El, Event, finding, of } from "./elements.js";

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
const { Picture } = await import("../../assets/player/learn/picture.js");
const { Choose, Paint } = await import("../../assets/player/learn/questions.js");
const { sentence } = await import("../../assets/player/learn/sentences.js");
const { Stage } = await import("../../assets/player/learn/stage.js");
const { Progress } = await import("../../assets/player/learn/progress.js");
const { onSwipe } = await import("../../assets/player/learn/swipe.js");
const { Task } = await import("../../assets/player/learn/task.js");

test("of a table with more columns than fit the reader chooses the one beside the first", () => {
  globalThis.document = documentOf();
  const seen = (names) => {
    const head = names.map((name) => ({ name, url: null }));
    const box = Learn.prototype._table({ label: "Names", head, rows: [["lanes", ...names]] });
    const select = box.querySelector("select");
    const told = () =>
      box
        .querySelectorAll("tr")
        .map((row) => row.children.filter((cell) => !cell.hidden && cell.tagName === "TD"))
        .map((cells) => cells.map((cell) => cell.textContent).join());
    const chosen = (n) => {
      Object.assign(select, { selectedIndex: n }).dispatchEvent(new Event("change"));
      return told()[1];
    };
    return select ? [told()[1], chosen(2), chosen(0)] : [told()[1]];
  };
  assert.deepEqual(seen(["a_x", "b", "c", "d"]), ["a_x,b", "a_x,d", "a_x,b"]);
  assert.deepEqual(seen(["a", "b", "c"]), ["a,b,c"]);
});

test("the mark after a term begins no line", () => {
  globalThis.document = documentOf();
  const told = (...spans) =>
    sentence(/** @type {any} */ (spans), {}, { itl: {} }).map((part) => part.textContent ?? part);
  const itl = { t: "itl", s: "ITL" };
  assert.deepEqual(told("a worse ", itl, "."), ["a worse ", "ITL."]);
  assert.deepEqual(told(itl, "-Wert, 5"), ["ITL-", "Wert, 5"]);
  assert.deepEqual(told(itl, " grows."), ["ITL", " grows."]);
  assert.deepEqual(told({ t: "unknown", s: "ITL" }, ". Then"), ["ITL", ". Then"]);
});

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

test("a language that there is not is refused in a sentence, asked for nowhere and not kept", async () => {
  const stored = [];
  globalThis.localStorage = /** @type {any} */ ({ setItem: (...entry) => stored.push(entry) });
  const call = async () => ({ error: "There are no lessons in 'xx'." });
  const learn = Object.assign(Object.create(Learn.prototype), {
    options: { documents: {} },
    engines: { can: () => true, call },
  });
  await assert.rejects(learn.speak("xx"), { message: "There are no lessons in 'xx'" });
  assert.deepEqual(stored, []);
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

test("a sheet opens in a tab that cannot reach the page, a lesson in one file is saved by its name", async () => {
  const places = [];
  const tab = { opener: window, location: { replace: (place) => places.push(place) } };
  const links = [];
  globalThis.document = documentOf({
    baseURI: "https://page.test/learn/",
    createElement: (kind) => (links.push(new El(kind)), links.at(-1)),
  });
  window.open = () => (places.push("opened"), /** @type {any} */ (tab));
  const papers = { l: { "learner-de": "papers/l.html", "offline-de": "papers/one.html" } };
  const learn = { options: { papers }, engines: null, language: "de", watch: {} };
  await Home.prototype._paper.call({ learn }, { name: "l" }, "learner");
  assert.deepEqual(places.splice(0), ["opened", "https://page.test/learn/papers/l.html"]);
  assert.equal(tab.opener, null);
  await Home.prototype._paper.call({ learn }, { name: "l" }, "offline");
  assert.deepEqual(places, []);
  const has = (/** @type {string} */ name, engines = null) =>
    Home.prototype._hasPapers.call({ learn: { ...learn, engines } }, { name });
  const made = /** @type {any} */ ({ can: (what) => what === "lesson_file" });
  assert.deepEqual([has("l"), has("m"), has("m", made)], [true, false, true]);
  assert.deepEqual(
    ["href", "download"].map((name) => links[0].getAttribute(name)),
    ["papers/one.html", "one.html"],
  );
});

test("a double click passes one stop, and the way back has an end", () => {
  const [$, gone] = [finding(), []];
  Object.assign(window, { addEventListener() {} });
  const learn = Object.assign(Object.create(Learn.prototype), { $, go: (by) => gone.push(by) });
  learn._buttons();
  const press = (button, detail) =>
    $(button).dispatchEvent(Object.assign(new Event("click"), { detail }));
  for (const detail of [1, 2]) press(".next-button", detail);
  assert.deepEqual(gone.splice(0), [1]);
  press(".next-button", 0); // by a key
  press(".next-button", 3); // somebody pages on fast
  press(".back-button", 1);
  assert.deepEqual(gone, [1, 1, -1]);
});

test("what was on screen before a lesson is there after it, unless its run is kept or there was none", () => {
  const left = (keep, run) => {
    const done = [];
    const watch = { need() {}, restore: ({ name }) => done.push(name) };
    const stage = Object.assign(Object.create(Stage.prototype), {
      ...{ watch, page: { dataset: { views: "kv", veil: "say" } }, panels: [new El()] },
      before: { name: "theirs", shown: { run } },
    });
    stage.leave(keep);
    assert.deepEqual([stage.before, stage.page.dataset], [null, {}]);
    stage.leave(); // once more gives nothing back
    return done;
  };
  assert.deepEqual([left(false, {}), left(true, {}), left(false, null)], [["theirs"], [], []]);
});

test("a lesson's picture is drawn once, when it first comes into sight", async () => {
  const seen = [];
  globalThis.document = documentOf();
  globalThis.IntersectionObserver = /** @type {any} */ (
    class {
      constructor(act) {
        this.isOn = true;
        seen.push((isIntersecting) => this.isOn && act([{ isIntersecting }]));
      }
      observe() {}
      disconnect() {
        this.isOn = false;
      }
    }
  );
  const drawn = [];
  class Drawn extends Picture {
    _draw(_run, step, { views, clock }) {
      drawn.push([step, views, clock]);
    }
  }
  const replay = { header: {}, events: [] };
  const watch = { recorded: (run) => ({ url: run }), fetch: async () => replay };
  new Drawn(/** @type {any} */ (watch), { run: "r", step: 3, view: "kv", clock: true });
  for (const isIntersecting of [false, true, true]) await seen[0](isIntersecting);
  assert.deepEqual(drawn, [[3, ["kv"], true]]);
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
    learn: { engines: { call }, language: "de", lesson, at: 0, progress: new Progress() },
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
  assert.ok(paint.answer.hidden, "it was of what is painted no more");
  assert.equal(paint._isOn(0, 0), false);
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
  const sweep = (on, to, down = 0, more = {}) => {
    const target = { closest: (selectors) => selectors.split(", ").includes(on) };
    const finger = { pointerType: "touch", isPrimary: true, target, clientY: 50, ...more };
    heard.pointerdown({ ...finger, clientX: 200 });
    heard[more.end ?? "pointerup"]({ ...finger, clientX: to, clientY: 50 + down });
    if (more.end) heard.pointerup({ ...finger, clientX: to });
  };
  for (const on of [".paint", ".names"]) sweep(on, 40);
  assert.deepEqual(turned, []);
  sweep("p", 40);
  sweep("p", 360);
  sweep("p", 150); // a shaky tap
  assert.deepEqual(turned.splice(0), [1, -1]);
  sweep("p", 100, 60);
  sweep("p", 100, -60);
  assert.deepEqual(turned.splice(0), [1, 1]);
  sweep("p", 100, 61); // it scrolls
  sweep("p", 100, -61);
  sweep("p", 40, 0, { pointerType: "mouse" });
  sweep("p", 40, 0, { isPrimary: false });
  sweep("p", 40, 0, { end: "pointercancel" });
  assert.deepEqual(turned, []);
});

/** A task of a lesson, and what its visitor hears of it; runs meet what `meets` names. */
function taskOf(meets, progress = new Progress()) {
  const heard = {};
  globalThis.document = documentOf({ addEventListener: (name, act) => (heard[name] = act) });
  const [$, said] = [finding(), []];
  const stop = { text: [], goals: [{ name: "x", text: [] }], views: [] };
  const learn = {
    $,
    words: {
      ...{ task: "Task", solved: "Solved", solved_look: "Look.", next_lesson: "Next:" },
      ...{ goal_met: "Met:", goal_open: "Open:" },
    },
    doc: { terms: {} },
    options: { tabs: [1] },
    lesson: { name: "one", stops: [stop] },
    at: 0,
    progress,
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

test("a task that was solved in an earlier visit is still solved, whatever a later run shows", async () => {
  const progress = new Progress();
  const first = taskOf(["good"], progress);
  first.offer();
  first.task.begin();
  await first.ran("good");
  const { task, offer, ran } = taskOf([], progress);
  assert.match(offer(), /✓.*Next: Two/);
  task.begin();
  await ran("bad");
  task.end();
  const other = taskOf([]);
  other.offer();
  other.task.begin();
  await other.ran("bad");
  other.task.end();
  assert.match(other.offer(), /Open:/);
  assert.match(offer(), /✓.*Next: Two/);
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

test("whoever goes back to a lesson while the task's run goes on stays at the lesson's run", async () => {
  const { task, learn, offer } = taskOf([]);
  let stayed = 0;
  Object.assign(learn, {
    ...{
      task,
      page: { dataset: {} },
      stage: { enter() {} },
      _fit() {},
      _draw() {},
      _remember() {},
    },
  });
  Object.assign(learn.watch, { stay: () => (stayed += 1) });
  const back = () => Learn.prototype.open.call(learn, learn.lesson);
  offer();
  task.begin();
  await back(); // nothing was run
  assert.equal(stayed, 0);
  task.begin();
  learn.watch.running = true;
  await back();
  assert.equal(stayed, 1);
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
    progress: { add: (_, list) => list === "answered" && answered.push("found") },
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

test("arrows walk a painted mask to its edges, Enter checks it, and a drag paints as it began", () => {
  const line = ["a", "b", "c"].map((text) => ({ r: "A", text }));
  const cells = [0, 1].map((q) =>
    [0, 1, 2].map((k) => Object.assign(new El(), { dataset: { q: String(q), k: String(k) } })),
  );
  let checked = 0;
  const paint = of(Paint, {
    ...{ ask: { queries: line, keys: line }, words: {}, cells, at: [0, 1] },
    grid: Object.assign(new El(), { setPointerCapture() {} }),
    check: () => (checked += 1),
  });
  const key = (/** @type {string} */ name) => {
    const e = Object.assign(new Event("keydown", { cancelable: true }), { key: name });
    paint._key(e);
    return [e.defaultPrevented, ...paint.at];
  };
  for (const [name, ...expected] of /** @type {[string, boolean, number, number][]} */ ([
    ["ArrowUp", true, 0, 1],
    ["ArrowRight", true, 0, 2],
    ["ArrowRight", true, 0, 2],
    ["ArrowDown", true, 1, 2],
    ["ArrowDown", true, 1, 2],
    ["ArrowLeft", true, 1, 1],
    ["x", false, 1, 1],
  ]))
    assert.deepEqual(key(name), expected, name);
  const indices = cells.flat().map((/** @type {any} */ { tabIndex }) => tabIndex);
  assert.deepEqual(indices, [undefined, -1, -1, undefined, 0, -1]);
  assert.equal(checked, 0);
  key("Enter");
  assert.equal(checked, 1);
  /** @type {any} */
  let under = null;
  document.elementFromPoint = () => /** @type {any} */ ({ closest: () => under });
  paint._drag();
  const drag = (/** @type {any[]} */ ...over) => {
    const types = ["pointerdown", ...over.slice(1).map(() => "pointermove"), "pointerup"];
    const taken = types.map((type, n) => {
      under = over[n] ?? null;
      const e = new Event(type, { cancelable: true });
      paint.grid.dispatchEvent(Object.assign(e, { button: 0 }));
      return e.defaultPrevented;
    });
    const on = cells.map((row) => row.map((el) => Number(el.classes.has("on"))).join(""));
    return [taken[0], ...on, ...paint.at];
  };
  const [[a, b], [d, e, f]] = cells;
  assert.deepEqual(drag(b, e, null, f), [true, "010", "011", 0, 1]);
  assert.deepEqual(drag(f, d, a), [true, "010", "010", 1, 2], "what was painted is taken back");
  assert.deepEqual(drag(null, a), [false, "010", "010", 1, 2]);
});

test("a stop opens its run or turns to its step, with its request selected", async () => {
  const entry = { name: "six" };
  const requests = [{ letter: "A" }, { letter: "B" }];
  const shown = async (/** @type {any} */ stop, /** @type {any} */ more = {}) => {
    /** @type {any[]} */
    const did = [];
    const tell =
      (/** @type {string} */ name) =>
      (/** @type {any[]} */ ...what) => {
        did.push([name, ...what]);
      };
    const watch = {
      state: { layout: "desk", entry, run: { requests } },
      ...{ isTranslated: true, recorded: (name) => (name === "six" ? entry : undefined) },
      ...Object.fromEntries(
        ["pause", "missing", "open", "turnToStep", "pin", "chooseTab"].map((n) => [n, tell(n)]),
      ),
      ...more,
    };
    const page = { dataset: /** @type {any} */ ({}) };
    const stage = of(Stage, { watch, page, panels: [] });
    await stage.show({ run: "six", step: 3, views: ["row", "kv"], ...stop }, "say");
    assert.deepEqual(page.dataset, { veil: "say", views: "row kv" });
    assert.deepEqual(did.slice(0, 2), [["pause"], ["chooseTab", "kv"]]);
    return did.slice(2);
  };
  const open = (/** @type {any} */ pin) => [["open", entry, { step: 3, pin, tab: "kv" }]];
  assert.deepEqual(await shown({}), [["turnToStep", 3]]);
  assert.deepEqual(await shown({ pin: "B" }), [
    ["turnToStep", 3],
    ["pin", requests[1]],
  ]);
  assert.deepEqual(await shown({ pin: "Z" }), [
    ["turnToStep", 3],
    ["pin", null],
  ]);
  assert.deepEqual(await shown({ pin: "B" }, { isTranslated: false }), open("B"));
  assert.deepEqual(await shown({}, { state: { layout: "desk", entry: {} } }), open(undefined));
  assert.deepEqual(await shown({ run: "ten" }), [["missing", "ten"]]);
});

test("a lesson that asks nothing is never done", () => {
  assert.equal(new Progress().of({ name: "none", stops: [{}] }).done, false);
});

test("of a mask's mistakes those that were painted come first, and three are told", () => {
  const told = [];
  const line = ["a", "b", "c"].map((text, n) => ({ r: n ? "B" : "A", text }));
  const paint = Object.assign(Object.create(Paint.prototype), {
    ask: { allowed: ["100", "010", "011"], queries: line, keys: line, why: "" },
    words: { mistake_missing: "missing", mistake_other: "other", mistake_future: "future" },
    cells: line.map(() => line.map(() => new El())),
    judge: (_right, _verdict, said, reasons) =>
      told.push([said[0][0], reasons.map((r) => r.at(-1))]),
  });
  paint._set(1, 0, true); // B's of A
  paint._set(1, 2, true); // one that comes later
  paint.check();
  assert.deepEqual(told, [
    ["6 cells in red differ.", [" “a”: other", " “c”: future", " “a”: missing"]],
  ]);
  const wrong = paint.cells.flat().filter((el) => el.classes.has("wrong"));
  assert.equal(wrong.length, 6);
  paint._fill((q, k) => paint.ask.allowed[q][k] === "1");
  assert.ok(!paint.cells.flat().some((el) => el.classes.has("wrong")));
});

test("a stop's buttons, a swipe and a letter in its text do what they say", () => {
  const [$, did] = [finding(), []];
  const heard = (name) => (given) => did.push(given === undefined ? name : `${name} ${given}`);
  const requests = ["A", "B"].map((letter) => ({ letter }));
  const state = { run: { requests }, hovered: null };
  const learn = of(Learn, {
    ...{ $, go: heard("go"), close: heard("close"), enlarge: heard("enlarge"), large: true },
    ...{ speak: heard("speak"), _fitType: heard("fit") },
    watch: { state, hover: (to) => heard("hover")(to && to.request.letter) },
  });
  window.addEventListener = /** @type {any} */ ((name, act) => name === "resize" && act());
  learn._buttons();
  assert.deepEqual(did.splice(0), ["fit"], "at each change of the window's size");
  for (const [n, name] of ["next", "back", "lessons", "presenter"].entries()) {
    $(`.${name}-button`).dispatchEvent(Object.assign(new Event("click"), { detail: 1 }));
    assert.deepEqual(did.splice(0), [["go 1", "go -1", "close", "enlarge false"][n]]);
  }
  $(".next-button").dispatchEvent(new CustomEvent("click", { detail: 2 }));
  assert.deepEqual(did, [], "a double click skips no stop");
  $(".language").value = "de";
  $(".language").dispatchEvent(new Event("change"));
  assert.deepEqual(did.splice(0), ["speak de"]);
  const finger = (kind, clientX) => {
    const at = { clientX, clientY: 0, isPrimary: true, pointerType: "touch" };
    $(".stop-scroll").dispatchEvent(Object.assign(new Event(kind), at));
  };
  finger("pointerdown", 100);
  finger("pointerup", 20);
  assert.deepEqual(did.splice(0), ["go 1"]);
  let x = 0;
  const over = (letter) => {
    const card = $(".stop-card");
    card.closest = () => letter && { dataset: { letter } };
    card.dispatchEvent(Object.assign(new Event("pointerover"), { clientX: (x += 1), clientY: 0 }));
    return did.splice(0);
  };
  assert.deepEqual(over("B"), ["hover B"]);
  assert.deepEqual([over(null), over("C")], [[], []], "nothing is lit");
  state.hovered = requests[1];
  assert.deepEqual(over(null), ["hover null"]);
});
