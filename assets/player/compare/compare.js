// The Compare tab: a race above, measurements below. It shows one document
// (visualizer/documents/comparison.py); an engine, if there is one, can measure others.

import { download, h, newButton, randomHex, setText, tableOf } from "../parts/dom.js";
import { count, joined, unbroken } from "../parts/format.js";
import { putLanguage } from "../parts/language.js";
import { addressed, copyLink, linkTo, noLink, setAddress } from "../parts/link.js";
import { Engines } from "../engine/engines.js";
import { Charts } from "./charts.js";
import { Chooser } from "./chooser.js";
import { keep, kept } from "../parts/kept.js";
import {
  fillPart,
  fillTabs,
  goToPart,
  hideToast,
  isDarkBeside,
  isOurKey,
  isTyping,
  layoutOf,
  onTheme,
  paintTheme,
  pressesButton,
  setHue,
  showEmpty,
  showToast,
  toggleFullscreen,
  whenStyled,
} from "../parts/look.js";
import { NewComparison } from "./new_comparison.js";
import { EquivalencePanel } from "./equivalence.js";
import { PlanPanel } from "./plan.js";
import { fillBar, Race, RaceBar } from "./race.js";
import { Drawing } from "../figure/drawing.js";
import { hand, recorded } from "../figure/hand.js";
import { comparisonUrl, fetchOnce } from "../parts/server.js";
import { Speech, inLanguage, runOf, speaking, t } from "../parts/speech.js";
import { countLaneSteps, lanePieces } from "../run/lane_layout.js";
import { Tooltip } from "../parts/floating.js";

/** @type {[string, (counted: ReturnType<typeof countLaneSteps>) => number][]} */
// entries of the legend that only some races need, with how many lane-steps they stand for
const LEGEND = [
  ["waste", (c) => c.wasted - c.overrun],
  ["overrun", (c) => c.overrun],
  ["stalled", (c) => c.stalled],
  ["gone", (c) => c.preempted],
  ["waits", (c) => c.waiting],
];
const UNFOLDED = "inflight-compare-statistics"; // storage key: whether the statistics are open
const NARROW = 900; // pixels; below this width the comparisons have a strip of their own

