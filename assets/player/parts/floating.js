// Temporary overlays of a part of the page: tooltips, menus under buttons, dialogs, the list of
// keys.

import { spans } from "./chips.js";
import { clamp, h, icon, newButton } from "./dom.js";
import { t, translateLine } from "./speech.js";

export class Menu {
  /** part: has a `root`. */
  constructor(/** @type {HTMLElement} */ el, /** @type {Json} */ part) {
    this.el = el;
    this.part = part;
    /** @type {HTMLButtonElement | undefined} */ this.button = undefined;
    document.addEventListener("pointerdown", ({ target }) => {
      const at = /** @type {Node} */ (target);
      if (!el.hidden && !el.contains(at) && !(this.button && this.button.contains(at)))
        this.close();
    });
    el.addEventListener("keydown", (e) => {
      const items = [...el.querySelectorAll("button")];
      const at = items.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[e.key];
      if (to !== undefined) {
        items[(to + items.length) % items.length].focus();
        e.preventDefault();
      } else if (e.key === "Tab") this.close();
    });
  }

  /** items: {text, note, checked, act} or "-" for a rule. */
  toggle(/** @type {HTMLButtonElement} */ button, /** @type {Json} */ items) {
    const again = this.button === button && !this.el.hidden;
    this.close();
    if (again) return;
    this.button = button;
    button.setAttribute("aria-expanded", "true");
    this.el.replaceChildren(
      ...items.map((/** @type {Json} */ item) => (item === "-" ? h("hr") : this._item(item))),
    );
    this.el.hidden = false;
    const box = this.part.root.getBoundingClientRect();
    const at = button.getBoundingClientRect();
    const right = Math.max(8, box.width - this.el.offsetWidth - 8);
    this.el.style.left = `${clamp(at.left - box.left, 8, right)}px`;
    const below = box.bottom - at.bottom - 14;
    const above = at.top - box.top - 14;
    // a menu of the bar at the bottom opens upwards
    const up = below < Math.min(this.el.scrollHeight, 240) && above > below;
    const most = Math.min(560, up ? above : below);
    const middles = [...this.el.querySelectorAll("button")].map(
      (row) => row.offsetTop + row.offsetHeight / 2,
    );
    // a menu that is too long ends in the middle of a row, which shows that it scrolls
    const cut = middles.filter((middle) => middle <= most).at(-1) || most;
    this.el.style.maxHeight = `${this.el.scrollHeight > most ? cut : most}px`;
    this.el.style.top = up
      ? `${at.top - box.top - 6 - this.el.offsetHeight}px`
      : `${at.bottom - box.top + 6}px`;
    this.el.querySelector("button")?.focus();
  }

  _item(/** @type {Json} */ { text, note, checked, act }) {
    const isChoice = checked !== undefined;
    const role = isChoice ? "menuitemradio" : "menuitem";
    const onclick = () => {
      this.close();
      act();
    };
    return newButton(
      { role, "aria-checked": isChoice ? String(checked) : null, onclick },
      t(text),
      note && h("small", {}, t(note)),
    );
  }

  close() {
    if (this.el.hidden) return false;
    this.el.hidden = true;
    this.button?.setAttribute("aria-expanded", "false");
    if (this.el.contains(document.activeElement)) this.button?.focus();
    return true;
  }
}

/** @type {[string[], string][]} */
const KEYS = [
  [["←", "→"], "previous, next step; with Shift ten"],
  [["PgUp", "PgDn"], "ten steps"],
  [["Home", "End"], "first, last step"],
  [["Space"], "play, pause"],
  [["s"], "static batching below these lanes, or continuous"],
  [["b", "n"], "previous, next event of the chosen kind"],
  [["−", "+"], "slower, faster"],
  [["click"], "select a request; Esc lets it go"],
  [["j", "k"], "select the next, the previous request"],
  [["x"], "of two runs, the other one; of several ranks, the next"],
  [["0", "…", "9"], "the rank of that number"],
  [["a"], "the lanes of all ranks"],
  [
    ["Tab"],
    "to the tokens, the mask, the caches, the blocks: there the arrows move, Enter selects, Esc leaves",
  ],
  [["z"], "zoom the mask to the selected request; the wheel zooms too"],
  [["c"], "lanes over steps or measured time"],
  [["d"], "Simple or Full: how much is shown"],
  [["r"], "the reasons of this step"],
  [["w"], "what was slow, and why"],
  [["/"], "find a request by its id"],
  [["t"], "tables in place of pictures"],
  [["p"], "presenter; there 1 to 6 show one view, F fills the screen"],
  [["?"], "this list"],
];

/** Show the list of keys. about: a sentence above it. */
export function showKeys(/** @type {Root} */ root, /** @type {Json} */ about) {
  showCard(
    root,
    "Keys",
    about && h("p", {}, about),
    h(
      "dl",
      {},
      ...KEYS.flatMap(([keys, what]) => {
        const shown = keys.flatMap((k, i) => [i ? " " : "", h("kbd", {}, k.length > 1 ? t(k) : k)]);
        return [h("dt", {}, ...shown), h("dd", {}, t(what))];
      }),
    ),
  );
}

/** The button at the end of a card that closes it. */
export const closing = () =>
  h("form", { method: "dialog" }, h("button", { class: "button primary" }, t("Close")));

/**
 * The head of a long card: its title, further elements, and a button that closes the card.
 * @param {string} title @param {...Node} more
 */
export const cardHead = (title, ...more) =>
  h(
    "header",
    { class: "runs-head flex" },
    h("h2", {}, t(title)),
    ...more,
    h(
      "form",
      { method: "dialog" },
      h("button", { class: "icon-button", "aria-label": t("Close") }, icon("close")),
    ),
  );

/**
 * @param {Root} root with a `dialog.card` @param {string} title
 * @param {...(Node | null | false | undefined)} content
 */
export function showCard(root, title, ...content) {
  const dialog = bareCard(root, title, "");
  dialog.replaceChildren(
    h("h2", {}, t(title)),
    .../** @type {Node[]} */ (content.filter(Boolean)),
    closing(),
  );
  dialog.showModal();
  return dialog;
}

/**
 * The dialog before it is filled and opened. kind: a class for what it will hold.
 * @param {Root} root @param {string} title @param {string} kind
 */
export function bareCard(root, title, kind) {
  const dialog = root.querySelector("dialog.card");
  dialog.className = `card surface ${kind}`;
  dialog.setAttribute("aria-label", t(title));
  return dialog;
}

export class Tooltip {
  /** part: has `root`, `layout`, and the run whose requests the lines name. */
  constructor(/** @type {HTMLElement} */ el, /** @type {Json} */ part) {
    this.el = el;
    this.part = part;
  }

  show(/** @type {Span[][]} */ lines, /** @type {number} */ x, /** @type {number} */ y) {
    const { el } = this;
    el.replaceChildren(
      ...lines.map((line) => h("div", {}, ...spans(this.part, translateLine(line)))),
    );
    el.hidden = false;
    const box = this.part.root.getBoundingClientRect();
    const [w, hh] = [el.offsetWidth, el.offsetHeight];
    const left = clamp(x - box.left + 14, 4, Math.max(4, box.width - w - 4));
    let top = y - box.top + 16;
    // above the finger, because the card of what was tapped is below it
    if (this.part.layout === "phone") top = Math.max(4, y - box.top - hh - 28);
    if (top + hh > box.height - 4) top = y - box.top - hh - 12;
    el.style.transform = `translate(${left}px, ${Math.max(4, top)}px)`;
  }

  hide() {
    this.el.hidden = true;
  }
}
