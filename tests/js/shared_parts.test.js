// What every part of the page relies on: toasts, drags, drawers, storage, streams, canvases.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Drawer } from "../../assets/player/parts/drawer.js";
import { chip } from "../../assets/player/parts/chips.js";
import { onDrag } from "../../assets/player/parts/dom.js";
import { Menu } from "../../assets/player/parts/floating.js";
import { goalItem } from "../../assets/player/parts/goal.js";
import { keepEntry, keptEntries } from "../../assets/player/parts/kept.js";
import { putLanguage } from "../../assets/player/parts/language.js";
import { hideToast, showToast } from "../../assets/player/parts/look.js";
import { ModelField } from "../../assets/player/parts/model_field.js";
import { Palette } from "../../assets/player/parts/colours.js";
import { Server } from "../../assets/player/parts/server.js";
import { awaitLanguage, isUnspoken, speak, Speech } from "../../assets/player/parts/speech.js";
import { Tables } from "../../assets/player/parts/tables.js";
import { CanvasView, clipped, measure, setFont } from "../../assets/player/parts/surface.js";
import { documentOf, El, Event, of, soon } from "./elements.js";

Object.assign(globalThis, { document: documentOf(), HTMLElement: El });

test("a toast stays as long as it was given, whatever was said just before it", (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [root, el] = [new El(), new El()];
  el.className = "toast";
  root.append(el);
  const after = (ms) => {
    t.mock.timers.tick(ms);
    return [el.hidden, el.textContent];
  };
  showToast(root, "One.", 1000);
  assert.deepEqual(after(900), [false, "One."]);
  showToast(root, "Two.", 4000);
  assert.deepEqual(
    [after(3900), after(200)],
    [
      [false, "Two."],
      [true, "Two."],
    ],
  );
  showToast(root, "Three.", 1000);
  hideToast(root);
  assert.ok(el.hidden);
});

test("a drag is of the main button and of one finger, until it is let go", () => {
  const el = Object.assign(new El(), { setPointerCapture() {} });
  const heard = [];
  onDrag(
    /** @type {any} */ (el),
    ({ x }) => (heard.push(`begins ${x}`), x < 0 ? null : (e) => heard.push(`moves ${e.x}`)),
    ({ x }) => heard.push(`ends ${x}`),
  );
  const does = (type, x, button = 0) => {
    el.dispatchEvent(Object.assign(new Event(type), { x, button }));
    return heard.splice(0);
  };
  assert.deepEqual(does("pointermove", 1), []);
  assert.deepEqual(does("pointerdown", 1, 2), [], "another button");
  assert.deepEqual(does("pointerdown", -1), ["begins -1"], "nothing is there to drag");
  assert.deepEqual(does("pointerup", 1), []);
  assert.deepEqual(does("pointerdown", 2), ["begins 2"]);
  assert.deepEqual(does("pointerdown", 3), [], "a second finger");
  assert.deepEqual([does("pointermove", 4), does("pointerup", 5)], [["moves 4"], ["ends 5"]]);
  assert.deepEqual([does("pointermove", 6), does("pointerup", 7)], [[], []]);
});

test("what a drawer runs begins with no progress, and only then can it be cancelled", () => {
  const form = new El("form");
  const done = [];
  const drawer = new Drawer(form, "Title", { close() {}, cancel: () => done.push("cancel") });
  const shown = () => [
    drawer.button.disabled,
    drawer.cancel.hidden,
    drawer.progressBar.hidden,
    drawer.bar.style.transform,
  ];
  drawer.progress(2);
  assert.equal(drawer.bar.style.transform, "scaleX(1)");
  drawer.busy(true);
  assert.deepEqual(shown(), [true, false, false, "scaleX(0)"]);
  drawer.progress(0.5);
  drawer.cancel.click();
  drawer.busy(false);
  assert.deepEqual([shown(), done], [[false, true, true, "scaleX(0)"], ["cancel"]]);
});

