// What Watch does at a key or a press, and what it says then, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf, El, Event, finding } from "./elements.js";
import { arrivals, event, runOf } from "./worlds.js";

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
const { Conversation } = await import("../../assets/player/watch/conversation.js");
const { Detail } = await import("../../assets/player/watch/detail.js");
const { Editor } = await import("../../assets/player/watch/editor.js");
const { picture } = await import("../../assets/player/watch/export.js");
const { Happens } = await import("../../assets/player/watch/happens.js");
const { setAxis } = await import("../../assets/player/watch/layout.js");
const { Leak } = await import("../../assets/player/watch/leak.js");
const { Live } = await import("../../assets/player/watch/live.js");
const { Messages } = await import("../../assets/player/watch/messages.js");
const { Motion } = await import("../../assets/player/watch/motion.js");
const { openAddress } = await import("../../assets/player/watch/open_file.js");
const { pageActions } = await import("../../assets/player/watch/page_actions.js");
const { Player } = await import("../../assets/player/watch/player.js");
const { Cursor } = await import("../../assets/player/watch/pointing.js");
const { Pair } = await import("../../assets/player/watch/pair.js");
const { focusView } = await import("../../assets/player/watch/presenter.js");
const { Ranks } = await import("../../assets/player/watch/ranks.js");
const { Visit } = await import("../../assets/player/watch/runs_card.js");
const { showSlow } = await import("../../assets/player/watch/slow.js");
const { Store } = await import("../../assets/player/watch/store.js");
const { playerKeys, Transport } = await import("../../assets/player/watch/transport.js");
const { viewState } = await import("../../assets/player/watch/view_state.js");
const { Weights } = await import("../../assets/player/watch/weights.js");
const { runBeside } = await import("../../assets/player/watch/what_if.js");
const { loadWorkload } = await import("../../assets/player/watch/workload_file.js");

const none = () => {};
const soon = () => new Promise((done) => setTimeout(done));
/** An object of a class, without what its constructor needs. */
const of = (kind, fields) => Object.assign(Object.create(kind.prototype), fields);
/** A player with this state, that has so much more. */
const playerOf = (state, more = {}) => {
  const store = new Store(/** @type {any} */ ({}));
  store.set(state);
  return of(Player, { store, redraw: none, changed: none, ...more });
};

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

test("a replay from elsewhere is marked so, and a simulated one stays simulated, of ranks each", async () => {
  const opened = [];
  const app = {
    options: {},
    openReplay: ({ ranks, header }) =>
      opened.push(ranks?.map(({ id, replay }) => [id, replay.header.source]) ?? header.source),
    toast: (sentence) => opened.push(sentence),
    changed: none,
  };
  const opens = async (doc) => {
    globalThis.fetch = /** @type {any} */ (async () => Response.json(doc));
    await openAddress(app, ["/r.json"]);
    return opened.splice(0)[0];
  };
  const replay = (source) => ({ header: { source }, events: [], captions: [] });
  assert.equal(await opens(replay("recorded")), "uploaded");
  assert.equal(await opens(replay("live")), "uploaded");
  assert.equal(await opens(replay("simulated")), "simulated");
  const ranks = ["live", "simulated"].map((source, rank) => ({
    ...{ rank, offset: 0, id: "theirs" },
    replay: replay(source),
  }));
  assert.deepEqual(await opens({ ranks, says: [] }), [
    [null, "uploaded"],
    [null, "simulated"],
  ]);
});