export class Compare {
  /**
   * root: the element of compare.html. options: {tabs, plotly: url, server, base, engine: see
   * engine/engines.js, comparisons: [{name, title, shows, url}] for a page without a server,
   * watched() → the spec of the Watch tab}.
   */
  constructor(/** @type {Root} */ root, /** @type {Json} */ options = {}) {
    this.root = root;
    /** @type {{tabs: Tab[], comparisons: ComparisonEntry[], [more: string]: Json}} */
    this.options = { tabs: [], comparisons: [], server: false, watched: null, ...options };
    this.layout = "desk";
    this.presenter = false;
    this.doc = null;
    this.spec = null; // what was run for the document: {workload, config, model, device}
    this.chosen = new Set();
    /** @type {ComparisonOffers} */
    this.catalogue = {
      recorded: this.options.comparisons,
      presets: [],
      policies: [],
      most_repeats: 1,
      note: "",
    };
    this.run = { request: () => null }; // the tooltip gets requests, so it never looks up ids
    const $ = /** @type {Finder} */ ((s) => root.querySelector(s));
    this.$ = $;
    /** @type {Drawing | null} */
    this.cause = null;
    /** @type {Palette | null} */
    this.palette = null;
    /** @type {ComparisonEntry[]} */
    this.made = []; // comparisons of this visit, with doc and spec
    this.wanted = addressed(); // what the address asks for, until it is shown
    this._theme();
    this._size();
    this.engines = /** @type {Engines} null where nothing can run */ (Engines.of(this.options));
    const visitor = randomHex(12);
    // runs a job and returns its last delta; throws its sentence
    /**
     * @param {string} kind @param {Json} spec @param {Function} onprogress
     * @param {AbortSignal | undefined} signal
     */
    const ask = (kind, spec, onprogress, signal) =>
      this.engines?.ask(kind, spec, visitor, onprogress, signal);
    $(".new-button").hidden = !this.engines;
    this.form = new NewComparison($(".drawer"), {
      engines: this.engines,
      ask,
      done: async (/** @type {string} */ url, /** @type {Json} */ spec) =>
        this._add(await fetchOnce(url), spec),
      watched: this.options.watched,
      opener: $(".new-button"),
      phone: () => this.layout === "phone",
    });
    this.cause = new Drawing($(".cause"), hand, window.inflightCompareFiles.hand, {
      claim: "Change the cause: six brief questions in waves and continuously",
      source: "simulated by the scheduler, in steps",
    });
    this.cause.theme(isDarkBeside(this.wanted.get("theme")));
    this.cause.take(recorded(this.cause.data));
    fillBar($(".transport .play"));
    // after the static English markup, before texts that are translated when they are created
    this.speech = new Speech(root, () => this._named());
    this.tooltip = new Tooltip($(".tooltip"), this);
    this.race = new Race(
      $(".race"),
      this,
      this.options.tabs.length
        ? (/** @type {Json} */ racer, /** @type {number} */ step) => this._watch(racer, step)
        : null,
      () => this._moment(),
    );
    this.bar = new RaceBar($(".transport"), $(".table-button"), this.race);
    this.charts = new Charts($(".charts"), {
      plotly: this.options.plotly,
      palette: () => this.palette,
      phone: () => this.layout === "phone",
      toast: (/** @type {string} */ s) => this.toast(s),
      picked: (/** @type {number} */ n) => this.plan.watch(n),
    });
    this.plan = new PlanPanel($(".plan"), {
      ask,
      done: (/** @type {string} */ url) => this._planned(url),
      watch: (/** @type {Json} */ kept, /** @type {string} */ title) =>
        this._watchKept(kept, title),
    });
    this.equivalence = new EquivalencePanel($(".equivalence"), {
      ask,
      base: () => this.spec,
      can: Boolean(this.engines?.can("equivalence")),
    });
    this.chooser = new Chooser(root, {
      open: (entry) => this.open(entry),
      share: () => this._share(),
    });
    this._top();
    this._fold();
    this._keys();
    new ResizeObserver(() => this._size()).observe($(".page"));
    onTheme(() => this._theme(), document.querySelector("#watch .inflight"));
    this.ready = this._start();
  }

  /** Called when the tab is opened. wish: see `_grant`. */
  shown(/** @type {Json} */ wish) {
    if (wish) this.ready.then(() => this._grant(wish));
    this._theme();
    this.race.redraw();
    this._remember();
  }

  /**
   * Do what another part asks for: "watched" opens the form with Watch's requests; {race: a
   * recorded run's or comparison's name} opens its race, if there is one; {made} opens a
   * comparison; {plan} opens the form of a plan, see `PlanPanel.offer`.
   */
  async _grant(/** @type {Json} */ wish) {
    if (wish.made) return this._add(wish.made, null);
    if (wish.plan) {
      this.plan.offer(wish.plan);
      return this._showPlan(null);
    }
    // a run of vLLM has its race in its comparison with other engines
    const race = wish.race && wish.race.replace(/^vllm-/, "engines-");
    const entry = race && this.catalogue.recorded.find((e) => e.name === race);
    if (entry) {
      if (entry !== this.entry) await this.open(entry);
      this.race.seek(0);
      this.race.toggle(true);
    } else if (this.engines) this.form.openOnWatched();
    else this.toast("This run has no recorded race; a page with an engine can measure one.");
  }

  async _start() {
    // the markup's text, in any language, says that the comparison is being opened
    this.$(".empty-state").hidden = false;
    try {
      if (this.engines) this.catalogue = await this.engines.get("inflight/comparisons");
      this.chooser.fill(this.catalogue.recorded, this.made);
      if (this.engines) this.form.fill(this.catalogue);
      await this._follow();
      const entry = this.catalogue.recorded[0];
      if (this.doc) return;
      if (entry) await this.open(entry);
      else this.empty("There is no recorded comparison here yet. Run one.");
    } catch (/** @type {Foreign} */ error) {
      this.empty(t("The comparisons could not be loaded: {why}.", { why: t(error.message) }));
    }
  }

