// What Watch does at a key or a press, and what it says then, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf, El, Event, finding, of, soon } from "./elements.js";
import { admissions, arrivals, event, runOf } from "./worlds.js";

/** @type {Record<string, (e: any) => void>} */
const keys = {};
Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: documentOf({ addEventListener: (name, act) => (keys[name] = act) }),
  location: { hash: "", search: "", href: "http://x/", origin: "http://x", protocol: "http:" },
});
await import("../../assets/player/parts/tabs.js");
const pageParts = /** @type {any} */ (window).inflightParts;
const { writeAddress } = await import("../../assets/player/parts/link.js");
const { Ask } = await import("../../assets/player/watch/ask.js");
const { Bar } = await import("../../assets/player/watch/bar.js");
const { Beside } = await import("../../assets/player/watch/beside.js");
const { Detail } = await import("../../assets/player/watch/detail.js");
const { Happens, paceOf } = await import("../../assets/player/watch/happens.js");
const { keepFitted, setAxis } = await import("../../assets/player/watch/layout.js");
const { Live } = await import("../../assets/player/watch/live.js");
const { Motion } = await import("../../assets/player/watch/motion.js");
const { pageActions } = await import("../../assets/player/watch/page_actions.js");
const { Cursor } = await import("../../assets/player/watch/pointing.js");
const { focusView } = await import("../../assets/player/watch/presenter.js");
const { Ranks } = await import("../../assets/player/watch/ranks.js");
const { showSlow } = await import("../../assets/player/watch/slow.js");
const { playerKeys, Transport } = await import("../../assets/player/watch/transport.js");
const { viewState } = await import("../../assets/player/watch/view_state.js");
const { none, playerOf } = await import("./players.js");

test("an arrow takes a step, with Shift ten, either way; other keys go where they say", () => {
  const went = [];
  const app = playerOf(
    { run: { length: 99 }, index: 40 },
    {
      ranks: { all: false },
      root: { getClientRects: () => [1], querySelector: () => null, classList: { add: none } },
      step: (by) => went.push(by),
      seek: (to) => went.push(`to ${to}`),
    },
  );
  app.transport = of(Transport, { app });
  playerKeys(app);
  const after = (key, shiftKey = false) => {
    keys.keydown({ key, shiftKey, target: { tagName: "DIV" }, preventDefault: none });
    return went.splice(0);
  };
  assert.deepEqual(
    ["ArrowRight", "ArrowLeft"].flatMap((key) => after(key)),
    [1, -1],
  );
  assert.deepEqual(
    ["ArrowRight", "ArrowLeft"].flatMap((key) => after(key, true)),
    [10, -10],
  );
  assert.deepEqual(
    ["PageUp", "PageDown", "Home", "End"].flatMap((key) => after(key)),
    ["to 30", "to 50", "to 0", "to Infinity"],
  );
});

test("every key of the list of keys does something, and no other key", () => {
  /** @type {any} */
  const all = new Proxy(none, { get: () => all, apply: () => all });
  const [handled, card] = [[], Object.assign(new El(), { showModal: none })];
  const root = {
    getClientRects: () => [1],
    querySelector: (what) => (what === "dialog.card" ? card : null),
    classList: { add: (name) => handled.push(name) },
  };
  const app = new Proxy(
    { frame: null, presenter: false, root },
    { get: (given, name) => (name in given ? given[name] : all) },
  );
  Object.assign(app, { transport: { act: Boolean } });
  playerKeys(/** @type {any} */ (app));
  const press = (key) => {
    keys.keydown({ key, target: { tagName: "DIV" }, preventDefault: none });
    return handled.splice(0).length;
  };
  press("?");
  const listed = card.querySelectorAll("kbd").map((el) => el.textContent);
  const arrows = { "←": "ArrowLeft", "→": "ArrowRight", "−": "-" };
  const named = { ...arrows, PgUp: "PageUp", PgDn: "PageDown", Space: " " };
  const [dead, spoken] = [[], ["…", "click", "Tab"]];
  for (const key of listed.filter((key) => !spoken.includes(key)))
    if (!press(named[key] ?? key)) dead.push(key);
  assert.deepEqual([listed.length, dead, press("y"), press("Enter")], [30, [], 0, 0]);
});

