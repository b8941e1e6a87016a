import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import test from "node:test";

import { recolour } from "../../assets/player/compare/charts.js";
import { contrast, dealHue, HUES, mix } from "../../assets/player/parts/colours.js";
import { Glossary } from "../../assets/player/parts/glossary.js";
import { speak, Speech, t } from "../../assets/player/parts/speech.js";
import { pause } from "../../assets/player/parts/dom.js";
import { keep } from "../../assets/player/parts/kept.js";
import { wantedLanguage } from "../../assets/player/parts/language.js";
import { fillTabs } from "../../assets/player/parts/look.js";
import { count, duration, milliseconds, unbroken } from "../../assets/player/parts/format.js";
import { paceWords, says } from "../../assets/player/live/words.js";
import { tail } from "../../assets/player/views/texts.js";
import { onMinimap } from "../../assets/player/views/mask/pointers.js";
import { documentOf, El } from "./elements.js";

test("a hue is dealt that the fewest live requests have, never one in use while another is free", () => {
  let last = -1;
  const live = [];
  for (let n = 0; n < HUES.length; n += 1) {
    last = dealHue(live, last);
    assert.ok(!live.includes(last));
    live.push(last);
  }
  assert.equal(new Set(live).size, HUES.length);
  assert.equal(
    dealHue(
      live.filter((hue) => hue !== 3),
      7,
    ),
    3,
  );
});

test("mixing and contrast: the ends, black on white", () => {
  assert.equal(mix("#000000", "#ffffff", 0), "#000000");
  assert.equal(mix("#000000", "#ffffff", 1), "#ffffff");
  assert.equal(Math.round(contrast("#000000", "#ffffff")), 21);
});

test("a figure is recoloured by its values alone: text that holds a colour laneSpans", () => {
  const figure = {
    data: [{ marker: { color: ["#1B1B1F", "#123456"] }, text: "use #1b1b1f", x: [1, 2] }],
  };
  assert.deepEqual(recolour(figure, new Map([["#1b1b1f", "#f0efec"]])), {
    data: [{ marker: { color: ["#f0efec", "#123456"] }, text: "use #1b1b1f", x: [1, 2] }],
  });
});

test("numbers as words", () => {
  assert.deepEqual([count(999), count(1234567)], ["999", "1,234,567"]);
  // as Python does
  assert.deepEqual(
    [milliseconds(0.001125), milliseconds(0.01025), milliseconds(0.1005)],
    ["1.13 ms", "10.3 ms", "101 ms"],
  );
  assert.deepEqual(
    [milliseconds(0.00123), milliseconds(0.0123), milliseconds(0.123), milliseconds(12.3)],
    ["1.23 ms", "12.3 ms", "123 ms", "12.3 s"],
  );
  assert.deepEqual([0.9996, 1.5, 9.9994, 9.9996, 10].map(milliseconds), [
    "1000 ms",
    "1500 ms",
    "9999 ms",
    "10.0 s",
    "10.0 s",
  ]);
  assert.deepEqual([duration(9.5432), duration(0.333)], ["9.54 s", "333 ms"]);
});

test("a point is on the minimap only where there is one", () => {
  assert.equal(onMinimap({ minimap: null }, 5, 5), false);
  assert.equal(onMinimap({ minimap: { x: 0, y: 0, w: 10, h: 10 } }, 5, 11), false);
  assert.equal(onMinimap({ minimap: { x: 0, y: 0, w: 10, h: 10 } }, 5, 10), true);
});

test("a batch is empty once nobody holds a lane, however long ago its last step", () => {
  const said = (finished) => {
    const laneSpans = [{ to: Infinity, request: { finished } }];
    const run = { length: 1, laneSpans, waitingAt: () => [] };
    return says({ run, state: { class: {} } }, { skipped: false, teaches: false });
  };
  assert.match(said({ step: 0 }), /^The batch is empty/);
  assert.equal(said(null), "");
  assert.deepEqual([null, 0, 4].map(paceWords), [
    "full speed",
    "single steps",
    "at most 4 steps a second",
  ]);
});

test("a number of a text is written as its language writes it, a version as it is", () => {
  const words = { "# of #": "# von #" };
  const said = (text) => {
    speak(/** @type {any} */ ({ name: "de", words }));
    const told = t(text);
    speak(null);
    return told;
  };
  assert.deepEqual(["0.5 of 1,234", "0.5", "0.68.1"].map(said), ["0,5 von 1.234", "0,5", "0.68.1"]);
});

test("the language of an address goes before the one that was chosen here", () => {
  const kept = new Map([["inflight-language", "fr"]]);
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, text) => kept.set(key, String(text)),
    removeItem: (key) => kept.delete(key),
  });
  const wanted = (hash) => {
    globalThis.location = /** @type {any} */ ({ hash });
    return wantedLanguage();
  };
  const inherited = ["#lang=constructor", "#lang=__proto__", "#lang=../x"];
  assert.deepEqual(["#lang=de", "#part=live", ...inherited].map(wanted), [
    "de",
    "fr",
    "fr",
    "fr",
    "fr",
  ]);
  keep("good", "inflight-language", null);
  assert.equal(wanted(""), "en");
});

test("a page with one part has no bar of tabs", () => {
  globalThis.document = documentOf();
  const hidden = (...names) => {
    const [root, nav] = [new El(), new El("nav")];
    nav.className = "tabs";
    root.append(nav);
    fillTabs(
      root,
      names.map((name) => ({ name, title: name })),
      "watch",
    );
    return nav.hidden;
  };
  assert.deepEqual([hidden("watch"), hidden("watch", "learn")], [true, false]);
});

