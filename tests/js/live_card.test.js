// What the card of the Live tab says, and what it asks of the server when something is pressed.

import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf, El, Event, finding, of, soon } from "./elements.js";
import { arrivals, event, runOf, two } from "./worlds.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "" },
});
const { FindRequest } = await import("../../assets/player/live/find.js");
const { House } = await import("../../assets/player/live/house.js");
const { addressOf } = await import("../../assets/player/live/join.js");
const { Live } = await import("../../assets/player/live/live.js");
const { AskForm, OwnRequests } = await import("../../assets/player/live/own_requests.js");
const { FollowedView } = await import("../../assets/player/live/panels.js");
const { Room } = await import("../../assets/player/live/room.js");
const { sharedModel } = await import("../../assets/player/live/shared_model.js");
const { Teacher } = await import("../../assets/player/live/teacher.js");
const { whereabouts } = await import("../../assets/player/live/whereabouts.js");
const { allSay, followedSays, says } = await import("../../assets/player/live/words.js");
const { Refusal } = await import("../../assets/player/parts/server.js");
const { speak } = await import("../../assets/player/parts/speech.js");

const buttonOf = (root, text) =>
  root.querySelectorAll("button").find((button) => button.textContent === text);

test("each button of a teacher's panel asks for what it says, and one step holds the engine first", async () => {
  const asked = [];
  const server = {
    get: () => Promise.reject(), // it shares no models
    post: async (_path, what) => asked.push(what) && {},
  };
  const batch = { state: { pace: null, class: {} } };
  const live = { options: { policies: [] }, batch, server, redraw() {} };
  const panel = new El();
  const teacher = of(Teacher, { isOn: true, panel, live, _asking: 0 });
  teacher._build({ bursts: [{ name: "a burst", shows: "Six.", requests: 6 }] });
  const press = async (text) => {
    buttonOf(panel, text).click();
    await soon();
    return asked.splice(0);
  };
  assert.deepEqual(await press("One step"), [{ steps: 1, steps_per_s: 0 }]);
  batch.state.pace = 0;
  assert.deepEqual(await press("One step"), [{ steps: 1 }]);
  assert.deepEqual(await press("Full speed"), [{ steps_per_s: null }]);
  assert.deepEqual(await press("Clear the batch"), [{ clear: true }]);
  assert.deepEqual(await press("a burst"), [{ burst: "a burst" }]);
});

test("a model that could not be shared can be shared again", async () => {
  const said = ["It has no tokenizer.", ""];
  const server = {
    get: async () => ({ models: [], builtin: [], dtypes: ["auto"], facts: {} }),
    post: async () => {
      const sentence = said.shift();
      if (sentence) throw new Error(sentence);
    },
  };
  const form = sharedModel(/** @type {any} */ (server), () => ({})).querySelector("form");
  const [button, says] = [buttonOf(form, "Share this model"), form.querySelector(".shared-says")];
  form.querySelector('[name="model"]').value = "m";
  for (const told of ["It has no tokenizer.", "Shared from now on."]) {
    form.dispatchEvent(new Event("submit"));
    assert.deepEqual([button.disabled, says.textContent], [true, "Loading the model."]);
    await soon();
    assert.deepEqual([button.disabled, says.textContent], [false, told]);
  }
});

test("where texts are hidden only a teacher saves the run and compares it", () => {
  const part = () => ({ draw() {} });
  const shown = ({
    run = /** @type {any} */ ({ header: {} }),
    hides = false,
    teaches = false,
    asks = true,
  }) => {
    const $ = finding();
    const parts = ["own", "house", "room", "finished", "followed", "find"].map((n) => [n, part()]);
    const live = of(Live, {
      ...{ $, fleet: null, watch: {}, mine: { open: [] }, ...Object.fromEntries(parts) },
      options: { asks },
      batch: { run, state: { class: { hide_texts: hides, accepting: false } } },
      teacher: { isOn: teaches, button: new El(), draw() {} },
    });
    live.draw();
    return [$(".save-button"), $(".compare-button")].map(({ hidden }) => !hidden);
  };
  assert.deepEqual(shown({}), [true, true]);
  assert.deepEqual(shown({ run: null }), [false, false]);
  assert.deepEqual(shown({ hides: true }), [false, false]);
  assert.deepEqual(shown({ hides: true, teaches: true }), [true, true]);
});