test("a step that a lesson turns to has nothing selected, and moves from the one before", () => {
  const [run, moved] = [runOf([event(0), event(1), event(2)]), []];
  const app = playerOf(
    { run, index: 0, pinned: { id: "a" }, pass: Infinity },
    {
      mask: { zoom: { view: [] } },
      tooltip: { el: {}, hide: none },
      transport: { track: run },
      ranks: {},
      motion: { settle: none, went: (...how) => moved.push(how) },
    },
  );
  pageActions(app).turnToStep(1);
  assert.deepEqual([app.index, app.pinned, app.mask.zoom, moved], [1, null, null, [[0, 1, true]]]);
});

test("behind the newest step one is by so many as come after the one on screen", () => {
  const run = runOf([event(0), event(1), event(2), event(3)]);
  const badge = new El();
  const said = (index, following, shown = run) => {
    const app = playerOf({ run: shown, index, following }, { ranks: {}, $: () => badge });
    app.transport = of(Transport, { app });
    app.store.set({ edge: { going: true, run } });
    of(Live, { app }).draw();
    return [badge.textContent, badge.classes.has("behind"), badge.hidden];
  };
  assert.deepEqual(said(3, true), ["live", false, false]);
  assert.deepEqual(said(1, false), ["2 behind: back to live", true, false]);
  assert.deepEqual(said(3, false), ["back to live", true, false]);
  assert.deepEqual(said(1, false, runOf([event(0), event(1)])), ["back to live", true, false]);
});

test("of more requests than a table has rows, those that were found are counted", () => {
  const ids = Array.from({ length: 205 }, (_, n) => `r${n}`);
  const run = runOf([event(0, { arrived: arrivals(...ids) })]);
  const time = { us: [1e6], steps: [1], queued: {}, uncompared: 0, ended: true };
  run.delays = /** @type {any} */ ({
    parts: [["decode", "decode", "answers"]],
    limits: {},
    worst: [],
    requests: Object.fromEntries(ids.map((id) => [id, time])),
  });
  const dialog = Object.assign(new El("dialog"), { showModal: none });
  showSlow({ run, root: { querySelector: () => dialog }, pinned: null });
  const [field, says] = [dialog.querySelector("input"), dialog.querySelector(".slow-says")];
  const shown = (piece) => {
    field.value = piece;
    field.dispatchEvent(new Event("input"));
    return [dialog.querySelectorAll(".slow-id").length, !says.hidden && says.textContent];
  };
  assert.deepEqual(shown(""), [200, "and 5 more, which “show --delays” prints"]);
  assert.deepEqual(shown("r20"), [6, false]);
  assert.deepEqual(shown("nobody"), [0, "No request has this as its letter or in its id."]);
});

test("a link opens Full only where it names what Simple has no place for", () => {
  globalThis.localStorage = /** @type {any} */ ({ getItem: () => null });
  const shown = (hash) => {
    const root = { dataset: {}, querySelectorAll: () => [] };
    const detail = new Detail(playerOf({}, { options: {}, root }));
    detail.follow(new URLSearchParams(hash));
    return root.dataset.detail;
  };
  const full = ["rank=0", "layer=1", "request=x", "axis=time", "view=kv", "tab=queue"];
  const simple = ["axis=steps", "view=mask", "tab=text", "step=3", "detail=odd"];
  assert.deepEqual([...new Set(full.map(shown))], ["full"]);
  assert.deepEqual([...new Set(simple.map(shown))], ["simple"]);
  assert.equal(shown("layer=1&detail=simple"), "simple");
});

test("keys that come back to a picture explain again what stands where they left it", () => {
  const hovered = [];
  const surface = { canvas: { parentElement: new El() }, visible: true };
  const places = [0, 10].map((x) => ({ x, y: 0, w: 8, h: 8 }));
  const view = { surface, places: () => places, hit: (x) => ({ request: null, lines: [], x }) };
  const app = playerOf({ run: {} }, { frame: { i: 0 }, hover: (found) => hovered.push(found?.x) });
  const cursor = new Cursor(app, /** @type {any} */ (view), "tokens");
  const { el } = cursor;
  Object.assign(el, { matches: () => true, getBoundingClientRect: () => ({ left: 0, top: 0 }) });
  const after = (type, more = {}) => {
    document.activeElement = type === "blur" ? null : /** @type {any} */ (el);
    el.dispatchEvent(Object.assign(new Event(type), more));
    return hovered.splice(0);
  };
  assert.deepEqual(after("focus"), [4]);
  assert.deepEqual(after("keydown", { key: "ArrowRight" }), [14]);
  assert.deepEqual(after("keydown", { key: "ArrowRight" }), [], "it is the last");
  assert.deepEqual([after("blur"), after("focus")], [[undefined], [14]]);
});

