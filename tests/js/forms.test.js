// What forms, tables and their keys do, without a page.

import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El, Event, finding, of } from "./elements.js";
import { arrivals, event, runOf } from "./worlds.js";

Object.assign(globalThis, {
  window: {},
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "" },
});
const { NewComparison } = await import("../../assets/player/compare/new_comparison.js");
const { EquivalencePanel } = await import("../../assets/player/compare/equivalence.js");
const { PlanPanel } = await import("../../assets/player/compare/plan.js");
const { FindRequest } = await import("../../assets/player/live/find.js");
const { AskForm, OwnList } = await import("../../assets/player/live/own_requests.js");
const { House } = await import("../../assets/player/live/house.js");
const { FollowedView, JustFinished } = await import("../../assets/player/live/panels.js");
const { Room } = await import("../../assets/player/live/room.js");
const { Teacher } = await import("../../assets/player/live/teacher.js");
const { h } = await import("../../assets/player/parts/dom.js");
const { pack, unpack } = await import("../../assets/player/watch/address.js");
const { ModelField } = await import("../../assets/player/parts/model_field.js");
const { Editor } = await import("../../assets/player/watch/editor.js");
const { Messages } = await import("../../assets/player/watch/messages.js");
const { openDropped } = await import("../../assets/player/watch/open_file.js");
const { Opening } = await import("../../assets/player/watch/opening/opening.js");
const { showSlow } = await import("../../assets/player/watch/slow.js");
const { Outcome } = await import("../../assets/player/write/outcome.js");

/** Fields of a form by their names, made as they are asked for. */
const fieldsOf = (fields = {}) => ({
  namedItem: (name) => (fields[name] ??= Object.assign(new El("input"), { name })),
});
/** A key that is pressed: whether the page took it. */
const press = (el, key, more = {}) =>
  !el.dispatchEvent(Object.assign(new Event("keydown", { cancelable: true }), { key, ...more }));

test("too little memory is said of a model that is to be loaded, not of one that is", () => {
  const field = of(ModelField, { options: { blockSize: () => 16 }, kept: 0 });
  const facts = { parameters: 9, stored: [], weights: 9e9, free: 1e9, layers: 1 };
  const said = (loaded) =>
    field
      ._facts({ ...facts, loaded, has_tokenizer: true, dtype: "float32" })
      .map((part) => part && (part.textContent ?? part))
      .join(" ");
  assert.match(said(false), /too little memory/);
  assert.doesNotMatch(said(true), /too little memory/);
});

test("other requests to compare leave the model that a visitor brought, not one of other requests", async () => {
  const model = {
    get isOwn() {
      return this.value !== "small";
    },
    choose: (spec) => (model.value = spec.model),
    value: "a folder",
  };
  let comes = "";
  const form = of(NewComparison, {
    _say: async () => ({ config: {}, model: comes }),
    fields: { max_num_seqs: {}, max_num_batched_tokens: {} },
    model,
    device: { choose() {} },
  });
  const after = async (name) => ((comes = name), await form._chosen(), model.value);
  assert.equal(await after("large"), "a folder");
  model.value = "small";
  assert.deepEqual([await after("large"), await after("small")], ["large", "small"]);
});

test("Enter sends a prompt, but not that which ends a composed word or begins a line", () => {
  const fields = {};
  const form = Object.assign(new El("form"), {
    elements: fieldsOf(fields),
    querySelector: () => new El(),
    requestSubmit: () => (sent += 1),
  });
  let sent = 0;
  new AskForm(/** @type {any} */ (form), /** @type {any} */ ({}), () => {});
  const keys = [{ keyCode: 229 }, { shiftKey: true }, {}];
  assert.deepEqual(
    keys.map((more) => press(fields.prompt, "Enter", more)),
    [false, false, true],
  );
  assert.equal(sent, 1);
});

