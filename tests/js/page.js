// The whole page without a browser: elements of its own markup, found by selectors, with events that
// rise, a focus, and a clock that stands until it is set on. Imported before what is drawn on it.

import process from "node:process";

import { digest, Seen } from "./seen.js";

const { setImmediate } = globalThis; // not the page's own clock
const EMPTY = new Set(["input", "meta", "link", "br", "hr", "img"]);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0" };
const inData = (name) => name.slice(5).replace(/-(.)/g, (_, letter) => letter.toUpperCase());
const SIMPLE =
  /([#.])([\w-]+)|\[([\w-]+)(?:(\^?)=["']?(.*?)["']?)?\]|:(not|is|nth-child)\(([^)]*)\)|:([\w-]+)|([\w-]+|\*)/g;

/** Of the whole page: the visitor's window, what is stored, what was asked of the server. */
export const page = {
  width: 1400,
  height: 900,
  /** @type {Page | null} */
  focus: null,
  now: 0,
  stored: { good: new Map(), visit: new Map() },
  /** @type {Record<string, any>} */
  answers: {},
  /** @type {Record<string, string[]>} What each connection to a stream brings until it breaks off. */
  streams: {},
  copied: "",
};

const size = () => ({ width: page.width, height: page.height });
const timers = [];
let frames = [];

/** What listens, and tells those around it of what happened. */
class Hearing {
  heard = new Map();

  addEventListener(type, act, options = {}) {
    const all = this.heard.get(type) ?? [];
    const capture = options === true || options.capture === true;
    if (!all.some((one) => one.act === act && one.capture === capture))
      this.heard.set(type, [...all, { act, capture, once: options.once }]);
    options.signal?.addEventListener("abort", () => this.removeEventListener(type, act));
  }

  removeEventListener(type, act) {
    this.heard.set(
      type,
      (this.heard.get(type) ?? []).filter((one) => one.act !== act),
    );
  }

  hear(event, capture) {
    for (const { act, capture: first, once } of this.heard.get(event.type) ?? []) {
      if (first !== capture || event.ended) continue;
      if (once) this.removeEventListener(event.type, act);
      event.currentTarget = this;
      (act.handleEvent ?? act).call(this, event);
    }
  }

  dispatchEvent(event) {
    const way = [];
    for (let at = this; at; at = at.parentElement) way.push(at);
    if (way.at(-1) === document.documentElement) way.push(document, window);
    Object.defineProperty(event, "target", { value: this, configurable: true });
    Object.defineProperty(event, "currentTarget", { writable: true, configurable: true });
    event.stopPropagation = () => (event.stopped = true);
    event.stopImmediatePropagation = () => (event.stopped = event.ended = true);
    for (const at of way.toReversed()) if (!event.stopped) at.hear(event, true);
    for (const at of event.bubbles ? way : [this]) if (!event.stopped) at.hear(event, false);
    return !event.defaultPrevented;
  }
}

export class Page extends Seen {
  heard = new Map();
  checked = false;
  scrollHeight = 20;
  scrollLeft = 0;
  tabIndex = 0;

  constructor(tag) {
    super(tag);
    for (const name of ["value", "elements", "isConnected", "clientWidth", "clientHeight"])
      delete this[name]; // as fields they would hide what is here by these names
  }

  get id() {
    return this.getAttribute("id") ?? "";
  }

  set id(id) {
    this.setAttribute("id", id);
  }

  get name() {
    return this.getAttribute("name") ?? "";
  }

  get type() {
    return this.getAttribute("type") ?? "";
  }

  get open() {
    return this.attributes.has("open");
  }

  set open(on) {
    this.toggleAttribute("open", on);
  }

  get href() {
    return this.getAttribute("href") ?? "";
  }

  set href(href) {
    this.setAttribute("href", href);
  }

  get firstChild() {
    return this.children[0] ?? null;
  }

  get firstElementChild() {
    return this.children.find(({ tagName }) => tagName !== "TEXT") ?? null;
  }

  get lastElementChild() {
    return this.children.findLast(({ tagName }) => tagName !== "TEXT") ?? null;
  }

  get childNodes() {
    return this.children;
  }

  get parentNode() {
    return this.parentElement;
  }

  get isConnected() {
    return this.closest("html") !== null;
  }

  get options() {
    return this.querySelectorAll("option");
  }

  get value() {
    if (this.tagName === "OPTION") return this.getAttribute("value") ?? this.textContent;
    if (this.tagName !== "SELECT") return this._value ?? this.getAttribute("value") ?? "";
    const chosen = this.options.find((option) => option.attributes.has("selected"));
    return this._value ?? (chosen ?? this.options[0])?.value ?? "";
  }

  set value(value) {
    this._value = String(value);
  }

  /** As a browser judges a number. */
  get validity() {
    const [value, least, most] = [this.value, this.getAttribute("min"), this.getAttribute("max")];
    const isIn = Number(value) >= Number(least ?? -Infinity) && Number(value) <= (most ?? Infinity);
    const isNumber = this.type !== "number" || value === "" || isIn;
    return { valid: isNumber && !(value === "" && this.hasAttribute("required")) };
  }

  get elements() {
    const all = this.querySelectorAll("input, select, textarea, button");
    const named = (name) => {
      const found = all.filter((el) => el.name === name);
      if (found.length < 2) return found[0] ?? null;
      return { value: found.find((el) => el.checked)?.value ?? "" };
    };
    Object.assign(all, { namedItem: named });
    return new Proxy(all, { get: (_, name) => all[name] ?? named(name) });
  }

  get clientWidth() {
    return this.matches(".inflight, .stage, .page, .opening") ? page.width : 420;
  }

  get clientHeight() {
    return this.matches(".inflight, .stage, .page") ? page.height : 180;
  }

  setAttribute(name, value) {
    super.setAttribute(name, value);
    if (name === "class") this.className = value;
    if (name.startsWith("data-")) this.dataset[inData(name)] = value;
    if (["hidden", "disabled", "checked"].includes(name)) this[name] = true;
    if (name === "title") this.title = value;
  }

  getAttribute(name) {
    if (name.startsWith("data-")) return this.dataset[inData(name)] ?? null;
    return super.getAttribute(name);
  }

  hasAttribute(name) {
    return this.getAttribute(name) !== null;
  }

  removeAttribute(name) {
    super.removeAttribute(name);
    if (name.startsWith("data-")) delete this.dataset[inData(name)];
    if (["hidden", "disabled", "checked"].includes(name)) this[name] = false;
  }

  toggleAttribute(name, on = !this.hasAttribute(name)) {
    if (on) this.setAttribute(name, "");
    else this.removeAttribute(name);
    return on;
  }

  classList = {
    add: (...names) => names.forEach((name) => this.classes.add(name)),
    remove: (...names) => names.forEach((name) => this.classes.delete(name)),
    contains: (name) => this.classes.has(name),
    toggle: (name, on = !this.classes.has(name)) => this.classes[on ? "add" : "delete"](name),
  };

  append(...nodes) {
    for (const node of nodes) if (node instanceof Page) node.remove();
    for (const node of nodes)
      if (node.tagName === "SCRIPT") frames.push(() => happen(node, "error", { bubbles: false }));
    super.append(
      ...nodes.map((node) => (node instanceof Page ? node : document.createTextNode(node))),
    );
  }

  insert(by, nodes) {
    const around = this.parentElement;
    if (!around) return;
    for (const node of nodes) if (node instanceof Page) node.remove();
    const all = [...around.children];
    all.splice(all.indexOf(this) + by, 0, ...nodes);
    around.replaceChildren(...all);
  }

  before(...nodes) {
    this.insert(0, nodes);
  }

  after(...nodes) {
    this.insert(1, nodes);
  }

  replaceWith(...nodes) {
    this.insert(1, nodes);
    this.remove();
  }

  replaceChildren(...nodes) {
    const { focus } = page;
    for (const child of this.children) if (child.parentElement === this) child.parentElement = null;
    super.replaceChildren(...nodes);
    if (focus && !focus.closest("html")) page.focus = null;
  }

  set innerHTML(markup) {
    this.replaceChildren(...parse(markup));
  }

  get textContent() {
    return super.textContent;
  }

  set textContent(text) {
    if (this.tagName === "TEXT") this.data = String(text);
    else this.replaceChildren(...(text === "" ? [] : [String(text)]));
  }

  contains(el) {
    for (let at = el; at; at = at.parentElement) if (at === this) return true;
    return false;
  }

  /** One that is hidden, or whose part of the page is not on screen, has no place. */
  getClientRects() {
    const { part = "watch" } = document.documentElement.dataset;
    for (let at = this; at; at = at.parentElement) if (at.hidden) return [];
    if (this.tagName === "DIALOG" && !this.open) return [];
    const own = this.closest(".compare, .learn, .live, .write");
    if (own ? !own.classes.has(part) : part === "compare") return [];
    return [this.getBoundingClientRect()];
  }

  getBoundingClientRect() {
    return this.matches(".inflight")
      ? { left: 0, top: 0, ...size(), right: page.width, bottom: page.height }
      : { left: 7, top: 9, right: 37, width: 30, height: 12, bottom: 21 };
  }

  setPointerCapture() {
    this.holds = true;
  }

  releasePointerCapture() {
    this.holds = false;
  }

  hasPointerCapture() {
    return this.holds === true;
  }

  scrollTo() {}

  select() {}

  setSelectionRange() {}

  focus() {
    if (this.disabled || page.focus === this) return;
    page.focus?.blur();
    page.focus = this;
    happen(this, "focus", { bubbles: false });
    happen(this, "focusin");
  }

  blur() {
    if (page.focus !== this) return;
    page.focus = null;
    happen(this, "blur", { bubbles: false });
    happen(this, "focusout");
  }

  click(detail = 1) {
    if (this.disabled) return;
    const toggles = this.tagName === "INPUT" && ["checkbox", "radio"].includes(this.type);
    if (toggles) this.check(this.type === "radio" || !this.checked);
    const goesOn = happen(this, "click", { detail });
    if (toggles) for (const type of ["input", "change"]) happen(this, type);
    const form = this.tagName === "BUTTON" && this.type !== "button" && this.closest("form");
    if (goesOn && form) form.requestSubmit();
    if (goesOn && this.tagName === "SUMMARY") {
      this.parentElement.toggleAttribute("open");
      happen(this.parentElement, "toggle", { bubbles: false });
    }
  }

  check(on) {
    if (this.type === "radio")
      for (const other of document.querySelectorAll(`[name="${this.name}"]`)) other.checked = false;
    this.checked = on;
  }

  requestSubmit() {
    if (!happen(this, "submit")) return;
    if (this.getAttribute("method") === "dialog") this.closest("dialog").close();
  }

  /** The focus goes into it, and at its end back. */
  showModal() {
    this.open = true;
    this.opener = page.focus;
    page.focus = null;
  }

  close() {
    if (!this.open) return;
    this.open = false;
    page.focus = this.opener?.isConnected ? this.opener : null;
    happen(this, "close", { bubbles: false });
  }

  /** @param {string} selector one or several, by commas */
  matches(selector) {
    return apart(selector).some((one) => {
      const steps = one.trim().split(/\s*(>)\s*|\s+(?![^[(]*[\])])/);
      return this.isOn(steps.filter(Boolean));
    });
  }

  isOn(steps) {
    if (!this.isOf(steps.at(-1))) return false;
    const before = steps.slice(0, -1);
    if (!before.length) return true;
    if (before.at(-1) === ">") return Boolean(this.parentElement?.isOn(before.slice(0, -1)));
    for (let at = this.parentElement; at; at = at.parentElement) if (at.isOn(before)) return true;
    return false;
  }

  isOf(compound) {
    for (const [, sign, name, key, begins, value, of, list, state, tag] of compound.matchAll(
      SIMPLE,
    )) {
      const fits =
        sign === "#"
          ? this.id === name
          : sign === "."
            ? this.classes.has(name)
            : key
              ? value === undefined
                ? this.hasAttribute(key)
                : begins
                  ? Boolean(this.getAttribute(key)?.startsWith(value))
                  : this.getAttribute(key) === value
              : of
                ? of === "nth-child"
                  ? this.number === Number(list)
                  : this.matches(list) === (of === "is")
                : state
                  ? this.isIn(state)
                  : tag === "*" || this.tagName === tag.toUpperCase();
      if (!fits) return false;
    }
    return this.tagName !== "TEXT";
  }

  /** Which child it is, from one. */
  get number() {
    const all = this.parentElement?.children.filter(({ tagName }) => tagName !== "TEXT");
    return (all?.indexOf(this) ?? -1) + 1;
  }

  isIn(state) {
    if (state === "checked") return this.checked;
    if (state === "focus-visible") return page.focus === this;
    if (state === "modal") return this.tagName === "DIALOG" && this.open;
    if (state === "last-child") return this.parentElement?.lastElementChild === this;
    throw new Error(`no test asks yet for :${state}`);
  }

  querySelectorAll(selector) {
    const all = [];
    for (const child of this.children)
      if (child instanceof Page) {
        if (child.matches(selector)) all.push(child);
        all.push(...child.querySelectorAll(selector));
      }
    return all;
  }

  querySelector(selector) {
    for (const child of this.children)
      if (child instanceof Page) {
        const found = child.matches(selector) ? child : child.querySelector(selector);
        if (found) return found;
      }
    return null;
  }

  get seen() {
    if (this.tagName === "DIALOG" && !this.open) return null;
    const own = super.seen;
    return (
      own && [
        ...own,
        [this.disabled, this.checked, this._value ?? null, page.focus === this, this.scrollTop],
      ]
    );
  }

  get words() {
    if ((this.tagName === "DIALOG" && !this.open) || this.tagName === "STYLE") return "";
    return super.words;
  }
}
for (const name of ["addEventListener", "removeEventListener", "hear", "dispatchEvent"])
  Page.prototype[name] = Hearing.prototype[name];

/** The parts of a list of selectors. */
function apart(selector) {
  return selector.split(/,(?![^(]*\))/);
}

/** The elements of a markup, which is our own. @param {string} markup */
export function parse(markup) {
  const top = [];
  const open = [];
  const put = (node) => (open.length ? open.at(-1).append(node) : top.push(node));
  const plain = (text) => text.replace(/&(\w+);/g, (whole, name) => ENTITIES[name] ?? whole);
  for (const [whole, closing, tag, given, ends] of markup.matchAll(
    /<!--[^]*?-->|<(\/?)([\w-]+)((?:\s+[^\s=>/]+(?:="[^"]*")?)*)\s*(\/?)>|[^<]+/g,
  )) {
    if (whole.startsWith("<!")) continue;
    if (!tag) {
      if (whole.trim()) put(document.createTextNode(plain(whole.replace(/\s+/g, " "))));
    } else if (closing) open.pop();
    else {
      const el = document.createElement(tag);
      for (const [, name, value] of given.matchAll(/([^\s=]+)(?:="([^"]*)")?/g))
        el.setAttribute(name, plain(value ?? ""));
      put(el);
      if (!EMPTY.has(tag) && !ends) open.push(el);
    }
  }
  return top;
}

/** Something happens to an element; whether nothing prevented what a browser then does. */
export function happen(el, type, { bubbles = true, ...given } = {}) {
  const event = Object.assign(new globalThis.Event(type, { bubbles, cancelable: true }), {
    ...{ key: "", shiftKey: false, ctrlKey: false, metaKey: false, altKey: false, button: 0 },
    ...given,
  });
  return el.dispatchEvent(event);
}

const html = new Page("html");
const head = new Page("head");
const body = new Page("body");
const noted = (store) => ({
  getItem: (key) => store.get(key) ?? null,
  setItem: (key, value) => store.set(key, String(value)),
  removeItem: (key) => store.delete(key),
});
const never = class {
  observe() {}

  disconnect() {}

  unobserve() {}
};
const fitted = new Set();
/** The window has another size. */
export function resize(width, height) {
  Object.assign(page, { width, height });
  Object.assign(window, { innerWidth: width, innerHeight: height });
  for (const act of fitted) act();
}
class Address {
  constructor() {
    this.url = new URL("http://page/");
  }

  get hash() {
    return this.url.hash;
  }

  set hash(hash) {
    this.url.hash = hash;
    happen(window, "hashchange", { bubbles: false });
  }

  get search() {
    return this.url.search;
  }

  get href() {
    return this.url.href;
  }

  get origin() {
    return this.url.origin;
  }

  get protocol() {
    return this.url.protocol;
  }
}
const place = new Address();
const turned = (_state, _title, url) => {
  place.url = new URL(url, place.url);
};
const told = new Hearing();
Object.assign(globalThis, {
  addEventListener: told.addEventListener.bind(told),
  removeEventListener: told.removeEventListener.bind(told),
  dispatchEvent: told.dispatchEvent.bind(told),
  hear: told.hear.bind(told),
  HTMLElement: Page,
  Node: Page,
  document: Object.assign(new Hearing(), {
    documentElement: html,
    head,
    body,
    hidden: false,
    referrer: "",
    baseURI: "http://page/",
    title: "",
    querySelector: (selector) => (html.matches(selector) ? html : html.querySelector(selector)),
    querySelectorAll: (selector) => html.querySelectorAll(selector),
    getElementById: (id) => html.querySelector(`#${id}`),
    createElement: (tag) => new Page(tag),
    createElementNS: (_, tag) => new Page(tag),
    createTextNode: (data) => Object.assign(new Page("text"), { data: String(data) }),
    createTreeWalker: (root) => {
      const texts = (el) =>
        el.children.flatMap((child) => (child.tagName === "TEXT" ? child : texts(child)));
      const left = texts(root);
      return {
        nextNode() {
          this.currentNode = left.shift();
          return this.currentNode;
        },
      };
    },
  }),
  location: place,
  history: { state: null, replaceState: turned, pushState: turned },
  localStorage: noted(page.stored.good),
  sessionStorage: noted(page.stored.visit),
  innerWidth: page.width,
  innerHeight: page.height,
  parent: globalThis,
  ResizeObserver: class extends never {
    constructor(act) {
      super();
      this.act = act;
    }

    observe() {
      fitted.add(this.act);
      frames.push(() => this.act());
    }
  },
  MutationObserver: never,
  IntersectionObserver: class extends never {
    constructor(act) {
      super();
      this.observe = (target) => frames.push(() => act([{ isIntersecting: true, target }]));
    }
  },
  Plotly: { newPlot: async (el, ...given) => (el.dataset.figure = digest(given)) },
  CSS: { escape: (text) => text },
  matchMedia: () => ({ matches: false, addEventListener() {} }),
  scrollTo() {},
  fetch: async (url) => {
    const streamed = page.streams[String(url).split("?")[0]]?.shift();
    if (streamed !== undefined) return new globalThis.Response(streamed);
    const answer = page.answers[url];
    return answer === undefined
      ? new globalThis.Response("", { status: 404 })
      : globalThis.Response.json(answer);
  },
  requestAnimationFrame: (act) => frames.push(act),
  cancelAnimationFrame: (n) => {
    frames[n - 1] = null;
  },
  setTimeout: (act, ms = 0) => timers.push({ act, at: page.now + ms }),
  clearTimeout: (n) => {
    if (timers[n - 1]) timers[n - 1].act = null;
  },
});
Object.defineProperty(document, "activeElement", { get: () => page.focus ?? body });
Object.defineProperty(globalThis, "navigator", {
  value: { language: "en", clipboard: { writeText: async (text) => (page.copied = text) } },
  configurable: true,
});
performance.now = () => page.now;
performance.mark = () => {};
html.append(head, body);
process.on("unhandledRejection", (error) => {
  throw error;
});

/** What is due, by its order; what it asks for is not. */
async function turn() {
  for (let n = 0; n < 6; n += 1) await new Promise((done) => setImmediate(done));
  const [drawn, due] = [frames, timers.filter(({ act, at }) => act && at <= page.now)];
  frames = [];
  for (const act of drawn) act?.(page.now);
  for (const timer of due) {
    const { act } = timer;
    timer.act = null;
    act?.();
  }
}

/** So many milliseconds later, ten pictures of the screen a second. */
export async function later(ms = 0) {
  for (const due = page.now + ms; page.now < due; page.now = Math.min(due, page.now + 100))
    await turn();
  for (let n = 0; n < 3; n += 1) await turn();
}

/** What the page says: each text, name and title that is on screen, and what is on its canvases. */
function said() {
  return html.querySelectorAll("*").flatMap((el) => {
    if (!el.getClientRects().length || el.closest("dialog:not([open]), style")) return [];
    const own = el.children.flatMap(({ tagName, data }) => (tagName === "TEXT" ? data : []));
    const drawn = el.g?.done.flatMap(([name, text]) => (name === "fillText" ? text : [])) ?? [];
    return [...own, drawn.join(" "), el.title, el.getAttribute("aria-label") ?? ""].flatMap(
      (text) => text.replace(/\s+/g, " ").trim().slice(0, 90) || [],
    );
  });
}

/** Tells what the page says now and did not the time before, its address, all else by a digest. */
export function teller() {
  let before = new Set();
  return () => {
    const now = new Set(said());
    const news = [...now].filter((text) => !before.has(text));
    before = now;
    return `${digest(html.seen)} ${place.hash} ${news.join(" | ")}`;
  };
}
