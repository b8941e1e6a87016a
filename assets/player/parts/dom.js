// Small helpers for the DOM. Text is set with textContent, never parsed as markup.

/**
 * Create an element. props: attributes, and listeners by "onclick" and the like.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props} props
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") el.className = String(value);
    else if (key.startsWith("on"))
      el.addEventListener(key.slice(2), /** @type {EventListener} */ (value));
    else el.setAttribute(key, value === true ? "" : String(value));
  }
  el.append(...present(children));
  return el;
}

/** @typedef {Node | string | false | null | undefined} Child false, null and undefined are left out */

/** @param {Child[]} children */
const present = (children) =>
  children.filter((child) => child !== false && child !== null && child !== undefined);

/** Replace the children of an element, see `h`. @param {Element} el @param {...Child} children */
export const put = (el, ...children) => el.replaceChildren(...present(children));

/** Replace the children by buttons; the focus keeps its index. @type {typeof put} */
export function renew(el, ...buttons) {
  const focused = [...el.children].indexOf(/** @type {Element} */ (document.activeElement));
  put(el, ...buttons);
  /** @type {HTMLElement | undefined} */ (el.children[focused])?.focus();
}

/** Create a button, see `h`. @param {Props} props @param {...Child} children */
export const newButton = (props, ...children) =>
  h("button", { type: "button", ...props }, ...children);

/**
 * A table from the cells of its head and its rows. before: elements above them, such as a caption.
 * @param {Element[]} heads @param {Element[]} rows @param {Element[]} before
 */
export const tableOf = (heads, rows, ...before) =>
  h("table", {}, ...before, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows));

/** An SVG element. @type {(tag: string, props: Record<string, string>, child?: Node) => Element} */
export function svg(tag, props, child) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) el.setAttribute(name, value);
  if (child) el.append(child);
  return el;
}

/** An icon from the sprite in player.html. @param {string} name */
export function icon(name) {
  const use = svg("use", { href: `#inflight-${name}` });
  return svg("svg", { class: "icon", "aria-hidden": "true" }, use);
}

/**
 * A button beside Play. @param {string} act what it does @param {string} of its icon
 * @param {string} name @param {string} key that does the same, if there is one @param {string} more
 * classes
 */
export const keyButton = (act, of, name, key = "", more = act) =>
  newButton(
    {
      class: `key-button ${more} surface fixed`,
      "data-act": act,
      "aria-label": name,
      title: key ? `${name} (${key})` : name,
    },
    icon(of),
  );

/** A button with only an icon. @param {string} of @param {string} name @param {() => void} act */
export const iconButton = (of, name, act) =>
  newButton({ class: "icon-button", "aria-label": name, title: name, onclick: act }, icon(of));

/**
 * The element that a selector finds; our own markup must contain it.
 * @type {(root: ParentNode, selector: string) => HTMLElement}
 */
export function find(root, selector) {
  const el = root.querySelector(selector);
  if (!(el instanceof HTMLElement)) throw new Error(`the markup has no ${selector}`);
  return el;
}

/** All elements that a selector finds. @param {ParentNode} root @param {string} selector */
export const findAll = (root, selector) =>
  /** @type {HTMLElement[]} */ ([...root.querySelectorAll(selector)]);

/** @param {ParentNode} root @returns {HTMLCanvasElement} */
export const canvasIn = (root, selector = "canvas") =>
  /** @type {HTMLCanvasElement} */ (find(root, selector));

/** @type {WeakMap<Element, Map<string, string>>} */
const written = new WeakMap(); // the values that each element was last given, by name

/**
 * Whether a value differs from the last one: unchanged values must not cause layout.
 * @type {(el: Element, name: string, value: string) => boolean}
 */
function isNew(el, name, value) {
  let known = written.get(el);
  if (!known) written.set(el, (known = new Map()));
  if (known.get(name) === value) return false;
  known.set(name, value);
  return true;
}

