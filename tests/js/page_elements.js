// The elements of a whole page without a browser: made from its own markup, found by selectors, with
// events that rise and a focus. page.js has the window around them.

import { Seen } from "./seen.js";
import { fits, selectorsOf } from "./sheets.js";

const EMPTY = new Set(["input", "meta", "link", "br", "hr", "img"]);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0" };
const inData = (name) => name.slice(5).replace(/-(.)/g, (_, letter) => letter.toUpperCase());

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
  /** @type {Record<string, any[][]>} What an engine in the tab answers, by what it is told. */
  engine: {},
  copied: "",
  /** What it did besides what is seen: requests, addresses, scrolling; until it is told. */
  done: /** @type {unknown[]} */ ([]),
  scrolled: 0,
  /** @type {(((now: number) => void) | null)[]} What is drawn in the next picture of the screen. */
  frames: [],
};

const size = () => ({ width: page.width, height: page.height });

/** What listens, and tells those around it of what happened. */
export class Hearing {
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
    for (const name of [
      "value",
      "elements",
      "isConnected",
      "clientWidth",
      "clientHeight",
      "offsetWidth",
    ])
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
    if (this.matches(".inflight, .stage, .page, .opening, .opening .canvas")) return page.width;
    return page.width < 700 ? page.width - 20 : Math.round(page.width * 0.3);
  }

  get clientHeight() {
    const isLarge = this.matches(".inflight, .stage, .page, .opening .canvas");
    return Math.round(isLarge ? page.height : page.height / 5);
  }

  get offsetWidth() {
    return this.getClientRects().length ? 20 + 6 * this.textContent.length : 0;
  }

  setAttribute(name, value) {
    super.setAttribute(name, value);
    if (name === "class") this.className = value;
    if (name.startsWith("data-")) this.dataset[inData(name)] = value;
    if (["hidden", "disabled", "checked"].includes(name)) this[name] = true;
    if (name === "title") this.title = value;
  }

  getAttribute(name) {
    if (["hidden", "disabled"].includes(name)) return this[name] ? "" : null;
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
      if (node.tagName === "SCRIPT")
        page.frames.push(() => happen(node, "error", { bubbles: false }));
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

  insertBefore(node, next) {
    if (next) next.before(node);
    else this.append(node);
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
    for (let at = this; at; at = at.parentElement) if (at.hidden || at.isShut) return [];
    const own = this.closest(".compare, .learn, .live:not(html), .write");
    if (own ? !own.classes.has(part) : part === "compare") return [];
    if (["live", "write"].includes(part) && this.closest("#watch .head")) return [];
    return [{}];
  }

  /** Each has a place of its own. The sections of a story are tall, and so are their paragraphs. */
  getBoundingClientRect() {
    if (this.matches(".inflight"))
      return { left: 0, top: 0, ...size(), right: page.width, bottom: page.height };
    const [width, height] = [30, this.tagName === "SECTION" ? 3000 : 12];
    let [left, top] = [7, 9 - page.scrolled];
    for (let at = this; at.parentElement; at = at.parentElement) {
      left += 2;
      top += at.number * (at.tagName === "SECTION" ? 3000 : at.classes.has("beat") ? 400 : 3);
      top -= at.parentElement.scrollTop;
    }
    return { left, top, right: left + width, width, height, bottom: top + height };
  }

  cloneNode() {
    const made = Object.assign(new Page(this.tagName), { data: this.data, hidden: this.hidden });
    for (const [name, value] of this.attributes) made.setAttribute(name, value);
    made.classes = new Set(this.classes);
    made.append(...this.children.map((child) => child.cloneNode()));
    return made;
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

  scrollIntoView(how) {
    page.done.push(["scrolls to", this.className, how]);
  }

  select() {
    page.done.push(["selects", this.className]);
  }

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
    if (this.tagName === "A" && this.download) page.copied = this.download;
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

  showPopover() {
    this.popsUp = true;
    happen(this, "toggle", { bubbles: false, newState: "open" });
  }

  hidePopover() {
    this.popsUp = false;
    happen(this, "toggle", { bubbles: false, newState: "closed" });
  }

  get isShut() {
    return (
      (this.tagName === "DIALOG" && !this.open) || (this.hasAttribute("popover") && !this.popsUp)
    );
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
    if (this.popsUp) this.hidePopover();
    if (!this.open) return;
    this.open = false;
    page.focus = this.opener?.isConnected ? this.opener : null;
    happen(this, "close", { bubbles: false });
  }

  /** @param {string} selector one or several, by commas */
  matches(selector) {
    return selectorsOf(selector).some((one) => fits(this, one));
  }

  /** Which child it is, from one. */
  get number() {
    const all = this.parentElement?.children.filter(({ tagName }) => tagName !== "TEXT");
    return (all?.indexOf(this) ?? -1) + 1;
  }

  isIn(state, given) {
    if (state === "checked") return this.checked;
    if (state === "disabled") return this.disabled;
    if (["focus", "focus-visible"].includes(state)) return page.focus === this;
    if (state === "focus-within") return this.contains(page.focus);
    if (state === "any-link") return this.tagName === "A" && this.hasAttribute("href");
    if (["hover", "active"].includes(state)) return false; // no pointer rests on the page
    if (state === "modal") return this.tagName === "DIALOG" && this.open;
    if (state === "popover-open") return this.popsUp === true;
    if (state === "root") return this.tagName === "HTML";
    if (state === "empty") return !this.children.length;
    if (state === "lang") return (this.closest("[lang]")?.getAttribute("lang") ?? "en") === given;
    if (state === "first-child") return this.number === 1;
    if (state === "last-child") return this.parentElement?.lastElementChild === this;
    if (state === "nth-child") {
      const [, each, from] = /^(?:(\d*)n ?\+ ?)?(\d+)$/.exec(
        { odd: "2n+1", even: "2n+0" }[given] ?? given,
      );
      if (each === undefined) return this.number === Number(from);
      return this.number >= from && (this.number - from) % (each || 1) === 0;
    }
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
    if (this.isShut) return null;
    const own = super.seen;
    return (
      own && [
        ...own,
        [this.disabled, this.checked, this._value ?? null, page.focus === this, this.inert],
        [
          this.scrollTop,
          this.scrollLeft,
          [...this.heard].map(([type, { length }]) => [type, length]),
        ],
      ]
    );
  }
}
for (const name of ["addEventListener", "removeEventListener", "hear", "dispatchEvent"])
  Page.prototype[name] = Hearing.prototype[name];

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
  const goesOn = el.dispatchEvent(event);
  if (!goesOn) page.done.push(["prevents", type]);
  return goesOn;
}