test("a part whose script could not be fetched is fetched again when it is opened again", async () => {
  let [tries, shown] = [0, 0];
  const toasts = [];
  const page = { dataset: {} };
  const head = {
    append: (script) => {
      tries += 1;
      if (tries > 1) window.late = () => ({ shown: () => (shown += 1) });
      soon().then(() => script.dispatchEvent(new Event(tries > 1 ? "load" : "error")));
    },
  };
  Object.assign(globalThis, {
    window: {
      addEventListener() {},
      inflightWatch: { pause: none, toast: (words) => toasts.push(words) },
    },
    document: documentOf({ documentElement: page, head }),
  });
  const parts = { late: { script: "late.js", mounts: "late", options: {} } };
  const open = pageParts({ append: none }, parts);
  await open("late");
  assert.deepEqual(
    [page.dataset.part, toasts],
    ["watch", ["This part could not be opened: the script could not be fetched."]],
  );
  await open("late");
  await open("late");
  assert.deepEqual([page.dataset.part, tries, shown], ["late", 2, 2]);
});

test("a rank between two of its steps is said to be idle after the one that ended", () => {
  const ranked = (now) => {
    const runs = [0, 1].map(() => runOf([event(2), event(5)]));
    const app = playerOf({ run: runs[0], index: 0 }, { detail: {} });
    const members = runs.map((run, rank) => ({ rank, offset: 0, run }));
    const moment = new El();
    const ranks = of(Ranks, { app, members, from: 0, span: 6, moment });
    ranks.hold(now);
    ranks.draw();
    return moment.textContent.replace(/^.*: /, "");
  };
  assert.equal(ranked(1), "before its first step");
  assert.equal(ranked(3), "idle after step 2");
  assert.equal(ranked(6), "idle after step 5");
  assert.match(ranked(2.25), /^All ranks at 2\.25 of/);
});

test("one view stands alone until its key is pressed again, or another's; a seventh there is not", () => {
  const app = { root: { dataset: {} }, redraw: none, changed: none };
  const after = (/** @type {any} */ view) => (
    focusView(/** @type {any} */ (app), view),
    app.root.dataset.focusView
  );
  assert.deepEqual([1, 1, 2, 6, "mask", 7, null].map(after), [
    "row",
    undefined,
    "mask",
    "lanes",
    "mask",
    "mask",
    undefined,
  ]);
});

test("the button of the axis says which it is, and is pressed on that of time", () => {
  const button = new El("button");
  const app = playerOf({}, { $: () => button });
  const after = (clock) => {
    setAxis(app, clock);
    return [app.clock, button.textContent, button.getAttribute("aria-pressed")];
  };
  assert.deepEqual(after(true), [true, "Axis: time", "true"]);
  assert.deepEqual(after(false), [false, "Axis: steps", "false"]);
});

test("a step that is not taken does not move, and one that is moves its own way", () => {
  globalThis.matchMedia = /** @type {any} */ (() => ({ matches: false }));
  const moved = [];
  const root = { getClientRects: () => [1] };
  const app = { root, ranks: {}, lanes: {}, strip: {}, transport: {}, redraw: none };
  const motion = new Motion(/** @type {any} */ (app));
  motion._run = (...how) => moved.push(how.slice(0, 3).join());
  const after = (from, to, more = {}) => {
    Object.assign(app, { lanes: {}, ranks: {}, ...more });
    motion._last = -Infinity;
    motion.went(from, to, true);
    return moved.splice(0).join();
  };
  assert.deepEqual([after(3, 4), after(4, 3)], ["4,0,1", "4,1,0"]);
  assert.deepEqual([after(4, 4), after(4, 6)], ["", ""]);
  assert.deepEqual(
    [after(3, 4, { lanes: { dragging: true } }), after(3, 4, { ranks: { current: {} } })],
    ["", ""],
  );
});

