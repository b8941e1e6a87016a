// The Compare page: a race on top, what was measured below it. One document (visualizer/comparisons.py) is all it shows; a server, where
// there is one, measures others.

import { h, clamp, plural, setText } from "./dom.js";
import { Palette } from "./colours.js";
import { Charts } from "./charts.js";
import { download } from "./export.js";
import { Fork } from "./fork.js";
import { RACE_SPEEDS, Race } from "./race.js";
import { Same } from "./same.js";
import { Server } from "./server.js";
import { Tooltip } from "./tooltip.js";

const FIRST = ["static", "continuous"]; // who races unless chosen

export class Compare {
  /**
   * root: the element of compare.html. options: {tabs, plotly: url, server: whether there is an API, base, comparisons: [{name, title,
   * shows, url}] (without a server), remember(hash)}.
   */
  constructor(root, options = {}) {
    this.root = root;
    this.options = { tabs: [], comparisons: [], server: false, remember: () => {}, ...options };
    this.layout = "desk";
    this.doc = null;
    this.spec = null; // what the document ran: {workload, config, model, device}
    this.chosen = new Set();
    this.catalogue = { recorded: this.options.comparisons, presets: [], policies: [], knobs: [], most_repeats: 1 };
    this.run = { request: () => null }; // tooltips are shown requests, never ids
    const $ = (s) => root.querySelector(s);
    this.$ = $;
    this._documents = new Map();
    this.visitor = crypto.randomUUID ? crypto.randomUUID() : String(Math.random()).slice(2);
    this._theme();
    this._size();
    this.server = this.options.server ? new Server(this.options.base) : null;
    this.tooltip = new Tooltip($(".tooltip"), this);
    const race = { palette: () => this.palette, layout: () => this.layout, tooltip: this.tooltip };
    this.race = new Race($(".race"), { ...race, onchange: () => this._moment() });
    this.charts = new Charts($(".charts"), { plotly: this.options.plotly, palette: () => this.palette, phone: () => this.layout === "phone", toast: (s) => this.toast(s) });
    const asking = { ask: (...args) => this.ask(...args), base: () => this.spec, server: Boolean(this.server) };
    this.same = new Same($(".same"), asking);
    this.fork = new Fork($(".panel.fork"), { ...asking, race, fetchDoc: (url) => this._fetch(url), policies: () => this.catalogue.policies.map((p) => p.name) });
    $(".panel.fork").hidden = !this.server;
    $(".new-button").hidden = !this.server;
    this._bar();
    this._form();
    this._keys();
    this._watch();
    this.ready = this._start();
  }

  shown() {
    this._theme();
    this.race.redraw();
    this._remember();
  }

  async _start() {
    try {
      if (this.server) this.catalogue = await this.server.call("comparisons");
      this._chips();
      this._presets();
      if (this.server) this.fork.knobs(this.catalogue.knobs);
      const wanted = new URLSearchParams(location.hash.slice(1)).get("comparison");
      const entry = this.catalogue.recorded.find((e) => e.name === wanted) || this.catalogue.recorded[0];
      if (entry) await this.open(entry);
      else this.empty("There is no recorded comparison here yet. Run one.");
    } catch (error) {
      this.empty(`Nothing to compare could be fetched: ${error.message}.`);
    }
  }

  // -- documents -------------------------------------------------------------------------------------------------------

  async open(entry) {
    this._opening = entry;
    try {
      let { url } = entry;
      if (!url) {
        const answer = await this.server.call("open_comparison", entry.name);
        if (answer.error) throw new Error(answer.error);
        url = answer.url;
      }
      const doc = await this._fetch(url);
      if (this._opening !== entry) return;
      this.entry = entry;
      this.show(doc, this.catalogue.presets.find((p) => p.name === entry.name)?.spec || null);
    } catch (error) {
      const sentence = `This comparison could not be opened: ${error.message}`;
      if (this.doc) this.toast(sentence);
      else this.empty(sentence);
    }
  }

