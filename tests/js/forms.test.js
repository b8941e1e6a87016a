// What forms, tables and their keys do, without a page.

import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El, Event } from "./elements.js";
import { event, runOf } from "./worlds.js";

Object.assign(globalThis, {
  window: {},
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "" },
});
const { NewComparison } = await import("../../assets/player/compare/new_comparison.js");
const { AskForm } = await import("../../assets/player/live/own_requests.js");
const { Teacher } = await import("../../assets/player/live/teacher.js");
const { ModelField } = await import("../../assets/player/parts/model_field.js");
const { Editor } = await import("../../assets/player/watch/editor.js");
const { Messages } = await import("../../assets/player/watch/messages.js");
const { openDropped } = await import("../../assets/player/watch/open_file.js");
const { Opening } = await import("../../assets/player/watch/opening/opening.js");
const { showSlow } = await import("../../assets/player/watch/slow.js");
const { Outcome } = await import("../../assets/player/write/outcome.js");

/** An object of a class, without what its constructor needs. */
const of = (kind, fields) => Object.assign(Object.create(kind.prototype), fields);
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

test("other requests to compare leave the model that a visitor brought", async () => {
  const chosen = (isOwn) => {
    const models = [];
    const form = of(NewComparison, {
      _say: async () => ({ config: {}, model: "small" }),
      fields: { max_num_seqs: {}, max_num_batched_tokens: {} },
      model: { isOwn, choose: ({ model }) => models.push(model) },
      device: { choose() {} },
    });
    return form._chosen().then(() => models);
  };
  assert.deepEqual([await chosen(true), await chosen(false)], [[], ["small"]]);
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
  const keys = [{ isComposing: true }, { shiftKey: true }, {}];
  assert.deepEqual(
    keys.map((more) => press(fields.prompt, "Enter", more)),
    [false, false, true],
  );
  assert.equal(sent, 1);
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
  editor.touchedSampling.add("temperature");
  fields.temperature.value = "0.5";
  assert.deepEqual(warmth(), [0.5, 0.5]);
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
    const dragged = new Event("dragover", { cancelable: true });
    return !root.dispatchEvent(Object.assign(dragged, { dataTransfer: { types: ["Files"] } }));
  };
  assert.deepEqual(["watch", "learn", "live"].map(takes), [true, false, false]);
  delete dataset.part;
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
    const box = new El();
    const part = {
      $: (selector) => (selector === ".outcome" ? box : new El()),
      options: { tasks },
      task: tasks[at],
      own: { isDone: (name) => done.includes(name) },
    };
    new Outcome(part).show({ fault: null, goals: [] });
    return box.textContent;
  };
  assert.match(offered(1, "two"), /Next: three/);
  assert.match(offered(1, "two", "three"), /Next: one/);
  assert.doesNotMatch(offered(1, "one", "two", "three"), /Next/);
});
