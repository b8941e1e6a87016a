// Another policy on the same requests, run again on the same engine while nobody asks: its measured steps beside those that were served.

import { h, setText } from "../parts/dom.js";
import { count, duration } from "../parts/format.js";
import { t, tell } from "../parts/speech.js";

const ROWS = ["Steps", "Lanes in use", "Time to answer"];
const share = (part) => (part === null ? "–" : `${Math.round(100 * part)} %`);

/** One side's column; mean: seconds from arrival to the last token. */
const column = (side, mean) => [count(side.steps), share(side.occupancy), duration(mean)].map((cell) => t(cell));

export class ShadowView {
  /** @param {HTMLElement} section */
  constructor(section) {
    this.section = section;
    this.title = h("h2", {});
    this.heads = [h("th", { scope: "col" }), h("th", { scope: "col" })];
    this.cells = ROWS.map(() => [h("td", {}), h("td", {})]);
    this.note = h("p", { class: "shadow-note" });
    this.names = ROWS.map(() => h("th", { scope: "row" }));
    this.table = h("table", {}, h("thead", {}, h("tr", {}, h("td", {}), ...this.heads)),
      h("tbody", {}, ...ROWS.map((row, n) => h("tr", {}, this.names[n], ...this.cells[n]))));
    section.append(this.title, this.table, this.note);
  }

  draw(/** @type {any} */ { class: set, shadow }) {
    const on = set && set.shadow;
    this.section.hidden = !on;
    if (!on) return;
    const told = shadow && shadow.policy === set.shadow ? shadow : null;
    setText(this.title, t("{policy} on the same requests", { policy: set.shadow }));
    setText(this.note, noteOf(told));
    this.table.hidden = told?.status !== "done";
    if (this.table.hidden) return;
    for (const [n, name] of this.names.entries()) tell(name, ROWS[n]);
    setText(this.heads[0], t("{policy} (served)", { policy: set.policy }));
    setText(this.heads[1], t("{policy} (run again)", { policy: set.shadow }));
    const columns = [column(told.real, told.mean_e2e_s[0]), column(told.shadow, told.mean_e2e_s[1])];
    this.cells.forEach((cells, row) => cells.forEach((cell, side) => setText(cell, columns[side][row])));
  }
}

/** What the numbers are, or how far they have come; told: the server's latest message about this policy. */
function noteOf(told) {
  if (told?.sentence) return t(told.sentence);
  if (!told?.finished) return t("The same requests are run again under this policy as soon as the engine is idle.");
  const { requests, finished, other_texts: other } = told;
  if (told.status !== "done") return t(`Run again whenever the engine is idle: ${count(finished)} of ${count(requests)} [request|requests] so far.`);
  const texts = t(other ? `${count(other)} [text|texts] came out differently` : "with the same texts");
  const mean = t(`Time to answer: the mean of the ${count(finished)} [request|requests] that both have answered.`);
  return `${mean} ${t("Run again while the engine was idle: same model, same arrivals, {texts}.", { texts })}`;
}
