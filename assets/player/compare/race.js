// The race: runs of the same requests on one clock, with one playhead through all. Lanes are drawn as in the player, on a shared
// axis; a request has the same letter and hue in every run.
//
//   {names, hues, about, runs} ─→ Racer (run, lanes, counters) × n ─→ a shared `now`, in seconds or steps

import { clamp, find, h, keyButton, onDrag, pointIn, setAttr, setText } from "../parts/dom.js";
import { duration, momentOf } from "../parts/format.js";
import { Surface } from "../parts/surface.js";
import { drawTimeAxis, lanesWords } from "../views/lane_chart.js";
import { GUTTER } from "../views/lane_ink.js";
import { drawSoon } from "../parts/look.js";
import { Racer } from "./racer.js";
import { fillTable } from "../parts/tables.js";
import { Run } from "../run/run.js";
import { t, tell } from "../parts/speech.js";

const RACE_SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const STEPS_A_SECOND = 60; // at speed 1

export class Race {
  /**
   * el: where the race goes. page: provides palette, layout and tooltip; call `redraw` when they
   * change. watch(racer, step): shows a run in the Watch tab, null if there is none. onchange:
   * called when the moment changes. @param {HTMLElement} el @param {Json} page @param {Json} watch
   * @param {() => void} onchange
   */
  constructor(el, page, watch, onchange) {
    this.page = page;
    this.watches = watch;
    this.onchange = onchange;
    /** @type {Racer[]} */
    this.racers = [];
    this.clock = true; // true: measured seconds, false: steps
    this.now = 0;
    this.span = 1;
    this.speed = 1;
    this.playing = false;
    this.axis = h("canvas", { "aria-hidden": "true" });
    this.head = h("div", { class: "playhead race-head" });
    this.rows = h("div", { class: "racers grid spaced" });
    const name = t("Moment of the race");
    const slider = { tabindex: "0", role: "slider", "aria-label": name, "aria-valuemin": "0" };
    this.slider = h("div", { class: "race-axis canvas", ...slider }, this.axis);
    this.area = h("div", { class: "race-area stack drags" }, this.slider, this.rows, this.head);
    this.holder = h("div", { class: "table-holder fine", hidden: true, tabindex: "0" });
    this.tabled = false;
    el.replaceChildren(this.area, this.holder);
    this.surface = new Surface(this.axis, () => this.redraw());
    this._point();
  }

  get unit() {
    return this.clock ? "seconds" : "steps";
  }

  get palette() {
    return this.page.palette;
  }

  get layout() {
    return this.page.layout;
  }

  get presenter() {
    return this.page.presenter;
  }

  get font() {
    return this.presenter ? 20 : this.layout === "phone" ? 12 : 11;
  }

  /** Pixels to the right of the lanes, for each run's final number. */
  get room() {
    const small = this.layout === "phone" ? 0.85 : 1;
    return (this.clock ? 80 : 116) * (this.presenter ? 1.5 : small);
  }

  /** Pixels per second or step. */
  get per() {
    return Math.max(1, this.surface.w - GUTTER - this.room) / this.span;
  }

  /** Show a run in the Watch tab, at the race's moment. */
  watch(/** @type {Racer} */ racer) {
    this.toggle(false);
    const { i } = racer.stepAt(Math.min(this.now, racer.length));
    this.watches(racer.name, racer.run.stepOf(Math.max(0, i)));
  }

  /** doc: {names, hues, about, runs}. names: the runs that race, in order. */
  show(/** @type {Json} */ doc, names = doc.names) {
    if (this.doc !== doc) {
      this.doc = doc;
      /** @type {Map<string, Racer>} */
      this.all = new Map();
      this.about = doc.about || {};
      this.hues = doc.hues || {};
      for (const name of doc.names) {
        if (!doc.runs[name] || !doc.runs[name].events.length) continue;
        const run = new Run(doc.runs[name]);
        const [first] = this.all.values();
        for (const request of run.requests)
          request.hue = first?.run.request(request.id)?.hue ?? request.hue;
        this.all.set(name, new Racer(this, name, run));
      }
      this._focus(null);
    }
    this.racers = names.flatMap((/** @type {string} */ name) => this.all.get(name) ?? []);
    this.rows.replaceChildren(...this.racers.map((r) => r.el));
    this.rows.style.setProperty("--racers", String(this.racers.length));
    this._spread();
    this.toggle(false);
    // the moment at which the first run is done, when the gap to the others is visible
    this.now = Math.min(...this.racers.map((r) => r.length), this.span);
    this.redraw();
  }

  _spread() {
    this.span = Math.max(...this.racers.map((r) => r.length), 1e-9);
  }

  setClock(/** @type {boolean} */ on) {
    if (on === this.clock) return;
    const share = this.now / this.span;
    this.clock = on;
    this._spread();
    this.now = share * this.span;
    this.redraw();
  }

  seek(/** @type {number} */ now) {
    this.now = clamp(Number.isFinite(now) ? now : now > 0 ? this.span : 0, 0, this.span);
    this.redraw();
  }