test("once there is room again what another tab has kept is found", (t) => {
  const store = new Map();
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (key) => store.get(key) ?? null,
    setItem: (key, text) => store.set(key, text),
  });
  const full = t.mock.method(localStorage, "setItem", () => {
    throw new Error("full");
  });
  let known = keepEntry("good", "k", {}, "a", { n: 1 });
  assert.deepEqual(known, { a: { n: 1 } });
  store.set("k", '{"a":{"n":0}}');
  assert.deepEqual(keptEntries("good", "k", known), { a: { n: 1 } }, "what is kept is older");
  full.mock.restore();
  known = keepEntry("good", "k", known, "a", { m: 2 });
  assert.deepEqual(JSON.parse(store.get("k")), { a: { n: 1, m: 2 } });
  store.set("k", '{"a":{"n":1,"m":2},"b":{}}');
  assert.deepEqual(Object.keys(keptEntries("good", "k", known)), ["a", "b"]);
});

/** The deltas of a stream whose connections bring these texts, one each, and how often it was asked. */
function streamed(t, texts, options) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const asked = [];
  globalThis.fetch = /** @type {any} */ (
    async (path) => {
      asked.push(path);
      const text = texts.shift();
      if (text === undefined) throw new Error("away");
      return new Response(text);
    }
  );
  const found = [];
  const reading = (async () => {
    for await (const { n } of new Server("").deltas("s", options)) found.push(n);
  })();
  let over = false;
  const end = reading.catch((error) => error.message).finally(() => (over = true));
  const { setImmediate: turn } = globalThis;
  return (async () => {
    while (!over) {
      await new Promise((done) => turn(done));
      t.mock.timers.tick(5000);
    }
    return { found, asked, error: await end };
  })();
}
const message = (id, ...deltas) =>
  `: still here\nid: ${id}\ndata: [\ndata: ${JSON.stringify(deltas).slice(1)}\n\n`;

test("a stream that breaks often is resumed behind what has come as long as something comes", async (t) => {
  const texts = [7, 8, 9, 10, 11, 12].map((id) => message(id, { n: id }));
  const last = message(13, { n: 13, done: true });
  const { found, asked, error } = await streamed(t, [...texts, last], { from: 7 });
  assert.deepEqual([found, error], [[7, 8, 9, 10, 11, 12, 13], undefined]);
  assert.deepEqual(
    asked,
    found.map((n) => `s?from=${n}`),
  );
});

test("a stream from which nothing comes is given up after the fourth try in a row", async (t) => {
  const { found, asked, error } = await streamed(t, [message(0, { n: 0 })], { from: 0 });
  assert.deepEqual([found, asked.length, error], [[0], 5, "The server cannot be reached."]);
});

test("the sentences of all ranks are each rank's own", async () => {
  const createTreeWalker = () => ({ nextNode: () => null });
  globalThis.document = documentOf({ createTreeWalker });
  const said = [
    { ranks: [{ captions: ["Null"] }, { captions: ["Eins"] }] },
    { captions: ["Ganz"] },
  ];
  speak(/** @type {any} */ ({ name: "de", words: {}, captions: async () => said.shift() }));
  const speech = new Speech(/** @type {any} */ (new El()), () => {});
  const captionsOf = async (replay) => {
    const { ranks, captions } = await speech.withCaptions({}, replay);
    return ranks?.map(({ replay: own }) => own.captions) ?? captions;
  };
  const ranks = [0, 1].map((rank) => ({ rank, replay: { captions: ["English"] } }));
  assert.deepEqual(await captionsOf({ ranks }), [["Null"], ["Eins"]]);
  assert.deepEqual(await captionsOf({ captions: ["English"] }), ["Ganz"]);
  const brought = { captions: ["English"], translations: { de: { captions: ["Mitgebracht"] } } };
  assert.deepEqual(await captionsOf(brought), ["Mitgebracht"]);
  speak(null);
  assert.deepEqual(await captionsOf(brought), ["English"]);
});