test("that the engine starts is said once: in the lanes, or on the card while they are covered", () => {
  const said = (isOn) => {
    const $ = finding();
    const parts = ["own", "house", "finished", "followed", "find"].map((n) => [n, { draw() {} }]);
    const room = { isOn, draw() {} };
    const live = of(Live, {
      ...{ $, room, fleet: null, watch: {}, mine: { open: [] }, ...Object.fromEntries(parts) },
      options: { asks: true },
      batch: { run: null, state: { class: null } },
      teacher: { isOn: false, button: new El(), draw() {} },
    });
    live.draw();
    return [$(".live-says").textContent, !$(".live-says").hidden];
  };
  assert.deepEqual(said(false), ["The engine is starting.", true]);
  assert.equal(said(true)[1], false);
});

test("whoever leaves Live finds the player as it was: neither presented nor empty", () => {
  const left = (run, presenter) => {
    const did = [];
    const heard = (name) => (given) => did.push([name, given]);
    const names = ["lead", "present", "empty", "restore", "start"];
    const watch = Object.fromEntries(names.map((name) => [name, heard(name)]));
    const before = { shown: { run } };
    const live = of(Live, {
      ...{ fleet: null, following: null, room: { leave() {} }, before },
      watch: { ...watch, state: { presenter } },
    });
    live.left();
    live.left(); // what is left is left
    return did;
  };
  const shown = { shown: { run: "a run" } };
  assert.deepEqual(left("a run", true), [
    ["lead", null],
    ["present", false],
    ["empty", null],
    ["restore", shown],
  ]);
  assert.deepEqual(left(null, false), [
    ["lead", null],
    ["empty", null],
    ["start", undefined],
  ]);
});

test("the buttons of ranks are told anew in another language, and press what is on screen", () => {
  const view = new FollowedView(
    /** @type {any} */ (new El()),
    () => {},
    () => {},
  );
  const ranks = ["a", "b"].map((name, rank) => ({ of: name, rank }));
  const followed = {
    ...{ engines: [{}], of: "b", ranks, streams: ["a", "b"], all: [], says: [], all_says: [] },
    ...{ file: "f", texts: true },
  };
  const told = (all) => {
    view.draw(followed, null, all, []);
    return view.streams.children.map((el) => [el.textContent, el.getAttribute("aria-pressed")]);
  };
  assert.deepEqual(told("").flat(), ["All ranks", "false", "Rank 0", "false", "Rank 1", "true"]);
  speak(
    /** @type {any} */ ({ name: "de", words: { "All ranks": "Alle Ränge", "Rank #": "Rang #" } }),
  );
  assert.deepEqual(told("").flat(), ["Alle Ränge", "false", "Rang 0", "false", "Rang 1", "true"]);
  assert.deepEqual(told("ranks").flat(), [
    "Alle Ränge",
    "true",
    "Rang 0",
    "false",
    "Rang 1",
    "false",
  ]);
  speak(null);
});

test("a prompt of the house that the model goes on with ends in dots, a question does not", () => {
  const acts = { ask: async () => {}, letBotsAsk: async () => {} };
  const prompts = ["Why?", "Tell me.", "To be, or not to be"];
  const house = new House(/** @type {any} */ (new El()), prompts, acts);
  assert.deepEqual(
    house.prompts.map((button) => button.textContent),
    ["Why?", "Tell me.", "To be, or not to be …"],
  );
});

test("blanks around an id that was typed are none of it, and an empty field looks for nothing", () => {
  const [form, input, says] = [new El("form"), new El("input"), new El()];
  says.className = "find-says";
  form.append(input, says);
  let looks = 0;
  const find = new FindRequest(
    /** @type {any} */ (form),
    () => {},
    () => (looks += 1),
  );
  const typed = (text, how) => {
    input.value = text;
    (how === "submit" ? form : input).dispatchEvent(new Event(how));
    return [find.wanted, looks];
  };
  assert.deepEqual(typed(" req-7 ", "submit"), ["req-7", 1]);
  assert.deepEqual(typed("re", "input"), ["req-7", 1], "it is not pressed yet");
  assert.deepEqual(typed("", "input"), ["", 2]);
});

test("the address that others type has neither protocol nor part", async () => {
  const of = async (address) => {
    const live = { server: { get: async () => ({ address, qr: "<svg></svg>" }) } };
    const { page, code } = await addressOf(live);
    return [
      page.textContent,
      code.getAttribute("src").startsWith("data:image/svg+xml,%3Csvg%20xmlns"),
    ];
  };
  assert.deepEqual(await of("http://192.168.1.5:7860/#part=live"), ["192.168.1.5:7860", true]);
  assert.deepEqual(await of("https://a.test/room/#part=live"), ["https://a.test/room", true]);
});