test("an address names a layer that the model has, counted from 0, and a step that is there", () => {
  const run = runOf([event(2), event(4)]);
  run.windows = [null, 128];
  const looked = (wanted) => {
    const app = playerOf({ run, index: 0 }, { mask: { layer: null } });
    app.look(wanted);
    return [app.index, app.mask.layer];
  };
  assert.deepEqual(
    [0, 1, 2].map((layer) => looked({ layer })[1]),
    [0, 1, null],
  );
  assert.deepEqual(
    [4, 3, 99].map((step) => looked({ step })[0]),
    [1, 0, 1],
  );
});

test("Escape closes a card of a question mark and nothing behind it, and other keys pass", () => {
  const app = { root: Object.assign(new El(), { querySelectorAll: () => [] }) };
  const { note } = new Ask(/** @type {any} */ (app));
  const stopped = (key) => {
    let stops = false;
    const e = Object.assign(new Event("keydown"), { key, stopPropagation: () => (stops = true) });
    note.dispatchEvent(e);
    return stops;
  };
  assert.deepEqual(["Escape", "Enter", "Tab"].map(stopped), [true, false, false]);
});

test("what happens is said on the one panel where it is seen, and on none once play goes on", () => {
  const panels = Object.fromEntries(
    ["kv", "lanes", "text", "row"].map((name) => [`.panel.${name}`, new El()]),
  );
  for (const panel of Object.values(panels)) Object.assign(panel, { getClientRects: () => [1] });
  const run = runOf([
    event(0, { arrived: arrivals("a"), admitted: [{ request: "a", lane: 0, why: {} }] }),
    event(1, { preempted: [{ request: "a", lane: 0 }] }),
    event(2),
  ]);
  const app = { $: (name) => panels[name], following: false, transport: { played: 0 } };
  const happens = new Happens(/** @type {any} */ (app));
  const shown = (index, simple = true) => {
    app.transport.played = index;
    happens.draw(/** @type {any} */ ({ run, frame: { event: run.events[index] }, index, simple }));
    return Object.entries(panels)
      .filter(([, panel]) => panel.classes.has("happens"))
      .map(([name, panel]) => `${name} ${panel.textContent}`);
  };
  assert.deepEqual(shown(0), [".panel.lanes A takes a lane"]);
  assert.deepEqual(shown(1), [".panel.kv A gives the memory back"]);
  assert.deepEqual([shown(2), shown(0, false)], [[], []]);
});

test("beside a lesson type is large as in the presenter, and what plays fast is drawn fast", () => {
  const run = runOf([event(0), event(1)]);
  const state = (given, more = {}) => {
    const app = playerOf(
      { run, ...given },
      {
        ...{ lanes: {}, strip: {}, pair: {}, leak: {}, ranks: {}, speech: {} },
        weights: { state: none },
        transport: { playing: false, speed: 2 },
        root: { dataset: {} },
        ...more,
      },
    );
    const { presenter, fast } = viewState(app);
    return [presenter, Boolean(fast)];
  };
  assert.deepEqual(state({}), [false, false]);
  assert.deepEqual([state({ large: true })[0], state({ presenter: true })[0]], [true, true]);
  const plays = (speed) => state({}, { transport: { playing: true, speed } })[1];
  assert.deepEqual([8, 15].map(plays), [false, true]);
  assert.ok(state({}, { lanes: { dragging: true } })[1]);
});

test("Back returns to another page of the same part, not to that of another part", () => {
  let turned = 0;
  globalThis.history = /** @type {any} */ ({ pushState: () => (turned += 1), replaceState: none });
  const writes = (from, to, written) => {
    turned = 0;
    Object.assign(location, { hash: from });
    writeAddress(new URLSearchParams(to), "lesson", written);
    return turned;
  };
  assert.equal(writes("#part=learn&lesson=a", "part=learn&lesson=b", "#x"), 1);
  assert.equal(writes("#part=learn&lesson=a", "part=learn&lesson=a&stop=2", "#x"), 0);
  assert.equal(
    writes("#part=learn&lesson=a", "part=learn&lesson=b", undefined),
    0,
    "it wrote none yet",
  );
  assert.equal(writes("#part=compare", "part=learn&lesson=b", "#x"), 0);
  Object.assign(location, { hash: "" });
});

