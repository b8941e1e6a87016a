// The page's address and links to it: the part after the #, which each part of the page writes,
// links that show the same elsewhere, and what to say if there can be none.

import { showCard } from "./floating.js";
import { h, newButton } from "./dom.js";
import { t } from "./speech.js";

const SPACES = "https://huggingface.co"; // the site that shows a Space's page in a frame

/** The parameters of the address, by name. */
export const addressed = () => new URLSearchParams(location.hash.slice(1));

// the last address that the parts read or wrote; Node, where tests of drawing run, has none
let known = globalThis.location?.hash;
globalThis.addEventListener?.("hashchange", () => {
  known = location.hash;
});

/**
 * Write the address, unless the visitor has just gone to another one, which the parts have yet to
 * read. Inside a frame, also tell the surrounding page.
 */
export function setAddress(/** @type {string} */ hash) {
  if ((hash || "#") === (location.hash || "#")) return;
  if (location.hash !== known) {
    // if no event tells of the other address, do not wait for one any longer
    setTimeout(() => {
      known = location.hash;
    }, 1000);
    return;
  }
  try {
    history.replaceState(history.state, "", hash || "#");
  } catch {
    return; // a page without its own address (srcdoc)
  }
  known = location.hash;
  if (window.parent !== window) window.parent.postMessage({ hash }, SPACES);
}

/** Begin a new entry in the browser's history, so that Back returns to the current address. */
export function turnPage() {
  try {
    history.pushState(history.state, "", location.href);
  } catch {
    // a page without its own address has no history either
  }
}

/**
 * Write a part's address and return it. page: the parameter that names a page of the part; where it
 * changes, Back returns to the page before, if the part has `written` one.
 * @param {URLSearchParams} p @param {string} page @param {string | undefined} written
 */
export function writeAddress(p, page, written) {
  const now = addressed();
  const isOther = (now.get(page) ?? "") !== (p.get(page) ?? "");
  if (written && isOther && now.get("part") === p.get("part")) turnPage();
  setAddress(`#${p}`);
  return `#${p}`;
}

/** A link that works elsewhere: inside a Space's frame, a link to the Space's own page. */
export function linkTo(/** @type {string} */ hash) {
  const inSpace =
    window.parent !== window &&
    document.referrer.startsWith(SPACES) &&
    new URL(document.referrer).pathname.startsWith("/spaces/");
  return (inSpace ? document.referrer.split("#")[0] : location.href.split("#")[0]) + hash;
}

/**
 * Copy a link, or show it if copying fails. @param {HTMLElement} root with a `dialog.card`
 * @param {string} link
 * @param {() => void} copied
 */
export const copyLink = (root, link, copied) => copyText(root, "Copy this link", link, copied);

/**
 * Copy a text, or show it under a title if copying fails. @param {HTMLElement} root
 * @param {string} title @param {string} text @param {() => void} copied
 */
export async function copyText(root, title, text, copied) {
  try {
    await navigator.clipboard.writeText(text);
    copied();
  } catch {
    const field = h("input", {
      type: "text",
      readonly: true,
      value: text,
      "aria-label": t(title),
      class: "link-field box",
    });
    showCard(root, title, field);
    field.select();
  }
}

/**
 * Say that no link can show this, and what to do instead. @param {Root} root
 * @param {string} sentence @param {Action | null | ""} action
 */
export function noLink(root, sentence, action = null) {
  showCard(
    root,
    "No link can show this",
    h("p", {}, t(sentence)),
    action ? newButton({ class: "button", onclick: action.act }, t(action.text)) : null,
  );
}