test("the hood that was opened is open on the next visit of the session", () => {
  const kept = new Map();
  globalThis.sessionStorage = /** @type {any} */ ({
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, text) => kept.set(key, text),
    removeItem: (key) => kept.delete(key),
  });
  const watch = { state: {}, focusView() {}, sized() {}, redraw() {} };
  const room = of(Room, { live: { watch }, draw() {} });
  const after = (on) => (room.open(on), [room.isOpen, kept.size]);
  assert.deepEqual(
    [after(true), after(false)],
    [
      [true, 1],
      [false, 0],
    ],
  );
});

test("how far an answer is counts what is written of what was asked, by one or by many", () => {
  const told = (wrote, maxNew, come = wrote, to = Infinity) => {
    const run = runOf([event(0)]);
    const request = { maxNew, laneSpans: [{ lane: 2, to }], waits: [] };
    Object.assign(run, { request: () => request, waitingAt: () => [], numGenerated: () => wrote });
    return whereabouts(run, { id: "a", ends: Array(come).fill(0) });
  };
  assert.equal(told(0, 40), "Your lane: 2. It reads the prompt.");
  assert.equal(told(1, 40), "Your lane: 2. 1 of 40 tokens so far.");
  assert.equal(told(1200, 4000), "Your lane: 2. 1,200 of 4,000 tokens so far.");
  assert.equal(told(3, null), "Your lane: 2. 3 tokens so far.");
  assert.equal(told(1, 40, 0), "Your lane: 2.", "it is read, and its text is on the way");
  assert.deepEqual([told(1, 40, 0, 3), told(3, null, 3, 3)], ["On its way.", "3 tokens so far."]);
});

test("of one's own requests the newest twenty stay in the list, and are kept without their texts", async () => {
  const kept = new Map();
  globalThis.sessionStorage = /** @type {any} */ ({
    getItem: () => null,
    setItem: (key, text) => kept.set(key, JSON.parse(text)),
  });
  let n = 0;
  const server = /** @type {any} */ ({
    post: async () => ({ id: `r${(n += 1)}` }),
    once: async function* () {},
  });
  const mine = of(OwnRequests, {
    server,
    requests: [],
    asking: new Set(),
    changed() {},
    _follow() {},
  });
  for (let i = 0; i < 21; i += 1) await mine.ask({ prompt: `p${i}`, tokens: 4, nickname: "" });
  const ids = mine.requests.map(({ id }) => id);
  assert.deepEqual([ids.length, ids[0], ids.at(-1)], [20, "r21", "r2"]);
  assert.ok(mine.has("r2") && !mine.has("r1"));
  server.post = () => Promise.reject(new Refusal("no", 400));
  await assert.rejects(mine.ask({ prompt: "refused", tokens: 4, nickname: "" }));
  assert.ok(mine.has("r2"), "one that is refused takes nobody's place");
  const [own] = mine.requests;
  mine._take({
    of: own.key,
    last: 0,
    messages: [{ text: "To" }, { text: " be", ended: { tokens: 2 } }],
  });
  assert.deepEqual([own.text, own.ends, own.next, mine.open.length], ["To be", [2, 5], 1, 19]);
  mine.forget(mine.requests[1]);
  const [first, ...others] = kept.get("inflight-live-requests");
  assert.deepEqual(
    [first.id, others[0].id, "text" in first, first.seed === own.seed],
    ["r21", "r19", false, true],
  );
});

