// The race: runs of the same requests side by side on one clock, one playhead through all. Lanes are the player's own, drawn on a shared
// axis; a request has the same letter and hue in every run.
//
//   {names, hues, about, runs} ─→ Racer (run, lanes, counters) × n ─→ one `now`, in seconds or steps, that all of them show

import { clockLabel, roundUnit } from "../run/axis.js";
import { clamp, h, plural, setText, Surface } from "../parts/dom.js";
import { LanesView } from "../views/lanes.js";
import { drawSoon } from "../parts/look.js";
import { raceTable } from "./race_table.js";
import { fillTable } from "../parts/tables.js";
import { HELD, Run, countUpTo } from "../run/run.js";

const LEFT = 24; // where the lanes begin: the lanes view's own gutter
const STRIP = 18; // the axis above them all
const ROOM = 76; // right of the lanes: the number that each run ends in
const FUTURE = 0.13;
export const RACE_SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
const STEPS_A_SECOND = 60; // at speed 1

export function duration(seconds) {
  return seconds >= 1 ? `${seconds.toPrecision(3)} s` : `${Math.round(seconds * 1000)} ms`;
}

class RacerLanes extends LanesView {
  _scale() {
    const { run, race } = this.app;
    const first = run.events[0];
    const width = Math.max(1, this.surface.w - LEFT - ROOM);
    this.clock = race.clock;
    this.per = width / race.span;
    this.start = this.clock ? first.tStart : first.step;
    if (this.clock) {
      this.left = (i) => LEFT + (run.events[i].tStart - this.start) * this.per;
      this.right = (i) => LEFT + (run.events[i].tEnd - this.start) * this.per;
    } else {
      this.left = (i) => LEFT + (run.events[i].step - this.start) * this.per;
      this.right = (i) => LEFT + (run.events[i].step + 1 - this.start) * this.per;
    }
  }

  /** Lanes as long as the run: after its end there is nothing. */
  _ground(gap) {
    const { surface, ground } = this;
    const { run, palette } = this.app;
    [ground.width, ground.height] = [surface.canvas.width, surface.canvas.height];
    const g = ground.getContext("2d");
    g.setTransform(surface.d, 0, 0, surface.d, 0, 0);
    g.fillStyle = palette.empty;
    const end = this.right(run.length - 1);
    for (let lane = 0; lane < run.numLanes; lane += 1) g.fillRect(LEFT, this.axis + lane * this.pitch + gap / 2, end - LEFT, Math.max(1, this.pitch - gap));
    g.fillStyle = palette.soft;
    if (this.pitch >= 9) {
      g.font = `11px ${palette.sans}`;
      g.textBaseline = "middle";
      const every = Math.ceil(11 / this.pitch);
      for (let lane = 0; lane < run.numLanes; lane += every) g.fillText(String(lane), 6, this.axis + (lane + 0.5) * this.pitch);
    }
    if (!this.queueHeight) return;
    const y = surface.h - this.queueHeight / 2; // three short lines: a queue
    for (const dy of [-4, 0, 4]) g.fillRect(6, y + dy - 0.5, 9, 1.5);
  }

  _key(c) {
    const { run } = this.app;
    const idle = run.length * run.numLanes - run.statuses.reduce((n, lanes) => n + lanes.filter((s) => s & HELD).length, 0);
    const parts = [plural(c.prefill, "prefill"), `${c.decode} decode`];
    if (c.wasted - c.overrun) parts.push(`${c.wasted - c.overrun} padding`);
    if (c.overrun) parts.push(`${c.overrun} overrun`);
    if (idle > 0) parts.push(`${idle} idle`);
    this.canvas.setAttribute("aria-label", `Lanes of ${this.app.name}: ${parts.join(", ")} lane-steps`);
  }

  _scrub() {} // the race has one playhead for all

  draw() {
    const { app, surface } = this;
    if (!surface.visible) return;
    const { run, palette, race } = app;
    const stamp = `${surface.w}x${surface.h}@${surface.d}/${app.focus ? app.focus.id : ""}/${race.clock}/${race.span}/${palette.dark}`;
    if (stamp !== this._stamp || this._run !== run || this._palette !== palette) {
      [this._stamp, this._run, this._palette] = [stamp, run, palette];
      this._paint();
    }
    const g = surface.begin();
    const { d } = surface;
    const now = Math.min(LEFT + race.now * this.per, this.right(run.length - 1));
    g.drawImage(this.ground, 0, 0, surface.w, surface.h);
    const cut = clamp(Math.round(now * d), 1, surface.canvas.width);
    g.drawImage(this.chart, 0, 0, cut, surface.canvas.height, 0, 0, cut / d, surface.h);
    if (cut < surface.canvas.width) {
      g.globalAlpha = FUTURE;
      g.drawImage(this.chart, cut, 0, surface.canvas.width - cut, surface.canvas.height, cut / d, 0, surface.w - cut / d, surface.h);
      g.globalAlpha = 1;
    }
    g.fillStyle = palette.soft;
    for (let i = 0; i < run.length; i += 1) if (run.events[i].finished.length && this.right(i) <= now + 0.5) g.fillRect(this.right(i) - 2.5, this.axis - 7, 2.5, 6);
  }
}

