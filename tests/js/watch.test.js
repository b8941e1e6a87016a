// What Watch does with an address and with what arrives late, without a page.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { event, runOf, two } from "./worlds.js";

/** @type {Record<string, () => void>} */
const heard = {};
globalThis.window = /** @type {any} */ ({
  addEventListener: (/** @type {string} */ name, /** @type {() => void} */ act) => {
    heard[name] = act;
  },
});
globalThis.document = /** @type {any} */ ({ documentElement: { dataset: {} } });
const at = (hash) => {
  globalThis.location = /** @type {any} */ ({ hash, search: "" });
};
at("");

const { speak, Speech } = await import("../../assets/player/parts/speech.js");
const { Address, pack } = await import("../../assets/player/watch/address.js");
const { Beside } = await import("../../assets/player/watch/beside.js");
const { Detail } = await import("../../assets/player/watch/detail.js");
const { Editor } = await import("../../assets/player/watch/editor.js");
const { exportMenu, take } = await import("../../assets/player/watch/export.js");
const { Live } = await import("../../assets/player/watch/live.js");
const { Leak } = await import("../../assets/player/watch/leak.js");
const { Ranks } = await import("../../assets/player/watch/ranks.js");
const { openAddress, openRacer } = await import("../../assets/player/watch/open_file.js");
const { pageActions } = await import("../../assets/player/watch/page_actions.js");
const { present } = await import("../../assets/player/watch/presenter.js");
const { playerKeys, Transport } = await import("../../assets/player/watch/transport.js");
const { restoreFork } = await import("../../assets/player/watch/what_if.js");
const { Player } = await import("../../assets/player/watch/player.js");
const { none, playerOf } = await import("./players.js");

/** A promise, and what settles it. */
function later() {
  let done;
  const promise = new Promise((settle) => (done = settle));
  return { promise, done };
}

test("what is on its way is not shown once another run was asked for", async () => {
  const shown = [];
  const doc = { title: "", runs: { static: {} } };
  const app = {
    options: { comparisons: [{ name: "c", url: "u" }] },
    fetch: async () => doc,
    openReplay: (_replay, _wanted, { racer }) => shown.push(racer),
  };
  const opens = () => openRacer(app, { comparison: "c", racer: "static" });
  assert.deepEqual([await opens(), shown], [true, ["static"]]);
  const late = opens();
  app.fetching = null; // as `Player.enter` does
  assert.deepEqual([await late, shown.length], [true, 1]);

  const address = new Address(app);
  let follows = 0;
  address.follow = () => (follows += 1);
  for (const [hash, run, left] of [
    ["#part=compare", {}, {}],
    ["#step=3", null, {}], // the first run is still to come
    ["#run=r", {}, null],
  ]) {
    Object.assign(app, { fetching: {}, run });
    at(hash);
    heard.hashchange();
    assert.deepEqual(app.fetching, left);
  }
  const { dataset } = document.documentElement;
  dataset.part = "compare"; // it is left first: tabs.js follows then
  heard.hashchange();
  delete dataset.part;
  assert.equal(follows, 3);
});

test("what its visitor opened stays, though the page's own beginning comes later", async () => {
  const catalogue = [{ name: "first" }, { name: "b" }];
  const [failing, opening] = [later(), later()];
  globalThis.fetch = /** @type {any} */ (() => failing.promise);
  const begun = async (trace, begin, settle) => {
    const app = playerOf(
      {},
      {
        options: { catalogue, tabs: [] },
        speech: { withCaptions: async (_entry, replay) => replay },
        fetch: async () => ({}),
        opening: { begin },
        address: { read: () => ({ trace }) },
        toast: none,
        fetching: null,
        show(_replay, _wanted, entry) {
          this.store.set({ run: {}, entry });
        },
      },
    );
    const started = app.start();
    await app.open(catalogue[1]);
    settle();
    await started;
    return [app.entry.name, app.fetching];
  };
  globalThis.location = /** @type {any} */ ({
    hash: "",
    search: "",
    href: "http://x/",
    origin: "http://x",
  });
  const ofLink = begun(
    ["/t.jsonl"],
    async () => false,
    () => failing.done({ ok: false }),
  );
  assert.deepEqual(await ofLink, ["b", null]);
  const first = begun(
    [],
    () => opening.promise,
    () => opening.done(false),
  );
  assert.deepEqual(await first, ["b", null]);
});