test("of many who wait the longest are named, the others counted, and all are in the sum", () => {
  const ids = ["a", "b", "c", "d"];
  const run = runOf(
    [
      event(0, { arrived: arrivals(...ids), admitted: [{ request: "a", lane: 0, why: {} }] }),
      event(1),
      event(2, { admitted: [{ request: "b", lane: 1, why: {} }] }),
      event(3),
    ],
    {},
    { policy: "continuous" },
  );
  const told = (layout) => {
    const line = new El();
    of(Beside, {})._tell(line, /** @type {any} */ ({ layout, clock: false }), run, 3);
    return line.children.map((child) => child.textContent);
  };
  const [name, ...longest] = ["continuous", "c4 steps", "d4 steps"];
  assert.deepEqual(told("desk"), [
    name,
    "waited so far",
    ...longest,
    "B2 steps",
    "10 steps in all",
  ]);
  assert.deepEqual(told("phone"), [name, "waited", ...longest, "+1", "10 steps in all"]);
});

test("the legend has a word for padding where a policy pads, and for overruns where there are any", () => {
  const shown = (layout, more = {}) => {
    const $ = finding();
    const source = $(".source");
    for (const name of ["word", "rest"])
      source.append(Object.assign(new El("span"), { className: name }));
    const header = { policy: "p", config: {}, batching: { layout }, ...more };
    const run = Object.assign(runOf([event(0), event(1)]), { header });
    const root = { querySelectorAll: () => [], toggleAttribute: none };
    const app = playerOf(
      { run },
      { $, root, options: { catalogue: [], terms: {} }, engines: null },
    );
    of(Bar, { app, chips: [], fitChips: none }).marks();
    return [$(".legend-pad").hidden, $(".mask .legend-overrun").hidden];
  };
  assert.deepEqual(
    [shown("packed"), shown("padded")],
    [
      [true, true],
      [false, true],
    ],
  );
});

test("n and b go to the nearest event of a kind, and say so where there is none", () => {
  const run = runOf([event(0), event(1, { preempted: [] }), event(2), event(3), event(4)]);
  run.eventSteps = () => [1, 3];
  const went = [];
  const app = playerOf({ run, index: 2 }, { ranks: {}, detail: { simple: false } });
  Object.assign(app, { seek: (to) => went.push(to), toast: (words) => went.push(words) });
  const transport = of(Transport, { app, kind: { value: "chunk" }, select: {}, speed: 2 });
  const jumps = (index, by) => {
    app.store.set({ index });
    transport.jump(by);
    return went.splice(0)[0];
  };
  assert.deepEqual([jumps(2, 1), jumps(2, -1), jumps(3, -1), jumps(1, 1)], [3, 1, 1, 3]);
  assert.equal(jumps(3, 1), "No later chunk in this run.");
  assert.equal(jumps(1, -1), "No earlier chunk in this run.");
  const speeds = (by, times) => {
    for (let n = 0; n < times; n += 1) transport.faster(by);
    return [transport.speed, transport.select.value];
  };
  assert.deepEqual(
    [speeds(1, 1), speeds(1, 9), speeds(-1, 9)],
    [
      [4, "4"],
      [60, "60"],
      [1, "1"],
    ],
  );
});

test("a request that is pressed again is let go, and steps that come leave who looks back", () => {
  const run = runOf([event(0, { arrived: arrivals("a", "b") }), event(1)]);
  const motion = { went: none };
  const app = playerOf(
    { run, index: 0, following: false },
    { mask: { zoom: {} }, motion, empty: none },
  );
  const [a, b] = run.requests;
  const after = (request) => (app.pin(request), app.pinned && app.pinned.id);
  assert.deepEqual([after(a), after(b), after(b), app.mask.zoom], ["a", "b", null, null]);
  const came = (step) => {
    app.extend({ events: [event(step)], captions: [] });
    return [run.length, app.index];
  };
  assert.deepEqual(came(2), [3, 0]);
  app.store.set({ following: true });
  assert.deepEqual(came(3), [4, 3]);
});

