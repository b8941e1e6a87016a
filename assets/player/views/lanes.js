// The Watch tab's lanes over time: one chart whose playhead is the scrubber, over steps or over
// measured time. In a pair of runs, the other run's chart is above or below it on the same axis.

import { clockLabel, indexAt, laneScale, roundUnit } from "../run/lane_layout.js";
import { canvasIn, find, onDrag, pointIn, setAttr, setStyle, setText } from "../parts/dom.js";
import { speaking, t } from "../parts/speech.js";
import { count, duration, milliseconds, momentOf, wallClock } from "../parts/format.js";
import { fillBox, measure, setFont } from "../parts/surface.js";
import { slowSteps } from "../run/delays.js";
import { covered, doneIn, knobAt, LaneChart } from "./lane_chart.js";
import { GUTTER } from "./lane_ink.js";
import { timed } from "./texts.js";
import { easeOut, lerp, movingIn, phase } from "./phases.js";

export class LanesView extends LaneChart {
  /** @type {Phase[]} */
  moves = ["lane"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(canvasIn(panel, ".scrubber canvas"), actions.redraw);
    /** @type {ViewState | null} */
    this.state = null; // the state drawn last
    this.actions = actions;
    this.key = find(panel, ".key");
    this.head = find(panel, ".playhead");
    this.panel = panel;
    this.otherBox = find(panel, ".other-lanes");
    this.other = new LaneChart(canvasIn(panel, ".other-lanes canvas"), actions.redraw);
    this.what = find(panel, ".what-button");
    this._said = 0; // the width of `what`
    new ResizeObserver(() => {
      this._said = this.what.offsetWidth;
      actions.redraw();
    }).observe(this.what);
    /** @type {string[]} */
    this.counts = []; // what lanes did over the whole run, "37 decode"
    this.dragging = false;
    /** @type {ReturnType<typeof slowSteps>} */
    this.slow = new Map();
    /** @type {[string, number, number][]} the axis' numbers: text, first x, last x */
    this.labels = [];
    this._scrub();
    this._turnTo();
  }

  /** @param {ViewState} state @param {Run} run */
  _layout({ clock, pair, presenter, layout, simple }, run) {
    const { w } = this.surface;
    // Simple: a small picture of the whole run, without words, since the strip above has them
    const bare = simple && !pair.charted.length;
    const gutter = bare ? 0 : GUTTER;
    let span = Math.max(1e-9, ...[run, ...pair.charted].map((r) => r.span(clock)));
    // room to grow: the axis doubles now and then, instead of growing with every step
    if (run.goesOn)
      span = clock
        ? span * 1.25
        : Math.max(32, span, Math.min(2 ** Math.ceil(Math.log2(span * 1.05)), run.room));
    return {
      scale: laneScale(run, clock, gutter, (w - gutter - 2) / span),
      gutter,
      queue: !bare,
      axis: bare ? 0 : presenter ? 30 : 18,
      font: presenter ? 20 : layout === "phone" ? 12 : 11,
      end: w,
    };
  }

  /**
   * Draw arrivals (thin ticks) and finishes (thick ticks) just above the lanes; place the labels.
   * @param {Ink} g @param {ViewState} state
   */
  _axis(g, state) {
    this.labels = [];
    if (!this.axis) return;
    const { run, clock } = state;
    const { scale, axis, surface } = this;
    const span = (surface.w - GUTTER) / scale.per;
    const unit = roundUnit(span, Math.max(3, surface.w / (clock ? 110 : 70)), !clock);
    this._slow(g, state);
    const first = clock ? 0 : Math.ceil(scale.start / unit) * unit - scale.start;
    for (let v = first; GUTTER + v * scale.per <= surface.w - 14; v += unit) {
      const label = clock ? t(clockLabel(v, span)) : String(scale.start + v);
      const x = GUTTER + v * scale.per;
      const end = x + measure(g, label);
      if (end <= surface.w) this.labels.push([label, x, end]);
    }
    run.events.forEach((e, i) => {
      if (e.arrived.length) g.fillRect(scale.from(i), axis - 5, 1, 4);
      if (e.finished.length) g.fillRect((scale.from(i) + scale.to(i)) / 2 - 1, axis - 7, 2.5, 6);
    });
  }

  /**
   * Draw the axis' numbers, except those under the playhead's knob or the words beside it.
   * @param {Ink} g @param {Palette} palette @param {[number, number][]} over
   */
  _labels(g, palette, ...over) {
    setFont(g, `${this.font}px ${palette.sans}`);
    g.textBaseline = "alphabetic";
    g.fillStyle = palette.soft;
    g.strokeStyle = palette.panel; // keeps numbers legible over the bars of slow steps
    g.lineWidth = 3;
    for (const [label, x, end] of this.labels) {
      if (covered(x, end, ...over)) continue;
      g.strokeText(label, x, this.font - 1);
      g.fillText(label, x, this.font - 1);
    }
  }

