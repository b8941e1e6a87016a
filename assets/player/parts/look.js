// What the parts of the page share: theme, layout by width, tabs, toasts, one redraw per frame.

import { h, newButton, put, renew, setText } from "./dom.js";
import { speaking, t } from "./speech.js";
import { Palette } from "./colours.js";

/** Whether to be dark: as the host page, or, outside Gradio, as the reader's system. */
export function prefersDark() {
  const host =
    document.body.classList.contains("dark") || document.documentElement.classList.contains("dark");
  return (
    host ||
    (!document.querySelector("gradio-app") && matchMedia("(prefers-color-scheme: dark)").matches)
  );
}

/** Whether the player is dark; without one, as a link says ("dark", "light"), or the host page. */
export function isDarkBeside(/** @type {string | null} */ wanted = null) {
  /** @type {HTMLElement | null} */
  const player = document.querySelector("#watch .inflight[data-theme]");
  return player ? player.dataset.theme === "dark" : wanted ? wanted === "dark" : prefersDark();
}

/** Call `act` when the style sheet has loaded: before that, every colour would be read as black. */
export function whenStyled(/** @type {Root} */ root, /** @type {() => void} */ act) {
  if (getComputedStyle(root).getPropertyValue("--scheme").trim()) act();
  else requestAnimationFrame(() => whenStyled(root, act));
}

/** Apply a theme to a part; returns its palette, whose hues are also CSS variables. */
export function paintTheme(/** @type {Root} */ root, /** @type {boolean} */ dark) {
  root.dataset.theme = dark ? "dark" : "light";
  const palette = new Palette(root);
  palette.hues.forEach(({ solid: hue, tint, cached, faint }, i) => {
    for (const [name, value] of Object.entries({ hue, tint, cached, faint }))
      root.style.setProperty(`--${name}-${i}`, value);
  });
  return palette;
}

/** Give an element a hue of the theme. @param {HTMLElement} el @param {number} hue */
export function setHue(el, hue) {
  for (const name of ["hue", "tint"]) el.style.setProperty(`--${name}`, `var(--${name}-${hue})`);
}