test("no line ends between a number and its unit", () => {
  assert.equal(
    unbroken("2.7 s with 3 steps, 37 % in 12 ms"),
    "2.7\u00a0s with 3 steps, 37\u00a0% in 12\u00a0ms",
  );
});

test("a text that is cut begins with a whole word", () => {
  const pieces = ["they con", "vert", " light", " energy"];
  assert.equal(tail(pieces, 4, 40), "they convert light energy");
  assert.equal(tail(pieces, 4, 16), "… light energy");
  assert.equal(tail(pieces, 2, 8), "… convert");
  assert.equal(tail(["字字字字", "字字字字"], 2, 5), "…字字字字字"); // it has no spaces
  assert.equal(tail(["one long piece"], 1, 10), "… piece");
  assert.equal(tail(["one long piece"], 1, 14), "one long piece");
});

test("the longest term that is pointed at is explained, not a part of it", () => {
  const terms = { token: { words: ["token"] }, budget: { words: ["token budget", "budget"] } };
  const node = { nodeType: 3, textContent: "The token budget of tokens, a token." };
  const range = {
    setStart() {},
    setEnd() {},
    getBoundingClientRect: () => ({ left: 0, right: 9, top: 0, bottom: 9 }),
  };
  let offset = 0;
  const caretPositionFromPoint = () => ({ offsetNode: node, offset });
  const document = documentOf({ caretPositionFromPoint, createRange: () => range });
  Object.assign(globalThis, { document, Node: { TEXT_NODE: 3 } });
  const glossary = new Glossary(() => terms);
  const told = ["token budget", "budget", "tokens", "token."].map((word) => {
    offset = node.textContent.lastIndexOf(word) + 1;
    return glossary.at(5, 5, { contains: () => true })?.term;
  });
  assert.deepEqual(told, ["budget", "budget", undefined, "token"]);
});

test("a marked term is explained below it, above it at the foot of the page, and never beyond its edges", () => {
  globalThis.document = documentOf();
  const box = (left, top, width, height) => ({
    ...{ left, top, width, height },
    ...{ right: left + width, bottom: top + height },
  });
  const terms = { block: { word: "Block", means: "Some tokens' keys.", vllm: "block", words: [] } };
  const glossary = new Glossary(() => terms);
  const card = /** @type {any} */ (glossary.card);
  card.getBoundingClientRect = () => box(0, 0, 100, 40);
  const placed = [];
  const root = {
    append: (el) => placed.push(el),
    getBoundingClientRect: () => box(50, 10, 400, 300),
  };
  const at = (place, isTerm = true) => {
    const marked = { dataset: { term: "block" }, getBoundingClientRect: () => place };
    const found = { ".inflight": root, ".term[data-term]": isTerm ? marked : null };
    const closest = (what) => found[what] ?? null;
    glossary._look({ target: { closest } });
    return card.hidden || [card.style.left, card.style.top];
  };
  assert.deepEqual(at(box(100, 100, 30, 20)), ["50px", "116px"]);
  assert.deepEqual(placed, [card]);
  assert.equal(card.textContent, "Block Some tokens' keys. In vLLM: block");
  assert.deepEqual(at(box(440, 100, 30, 20)), ["292px", "116px"], "the right edge");
  assert.deepEqual(at(box(0, 100, 30, 20)), ["-42px", "116px"], "the left one of the screen");
  assert.deepEqual(at(box(100, 238, 30, 20)), ["50px", "254px"], "it just has room");
  assert.deepEqual(at(box(100, 239, 30, 20)), ["50px", "183px"]);
  assert.equal(at(box(100, 100, 30, 20), false), true);
});

test("another language changes a title that stands as it was, not one that was changed since", () => {
  const [play, close] = ["Play", "Close"].map((title) => {
    const button = new El("button");
    button.setAttribute("title", title);
    return button;
  });
  const createTreeWalker = () => ({ nextNode: () => null });
  globalThis.document = documentOf({ createTreeWalker });
  const root = Object.assign(new El(), { querySelectorAll: () => [play, close] });
  new Speech(/** @type {any} */ (root), () => {});
  play.setAttribute("title", "Pause"); // it plays
  const titles = (language) => {
    speak(language);
    return [play, close].map((button) => button.getAttribute("title"));
  };
  const words = { Play: "Abspielen", Close: "Schließen" };
  assert.deepEqual(titles({ name: "de", words }), ["Pause", "Schließen"]);
  assert.deepEqual(titles(null), ["Pause", "Close"]);
});

test("a pause ends with its time or with its signal, which keeps no listener of one that is over", async () => {
  const stop = new AbortController();
  await pause(1, stop.signal);
  assert.equal(getEventListeners(stop.signal, "abort").length, 0);
  const waiting = pause(60_000, stop.signal);
  stop.abort(new Error("left"));
  await assert.rejects(waiting, /left/);
});

test("every icon that the page asks for is drawn in its markup", () => {
  const folder = new URL("../../assets/player/", import.meta.url);
  const files = readdirSync(folder, { recursive: true }).filter((name) =>
    /\.(js|html)$/.test(name),
  );
  const source = files.map((name) => readFileSync(new URL(name, folder), "utf8")).join("\n");
  const names = (pattern) => [...source.matchAll(pattern)].map(([, one, other]) => one ?? other);
  const drawn = names(/<symbol id="inflight-([\w-]+)"/g);
  const asked = names(/\bicon(?:Button)?\(\s*"([\w-]+)"|href="#inflight-([\w-]+)"/g);
  assert.ok(asked.includes("trash"));
  assert.deepEqual(
    asked.filter((name) => !drawn.includes(name)),
    [],
  );
});