  /** Open the comparison that the address names, at the moment that it names. */
  async _follow() {
    const name = this.wanted.get("comparison");
    const entry = this.catalogue.recorded.find((e) => e.name === name);
    if (name && !entry) this.toast(t("There is no comparison {name} here.", { name }));
    if (!entry) return;
    if (entry !== this.entry) await this.open(entry);
    if (entry !== this.entry) return; // the comparison could not be opened
    const { wanted } = this;
    const who = wanted.getAll("who").filter((n) => this.race.all.has(n));
    if (who.length) this.chosen = new Set(who);
    this._who();
    this._race();
    this.race.setClock(wanted.get("axis") !== "steps");
    const at = wanted.has("at") ? Number(wanted.get("at")) : NaN;
    if (Number.isFinite(at)) this.race.seek(at);
    this._remember();
  }

  /** Write all texts again after a change of language. */
  _named() {
    fillTabs(this.root, this.options.tabs, "compare");
    this.chooser.fill(this.catalogue.recorded, this.made);
    this.chooser.mark(this.entry?.name);
    if (this.engines) this.form.named();
    this.cause?.redraw();
    if (this.root.hasAttribute("data-plan")) this._sayPlan();
    if (!this.doc?.runs) return;
    this._who();
    this._say();
    this.race.redraw();
    this._remember();
  }

  // -- documents ---------------------------------------------------------------------------------

  /** @param {Json} entry of the catalogue or of this visit */
  async open(entry) {
    this._opening = entry;
    try {
      const doc = entry.doc || (await fetchOnce(await comparisonUrl(this.engines, entry)));
      if (this._opening !== entry) return;
      this.entry = entry;
      const preset = this.catalogue.presets.find((p) => p.name === requestsOf(entry.name));
      if (preset) this.form.begin(preset.name);
      this.show(doc, entry.spec || preset?.spec || null);
    } catch (/** @type {Foreign} */ error) {
      if (this._opening !== entry) return; // another comparison was opened meanwhile
      const sentence = t("This comparison could not be opened: {why}", { why: t(error.message) });
      if (this.doc) this.toast(sentence);
      else this.empty(sentence);
    }
  }

  /** Open a plan that was simulated on request. */
  async _planned(/** @type {string} */ url) {
    const doc = await fetchOnce(url);
    return this._add(doc, null, "Planned", inLanguage(doc).says.headline);
  }

  /** Show a plan. doc: null before there is one. */
  _showPlan(/** @type {Json} */ doc) {
    this._opening = null; // a comparison that is still loading must not replace the plan
    this.empty(null);
    this.root.toggleAttribute("data-plan", true);
    this.race.toggle(false);
    this.doc = doc;
    this.entry = doc && this.entry;
    this.plan.show(doc);
    this._say();
    this.chooser.mark(this.entry?.name);
    this.$(".scroll").scrollTop = 0;
  }

  /** Add a comparison to those of this visit and open it. @param {Json} doc @param {Json} spec */
  async _add(doc, spec, verb = "Measured", shows = doc.names.join(", ")) {
    const at = new Date().toLocaleTimeString(speaking(), { hour: "2-digit", minute: "2-digit" });
    const title = t(`${verb} ${at}`);
    this.made.push({ name: `${title} #${this.made.length}`, title, shows, doc, spec });
    this.chooser.fill(this.catalogue.recorded, this.made);
    await this.open(this.made.at(-1));
  }

  show(/** @type {Json} */ doc, /** @type {Json} */ spec) {
    if (doc.kind === "plan") return this._showPlan(doc);
    this.root.toggleAttribute("data-plan", false);
    this.empty(null);
    this.doc = doc;
    this.spec = spec;
    const racing = doc.names.filter((/** @type {number} */ n) => doc.runs[n]);
    const first = racing.filter((/** @type {number} */ n) => doc.race.includes(n));
    this.chosen = new Set(doc.source !== "recorded" || first.length < 2 ? racing : first);
    this._who();
    this._race();
    this.bar.fit();
    this.$(".article").hidden = doc.name !== "gpt2-six";
    const asked = Object.values(doc.runs)[0]?.header.workload.requests ?? [];
    this.equivalence.show(
      doc.equivalence,
      new Map(asked.map((/** @type {Json} */ r) => [r.id, r.prompt])),
    );
    this.$(".source").dataset.source = doc.source;
    this._say();
    this.chooser.mark(this.entry?.name);
    this.$(".scroll").scrollTop = 0;
    this._remember();
  }