test("a prompt is sent once, and what is typed while it is sent stays", async () => {
  const fields = {};
  const asked = [];
  const answers = [];
  const ask = ({ prompt }) => {
    asked.push(prompt);
    return new Promise((resolve) => answers.push(resolve));
  };
  const parts = { ".ask-button": new El("button"), ".ask-error": new El() };
  let asksFor = 0;
  const form = Object.assign(new El("form"), {
    elements: fieldsOf(fields),
    querySelector: (selector) => parts[selector],
    reportValidity: () => (asksFor += 1),
  });
  new AskForm(/** @type {any} */ (form), /** @type {any} */ ({ ask }), () => {});
  const submit = () => form.dispatchEvent(new Event("submit", { cancelable: true }));
  const answered = async () => {
    answers.pop()();
    await new Promise((resolve) => setTimeout(resolve));
  };
  fields.prompt.value = "first";
  submit();
  submit();
  assert.deepEqual(asked, ["first"]);
  fields.prompt.value = "second";
  await answered();
  assert.equal(fields.prompt.value, "second");
  submit();
  await answered();
  fields.prompt.value = " \n ";
  submit();
  assert.deepEqual([asked, fields.prompt.value, asksFor], [["first", "second"], "", 1]);
});

test("a teacher's form shows the limits that are waited for", () => {
  const fields = {};
  const now = { policy: "continuous", max_num_seqs: 4, max_num_batched_tokens: 64 };
  const batch = { state: { pace: null, class: { ...now, next: { ...now, max_num_seqs: 8 } } } };
  const teacher = of(Teacher, {
    isOn: true,
    live: { batch },
    limits: { elements: fieldsOf(fields), contains: () => false },
    checks: { querySelectorAll: () => [] },
    ...Object.fromEntries(
      ["button", "paceSays", "pace", "told", "system"].map((name) => [name, new El()]),
    ),
  });
  const shown = () => (teacher.draw(), fields.max_num_seqs.value);
  assert.equal(shown(), "8");
  batch.state.class.next = null;
  assert.equal(shown(), "4");
  teacher._touched = true; // what is being typed stays
  fields.max_num_seqs.value = "5";
  assert.equal(shown(), "5");
});

test("sampling that was changed in one run's form is not that of the next one's requests", () => {
  const fields = {};
  const editor = of(Editor, {
    field: fieldsOf(fields).namedItem,
    $: () => new El(),
    messages: { added() {} },
    model: { choose() {}, spec: { model: "m" } },
    device: { choose() {}, value: "auto" },
    touchedSampling: new Set(["temperature"]),
    _policy() {},
    _compare() {},
  });
  const requests = [0.2, 0.9].map((temperature, n) => ({
    id: `r${n}`,
    prompt: "p",
    sampling: { temperature, max_new_tokens: 4 },
  }));
  editor.fill({ workload: { requests }, config: { policy: "continuous" }, model: "m" });
  const warmth = () => editor.spec().workload.requests.map((one) => one.sampling.temperature);
  assert.deepEqual(warmth(), [0.2, 0.9]);
  assert.equal(editor.spec().workload.name, "custom");
  editor.fill({ workload: { requests, name: "six" }, config: {}, model: "m" });
  assert.equal(editor.spec().workload.name, "six");
  editor.touchedSampling.add("temperature");
  fields.temperature.value = "0.5";
  assert.deepEqual(warmth(), [0.5, 0.5]);
});

test("what Compare is told of Watch's requests is where they are from and when the last one comes", async () => {
  const spec = (unit, ...at) => ({
    workload: { arrival_unit: unit, requests: at.map((arrival) => ({ arrival })) },
  });
  const said = (given, { changed = false, isInteractive = false } = {}) =>
    Editor.prototype.said.call({
      ...{ _follow: async () => true, _fault: () => null, spec: () => given, changed },
      ...{ rows: given.workload.requests, app: { run: { isInteractive } } },
    });
  const here = "3 [request|requests], those of the run on screen there.";
  const late = "The last comes after 7.0 s: each run takes longer than that.";
  const kept = "Each comes in the step in which it came: pauses and pace are left out.";
  const says = async (...given) => (await said(...given)).says.filter(Boolean);
  assert.deepEqual(await says(spec("s", 0, 7, 2)), [here, late]);
  assert.deepEqual(await says(spec("s", 0, 1, 1)), [here]);
  assert.deepEqual(await says(spec("step", 0, 7, 2), { isInteractive: true }), [here, kept]);
  assert.deepEqual(await says(spec("step", 0, 7, 2), { changed: true, isInteractive: true }), [
    "3 [request|requests], as edited there.",
  ]);
});