test("a replay that breaks in any step leaves what is on screen, and without steps nothing is drawn", () => {
  const replay = (passIndex = 0) => {
    const { header, events } = two();
    const [first, second, ...rest] = events;
    const segments = second.segments.map((segment) => ({ ...segment, passIndex }));
    return { header, events: [first, { ...second, segments }, ...rest], captions: [] };
  };
  const shown = [];
  const opens = (doc) => Player.prototype.openReplay.call({ show: (it) => shown.push(it) }, doc);
  const ranks = (...all) => ({ ranks: all.map((one) => ({ replay: one })) });
  for (const doc of [replay(), ranks(replay(), replay())]) opens(doc);
  assert.equal(shown.length, 2);
  for (const doc of [replay(7), ranks(replay(), replay(7))])
    assert.throws(() => opens(doc), TypeError);
  assert.equal(shown.length, 2);
  const views = [{ draw: () => shown.push("drawn") }];
  for (const run of [null, runOf([])]) Player.prototype.draw.call({ run, views });
  assert.equal(shown.length, 2);
});

test("what was read in this tab is said to be so once it is on screen", async () => {
  const page = { hash: "", search: "", href: "http://x/", origin: "http://x", protocol: "http:" };
  globalThis.location = /** @type {any} */ (page);
  globalThis.fetch = /** @type {any} */ (async () => new Response("a recording"));
  const opens = async (isThere) => {
    const said = [];
    const app = {
      options: {},
      engines: { can: () => true, send: async () => ({ id: "tab-1", url: "tab:1" }) },
      toast: (sentence) => said.push(sentence),
      async open(entry) {
        if (isThere) this.entry = entry;
      },
    };
    await openAddress(app, ["/t.jsonl"]);
    return said;
  };
  assert.deepEqual(await opens(true), [
    "Read and checked in this tab: nothing of it left your machine.",
  ]);
  assert.deepEqual(await opens(false), []);
});

test("with a run that has no steps the other policy below it ends, too", () => {
  const ended = [];
  const part = { reset: none, entered: none, apply: none, marks: none, followed: none };
  const app = playerOf(
    {},
    {
      mask: part,
      weights: part,
      pair: part,
      ranks: part,
      detail: part,
      bar: part,
      editor: part,
      empty: none,
      beside: { entered: () => ended.push(true) },
    },
  );
  app.enter({ run: { length: 0 } });
  assert.deepEqual(ended, [true]);
});

test("a replay is had wherever its run is kept, and named after its run", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] }); // the file's address is given up later
  const saved = [];
  const click = function () {
    saved.push(this.download);
  };
  document.createElement = /** @type {any} */ (() => ({ click }));
  window.inflightEarly = { "tab:a": { events: [] } };
  const run = { header: { policy: "p" } };
  const app = playerOf({ run, entry: { name: "a", url: "tab:a" } }, { ranks: {}, toast: none });
  const taking = take(app, "replay");
  app.store.set({ entry: { name: "b" } });
  await taking;
  app.store.set({ run: { ...run, isSimulated: true }, entry: { name: "a", url: "tab:a" } });
  await take(app, "replay");
  assert.deepEqual(saved, ["inflight-a.replay.json", "inflight-simulated-a.replay.json"]);
});

test("a page is saved to open as simple or as full as the one on screen", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] }); // the file's address is given up later
  const markup = new URL("../../assets/player/watch/page.html", import.meta.url);
  const page = readFileSync(markup, "utf8").replace("<!--PROPS-->", '{"replay":{"a":1},"step":2}');
  const saved = [];
  document.createElement = /** @type {any} */ (() => ({ click: none }));
  t.mock.method(URL, "createObjectURL", (blob) => saved.push(blob));
  t.mock.method(globalThis, "fetch", async () => new Response(page));
  const app = { run: { header: { policy: "p" } }, runId: "r", ranks: {} };
  const engines = { call: async () => ({ url: "u" }) };
  const options = [];
  for (const now of ["full", "simple"]) {
    await take({ ...app, engines, detail: { now }, toast: assert.fail }, "html");
    const [, props] = /inflight-props"[^>]*>([^<]*)</.exec(await saved.at(-1).text());
    options.push(JSON.parse(props));
  }
  const place = { replay: { a: 1 }, step: 2 };
  assert.deepEqual(options, [
    { detail: "full", ...place },
    { detail: "simple", ...place },
  ]);
});