/** Call `act` when the theme may have changed. also: an element whose data-theme counts, too. */
export function onTheme(/** @type {() => void} */ act, /** @type {Element | null} */ also = null) {
  const watch = new MutationObserver(act);
  for (const host of [document.body, document.documentElement])
    watch.observe(host, { attributes: true, attributeFilter: ["class"] });
  if (also) watch.observe(also, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", act);
}

/** Fill `holder` with a part's own markup and style; returns the part's root. */
export function fillPart(
  /** @type {Root} */ holder,
  /** @type {Json} */ { style, markup },
  /** @type {string} */ selector,
) {
  document.head.append(h("style", {}, style));
  holder.innerHTML = markup; // our own file, without any user data
  const root = holder.querySelector(selector);
  root.classList.add("inflight");
  return root;
}

/** Have a part follow the player's theme and its own width; call the result on a new theme. */
export function besidePlayer(/** @type {Root} */ root) {
  /** @type {boolean | null} */
  let painted = null;
  const theme = () => {
    const dark = isDarkBeside();
    if (painted === dark) return;
    painted = dark;
    paintTheme(root, dark);
  };
  const size = () => {
    root.dataset.layout = layoutOf(root.clientWidth || window.innerWidth);
  };
  theme();
  size();
  new ResizeObserver(size).observe(root);
  onTheme(theme, document.querySelector("#watch .inflight"));
  return theme;
}

export const layoutOf = (/** @type {number} */ width) =>
  width <= 600 ? "phone" : width <= 1200 ? "tablet" : "desk";

/** Why a page with a server has neither Write nor an engine in its visitors' tabs. */
export const NO_PYODIDE =
  "Write and the engine in your own browser are missing: they need Pyodide, which `python -m inflight models --fetch smollm2` brings to the machine that serves this page.";

/**
 * Go to another part of the page, see tabs.js. wish: what to show first. byKey: the tab keeps the
 * focus. @param {HTMLElement} root @param {string} name @param {Json} [wish] @param {boolean} [byKey]
 */
export const goToPart = (root, name, wish, byKey) =>
  root.dispatchEvent(
    new CustomEvent("inflight-tab", { detail: { name, wish, byKey }, bubbles: true }),
  );

/**
 * Show the parts of the page as tabs; a tab with an address links to a separate page.
 * @param {Root} root @param {Tab[]} tabs @param {string} current
 */
export function fillTabs(root, tabs, current) {
  const nav = root.querySelector(".tabs");
  nav.hidden = tabs.length < 2;
  renew(
    nav,
    ...tabs.map((tab) =>
      tab.href
        ? h("a", { href: hrefOf(tab.href) }, t(tab.title))
        : newButton(
            {
              "aria-current": tab.name === current ? "page" : null,
              "aria-disabled": tab.lacks ? "true" : null,
              title: tab.lacks ? t(NO_PYODIDE) : null,
              onclick: (e) =>
                tab.lacks
                  ? showToast(root, NO_PYODIDE, 12000)
                  : goToPart(root, tab.name, undefined, e.detail === 0),
            },
            t(tab.title),
          ),
    ),
  );
}

/** The address of a separate page, with the current language. @param {string} href */
export const hrefOf = (href) => href + (speaking() === "en" ? "" : `?lang=${speaking()}`);

/** The Watch part, once it exists. */
export async function pageWatch() {
  while (!window.inflightWatch) await new Promise((resolve) => requestAnimationFrame(resolve));
  return window.inflightWatch;
}

/**
 * Write a sentence, and a button for what can be done about it, if anything: {text, act}.
 * @param {HTMLElement} el @param {string} sentence @param {Action | null | ""} action
 */
export function putSentence(el, sentence, action = null) {
  put(el, t(sentence), action && newButton({ class: "mini", onclick: action.act }, t(action.text)));
}

/** @type {WeakMap<Element, {timer: number, say: () => void}>} */
const toasts = new WeakMap(); // the timer that hides each toast, and a function that writes it

/**
 * @param {Root} root @param {string} sentence @param {number} ms @param {Action | null | ""} action
 */
export function showToast(root, sentence, ms, action = null) {
  const el = root.querySelector(".toast");
  const act = () => {
    el.hidden = true;
    if (action) action.act();
  };
  const say = () => putSentence(el, sentence, action ? { text: action.text, act } : null);
  say();
  el.hidden = false;
  clearTimeout(toasts.get(el)?.timer);
  const timer = setTimeout(() => {
    el.hidden = true;
  }, ms);
  toasts.set(el, { timer, say });
}

/** Write the toast again after a change of language. */
export const sayToast = (/** @type {Root} */ root) =>
  toasts.get(root.querySelector(".toast"))?.say();

export function hideToast(/** @type {Root} */ root) {
  root.querySelector(".toast").hidden = true;
}

/** Make a part fill the screen, or leave full screen. @param {HTMLElement} root */
export const toggleFullscreen = (root) =>
  document.fullscreenElement
    ? document.exitFullscreen()
    : root.requestFullscreen?.().catch(() => {}); // a page around this one may forbid it

/** The sentence shown when there is nothing else to show; null removes it. */
export function showEmpty(/** @type {Root} */ root, /** @type {string | null} */ sentence) {
  const box = root.querySelector(".empty-state");
  box.hidden = !sentence;
  if (sentence) setText(box.querySelector("p"), t(sentence));
}

/** Draw in the next frame, once however often requested; `part.drawsSoon` is true until then. */
export function drawSoon(/** @type {Json} */ part) {
  if (part.drawsSoon) return;
  part.drawsSoon = true;
  requestAnimationFrame(() => {
    part.drawsSoon = false;
    part.draw();
  });
}

/** Whether a key is for this part: it is on screen and nothing else handled the key. */
export const isOurKey = (/** @type {KeyboardEvent} */ e, /** @type {Root} */ root) =>
  !(e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) && root.getClientRects().length > 0;
export const isTyping = (/** @type {HTMLElement} */ el) =>
  /^(INPUT|TEXTAREA|SELECT)$/.test(el.tagName) || el.isContentEditable;
/** Whether a key event is Space on a focused button, which Space presses; Play is excepted. */
export const pressesButton = (/** @type {KeyboardEvent} */ e) =>
  e.key === " " && /** @type {Element} */ (e.target).matches?.("button:not(.play)");
