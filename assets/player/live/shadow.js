// Another policy beside the batch, on the same requests: simulated at once, and run for real while the engine is idle. It says which.

import { h, setText } from "../parts/dom.js";
import { count, duration, plural } from "../parts/format.js";
import { t, tell } from "../parts/speech.js";

const ROWS = ["Steps", "Lanes in use", "Waiting now", "Time to answer"];
const share = (part) => (part === null ? "–" : `${Math.round(100 * part)} %`);

/** One side's column; mean: seconds from arrival to the last token, of those that both have answered. */
const column = (side, mean) => [count(side.steps), share(side.occupancy), count(side.waiting), mean === null ? "–" : duration(mean)].map((cell) => t(cell));

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
    const source = told?.source || "simulated";
    setText(this.title, t("{policy} on the same requests, {source}", { policy: set.shadow, source: t(source) }));
    for (const [n, name] of this.names.entries()) tell(name, ROWS[n]);
    const [real, other] = [told?.real, told?.shadow];
    this.table.hidden = !real || !["running", "done"].includes(told.status);
    setText(this.note, told ? [told.sentence && t(told.sentence), this.table.hidden ? "" : answered(told), forReal(told)].filter(Boolean).join(" ") : t("The simulation begins with the next step."));
    if (this.table.hidden) return;
    setText(this.heads[0], `${set.policy} (${t("measured")})`);
    setText(this.heads[1], `${set.shadow} (${t(source)})`);
    const columns = [column(real, told.mean_e2e_s?.[0] ?? null), column(other, told.mean_e2e_s?.[1] ?? null)];
    this.cells.forEach((cells, row) => cells.forEach((cell, side) => setText(cell, columns[side][row])));
  }
}

const answered = ({ finished_in_both: both }) => (both ? t(`Time to answer: the mean of the ${plural(both, "request")} that both have answered.`) : "");

/** How far the run for real has come. */
function forReal({ source, rerun }) {
  if (!rerun) return "";
  const { requests, finished, other_texts: other, sentence } = rerun;
  if (sentence) return t(sentence);
  if (source === "measured") {
    const texts = t(other ? `${plural(other, "text")} came out otherwise` : "with the same texts");
    return t("Run for real while nobody asked: same model, same arrivals, {texts}.", { texts });
  }
  if (!requests) return "";
  return t(finished ? `Run for real whenever nobody asks: ${count(finished)} of ${plural(requests, "request")} so far.` : "As soon as nobody asks, it is run for real.");
}