test("a link to a preset's requests has all in which the run differs from the preset", async () => {
  const workload = { requests: [{ id: "r0" }] };
  const plain = { workload, config: { policy: "static", max_num_seqs: 2 }, model: "m" };
  const editor = of(Editor, {
    state: { presets: [{ name: "one", spec: { ...plain, device: "cpu", dtype: "auto" } }] },
  });
  const linked = async (changes) =>
    unpack(await editor.packed({ ...plain, device: "cpu", dtype: "auto", ...changes }));
  assert.deepEqual(await linked({}), { preset: "one", config: {} });
  for (const change of [{ model: "n" }, { device: "cuda" }, { dtype: "float16" }])
    assert.deepEqual(await linked(change), { preset: "one", config: {}, ...change });
  const lanes = await linked({ config: { policy: "static", max_num_seqs: 3 } });
  assert.deepEqual(lanes, { preset: "one", config: { max_num_seqs: 3 } });
  const other = { ...plain, workload: { requests: [] } };
  assert.deepEqual(await unpack(await editor.packed(other)), other);
});

test("a form that cannot be run says what is wrong in the first field that is, and marks it alone", () => {
  const drawer = new El();
  /** @type {Record<string, any>} */
  const made = {};
  const field = (/** @type {string} */ name, value = "", label = new El("label")) => {
    const how = { value, validity: { valid: true }, validationMessage: "" };
    made[name] = Object.assign(new El("input"), how);
    label.append(h("span", {}, name.toUpperCase()), made[name]);
    drawer.append(label);
    return made[name];
  };
  for (const name of ["max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"])
    field(name, name === "num_blocks" ? "" : "1");
  for (const name of ["temperature", "top_k", "top_p", "seed"]) field(name, "1");
  const rows = [0, 1].map((i) => ({
    ...{ prompt: field(`prompt${i}`, "To be"), tokens: field(`tokens${i}`, "4") },
    ...{ arrival: field(`arrival${i}`, "0"), priority: field(`priority${i}`) },
    conversation: { empty: null },
  }));
  const editor = of(Editor, {
    ...{ drawer, rows, model: { fault: null, own: field("own") }, isByPriority: false },
    field: (/** @type {string} */ name) => made[name],
  });
  /** What is said while a field is like this; the form is fine without it. */
  const says = (/** @type {string} */ name, /** @type {object} */ more) => {
    assert.equal(editor._fault(), null);
    const el = made[name];
    const { value, validity, validationMessage } = el;
    Object.assign(el, more);
    const said = editor._fault();
    assert.deepEqual(drawer.querySelectorAll(".bad"), said === null ? [] : [el]);
    Object.assign(el, { value, validity, validationMessage });
    return said;
  };
  const whole = "Request 2: new tokens must be a whole number of at least 1.";
  const number = "Request 1: the arrival must be a number of at least 0.";
  const order = "Request 2: the priority must be a whole number.";
  for (const [name, values, said] of /** @type {[string, string[], string | null][]} */ ([
    ["prompt0", [""], "Request 1 has an empty prompt."],
    ["prompt1", [""], "Request 2 has an empty prompt."],
    ["tokens1", ["", "0", "-1", "1.5", "x"], whole],
    ["tokens1", ["1", "4096"], null],
    ["arrival0", ["", "-1", "x"], number],
    ["arrival0", ["0", "2.5"], null],
    ["priority1", ["", "x"], null], // the policy does not go by it
    ["seed", [""], "SEED: this needs a number"],
    ["num_blocks", ["", "9"], null], // empty: as many as there is memory for
  ]))
    for (const value of values) assert.equal(says(name, { value }), said, `${name}=${value}`);
  const wrong = { validity: { valid: false }, validationMessage: "Too large." };
  assert.equal(says("top_k", { value: "9", ...wrong }), "TOP_K: Too large.");
  assert.equal(says("num_blocks", wrong), "NUM_BLOCKS: Too large.", "letters have no value");
  Object.assign(made.block_size, { disabled: true, value: "" }); // it is not the policy's
  assert.equal(editor._fault(), null);
  for (const { priority } of rows) priority.value = "-2";
  editor.isByPriority = true;
  for (const value of ["", "1.5", "x"]) assert.equal(says("priority1", { value }), order, value);
  rows[1].conversation.empty = made.own;
  assert.equal(editor._fault(), "Request 2 has an empty message.");
  editor.model.fault = "Name a model.";
  assert.equal(editor._fault(), "Name a model.");
  editor.rows = [];
  assert.equal(editor._fault(), "There is nothing to run: add a request.");
});

