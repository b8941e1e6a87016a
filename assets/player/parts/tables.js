// Shows every canvas as a table of the same step, for screen readers.

import { h, tableOf } from "./dom.js";
import { t } from "./speech.js";

export class Tables {
  constructor(/** @type {Json} */ part, /** @type {Json} */ views) {
    this.part = part;
    this.on = false;
    this.holders = views.map((/** @type {Json} */ [view, canvas]) => {
      const holder = h("div", { class: "table-holder fine", hidden: true, tabindex: "0" });
      canvas.parentElement.append(holder);
      return { view, canvas, holder };
    });
  }

  toggle(on = !this.on) {
    this.on = on;
    for (const { canvas, holder } of this.holders) {
      canvas.style.visibility = on ? "hidden" : "";
      holder.hidden = !on;
    }
    this.part.root.classList.toggle("tables", on);
    this.part.redraw();
  }

  /** @param {ViewState} state */
  draw(state) {
    if (this.on) for (const { view, holder } of this.holders) fillTable(holder, view.table(state));
  }
}

/** Fill a table. columns: English words; caption, rows: as shown, each row's heading first. */
export function fillTable(
  /** @type {Root} */ holder,
  /** @type {Json} */ { caption, columns, rows },
) {
  holder.setAttribute("aria-label", caption);
  holder.replaceChildren(
    tableOf(
      columns.map((/** @type {Json} */ c) => h("th", { scope: "col" }, t(c))),
      rows.map((/** @type {string[]} */ [first, ...cells]) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, h("bdi", {}, first)),
          ...cells.map((cell) => h("td", {}, h("bdi", {}, cell))),
        ),
      ),
      h("caption", {}, caption),
    ),
  );
}
