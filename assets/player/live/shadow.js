// Another policy beside the batch, simulated on the same requests: what it would have done by now.

import { h, setText } from "../parts/dom.js";
import { count, duration, plural } from "../parts/format.js";

const ROWS = ["Steps", "Lanes in use", "Waiting now", "Time to answer"];
const share = (part) => (part === null ? "–" : `${Math.round(100 * part)} %`);

/** One side's column; mean: seconds from arrival to the last token, of those that both have answered. */
const column = (side, mean) => [count(side.steps), share(side.occupancy), count(side.waiting), mean === null ? "–" : duration(mean)];

export class ShadowView {
  /** @param {HTMLElement} section */
  constructor(section) {
    this.section = section;
    this.title = h("h2", {});
    this.heads = [h("th", { scope: "col" }), h("th", { scope: "col" })];
    this.cells = ROWS.map(() => [h("td", {}), h("td", {})]);
    this.note = h("p", { class: "shadow-note" });
    this.table = h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), ...this.heads)),
      h("tbody", {}, ...ROWS.map((row, n) => h("tr", {}, h("th", { scope: "row" }, row), ...this.cells[n]))));
    section.append(this.title, this.table, this.note);
  }

  draw(/** @type {any} */ { class: set, shadow }) {
    const on = set && set.shadow;
    this.section.hidden = !on;
    if (!on) return;
    setText(this.title, `${set.shadow} on the same requests, simulated`);
    const told = shadow && shadow.policy === set.shadow ? shadow : null;
    const [real, other] = [told?.real, told?.shadow];
    this.table.hidden = !real || told.status !== "running";
    setText(this.note, told ? told.sentence || (told.finished_in_both ? `Time to answer: the mean of the ${plural(told.finished_in_both, "request")} that both have answered.` : "") : "The simulation begins with the next step.");
    if (this.table.hidden) return;
    setText(this.heads[0], set.policy);
    setText(this.heads[1], `${set.shadow} (simulated)`);
    const columns = [column(real, told.mean_e2e_s?.[0] ?? null), column(other, told.mean_e2e_s?.[1] ?? null)];
    this.cells.forEach((cells, row) => cells.forEach((cell, side) => setText(cell, columns[side][row])));
  }
}
