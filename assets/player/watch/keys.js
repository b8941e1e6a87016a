// The player's keyboard. Steps and playing are the transport's own.

import { isOurKey, isTyping, pressesButton } from "../parts/look.js";
import { showKeys } from "../parts/menu.js";
import { focusView } from "./presenter.js";

/** Esc leaves one thing at a time, the innermost first. */
function leave(app) {
  if (app.menu.close() || app.clear()) return;
  if (!app.narration.list.hidden) app.narration.open(false);
  else if (!app.editor.drawer.hidden) app.editor.toggle(false);
  else if (app.root.dataset.focusView) focusView(app, null);
  else if (app.presenter) app.present(false);
}

/** Select the next request of those in lanes and those that wait, in that order. */
function selectNext(app, by) {
  if (!app.frame) return;
  const present = [...new Set([...app.frame.lanes.map((l) => l.request).filter(Boolean), ...app.frame.waiting.map((w) => w.request)])];
  if (!present.length) return;
  const at = present.indexOf(app.pinned);
  const next = present[at < 0 ? (by > 0 ? 0 : present.length - 1) : (at + by + present.length) % present.length];
  if (next !== app.pinned) app.pin(next);
}

export function playerKeys(app) {
  document.addEventListener("keydown", (e) => {
    if (!isOurKey(e, app.root) || app.root.querySelector("dialog[open]")) return;
    const el = /** @type {HTMLElement} */ (e.target);
    if (e.key === "Escape") return leave(app);
    if (isTyping(el) || (el.closest && el.closest(".menu")) || pressesButton(e)) return;
    if (el.closest && el.closest(".texts, .table-holder") && /^(Page|Home|End)/.test(e.key)) return;
    if (app.transport.key(e)) e.preventDefault();
    else if (e.key === "?") showKeys(app.root, app.intro.words);
    else if (e.key === "p") app.present(!app.presenter);
    else if (e.key === "t") app.tables.toggle();
    else if (e.key === "c") app.setClock(!app.clock);
    else if (e.key === "j" || e.key === "k") selectNext(app, e.key === "j" ? 1 : -1);
    else if (e.key === "x") app.ranks.current ? app.ranks.turn(1) : app.pair.flip();
    else if (e.key === "a" && app.ranks.current) app.ranks.showAll(!app.ranks.all);
    else if (e.key === "z" && app.pinned) app.mask.zoomTo(app.pinned);
    else if (e.key === "r") app.narration.open(app.narration.list.hidden);
    else if (app.presenter && e.key === "f") document.fullscreenElement ? document.exitFullscreen() : app.root.requestFullscreen?.();
    else if (app.presenter && /^[1-6]$/.test(e.key)) focusView(app, Number(e.key));
    else if (!app.presenter && /^[0-9]$/.test(e.key)) app.ranks.choose(app.ranks.members.find((m) => m.rank === Number(e.key)));
    else return;
    app.root.classList.add("by-keys");
  });
}