  /** Show the sentences, charts and numbers of the document. */
  _say() {
    const { doc } = this;
    if (this.root.hasAttribute("data-plan")) return this._sayPlan();
    const { says, figures } = inLanguage(doc);
    this._headline();
    for (const name of ["outputs", "verdict", "method"]) setText(this.$(`.${name}`), says[name]);
    const notes = [`${t("Measured on")} ${says.where}.`, ...(says.notes || [])];
    setText(this.$(".where"), notes.join(" "));
    setText(this.$(".sure-text"), says.sure);
    this.charts.show(figures, doc.name);
    this._table();
    this.equivalence.say();
    const { device, model, versions } = doc.data.environment;
    const here = versions?.pyodide ? "Measured in this tab" : "Measured here";
    const elsewhere = doc.source === "recorded" ? "Recorded" : "From a file";
    const word = t(doc.source === "live" ? here : elsewhere);
    const facts = [word, dateOf(doc.created), model.name, device.toUpperCase()];
    setText(this.$(".source"), joined(facts));
    this.$(".source").title = says.where;
  }

  _sayPlan() {
    const said = this.doc && inLanguage(this.doc);
    const asked = t("What would other settings have made of this run?");
    setText(this.$(".headline"), said ? said.says.headline : asked);
    setText(this.$(".source"), t("Simulated"));
    this.$(".source").dataset.source = "simulated";
    this.plan.say();
    this.charts.show(said ? said.figures : [], "plan");
  }

  _race() {
    this.$(".race-panel").style.setProperty("--racers", String(this.chosen.size));
    const names = this.doc.names.filter((/** @type {number} */ n) => this.chosen.has(n));
    this.race.show(this.doc, names);
    const counted = this.race.racers.map(({ run }) => countLaneSteps(run, lanePieces(run)));
    for (const [name, count] of LEGEND)
      this.$(`.legend-${name}`).hidden = !counted.some((c) => count(c));
  }

  /** The choice of racers: a button for each contender that left a trace. */
  _who() {
    const racing = this.doc.names.filter((/** @type {number} */ n) => this.doc.runs[n]);
    this.$(".who").hidden = racing.length < 3;
    this.$(".who").replaceChildren(
      ...racing.map((/** @type {string} */ name) => {
        const button = newButton(
          {
            class: "mini",
            "aria-pressed": String(this.chosen.has(name)),
            title: this.doc.about[name] ? t(this.doc.about[name]) : null,
            onclick: () => {
              if (this.chosen.has(name)) this.chosen.delete(name);
              else this.chosen.add(name);
              if (!this.chosen.size) this.chosen.add(name);
              const { now } = this.race;
              this._who();
              this._race();
              this.race.seek(now);
              this.$(`.who [data-who="${CSS.escape(name)}"]`).focus();
            },
          },
          name,
        );
        button.dataset.who = name;
        setHue(button, this.doc.hues[name] ?? 0);
        return button;
      }),
    );
    this._headline();
  }

  /** Show the first finding of which all runs that it names are drawn, in their colours. */
  _headline() {
    const names = [...this.doc.names].sort((a, b) => b.length - a.length);
    const found = new RegExp(
      `(?<![\\w-])(${names.map((n) => n.replace(/[^\w]/g, "\\$&")).join("|")})(?![\\w-])`,
      "g",
    );
    const { headline, pairs } = inLanguage(this.doc).says;
    const isDrawn = (/** @type {string[]} */ [name]) =>
      !this.doc.runs[name] || this.chosen.has(name);
    const said = [headline, ...pairs].find((one) => [...one.matchAll(found)].every(isDrawn));
    const text = unbroken(said ?? "");
    let last = 0;
    const parts = [];
    for (const match of text.matchAll(found)) {
      const el = h("span", { class: "name nowrap strong" }, match[0]);
      setHue(el, this.doc.hues[match[0]] ?? 0);
      parts.push(text.slice(last, match.index), el);
      last = match.index + match[0].length;
    }
    this.$(".headline").replaceChildren(...parts, text.slice(last));
    this.$(".headline").hidden = !text;
  }