/** One run of the race: its markup, its counters. */
class Racer {
  constructor(race, name, run) {
    Object.assign(this, { race, name, run, focus: null });
    this.start = run.events[0].tStart;
    this.startStep = run.events[0].step;
    this.seconds = run.events.at(-1).tEnd - this.start;
    this.steps = run.events.at(-1).step + 1 - this.startStep;
    const tokens = run.events.flatMap((e) => e.sampled.map((s) => [e.passes[s.passIndex].tEnd - this.start, e.step + 1 - this.startStep]));
    this.tokens = [tokens.map((t) => t[0]), tokens.map((t) => t[1])];
    this.begins = [run.events.map((e) => e.tStart - this.start), run.events.map((e) => e.step - this.startStep)]; // of each step
    this.landings = run.events.flatMap((e) => e.finished.map(({ request }) => ({ request: run.request(request), seconds: e.tEnd - this.start, steps: e.step + 1 - this.startStep })));
    this.chips = h("span", { class: "landed", "aria-hidden": "true" });
    this.numbers = h("span", { class: "racer-now" });
    this.final = h("b", { class: "final", hidden: true });
    const canvas = h("canvas", { role: "img", "aria-label": `Lanes of ${name}` });
    this.stage = h("div", { class: "canvas" }, canvas, this.final);
    this.key = h("i", { class: "key", hidden: true });
    this.head = h("span", { class: "playhead", hidden: true });
    this.el = h("section", { class: "racer", "data-racer": name },
      h("h4", {}, h("b", { class: "racer-name" }, name), h("span", { class: "racer-about" }, race.about[name] || ""), this.chips, this.numbers), this.stage, this.key, this.head);
    this.el.style.setProperty("--hue", `var(--hue-${race.hues[name] ?? 0})`);
    this.el.style.setProperty("--tint", `var(--tint-${race.hues[name] ?? 0})`);
    this.lanes = new RacerLanes(this.el, this);
    this._shown = -1;
  }

  get palette() {
    return this.race.palette;
  }

  get layout() {
    return this.race.layout;
  }

  redraw() {
    this.race.redraw();
  }

  get length() {
    return this.race.clock ? this.seconds : this.steps;
  }

  tokensAt(now) {
    return countUpTo(this.tokens[this.race.clock ? 0 : 1], now + 1e-9);
  }

  landedAt(now) {
    return this.landings.filter((l) => l[this.race.clock ? "seconds" : "steps"] <= now + 1e-9);
  }

  /** The number that it ends in. */
  inAll() {
    return this.race.clock ? duration(this.seconds) : plural(this.steps, "step");
  }

  draw() {
    const { race, run } = this;
    this.lanes.draw();
    const { now, clock } = race;
    const done = now >= this.length - 1e-9;
    const tokens = this.tokensAt(now);
    const landed = this.landedAt(now);
    if (landed.length !== this._shown || this._of !== race.palette) {
      [this._shown, this._of] = [landed.length, race.palette];
      const most = race.layout === "phone" ? 6 : 14;
      const shown = landed.slice(-most);
      this.chips.replaceChildren(...(landed.length > shown.length ? [h("span", { class: "more" }, `+${landed.length - shown.length}`)] : []),
        ...shown.map(({ request }) => {
          const chip = h("bdi", { class: "chip", title: `request ${request.id} is done` }, request.letter);
          chip.style.setProperty("--tint", request.hue < 0 ? "var(--empty)" : `var(--tint-${request.hue})`);
          return chip;
        }));
    }
    const rate = now > 0 && clock ? ` · ${Math.round(tokens / Math.min(now, this.seconds)).toLocaleString("en")} tok/s` : "";
    const stepsDone = clock ? countUpTo(this._ends ?? (this._ends = run.events.map((e) => e.tEnd - this.start)), now + 1e-9) : Math.min(Math.floor(now), this.steps);
    setText(this.numbers, race.layout === "phone" ? plural(tokens, "token") : `${plural(tokens, "token")} in ${plural(stepsDone, "step")}${rate}`);
    this.final.hidden = !done;
    if (done) {
      setText(this.final, this.inAll());
      const x = this.lanes.right ? this.lanes.right(run.length - 1) : 0;
      this.final.style.transform = `translateX(${Math.round(x + 8)}px)`;
    }
    this.el.classList.toggle("done", done);
  }
}

