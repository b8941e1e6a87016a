// A page that is never shown: elements that know how they would look, and canvases that note what is
// drawn on them, for texts of what is on screen (drawn.js, drawn_story.js). To be imported before
// what draws.

import { createHash } from "node:crypto";
import process from "node:process";

import { El } from "./elements.js";

export const print = (name, told) => process.stdout.write(`${name}: ${told}\n`);

/** A context of a canvas, which notes all that is done with it. */
function ink(canvas) {
  const done = [];
  const known = {
    canvas,
    measureText: (text) => ({ width: 6.5 * text.length }),
    createPattern: (tile) => `pattern ${tile.digest()}`,
    createImageData: (w, h) => ({ data: new Uint8ClampedArray(4 * w * h) }),
    putImageData: ({ data }) => done.push(["pixels", ...data]),
    drawImage: (from, ...where) => done.push(["image", from.digest(), ...where]),
  };
  const note = (name, given) => {
    if (name === "clearRect" && !given[0] && !given[1]) done.length = 0;
    else done.push([name, ...given]);
  };
  return new Proxy(known, {
    get: (_, name) => (name === "done" ? done : (known[name] ?? ((...given) => note(name, given)))),
    set: (_, name, value) => (done.push([name, value]), (known[name] = value), true),
  });
}

/** An element that knows how it would look. */
export class Seen extends El {
  style = {
    of: new Map(),
    setProperty: (name, value) => this.style.of.set(name, value),
    removeProperty: (name) => this.style.of.delete(name),
  };
  title = "";
  hidden = false;
  isConnected = true;
  scrollTop = 0;
  clientWidth = 420;
  clientHeight = 180;
  offsetHeight = 20;
  offsetWidth = 60;
  found = new Map();

  constructor(tag = "div") {
    super(tag);
    if (tag !== "canvas") return;
    this.parentElement = new Seen();
    this.g = ink(this);
  }

  get className() {
    return [...this.classes].join(" ");
  }

  set className(names) {
    this.classes = new Set(names.split(" "));
  }

  /** A canvas that is given a size is empty. */
  set width(w) {
    if (this.g) this.g.done.length = 0;
  }

  /** Of a text node, whose data is written anew. */
  get textContent() {
    return this.data ?? super.textContent;
  }

  set textContent(text) {
    super.textContent = text;
  }

  getContext() {
    return this.g;
  }

  digest() {
    return digest(this.g.done);
  }

  append(...nodes) {
    for (const node of nodes) if (node instanceof Seen) node.parent = this;
    super.append(...nodes);
  }

  replaceWith() {}

  before(node) {
    node.parent = this.parent;
    this.parent.children.splice(this.parent.children.indexOf(this), 0, node);
  }

  getBoundingClientRect() {
    return { left: 7, top: 9, width: 30, height: 12, bottom: 21 };
  }

  getClientRects() {
    return [this.getBoundingClientRect()];
  }

  /** What our own markup has is made as it is asked for. */
  querySelector(selector) {
    if (!this.found.has(selector))
      this.found.set(selector, new Seen(/canvas$/.test(selector) ? "canvas" : "div"));
    return this.found.get(selector);
  }

  /** What is seen of it, as data. */
  get seen() {
    if (this.hidden) return null;
    const { title, ...style } = { ...this.style };
    delete style.of;
    delete style.setProperty;
    delete style.removeProperty;
    return [
      this.tagName,
      this.className,
      { ...this.dataset },
      [...this.attributes],
      [...this.style.of],
      Object.entries(style),
      ...[this.title, this.data],
      this.tagName === "CANVAS" ? this.digest() : null,
      this.children.map((child) => child.seen ?? (child instanceof Seen ? null : child)),
      [...this.found].map(([name, el]) => [name, el.seen]),
    ];
  }

  /** The words of it and of what is found in it. */
  get words() {
    if (this.hidden) return "";
    const drawn =
      this.g?.done.filter(([name]) => name === "fillText").map(([, text]) => text) ?? [];
    const own = [this.data, ...this.children.map((child) => child.words ?? child)];
    return [...own, ...[...this.found.values()].map((el) => el.words), ...drawn]
      .filter(Boolean)
      .join(" ");
  }
}

/** A request is its letter, and a number has four digits. */
export const rounded = (_key, value) => {
  if (typeof value === "number" && !Number.isInteger(value)) return Number(value.toFixed(4));
  return value?.laneSpans && "letter" in value ? value.letter : value;
};
export const digest = (value) =>
  createHash("sha256").update(JSON.stringify(value, rounded)).digest("hex").slice(0, 6);

const COLOURS = {
  "--panel": "#ffffff",
  "--empty": "#eeeeee",
  "--ink": "#111111",
  "--pad": "#aaaaaa",
};
Object.assign(globalThis, {
  window: globalThis,
  devicePixelRatio: 1,
  HTMLElement: Seen,
  document: {
    body: new Seen("body"),
    documentElement: new Seen("html"),
    querySelector: () => null,
    createElement: (tag) => new Seen(tag),
    createElementNS: (_, tag) => new Seen(tag),
    createTextNode: (data) => Object.assign(new Seen("text"), { data }),
  },
  getComputedStyle: () => ({ getPropertyValue: (name) => COLOURS[name] ?? `#12${name.slice(-4)}` }),
  ResizeObserver: class {
    constructor(act) {
      this.observe = act;
    }
  },
  setTimeout: () => 0,
  clearTimeout() {},
  addEventListener() {},
  requestAnimationFrame() {},
  matchMedia: () => ({ matches: false }),
});