test("play stands where something happens, and passes what is between in under a second", () => {
  const run = runOf(Array.from({ length: 30 }, (_, n) => event(n)));
  run.eventSteps = () => [0, 10, 11];
  const [stands, passes] = [1 / 1.8, 10 / 0.8];
  assert.deepEqual(paceOf(run, 0), { rate: stands, goal: 10 });
  assert.deepEqual(paceOf(run, 4), { rate: passes, goal: 10 });
  assert.deepEqual(paceOf(run, 9), { rate: 2, goal: 10 }, "the step before is seen to move");
  assert.deepEqual(paceOf(run, 10), { rate: stands, goal: 11 });
  assert.deepEqual(paceOf(run, 12), { rate: 19 / 0.8, goal: 30 }, "to its end");
});

test("another rank is shown at the moment at which the one before it stood", () => {
  const runs = [
    [0, 2, 4],
    [1, 3],
  ].map((steps) => runOf(steps.map((n) => event(n))));
  const members = runs.map((run, rank) => ({ rank, offset: 0, run }));
  const app = playerOf({ run: runs[0], index: 0 }, { transport: { toggle: none } });
  app.enter = ({ run }) => app.store.set({ run, index: 0 });
  const ranks = of(Ranks, { app, members, from: 0, span: 5, number: 0, showAll: none });
  ranks.hold(3.2);
  const seen = () => [ranks.number, app.index, ranks.now];
  const after = (member, index) => (ranks.choose(member, index), seen());
  assert.deepEqual(seen(), [0, 1, 3.2]);
  assert.deepEqual(after(members[1]), [1, 1, 3.2]);
  assert.deepEqual(after(members[0]), [0, 1, 3.2]);
  assert.deepEqual(after({ run: runs[0] }), [0, 1, 3.2], "it is none of these");
});

test("on paper the page is light, whatever its theme, and a page is as large as the window", () => {
  const heard = {};
  const before = globalThis.window;
  Object.assign(globalThis, {
    window: {
      addEventListener: (name, act) => (heard[name] = act),
      ...{ innerWidth: 1440, innerHeight: 900 },
    },
    ResizeObserver: class {
      observe() {}
    },
    MutationObserver: class {
      observe() {}
    },
    matchMedia: () => ({ matches: false, addEventListener() {} }),
    getComputedStyle: () => ({ getPropertyValue: () => "" }),
  });
  const root = Object.assign(new El(), { querySelectorAll: () => [], style: { setProperty() {} } });
  const drawn = [];
  const app = playerOf(
    { chosenTheme: "dark", tab: "text" },
    { root, $: () => new El(), draw: () => drawn.push(root.dataset.theme), redraw() {} },
  );
  keepFitted(app);
  heard.beforeprint();
  assert.deepEqual([drawn, root.dataset.theme], [["light"], "light"]);
  assert.equal(root.textContent, "@page { size: 1440px 900px; margin: 0; }");
  heard.afterprint();
  assert.equal(root.dataset.theme, "dark");
  globalThis.window = before;
});

test("what an address names of a run is shown: a request's first step, its mask, a pass, a layer", () => {
  const run = runOf([
    event(0, { arrived: arrivals("a", "b"), admitted: admissions(["a", 0]) }),
    event(1),
    event(2, { admitted: admissions(["b", 1]) }),
    event(3),
  ]);
  run.windows = [null, null];
  const looked = (wanted, state = {}) => {
    const did = [];
    const app = playerOf(
      { run, index: 1, pinned: null, pass: Infinity, presenter: false, ...state },
      {
        mask: { zoom: null, layer: null },
        toast: (sentence) => did.push(sentence),
        chooseTab: (tab) => did.push(tab),
        pin: (request) => did.push(`pin ${request.id}`),
      },
    );
    app.look(wanted);
    const { zoom, layer } = app.mask;
    const whole = zoom && (zoom.request ? { request: zoom.request.id } : zoom);
    return [app.index, app.pass, whole, layer, ...did];
  };
  const still = [1, Infinity, null, null];
  assert.deepEqual(looked({}), still);
  assert.deepEqual(looked({ step: 3 }), [3, ...still.slice(1)]);
  assert.deepEqual(looked({ request: "b" }), [2, ...still.slice(1), "pin b"]);
  assert.deepEqual(looked({ request: "b", step: 0 }), [0, ...still.slice(1), "pin b"]);
  assert.deepEqual(looked({ request: "b", at: 1.5 }), [...still, "pin b"], "a moment of all ranks");
  const unknown = "No request of this run has the id “nobody”.";
  assert.deepEqual(looked({ request: "nob“ody", step: 3 }), [...still, unknown]);
  assert.deepEqual(looked({ pin: "A" }), [...still, "pin a"]);
  assert.deepEqual(looked({ pin: "A" }, { pinned: run.request("a") }), still, "it is pinned");
  assert.deepEqual(looked({ pin: "Z", zoom: "pin" }), still);
  const zoomed = [1, Infinity, { request: "a" }, null, "pin a"];
  assert.deepEqual(looked({ pin: "A", zoom: "pin" }), zoomed);
  assert.deepEqual(looked({ zoom: [0, 0, 4, 4] })[2], { view: [0, 0, 4, 4] });
  assert.deepEqual(looked({ pass: 0, layer: 1, tab: "kv" }), [1, 0, null, 1, "kv"]);
  assert.deepEqual(looked({ layer: 2 }), still, "there are two");
});