  /** Move by one step, or by a hundredth of the race's time. */
  step(/** @type {number} */ by) {
    this.toggle(false);
    this.seek(this.clock ? this.now + (by * this.span) / 100 : Math.round(this.now) + by);
  }

  /** Move to the next or previous moment at which any run has a request done. */
  seekCompletion(/** @type {number} */ direction) {
    this.toggle(false);
    const times = this.racers
      .flatMap((r) => r.completions.map((l) => l[this.unit]))
      .sort((a, b) => a - b);
    const to =
      direction > 0
        ? times.find((t) => t > this.now + 1e-6)
        : times.findLast((t) => t < this.now - 1e-6);
    if (to !== undefined) this.seek(to);
  }

  toggle(on = !this.playing) {
    if (on === this.playing || (on && !this.racers.length)) return;
    this.playing = on;
    if (!on) {
      cancelAnimationFrame(this._frame);
      this.redraw();
      return;
    }
    if (this.now >= this.span - 1e-9) this.now = 0;
    let last = performance.now();
    const tick = (/** @type {number} */ t) => {
      if (!this.playing) return;
      this.now += (Math.min(t - last, 500) / 1000) * this.speed * (this.clock ? 1 : STEPS_A_SECOND);
      last = t;
      if (this.now >= this.span) {
        this.now = this.span;
        this.playing = false;
      }
      this.draw();
      if (this.playing) this._frame = requestAnimationFrame(tick);
    };
    /** @type {number} */
    this._frame = requestAnimationFrame(tick);
    this.redraw();
  }

  redraw() {
    drawSoon(this);
  }

  /** Show a table in place of the lanes, or the lanes again. */
  showTable(/** @type {boolean} */ on) {
    this.tabled = on;
    this.holder.hidden = !on;
    this.area.style.visibility = on ? "hidden" : "";
    this.redraw();
  }

  draw() {
    if (!this.racers.length || !this.surface.visible) return;
    const t0 = performance.now();
    for (const racer of this.racers) racer.draw();
    const { span, per, clock, font } = this;
    const head = GUTTER + this.now * per;
    drawTimeAxis(this.surface, this.palette, { span, per, clock, font, head });
    this.head.style.transform = `translateX(${head.toFixed(2)}px)`;
    setAttr(this.slider, "aria-label", t("Moment of the race"));
    this.slider.setAttribute("aria-valuenow", this.now.toFixed(3));
    this.slider.setAttribute("aria-valuemax", this.span.toFixed(3));
    this.slider.setAttribute("aria-valuetext", this.readout());
    if (this.tabled) fillTable(this.holder, raceTable(this));
    this.onchange();
    this.lastMs = performance.now() - t0;
  }

  /** The speed at which the whole race takes about seven seconds. */
  fittingSpeed() {
    const seconds = this.clock ? this.span : this.span / STEPS_A_SECOND;
    const miss = (/** @type {number} */ speed) => Math.abs(Math.log(seconds / speed / 7));
    return RACE_SPEEDS.reduce((best, speed) => (miss(speed) < miss(best) ? speed : best), 1);
  }

  readout() {
    const small = this.layout === "phone";
    if (this.clock) return t(small ? duration(this.now) : momentOf(this.now, this.span));
    // a place on the axis: unlike a count of steps, it includes those without work
    return t(`step ${Math.floor(this.now)}${small ? "" : ` of ${this.span}`}`);
  }

  /** How many tokens the first leads by. @returns {[number, {first: string, last: string}]} */
  gap() {
    const order = this.racers
      .map((racer) => ({ name: racer.name, tokens: racer.tokensAt(this.now) }))
      .sort((a, b) => b.tokens - a.tokens);
    const [first, last] = [order[0], order[order.length - 1]];
    return [first.tokens - last.tokens, { first: first.name, last: last.name }];
  }

  // -- pointing ----------------------------------------------------------------------------------

  _focus(/** @type {string | null} */ id) {
    for (const racer of this.all.values()) racer.light(id);
    this.focus = id;
  }

  _point() {
    const { area } = this;
    const seek = (/** @type {PointerEvent} */ e) =>
      this.seek((pointIn(area, e)[0] - GUTTER) / this.per);
    onDrag(area, (e) => {
      if (!this.racers.length || /** @type {HTMLElement} */ (e.target).closest("h4, button"))
        return null;
      this.toggle(false);
      this._hover(null);
      seek(e);
      return seek;
    });
    area.addEventListener("pointermove", (e) => {
      if (!area.hasPointerCapture(e.pointerId) && e.pointerType !== "touch") this._hover(e);
    });
    area.addEventListener("dblclick", (e) => {
      const racer = this.racers.find((r) => r.stage.contains(/** @type {Node} */ (e.target)));
      if (racer && this.watches) this.watch(racer);
    });
    area.addEventListener("pointerleave", () => this._hover(null));
  }

