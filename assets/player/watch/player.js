// The player: one run, one step, one focus, drawn by views. It mounts into the markup of player.html.
//
//   replay (by URL, inline, or streamed) ─→ Run ─→ frame(index) ─→ views
//   pointer, keys, address ─→ index, focus ─→ one redraw in the next animation frame

import { h, icon, clamp, setAttr } from "../parts/dom.js";
import {
  drawSoon,
  paintTheme,
  prefersDark,
  sayToast,
  showEmpty,
  showToast,
  whenStyled,
} from "../parts/look.js";
import { firstStepOf, requestNamed } from "../run/ids.js";
import { Run } from "../run/run.js";
import { MaskView } from "../views/mask/mask.js";
import { PackedRow } from "../views/packed_row.js";
import { LanesView } from "../views/lanes.js";
import { StripView } from "../views/strip.js";
import { BlocksView } from "../views/kv.js";
import { LengthsView } from "../views/lengths.js";
import { QueueView } from "../views/queue.js";
import { DoorView } from "../views/door.js";
import { TextsView } from "../views/texts.js";
import { Narration } from "../views/narration.js";
import { RequestCard } from "../views/request_card.js";
import { playerKeys, SPEEDS, Transport } from "./transport.js";
import { Menu, Tooltip } from "../parts/floating.js";
import { Tables } from "../parts/tables.js";
import { Bar, Intro } from "./bar.js";
import { Beside } from "./beside.js";
import { Detail } from "./detail.js";
import { Happens } from "./happens.js";
import { Opening } from "./opening/opening.js";
import { chooseAxis, chooseTab, fit, isOnWatch, keepFitted, openAxis, paint } from "./layout.js";
import { focusView, present } from "./presenter.js";
import { Cursor, pointCanvas, pointElements } from "./pointing.js";
import { Ask } from "./ask.js";
import { Address } from "./address.js";
import { openAddress, openDropped, openRacer } from "./open_file.js";
import { take } from "./export.js";
import { pageActions } from "./page_actions.js";
import { Store, UNLIT } from "./store.js";
import { viewActions, viewState } from "./view_state.js";
import { wantedLanguage } from "../parts/language.js";
import { fetchOnce } from "../parts/server.js";
import { Engines } from "../engine/engines.js";
import { awaitLanguage, Speech, t } from "../parts/speech.js";
import { Live } from "./live.js";
import { Visit } from "./runs_card.js";
import { Leak } from "./leak.js";
import { Pair } from "./pair.js";
import { Ranks } from "./ranks.js";
import { Weights } from "./weights.js";
import { Motion } from "./motion.js";
import { RankLanes } from "../views/rank_lanes.js";
import { Flights } from "../views/flights.js";
import { Editor } from "./editor.js";
import { isSameHot, plain } from "../parts/chips.js";

/**
 * The fields of the state that the page's address contains.
 * @type {(keyof import("./store.js").WatchState)[]}
 */
const ADDRESSED = ["index", "pinned", "pass", "tab", "clock", "presenter", "chosenTheme"];

const NO_FRAME = /** @type {Frame} */ (/** @type {unknown} */ (null)); // before the first draw

