// What every part of the page does alike: theme, layout by width, tabs, toasts, one redraw a frame. Knows no part.

import { h, setText } from "./dom.js";
import { t } from "./speech.js";
import { Palette } from "./colours.js";

/** Dark where the host page is, or, outside Gradio, where the reader's system is. */
export function prefersDark() {
  const host = document.body.classList.contains("dark") || document.documentElement.classList.contains("dark");
  return host || (!document.querySelector("gradio-app") && matchMedia("(prefers-color-scheme: dark)").matches);
}

/** Dark where the page's player is; where there is none, as a link wants it ("dark", "light"), else as the host page or the reader's system. */
export function isDarkBeside(wanted = null) {
  /** @type {HTMLElement | null} */
  const player = document.querySelector("#watch .inflight[data-theme]");
  return player ? player.dataset.theme === "dark" : wanted ? wanted === "dark" : prefersDark();
}

/** Act once the style sheet is there: without it every colour would be read as black. */
export function whenStyled(root, act) {
  if (getComputedStyle(root).getPropertyValue("--scheme").trim()) act();
  else requestAnimationFrame(() => whenStyled(root, act));
}

/** Put a theme on a part; its palette, whose hues style sheets find as variables. */
export function paintTheme(root, dark) {
  root.dataset.theme = dark ? "dark" : "light";
  const palette = new Palette(root);
  palette.hues.forEach((c, i) => {
    for (const [name, value] of [["hue", c.solid], ["tint", c.tint], ["cached", c.cached], ["faint", c.faint]]) root.style.setProperty(`--${name}-${i}`, value);
  });
  return palette;
}

/** Call when the theme may be another; `also`: an element whose data-theme is to be followed. */
export function onTheme(act, also = null) {
  const watch = new MutationObserver(act);
  for (const host of [document.body, document.documentElement]) watch.observe(host, { attributes: true, attributeFilter: ["class"] });
  if (also) watch.observe(also, { attributes: true, attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", act);
}

/** Fill `holder` with a part's own markup and style; its root. */
export function fillPart(holder, { style, markup }, selector) {
  document.head.append(h("style", {}, style));
  holder.innerHTML = markup; // our own file, nothing of anybody's data
  const root = holder.querySelector(selector);
  root.classList.add("inflight");
  return root;
}

/** Give a part the player's theme and a layout by its own width, from now on; call what is returned where the theme may have changed unseen. */
export function besidePlayer(root) {
  let painted = null;
  const theme = () => {
    const dark = isDarkBeside();
    if (painted === dark) return;
    painted = dark;
    paintTheme(root, dark);
  };
  const size = () => { root.dataset.layout = layoutOf(root.clientWidth || window.innerWidth); };
  theme();
  size();
  new ResizeObserver(size).observe(root);
  onTheme(theme, document.querySelector("#watch .inflight"));
  return theme;
}

export const layoutOf = (width) => (width <= 600 ? "phone" : width <= 1200 ? "tablet" : "desk");

/** The parts of the page as buttons; choosing one is the DOM event `inflight-tab`. */
export function fillTabs(root, tabs, current) {
  const nav = root.querySelector(".tabs");
  nav.hidden = tabs.length < 2;
  const focused = [...nav.children].indexOf(document.activeElement); // they are made again when another language is spoken
  nav.replaceChildren(...tabs.map((tab) => h("button", {
    type: "button", "aria-current": tab.name === current ? "page" : null, onclick: (e) => root.dispatchEvent(new CustomEvent("inflight-tab", { detail: { name: tab.name, byKey: e.detail === 0 }, bubbles: true })),
  }, t(tab.title))));
  /** @type {HTMLElement | undefined} */ (nav.children[focused])?.focus();
}

/** The page's player, once it is there. */
export async function pagePlayer() {
  while (!window.inflight) await new Promise((resolve) => requestAnimationFrame(resolve));
  return window.inflight;
}

/** What the player shows, for a tab that takes it over; `app.entered(what)` after `Object.assign(app, what.shown)` brings it back. */
export function shownBy(app) {
  const { run, entry, replay } = app;
  return { shown: { run, entry, replay }, step: run?.length ? run.stepOf(app.index) : null, pin: app.pinned?.letter, tab: app.tab };
}

/** A sentence, and perhaps what can be done about it: {text, act}. */
export function putSentence(el, sentence, action = null) {
  el.replaceChildren(t(sentence), ...(action ? [h("button", { type: "button", class: "mini", onclick: action.act }, t(action.text))] : []));
}

/** @type {WeakMap<Element, number>} */
const toasts = new WeakMap(); // the timer that takes each away

export function showToast(root, sentence, ms, action = null) {
  const el = root.querySelector(".toast");
  putSentence(el, sentence, action && { text: action.text, act: () => { el.hidden = true; action.act(); } });
  el.hidden = false;
  clearTimeout(toasts.get(el));
  toasts.set(el, setTimeout(() => { el.hidden = true; }, ms));
}

export function hideToast(root) {
  root.querySelector(".toast").hidden = true;
}

/** The sentence that stands where there is nothing to show; null takes it away. */
export function showEmpty(root, sentence) {
  const box = root.querySelector(".empty-state");
  box.hidden = !sentence;
  if (sentence) setText(box.querySelector("p"), t(sentence));
}

/** Draw in the next frame, however often asked; until then `part.drawsSoon`. */
export function drawSoon(part) {
  if (part.drawsSoon) return;
  part.drawsSoon = true;
  requestAnimationFrame(() => {
    part.drawsSoon = false;
    part.draw();
  });
}

/** Whether a key is for this part: it is on screen, nothing else took the key. */
export const isOurKey = (e, root) => !(e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey) && root.getClientRects().length > 0;
export const isTyping = (el) => /^(INPUT|TEXTAREA|SELECT)$/.test(el.tagName) || el.isContentEditable;
/** Space presses the focused button, unless it is Play. */
export const pressesButton = (e) => e.key === " " && e.target.tagName === "BUTTON" && !e.target.classList.contains("play");
