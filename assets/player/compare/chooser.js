// The choice of the open comparison: as many buttons in the bar as fit, and lists for the others
// and for comparisons under a heading. On narrow pages it is one scrolling strip. Only name, title
// and heading of a comparison are needed.

import { findAll, h, newButton } from "../parts/dom.js";
import { t } from "../parts/speech.js";

export class Chooser {
  /** root: the page's element. acts: {open(entry), share()}. */
  constructor(
    /** @type {Root} */ root,
    /** @type {{open(entry: ComparisonEntry | undefined): void, share(): void}} */ acts,
  ) {
    this.acts = acts;
    this.root = root;
    this.bar = root.querySelector(".top .presets");
    this.lists = root.querySelector(".groups");
    this.strip = root.querySelector(".presets.small");
    // the bar's width also changes with the elements beside it
    new ResizeObserver(() => this.fit()).observe(this.bar);
    /** @type {HTMLSelectElement} */
    this.more = h("select", {
      class: "button more",
      hidden: true,
      onchange: () => this._chip(this.more.value)?.click(),
    });
  }

  /** recorded: entries of the catalogue. made: comparisons of this visit. */
  fill(/** @type {ComparisonEntry[]} */ recorded, /** @type {ComparisonEntry[]} */ made) {
    const chip = (/** @type {ComparisonEntry} */ entry, /** @type {string} */ says) =>
      newButton(
        {
          class: "button",
          "data-name": entry.name,
          title: says,
          onclick: () => this.acts.open(entry),
        },
        t(entry.title),
      );
    const says = "Measured here: {who}. It is lost when the page is closed.";
    const chips = () => [
      ...recorded.filter(({ group }) => !group).map((entry) => chip(entry, t(entry.shows))),
      ...made.map((entry) => chip(entry, t(says, { who: entry.shows }))),
    ];
    const groups = [...new Set(recorded.flatMap(({ group }) => group || []))];
    const of = (/** @type {string} */ group) => recorded.filter((entry) => entry.group === group);
    const lists = () => groups.map((group) => this._list(group, of(group)));
    this.more.setAttribute("aria-label", t("More comparisons"));
    this.bar.replaceChildren(...chips());
    this.lists.replaceChildren(this.more, ...lists());
    this.strip.replaceChildren(
      ...chips(),
      ...lists(),
      newButton({ class: "button", onclick: this.acts.share }, t("Share")),
    );
  }

  _list(/** @type {string} */ group, /** @type {ComparisonEntry[]} */ entries) {
    return h(
      "select",
      {
        class: "button group",
        "aria-label": t(group),
        onchange: (e) => this.acts.open(entries.find((entry) => entry.name === e.target.value)),
      },
      h("option", { value: "", disabled: true, selected: true }, t(group)),
      ...entries.map((entry) =>
        h("option", { value: entry.name, title: t(entry.shows) }, t(entry.title)),
      ),
    );
  }

  _chip(/** @type {string} */ name) {
    return findAll(this.bar, "[data-name]").find((chip) => chip.dataset.name === name);
  }

  /** Mark the open comparison, if any, and scroll it into view. */
  mark(/** @type {string} */ name) {
    for (const chip of findAll(this.root, ":is(.top .presets, .presets.small) > [data-name]"))
      chip.classList.toggle("on", chip.dataset.name === name);
    for (const list of /** @type {HTMLSelectElement[]} */ (findAll(this.root, "select.group"))) {
      list.value = [...list.options].some((o) => o.value === name) ? name : "";
      list.classList.toggle("on", list.value !== "");
    }
    this.fit();
    const open = /** @type {HTMLElement | null} */ (this.strip.querySelector(".on"));
    if (!open) return;
    const left = open.offsetLeft - this.strip.offsetLeft;
    if (
      left < this.strip.scrollLeft ||
      left + open.offsetWidth > this.strip.scrollLeft + this.strip.clientWidth
    )
      this.strip.scrollLeft = left - 12;
  }

  /** Show as many buttons as fit, the open one among them; call when the bar's width changed. */
  fit() {
    const chips = findAll(this.bar, "[data-name]");
    const listed = [];
    const full = () => this.bar.scrollWidth > this.bar.clientWidth + 1;
    for (const chip of chips) chip.hidden = false;
    this.more.hidden = true;
    this.bar.classList.remove("tight");
    while (full()) {
      const last = chips.findLast((chip) => !chip.hidden && !chip.classList.contains("on"));
      this.bar.classList.toggle("tight", !last);
      if (!last) break;
      last.hidden = true;
      listed.unshift(last);
      this.more.hidden = false;
    }
    this.more.replaceChildren(
      h("option", { value: "", disabled: true, selected: true }, t("More")),
      ...listed.map((chip) =>
        h("option", { value: chip.dataset.name, title: chip.title }, chip.textContent),
      ),
    );
  }
}
