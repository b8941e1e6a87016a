// Lanes over time: who held which lane when, prefill, decode, waste, preemptions, the queue below. Its playhead is the scrubber.
//
//   chart (past at full strength, future at 22 %) is painted once per run, size and focus; a step only moves the playhead.

import { clockLabel, roundUnit } from "../run/axis.js";
import { clamp, measure, milliseconds, plural, setAttr, setFont, setText, Surface } from "../parts/dom.js";
import { DECODE, OVERRUN, PREEMPTED, PREFILL, STALLED, WASTED } from "../run/run.js";

const GUTTER = 24;

/** What the device did between two steps of an asynchronous run. */
export function idleWords({ seconds, forHost }, before) {
  return forHost ? `device waited ${milliseconds(seconds)} for the host before step ${before}` : `device idle for ${milliseconds(seconds)} before step ${before}: nobody to serve`;
}

export class LanesView {
  constructor(panel, app) {
    this.app = app;
    this.key = panel.querySelector(".key");
    this.canvas = panel.querySelector("canvas");
    this.head = panel.querySelector(".playhead");
    this.legend = Object.fromEntries(["waste", "overrun", "stalled", "gone", "idle"].map((name) => [name, panel.querySelector(`.legend-${name}`)]));
    this.surface = new Surface(this.canvas, () => {
      this._stamp = null;
      app.redraw();
    });
    this.chart = document.createElement("canvas"); // what happened
    this.ground = document.createElement("canvas"); // empty lanes, the axis
    this.clock = false; // false: steps, true: measured seconds
    this.counted = null;
    this.idle = 0; // seconds of it, on the clock
    this._scrub();
  }

  // -- the axis ------------------------------------------------------------------------------------------------------

  _scale() {
    const { run } = this.app;
    const width = this.surface.w - GUTTER - 2;
    const first = run.events[0];
    const last = run.events[run.length - 1];
    if (this.clock) {
      let span = last.tEnd - first.tStart || 1e-9;
      if (!run.complete) span *= 1.25;
      this.start = first.tStart;
      this.per = width / span;
      this.left = (i) => GUTTER + (run.events[i].tStart - this.start) * this.per;
      this.right = (i) => GUTTER + (run.events[i].tEnd - this.start) * this.per;
    } else {
      let span = last.step + 1 - first.step;
      if (!run.complete) span = Math.max(32, 2 ** Math.ceil(Math.log2(span * 1.05))); // room to grow: the axis doubles, it does not creep
      this.start = first.step;
      this.per = width / span;
      this.left = (i) => GUTTER + (run.events[i].step - this.start) * this.per;
      this.right = (i) => GUTTER + (run.events[i].step + 1 - this.start) * this.per;
    }
  }