  /**
   * Draw a bar behind the labels for each slow step, as high as the axis from ten times the median
   * on; not over seconds, where the width of a step shows it.
   * @param {Ink} g @param {ViewState} state
   */
  _slow(g, { run, clock, palette }) {
    this.slow = slowSteps(run);
    if (clock) return;
    g.fillStyle = palette.warn;
    g.globalAlpha = 0.45;
    for (const [i, times] of this.slow) {
      const height = this.axis * Math.min(1, Math.log10(times));
      const middle = (this.scale.from(i) + this.scale.to(i)) / 2;
      const width = Math.max(3, this.scale.to(i) - this.scale.from(i) - 1);
      g.fillRect(middle - width / 2, this.axis - height, width, height);
    }
    g.globalAlpha = 1;
    g.fillStyle = palette.soft;
  }

  /** How long a step took, in words. @param {Run} run @param {number} i */
  _took(run, i) {
    const { tStart, tEnd } = run.events[i];
    const times = this.slow.get(i);
    return `step ${run.stepOf(i)} took ${milliseconds(tEnd - tStart)}${times ? `, ${times.toFixed(1)} times the median step` : ""}`;
  }

  /**
   * As in `LaneChart`; on the axis, how long the step took and what is on record about it.
   * @param {number} x @param {number} y @returns {(Found & {lines: Span[][]}) | null}
   */
  hit(x, y) {
    const { painted, scale } = this;
    if (!painted?.run.length || y >= this.axis || x < this.gutter) return super.hit(x, y);
    const { run } = painted;
    const i = indexAt(run, scale, x);
    if (x > scale.to(i) + 1) return super.hit(x, Infinity);
    const step = run.stepOf(i);
    const asSaid = (/** @type {Span} */ span) => (typeof span === "string" ? { said: span } : span);
    const said = (run.delays?.worst || [])
      .filter((one) => one.kind === "gap" && one.step === step)
      .map(({ say }) => (say[speaking()] || say.en).map(asSaid));
    return { request: null, lines: [[this._took(run, i)], ...said] };
  }

  _key() {
    const { counted } = this;
    const { prefill, decode, overrun, stalled, preempted: gone, waiting: waits } = counted;
    const wasted = counted.wasted - overrun;
    this.counts = Object.entries({ prefill, decode, wasted, overrun, stalled, preempted: gone })
      .filter(([, n]) => n)
      .map(([word, n]) => `${n} ${word}`);
    const drawn = { waste: wasted, overrun, stalled, gone, waits, idle: this.idle };
    for (const [name, n] of Object.entries(drawn)) find(this.panel, `.legend-${name}`).hidden = !n;
    setAttr(this.canvas, "aria-label", `${t("Lanes over time, in lane-steps")}: ${this._counts}`);
  }

  /** What the lanes did over the whole run, each with its number of lane-steps. */
  get _counts() {
    return this.counts.map((word) => t(word)).join(", ");
  }

  /** @param {ViewState} state */
  draw(state) {
    const { run, frame, pair } = state;
    this.state = state;
    if (!this.surface.visible) return;
    const stamp = `${state.language}/${state.clock}/${run.complete}/${state.presenter}/${state.layout}/${state.simple}/${pair.charted.map((r) => r.length)}`;
    const layout = () => this._layout(state, run);
    if (this.paint(state, stamp, layout, (g) => this._axis(g, state))) this._key();
    const said = this._said;
    const come = movingIn(state) ? easeOut(phase(state.share, "lane")) : 1;
    const last = Math.max(0, frame.i - 1);
    const right = lerp(this.scale.to(last), this.scale.to(frame.i), come);
    const g = this.show(right);
    const middle = (/** @type {number} */ i) => (this.scale.from(i) + this.scale.to(i)) / 2;
    const x = lerp(middle(last), middle(frame.i), come);
    const side = x + 9 + said > this.surface.w ? x - 8 - said : x + 9;
    this._labels(g, state.palette, knobAt(x), [side, side + said]);
    this._parting(state, this, run, g);
    setStyle(this.head, "transform", `translateX(${x.toFixed(2)}px)`);
    setStyle(this.what, "transform", `translateX(${side.toFixed(2)}px)`);
    if (pair.other && pair.charted.length) this._drawOther(state, pair.other, stamp, right, x);
    if (state.simple) {
      const now = frame.event.tEnd - run.events[0].tStart;
      setText(this.key, timed(run, run.complete ? momentOf(now, run.span(true)) : wallClock(now)));
    } else setText(this.key, `${idleWords(run, frame.i)}${timed(run, this._took(run, frame.i))}`);
  }

