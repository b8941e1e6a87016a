// Elements without a page: as much of a DOM as `h`, `put` and `find` need, for tests of what a part
// says and of what it does when it is pressed.

export const { Event, EventTarget } = globalThis;

/** Events do not bubble; texts are strings among the children. */
export class El extends EventTarget {
  attributes = new Map();
  children = /** @type {(El | string)[]} */ ([]);
  dataset = /** @type {Record<string, string>} */ ({});
  style = { setProperty() {} };
  value = "";
  disabled = false;
  parentElement = /** @type {El | null} */ (null);
  classes = new Set();
  /** Fields of a form by their names. */
  elements = { namedItem: (name) => this.querySelector(`[name="${name}"]`) };

  constructor(tag = "div") {
    super();
    this.tagName = tag.toUpperCase();
  }

  set className(names) {
    this.classes = new Set(names.split(" "));
  }

  classList = {
    add: (name) => this.classes.add(name),
    remove: (name) => this.classes.delete(name),
    contains: (name) => this.classes.has(name),
    toggle: (name, on) => this.classes[on ? "add" : "delete"](name),
  };

  append(...nodes) {
    for (const node of nodes) if (node instanceof El) node.parentElement = this;
    this.children.push(...nodes);
  }

  prepend(...nodes) {
    const { children } = this;
    this.replaceChildren(...nodes, ...children);
  }

  replaceChildren(...nodes) {
    this.children = [];
    this.append(...nodes);
  }

  remove() {
    const siblings = this.parentElement?.children;
    siblings?.splice(siblings.indexOf(this), 1);
    this.parentElement = null;
  }

  setAttribute(name, value) {
    this.attributes.set(name, value);
  }

  getAttribute(name) {
    return this.attributes.get(name) ?? null;
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  get textContent() {
    return this.children.map((child) => child.textContent ?? child).join("");
  }

  set textContent(text) {
    this.children = [text];
  }

  click() {
    if (!this.disabled) this.dispatchEvent(new Event("click"));
  }

  after() {}

  before() {}

  focus() {}

  hasChildNodes() {
    return this.children.length > 0;
  }

  getContext() {}

  scrollIntoView() {}

  /** @param {string} selector a tag, `.class`, `[name]` or `[name="value"]` */
  matches(selector) {
    const [, name, value] = selector.match(/^\[([\w-]+)(?:="?(.*?)"?)?\]$/) || [];
    if (name)
      return value === undefined ? this.attributes.has(name) : this.getAttribute(name) === value;
    return selector.startsWith(".")
      ? this.classes.has(selector.slice(1))
      : this.tagName === selector.toUpperCase();
  }

  /** @param {string} selector @returns {El[]} */
  querySelectorAll(selector) {
    return this.children
      .filter((child) => child instanceof El)
      .flatMap((el) => [...(el.matches(selector) ? [el] : []), ...el.querySelectorAll(selector)]);
  }

  /** @param {string} selector */
  querySelector(selector) {
    return this.querySelectorAll(selector)[0] ?? null;
  }

  /** @param {string} selector @returns {El | null} */
  closest(selector) {
    return this.matches(selector) ? this : (this.parentElement?.closest(selector) ?? null);
  }
}

/** What finds an element by its selector, made as it is asked for. */
export const finding = (known = {}) =>
  Object.assign((/** @type {string} */ selector) => (known[selector] ??= new El()), { known });

/** A document that makes such elements, with more of its own. */
export const documentOf = (more = {}) =>
  /** @type {any} */ ({
    documentElement: new El("html"),
    createElement: (tag) => new El(tag),
    createElementNS: (_, tag) => new El(tag),
    createTextNode: (text) => text,
    querySelector: () => null,
    addEventListener() {},
    ...more,
  });

/** An object of a class, without what its constructor needs. */
export const of = (kind, fields) => Object.assign(Object.create(kind.prototype), fields);

/** After everything that is due now. */
export const soon = () => new Promise((done) => setTimeout(done));
