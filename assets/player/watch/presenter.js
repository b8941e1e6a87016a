// The presenter mode: large type and fewer panels, for a projector; with all views or only one.

import { hideToast } from "../parts/look.js";

const ROOM = [1000, 600]; // width and height in pixels that large type needs
const KEYS =
  "Space plays, R shows the reasons, 1 to 6 show one view, F fills the screen, Esc leaves.";
const VIEWS = ["row", "mask", "kv", "queue", "text", "lanes"]; // by key, 1 to 6

/** Whether the window has the room that the presenter needs, bars included. @param {App} app */
export const hasRoom = ({ root }) => root.clientWidth >= ROOM[0] && root.clientHeight >= ROOM[1];

/** Enter or leave the mode. quiet: no toast about keys or too small a window. @param {App} app */
export function present(app, /** @type {boolean} */ on, /** @type {boolean} */ quiet) {
  app.root.classList.toggle("presenter", on);
  if (on && !hasRoom(app)) {
    app.root.classList.remove("presenter");
    if (!quiet) app.toast(`The presenter needs a window of ${ROOM.join(" by ")} pixels.`);
    return;
  }
  app.store.set({ presenter: on });
  delete app.root.dataset.focusView;
  if (on && document.activeElement instanceof HTMLElement) document.activeElement.blur();
  if (!on && document.fullscreenElement) document.exitFullscreen();
  app.sized();
  app.changed();
  if (!on)
    hideToast(app.root); // it may still show the presenter's keys
  else if (!quiet) app.toast(KEYS, 3000);
}

/**
 * Show one view alone, by its name or number; the same view again, or null, shows all.
 * @param {App} app @param {string | number | null} view
 */
export function focusView(app, view) {
  const name = typeof view === "number" ? VIEWS[view - 1] : view;
  if (name === null || app.root.dataset.focusView === name) delete app.root.dataset.focusView;
  else if (VIEWS.includes(name)) app.root.dataset.focusView = name;
  app.redraw();
  app.changed();
}
