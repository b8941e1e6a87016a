// The "?" beside each title opens a small card: two sentences, a picture and a link to the lesson
// that shows the subject at work. The picture is the page's own view of the run on screen, at the
// step that shows most; nothing is drawn specially.

import { clamp, h, newButton, put } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { BlocksView } from "../views/kv.js";
import { LengthsView } from "../views/lengths.js";
import { MaskView } from "../views/mask/mask.js";
import { PackedRow } from "../views/packed_row.js";
import { StripView } from "../views/strip.js";
import { TextsView } from "../views/texts.js";
import { EXPLAINED } from "./explained.js";
import { viewState } from "./view_state.js";

const EDGE = 8; // pixels that stay free around the card

/** @param {...Node} children */
const pictureOf = (...children) =>
  h("div", { class: "ask-picture box", "aria-hidden": "true" }, ...children);

/**
 * A view in a panel of its own. @param {string} name of its canvas @param {string} key
 * @param {(panel: HTMLElement, actions: ViewActions) => View} make
 */
const canvasOf = (name, key, make) => (/** @type {ViewActions} */ actions) => {
  const panel = pictureOf(
    h("span", { class: "title", hidden: true }),
    h("span", { class: "tools", hidden: true }),
    h("i", { class: key, hidden: true }),
    h("div", { class: `canvas ${name}` }, h("canvas", {})),
  );
  return { panel, view: make(panel, actions) };
};

/** @type {Record<string, (actions: ViewActions) => {panel: HTMLElement, view: View}>} */
const VIEWS = {
  lanes: canvasOf("strip", "key", (panel, actions) => new StripView(panel, actions)),
  row: canvasOf("low", "key", (panel, actions) => new PackedRow(panel, actions)),
  mask: canvasOf("", "key", (panel, actions) => new MaskView(panel, actions)),
  lengths: canvasOf("lengths", "lengths-key", (panel, actions) => new LengthsView(panel, actions)),
  blocks: canvasOf("blocks", "blocks-key", (panel, actions) => new BlocksView(panel, actions)),
  text: () => {
    const panel = pictureOf(
      h("i", { class: "key", hidden: true }),
      h("div", { class: "texts scrolls" }),
    );
    return { panel, view: new TextsView(panel) };
  },
};

/** Elements that are not canvases are shown as copies. @type {Record<string, string>} */
const COPIED = { budget: ".budget-bar", waiting: ".waiting-list, .waiting-empty" };

export class Ask {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.note = h("div", {
      class: "ask-card surface scrolls",
      popover: "auto",
      role: "dialog",
      tabindex: "-1",
    });
    app.root.append(this.note);
    /** @type {HTMLElement | null} */
    this.button = null; // the button that opened the card
    for (const button of app.root.querySelectorAll("[data-ask]")) {
      button.ariaHasPopup = "dialog";
      button.ariaExpanded = "false";
      button.ariaLabel = EXPLAINED[button.dataset.ask].asks;
      button.addEventListener("click", () => this.open(button));
    }
    // Escape closes only this card
    this.note.addEventListener("keydown", (e) => {
      if (e.key === "Escape") e.stopPropagation();
    });
    this.note.addEventListener("toggle", (e) => {
      if (e.newState === "open") return;
      this.button?.setAttribute("aria-expanded", "false");
      if (document.activeElement === document.body || this.note.contains(document.activeElement))
        this.button?.focus();
      this.note.replaceChildren();
    });
  }

  /** @param {HTMLElement} button */
  open(button) {
    const { app, note } = this;
    const { ask = "" } = button.dataset;
    const told = EXPLAINED[ask];
    if (!told || !app.run?.length || !note.showPopover) return;
    this.button = button;
    const here = app.options.tabs.some((tab) => tab.name === "learn");
    note.setAttribute("aria-label", t(told.asks));
    const onclick = () => note.hidePopover();
    const closing = { class: "icon-button ask-close soft", "aria-label": t("Close"), onclick };
    const href = `#${new URLSearchParams({ part: "learn", ...told.at })}`;
    put(
      note,
      h("b", {}, t(told.asks)),
      newButton(closing, "×"),
      h("p", {}, told.says.map((sentence) => t(sentence)).join(" ")),
      ...this._picture(ask),
      here && h("a", { href, onclick }, t("The lesson that shows it")),
    );
    note.showPopover();
    button.setAttribute("aria-expanded", "true");
    if (app.layout !== "phone") {
      const at = button.getBoundingClientRect();
      const { offsetWidth: w, offsetHeight: hh } = note;
      note.style.left = `${clamp(at.left - 12, EDGE, Math.max(EDGE, window.innerWidth - w - EDGE))}px`;
      const below = at.bottom + EDGE;
      note.style.top = `${clamp(below + hh > window.innerHeight - EDGE ? at.top - hh - EDGE : below, EDGE, Math.max(EDGE, window.innerHeight - hh - EDGE))}px`;
    } else note.style.left = note.style.top = "";
    note.focus({ preventScroll: true });
  }

  /** The picture, and which run and step it shows. @param {string} name @returns {HTMLElement[]} */
  _picture(name) {
    const { app } = this;
    const copied = COPIED[name];
    if (copied) {
      const shown = [...app.root.querySelectorAll(copied)].find(
        (el) => !(/** @type {HTMLElement} */ (el).hidden) && el.childNodes.length,
      );
      if (!shown) return [];
      return [pictureOf(shown.cloneNode(true)), this._from(viewState(app).index)];
    }
    const index = app.run.openingStep();
    const plain = viewState(app, index);
    /** @type {ViewState} */
    const state = {
      ...plain,
      simple: true,
      presenter: false,
      alone: "",
      focus: null,
      hot: null,
      pinned: null,
      flights: null,
      fast: false,
      pass: plain.frame.passes.at(-1) || null,
      leak: { offered: false, on: false, working: "" },
      weights: { ...plain.weights, offered: false, on: false, found: null },
    };
    /** @type {Partial<ViewActions>} */
    const actions = { redraw: () => view?.draw(state), explain: () => {}, hover: () => {} };
    const { panel, view } = VIEWS[name](/** @type {ViewActions} */ (actions));
    if (!panel.querySelector("canvas")) view.draw(state);
    return [panel, this._from(index)];
  }

  /** @param {number} index */
  _from(index) {
    return h("small", {}, t(`This run, step ${this.app.run.stepOf(index)}`));
  }
}