test("a page whose language is on its way is hidden, and its run waits for the sentences", async () => {
  const { documentElement } = (globalThis.document = documentOf({
    createTreeWalker: () => ({ nextNode: () => null }),
  }));
  documentElement.toggleAttribute = (name) => documentElement.setAttribute(name, "");
  speak(null);
  const speech = new Speech(/** @type {any} */ (new El()), () => {});
  const seen = () => [isUnspoken(), documentElement.getAttribute("data-unspoken")];
  assert.deepEqual(seen(), [false, null]);
  awaitLanguage();
  assert.deepEqual(seen(), [true, ""]);
  const brought = { captions: ["English"], translations: { de: { captions: ["Deutsch"] } } };
  const opened = speech.withCaptions({}, brought);
  await soon();
  assert.equal(speech.opened, undefined);
  speak(/** @type {any} */ ({ name: "de", words: {} }));
  assert.deepEqual([seen(), (await opened).captions], [[false, null], ["Deutsch"]]);
  speak(null);
});

test("an address has a language unless that is English", () => {
  const written = (hash) => {
    globalThis.location = /** @type {any} */ ({ hash });
    const p = new URLSearchParams({ part: "live" });
    putLanguage(p);
    return String(p);
  };
  speak(null);
  assert.equal(written("#lang=de"), "part=live", "it has been spoken since");
  speak(/** @type {any} */ ({ name: "de", words: {} }));
  assert.equal(written(""), "part=live&lang=de");
  speak(null);
});

test("what is drawn within a rectangle leaves the font outside as it was", () => {
  const stack = [];
  const g = /** @type {any} */ ({
    font: "",
    save: () => stack.push(g.font),
    restore: () => (g.font = stack.pop()),
    measureText: (text) => ({ width: text.length * parseInt(g.font) }),
    ...Object.fromEntries(["beginPath", "rect", "clip"].map((name) => [name, () => {}])),
  });
  setFont(g, "10px a");
  clipped(g, 0, 0, 9, 9, () => {
    setFont(g, "20px b");
    assert.equal(measure(g, "xyz"), 60);
  });
  assert.equal(measure(g, "xyz"), 30);
  setFont(g, "20px b");
  assert.equal(g.font, "20px b", "it is set again");
});

test("hatching has the colours that were asked for, and one tile for each pair", () => {
  const tiles = [];
  const ink = (tile) =>
    Object.assign(tile, {
      ...Object.fromEntries(["beginPath", "moveTo", "lineTo"].map((n) => [n, () => {}])),
      fillRect: () => (tile.ground = tile.fillStyle),
      stroke: () => (tile.colour = tile.strokeStyle),
    });
  const createElement = () => {
    const tile = /** @type {any} */ ({ getContext: () => ink(tile) });
    tiles.push(tile);
    return tile;
  };
  globalThis.document = documentOf({ createElement });
  const palette = Object.assign(Object.create(Palette.prototype), { _hatches: new Map() });
  const g = /** @type {any} */ ({ createPattern: ({ colour, ground }) => [colour, ground] });
  const asked = [
    ["grey", "white"],
    ["grey", "black"],
    ["red", "black"],
    ["grey", "white"],
  ];
  assert.deepEqual(
    asked.map(([colour, ground]) => palette.hatch(g, colour, ground)),
    asked,
  );
  assert.equal(tiles.length, 3);
  globalThis.document = documentOf();
});

test("a menu opens and closes at its button, and what is chosen closes it first", () => {
  const done = [];
  const box = { left: 0, top: 0, right: 500, bottom: 500, width: 500 };
  const measured = (el) => Object.assign(el, { getBoundingClientRect: () => box });
  const el = Object.assign(new El(), { hidden: true, contains: () => false });
  const menu = new Menu(el, { root: measured(new El()) });
  const [one, other] = [0, 1].map(() => measured(Object.assign(new El("button"), { focus() {} })));
  const items = (/** @type {string} */ text) => [{ text, act: () => done.push(el.hidden) }, "-"];
  const toggled = (button, text) => {
    menu.toggle(button, items(text));
    const said = el.querySelector("button")?.textContent;
    return [el.hidden, said, ...[one, other].map((b) => b.getAttribute("aria-expanded"))];
  };
  assert.deepEqual(toggled(one, "A"), [false, "A", "true", null]);
  assert.deepEqual(toggled(one, "A"), [true, "A", "false", null]);
  toggled(one, "A");
  assert.deepEqual(toggled(other, "B"), [false, "B", "false", "true"]);
  el.querySelector("button").click();
  assert.deepEqual([el.hidden, done], [true, [true]]);
});