/** Set text only if it changes. @param {Element} el @param {string} text */
export function setText(el, text) {
  if (isNew(el, "", text)) el.textContent = text;
}

/** Set an attribute if it changes. @type {(el: Element, name: string, value: string) => void} */
export function setAttr(el, name, value) {
  if (isNew(el, name, value)) el.setAttribute(name, value);
}

/** Note what `row` is drawn from; returns if it is new. @type {(row: Json, of: Json) => boolean} */
export function isRedrawn(row, of) {
  const isOther = Object.keys(of).some((name) => row[name] !== of[name]);
  if (isOther) Object.assign(row, of);
  return isOther;
}

/** Set a style if it changes. @type {(el: HTMLElement, name: string, value: string) => void} */
export function setStyle(el, name, value) {
  if (isNew(el, `:${name}`, value)) el.style.setProperty(name, value);
}

/** @type {(x: number, low: number, high: number) => number} */
export const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Parse a JSON text; null if it is not JSON. @param {string | null} text @returns {Json} */
export function jsonIn(text) {
  try {
    return JSON.parse(text ?? "");
  } catch {
    return null;
  }
}

/** Load and run a script, or throw `failed`. @param {string} src @param {string} failed */
export const runScript = (src, failed) =>
  new Promise((resolve, reject) => {
    const onerror = () => reject(new Error(failed));
    document.head.append(h("script", { src, onload: resolve, onerror }));
  });

/** A random name of hexadecimal digits, practically unique. @param {number} bytes */
export const randomHex = (bytes) =>
  Array.from(crypto.getRandomValues(new Uint8Array(bytes)), (b) =>
    b.toString(16).padStart(2, "0"),
  ).join("");

/** Download a file. @param {string} name @param {Blob} blob */
export function download(name, blob) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(blob);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

/** Wait; throws if aborted. @type {(ms: number, signal?: AbortSignal) => Promise<unknown>} */
export const pause = (ms, signal) =>
  new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(over);
      reject(signal?.reason);
    };
    const over = setTimeout(() => {
      signal?.removeEventListener("abort", stop); // a signal outlives many pauses
      resolve(undefined);
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });

/**
 * The position of a pointer in an element, from its top left corner. @param {Element} el
 * @param {MouseEvent} e @returns {[x: number, y: number]}
 */
export function pointIn(el, { clientX, clientY }) {
  const { left, top } = el.getBoundingClientRect();
  return [clientX - left, clientY - top];
}

/**
 * Follow a pointer from its press on an element to its release. begin: called at the press; returns
 * a function that is called at each move, or null if nothing is dragged. ended: called at the end,
 * at "pointerup" or "pointercancel".
 * @param {HTMLElement} el
 * @param {(e: PointerEvent) => ((e: PointerEvent) => void) | null} begin
 * @param {(e: PointerEvent) => void} ended
 */
export function onDrag(el, begin, ended = () => {}) {
  /** @type {ReturnType<typeof begin>} */
  let move = null;
  el.addEventListener("pointerdown", (e) => {
    if (move || e.button) return; // a second finger drags nothing
    move = begin(e);
    if (move) el.setPointerCapture(e.pointerId);
  });
  el.addEventListener("pointermove", (e) => move?.(e));
  for (const type of /** @type {const} */ (["pointerup", "pointercancel"]))
    el.addEventListener(type, (e) => {
      if (move) ended(e);
      move = null;
    });
}

let pointer = ""; // its last position
/** @type {(e: MouseEvent) => string} */
const placeOf = (e) => `${e.clientX} ${e.clientY}`;
for (const type of /** @type {const} */ (["pointermove", "pointerdown"]))
  globalThis.addEventListener?.(type, (e) => {
    pointer = placeOf(e);
  });

/** Whether the pointer itself moved, not what is under it. @param {PointerEvent} e */
export const hasMoved = (e) => placeOf(e) !== pointer;