test("a link's run begins with all that the link names, or it is said why it does not", async () => {
  const workload = { requests: [{ id: "r0" }] };
  const config = { policy: "static", max_num_seqs: 2 };
  const spec = { workload, config, model: "m", device: "cpu" };
  const followed = async (/** @type {any} */ link, /** @type {any} */ more = {}) => {
    const { model = {}, any_model = false, edited = false, ...wanted } = more;
    /** @type {any[]} */
    const told = [];
    const tell =
      (/** @type {string} */ name) =>
      (/** @type {any[]} */ ...what) =>
        void told.push([name, ...what]);
    const editor = of(Editor, {
      ...{ state: { presets: [{ name: "one", spec }], any_model }, frame: { say: tell("say") } },
      model: { knows: (/** @type {string} */ name) => name !== "far", options: {}, ...model },
      app: { toast: tell("toast"), address: {}, look: tell("look"), run: 1, live: { run: 1 } },
      ...{ ready: async () => true, toggle: tell("toggle"), fill() {}, touch() {} },
      edit: (/** @type {any} */ into) => tell("edit")(into.model),
      setAside: (/** @type {() => void} */ fill) => (fill(), "restore"),
      runSpec: async (/** @type {any} */ what) => !tell("run")(JSON.parse(JSON.stringify(what))),
    });
    Object.defineProperty(editor, "edited", { value: edited });
    const text = typeof link === "string" ? link : await pack(link);
    await editor.restore({ spec: text, ...wanted });
    assert.deepEqual([editor.app.address.owes, editor.restoring], [false, null]);
    return told;
  };
  const runs = (/** @type {any} */ what) => [
    ...[
      ["toast", "Running what the link describes."],
      ["run", what],
    ],
  ];
  const look = ["look", { spec: await pack(spec), step: 3 }];
  assert.deepEqual(await followed(spec, { step: 3 }), [["edit", "m"], ...runs(spec), look]);
  assert.deepEqual((await followed(spec, { edited: true }))[0][0], "toast", "edits stay");
  const preset = { preset: "one", config: { max_num_seqs: 5 }, dtype: "float16" };
  const merged = { ...spec, config: { policy: "static", max_num_seqs: 5 }, dtype: "float16" };
  const [, ...begun] = await followed(preset);
  assert.deepEqual(begun.slice(0, 2), runs(merged));
  const other = { ...preset, model: "n", device: "cuda" };
  const [, , [, asked]] = await followed(other);
  assert.deepEqual([asked.model, asked.device], ["n", "cuda"]);
  for (const unreadable of ["x", { config }])
    assert.deepEqual(await followed(unreadable), [
      ["toast", "This link's workload cannot be read."],
    ]);
  assert.deepEqual(await followed({ preset: "two", config: {} }), [
    ["toast", "This link names a preset that is not here."],
  ]);
  const far = { ...spec, model: "far" };
  const refused = (/** @type {string} */ says) => [
    ...[
      ["edit", "far"],
      ["toggle", true],
      ["say", says, true, "restore"],
    ],
  ];
  assert.deepEqual(
    await followed(far),
    refused(
      "This link asks for the model far, which this page cannot load: choose one of its own.",
    ),
  );
  assert.deepEqual(
    await followed(far, { any_model: true }),
    refused("This link asks for the model far, which is not built in: run it if you trust it."),
  );
  const file = { knows: () => false, options: { open() {} } };
  assert.equal(
    (await followed({ ...spec, model: "own.gguf" }, { model: file })).at(-1)[1],
    "own.gguf is a file on a disk: choose it, as your own GGUF file, to run this here.",
  );
});

test("a prompt of token ids is no message, the texts beside it become some", () => {
  const row = (value, request = {}) => ({ el: new El(), prompt: { value }, request });
  const rows = [row("3 token ids", { prompt_token_ids: [1, 2, 3] }), row("Hello")];
  const messages = of(Messages, { rows: () => rows, switch: {}, label: {}, touched() {} });
  messages.turn(true);
  const asked = rows.map((one) => /** @type {any} */ (one).messages);
  assert.deepEqual(asked, [undefined, [{ role: "user", content: "Hello" }]]);
});