export class Player {
  /**
   * root: the `.inflight` element. options: {catalogue: [{name, title, shows, policy, steps, url}],
   * replay (inline) or url, step, for ranks also rank and at, comparisons: [{name, url}] on a page
   * without a server, server: whether there is an API to run on, base: where the server is, engine:
   * where the files of the tab's engine are, traceHosts: other origins from which runs may be
   * opened, uploadBytes: size limit of a file, tabs: [{name, title}], detail: "simple" or "full"
   * for visitors who have never chosen, terms: see parts/glossary.js, embedded}.
   */
  constructor(/** @type {Root} */ root, /** @type {Json} */ options = {}) {
    this.root = root;
    /** @type {PlayerOptions} */
    this.options = { catalogue: [], tabs: [], server: false, ...options };
    this.store = new Store(paintTheme(root, prefersDark()));
    /** @type {Frame} */
    this.frame = NO_FRAME; // the frame drawn last
    this.drawn = -1;
    this.drawsSoon = false;
    this.lastMs = 0;
    this.fetching = null; // the run being fetched for display; only the latest is shown
    const $ = (this.$ = /** @type {Finder} */ ((s) => root.querySelector(s)));
    this.scrubber = $(".scrubber");
    root.classList.toggle("embedded", Boolean(this.options.embedded));
    // English needs no fetching: it is what the markup says
    if (wantedLanguage() !== "en" && this.options.tabs.some((tab) => tab.speaks)) awaitLanguage();
    this.detail = new Detail(this);
    this.sized();

    this.tooltip = new Tooltip($(".tooltip"), this);
    const actions = viewActions(this);
    this.mask = new MaskView($(".panel.mask"), actions);
    this.row = new PackedRow($(".panel.row"), actions);
    this.lanes = new LanesView($(".panel.lanes"), actions);
    this.strip = new StripView($(".panel.lanes"), actions);
    this.lengths = new LengthsView($(".panel.kv"), actions);
    this.blocks = new BlocksView($(".panel.kv"), actions);
    this.queue = new QueueView($(".panel.queue"));
    this.texts = new TextsView($(".panel.text"));
    this.door = new DoorView($(".panel.lanes"));
    this.narration = new Narration($(".say"));
    this.card = new RequestCard($(".request-card"), actions);
    this.transport = new Transport($(".transport"), this);
    this.weights = new Weights(this);
    this.ranks = new Ranks(this);
    this.rankLanes = new RankLanes($(".panel.ranks"), actions);
    const canvases = [this.row, this.mask, this.lengths, this.blocks, this.lanes];
    const tabled = [
      ...canvases,
      this.card,
      {
        surface: this.strip.surface,
        table: (/** @type {Json} */ state) => this.lanes.table(state),
      },
      {
        surface: this.lanes.other.surface,
        table: (/** @type {Json} */ state) => this.lanes.besideTable(state),
      },
      this.rankLanes,
    ];
    const pictures = tabled.map((view) => [view, view.surface.canvas]);
    this.tables = new Tables(this, pictures);
    /** @type {View[]} */
    this.views = [
      this.narration,
      this.row,
      this.mask,
      this.lengths,
      this.blocks,
      this.queue,
      this.texts,
      this.door,
      this.card,
      this.lanes,
      this.strip,
      this.ranks,
      this.rankLanes,
      this.transport,
      this.tables,
      new Cursor(this, this.row, "tokens of this pass"),
      new Cursor(this, this.mask, "cells of the mask"),
      new Cursor(this, this.lengths, "caches by lane"),
      new Cursor(this, this.blocks, "memory blocks"),
      new Happens(this),
    ];
    this.flights = new Flights($(".stage"), this, actions.redraw);
    this.motion = new Motion(this);
    for (const view of [...canvases, this.strip])
      pointCanvas(this, /** @type {Json} */ (view), view === this.lanes || view === this.strip);
    pointElements(this);
    this.ask = new Ask(this);
    this.menu = new Menu($(".menu"), this);
    this.address = new Address(this);
    this.engines = /** @type {Engines} null where nothing can run */ (Engines.of(this.options));
    this.visit = new Visit(this);
    this.pair = new Pair(this);
    this.views.push((this.beside = new Beside(this)));
    this.leak = new Leak(this);
    this.live = new Live(this);
    this.store.set({ edge: this.live });
    this.editor = new Editor($(".drawer"), this);
    this.speech = new Speech(root, () => {
      this.bar.named();
      this.editor.named();
      this.pair.named();
      sayToast(root);
      this.redraw();
      this.changed();
    });
    this.bar = new Bar(this);
    this.opening = new Opening(this);
    this.intro = new Intro($(".intro"), this);
    this._buttons();
    playerKeys(this);
    keepFitted(this);
    this.store.listen(() => this.redraw());
    this.store.listen((changed) => ADDRESSED.some((name) => changed.has(name)) && this.changed());
    this.start();
  }

