// The one dialog of a part, filled anew each time it is opened.

import { h } from "./dom.js";
import { t } from "./speech.js";

const closing = () => h("form", { method: "dialog" }, h("button", { class: "button primary" }, t("Close")));

/**
 * @param {HTMLElement} root with a `dialog.card`
 * @param {string} title
 * @param {...(Node | null | false | undefined)} content
 */
export function showCard(root, title, ...content) {
  const dialog = bareCard(root, title, "");
  dialog.replaceChildren(h("h2", {}, t(title)), ...content.filter(Boolean), closing());
  dialog.showModal();
  return dialog;
}

/** The dialog with nothing in it, not yet open. kind: a class for what it will hold. */
export function bareCard(root, title, kind) {
  const dialog = root.querySelector("dialog.card");
  dialog.className = `card ${kind}`;
  dialog.setAttribute("aria-label", t(title));
  return dialog;
}