test("a request that is sent as the page is reloaded is found by its key, a refused one is not kept", async () => {
  let kept = [];
  globalThis.sessionStorage = /** @type {any} */ ({
    getItem: () => JSON.stringify(kept),
    setItem: (_, text) => (kept = JSON.parse(text)),
  });
  const answers = [];
  const server = /** @type {any} */ ({
    post: () => new Promise((answer, refuse) => answers.push({ answer, refuse })),
    once: async function* () {},
  });
  const mine = of(OwnRequests, {
    ...{ server, requests: [], asking: new Set(), changed() {}, _follow() {} },
  });
  const first = mine.ask({ prompt: "sent", tokens: 4, nickname: "" });
  const second = mine.ask({ prompt: "refused", tokens: 4, nickname: "" });
  const third = mine.ask({ prompt: "broken off", tokens: 4, nickname: "" });
  const prompts = () => kept.map(({ prompt }) => prompt);
  const listed = () => mine.requests.map(({ prompt }) => prompt);
  const all = ["broken off", "refused", "sent"]; // at once, the newest first
  assert.deepEqual([prompts(), listed(), mine.open.length], [all, all, 3]);
  answers[2].refuse(new TypeError("the page is left"));
  await assert.rejects(third);
  assert.deepEqual([prompts(), listed()], [all, ["refused", "sent"]]);
  answers[1].refuse(new Refusal("no", 400));
  await assert.rejects(second);
  assert.deepEqual([prompts(), listed()], [["sent"], ["sent"]]);
  const after = of(OwnRequests, { requests: kept.map((own) => ({ ...own, text: "", ends: [] })) });
  after.changed = () => {};
  const [own] = after.requests;
  after._take({ of: own.key, last: 0, messages: [{ id: "live-1", text: "To" }] });
  assert.deepEqual(
    [after.requests.length, own.prompt, own.id, own.text],
    [1, "sent", "live-1", "To"],
  );
  answers[0].answer({ id: "live-1" });
  await first;
  assert.deepEqual(kept, [{ ...kept[0], id: "live-1", prompt: "sent" }]);
});

test("one's own requests are followed in one stream, of those that have not ended", async () => {
  const streams = [];
  const server = /** @type {any} */ ({
    async *once(path, signal) {
      streams.push([path.split("places=")[1], signal]);
      yield* await new Promise((_, fail) =>
        signal.addEventListener("abort", () => fail(signal.reason)),
      );
    },
  });
  const own = (key, more = {}) => ({ key, id: key, next: 0, ends: [], text: "", ...more });
  const requests = [own("a", { next: 3 }), own("b", { ended: {} }), own("c", { lost: "gone" })];
  requests.push(own("e")); // the server does not know it yet
  const asking = new Set([requests[3]]);
  const mine = of(OwnRequests, { server, requests, asking, changed() {}, _stop: null });
  const first = mine._follow();
  requests.unshift(own("d"));
  const second = mine._follow();
  await first;
  assert.deepEqual(
    streams.map(([places, signal]) => [places, signal.aborted]),
    [
      ["a:3", true],
      ["d:0,a:3", false],
    ],
  );
  mine._stop.abort();
  await second;
});

test("what a server refuses is said, with when to try again where it says so", () => {
  const form = of(AskForm, { error: new El() });
  const said = (more) => {
    form.refuse(Object.assign(new Error("Too many requests."), more));
    return [form.error.textContent, form.error.hidden];
  };
  assert.deepEqual(said({ retryAfter: 5 }), ["Too many requests. Try again in 5 s.", false]);
  assert.deepEqual(said({ retryAfter: null }), ["Too many requests.", false]);
  form.say("");
  assert.ok(form.error.hidden);
});

test("what a teacher is typing stays, and shows what the engine has once it is left", () => {
  const set = { system: "Be brief.", hide_texts: true };
  const batch = { state: { pace: 4, class: set } };
  const parts = ["button", "paceSays", "pace", "told", "system"].map((name) => [name, new El()]);
  const teacher = of(Teacher, {
    ...{ isOn: true, live: { batch }, _touched: true, ...Object.fromEntries(parts) },
    checks: { querySelectorAll: () => [] },
  });
  const drawn = (active) => {
    document.activeElement = active;
    teacher.draw();
    return [teacher.system.value, teacher.pace.value, teacher.paceSays.textContent];
  };
  teacher.system.value = "Be lo";
  teacher.pace.value = "9";
  assert.deepEqual(drawn(teacher.system), ["Be lo", "4", "at most 4 steps a second"]);
  teacher.pace.value = "9";
  assert.deepEqual(drawn(teacher.pace).slice(0, 2), ["Be brief.", "9"]);
  batch.state.pace = null;
  assert.equal(drawn(null)[1], "20", "full speed is the slider's end");
  document.activeElement = null;
});

/** What is said of all these conditions at once, then without the first, and so on to none. */
const inTurn = (/** @type {(all: any) => string} */ say, /** @type {any} */ conditions) =>
  [...conditions.keys(), conditions.length].map((n) =>
    say(Object.assign({}, ...conditions.slice(n).reverse())),
  );
const idle = runOf([event(0)]);
const SKIPPED = "Your connection fell behind: some steps were skipped.";