  // -- the state, read here; `store.set` writes it -----------------------------------------------

  get run() {
    return this.store.state.run;
  }
  get entry() {
    return this.store.state.entry;
  }
  get replay() {
    return this.store.state.replay;
  }
  get index() {
    return this.store.state.index;
  }
  get pass() {
    return this.store.state.pass;
  }
  get pinned() {
    return this.store.state.pinned;
  }
  get following() {
    return this.store.state.following;
  }
  get edge() {
    return this.store.state.edge;
  }
  get tab() {
    return this.store.state.tab;
  }
  get layout() {
    return this.store.state.layout;
  }
  get clock() {
    return this.store.state.clock;
  }
  get presenter() {
    return this.store.state.presenter;
  }
  get palette() {
    return this.store.state.palette;
  }

  /** The document of the run on screen: its replay, or the document of all ranks. */
  get document() {
    return this.ranks.current ? this.ranks.doc : this.replay;
  }
  /** Whether that document is here or can be fetched. */
  get isKept() {
    return Boolean(this.document || this.entry?.url);
  }
  /** The server's id of the run on screen, if it has one. */
  get runId() {
    return (this.ranks.current || this.entry)?.id || null;
  }

  get running() {
    return Boolean(this.edge?.going);
  }

  /** Whether the run on screen is the one in progress. */
  get grows() {
    return this.running && this.run === this.edge?.run;
  }

  get isOpening() {
    return Boolean(this.run || this.fetching);
  }

  /** The only view on a presenter's screen, or "". */
  get alone() {
    return (this.presenter && this.root.dataset.focusView) || "";
  }

  // -- opening a run -----------------------------------------------------------------------------

  async start() {
    const { options, address } = this;
    /** @type {Json} */ const wanted = address.read();
    const names = ["watch", ...options.tabs.map((tab) => tab.name)];
    if (wanted.part && !names.includes(wanted.part)) this.absent(wanted.part);
    address.owes = Boolean(wanted.spec && this.engines);
    for (const key of wanted.request ? ["rank"] : ["step", "rank", "at"])
      wanted[key] ??= options[key] ?? null;
    const opened =
      (wanted.trace.length && (await openAddress(this, wanted.trace, wanted))) ||
      (wanted.comparison && (await openRacer(this, wanted)));
    const { request } = wanted;
    if (!opened && !this.isOpening) await this._openFirst(wanted);
    if ((this.engines && (await this.editor.resume())) || opened) return;
    if (wanted.spec && this.engines) await this.editor.restore({ ...wanted, request });
    else if (options.model && !wanted.run) {
      const open = async () => {
        await this.editor.toggle(true);
        if (!this.editor.edited) this.editor.model.choose({ model: options.model, seen: true });
      };
      if (isOnWatch()) await open();
      else document.addEventListener("inflight-tab", open, { once: true }); // not during a lesson
    } else if (wanted.spec)
      this.toast("This link describes a run that only a page with an engine can make.", 8000);
    else if (this.engines && this.editor.typed && isOnWatch()) {
      const edit = { text: "Edit requests", act: () => this.editor.toggle(true) };
      this.toast("What you typed is still here.", 8000, edit);
    }
  }