export class Race {
  /**
   * el: where it goes. options: {palette, layout, onchange(race), tooltip}. `palette` and `layout` may change: call `redraw`.
   */
  constructor(el, options) {
    this.el = el;
    this.options = options;
    this.racers = [];
    this.clock = true; // measured seconds; false: steps
    this.now = 0;
    this.span = 1;
    this.speed = 1;
    this.playing = false;
    this.mark = null; // a step to point at: where two runs part
    this.axis = h("canvas", { "aria-hidden": "true" });
    this.head = h("div", { class: "playhead race-head" });
    this.flag = h("div", { class: "fork-flag", hidden: true }, h("span", {}, "fork"));
    this.rows = h("div", { class: "racers" });
    this.area = h("div", { class: "race-area", tabindex: "0", role: "slider", "aria-label": "Moment of the race", "aria-valuemin": "0" },
      h("div", { class: "race-axis canvas" }, this.axis), this.rows, this.flag, this.head);
    this.holder = h("div", { class: "table-holder", hidden: true, tabindex: "0" });
    this.tabled = false;
    el.replaceChildren(this.area, this.holder);
    this.surface = new Surface(this.axis, () => this.redraw());
    this._point();
  }

  get palette() {
    return this.options.palette();
  }

  get layout() {
    return this.options.layout();
  }

  /** doc: {names, hues, about, runs}. names: which of them race, in order. */
  show(doc, names = doc.names) {
    if (this.doc !== doc) {
      this.doc = doc;
      this.all = new Map();
      this.about = doc.about || {};
      this.hues = doc.hues || {};
      let first = null;
      for (const name of doc.names) {
        if (!doc.runs[name] || !doc.runs[name].events.length) continue;
        const run = new Run({ captions: [], texts: { prompt: {}, output: {} }, ...doc.runs[name] });
        if (first) for (const request of run.requests) request.hue = first.request(request.id)?.hue ?? request.hue;
        else first = run;
        this.all.set(name, new Racer(this, name, run));
      }
      this.mark = doc.fork ? doc.fork.step : null;
      this._focus(null);
    }
    this.racers = names.filter((name) => this.all.has(name)).map((name) => this.all.get(name));
    this.rows.replaceChildren(...this.racers.map((r) => r.el));
    this.rows.style.setProperty("--racers", String(this.racers.length));
    this._spread();
    this.toggle(false);
    this.now = this.opening();
    this.redraw();
  }

  _spread() {
    this.span = Math.max(...this.racers.map((r) => r.length), 1e-9);
  }

  /** The moment at which the first of them is done: the gap is then to be seen. With a fork, a little after it. */
  opening() {
    if (this.mark !== null && !this.clock) return Math.min(this.span, this.mark + 1);
    return Math.min(...this.racers.map((r) => r.length), this.span);
  }

  setClock(on) {
    if (on === this.clock) return;
    const share = this.now / this.span;
    this.clock = on;
    this._spread();
    this.now = share * this.span;
    this.redraw();
  }

  seek(now) {
    this.now = clamp(Number.isFinite(now) ? now : now > 0 ? this.span : 0, 0, this.span);
    this.redraw();
  }

  /** One step of the slowest, or a hundredth of its time. */
  step(by) {
    this.toggle(false);
    this.seek(this.clock ? this.now + by * this.span / 100 : Math.round(this.now) + by);
  }

  /** The next or last moment at which a request is done in any of them. */
  land(direction) {
    this.toggle(false);
    const key = this.clock ? "seconds" : "steps";
    const times = this.racers.flatMap((r) => r.landings.map((l) => l[key])).sort((a, b) => a - b);
    const to = direction > 0 ? times.find((t) => t > this.now + 1e-6) : times.findLast((t) => t < this.now - 1e-6);
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
    const tick = (t) => {
      if (!this.playing) return;
      this.now += Math.min(t - last, 500) / 1000 * this.speed * (this.clock ? 1 : STEPS_A_SECOND);
      last = t;
      if (this.now >= this.span) {
        this.now = this.span;
        this.playing = false;
      }
      this.draw();
      if (this.playing) this._frame = requestAnimationFrame(tick);
    };
    this._frame = requestAnimationFrame(tick);
    this.redraw();
  }

  redraw() {
    drawSoon(this);
  }

  /** A table in place of the lanes. */
  showTable(on) {
    this.tabled = on;
    this.holder.hidden = !on;
    this.area.style.visibility = on ? "hidden" : "";
    this.redraw();
  }