test("who waits for the first step of a run sees it, unless they chose another or left", async () => {
  const [old, recorded, begun] = [{}, {}, { name: "begun" }];
  const app = playerOf(
    { run: old, following: true },
    {
      transport: { toggle: none },
      motion: { settle: none },
      enter({ run, entry = null }) {
        this.store.set({ run, entry });
      },
      options: { catalogue: [] },
      speech: {},
      visit: { runs: [] },
      live: { going: true, run: null },
      ranks: {},
      fetching: {},
    },
  );
  app.store.set({ edge: app.live });
  const watch = pageActions(app);
  const held = watch.held();
  assert.equal(app.fetching, null); // it is not for who takes Watch over
  app.put({ run: recorded });
  assert.equal(app.following, false);
  watch.restore(held);
  assert.deepEqual([app.run === old, app.following], [true, true]);
  watch.lead({ going: true, run: {} });
  app.live.run = begun; // its first step, behind the other part
  watch.lead(null);
  watch.restore(held);
  assert.deepEqual([app.run === old, app.following], [true, false]);

  app.options.catalogue.push((held.shown.entry = {}));
  app.store.set({ entry: held.shown.entry, following: true });
  const opened = [];
  Object.assign(app, {
    address: { read: () => ({}) },
    open: (_entry, { following }) => opened.push(following),
  });
  watch.reopen();
  app.fetching = {}; // a run was chosen
  watch.reopen();
  assert.deepEqual(opened, [true]);
  app.put({ run: old }, { following: true });
  assert.ok(app.following);
});

test("a run begins behind the one that was chosen meanwhile", async () => {
  const [began, shown] = [later(), []];
  const events = [{ step: 0 }];
  const app = playerOf(
    { run: {} },
    {
      address: {},
      transport: { toggle: none },
      root: { querySelector: () => ({}) },
      engines: {
        async *follow() {
          await began.promise;
          yield { header: { config: {} }, events, captions: [] };
        },
      },
    },
  );
  const live = new Live(app);
  app.store.set({ edge: live });
  live.show = ({ run }) => shown.push(run);
  const ended = live._follow({ failed: none }, async () => "job");
  app.store.set({ following: false }); // another run is put on screen
  began.done();
  await ended;
  assert.deepEqual(shown, []);
});

test("play ends at the last step of a recorded run while another goes on", () => {
  const run = { length: 3 };
  const frames = [];
  globalThis.requestAnimationFrame = (act) => frames.push(act);
  globalThis.cancelAnimationFrame = none;
  const playsOn = (going) => {
    const [motion, intro] = [{ settle: none, went: none }, { used: none }];
    const edge = { going: true, run: going };
    const app = playerOf({ run, edge }, { ranks: {}, detail: {}, mask: {}, motion, intro });
    const playButton = { setAttribute: none, classList: { toggle: none } };
    const fields = { app, playButton, speed: 30, playing: false };
    app.transport = Object.assign(Object.create(Transport.prototype), fields);
    app.transport.toggle(true);
    for (let n = 1; n < 5; n += 1) frames.shift()?.(performance.now() + 100 * n);
    return app.transport.playing;
  };
  assert.deepEqual([run, {}].map(playsOn), [true, false]);
});

test("a link to the run on screen clears what it does not name, and an empty address nothing", () => {
  const entry = { name: "r" };
  const app = playerOf(
    { run: {}, entry, pinned: { id: "a" }, pass: 0 },
    {
      options: { catalogue: [entry] },
      ranks: {},
      pair: { address: null },
      look: none,
      mask: { reset: () => (resets += 1) },
    },
  );
  let resets = 0;
  const follow = (run) => {
    at("#other");
    Address.prototype.follow.call({ app, read: () => ({ run, trace: [] }) });
    return [app.pinned, app.pass, resets];
  };
  assert.deepEqual(follow(null), [{ id: "a" }, 0, 0]);
  assert.deepEqual(follow("r"), [null, Infinity, 1]);
});