  /** Show a run if the address named no file that could be opened. @param {Json} wanted */
  async _openFirst(wanted) {
    const { options } = this;
    // the request is in a run that is not here, or not yet
    if (wanted.trace.length || wanted.comparison || wanted.spec) wanted.request = null;
    if (options.replay && !wanted.run) this.show(options.replay, wanted);
    else if (!(await this.opening.begin()) && !this.isOpening) {
      /** @type {Entry | undefined} */
      const entry =
        options.catalogue.find((e) => e.name === wanted.run) ||
        (options.url ? { url: options.url } : options.catalogue[0]);
      if (entry) {
        await this.open(entry, wanted);
        if (wanted.run && entry.name !== wanted.run) this.missing(wanted.run);
      } else this.empty("There is no recorded run here yet. Edit requests and run them.");
    }
  }

  /** Open a recorded run of the catalogue; its file is fetched once. @returns {Promise<void>} */
  async open(/** @type {Entry} */ entry, wanted = {}) {
    this.fetching = entry;
    try {
      const replay = await this.speech.withCaptions(entry, await this.fetch(entry.url || ""));
      if (this.fetching !== entry) return; // another run was requested meanwhile
      const { opened, language } = this.speech;
      if (opened !== language) return await this.open(entry, wanted); // or another language
      this.show(replay, wanted, entry);
    } catch (/** @type {Foreign} */ error) {
      const sentence = `This run could not be fetched (${error.message}).`;
      if (this.run) this.toast(sentence);
      else this.empty(sentence);
    } finally {
      if (this.fetching === entry) this.fetching = null;
    }
  }

  fetch(/** @type {string} */ url) {
    return fetchOnce(url);
  }

  /**
   * Show a replay that is already loaded, from a file or another part. If the replay is broken,
   * this throws before anything on screen changes.
   */
  openReplay(/** @type {Json} */ replay, wanted = {}, /** @type {Entry | null} */ entry = null) {
    for (const one of replay.ranks?.map((/** @type {Json} */ rank) => rank.replay) || [replay]) {
      const run = new Run(one);
      for (let i = 0; i < run.length; i += 1) run.frame(i);
    }
    this.show(replay, wanted, entry);
  }

  /** Download the run on screen as a file; see export.js. */
  take(/** @type {string} */ kind) {
    return take(this, kind);
  }

  /** Show a replay, or the replays of ranks. wanted: {step, pin, view} from an address. */
  show(/** @type {Json} */ replay, wanted = {}, entry = this.entry) {
    if (replay?.ranks?.length) return this.ranks.show(replay, wanted, entry);
    if (!replay || !replay.header || !Array.isArray(replay.events))
      return this.toast("This is not a replay.");
    this.put({ run: new Run(replay), entry, replay }, wanted);
  }

  /** Put a run on screen, paused. @param {Shown} shown @param {Wanted} wanted */
  put({ run, entry = null, replay = null }, wanted = {}) {
    this.transport.toggle(false);
    this.store.set({ following: Boolean(wanted.following && this.running) });
    this.motion.settle();
    this.enter({ run, entry, replay }, wanted);
  }

  /** The same, without stopping playback or following. @param {Shown} shown @param {Wanted} wanted */
  enter({ run, entry = null, replay = null }, wanted = {}) {
    this.fetching = null; // a run that is still loading must not replace this one
    this.store.set({ run, entry, replay, ...UNLIT, pass: Infinity });
    this.frame = NO_FRAME;
    this.mask.reset();
    this.weights.reset();
    this.pair.entered();
    this.ranks.entered();
    this.detail.apply();
    this.bar.marks();
    this.editor.followed();
    if (run.length) {
      this.empty(null);
      this.store.set({ index: run.openingStep() });
      openAxis(this);
      this.look(wanted);
    } else if (!this.running) this.empty("This run has no steps: no request was ever computed.");
    this.beside.entered(wanted);
  }