test("a file is taken where it is dropped on Watch, not on the player of another part", () => {
  const root = new El();
  openDropped({ root });
  const { dataset } = document.documentElement;
  const takes = (part) => {
    dataset.part = part;
    return ["dragover", "drop"].map((type) => {
      const dragged = new Event(type, { cancelable: true });
      const dataTransfer = { types: ["Files"], files: [] };
      return !root.dispatchEvent(Object.assign(dragged, { dataTransfer }));
    });
  };
  assert.deepEqual(["watch", "learn", "live"].map(takes), [
    [true, true], // else the browser would leave the page for the file
    [false, false],
    [false, false],
  ]);
  delete dataset.part;
});

test("a folder that is dropped is told as one, a file by what is wrong with it", async () => {
  const said = async (/** @type {any} */ file) => {
    const root = new El();
    const told = new Promise((toast) => openDropped({ root, toast, options: { uploadBytes: 4 } }));
    const dataTransfer = { types: ["Files"], files: [file] };
    document.documentElement.dataset.part = "watch";
    root.dispatchEvent(Object.assign(new Event("drop"), { dataTransfer }));
    return await told;
  };
  const folder = new ReadableStream({ start: (c) => c.error(new TypeError("network error")) });
  assert.equal(
    await said({ name: "runs", stream: () => folder }),
    "The file could not be opened: it is a folder, or can no longer be read.",
  );
  assert.match(await said(new globalThis.File(["12345"], "a.json")), /it has more than 0 MiB/);
  delete document.documentElement.dataset.part;
});

test("what is typed below the opening's last picture is no key of the opening", () => {
  const done = [];
  const opening = of(Opening, {
    on: true,
    mine: true,
    app: { root: { getClientRects: () => [1], querySelector: () => null } },
    playing: false,
    toggle: () => done.push("plays"),
  });
  const key = (inside) => ({
    key: " ",
    target: { closest: (selectors) => selectors.split(", ").includes(inside) },
    stopPropagation: () => done.push("taken"),
    preventDefault() {},
  });
  for (const inside of ["form", ".menu"]) opening._key(key(inside));
  assert.deepEqual(done, []);
  opening._key(key("canvas"));
  assert.deepEqual(done, ["taken", "plays"]);
});

test("arrows turn the opening on its slider, even if it began by itself; other places open the hood", () => {
  const done = [];
  const line = new El();
  const press = (key, target) => {
    const opening = of(Opening, {
      ...{ on: true, mine: false, line },
      app: { root: { getClientRects: () => [1], querySelector: () => null } },
      turn: (by) => done.push(by),
      openHood: () => done.push("hood"),
    });
    opening._key({ key, target, stopPropagation() {}, preventDefault() {} });
  };
  const names = ["ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown"];
  for (const at of [line, new El()]) for (const key of names) press(key, at);
  assert.deepEqual(done, [1, 1, -1, -1, "hood", "hood", "hood", "hood"]);
});

test("what took longest comes first, and of a column's name that is pressed first A, then the longest", () => {
  const run = runOf([event(0, { arrived: ["a", "b"].map((request) => ({ request, t: 0 })) })]);
  const time = (us) => ({ us: [us], steps: [1], queued: {}, uncompared: 0, ended: true });
  run.delays = /** @type {any} */ ({
    parts: [["decode", "decode", "answers"]],
    limits: {},
    worst: [],
    requests: { a: time(1e6), b: time(3e6) },
  });
  const [root, dialog] = [new El(), Object.assign(new El("dialog"), { showModal() {} })];
  dialog.className = "card";
  root.querySelector = () => dialog;
  showSlow({ run, root, pinned: null });
  const shown = () =>
    dialog
      .querySelectorAll(".slow-id")
      .map((id) => id.textContent)
      .join("");
  const pressed = (by) => {
    dialog.querySelector(`[data-by="${by}"]`).click();
    return shown();
  };
  assert.equal(shown(), "ba");
  const hasKey = (by) => {
    const head = dialog.querySelector(`[data-by="${by}"]`);
    return head.querySelector(`.went-${by}`) !== null; // its colour in the bars
  };
  assert.deepEqual(["request", "whole", "decode"].map(hasKey), [false, false, true]);
  assert.deepEqual(["request", "request", "decode", "decode"].map(pressed), [
    "ab",
    "ba",
    "ba",
    "ab",
  ]);
});