test("arrows go round in a menu, and Tab closes it", () => {
  const el = Object.assign(new El(), { hidden: false, contains: () => false });
  const menu = new Menu(el, {});
  const items = ["A", "B", "C"].map((name) => {
    const item = new El("button");
    item.append(name);
    item.focus = () => (document.activeElement = item);
    return item;
  });
  el.append(...items);
  items[0].focus();
  const closed = [];
  menu.close = () => closed.push(true);
  const press = (key) => {
    el.dispatchEvent(Object.assign(new Event("keydown", { cancelable: true }), { key }));
    return document.activeElement.textContent;
  };
  const keys = ["ArrowUp", "ArrowUp", "ArrowDown", "ArrowDown", "End", "Home", "x", "Tab"];
  assert.equal(keys.map(press).join(""), "CBCACAAA");
  assert.equal(closed.length, 1);
});

test("the picture of the step before is drawn anew for whatever it depends on, and else once", () => {
  const canvas = { width: 0, height: 0, getContext: () => ({ drawImage() {} }) };
  let drawn = 0;
  const view = of(CanvasView, {
    surface: { w: 9, h: 9, d: 1, canvas },
    _past: { canvas },
    _stillShows: () => false,
    draw: () => (drawn += 1),
  });
  const pass = (index) => ({ index });
  const frame = { i: 1, passes: [pass(0), pass(1)] };
  const before = { i: 0, passes: [pass(0), pass(1)] };
  const state = {
    ...{ run: {}, palette: {}, focus: null, pass: null, frame, index: 1, language: "en" },
    ...{ layout: "desk", presenter: false, alone: "", weights: {} },
  };
  const times = (/** @type {any} */ change) => {
    const was = drawn;
    for (const _ of [1, 2]) view.past({ ...state, ...change }, before, change.stamp);
    return drawn - was;
  };
  assert.equal(times({}), 1);
  const changes = {
    ...{ index: 2, language: "de", layout: "phone", presenter: true, alone: "mask", stamp: "x" },
    ...{ focus: [{ index: 3 }], pass: pass(0), run: {}, palette: {} },
  };
  for (const [name, value] of Object.entries(changes)) {
    assert.equal(times({ [name]: value }), 1, name);
    assert.equal(times({}), 1, `without ${name} again`);
  }
});

test("pictures become tables at once, and come back", () => {
  const [canvas, holder] = [new El("canvas"), new El()];
  holder.append(canvas);
  let draws = 0;
  const table = () => ({ caption: "Lanes", columns: ["Lane"], rows: [["0"]] });
  const part = { root: new El(), redraw: () => (draws += 1) };
  const tables = new Tables(part, [[{ table }, canvas]]);
  const shown = () => {
    const draw = draws;
    tables.toggle();
    tables.draw(/** @type {any} */ ({}));
    const [, held] = holder.children;
    return [draws - draw, canvas.style.visibility, held.hidden, held.textContent];
  };
  assert.deepEqual(shown(), [1, "hidden", false, "LanesLane0"]);
  assert.deepEqual(shown().slice(0, 3), [1, "", true]);
});