  /** Show what an address names of the run on screen. wanted: see `Address.read`. */
  look(/** @type {Json} */ wanted) {
    const { run } = this;
    const named = requestNamed(run, wanted.request);
    if (wanted.request && !named) return this._unknown(wanted.request);
    if (Number.isInteger(wanted.step)) this.store.set({ index: run.indexOf(wanted.step) });
    else if (named && !Number.isFinite(wanted.at))
      this.store.set({ index: Math.min(firstStepOf(named), run.length - 1) });
    const pinned = wanted.pin && run.requests.find((r) => r.letter === wanted.pin);
    const request = named || pinned || null;
    if (request && request !== this.pinned) this.pin(request);
    if (Number.isInteger(wanted.pass)) this.store.set({ pass: wanted.pass });
    if (Number.isInteger(wanted.layer) && wanted.layer < run.windows.length)
      this.mask.layer = wanted.layer;
    if (wanted.zoom)
      this.mask.zoom =
        wanted.zoom === "pin" ? (request ? { request } : null) : { view: wanted.zoom };
    if (wanted.tab) this.chooseTab(wanted.tab);
    // focusing the same view again would show all views
    if (wanted.view && this.presenter && wanted.view !== this.alone) focusView(this, wanted.view);
    this.redraw();
    this.changed();
  }

  _unknown(/** @type {string} */ id) {
    this.redraw();
    this.changed(); // the address then names what is on screen
    const shown = [...id.replace(/[“”]/g, "")].slice(0, 80).join("");
    this.toast(`No request of this run has the id “${shown}”.`, 6000);
  }

  empty(/** @type {string | null} */ sentence) {
    showEmpty(this.root, sentence);
  }

  extend(/** @type {Json} */ delta) {
    const { run } = this;
    const wasEmpty = run.length === 0;
    run.append(delta.events || [], delta.captions || [], delta);
    if (!run.length) return;
    if (wasEmpty) {
      this.empty(null);
      this.store.set({ index: 0 });
    }
    const was = this.index;
    if (this.following) this.store.set({ index: run.length - 1 });
    this.redraw();
    if (this.following) this.motion.went(was, this.index);
  }

  // -- position ----------------------------------------------------------------------------------

  /** Go to a step index. byHand: the visitor did it, which ends following the newest step. */
  seek(/** @type {number} */ index, byHand = false) {
    if (!this.run || !this.run.length) return;
    const to = clamp(Math.trunc(index) || 0, 0, this.transport.track.length - 1);
    if (this.ranks.all) return this.ranks.seek(to);
    if (byHand && this.grows) this.store.set({ following: to === this.run.length - 1 });
    if (byHand) this.intro.used();
    if (to !== this.index && !this.mask.zoom?.request) this.mask.zoom = null;
    this.motion.settle();
    this.store.set({ index: to });
  }

  /** Take single steps, by key or button; a move by one step is animated. */
  step(/** @type {number} */ by) {
    const from = this.transport.place;
    this.transport.toggle(false);
    this.seek(from + by, true);
    this.motion.went(from, this.index, true);
  }

  scrub(/** @type {number} */ index) {
    this.transport.toggle(false);
    this.seek(index, true);
  }

  choosePass(/** @type {number} */ index) {
    this.mask.zoom = null;
    const { passes } = viewState(this).frame;
    this.store.set({ pass: index === passes.length - 1 ? Infinity : index });
    this.redraw();
  }

  // -- highlighting ------------------------------------------------------------------------------

  /** The request of the run on screen with this id: a longer run may just have replaced its own. */
  _own(/** @type {RunRequest | null} */ request) {
    return (request && this.run.request(request.id)) || null;
  }

  /** Highlight what is under the pointer. found: {request, hot, lines} of a view, or null. */
  hover(/** @type {Json} */ found, x = 0, y = 0) {
    const { hot: was } = this.store.state;
    const { request = null, lit = null, hot = null, lines = null } = found || {};
    const isSame = isSameHot(hot, was);
    this.store.set({ hovered: this._own(request), hot: isSame ? was : hot, lit });
    this.explain(lines, x, y);
  }

  /** Show a tooltip; null hides it. */
  explain(/** @type {Span[][] | null} */ lines, x = 0, y = 0) {
    if (lines) this.tooltip.show(lines, x, y);
    else this.tooltip.hide();
  }