test("after a task that is done the one that follows is offered, then what was left out", () => {
  const tasks = ["one", "two", "three"].map((name) => ({ name, title: name, goals: [] }));
  const offered = (at, ...done) => {
    const $ = finding();
    const part = {
      $,
      options: { tasks },
      task: tasks[at],
      own: { isDone: (name) => done.includes(name) },
    };
    new Outcome(part).show({ fault: null, goals: [] });
    assert.ok($(".progress").hidden);
    return $(".outcome").textContent;
  };
  assert.match(offered(1, "two"), /Next: three/);
  assert.match(offered(1, "two", "three"), /Next: one/);
  assert.doesNotMatch(offered(1, "one", "two", "three"), /Next/);
});

test("the request that was looked for is selected once it comes, and its visitor selects from then on", () => {
  const [form, input, says] = [new El("form"), new El("input"), new El()];
  says.className = "find-says";
  form.append(input, says);
  const selected = [];
  const find = new FindRequest(
    /** @type {any} */ (form),
    (_run, { id }) => selected.push(id),
    () => {},
  );
  find.seek("b");
  find.draw(true, [runOf([event(0, { arrived: arrivals("a") })])]);
  assert.deepEqual([selected, says.hidden], [[], false]);
  const run = runOf([event(0, { arrived: arrivals("a", "b") })]);
  for (let n = 0; n < 2; n += 1) find.draw(true, [run]);
  assert.deepEqual([selected, says.hidden], [["b"], true]);
});

test("a request that goes on is cancelled, one that ended or was lost leaves the list", () => {
  const done = [];
  const mine = { cancel: async () => done.push("cancel"), forget: () => done.push("forget") };
  const list = of(OwnList, { mine, rows: new Map(), draw() {} });
  for (const own of [{}, { ended: {} }, { lost: "gone" }]) list._row(own).button.click();
  assert.deepEqual(done, ["cancel", "forget", "forget"]);
});

test("how a request ended is read out with its answer, once, but not after a reload", () => {
  const heard = new El();
  const mine = { asking: new Set() };
  const list = of(OwnList, { mine, heard, rows: new Map(), shown: () => ({ run: null }) });
  const own = { id: "r0", prompt: "Why?", text: "So it ", ends: [3, 6] };
  const row = list._row(own);
  list._fill(own, row);
  assert.equal(heard.textContent, "");
  const went = { waited_s: 0.5, tokens: 3, steps: 3, others: 0 };
  Object.assign(own, { text: "So it is.", ends: [3, 6, 9], went, ended: {} });
  list._fill(own, row);
  const done = "Done: you waited 500 ms, wrote 3 tokens in 3 steps, alone. So it is.";
  assert.equal(heard.textContent, done);
  heard.textContent = "";
  for (const again of [row, list._row(own)]) list._fill(own, again);
  assert.equal(heard.textContent, "");
});

test("the room is no view of Watch once Live is left", () => {
  const [root, tabs] = [new El(), new El()];
  tabs.className = "view-tabs";
  root.append(tabs);
  const views = new Set(["room"]);
  const el = { remove() {} };
  const room = of(Room, {
    live: { watch: { root, chooseTab() {}, state: {} } },
    isIn: true,
    ...{ panel: el, tab: el, buttons: [el, el], details: [el, el] },
    _removeView: () => views.delete("room"),
  });
  room.leave();
  assert.deepEqual([room.isIn, views.size], [false, 0]);
});

test("a plan begins with all requests, and a run of it has the name of its row", async () => {
  const watched = [];
  const table = { rows: [["as recorded"], ["4 lanes"], ["8 lanes"]] };
  const plan = of(PlanPanel, {
    request: { value: "1" },
    say() {},
    _busy: (act) => act(() => {}),
    options: { ask: async (_kind, spec) => spec.config, watch: (...how) => watched.push(how) },
  });
  plan.show({ run: "r", configs: ["four", "eight"], table });
  assert.equal(plan.request.value, "");
  await plan.watch(0);
  assert.deepEqual(watched, [["four", "Simulated: 4 lanes"]]);
});