  async _fetch(url) {
    if (!this._documents.has(url)) {
      const answer = await fetch(url);
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      this._documents.set(url, await answer.json());
    }
    return this._documents.get(url);
  }

  show(doc, spec) {
    this.empty(null);
    this.doc = doc;
    this.spec = spec;
    const racing = doc.names.filter((n) => doc.runs[n]);
    const first = racing.filter((n) => FIRST.includes(n));
    this.chosen = new Set(doc.source === "live" || first.length < 2 ? racing : first);
    this._who();
    this._race();
    this.race.speed = this.race.fittingSpeed();
    this.$(".speed").value = String(this.race.speed);
    this._headline();
    const { says } = doc;
    setText(this.$(".outputs"), says.outputs);
    setText(this.$(".method"), says.method);
    setText(this.$(".where"), [`Measured on ${says.where}.`, ...(says.notes || [])].join(" "));
    setText(this.$(".warnings"), says.warnings.join("\n"));
    this.$(".warnings").hidden = !says.warnings.length;
    this.$(".article").hidden = doc.name !== "gpt2-six";
    this.$(".legend-overrun").hidden = !Object.values(doc.runs).some((r) => r.events.some((e) => (e.overrun || []).length));
    this.charts.show(doc.figures, doc.name);
    this._table();
    this.same.show(doc.equivalence);
    this.fork.reset();
    const word = doc.source === "recorded" ? "Recorded" : "Measured here";
    setText(this.$(".source"), [word, doc.created.slice(0, 10), doc.data.environment.model.name, doc.data.environment.device.toUpperCase()].filter(Boolean).join(" · "));
    this.$(".source").title = says.where;
    this.$(".source").dataset.source = doc.source;
    for (const chip of this.root.querySelectorAll(".presets [data-name]")) chip.classList.toggle("on", this.entry?.name === chip.dataset.name);
    this.$(".scroll").scrollTop = 0;
    this._remember();
  }

  _race() {
    this.$(".race-panel").style.setProperty("--racers", String(this.chosen.size));
    this.race.show(this.doc, this.doc.names.filter((n) => this.chosen.has(n)));
  }

  /** Who races: one button a contender that left a trace. */
  _who() {
    const racing = this.doc.names.filter((n) => this.doc.runs[n]);
    this.$(".who").hidden = racing.length < 3;
    this.$(".who").replaceChildren(...racing.map((name) => {
      const button = h("button", { type: "button", class: "mini", "aria-pressed": String(this.chosen.has(name)), title: this.doc.about[name] || null, onclick: () => {
        if (this.chosen.has(name)) this.chosen.delete(name);
        else this.chosen.add(name);
        if (!this.chosen.size) this.chosen.add(name);
        const { now } = this.race;
        this._who();
        this._race();
        this.race.seek(now);
        this.$(`.who [data-who="${CSS.escape(name)}"]`).focus();
      } }, name);
      button.dataset.who = name;
      this._hue(button, name);
      return button;
    }));
  }

  _hue(el, name) {
    el.style.setProperty("--hue", `var(--hue-${this.doc.hues[name] ?? 0})`);
    el.style.setProperty("--tint", `var(--tint-${this.doc.hues[name] ?? 0})`);
  }

  /** The finding, its contenders on their tints. */
  _headline() {
    const names = [...this.doc.names].sort((a, b) => b.length - a.length);
    const text = this.doc.says.headline;
    const found = new RegExp(`(?<![\\w-])(${names.map((n) => n.replace(/[^\w]/g, "\\$&")).join("|")})(?![\\w-])`, "g");
    let last = 0;
    const parts = [];
    for (const match of text.matchAll(found)) {
      const el = h("span", { class: "name" }, match[0]);
      this._hue(el, match[0]);
      parts.push(text.slice(last, match.index), el);
      last = match.index + match[0].length;
    }
    this.$(".headline").replaceChildren(...parts, text.slice(last));
  }