test("the view that stands alone stays where an address names it again", () => {
  const root = { dataset: { focusView: "mask" } };
  const run = { requests: [], windows: [] };
  const app = playerOf({ run, presenter: true }, { root, mask: {} });
  const after = (view) => {
    app.look({ view });
    return root.dataset.focusView;
  };
  assert.deepEqual(["mask", "row", "row"].map(after), ["mask", "row", "row"]);
});

test("the last step of another run is not the newest of the one in progress", () => {
  const [recorded, going] = [{ length: 3 }, { length: 3 }];
  const seek = (run, index) => {
    const app = playerOf(
      { run, edge: { going: true, run: going } },
      {
        transport: { track: run },
        ranks: {},
        mask: {},
        motion: { settle: none },
        intro: { used: none },
      },
    );
    app.seek(index, true);
    return app.following;
  };
  assert.deepEqual([seek(going, 1), seek(going, 2), seek(recorded, 2)], [false, true, false]);
});

test("what can be saved is offered with what it is, of a run that is here or is kept", () => {
  const offered = (state, more = {}) => {
    const app = playerOf({ run: {}, ...state }, { ranks: {}, address: {}, options: {}, ...more });
    return exportMenu(app).map((item) => (item === "-" ? "-" : `${item.text}: ${item.note}`));
  };
  const picture = "Picture of this view: PNG";
  const replay = "Replay: JSON: every step, text and sentence; it opens here again";
  const alone = ["-", "Open a replay: JSON saved from here"];
  assert.deepEqual(offered({ replay: {} }), [picture, replay, ...alone]);
  assert.deepEqual(offered({ entry: { url: "u" } }), [picture, replay, ...alone]);
  assert.deepEqual(offered({ entry: null }), [picture, ...alone]);
  const files = [
    "Trace: JSON lines: open it here again, or with inflight.Trace.load",
    "One page: HTML that opens from disk at this step, with no network",
    "Perfetto: JSON for ui.perfetto.dev: a track for each lane",
  ];
  const figure = "This step as a figure: HTML, interactive; 5 MB, as Plotly is in it";
  const [server, tab] = [
    { can: () => true, server: {} },
    { can: () => true, tab: {} },
  ];
  const entry = { id: "r", url: "u" };
  const open = "Open a trace or a replay:";
  const embed = "Copy embed code: A frame for your own page, at this step";
  assert.deepEqual(offered({ entry }, { engines: server, address: { embedCode: "<iframe>" } }), [
    ...[picture, replay, ...files, figure, embed, "-", `${open} Saved from here or by core`],
  ]);
  const recording = `${open} Or a recording of vLLM or transformers`;
  assert.deepEqual(offered({ entry }, { engines: tab }), [
    ...[picture, replay, ...files, "-", recording],
  ]);
  assert.deepEqual(offered({ entry }, { engines: tab, options: { plotly: "p" } }), [
    ...[picture, replay, ...files, figure, "-", recording],
  ]);
  const gone = { can: (what) => what === "uploads", tab: {} };
  assert.deepEqual(offered({ entry }, { engines: gone }), [picture, replay, "-", recording]);
});

test("without the other policy below, a run is on its own axis or the chosen one", () => {
  const axisAfter = (chosenAxis) => {
    const app = playerOf({ entry: { axis: "time" }, chosenAxis, clock: false });
    app.$ = () => ({ setAttribute: none });
    Beside.prototype._end.call({ on: true, axis: false, app });
    return app.clock;
  };
  assert.deepEqual([undefined, false, true].map(axisAfter), [true, false, true]);
});

test("a link's run that ends moves no other, and its address stays till it begins", async () => {
  const address = {};
  let owes = 0;
  const owed = () => (owes += Number(address.owes));
  const app = { address };
  const form = { app, ready: async () => true, _restore: owed };
  const restore = () => Editor.prototype.restore.call(form, { spec: "s" });
  await Promise.all([restore(), restore()]); // followed once more, on the way back to Watch
  assert.deepEqual([owes, address.owes], [1, false]);

  let looks = 0;
  const config = { policy: "p", max_num_seqs: 2 };
  const spec = { config, workload: { requests: [] } };
  const wanted = { spec: await pack(spec), what: "max_num_seqs:4" };
  const other = {};
  const run = {};
  Object.assign(app, { toast: none, look: () => (looks += 1), run, live: { run } });
  const editor = { app, model: { knows: () => true }, edited: true, runSpec: async () => true };
  const restored = () => Editor.prototype._restore.call(editor, { spec: wanted.spec });
  await restored();
  app.run = other;
  await restored();
  assert.equal(looks, 1);

  const ask = async () => {
    app.run = {}; // it was opened meanwhile
    return {};
  };
  Object.assign(app, {
    engines: { ask },
    fetch: async () => ({}),
    visit: {},
    pair: { members: [] },
    editor: { state: { policies: [] }, titleOf: none },
  });
  assert.equal(await restoreFork(app, spec, wanted), true);
  assert.equal(looks, 1);
});

