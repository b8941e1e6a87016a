// Run with the page as it is fetched, or with the story: takes a walk through it, key by key and click by click, and
// prints after each deed what is new in words, the address, and a digest of all that is seen.

import { readFileSync } from "node:fs";
import { Buffer } from "node:buffer";
import process from "node:process";

import { dress, happen, later, page, parse, prefer, resize, teller } from "./page.js";
import { print } from "./seen.js";

const { walk, markup, options, answers, streams, engine, brought, parts, files, styles } =
  JSON.parse(readFileSync(process.argv[2], "utf8"));
dress(styles);
Object.assign(page, { answers, streams, engine });
for (const given of [options, parts?.write?.options])
  if (given?.engine) given.engine = new URL("../../assets/engine/", import.meta.url).href;
// what the page imports only when it is asked for is here then, however slow the disk
for (const name of ["sandbox", "loading"]) await import(`../../assets/engine/${name}.js`);

/** The first that is on screen. */
const find = (selector) => {
  const found = document.querySelectorAll(selector).find((el) => el.getClientRects().length);
  if (!found) throw new Error(`nothing on screen is ${selector}`);
  return found;
};
const surface = (selector) => find(selector).querySelector("canvas") ?? find(selector);
/** A place in an element, by shares of its sides, as a pointer has it. */
const at = (el, x, y) => {
  const { left, top } = el.getBoundingClientRect();
  const [w, h] = el.tagName === "CANVAS" ? [el.clientWidth, el.clientHeight] : [30, 12];
  const [clientX, clientY] = [left + x * w, top + y * h];
  return { clientX, clientY, offsetX: x * w, offsetY: y * h, pointerId: 1, pointerType: "mouse" };
};
const point = (el, x, y) => happen(el, "pointermove", at(el, Number(x), Number(y)));
/** What a visitor does, by the words of tests/walks and a few more. */
const DEEDS = {
  press(keys) {
    const names = keys.split("+").filter(Boolean);
    const key = names.at(-1) ?? "+";
    const on = document.activeElement;
    const given = { key, shiftKey: names[0] === "Shift", ctrlKey: names[0] === "Control" };
    const goesOn = happen(on, "keydown", given);
    const popped = document.querySelectorAll("[popover]").find(({ isShut }) => !isShut);
    if (goesOn && key === "Escape") (popped ?? document.querySelector("dialog[open]"))?.close();
    if (goesOn && ["Enter", " "].includes(key) && on.tagName === "BUTTON") on.click(0);
    if (goesOn && key === "Enter" && on.tagName === "INPUT") on.closest("form")?.requestSubmit();
  },
  click: (selector) => find(selector).click(),
  /** A button of the open menu or card, by its first words. */
  pick(words) {
    const all = document.querySelectorAll(".menu button, dialog button");
    all.find((el) => el.getClientRects().length && el.textContent.startsWith(words)).click();
  },
  focus: (selector) => find(selector).focus(),
  point: (selector, x, y) => point(surface(selector), x, y),
  leave: (selector) => happen(surface(selector), "pointerleave", { bubbles: false }),
  "click at"(selector, x, y) {
    const el = surface(selector);
    point(el, x, y);
    for (const type of ["pointerdown", "pointerup", "click"])
      happen(el, type, at(el, Number(x), Number(y)));
  },
  drag(selector, x, y, toX, toY) {
    const el = surface(selector);
    happen(el, "pointerdown", at(el, Number(x), Number(y)));
    for (const share of [0.5, 1])
      point(el, Number(x) + share * (toX - x), Number(y) + share * (toY - y));
    happen(el, "pointerup", at(el, Number(toX), Number(toY)));
    el.releasePointerCapture();
  },
  wheel(selector, x, y, deltaY) {
    const el = surface(selector);
    happen(el, "wheel", { ...at(el, Number(x), Number(y)), deltaY: Number(deltaY), deltaX: 0 });
  },
  fill(selector, text = "") {
    find(selector).focus();
    find(selector).value = text;
    happen(find(selector), "input");
  },
  /** Other words take the place of some in a text. */
  edit(selector, words, others) {
    DEEDS.fill(selector, find(selector).value.replace(words, others));
  },
  /** Files are dropped on Watch, some of those that the walk was given. */
  drop(...names) {
    const files = names.map(
      (name) => new globalThis.File([Buffer.from(brought[name], "base64")], name),
    );
    happen(find(".inflight"), "drop", { dataTransfer: { types: ["Files"], files } });
  },
  /** By its value, or by what an option says. */
  choose(selector, value) {
    const said = find(selector).options.find(({ textContent }) => textContent === value);
    find(selector).value = said?.value ?? value;
    for (const type of ["input", "change"]) happen(find(selector), type);
  },
  go(hash) {
    location.hash = hash;
  },
  size: (width, height) => resize(Number(width), Number(height)),
  over: (selector) => happen(find(selector), "pointerover"),
  scroll: (top) => window.scrollTo({ top: Number(top) }),
  window: (type) => happen(window, type),
  prefer,
  wait() {},
};

document.documentElement.append(document.head, document.body);
const tell = teller();
const [begin, ...deeds] = walk;
location.hash = begin;
if (files) {
  const watch = document.createElement("div");
  watch.setAttribute("id", "watch");
  watch.append(...parse(markup));
  document.body.append(watch);
  for (const [name, given] of Object.entries(files))
    window[`inflight${name[0].toUpperCase()}${name.slice(1)}Files`] = given;
  await import("../../assets/player/watch/player.js");
  await import("../../assets/player/parts/tabs.js");
  for (const name of Object.keys(files)) await import(`../../assets/player/${name}/${name}.js`);
  window.Inflight.mount(find(".inflight"), options);
  window.inflightParts(document.body, parts);
} else {
  document.body.className = "story";
  document.body.append(...parse(markup));
  document.documentElement.scrollHeight = 40000;
  await import("../../assets/player/story/story.js");
}
await later(700);
print(`open ${begin}`, tell());
for (const deed of deeds) {
  const [name, ...fields] = deed.split("  ");
  DEEDS[name](...fields);
  await later(name === "wait" ? Number(fields[0]) : 600);
  print(deed, tell());
}
