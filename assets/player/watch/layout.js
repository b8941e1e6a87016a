// Fits Watch to its window: layout by width, theme, and which view a small screen shows. All of
// these are part of the player's state.

import { h, setAttr, setText } from "../parts/dom.js";
import { layoutOf, onTheme, paintTheme, prefersDark } from "../parts/look.js";
import { tell } from "../parts/speech.js";
import { hasRoom } from "./presenter.js";

const SHORT = 500; // pixels; a tablet's layout with less height is a phone on its side
const NARROW = 800; // pixels; a tablet's layout with less width has no room for all buttons
const TABS = ["mask", "kv", "queue", "text"];

export const isOnWatch = () => (document.documentElement.dataset.part || "watch") === "watch";

/** From now on, keep theme and layout fitted to the system and the window. @param {App} app */
export function keepFitted(app) {
  for (const button of app.root.querySelectorAll(".view-tabs [data-tab]"))
    button.addEventListener("click", () => {
      chooseTab(app, button.dataset.tab);
      app.changed();
    });
  chooseTab(app, app.tab);
  new ResizeObserver(() => app.sized()).observe(app.$(".stage"));
  onTheme(() => paint(app));
  const paper = h("style");
  app.root.append(paper);
  // on paper it is light: what is drawn for a dark ground would hardly be seen; and a page is as
  // large as the window, for whose size everything is drawn
  window.addEventListener("beforeprint", () => {
    const { innerWidth, innerHeight } = window;
    setText(paper, `@page { size: ${innerWidth}px ${innerHeight}px; margin: 0; }`);
    paint(app, false);
    app.draw();
  });
  window.addEventListener("afterprint", () => paint(app));
}

/** Fit the layout to the player's element, whose size has changed. @param {App} app */
export function fit(app) {
  const { root } = app;
  if (app.presenter && root.clientWidth && !hasRoom(app)) return app.present(false);
  const width = app.$(".stage").clientWidth || root.clientWidth;
  const layout = app.presenter ? "desk" : layoutOf(width);
  const short = layout === "tablet" && root.clientHeight < SHORT;
  const narrow = layout === "tablet" && (width < NARROW || short);
  root.toggleAttribute("data-narrow", narrow);
  root.toggleAttribute("data-short", short);
  if (layout !== app.layout) {
    app.store.set({ layout });
    root.dataset.layout = layout;
    if (app.views) chooseTab(app, app.tab);
  }
  if (app.run) {
    app.bar.fitChips();
    app.redraw();
  }
}

/** Show one of the views that share their place on a small screen. @param {App} app */
export function chooseTab(app, /** @type {string} */ tab) {
  if (!TABS.includes(tab)) return;
  app.store.set({ tab });
  const shown = app.layout === "tablet" && tab === "mask" ? "kv" : tab;
  app.root.dataset.tab = shown;
  for (const button of app.root.querySelectorAll(".view-tabs [data-tab]"))
    setAttr(button, "aria-selected", String(button.dataset.tab === shown));
  app.redraw();
}

/** Paint a theme, by default the one that the visitor or an address chose, else the system's. */
export function paint(/** @type {App} */ app, dark = isDark(app)) {
  app.store.set({ palette: paintTheme(app.root, dark) });
}

/** @param {App} app */
function isDark({ store }) {
  const { chosenTheme } = store.state;
  return chosenTheme ? chosenTheme === "dark" : prefersDark();
}

/** Whether the run opens on an axis of measured seconds: if it is about time. @param {App} app */
export const ownAxis = (app) => app.entry?.axis === "time";

/** Show the axis of the opened run, unless the visitor or an address chose one. @param {App} app */
export function openAxis(app) {
  const isFree = app.store.state.chosenAxis === undefined && !app.pair.members.length;
  if (isFree && app.clock !== ownAxis(app)) setAxis(app, ownAxis(app));
}

/** Choose the lanes' axis: measured seconds or steps. @param {App} app */
export function chooseAxis(app, /** @type {boolean} */ clock) {
  app.store.set({ chosenAxis: clock });
  setAxis(app, clock);
}

/** Show an axis without choosing it for later runs. @param {App} app */
export function setAxis(app, /** @type {boolean} */ clock) {
  app.store.set({ clock });
  const button = app.$(".clock-button");
  tell(button, clock ? "Axis: time" : "Axis: steps");
  button.setAttribute("aria-pressed", String(clock));
  app.changed();
}
