// The plan of a recorded run: its requests simulated under other settings, which a form asks for.
// The table has a row for each, about all requests or one, and each simulated run can be watched.

import { h, newButton, setText, tableOf } from "../parts/dom.js";
import { inLanguage, t } from "../parts/speech.js";

const NUMBERS = ["lanes", "budgets", "blocks"];
const LIMITS = ["ttft_s", "tpot_s", "e2e_s"]; // limits that a good request must meet

/** The parts of a comma-separated text, each once. @param {string} text */
function partsOf(text) {
  const parts = text.split(",").map((part) => part.trim());
  return [...new Set(parts.filter(Boolean))];
}

export class PlanPanel {
  /** options: {ask(kind, spec, onprogress, signal) → answer, done(url), watch(url, entry)}. */
  constructor(/** @type {HTMLElement} */ el, /** @type {Json} */ options) {
    this.el = el;
    this.options = options;
    /** @type {Finder} */ this.$ = (s) => el.querySelector(s);
    this.request = this.$("[name=request]");
    this.request.addEventListener("change", () => this._table());
    this.$(".plan-cancel").addEventListener("click", () => this._stop?.abort());
    this.$("form").addEventListener("submit", (/** @type {SubmitEvent} */ e) => {
      e.preventDefault();
      this._run();
    });
  }

  /** Choose a run to plan and settings to try. @param {{run: string, tried: Record<string, string>}} wish */
  offer({ run, tried }) {
    this._stop?.abort(); // this job plans another run
    this.run = run;
    for (const [name, text] of Object.entries(tried)) this.$(`[name=${name}]`).value = text;
    this._message("");
  }

  /** doc: see visualizer/documents/plan.py; without one, only the form is shown. */
  show(/** @type {Json} */ doc) {
    this.doc = doc;
    if (doc) this.run = doc.run;
    this.request.value = "";
    this.say();
  }

  say() {
    const { doc, request } = this;
    request.parentElement.hidden = !doc;
    setText(this.$(".plan-run"), doc?.named || "");
    this.$(".plan-notes").replaceChildren(
      ...(doc
        ? inLanguage(doc).says.notes.map((/** @type {string} */ note) => h("li", {}, note))
        : []),
    );
    const chosen = request.value;
    request.replaceChildren(
      h("option", { value: "" }, t("all requests")),
      ...(doc?.requests || []).map((/** @type {Json} */ { letter }, /** @type {number} */ i) =>
        h("option", { value: String(i) }, letter),
      ),
    );
    request.value = chosen;
    this._table();
  }

  _table() {
    const { doc, request } = this;
    if (!doc) return this.$(".metrics").replaceChildren();
    const { table, requests } = inLanguage(doc);
    const own = request.value && requests[Number(request.value)].rows;
    const told = ["queued", "TTFT", "E2E"].map((title) => ({ title: t(title), definition: null }));
    const heads = own ? [table.columns[0], ...told] : table.columns;
    const rows = table.rows.map(
      (/** @type {string[]} */ [name, ...cells], /** @type {number} */ n) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, name),
          ...(own ? own[n] : cells).map((/** @type {Json} */ cell) => h("td", {}, cell)),
          h("td", {}, doc.configs[n - 1] ? this._watchButton(n - 1, name) : null),
        ),
    );
    const titles = heads.map((/** @type {Json} */ c) =>
      h("th", { scope: "col", title: c.definition }, c.title),
    );
    this.$(".metrics").replaceChildren(tableOf([...titles, h("th")], rows));
  }

  _watchButton(/** @type {number} */ n, /** @type {string} */ name) {
    return newButton(
      {
        class: "mini",
        title: t("Its simulated run, step by step"),
        "aria-label": `${t("Watch")}: ${name}`,
        onclick: () => this.watch(n),
      },
      t("Watch"),
    );
  }

  /** Open the simulated run of a row on Watch. @param {number} n */
  async watch(n) {
    const { run, configs } = this.doc;
    const name = inLanguage(this.doc).table.rows[n + 1][0];
    await this._busy(async (told) => {
      told(t("The run is simulated …"));
      const spec = { run, config: configs[n] };
      const answer = await this.options.ask("simulate", spec, () => {}, this._stop?.signal);
      await this.options.watch(answer, `${t("Simulated")}: ${name}`);
    });
  }

  async _run() {
    await this._busy(async (told) => {
      const typed = (/** @type {string} */ name) => this.$(`[name=${name}]`).value;
      const given = (/** @type {string} */ name) => partsOf(typed(name));
      const [lanes, budgets, blocks] = NUMBERS.map((name) => given(name).map(Number));
      if (![...lanes, ...budgets, ...blocks].every(Number.isInteger))
        throw new Error("Lanes, budgets and blocks are whole numbers, with commas between them.");
      const limited = LIMITS.filter((name) => typed(name).trim());
      const slos = Object.fromEntries(limited.map((name) => [name, Number(typed(name))]));
      if (!Object.values(slos).every((limit) => limit > 0 && limit < Infinity))
        throw new Error("The limits of a good request are seconds above 0.");
      told(t("A cost is fitted to the run …"));
      const spec = { run: this.run, lanes, budgets, blocks, policies: given("policies"), slos };
      const progress = (/** @type {Json} */ { ahead, setting, done }) => {
        if (ahead) told(t(`${ahead} ahead of you.`));
        else if (setting) told(t(`Setting ${done + 1}: {setting}`, { setting }));
      };
      const answer = await this.options.ask("plan", spec, progress, this._stop?.signal);
      await this.options.done(answer.url);
    });
  }

  /**
   * Run one job at a time, and show its errors.
   * @param {(told: (words: string) => void) => Promise<void>} act
   */
  async _busy(act) {
    if (this.el.hasAttribute("data-busy")) return;
    this._stop = new AbortController();
    this.el.toggleAttribute("data-busy", true);
    try {
      await act((words) => this._message(words));
      this._message("");
    } catch (/** @type {Foreign} */ error) {
      this._message(t(error.message), true);
    }
    this.el.toggleAttribute("data-busy", false);
  }

  _message(/** @type {Json} */ words, bad = false) {
    const el = this.$(".plan-message");
    setText(el, words);
    el.classList.toggle("bad", bad);
  }
}