  _hover(/** @type {PointerEvent | null} */ e) {
    const { tooltip } = this.page;
    const racer = e && this.racers.find((r) => r.stage.contains(/** @type {Node} */ (e.target)));
    /** @type {ReturnType<Racer["lanes"]["hit"]>} */
    let found = null;
    if (racer) {
      const [x, y] = pointIn(racer.stage, e);
      if (x <= racer.end()) found = racer.lanes.hit(x, y);
    }
    const id = found?.request?.id ?? null;
    if (e && found) {
      const [first, ...others] = found.lines;
      tooltip.show([[`${racer?.name}: `, ...first], ...others], e.clientX, e.clientY);
    } else tooltip.hide();
    if (id !== this.focus) {
      this._focus(id);
      this.redraw();
    }
  }
}

/** Put the buttons beside Play. @param {HTMLElement} play */
export function fillBar(play) {
  play.before(keyButton("first", "first", "Start"), keyButton("prev", "prev", "Last request done"));
  play.after(keyButton("next", "next", "Next request done"), keyButton("last", "last", "End"));
}

/** Drives a race and shows its moment: buttons, axis, table and speed. */
export class RaceBar {
  /**
   * @param {HTMLElement} el its toolbar @param {HTMLElement} table the button that shows a table
   * @param {Race} race
   */
  constructor(el, table, race) {
    this.race = race;
    this.table = table;
    this.play = find(el, ".play");
    this.moment = find(el, ".race-time");
    this.clock = find(el, ".clock-button");
    this.title = find(/** @type {HTMLElement} */ (table.closest(".panel")), ".title");
    this.speed = /** @type {HTMLSelectElement} */ (find(el, ".speed"));
    this.speed.replaceChildren(...RACE_SPEEDS.map((s) => h("option", { value: String(s) })));
    this.speed.addEventListener("change", () => {
      race.speed = Number(this.speed.value);
    });
    el.addEventListener("click", (e) => {
      const button = /** @type {HTMLElement} */ (e.target).closest("[data-act]");
      if (button) this.act(/** @type {HTMLElement} */ (button).dataset.act);
    });
    table.addEventListener("click", () => this.act("table"));
    this.draw();
  }

  act(/** @type {string | undefined} */ name) {
    const { race } = this;
    /** @type {Record<string, () => unknown>} */
    const verbs = {
      first: () => race.seek(0),
      last: () => race.seek(Infinity),
      play: () => race.toggle(),
      prev: () => race.seekCompletion(-1),
      next: () => race.seekCompletion(1),
      clock: () => race.setClock(!race.clock),
      table: () => race.showTable(!race.tabled),
    };
    if (name) verbs[name]();
  }

  /** Choose the speed at which a newly shown race takes a few seconds. */
  fit() {
    this.race.speed = this.race.fittingSpeed();
    this.speed.value = String(this.race.speed);
  }

  draw() {
    const { race } = this;
    setAttr(this.moment, "aria-live", race.playing ? "off" : "polite"); // else in every frame
    setText(this.moment, race.readout());
    for (const option of this.speed.options) tell(option, `${option.value}×`);
    this.play.classList.toggle("on", race.playing);
    setAttr(this.play, "aria-label", t(race.playing ? "Pause" : "Play"));
    setAttr(this.play, "aria-pressed", String(race.playing));
    setAttr(this.table, "aria-pressed", String(race.tabled));
    tell(this.clock, `${race.layout === "phone" ? "" : "Axis: "}${race.clock ? "time" : "steps"}`);
    setAttr(this.clock, "aria-pressed", String(race.clock));
    tell(this.title, `The same requests, ${race.clock ? "on one clock" : "step by step"}`);
  }

  /** The function that a key calls, or undefined. */
  key(/** @type {KeyboardEvent} */ e) {
    const { race } = this;
    const far = e.shiftKey ? 10 : 1;
    /** @type {Record<string, () => unknown>} */
    const keys = {
      ArrowRight: () => race.step(far),
      ArrowLeft: () => race.step(-far),
      " ": () => this.act("play"),
      n: () => this.act("next"),
      b: () => this.act("prev"),
      c: () => this.act("clock"),
      t: () => this.act("table"),
    };
    if (/** @type {Element} */ (e.target).closest?.(".race-area, .table-holder"))
      Object.assign(keys, { Home: () => this.act("first"), End: () => this.act("last") });
    return keys[e.key];
  }
}

/**
 * The race at its moment as a table for screen readers, with a row for each run. Before its first
 * step, between two steps and after its last one, a run holds no lane.
 */
export function raceTable(/** @type {Race} */ race) {
  return {
    caption: t("The race at {moment}", { moment: race.readout() }),
    columns: ["Which run", "Step", "Lanes", "Waiting", "Tokens", "Requests done", "In all"],
    rows: race.racers.map((racer) => {
      const { run } = racer;
      const done = race.now >= racer.length - 1e-9;
      const { i, inside } = racer.stepAt(race.now);
      return [
        racer.name,
        done ? t("done") : inside ? String(run.stepOf(i)) : t("idle"),
        inside ? lanesWords(run, i) : "",
        done || i < 0 ? "0" : String(run.numWaiting[i]),
        String(racer.tokensAt(race.now)),
        t(`${racer.completedBy(race.now).length} of ${racer.completions.length}`),
        racer.inAll(),
      ];
    }),
  };
}