test("a request has its colour from the step on in which it gets a lane, and none before", () => {
  const request = { index: 0, id: "a", letter: "A", hue: 3, laneSpans: [{ from: 2 }] };
  const coloured = (index, held) => {
    const set = [];
    const style = { setProperty: (...how) => set.push(how.join(": ")) };
    const createElement = (tag) => Object.assign(new El(tag), { style });
    globalThis.document = documentOf({ createElement });
    chip(/** @type {any} */ ({ index }), /** @type {any} */ (request), held);
    return set.join();
  };
  assert.deepEqual(
    [1, 2, 9].map((i) => coloured(i, true)),
    ["", "--tint: var(--tint-3)", "--tint: var(--tint-3)"],
  );
  assert.equal(coloured(2, false), "--hue: var(--hue-3)");
  globalThis.document = documentOf();
});

test("whether a goal is met is said to who does not see its mark", () => {
  const item = (met, says) => {
    const el = goalItem({ met, asks: ["Be quick"], says, heard: met ? "Met: " : "Not met: " });
    const hidden = el.querySelector(".hidden-text")?.textContent;
    return [el.classes.has("met"), el.querySelector(".goal-mark").textContent, hidden];
  };
  assert.deepEqual(item(true, ["1 s"]), [true, "✓", "Met: "]);
  assert.deepEqual(item(false, ["9 s"]), [false, "", "Not met: "]);
  assert.deepEqual(item(false, null), [false, "", undefined], "before a run");
});

test("what is found out about a model is of the one that is chosen now", async () => {
  const form = new El("form");
  const dtype = new El("select");
  dtype.setAttribute("name", "dtype");
  const label = new El("label");
  label.append(dtype);
  form.append(label);
  const answers = {};
  const call = (_name, { model }) => new Promise((done) => (answers[model] = done));
  let told = 0;
  const field = new ModelField(/** @type {any} */ (form), { call, changed: () => (told += 1) });
  const [first, second] = ["org/a", "org/b"].map((name) => field._look(name));
  answers["org/b"]({ error: "There is no org/b." });
  await second;
  answers["org/a"]({ name: "org/a" });
  await first;
  assert.deepEqual([field.facts, field.error, told], [null, "There is no org/b.", 1]);
  assert.equal(field.says.textContent, "There is no org/b.");
});

test("of a model is told what it takes and what it lacks, and nothing that is not known", () => {
  const usual = {
    ...{ architecture: "Llama", parameters: 1.1e9, layers: 22, stored: ["bfloat16", "uint8"] },
    ...{ weights: 2 ** 31, free: 2 ** 32, dtype: "float32", loaded: false, context: 2048 },
    ...{ kv_bytes_per_token: 1024, pool: 1024 * 16 * 100 + 1, download: 0, file: null },
    ...{ has_tokenizer: true, has_chat_template: true },
  };
  const told = (/** @type {object} */ more = {}, kept = 0, blockSize = 16) => {
    const field = of(ModelField, { kept, options: { blockSize: () => blockSize } });
    const [name, list, ...warnings] = field._facts({ ...usual, ...more });
    const rows = list.children.map((/** @type {El} */ el) => el.textContent.trim());
    return [name.textContent, ...rows, ...warnings.filter(Boolean).map((el) => el.textContent)];
  };
  const rows = {
    Parameters: "1.10 G, 22 layers",
    "Stored in": "bfloat16, uint8",
    Weights: "2.00 GiB in float32, of 4.00 GiB free",
    "KV cache": "1.00 KiB a token; 100 blocks of 16 tokens fit",
    Context: "2,048 tokens",
  };
  const expected = (/** @type {object} */ changed = {}, /** @type {string[]} */ ...warnings) => [
    "Llama",
    ...Object.entries({ ...rows, ...changed })
      .flat()
      .filter((words) => words !== null),
    ...warnings,
  ];
  assert.deepEqual(told(), expected());
  assert.deepEqual(told({ parameters: 353e6 }), expected({ Parameters: "353 M, 22 layers" }));
  assert.deepEqual(
    told({ parameters: 1234, layers: 1 }),
    expected({ Parameters: "1,234, 1 layer" }),
  );
  assert.deepEqual(told({ free: null }), expected({ Weights: "2.00 GiB in float32" }));
  const loaded = expected({ Weights: "2.00 GiB in float32, loaded" });
  assert.deepEqual(told({ loaded: true, free: 0 }), loaded);
  const little =
    "There is too little memory for it now: choose a smaller number format, or another model.";
  const tight = { Weights: "2.00 GiB in float32, of 2.00 GiB free" };
  assert.deepEqual(told({ free: 2 ** 31 }), expected(tight));
  assert.deepEqual(told({ free: 2 ** 31 - 1 }), expected(tight, little));
  const large = { "KV cache": "1.00 KiB a token; 25 blocks of 64 tokens fit" };
  assert.deepEqual(told({}, 0, 64), expected(large));
  const { "KV cache": _kv, Context: _context, ...short } = rows;
  assert.deepEqual(told({ kv_bytes_per_token: 0, context: null }), [
    ...["Llama", ...Object.entries(short).flat()],
  ]);
  assert.deepEqual(told({ download: 2 ** 20 }), expected({ "To fetch": "1.00 MiB" }));
  const here = expected({ "In this browser": "1.00 MiB Remove" });
  assert.deepEqual(told({ download: 2 ** 20 }, 2 ** 20), here);
  const lacks = [
    "It has no tokenizer: prompts must be token ids.",
    "It has no chat template: prompts are text.",
  ];
  const without = { has_tokenizer: false, has_chat_template: false };
  assert.deepEqual(told(without), expected({}, lacks[0]));
  assert.deepEqual(told({ ...without, file: 2 ** 20 }), [
    ...expected({ "On your machine": "1.00 MiB Remove" }, ...lacks),
  ]);
});

