// One's own requests as a list: letter and colour, place among those who wait, text as it comes, what it took. Prompts and texts are data: text
// nodes alone.

import { chip } from "../parts/chips.js";
import { h, setText } from "../parts/dom.js";
import { count, duration } from "../parts/format.js";
import { speaking, t, tell } from "../parts/speech.js";

const ENDS = { length: "finished", stop: "finished", cancelled: "cancelled", error: "failed" };

/** Where a request is, in words; run: null where nothing is known yet. */
function whereabouts(run, own) {
  if (own.lost) return t(own.lost);
  const { ended } = own;
  if (ended && ended.error) return t(ended.error);
  if (ended) {
    const times = [ended.ttft_s !== null && t(`first token after ${duration(ended.ttft_s)}`), ended.e2e_s !== null && t(`${count(ended.tokens)} [token|tokens] in ${duration(ended.e2e_s)}`)];
    return [t(ENDS[ended.finish_reason] || "done"), ...times.filter(Boolean)].join(", ");
  }
  const request = run && run.request(own.id);
  if (!request) return t("on its way");
  const waiting = run.waitingAt(run.length - 1);
  const place = waiting.findIndex((w) => w.request === request);
  if (place >= 0) return t(place ? `waits, ${place} ahead of it` : "waits, next in turn");
  const laneSpan = request.laneSpans.at(-1);
  return laneSpan && laneSpan.to === Infinity ? t(`in lane ${laneSpan.lane}`) : t("on its way");
}

export class OwnList {
  /**
   * @param {HTMLElement} section
   * @param {import("./mine.js").Mine} mine
   * @param {() => {app: App, run: Run | null}} shown
   */
  constructor(section, mine, shown) {
    this.section = section;
    this.list = section.querySelector("ul");
    this.mine = mine;
    this.shown = shown;
    this.rows = new Map();
  }

  draw() {
    const { mine, list } = this;
    this.section.hidden = !mine.requests.length;
    for (const [own, row] of this.rows) {
      if (mine.requests.includes(own)) continue;
      row.el.remove();
      this.rows.delete(own);
    }
    mine.requests.forEach((own, n) => {
      const row = this.rows.get(own) || this._row(own);
      if (list.children[n] !== row.el) list.insertBefore(row.el, list.children[n] || null);
      this._fill(own, row);
    });
  }

  _row(own) {
    const row = {
      chip: h("span", { class: "own-chip" }), state: h("span", { class: "own-state" }), text: h("span", { class: "output" }), request: null, held: null, language: "",
      button: h("button", { type: "button", class: "button own-cancel" }),
    };
    row.button.addEventListener("click", () => {
      if (!own.ended && !own.lost) this.mine.cancel(own).catch(() => {});
      else {
        this.mine.forget(own);
        this.draw();
      }
    });
    row.el = h("li", { class: "own-row" }, h("div", { class: "own-head" }, row.chip, row.state, row.button),
      h("p", { class: "own-words" }, h("bdi", { dir: "auto" }, h("span", { class: "prompt" }, own.prompt), row.text)));
    this.rows.set(own, row);
    return row;
  }

  _fill(own, row) {
    const { app, run } = this.shown();
    const request = run && run.request(own.id);
    if (row.request !== request || row.hue !== request?.hue || row.language !== speaking()) {
      [row.request, row.hue, row.language] = [request, request?.hue, speaking()];
      row.chip.replaceChildren(...(request ? [t("yours: "), chip(app, request, request.hue >= 0)] : []));
      row.el.style.setProperty("--hue", request && request.hue >= 0 ? `var(--hue-${request.hue})` : "var(--rule)");
    }
    setText(row.state, whereabouts(run, own));
    setText(row.text, own.text);
    const over = Boolean(own.ended || own.lost);
    tell(row.button, over ? "Remove" : "Cancel");
    row.button.setAttribute("aria-label", `${t(over ? "Remove from this list" : "Cancel")}: ${own.prompt.slice(0, 40)}`);
    row.el.classList.toggle("over", over);
  }
}