  _table() {
    const { columns, rows } = inLanguage(this.doc).table;
    const unseen = t("not observable");
    this.$(".metrics").replaceChildren(
      tableOf(
        columns.map((/** @type {Json} */ c) =>
          h("th", { scope: "col", title: c.definition }, c.title),
        ),
        rows.map((/** @type {string[]} */ [name, ...cells]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, name),
            ...cells.map((cell) => h("td", { class: cell === unseen ? "unseen" : null }, cell)),
          ),
        ),
      ),
    );
  }

  empty(/** @type {string | null} */ sentence) {
    showEmpty(this.root, sentence);
  }

  // -- the moment --------------------------------------------------------------------------------

  _moment() {
    const { race } = this;
    this.bar.draw();
    this._remember();
    const [by, who] = race.gap();
    const ahead = `{first} is ${count(by)} [token|tokens] ahead of {last}`;
    const tied = race.now >= race.span ? t("all are done") : "";
    setText(this.$(".gap"), by ? t(ahead, who) : tied);
  }

  _top() {
    const { $ } = this;
    fillTabs(this.root, this.options.tabs, "compare");
    $(".csv-button").addEventListener("click", () => this._save("csv"));
    $(".json-button").addEventListener("click", () => this._save("json"));
    $(".share-button").addEventListener("click", () => this._share());
    $(".present-button").addEventListener("click", () => this.present(true));
    $(".leave-button").addEventListener("click", () => this.present(false));
    window.addEventListener("hashchange", () => {
      this.wanted = addressed();
      if (this.wanted.get("part") === "compare") this._follow();
    });
  }

  /** Fold the statistics away, as this browser remembers; printing opens them. */
  _fold() {
    const fold = this.$(".statistics");
    fold.open = kept("good", UNFOLDED) === "1";
    let printed = false; // opened only for printing
    fold.addEventListener("toggle", () => {
      if (!printed) keep("good", UNFOLDED, fold.open ? "1" : null);
    });
    window.addEventListener("beforeprint", () => {
      printed = !fold.open;
      fold.open = true;
      this._theme(); // on paper it is light, as the player
      this.race?.draw();
    });
    window.addEventListener("afterprint", () => {
      if (printed) fold.open = false;
      setTimeout(() => {
        printed = false;
      });
    });
  }

  _save(/** @type {string} */ kind) {
    if (!this.doc) return;
    const { csv, data, name } = this.doc;
    const of =
      this.doc.kind === "plan" ? "plan" : `${/^[\w-]+$/.test(name) ? name : "comparison"}-compared`;
    const [text, type] =
      kind === "csv" ? [csv, "text/csv"] : [JSON.stringify(data, null, 1), "application/json"];
    download(`inflight-${of}.${kind}`, new Blob([text], { type }));
  }

  // -- address, other parts, presenter -----------------------------------------------------------

  /** The address of what is on screen. theme: include the theme even if it is the host page's. */
  _hash(theme = false) {
    const p = new URLSearchParams({ part: "compare" });
    const { race } = this;
    if (this.entry && !this.entry.doc) {
      p.set("comparison", this.entry.name);
      // rounded up, so that whoever follows the link sees all that has happened by now
      const ms = Math.ceil(race.now * 1000 - 1e-6);
      p.set("at", race.clock ? (ms / 1000).toFixed(3) : String(Math.floor(race.now)));
      if (!race.clock) p.set("axis", "steps");
      for (const { name } of race.racers) p.append("who", name);
    }
    putLanguage(p);
    if (theme || addressed().has("theme")) p.set("theme", this.palette?.dark ? "dark" : "light");
    return `#${p}`;
  }

  /**
   * Write what is on screen into the address after a moment, because browsers limit how often; not
   * before the address has been followed.
   */
  _remember() {
    if (this._remembering || !this.doc?.runs) return;
    this._remembering = setTimeout(() => {
      this._remembering = 0;
      if (document.documentElement.dataset.part === "compare") setAddress(this._hash());
    }, 300);
  }

  _watch(/** @type {Json} */ racer, /** @type {number} */ step) {
    const entry = {
      name: null,
      title: `${this.doc.title}: ${racer}`,
      comparison: this.entry.doc ? null : this.entry.name,
      racer,
    };
    goToPart(this.root, "watch", { replay: runOf(this.doc, racer), step, entry });
  }

  /** Open a run that an engine keeps in the Watch tab. */
  async _watchKept(/** @type {Json} */ { id, url }, /** @type {string} */ title) {
    const doc = await fetchOnce(url);
    if (document.documentElement.dataset.part !== "compare") return; // the visitor has left Compare
    const entry = { name: null, id, url, title };
    goToPart(this.root, "watch", { replay: { ...doc, ...inLanguage(doc) }, entry });
  }

  /** Show the race alone and large, for a projector. */
  present(/** @type {boolean} */ on) {
    this.presenter = on;
    this.root.classList.toggle("presenter", on);
    if (!on && document.fullscreenElement) document.exitFullscreen();
    this._size();
    this.race.redraw();
    if (on) this.toast("Space plays, c changes the axis, F fills the screen, Esc leaves.", 3000);
    else hideToast(this.root);
  }

  _share() {
    if (!this.doc) return;
    const isPlan = this.doc.kind === "plan";
    if (!isPlan && !this.entry.doc)
      return copyLink(this.root, linkTo(this._hash(true)), () =>
        this.toast("Link copied: it opens this comparison at this moment."),
      );
    const [sentence, text] = isPlan
      ? ["This plan was simulated here, for you: nobody else can open it.", "Save it (JSON)"]
      : [
          "This comparison was measured here, for you: nobody else can open it.",
          "Save what was measured (JSON)",
        ];
    noLink(this.root, sentence, { text, act: () => this._save("json") });
  }

  _theme() {
    const dark = isDarkBeside(this.wanted.get("theme"));
    if (this.palette?.dark === dark) return;
    this.palette = paintTheme(this.root, dark);
    this.cause?.theme(dark);
    this.race?.redraw();
    this.charts?.repaint();
  }

  _size() {
    const width = this.$(".page").clientWidth;
    if (!width) return;
    this.root.toggleAttribute("data-strip", width <= NARROW && !this.presenter);
    this.chooser?.fit();
    const layout = this.presenter ? "desk" : layoutOf(width);
    if (layout === this.layout) return;
    this.layout = layout;
    this.root.dataset.layout = layout;
    this.race?.redraw();
    this.charts?.repaint();
  }

  _keys() {
    document.addEventListener("keydown", (e) => {
      if (!isOurKey(e, this.root) || this.root.querySelector("dialog[open]")) return;
      if (e.key === "Escape") {
        if (this.form.isOpen) this.form.toggle(false);
        else if (this.presenter) this.present(false);
        return;
      }
      const at = /** @type {HTMLElement} */ (e.target);
      if (isTyping(at) || pressesButton(e) || at.closest?.(".metrics")) return;
      /** @type {Record<string, false | (() => unknown)>} */
      const own = {
        p: () => this.present(!this.presenter),
        f: this.presenter && (() => toggleFullscreen(this.root)),
      };
      const act = this.bar.key(e) || own[e.key];
      if (!act) return;
      act();
      e.preventDefault();
    });
  }

  toast(/** @type {string} */ sentence, ms = 5000) {
    showToast(this.root, sentence, ms);
  }
}

/** The preset with a recorded comparison's requests; those of other engines ran one of ours. */
const requestsOf = (/** @type {Json} */ comparison) => comparison.replace(/^(engines|gpu)-/, "");

/** The day of a time in ISO 8601, as the language writes dates; in English as in ISO. */
const dateOf = (/** @type {string} */ created) =>
  speaking() === "en"
    ? created.slice(0, 10)
    : new Date(created).toLocaleDateString(speaking(), { dateStyle: "medium", timeZone: "UTC" });

window.inflightCompareMount = (/** @type {Root} */ holder, /** @type {Json} */ options) =>
  new Promise((resolve) => {
    const root = fillPart(holder, window.inflightCompareFiles, ".inflight-compare");
    whenStyled(root, () => resolve((window.inflightCompare = new Compare(root, options))));
  });