test("of a model that a link names the form says whether it can be had here", () => {
  const said = (value, offered, options = {}) => {
    const field = of(ModelField, {
      ...{ options, select: { value }, own: { value: "" }, _look: (name) => looked.push(name) },
      offered: { builtin: ["small"], models: ["small", "large"], any_model: false, ...offered },
    });
    const says = field._unknown;
    says?.querySelector("button")?.click();
    return says && says.textContent;
  };
  const looked = [];
  assert.deepEqual(
    ["small", "large", "other", "a.gguf"].map((name) => said(name, {})),
    [
      null,
      null,
      "This page cannot load the model other: choose one of its own.",
      "This page cannot load the model a.gguf: choose one of its own.",
    ],
  );
  assert.equal(
    said("a.gguf", {}, { open() {} }),
    "a.gguf is a file on a disk: choose it, as your own GGUF file, to run this here.",
  );
  assert.equal(said("other", { models: [] }), null, "nothing is offered yet");
  assert.deepEqual(looked, []);
  const unknown = "Nothing is known yet about other. Look at it";
  assert.equal(said("other", { any_model: true }, { open() {} }), unknown);
  assert.deepEqual(looked, ["other"]);
});

test("a text is copied, or shown where a browser does not let a page copy", async () => {
  const { copyText } = await import("../../assets/player/parts/link.js");
  const written = [];
  let isAllowed = true;
  const clipboard = {
    writeText: async (text) => {
      if (!isAllowed) throw new Error("NotAllowedError");
      written.push(text);
    },
  };
  Object.defineProperty(globalThis, "navigator", { value: { clipboard }, configurable: true });
  const card = Object.assign(new El("dialog"), { showModal: () => written.push("shown") });
  const createElement = (tag) =>
    Object.assign(new El(tag), { select: () => written.push("selected") });
  globalThis.document = documentOf({ createElement });
  const copies = () =>
    copyText(/** @type {any} */ ({ querySelector: () => card }), "Copy this link", "http://x", () =>
      written.push("said"),
    );
  await copies();
  assert.deepEqual(written.splice(0), ["http://x", "said"]);
  isAllowed = false;
  await copies();
  assert.deepEqual(written, ["shown", "selected"]);
  const field = card.querySelector("input");
  const about = ["type", "readonly", "aria-label"].map((name) => field?.getAttribute(name));
  assert.deepEqual(about, ["text", "", "Copy this link"]);
  assert.equal(card.querySelector("h2")?.textContent, "Copy this link");
});