  draw() {
    if (!this.racers.length || !this.surface.visible) return;
    const t0 = performance.now();
    for (const racer of this.racers) racer.draw();
    const per = Math.max(1, this.surface.w - LEFT - ROOM) / this.span;
    this._axis(per);
    this.head.style.transform = `translateX(${(LEFT + this.now * per).toFixed(2)}px)`;
    this.flag.hidden = this.mark === null || this.clock;
    if (!this.flag.hidden) this.flag.style.transform = `translateX(${(LEFT + this.mark * per).toFixed(2)}px)`;
    this.area.setAttribute("aria-valuenow", this.now.toFixed(3));
    this.area.setAttribute("aria-valuemax", this.span.toFixed(3));
    this.area.setAttribute("aria-valuetext", this.readout());
    if (this.tabled) fillTable(this.holder, raceTable(this));
    this.options.onchange?.(this);
    this.lastMs = performance.now() - t0;
  }

  /** The speed at which the whole race takes some seven seconds. */
  fittingSpeed() {
    const seconds = this.clock ? this.span : this.span / STEPS_A_SECOND;
    return RACE_SPEEDS.reduce((best, s) => (Math.abs(Math.log(seconds / s / 7)) < Math.abs(Math.log(seconds / best / 7)) ? s : best), 1);
  }

  readout() {
    if (this.layout === "phone") return this.clock ? `${this.now.toFixed(2)} s` : `step ${Math.floor(this.now)}`;
    return this.clock ? `${this.now.toFixed(2)} s of ${duration(this.span)}` : `step ${Math.floor(this.now)} of ${this.span}`;
  }

  /** Who is ahead by how many tokens: [name, tokens, behind], or null while nobody is. */
  gap() {
    if (this.racers.length < 2) return null;
    const order = this.racers.map((r) => [r.name, r.tokensAt(this.now)]).sort((a, b) => b[1] - a[1]);
    const [first, last] = [order[0], order.at(-1)];
    return first[1] > last[1] ? [first[0], first[1] - last[1], last[0]] : null;
  }

  _axis(per) {
    const g = this.surface.begin();
    const { palette } = this;
    g.font = `${this.layout === "phone" ? 12 : 11}px ${palette.sans}`;
    g.fillStyle = palette.soft;
    g.textBaseline = "middle";
    const unit = roundUnit(this.span, Math.max(2, this.surface.w / 110), !this.clock);
    for (let i = 0; i * unit <= this.span + 1e-9; i += 1) {
      const v = i * unit;
      g.fillText(this.clock ? clockLabel(v, this.span) : String(v), LEFT + v * per, STRIP / 2);
    }
  }

  // -- pointing --------------------------------------------------------------------------------------------------------

  _focus(id) {
    for (const racer of this.all.values()) racer.focus = id === null ? null : racer.run.request(id) || null;
    this.focus = id;
  }

  _point() {
    const { area } = this;
    const at = (e) => (e.clientX - area.getBoundingClientRect().left - LEFT) / Math.max(1, this.surface.w - LEFT - ROOM) * this.span;
    area.addEventListener("pointerdown", (e) => {
      if (e.button || !this.racers.length || e.target.closest("h4")) return;
      area.setPointerCapture(e.pointerId);
      this._dragging = true;
      this.toggle(false);
      this._hover(null);
      this.seek(at(e));
    });
    area.addEventListener("pointermove", (e) => {
      if (this._dragging) this.seek(at(e));
      else if (e.pointerType !== "touch") this._hover(e);
    });
    for (const end of ["pointerup", "pointercancel"]) area.addEventListener(end, () => { this._dragging = false; });
    area.addEventListener("pointerleave", () => this._hover(null));
  }

  _hover(e) {
    const { tooltip } = this.options;
    let found = null;
    let racer = null;
    if (e) {
      racer = this.racers.find((r) => r.stage.contains(e.target));
      if (racer) {
        const box = racer.stage.getBoundingClientRect();
        if (e.clientX - box.left <= racer.lanes.right(racer.run.length - 1)) found = racer.lanes.hit(e.clientX - box.left, e.clientY - box.top);
      }
    }
    const id = found && found.request ? found.request.id : null;
    if (found && tooltip) tooltip.show([[`${racer.name}: `, ...found.lines[0]], ...found.lines.slice(1)], e.clientX, e.clientY);
    else tooltip?.hide();
    if (id !== this.focus) {
      this._focus(id);
      this.redraw();
    }
  }

  // -- for tests -------------------------------------------------------------------------------------------------------

  /** What is drawn of each run: lane cells by kind, tokens and requests done at this moment. */
  counts() {
    return Object.fromEntries(this.racers.map((r) => [r.name, { ...r.lanes.counted, tokens: r.tokensAt(this.now), landed: r._shown, seconds: r.seconds, steps: r.steps, done: !r.final.hidden, final: r.final.textContent }]));
  }
}