  indexAt(x) {
    const { run } = this.app;
    let low = 0;
    let high = run.length - 1;
    while (low < high) {
      const mid = (low + high + 1) >> 1;
      if (this.left(mid) <= x) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  // -- the chart -----------------------------------------------------------------------------------------------------

  _paint() {
    const { app, surface, chart } = this;
    const { run, palette, focus } = app;
    this.font = app.presenter ? 16 : app.layout === "phone" ? 12 : 11;
    this.axis = app.presenter ? 26 : 18;
    this._scale();
    chart.width = surface.canvas.width;
    chart.height = surface.canvas.height;
    const g = chart.getContext("2d");
    g._font = null;
    g.setTransform(surface.d, 0, 0, surface.d, 0, 0);
    g.clearRect(0, 0, surface.w, surface.h);
    const { numLanes } = run;
    const most = run.numWaiting.reduce((a, b) => Math.max(a, b), 0);
    this.queueHeight = most ? clamp(surface.h * 0.13, 12, 22) : 0;
    const pitch = (surface.h - this.axis - this.queueHeight) / numLanes;
    this.pitch = pitch;
    const gap = pitch >= 7 ? 2 : pitch >= 4 ? 1 : 0;
    const counted = { prefill: 0, decode: 0, wasted: 0, overrun: 0, stalled: 0, preempted: 0, waiting: 0 };
    this.pieces = [];

    for (let lane = 0; lane < numLanes; lane += 1) {
      const y = this.axis + lane * pitch + gap / 2;
      const height = Math.max(1, pitch - gap);
      let i = 0;
      while (i < run.length) {
        const status = run.statuses[i][lane] || 0;
        const stay = run.holders[i][lane] ?? -1;
        let j = i + 1; // equal neighbours are one piece
        while (j < run.length && run.holders[j][lane] === stay && (run.statuses[j][lane] || 0) === status && run.events[j].step === run.events[j - 1].step + 1) j += 1;
        const n = j - i;
        if (status & PREFILL) counted.prefill += n;
        if (status & DECODE) counted.decode += n;
        if (status & (WASTED | OVERRUN)) counted.wasted += n;
        if (status & OVERRUN) counted.overrun += n;
        if (status & STALLED) counted.stalled += n;
        if (status & PREEMPTED) counted.preempted += n;
        if (stay >= 0) this._piece(g, i, j, y, height, status, run.stays[stay], focus);
        i = j;
      }
    }
    for (let i = 0; i < run.length; i += 1) for (const { lane, request } of run.events[i].preempted) this._cross(g, i, lane, run.request(request), gap, focus);
    this._idle(g, palette);
    this._letters(g, gap, focus);
    this._queue(g, most, counted, palette);
    this._ground(gap);
    this.counted = counted;
    g.globalAlpha = 1;
    this._key(counted);
  }

  _piece(g, i, j, y, height, status, stay, focus) {
    const { palette } = this.app;
    const colours = palette.of(stay.request);
    g.globalAlpha = focus && focus !== stay.request ? 0.2 : 1;
    const step = this.right(i) - this.left(i);
    const parts = [];
    for (let n = i; n < j; n += 1) { // narrow steps that touch are one piece
      const before = parts.at(-1);
      if (before && step < 5 && this.left(n) - before[1] < 0.75) before[1] = this.right(n);
      else parts.push([this.left(n), this.right(n)]);
    }
    const gap = step >= 5 && !this.clock ? 1 : 0;
    for (const [from, end] of parts) {
      const x = Math.round(from * this.surface.d) / this.surface.d;
      const width = Math.max(0.6, end - x - gap);
      if ((status & PREFILL) && (status & DECODE)) {
        this._prefill(g, x, y, width / 2, height, colours);
        g.fillStyle = colours.solid;
        g.fillRect(x + width / 2, y, width / 2, height);
      } else if (status & DECODE) {
        g.fillStyle = colours.solid;
        g.fillRect(x, y, width, height);
      } else if (status & PREFILL) this._prefill(g, x, y, width, height, colours);
      else if (status & (WASTED | OVERRUN)) {
        g.fillStyle = palette.hatch(g, palette.pad, palette.empty);
        g.fillRect(x, y, width, height);
      } else { // holds the lane, computes nothing
        g.fillStyle = colours.cached;
        g.fillRect(x, y + height * 0.4, width, Math.max(1, height * 0.2));
      }
    }
  }

  /** On the clock of an asynchronous run: the device idle between two steps, dotted across all lanes. */
  _idle(g, palette) {
    const { run } = this.app;
    this.idle = 0;
    if (!this.clock || !run.asynchronous) return;
    g.globalAlpha = 1;
    for (let i = 1; i < run.length; i += 1) {
      const idle = run.idleBefore(i);
      if (!idle) continue;
      this.idle += idle.seconds;
      const from = this.right(i - 1);
      const width = this.left(i) - from;
      if (width < 0.4) continue;
      g.fillStyle = palette.panel;
      g.fillRect(from, this.axis, width, run.numLanes * this.pitch);
      g.fillStyle = palette.warn;
      for (let lane = 0; lane < run.numLanes; lane += 1) g.fillRect(from, this.axis + (lane + 0.5) * this.pitch - 0.75, width, 1.5);
    }
  }

  _prefill(g, x, y, width, height, colours) {
    g.fillStyle = colours.tint;
    g.fillRect(x, y, width, height);
    if (height < 5 || width < 4) {
      g.fillStyle = colours.solid;
      g.fillRect(x, y, width, Math.min(1, height / 3));
      g.fillRect(x, y + height - Math.min(1, height / 3), width, Math.min(1, height / 3));
      return;
    }
    g.strokeStyle = colours.solid;
    g.lineWidth = 1.5;
    g.strokeRect(x + 0.75, y + 0.75, width - 1.5, height - 1.5);
  }

  _cross(g, i, lane, request, gap, focus) {
    const { palette } = this.app;
    g.globalAlpha = focus && focus !== request ? 0.2 : 1;
    const x = this.left(i);
    const y = this.axis + lane * this.pitch + gap / 2;
    const height = this.pitch - gap;
    g.fillStyle = palette.warn;
    g.fillRect(x - 1.25, y, 2.5, height);
    if (height < 8) return;
    const r = Math.min(3.2, height / 3);
    const [cx, cy] = [x, y + height / 2];
    g.beginPath();
    g.arc(cx, cy, r + 2.2, 0, 7);
    g.fillStyle = palette.panel;
    g.fill();
    g.strokeStyle = palette.warn;
    g.lineWidth = 1.8;
    g.beginPath();
    g.moveTo(cx - r, cy - r);
    g.lineTo(cx + r, cy + r);
    g.moveTo(cx + r, cy - r);
    g.lineTo(cx - r, cy + r);
    g.stroke();
  }

  _letters(g, gap, focus) {
    const { app } = this;
    const { run, palette } = app;
    const size = Math.min(app.presenter ? 18 : 12, this.pitch - gap);
    if (size < 8) return;
    setFont(g, `700 ${Math.max(11, app.presenter ? Math.min(18, this.pitch - gap - 2) : size)}px ${palette.mono}`);
    g.textBaseline = "middle";
    for (const stay of run.stays) {
      const end = stay.to === Infinity ? run.length - 1 : Math.min(stay.to, run.length - 1);
      const x = this.left(stay.from);
      const { letter } = stay.request;
      const width = measure(g, letter);
      if (end < stay.from || this.right(end) - x < width + 6) continue;
      const colours = palette.of(stay.request);
      g.globalAlpha = focus && focus !== stay.request ? 0.2 : 1;
      const y = this.axis + stay.lane * this.pitch + this.pitch / 2;
      const dx = stay.end === "preempted" || run.events[stay.from].preempted.length ? 8 : 3;
      g.fillStyle = colours.tint; // a pale flag: ink reads on it whatever lies below
      g.fillRect(x + dx - 1.5, y - size / 2 + 0.5, width + 3, size - 1);
      g.fillStyle = palette.ink;
      g.fillText(letter, x + dx, y + 0.5);
    }
  }

  /** Who waits, one column a step: its height is the number waiting. */
  _queue(g, most, counted, palette) {
    const { run, focus } = this.app;
    counted.waiting = run.numWaiting.reduce((a, b) => a + b, 0);
    if (!most) return;
    const base = this.surface.h;
    const unit = (this.queueHeight - 4) / most;
    let i = 0;
    while (i < run.length) {
      const n = run.numWaiting[i];
      let j = i + 1;
      while (j < run.length && run.numWaiting[j] === n && run.events[j].step === run.events[j - 1].step + 1) j += 1;
      if (n) {
        g.globalAlpha = focus ? 0.2 : 0.75;
        g.fillStyle = palette.soft;
        g.fillRect(this.left(i), base - n * unit, Math.max(0.6, this.right(j - 1) - this.left(i)), n * unit);
      }
      i = j;
    }
    if (focus) {
      const colours = palette.of(focus);
      g.globalAlpha = 1;
      g.fillStyle = colours.solid;
      for (const [from, to] of focus.waits) {
        if (from >= run.length) continue;
        const end = Math.min(to, run.length - 1);
        if (end >= from) g.fillRect(this.left(from), base - 5, Math.max(1, this.right(end) - this.left(from)), 5);
      }
    }
    g.globalAlpha = 1;
  }

  _ground(gap) {
    const { surface, ground } = this;
    const { run, palette } = this.app;
    [ground.width, ground.height] = [surface.canvas.width, surface.canvas.height];
    const g = ground.getContext("2d");
    g._font = null;
    g.setTransform(surface.d, 0, 0, surface.d, 0, 0);
    g.fillStyle = palette.empty;
    for (let lane = 0; lane < run.numLanes; lane += 1) g.fillRect(GUTTER, this.axis + lane * this.pitch + gap / 2, surface.w - GUTTER, Math.max(1, this.pitch - gap));
    this._axis(g);
    if (this.pitch >= 9) {
      g.textBaseline = "middle";
      const every = Math.ceil(this.font / this.pitch);
      for (let lane = 0; lane < run.numLanes; lane += every) g.fillText(String(lane), 6, this.axis + (lane + 0.5) * this.pitch);
    }
    if (!this.queueHeight) return;
    const y = surface.h - this.queueHeight / 2; // three short lines: a queue
    for (const dy of [-4, 0, 4]) g.fillRect(6, y + dy - 0.5, 9, 1.5);
  }

  _axis(g) {
    const { run, palette } = this.app;
    setFont(g, `${this.font}px ${palette.sans}`);
    g.textBaseline = "alphabetic";
    g.fillStyle = palette.soft;
    const span = (this.surface.w - GUTTER) / this.per;
    const unit = roundUnit(span, Math.max(3, this.surface.w / (this.clock ? 110 : 70)), !this.clock);
    const first = this.clock ? 0 : Math.ceil(this.start / unit) * unit - this.start;
    for (let n = 0; ; n += 1) {
      const v = first + n * unit;
      const x = GUTTER + v * this.per;
      if (x > this.surface.w - 14) break;
      g.fillText(this.clock ? clockLabel(v, span) : String(this.start + v), x, this.font - 1);
    }
    // arrivals (thin) and finishes (thick) end on the lanes
    for (let i = 0; i < run.length; i += 1) {
      const e = run.events[i];
      if (e.arrived.length) g.fillRect(this.left(i), this.axis - 5, 1, 4);
      if (e.finished.length) g.fillRect((this.left(i) + this.right(i)) / 2 - 1, this.axis - 7, 2.5, 6);
    }
  }

  _key(c) {
    const parts = [plural(c.prefill, "prefill"), `${c.decode} decode`];
    if (c.wasted) parts.push(`${c.wasted} wasted${c.overrun ? ` (${c.overrun} overrun)` : ""}`);
    if (c.stalled) parts.push(`${c.stalled} stalled`);
    if (c.preempted) parts.push(`${c.preempted} preempted`);
    this.summary = `${parts.join(", ")} lane-steps`;
    for (const [name, n] of [["waste", c.wasted - c.overrun], ["overrun", c.overrun], ["stalled", c.stalled], ["gone", c.preempted], ["idle", this.idle]]) if (this.legend[name]) this.legend[name].hidden = !n;
    setAttr(this.canvas, "aria-label", `Lanes over time: ${this.summary}`);
  }

  draw(frame) {
    const { app, surface } = this;
    if (!surface.visible) return;
    const { run } = app;
    const { palette } = app;
    const stamp = `${run.length}/${surface.w}x${surface.h}@${surface.d}/${app.focus ? app.focus.index : ""}/${this.clock}/${palette.dark}/${run.complete}/${app.presenter}`;
    if (stamp !== this._stamp || this._run !== run || this._palette !== palette) {
      [this._stamp, this._run, this._palette] = [stamp, run, palette];
      this._paint();
    }
    const g = surface.begin();
    const { d } = surface;
    const now = this.right(frame.i);
    g.drawImage(this.ground, 0, 0, surface.w, surface.h);
    const cut = clamp(Math.round(now * d), 1, surface.canvas.width);
    g.drawImage(this.chart, 0, 0, cut, surface.canvas.height, 0, 0, cut / d, surface.h);
    if (cut < surface.canvas.width) {
      g.globalAlpha = 0.22;
      g.drawImage(this.chart, cut, 0, surface.canvas.width - cut, surface.canvas.height, cut / d, 0, surface.w - cut / d, surface.h);
      g.globalAlpha = 1;
    }
    const x = (this.left(frame.i) + this.right(frame.i)) / 2;
    if (this._x !== x) {
      this._x = x;
      this.head.style.transform = `translateX(${x.toFixed(2)}px)`;
    }
    const e = frame.event;
    const idle = run.idleBefore(frame.i);
    const waited = !idle || !idle.worth ? "" : idle.forHost ? `device waited ${milliseconds(idle.seconds)} for the host, ` : `device idle ${milliseconds(idle.seconds)}, `;
    setText(this.key, `${waited}step ${e.step} took ${milliseconds(e.tEnd - e.tStart)}`);
  }

  setClock(on) {
    this.clock = on;
    this._stamp = null;
    this.app.redraw();
  }

  // -- pointing ------------------------------------------------------------------------------------------------------

  hit(x, y) {
    const { run } = this.app;
    if (!run || !run.length || x < GUTTER - 2 || y < this.axis) return null;
    const i = this.indexAt(x);
    const e = run.events[i];
    const gap = this.clock && i + 1 < run.length && x > this.right(i) ? run.idleBefore(i + 1) : null;
    if (gap) return { request: null, lines: [[idleWords(gap, run.stepOf(i + 1))]] };
    const when = `step ${e.step}`;
    const lane = Math.floor((y - this.axis) / this.pitch);
    if (lane >= run.numLanes) return { request: null, lines: [[`${when}: ${plural(run.numWaiting[i], "request")} waiting`]] };
    const status = run.statuses[i][lane] || 0;
    const stay = run.holders[i][lane] ?? -1;
    if (stay < 0) return { request: null, lines: [[`lane ${lane} is free in ${when}`]] };
    const { request } = run.stays[stay];
    const what = status & OVERRUN ? "overrun: it had stopped when this step was already launched, computed for nothing" : status & WASTED ? "finished; its row is computed as padding until the wave ends"
      : (status & PREFILL) && (status & DECODE) ? "prefill, then its first decode" : status & PREFILL ? "prefill" : status & DECODE ? "decode" : status & STALLED ? "stalled, nothing computed" : "nothing computed; it had stopped, and its lane falls free after this step";
    const lines = [[{ request }, ` lane ${lane}, ${when}: ${what}`]];
    const gone = e.preempted.find((p) => p.lane === lane);
    if (gone) lines.push([{ request: run.request(gone.request) }, ` was preempted here and lost ${plural(gone.tokensLost, "cached token")}`]);
    return { request, lines };
  }

  _scrub() {
    const area = this.canvas.parentElement;
    const seek = (e) => {
      const r = this.canvas.getBoundingClientRect();
      this.app.scrub(this.indexAt(clamp(e.clientX - r.left, GUTTER, r.width)));
    };
    area.addEventListener("pointerdown", (e) => {
      if (e.button || !this.app.run) return;
      area.setPointerCapture(e.pointerId);
      this._dragging = true;
      this.app.hover(null);
      seek(e);
    });
    area.addEventListener("pointermove", (e) => {
      if (this._dragging) seek(e);
    });
    const end = () => {
      if (this._dragging) {
        this._dragging = false;
        this.app.scrubbed();
      }
    };
    area.addEventListener("pointerup", end);
    area.addEventListener("pointercancel", end);
  }

  get dragging() {
    return Boolean(this._dragging);
  }

  table(frame) {
    const words = (s) => [[PREEMPTED, "preempted"], [PREFILL, "prefill"], [DECODE, "decode"], [WASTED, "wasted"], [OVERRUN, "overrun"], [STALLED, "stalled"]]
      .filter(([bit]) => s & bit).map(([, word]) => word).join(", ") || "idle";
    const { run } = this.app;
    return {
      caption: `Lanes in step ${frame.event.step}. Whole run: ${this.summary || ""}`,
      columns: ["Lane", "Request", "Since step", "This step"],
      rows: frame.lanes.map((l) => [String(l.lane), l.request ? l.request.letter : "free", l.stay ? String(run.stepOf(l.stay.from)) : "", l.request || l.status ? words(l.status) : ""]),
    };
  }
}