  /**
   * Draw the other run of a pair up to the same moment: the original above, the changed one below.
   * @param {ViewState} state @param {{run: Run, name: () => string}} member @param {string} stamp @param
   * {number} right @param {number} x
   */
  _drawOther(state, member, stamp, right, x) {
    const { other } = this;
    const { pair, palette, focus, presenter } = state;
    const at = pair.members.indexOf(member);
    this.otherBox.style.order = at === 0 ? "-1" : "1";
    if (!other.surface.visible) return;
    const { run, name } = member;
    // the same requests as in the run on screen
    const lit = focus && focus.map((r) => run.request(r.id)).filter(Boolean);
    const layout = () => this._layout(state, run);
    other.paint({ run, palette, focus: lit, presenter }, `${stamp}/${at}`, layout, (g) => {
      const title = `${name()}: ${t(`${count(run.length)} [step|steps]`)}, ${t(duration(run.span(true)))}`;
      g.fillText(title, other.surface.w - measure(g, title), other.font - 1);
    });
    const g = other.show(right);
    this._parting(state, other, run, g);
    fillBox(g, palette.ink, x - 1, 0, 2, other.surface.h);
    setAttr(other.canvas, "aria-label", `${t("Lanes of the other run")}, ${name()}`);
  }

  /**
   * Draw a dashed line where the runs of a pair diverge.
   * @param {ViewState} state @param {LaneChart} chart @param {Run} run @param {Ink} g
   */
  _parting({ pair: { step, charted }, palette }, chart, run, g) {
    if (step === null || !charted.includes(run)) return;
    const x = chart.scale.from(run.indexOf(step));
    g.strokeStyle = palette.warn;
    g.lineWidth = 2;
    g.setLineDash([4, 3]);
    g.beginPath();
    g.moveTo(x, 4);
    g.lineTo(x, chart.surface.h);
    g.stroke();
    g.setLineDash([]);
  }

  // -- pointing ----------------------------------------------------------------------------------

  _scrub() {
    const seek = (/** @type {PointerEvent} */ e) => this.actions.scrub(this.indexUnder(e) ?? 0);
    onDrag(
      /** @type {HTMLElement} */ (this.canvas.parentElement),
      (e) => {
        if (!this.painted) return null;
        this.dragging = true;
        this.actions.hover(null);
        seek(e);
        return seek;
      },
      () => {
        this.dragging = false;
        this.actions.redraw();
      },
    );
  }

  /** Let a click on the other run's lanes put that run on screen, at that moment. */
  _turnTo() {
    this.otherBox.addEventListener("click", (e) => {
      const run = this.state?.pair.other?.run;
      if (!run) return;
      const [x] = pointIn(this.otherBox, e);
      this.actions.turnTo(run.stepOf(indexAt(run, this.other.scale, x)));
    });
  }

  /** @param {ViewState} state */
  table({ run, frame }) {
    const whole = `${t("The whole run, in lane-steps")}: ${this._counts}`;
    return lanesTable(run, frame, `${t(`Lanes in step ${frame.event.step}`)}. ${whole}`);
  }

  /** The other run's lanes in the same step. @param {ViewState} state */
  besideTable({ frame: { event }, pair: { other } }) {
    if (!other) return { caption: t("There is no other run"), columns: [], rows: [] };
    const { run } = other;
    const lanes = `${t("Lanes of the other run")}, ${other.name()}`;
    const i = run.indexOf(event.step);
    if (run.stepOf(i) !== event.step)
      return { caption: `${lanes}: ${t(`it has no step ${event.step}`)}`, columns: [], rows: [] };
    return lanesTable(run, run.frame(i), `${lanes}: ${t(`step ${event.step}`)}`);
  }
}

/** What the device of an asynchronous run did before step i. @param {Run} run @param {number} i */
function idleWords(run, i) {
  const idle = run.idleBefore(i);
  if (!idle?.worth) return "";
  const long = milliseconds(idle.seconds);
  return t(idle.forHost ? `device waited ${long} for the host, ` : `device idle ${long}, `);
}

/** @param {Run} run @param {Frame} frame @param {string} caption */
function lanesTable(run, frame, caption) {
  return {
    caption,
    columns: ["Lane", "Request", "Since step", "This step"],
    rows: frame.lanes.map((l) => [
      String(l.lane),
      l.request ? l.request.letter : t("free"),
      l.laneSpan ? String(run.stepOf(l.laneSpan.from)) : "",
      l.request || l.status ? doneIn(l) : "",
    ]),
  };
}