  pin(/** @type {RunRequest | null} */ request) {
    const own = this._own(request);
    this.store.set({ pinned: own !== this.pinned ? own : null, lit: null });
    if (!this.pinned) this.mask.zoom = null;
    this.redraw();
    this.changed();
  }

  clear() {
    const had = this.pinned || this.mask.zoom || !this.tooltip.el.hidden;
    this.store.set(UNLIT);
    this.mask.zoom = null;
    this.tooltip.hide();
    this.redraw();
    this.changed();
    return Boolean(had);
  }

  // -- drawing -----------------------------------------------------------------------------------

  redraw() {
    drawSoon(this);
  }

  draw() {
    if (!this.run || !this.run.length) return;
    const t0 = performance.now();
    const state = viewState(this);
    const moving = this.motion.stateOf(state);
    this.frame = state.frame;
    this.root.toggleAttribute("data-card", Boolean(state.pinned));
    for (const view of this.views) view.draw("moves" in view ? moving : state);
    this.flights.draw(moving);
    setAttr(this.scrubber, "aria-valuenow", String(this.frame.event.step));
    setAttr(this.scrubber, "aria-valuemax", String(this.run.stepOf(this.run.length - 1)));
    this.live.draw();
    if (this.drawn < 0) performance.mark("inflight-drawn");
    this.drawn = this.index;
    this.lastMs = performance.now() - t0;
  }

  // -- buttons and modes -------------------------------------------------------------------------

  _buttons() {
    const { $ } = this;
    openDropped(this);
    const speeds = SPEEDS.map((s) => h("option", { value: String(s) }, `${s} / s`));
    $(".speed").replaceChildren(...speeds);
    this.transport.setSpeed(2);
    $(".live-badge").addEventListener("click", () => this.follow());
  }

  follow() {
    this.edge?.back();
    this.store.set({ following: true });
    this.seek(Infinity, true);
  }

  /** Change size, tab, axis or theme: see layout.js. */
  sized() {
    fit(this);
  }
  chooseTab(/** @type {string} */ tab) {
    chooseTab(this, tab);
  }
  setClock(/** @type {boolean} */ on) {
    chooseAxis(this, on);
  }
  present(/** @type {boolean} */ on, quiet = false) {
    present(this, on, quiet);
  }

  setTheme(/** @type {"dark" | "light" | null} */ theme) {
    this.store.set({ chosenTheme: theme });
    paint(this);
  }

  // -- small services ----------------------------------------------------------------------------

  /** @param {string} sentence @param {Action | null | ""} action */
  toast(sentence, ms = 4000, action = null) {
    showToast(this.root, sentence, ms, action);
  }

  /** Say that a part of the page is not here. @param {string} part */
  absent(part) {
    const why = "Write is not on this page: it needs the engine that runs in a visitor’s tab.";
    const none = `${t("This page has no part of this name:")} ${part}.`;
    this.toast(part === "write" ? why : none, 8000);
  }

  /** Say that a recorded run is not here. @param {string} run */
  missing(run) {
    this.toast(`${t("This recorded run is not available:")} ${run}.`, 8000);
  }

  changed() {
    if (this.address) this.address.soon();
  }

  // -- for tests and scripts ---------------------------------------------------------------------

  seekStep(/** @type {number} */ step) {
    if (this.run) this.seek(this.run.indexOf(step));
  }

  sentence() {
    return this.frame ? plain(this, this.narration.say(this.frame, this.detail.simple)) : "";
  }
}

/** Create a player in its markup once that is styled; the last one created is `window.inflight`. */
export const mount = (/** @type {Root} */ root, /** @type {Json} */ options) =>
  whenStyled(root, () => {
    window.inflight = new Player(root, options);
    window.inflightWatch = pageActions(window.inflight);
  });

window.Inflight = { mount, icon };