test("of a batch the sentence that matters most is said", () => {
  const next = { policy: "static", max_num_seqs: 3, max_num_batched_tokens: 0 };
  const say = ({
    run = two(),
    broken = "",
    skipped = false,
    teaches = true,
    asked = false,
    ...more
  }) => {
    const { state = {}, ...set } = more;
    return says(
      { run, broken, state: { class: { accepting: true, ...set }, pace: null, ...state } },
      { skipped, teaches, asked },
    );
  };
  const state = (/** @type {any} */ given) => ({ state: given });
  const settings = { changing: true, held: 2, next };
  const conditions = [
    { broken: "The server is away." },
    state({ class: null, late: true }),
    { ...settings, ...state({ late: true }) },
    state({ late: true }),
    { skipped: true },
    { accepting: false },
    { hide_texts: true },
    { record_is_full: true },
    { run: null },
    { run: idle },
    state({ pace: 0 }),
  ];
  assert.deepEqual(inTurn(say, conditions), [
    "The server is away. Trying again.",
    "The engine is starting.",
    "Then comes static · 3 lanes. 2 requests wait for it.",
    "The engine was running before anyone watched: it is shown from its next run on.",
    SKIPPED,
    "The teacher is not accepting requests right now.",
    "The teacher has hidden the texts: only you can read yours, here.",
    "The record is full: saving gives this run from its beginning, without its latest steps. A new run begins once the batch is empty.",
    "No requests yet: add a prompt, and it joins the batch in the next step. Or send a burst.",
    "The batch is empty. Add a prompt: it joins in the next step.",
    "The batch is paused: the teacher takes single steps.",
    "",
  ]);
  assert.equal(
    say({
      ...settings,
      held: 0,
      next: undefined,
      policy: "p",
      max_num_seqs: 1,
      max_num_batched_tokens: 2048,
    }),
    "At the barrier: 2 still running. Then comes p · 1 lane · budget 2,048.",
  );
  const first = "No requests yet: add a prompt, and it joins the batch in the next step.";
  assert.equal(say({ run: null, teaches: false }), first);
  assert.deepEqual([say({ run: null, asked: true }), say({ run: idle, asked: true })], ["", ""]);
  const waits = runOf([event(0, { arrived: arrivals("a") })]);
  assert.equal(say({ run: waits }), "", "a batch with a request that waits is not empty");
});

test("of an engine that is followed, or all its ranks, the sentence that matters most is said", () => {
  const one = ({ run = two(), broken = "", followed = {}, skipped = false, silent = 10000 }) =>
    followedSays({ run, broken, state: { followed } }, { skipped, silent });
  const conditions = [
    { broken: "The server is away." },
    { followed: null },
    { followed: { sentence: "Its file ended." } },
    { skipped: true },
    { run: null },
    { run: idle },
    { silent: 10600 },
  ];
  assert.deepEqual(inTurn(one, conditions), [
    "The server is away. Trying again.",
    "The recording is being opened.",
    "Its file ended.",
    SKIPPED,
    "Its engine has computed nothing yet.",
    "Its batch is empty.",
    "No step has come for 11 s: the engine is busy with a long one, or has stopped.",
    "",
  ]);
  const all = ({ broken = "", runs = [idle, two()], sentences = [], silent = 10000 }) =>
    allSay({ broken, members: runs.map((run) => ({ run })), sentences }, silent);
  const odd = [
    [{ name: "", rank: 1 }, "It broke."],
    [{ name: "left", rank: 0 }, "It ended."],
  ];
  assert.deepEqual(
    inTurn(all, [
      { broken: "The server is away." },
      { runs: [] },
      { sentences: odd },
      { runs: [idle, idle] },
      { silent: 10600 },
    ]),
    [
      "The server is away. Trying again.",
      "The recordings are being opened.",
      "Rank 1: It broke. left: It ended.",
      "The batches of all ranks are empty.",
      "No step of any rank has come for 11 s.",
      "",
    ],
  );
});

