// The lanes with people's names, a view that covers the player's other panels while the Live tab is
// open; one button ("Under the hood") shows those. Only pages on which visitors send requests have
// this view, because a followed engine's requests have no names of people.

import { find, h, newButton, setAttr, setText } from "../parts/dom.js";
import { keep, kept } from "../parts/kept.js";
import { t, tell } from "../parts/speech.js";
import { PeopleView } from "../views/people.js";
import { addressOf } from "./join.js";

const HOOD = "inflight-live-hood"; // key in the session's storage
// what Full shows, and what Simple shows
const MORE = "Also the token budget, caches, latencies and events";
const LESS = "Lanes, one pass, the mask, memory and texts";
const ASK =
  "Ask, and you get a lane at once; your answer grows beside your name, one token per step.";

export class Room {
  /** @param {import("./live.js").Live} live */
  constructor(live) {
    this.live = live;
    this.isOpen = kept("visit", HOOD) === "open"; // whether the panels under the hood are shown
    this.panel = h("section", { class: "panel people surface", "data-view": "people" });
    this.view = new PeopleView(
      this.panel,
      (id) => live.mine.has(id),
      () => live.watch?.redraw(),
    );
    this.tab = newButton({
      role: "tab",
      class: "button people-tab",
      onclick: () => this.open(false),
    });
    const button = () =>
      newButton({ class: "button hood-button", onclick: () => this.open(!this.isOpen) });
    this.buttons = [button(), button()]; // one in the bar, one in the presenter's bar
    live.$(".presenter-button").before(this.buttons[0]);
    const turn = () => newButton({ class: "button detail-button", onclick: () => this._turn() });
    this.details = [turn(), turn()]; // one in the bar, one beside a phone's tabs
    live.$(".presenter-button").before(this.details[0]);
    this.isIn = false;
    this._said = "";
    /** @type {Promise<unknown> | null} the QR code for the presenter's view, requested once */
    this.join = null;
    // draws only the batch, not a run that Watch showed
    this.shown = {
      draw: (/** @type {ViewState} */ state) => {
        if (state.run === live.batch.run) this.view.draw(state);
      },
    };
  }

  get isOn() {
    return this.isIn && !this.isOpen;
  }

  /** The Live tab has taken over the player: show the view. */
  enter() {
    const { watch } = this.live;
    if (!this.live.options.asks || this.isIn) return;
    this.isIn = true;
    const { root } = watch;
    find(root, ".stage").append(this.panel);
    this.join ??= addressOf(this.live).then(
      ({ page, code }) => code && this.panel.append(h("div", { class: "people-join" }, code, page)),
      () => {}, // the button shows the reason
    );
    find(root, ".view-tabs").prepend(this.tab);
    find(root, ".view-tabs").append(this.details[1]);
    find(root, ".present-bar").prepend(this.buttons[1]);
    /** @type {(e: Event) => void} */
    this._leave = ({ target }) => {
      if (/** @type {Element} */ (target).closest(".button[data-tab]")) this.open(true);
    };
    find(root, ".view-tabs").addEventListener("click", this._leave);
    /** @type {() => void} */
    this._removeView = watch.addView(this.shown);
    this.draw();
  }

  leave() {
    const { watch } = this.live;
    if (!this.isIn) return;
    this.isIn = false;
    for (const el of [this.panel, this.tab, this.buttons[1], this.details[1]]) el.remove();
    find(watch.root, ".view-tabs").removeEventListener("click", this._leave);
    this._removeView();
    watch.chooseTab(watch.state.tab);
    delete watch.root.dataset.people;
  }

  /** Show the panels under the hood, or cover them. */
  open(/** @type {boolean} */ on) {
    const { watch } = this.live;
    this.isOpen = on;
    keep("visit", HOOD, on ? "open" : null);
    watch.focusView(null);
    if (on && watch.state.layout === "phone") watch.chooseTab(watch.state.tab);
    this.draw();
    watch.sized();
    watch.redraw();
  }

  /** Switch between Simple and Full under the hood, as on Watch. */
  _turn() {
    this.live.watch.turnDetail();
    this.draw();
  }

  /** Draw the view; without a run, its lanes are free. said: the sentence that matters most now. */
  draw(said = this._said) {
    this._said = said;
    const { watch, batch, options } = this.live;
    for (const button of this.details) {
      button.hidden = options.asks && !this.isOpen;
      tell(button, watch.simple ? "Full" : "Simple");
      button.title = t(watch.simple ? MORE : LESS);
    }
    if (!options.asks) this.buttons[0].hidden = true;
    if (!this.isIn) return;
    const { root } = watch;
    for (const button of this.buttons) {
      tell(button, "Under the hood");
      button.setAttribute("aria-pressed", String(this.isOpen));
      button.title = t("Forward pass, mask, memory blocks: how these lanes are computed");
      button.classList.toggle("on", this.isOpen);
    }
    tell(this.tab, "Lanes");
    for (const tab of root.querySelectorAll(".view-tabs [role=tab]")) {
      const isShown = this.isOpen && tab.dataset.tab === root.dataset.tab;
      setAttr(tab, "aria-selected", String(tab === this.tab ? this.isOn : isShown));
    }
    this.panel.hidden = this.isOpen;
    const { class: set } = batch.state;
    setText(this.view.note, set ? said : "");
    this.panel.setAttribute("aria-label", t("Who is in which lane"));
    if (this.isOpen) return void delete root.dataset.people;
    const isFree = !batch.run?.length;
    root.dataset.people = isFree ? "free" : "some";
    if (isFree) this.view.drawFree(set?.max_num_seqs || 0, set ? t(ASK) : said);
  }
}