test("a run that went with its page is begun again for whoever asked for it", async () => {
  const begun = [];
  const left = { spec: { config: {}, workload: { requests: [] } }, asked: "its visitor's own" };
  globalThis.sessionStorage = /** @type {any} */ ({ getItem: () => JSON.stringify(left) });
  const live = Object.assign(Object.create(Live.prototype), {
    start: (...how) => begun.push(how),
    _follow: (_tell, begin, asked) => begin().then((job) => begun.push([job, asked])),
  });
  await live.resume("v", "tell");
  Object.assign(left, { job: "job-1" });
  await live.resume("v", "tell");
  assert.deepEqual(begun, [
    [left.spec, "v", "tell", left.asked],
    ["job-1", left.asked],
  ]);
});

test("of what is pointed at in another run this run's own request is lit, or none", () => {
  const own = { id: "a" };
  const run = { request: (id) => (id === "a" ? own : undefined) };
  const app = playerOf({ run }, { explain: none });
  const lit = [{ request: { id: "a" } }, { request: { id: "b" } }, null].map((found) => {
    app.hover(found);
    return app.store.state.hovered;
  });
  assert.deepEqual(lit, [own, null, null]);
  assert.equal(lit[0], own);
});

test("a run that opens while another language is chosen has the sentences of that language", async () => {
  const german = later();
  const entry = { name: "one", url: "one" };
  const shown = [];
  const app = playerOf(
    {},
    {
      speech: Object.create(Speech.prototype),
      fetch: async () => ({ events: [], captions: ["one"] }),
      show: ({ captions }) => shown.push(captions[0]),
      empty: (sentence) => shown.push(sentence),
    },
  );
  speak(/** @type {any} */ ({ name: "de", words: {}, captions: () => german.promise }));
  const opened = app.open(entry);
  await Promise.resolve();
  speak(null);
  german.done({ captions: ["eins"] });
  await opened;
  assert.deepEqual([shown, app.fetching], [["one"], null]);
  speak(/** @type {any} */ ({ name: "de", words: {}, captions: () => german.promise }));
  await app.open(entry);
  speak(null);
  assert.deepEqual(shown, ["one", "eins"]);
});

test("a run that was stopped or broke off is not whole, one that came to its end is", async () => {
  globalThis.sessionStorage = /** @type {any} */ ({ removeItem: none });
  const { events } = two();
  const header = two().header;
  const isWhole = async (...ends) => {
    const engines = {
      async *follow() {
        yield { header };
        yield { events, captions: [] };
        yield* ends;
      },
    };
    const app = { address: {}, store: { set: none }, transport: { toggle: none }, redraw: none };
    const live = Object.assign(Object.create(Live.prototype), {
      ...{ app: { ...app, engines }, _held: none, _failed: none, _total: none },
    });
    const done = await live._follow({ progress: none, done: none }, async () => "job-1");
    return [live.run.complete, live.run.goesOn, done];
  };
  assert.deepEqual(await isWhole({ done: true }), [true, false, true]);
  assert.deepEqual(await isWhole({ done: true, stopped: "Stopped." }), [false, false, true]);
  assert.deepEqual(await isWhole({ done: true, error: "It broke." }), [false, false, false]);
  assert.deepEqual(await isWhole(), [false, false, false], "the stream broke off");
});

test("Play at the newest step of a run that goes on waits for the next, of another it begins anew", () => {
  const run = { length: 3 };
  globalThis.requestAnimationFrame = () => 0;
  const soughtBy = (following) => {
    const sought = [];
    const app = playerOf({ run, following, index: 2 }, { ranks: {}, intro: { used: none } });
    app.seek = (to) => sought.push(to);
    const playButton = { setAttribute: none, classList: { toggle: none } };
    Object.assign(Object.create(Transport.prototype), { app, playButton, playing: false }).toggle();
    return sought;
  };
  assert.deepEqual([soughtBy(false), soughtBy(true)], [[0], []]);
});