test("the run that goes on is taken back on screen at its newest step, unless it is there; it is cancelled by its job, or before it has one", async () => {
  const [run, other] = [runOf([event(0), event(1)]), runOf([event(0)])];
  const shown = [];
  const back = (own, onScreen) => {
    of(Live, { run: own, app: { run: onScreen }, show: (what) => shown.push(what) }).back();
    return shown.splice(0);
  };
  assert.deepEqual(back(run, other), [{ run, entry: null, replay: null, index: 1 }]);
  assert.deepEqual([back(run, run), back(null, other)], [[], []]);
  const did = [];
  const cancel = async (given) => {
    const app = { engines: { cancel: (id) => did.push(id) } };
    await of(Live, { app, _abort: { abort: () => did.push("aborted") }, ...given }).cancel();
    return did.splice(0);
  };
  assert.deepEqual(await cancel({ going: true, id: "job" }), ["job"]);
  assert.deepEqual(await cancel({ going: true, id: null }), ["aborted"]);
  assert.deepEqual(await cancel({ going: false, id: "job" }), []);
});

test("the menu has what no button of the bar does: on a desk little, on a phone all", () => {
  const listed = (layout, given = {}, state = {}, runs = { hidden: true }) => {
    const app = {
      ...{
        layout,
        store: { state },
        engines: null,
        run: null,
        opening: {},
        clock: false,
        entry: null,
      },
      ...{
        options: { tabs: [] },
        address: {},
        detail: { simple: true },
        palette: {},
        tables: {},
        speech: {},
      },
      $: (name) => (name === ".runs-button" ? runs : { hidden: true }),
      ...given,
    };
    const { tight = 0 } = given;
    const items = of(Bar, { app, tight })._more();
    return items.map((one) => (one === "-" ? "-" : one.text)).join(", ");
  };
  assert.equal(listed("desk"), "Presenter, Dark, Tables, Keys");
  const other = { palette: { dark: true }, tables: { on: true } };
  assert.equal(listed("desk", other), "Presenter, Light, Pictures, Keys");
  assert.equal(listed("desk", { tight: 3, detail: {} }).split(", ").at(-5), "Simple");
  assert.match(
    listed("desk", { tight: 2 }),
    /^Copy link, -, .*Axis: steps, Next event, Previous event, Presenter/,
  );
  const phone = listed("phone", { clock: true });
  assert.match(phone, /^Copy link, -, .*-, Axis: measured time, .*, Full, Dark, Tables, Keys$/);
  const run = { delays: {}, header: {}, length: 1 };
  const engines = { engines: { can: () => false }, run };
  const all = listed("phone", { ...engines, opening: { offer: {} } });
  const begins = "Play the opening, Edit requests, What if …, What was slow?, Copy link, -, ";
  assert.ok(all.startsWith(begins) && all.endsWith("Keys, About this run"), all);
  assert.ok(!listed("phone", { ...engines, entry: { written: "a" } }).includes("What if"));
  assert.match(listed("desk", {}, {}, { hidden: false, offsetWidth: 0 }), /^All runs, /);
  assert.doesNotMatch(listed("desk", {}, {}, { hidden: false, offsetWidth: 9 }), /All runs/);
  const speaks = { en: "English", de: "Deutsch" };
  const options = { tabs: [{ name: "learn", speaks }], docs: "docs/" };
  assert.equal(
    listed("desk", { options, speech: { name: "en" } }),
    "Presenter, Dark, Tables, Keys, Glossary, Questions people ask, Deutsch, Documents",
  );
});