test("of a followed engine are told its name, its file and what it does not record", () => {
  const view = new FollowedView(
    /** @type {any} */ (new El()),
    () => {},
    () => {},
  );
  const ranks = ["a", "b"].map((of, rank) => ({ of, rank }));
  const engine = { name: "vLLM", version: "0.11" };
  const header = { engine, notes: ["It was odd."], absent: ["blocks", "times"] };
  const followed = {
    ...{ engines: [{}], of: "b", ranks, count: 2, streams: ["a", "b"], all: [], file: "f.jsonl" },
    ...{ says: ["One clock."], all_says: ["Many clocks."], texts: true },
  };
  const told = (/** @type {any} */ all = "", more = {}, run = runOf([], {}, header)) => {
    view.draw({ ...followed, ...more }, run, all, []);
    return [view.title, view.file, view.note, view.clock].map((el) => el.textContent);
  };
  const own = "This engine belongs to someone else: you can watch it, but not control it.";
  const absent = "Not recorded by vLLM, and absent here: blocks, times.";
  assert.deepEqual(told(), [
    ...["vLLM 0.11, rank 1 of 2", "Recorded in f.jsonl", `It was odd. ${own} ${absent}`],
    "One clock.",
  ]);
  assert.deepEqual(told("ranks", { says: [], texts: false }), [
    "vLLM 0.11, 2 ranks",
    "Recorded in a file for each of 2 ranks",
    `${own} ${absent} Its texts are hidden, as others reach this page.`,
    "These are not ranks of one engine: each recording is followed separately.",
  ]);
  const several = { engines: [{}, {}].map(() => ({ ranks: [] })), says: [] };
  assert.deepEqual(told("all", several, null), [
    ...["2 engines", "Each recorded in files of its own", own, "Many clocks."],
  ]);
  assert.deepEqual(told("", { streams: ["b"], count: 1, says: [] }, runOf([], {}, { engine })), [
    ...["vLLM 0.11", "Recorded in f.jsonl", own, ""],
  ]);
});

test("the room shows free lanes until the batch has a step, and a phone's tabs open the hood alone", () => {
  const root = new El();
  /** @type {any[]} */
  const did = [];
  const room = of(Room, {
    ...{ details: [new El()], buttons: [new El(), new El()], tab: new El(), panel: new El() },
    view: { note: new El(), drawFree: (/** @type {any[]} */ ...how) => did.push(how) },
    ...{ isIn: true, isOpen: false },
  });
  const drawn = (/** @type {any} */ run, /** @type {any} */ set) => {
    const watch = { root, simple: true };
    room.live = { watch, batch: { run, state: { class: set } }, options: { asks: true } };
    room.draw("It starts.");
    const said = [root.dataset.people, room.view.note.textContent, room.panel.hidden];
    return [...said, ...did.splice(0)];
  };
  const ask =
    "Ask, and you get a lane at once; your answer grows beside your name, one token per step.";
  assert.deepEqual(drawn(null, { max_num_seqs: 3 }), ["free", "It starts.", false, [3, ask]]);
  assert.deepEqual(drawn(runOf([]), null), ["free", "", false, [0, "It starts."]]);
  assert.deepEqual(drawn(two(), { max_num_seqs: 3 }), ["some", "It starts.", false]);
  room.isOpen = true;
  assert.deepEqual(drawn(null, null), [undefined, "", true]);
  const chosen = (/** @type {string} */ layout, /** @type {boolean} */ on) => {
    /** @type {string[]} */
    const tabs = [];
    const state = { layout, tab: "row" };
    const none = () => {};
    const watch = { state, focusView: none, sized: none, redraw: none };
    const chooseTab = (/** @type {string} */ tab) => tabs.push(tab);
    of(Room, { live: { watch: { ...watch, chooseTab } }, draw: none }).open(on);
    return tabs;
  };
  assert.deepEqual(
    [chosen("phone", true), chosen("phone", false), chosen("desk", true)],
    [["row"], [], []],
  );
});

test("what another version of the page left in the storage is passed over", async () => {
  const { Live } = await import("../../assets/player/watch/live.js");
  class Unfollowed extends OwnRequests {
    _follow() {}
  }
  const own = { key: "k", id: "r1", prompt: "To be", seed: 1 };
  const spec = { config: {}, workload: { requests: [] } };
  const found = (/** @type {any} */ stored) => {
    globalThis.sessionStorage = /** @type {any} */ ({ getItem: () => JSON.stringify(stored) });
    const { requests } = new Unfollowed(/** @type {any} */ ({}), () => {});
    return [requests.map(({ id }) => id), Object.create(Live.prototype).left];
  };
  for (const other of [null, 1, true, "x", {}, [null, 1, "x", [], {}, { key: "k" }], { spec: 1 }])
    assert.deepEqual(found(other), [[], null], JSON.stringify(other));
  assert.deepEqual(found([null, own, {}]), [["r1"], null]);
  assert.deepEqual(found({ spec, job: "j" }), [[], { spec, job: "j" }]);
});