test("weights that come late are not those of the run that was opened meanwhile", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let answer = none;
  const drawn = [];
  const app = {
    runId: "a",
    engines: { can: () => true, call: () => new Promise((done) => (answer = done)) },
    ...{ leak: {}, transport: {}, lanes: {}, run: { header: { model: { layers: 1 } } } },
    redraw: () => drawn.push(true),
  };
  const weights = new Weights(/** @type {any} */ (app));
  const asks = async (meanwhile) => {
    weights.reset();
    weights.on = true;
    const frame = /** @type {any} */ ({ event: { step: 0 } });
    const look = () => weights.state(frame, /** @type {any} */ ({ index: 0 }));
    look();
    t.mock.timers.tick(1000);
    meanwhile();
    answer({ segments: [{ request: "r" }] });
    for (let n = 0; n < 3; n += 1) await null;
    return look().found?.size ?? null;
  };
  assert.equal(await asks(none), 1);
  drawn.length = 0;
  const other = { header: { model: { layers: 1 } } };
  assert.deepEqual([await asks(() => (app.run = other)), drawn], [null, []]);
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

test("of two runs the one at work is counted from the first, and what it waits for is said", async () => {
  const said = [];
  const ask = async (_kind, _spec, _who, progress) => {
    progress({ total: 0 });
    progress({ ahead: 3, total: 2 });
    for (const index of [0, 1]) progress({ total: 2, index });
    throw new Error("The end.");
  };
  const spec = { config: { policy: "static" } };
  const editor = { specOnScreen: async () => spec, titleOf: () => "" };
  const app = { run: {}, engines: { ask }, visit: {}, editor };
  assert.equal(await runBeside(app, "continuous", (words) => said.push(words)), "The end.");
  assert.deepEqual(said, [
    "Starting the engine.",
    "Loading the model.",
    "3 ahead of yours.",
    "Run 1 of 2.",
    "Run 2 of 2.",
  ]);
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

test("a leak that is on its way is not asked for twice, and one that failed can be asked again", async () => {
  const [fails, toasts] = [[], []];
  const app = playerOf(
    { run: { header: {} }, entry: { leak: "u" } },
    {
      pair: {},
      toast: (words) => toasts.push(words),
      fetch: () => new Promise((_, fail) => fails.push(fail)),
    },
  );
  const leak = new Leak(app);
  const pressed = async (times) => {
    const toggled = Array.from({ length: times }, () => leak.toggle());
    await soon();
    const asked = fails.splice(0);
    for (const fail of asked) fail(new Error("Away."));
    await Promise.all(toggled);
    return [asked.length, toasts.splice(0), leak.working];
  };
  assert.deepEqual(await pressed(2), [1, ["Away."], ""]);
  assert.deepEqual(await pressed(1), [1, ["Away."], ""]);
});

test("prompts that share their beginning share blocks under a policy that can, and no other", async () => {
  const answer = { workload: { name: "w" }, block_size: 512, says: ["Scaled."] };
  const policies = ["plain", "sharing"].map((name, n) => ({
    name,
    knobs: n ? ["prefix_caching"] : [],
  }));
  const loaded = async (policy, size = 10) => {
    const said = [];
    let config = null;
    const editor = {
      limits: { upload_bytes: 2 ** 20 },
      frame: { busy: none, say: (...words) => said.push(words) },
      app: { engines: { send: async () => answer } },
      model: {},
      spec: () => ({ config: { policy, block_size: 16 } }),
      state: { policies },
      setAside: (act) => act(),
      edit: (spec) => ({ config } = spec),
      field: () => ({}),
      $: finding(),
    };
    const file = { name: "f.jsonl", size, text: async () => "not json" };
    const input = /** @type {any} */ ({ files: [file], value: "f" });
    await loadWorkload(/** @type {any} */ (editor), input);
    return config ?? said.at(-1);
  };
  assert.deepEqual(await loaded("plain"), { policy: "plain", block_size: 16 });
  assert.deepEqual(await loaded("sharing"), {
    ...{ policy: "sharing", block_size: 512, prefix_caching: true },
  });
  assert.deepEqual(await loaded("plain", 3 * 2 ** 20), [
    "f.jsonl has 3 MiB; this page opens at most 1 MiB.",
    true,
  ]);
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

test("a prompt that was changed since becomes one message, an unchanged one its own again", () => {
  const form = new El("form");
  const [label, box] = [new El("label"), new El("input")];
  box.setAttribute("name", "as_messages");
  label.append(box);
  form.append(label);
  form.querySelector = () => box;
  const [system, user] = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Why?" },
  ];
  const row = { el: new El(), prompt: new El("textarea"), request: { messages: [system, user] } };
  const messages = new Messages(/** @type {any} */ (form), () => [row], none);
  messages.added(/** @type {any} */ (row));
  const turned = (on, typed = row.prompt.value) => {
    row.prompt.value = typed;
    messages.turn(on);
    return [row.prompt.value, /** @type {any} */ (row).messages];
  };
  assert.equal(row.prompt.value, "Why?");
  assert.deepEqual(turned(false), ["Be brief.\nWhy?", null]);
  assert.deepEqual(turned(true), ["Why?", [system, user]]);
  turned(false);
  assert.deepEqual(turned(true, "Why not?"), ["Why not?", [{ role: "user", content: "Why not?" }]]);
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

test("messages are added and removed until one is left, each in its turn", () => {
  const said = [];
  const two = [
    { role: "user", content: "Why?" },
    { role: "assistant", content: "So." },
  ];
  const talk = new Conversation(two, (messages) =>
    said.push(messages.map(({ role }) => role).join()),
  );
  Object.assign(talk.el, { open: true });
  talk.show(two);
  const removes = () =>
    talk.list
      .querySelectorAll("button")
      .filter((b) => /^Remove/.test(b.getAttribute("aria-label") || ""));
  assert.deepEqual(
    removes().map(({ disabled }) => disabled),
    [false, false],
  );
  removes()[1].click();
  assert.deepEqual(
    removes().map(({ disabled }) => disabled),
    [true],
  );
  removes()[0].click();
  assert.deepEqual(said, ["user"]);
  talk._insert(1);
  talk._insert(0);
  assert.deepEqual(said, ["user", "user,assistant", "system,user,assistant"]);
  assert.equal(talk.summary.textContent, "3 messages");
});

test("the run of this visit that ended last stands first, and is told of", () => {
  const told = [];
  const dispatchEvent = (/** @type {any} */ { detail }) => told.push(detail.id);
  const visit = new Visit(/** @type {any} */ ({ root: { dispatchEvent } }));
  const run = runOf([event(0), event(1)]);
  for (const id of ["a", "b"]) visit.add(run, { id }, {}, `Title ${id}`);
  assert.deepEqual(
    [visit.runs.map(({ title }) => title), told],
    [
      ["Title b", "Title a"],
      ["a", "b"],
    ],
  );
  assert.deepEqual([visit.runs[0].says, visit.runs[0].steps], ["continuous, 2 lanes", 2]);
  visit.remove(visit.runs[0]);
  assert.deepEqual(
    visit.runs.map(({ title }) => title),
    ["Title a"],
  );
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

test("each request of a form is sampled with a seed of its own, counted from the one that was typed", () => {
  const fields = {};
  const editor = of(Editor, {
    field: (name) => (fields[name] ??= new El("input")),
    $: () => new El(),
    messages: { added: none },
    model: { choose: none, spec: { model: "m" } },
    device: { choose: none, value: "auto" },
    touchedSampling: new Set(),
    _policy: none,
    _compare: none,
  });
  const asks = (sampling) => ({ id: `r${sampling?.seed ?? ""}`, prompt: "p", sampling });
  const requests = [asks({ max_new_tokens: 4, seed: 5 }), asks({ max_new_tokens: 4, seed: 9 })];
  editor.fill({ workload: { requests }, config: { policy: "continuous" }, model: "m" });
  const seeds = () => editor.spec().workload.requests.map(({ sampling }) => sampling.seed);
  assert.deepEqual(seeds(), [5, 9], "as they were given");
  editor._row({ prompt: "q", arrival: 0 });
  assert.deepEqual(seeds(), [5, 9, 7], "an added one");
  fields.seed.value = "20";
  editor.touchedSampling.add("seed");
  assert.deepEqual(seeds(), [20, 21, 22]);
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

test("a request has one colour in both runs of a pair, and closing it returns to where it was", () => {
  const [before, after] = [0, 1].map(() =>
    runOf([event(0, { arrived: arrivals("a", "b") }), event(4)]),
  );
  for (const [n, request] of after.requests.entries()) request.hue = n;
  before.requests[0].hue = 5;
  const put = [];
  const app = playerOf({ run: before, index: 1, pass: Infinity }, {});
  app.put = ({ run }, { step }) => put.push([run === before ? "before" : "after", step]);
  const pair = of(Pair, { app, members: [] });
  const members = [before, after].map((run) => ({ run, entry: null, replay: null, name: "" }));
  pair.open({ members, step: 4, says: () => "", caption: [] });
  assert.deepEqual(
    after.requests.map(({ hue }) => hue),
    before.requests.map(({ hue }) => hue),
  );
  assert.equal(after.requests[0].hue, 5);
  pair.flip();
  pair.close();
  pair.close();
  assert.deepEqual(put, [
    ["after", 4],
    ["after", 4],
    ["before", 4],
  ]);
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

test("in a picture texts are scrolled, fields filled and canvases drawn as they are on the page", async () => {
  const make = (tag, more = {}) => Object.assign(new El(tag), { style: {} }, more);
  const lists = (found) => (selector) => found[selector] ?? [];
  const canvas = { width: 40, clientWidth: 20, toDataURL: () => "data:canvas" };
  const sources = {
    canvas: [canvas, { width: 1 }],
    ".texts": [{ scrollTop: 40 }],
    "input, select, textarea": [
      { tagName: "INPUT", value: "7", checked: true },
      { tagName: "TEXTAREA", value: "Why?" },
      { tagName: "SELECT", selectedIndex: 1 },
    ],
  };
  const gone = [];
  const drawn = make("canvas", { replaceWith: (img) => gone.push(img.getAttribute("src")) });
  const small = make("canvas", { remove: () => gone.push("small") });
  const options = [make("option"), make("option")];
  const fields = [make("input"), make("textarea"), make("select", { options })];
  const texts = make("div");
  const tooltip = make("div", { remove: () => gone.push("tooltip") });
  const copy = make("div", {
    querySelectorAll: (selector) =>
      selector.startsWith(".tooltip")
        ? [tooltip]
        : lists({ canvas: [drawn, small], ".texts": [texts], "input, select, textarea": fields })(
            selector,
          ),
  });
  const root = {
    getBoundingClientRect: () => ({ width: 300, height: 200 }),
    cloneNode: () => copy,
    querySelectorAll: lists(sources),
  };
  let svg = "";
  Object.assign(globalThis, {
    window: { devicePixelRatio: 1 },
    document: documentOf({
      createElement: (tag) => make(tag, { toBlob: (done) => done("a picture") }),
      querySelectorAll: () =>
        [".inflight { x: y }", "other"].map((textContent) => ({ textContent })),
    }),
    XMLSerializer: class {
      serializeToString = (el) => `<p>${el.children[0].textContent}\u0007</p>`;
    },
    Image: class {
      set src(url) {
        svg = decodeURIComponent(url);
      }
      async decode() {}
    },
  });
  assert.equal(await picture({ root }), "a picture");
  assert.deepEqual([texts.style.marginTop, texts.style.overflow], ["-40px", "hidden"]);
  assert.deepEqual(gone, ["data:canvas", "small", "tooltip"]);
  const [input, textarea] = fields;
  assert.deepEqual([input.getAttribute("value"), input.getAttribute("checked")], ["7", ""]);
  assert.deepEqual(
    [textarea.textContent, options.map((o) => o.getAttribute("selected"))],
    ["Why?", [null, ""]],
  );
  assert.match(svg, /width="600" height="400" viewBox="0 0 300 200"/);
  assert.ok(
    svg.includes(".inflight { x: y }") && !svg.includes("other") && !svg.includes("\u0007"),
  );
  globalThis.document = documentOf();
});