test("k and j go around the requests that are there, from nobody to the last and to the first", () => {
  const [a, b, c] = ["a", "b", "c"].map((id) => ({ id }));
  const keys = {};
  document.addEventListener = (name, act) => (keys[name] = act);
  const app = {
    frame: {
      lanes: [{ request: a }, { request: null }, { request: b }],
      waiting: [{ request: c }],
    },
    pinned: null,
    root: { getClientRects: () => [1], querySelector: () => null, classList: { add: none } },
    transport: { act: () => false },
    pin: (request) => (app.pinned = request),
  };
  playerKeys(app);
  const after = (key, pinned) => {
    app.pinned = pinned;
    keys.keydown({ key, target: { tagName: "DIV" }, preventDefault: none });
    return app.pinned;
  };
  assert.deepEqual([after("k", null), after("k", a), after("k", c)], [c, c, b]);
  assert.deepEqual([after("j", null), after("j", b), after("j", c)], [a, c, a]);
});

test("the presenter that is left leaves the full screen", () => {
  let left = 0;
  Object.assign(document, { fullscreenElement: {}, exitFullscreen: () => (left += 1) });
  const toast = {};
  const root = { classList: { toggle: none }, dataset: {}, querySelector: () => toast };
  const app = playerOf({ presenter: true }, { root, sized: none, toast: none });
  present(app, false, false);
  assert.deepEqual([app.presenter, left, toast], [false, 1, { hidden: true }]);
});

test("how much is shown: what a lesson needs, then what a link or the visitor asked for last", () => {
  const kept = new Map([["inflight-detail", "simple"]]);
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, text) => kept.set(key, text),
  });
  const app = playerOf({}, { options: {}, root: { dataset: {}, querySelectorAll: () => [] } });
  const detail = new Detail(app);
  const after = (act) => (act(), app.root.dataset.detail);
  const link = (hash) => () => detail.follow(new URLSearchParams(hash));
  assert.deepEqual(
    [
      () => {},
      () => detail.need("full"),
      () => detail.need(null),
      link("layer=2"),
      link("step=3"),
      () => detail.turn(),
      link("step=4"),
    ].map(after),
    ["simple", "full", "simple", "full", "full", "simple", "simple"],
  );
});

test("x goes around the ranks, and who looks back among those that go on is not taken along", () => {
  const runs = [event(0), event(1)].map((one) => runOf([one, event(one.step + 2)]));
  const members = runs.map((run, rank) => ({ rank, offset: 0, run }));
  const app = playerOf({ run: runs[0], index: 0 }, {});
  const chosen = [];
  const ranks = Object.assign(Object.create(Ranks.prototype), { app, members, from: 0, span: 4 });
  ranks.choose = ({ rank }) => chosen.push(rank);
  for (const [run, by] of [
    [0, 1],
    [1, 1],
    [0, -1],
  ]) {
    app.store.set({ run: runs[run] });
    ranks.turn(by);
  }
  assert.deepEqual(chosen, [1, 0, 1]);
  Object.assign(ranks, { alone() {}, all: true });
  ranks._walk();
  const follows = (now) => (ranks.hold(now), app.following);
  assert.deepEqual([follows(3), follows(1.2), follows(4)], [true, false, true]);
});

test("a leak that comes late stays away from the run that was opened meanwhile", async () => {
  const [came, opened] = [later(), []];
  const run = two();
  const { events, ...rest } = run;
  const replay = { header: rest.header, captions: [], letters: {}, events };
  const app = playerOf(
    { run, entry: { leak: "u" } },
    {
      options: { catalogue: [] },
      toast: none,
      fetch: () => came.promise,
      pair: { leaks: false, open: ({ members }) => opened.push(members.length) },
    },
  );
  const asks = () => Object.assign(new Leak(app), { _tell: none }).toggle();
  const first = asks();
  app.store.set({ run: two() });
  came.done(replay);
  await first;
  assert.deepEqual(opened, []);
  await asks();
  assert.deepEqual(opened, [2]);
});