test("of two texts the tokens that differ are counted against the longer one", () => {
  const $ = finding();
  const panel = of(EquivalencePanel, { $, leak: { checked: false }, prompts: new Map() });
  const same = {
    request: "b",
    letter: "B",
    solo: [1, 2],
    batched: [1, 2],
    max_logit_difference: 0,
  };
  const parted = {
    ...{ request: "a", letter: "A", solo: [1, 2], batched: [1, 3, 4], max_logit_difference: 0.5 },
    ...{ parting: { position: 1, margin: 0.1 }, differing_tokens: 2 },
  };
  const texts = { solo_text: "x y", batched_text: "x z w" };
  panel.kept = { honest: { says: "", requests: [parted, same].map((r) => ({ ...texts, ...r })) } };
  panel.say();
  const counted = [...$(".pairs").textContent.matchAll(/\d+ of \d+/g)].map(([words]) => words);
  assert.deepEqual(counted, ["2 of 3", "0 of 2"]);
});

test("a prompt of the house is sent once at a press and can be pressed again, and bots ask till they end", async () => {
  let [asked, taken] = [0, () => {}];
  const ask = () => {
    asked += 1;
    return /** @type {Promise<void>} */ (new Promise((done) => (taken = done)));
  };
  const house = new House(/** @type {any} */ (new El()), ["Why?"], { ask, letBotsAsk: ask });
  const [button] = house.prompts;
  for (let n = 0; n < 2; n += 1) {
    button.click();
    button.click();
    taken();
    await new Promise((done) => setTimeout(done));
  }
  assert.equal(asked, 2);
  const drawn = (finished) => {
    house.draw(/** @type {any} */ ({ header: {}, requests: [{ isBot: true, finished }] }));
    return [house.bots.disabled, house.bots.textContent];
  };
  assert.deepEqual(drawn(null), [true, "Three bots are asking …"]);
  assert.deepEqual(drawn({ step: 3 }), [false, "Let three bots ask"]);
});

test("of those that just finished the latest come first, without who was cancelled", () => {
  const [section, list] = [new El(), new El("ul")];
  section.append(list);
  const ids = ["a", "b", "c", "d", "e", "f", "g", "h"];
  const run = runOf([
    event(0, { arrived: arrivals(...ids) }),
    ...ids.map((request, n) =>
      event(n + 1, { finished: [{ request, finishReason: n === 6 ? "cancelled" : "stop" }] }),
    ),
  ]);
  const shown = { run, index: 8 };
  const ended = new Map([["h", { tokens: 8, steps: 9, others: 2, waited_s: 0.013 }]]);
  new JustFinished(section, () => ({ shown, run, ended })).draw();
  const letters = list.querySelectorAll(".chip-out").map((chip) => chip.textContent);
  const expected = ["h", "f", "e", "d", "c", "b"].map((id) => run.request(id)?.letter);
  assert.deepEqual(letters, expected);
  const [newest] = list.querySelectorAll(".finished-words");
  assert.equal(newest.textContent, "8 tokens in 9 steps with 2 others · waited 13\u00a0ms");
});

test("of several engines one that is busy and silent is said to be, and what is on screen is pressed", () => {
  const section = new El();
  const view = new FollowedView(
    /** @type {any} */ (section),
    () => {},
    () => {},
  );
  const rank = (of, running) => ({
    of,
    rank: 0,
    running,
    waiting: 2,
    kv_used: 1,
    kv_total: 4,
    silent_s: 30,
  });
  const engines = ["a", "b"].map((of, n) => ({ name: of, model: "m", ranks: [rank(of, n)] }));
  const followed = { engines, of: "a", ranks: [], all: [], streams: [], says: [], all_says: [] };
  const rows = (all) => {
    view.draw(followed, null, all, engines);
    return [...view.engines.rows.values()].map(({ button, model, cells }) => [
      button.getAttribute("aria-pressed"),
      model.textContent,
      cells.map((cell) => cell.textContent).join(),
    ]);
  };
  assert.deepEqual(rows(null), [
    ["true", "m", "0,2,25 %,–"],
    ["false", "m · no step for 30 s", "1,2,25 %,–"],
  ]);
  assert.deepEqual(
    rows("all").map(([pressed]) => pressed),
    ["false", "false"],
  );
});