  _table() {
    const { columns, rows } = this.doc.table;
    this.$(".metrics").replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, ...columns.map((c) => h("th", { scope: "col", title: c.definition }, c.title)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell, i) => h(i ? "td" : "th", i ? { class: cell === "not observable" ? "unseen" : null } : { scope: "row" }, cell)))))));
  }

  empty(sentence) {
    const box = this.$(".empty-state");
    box.hidden = !sentence;
    if (sentence) setText(box.querySelector("p"), sentence);
  }

  // -- the moment ------------------------------------------------------------------------------------------------------

  _moment() {
    const { race } = this;
    setText(this.$(".race-time"), race.readout());
    const gap = race.gap();
    setText(this.$(".gap"), gap ? `${gap[0]} is ${plural(gap[1], "token")} ahead of ${gap[2]}` : race.now >= race.span ? "all are done" : "");
    const play = this.$(".play");
    if (play.classList.contains("on") !== race.playing) {
      play.classList.toggle("on", race.playing);
      play.setAttribute("aria-label", race.playing ? "Pause" : "Play");
      play.setAttribute("aria-pressed", String(race.playing));
    }
    const clock = this.$(".clock-button");
    setText(clock, `${this.layout === "phone" ? "" : "Axis: "}${race.clock ? "time" : "steps"}`);
    clock.setAttribute("aria-pressed", String(race.clock));
  }

  _act(name) {
    const { race } = this;
    const verbs = {
      first: () => race.seek(0), last: () => race.seek(Infinity), play: () => race.toggle(), prev: () => this._land(-1), next: () => this._land(1),
      clock: () => race.setClock(!race.clock),
    };
    verbs[name]?.();
  }

  _land(direction) {
    this.race.toggle(false);
    this.race.land(direction);
  }

  _bar() {
    const { $ } = this;
    $(".tabs").replaceChildren(...this.options.tabs.map((tab) => h("button", {
      type: "button", "aria-current": tab.name === "compare" ? "page" : null, onclick: () => this.root.dispatchEvent(new CustomEvent("inflight-tab", { detail: tab.name, bubbles: true })),
    }, tab.title)));
    $(".tabs").hidden = this.options.tabs.length < 2;
    $(".speed").replaceChildren(...RACE_SPEEDS.map((s) => h("option", { value: String(s) }, `${s}×`)));
    $(".speed").value = "1";
    $(".speed").addEventListener("change", () => { this.race.speed = Number($(".speed").value); });
    $(".transport").addEventListener("click", (e) => {
      const button = e.target.closest("[data-act]");
      if (button) this._act(button.dataset.act);
    });
    const name = () => `inflight-${/^[\w-]+$/.test(this.doc.name) ? this.doc.name : "comparison"}`;
    $(".csv-button").addEventListener("click", () => this.doc && download(`${name()}.csv`, new Blob([this.doc.csv], { type: "text/csv" })));
    $(".json-button").addEventListener("click", () => this.doc && download(`${name()}.json`, new Blob([JSON.stringify(this.doc.data, null, 1)], { type: "application/json" })));
  }

  _chips() {
    for (const holder of this.root.querySelectorAll(".presets")) {
      holder.replaceChildren(...this.catalogue.recorded.map((entry) => {
        const chip = h("button", { type: "button", class: "button", title: entry.shows, onclick: () => this.open(entry) }, entry.title);
        chip.dataset.name = entry.name;
        return chip;
      }));
    }
  }

  // -- asking the server -------------------------------------------------------------------------------------------------

  /** Do a task; its last delta. Throws with the server's sentence. */
  async ask(kind, spec, onprogress) {
    let last = null;
    for await (const { value } of this.server.stream("task", [kind, { ...spec, visitor: this.visitor }])) {
      if (!value) continue;
      if (value.done) last = value;
      else onprogress(value.progress || {}, () => this.server.call("cancel_task", value.task).catch(() => {}));
    }
    if (!last) throw new Error("The server said nothing more.");
    if (last.error) throw new Error(last.error);
    return last;
  }

  _presets() {
    const { elements } = this.form;
    elements.preset.replaceChildren(...this.catalogue.presets.map((p) => h("option", { value: p.name }, p.title)));
    this.$(".policy-rows").replaceChildren(...this.catalogue.policies.map((p) => h("label", { class: "check" },
      h("input", { type: "checkbox", name: "policy", value: p.name, checked: FIRST.includes(p.name) }), h("span", {}, p.name, h("small", {}, p.shows)))));
    elements.repeats.max = String(this.catalogue.most_repeats);
    elements.repeats.value = String(Math.min(3, this.catalogue.most_repeats));
    const first = this.catalogue.presets.find((p) => p.name === "gpt2-six") || this.catalogue.presets[0];
    if (first) elements.preset.value = first.name;
    this._preset();
  }

  _preset() {
    const preset = this.catalogue.presets.find((p) => p.name === this.form.elements.preset.value);
    if (!preset) return;
    setText(this.$(".preset-shows"), preset.shows);
    for (const name of ["max_num_seqs", "max_num_batched_tokens"]) this.form.elements[name].value = String(preset.spec.config[name]);
  }

  _form() {
    this.form = this.$(".drawer");
    this.$(".new-button").addEventListener("click", () => this.toggleForm());
    this.$(".drawer-close").addEventListener("click", () => this.toggleForm(false));
    this.form.elements.preset.addEventListener("change", () => this._preset());
    this.form.addEventListener("submit", (e) => {
      e.preventDefault();
      this._run();
    });
    this.$(".drawer .cancel-button").addEventListener("click", () => this._cancel?.());
  }

  toggleForm(on = this.form.hidden) {
    this.form.hidden = !on;
    this.$(".new-button").setAttribute("aria-expanded", String(on));
    this.$(".new-button").classList.toggle("on", on);
    if (on) this.form.elements.preset.focus({ preventScroll: true });
  }

  async _run() {
    const { elements } = this.form;
    const preset = this.catalogue.presets.find((p) => p.name === elements.preset.value);
    const policies = [...this.form.querySelectorAll("[name=policy]:checked")].map((box) => box.value);
    if (!preset || this._running) return;
    const config = { ...preset.spec.config, max_num_seqs: Number(elements.max_num_seqs.value), max_num_batched_tokens: Number(elements.max_num_batched_tokens.value) };
    const spec = { ...preset.spec, config };
    this._busy(true);
    this._tell("The model is loaded …");
    try {
      const answer = await this.ask("compare", { ...spec, policies, repeats: Number(elements.repeats.value) }, (progress, cancel) => {
        this._cancel = cancel;
        if (progress.ahead) return this._tell(`${progress.ahead} ahead of you in line.`);
        if (!progress.total) return undefined;
        this.$(".drawer .run-progress i").style.transform = `scaleX(${clamp(progress.index / progress.total, 0, 1)})`;
        const turn = progress.round ? `round ${progress.round}` : "warm-up";
        return this._tell(progress.contender ? `Run ${progress.index + 1} of ${progress.total}: ${progress.contender}, ${turn}.` : "The cost of a step on this device …");
      });
      const doc = await this._fetch(answer.url);
      this.entry = null;
      this.show(doc, spec);
      this._tell("Done: the race shows the runs of median time.");
      if (this.layout === "phone") this.toggleForm(false);
    } catch (error) {
      this._tell(error.message, true);
    }
    this._busy(false);
  }

  _busy(on) {
    this._running = on;
    this.$(".drawer .run-button").disabled = on;
    this.$(".drawer .cancel-button").hidden = !on;
    this.$(".drawer .run-progress").hidden = !on;
    this.$(".drawer .run-progress i").style.transform = "scaleX(0)";
  }

  _tell(sentence, bad = false) {
    setText(this.$(".run-message"), sentence);
    this.$(".run-message").classList.toggle("bad", bad);
  }

  // -- around it -----------------------------------------------------------------------------------------------------------

  _remember() {
    if (document.documentElement.dataset.part === "compare") this.options.remember(`#part=compare${this.entry ? `&comparison=${encodeURIComponent(this.entry.name)}` : ""}`);
  }

  _theme() {
    const player = document.querySelector("#watch .inflight[data-theme]");
    const wanted = new URLSearchParams(location.hash.slice(1)).get("theme");
    const dark = player ? player.dataset.theme === "dark" : wanted ? wanted === "dark" : document.body.classList.contains("dark") || (!document.querySelector("gradio-app") && matchMedia("(prefers-color-scheme: dark)").matches);
    const theme = dark ? "dark" : "light";
    if (this.root.dataset.theme === theme && this.palette) return;
    this.root.dataset.theme = theme;
    this.palette = new Palette(this.root);
    this.palette.hues.forEach((c, i) => {
      for (const [name, value] of [["hue", c.solid], ["tint", c.tint], ["cached", c.cached], ["faint", c.faint]]) this.root.style.setProperty(`--${name}-${i}`, value);
    });
    this.race?.redraw();
    this.fork?.race?.redraw();
    this.charts?.repaint();
  }

  _size() {
    const width = this.$(".page").clientWidth;
    if (!width) return;
    const layout = width <= 600 ? "phone" : width <= 1200 ? "tablet" : "desk";
    if (layout === this.layout) return;
    this.layout = layout;
    this.root.dataset.layout = layout;
    this.race?.redraw();
    this.charts?.repaint();
  }

  _watch() {
    new ResizeObserver(() => this._size()).observe(this.$(".page"));
    const themes = new MutationObserver(() => this._theme());
    themes.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    const player = document.querySelector("#watch .inflight");
    if (player) themes.observe(player, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._theme());
  }

  _keys() {
    document.addEventListener("keydown", (e) => {
      if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || getComputedStyle(this.root).display === "none") return;
      const el = e.target;
      if (e.key === "Escape") {
        if (!this.form.hidden) this.toggleForm(false);
        return;
      }
      if (/^(INPUT|TEXTAREA|SELECT)$/.test(el.tagName) || (e.key === " " && el.tagName === "BUTTON" && !el.classList.contains("play"))) return;
      const { race } = this;
      const far = e.shiftKey ? 10 : 1;
      const keys = {
        ArrowRight: () => race.step(far), ArrowLeft: () => race.step(-far), " ": () => race.toggle(), n: () => this._land(1), b: () => this._land(-1),
        c: () => race.setClock(!race.clock),
      };
      if (el.closest?.(".race-area")) Object.assign(keys, { Home: () => race.seek(0), End: () => race.seek(Infinity) });
      if (el.closest?.(".metrics") || !keys[e.key]) return;
      keys[e.key]();
      e.preventDefault();
    });
  }

  toast(sentence, ms = 5000) {
    const el = this.$(".toast");
    setText(el, sentence);
    el.hidden = false;
    clearTimeout(this._toast);
    this._toast = setTimeout(() => { el.hidden = true; }, ms);
  }
}

/** Fill `holder` with the page of this script's markup and style, once. */
export function mountCompare(holder, options) {
  const { style, markup } = window.inflightCompareFiles;
  document.head.append(h("style", {}, style));
  holder.innerHTML = markup; // our own file, nothing of anybody's data
  const root = holder.querySelector(".inflight-compare");
  root.classList.add("inflight");
  window.inflightCompare = new Compare(root, options);
  return window.inflightCompare;
}

window.inflightCompareMount = mountCompare;
