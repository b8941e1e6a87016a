// The lanes of all ranks, one below the other on one clock, with one playhead in time. Each rank's
// step at that moment is marked, and a sentence above its lanes says what happens in it. A click on
// a step opens that rank there.

import { canvasIn, find, h, isRedrawn, newButton, onDrag, pointIn, setAttr } from "../parts/dom.js";
import { count, duration } from "../parts/format.js";
import { plain, spans } from "../parts/chips.js";
import { t, tell } from "../parts/speech.js";
import { strokeBox, Surface } from "../parts/surface.js";
import { indexAt, laneScale } from "../run/lane_layout.js";
import { busy, stepAt, stretch } from "../run/moments.js";
import { drawTimeAxis, LaneChart, lanesWords } from "./lane_chart.js";
import { GUTTER } from "./lane_ink.js";

const STRIP = 9; // pixels above a rank's lanes, with ticks where requests arrive and finish

/** A rank's number, or the name of its engine if there are several. @param {Rank} member */
const titleOf = (member) => member.name || t(`Rank ${member.rank}`);

/** One rank's lanes and the sentence above them. */
class Band {
  /** @param {RankLanes} view @param {Rank} member */
  constructor(view, member) {
    this.view = view;
    this.member = member;
    /** @type {RunRequest[] | null} */
    this.focus = null;
    this.pill = h("span", { class: "pill" });
    this.sentence = h("span", { class: "band-say clip" });
    this.share = h("span", {
      class: "band-busy fixed soft fine mono end",
      title: t("The share of the time shown in which this rank computes steps"),
    });
    const canvas = h("canvas", { role: "img" });
    this.stage = h("div", { class: "canvas" }, canvas);
    const title = t(
      member.name ? "This engine alone, at this moment" : "This rank alone, at this moment",
    );
    const onclick = () => view.actions.chooseRank(member);
    const button = newButton({ class: "mini", title, onclick }, titleOf(member));
    this.el = h(
      "section",
      { class: "band stack", "data-rank": String(member.rank) },
      h("h4", { class: "flex spaced nowrap plain" }, button, this.pill, this.sentence, this.share),
      this.stage,
    );
    this.chart = new LaneChart(canvas, view.actions.redraw);
    /** @type {{at?: string, length?: number, language?: string, from?: number, span?: number}} */
    this._said = {};
    this.at = { i: -1, inside: false }; // the current step
  }

  get run() {
    return this.member.run;
  }

  /** The current step, for `spans`. */
  get index() {
    return this.at.i;
  }

  /**
   * The rank's place in words: in a step, between two, before its first, after its last. A run's
   * own sentences are translated already.
   */
  words() {
    const { run } = this;
    const { i, inside } = this.at;
    if (inside) {
      const caption = run.captionAt(i);
      const say = (this.view.state?.simple && caption?.simple) || caption?.say || [];
      return { pill: `step ${run.stepOf(i)}`, say };
    }
    if (!run.length) return { pill: "idle", say: [t("It has no steps.")] };
    const before = i < 0 ? 0 : stretch(this.member, i)[1];
    const after = i + 1 < run.length ? stretch(this.member, i + 1)[0] : null;
    const last = run.stepOf(i);
    if (after !== null && i < 0)
      return { pill: "idle", say: [t(`Its first step begins at ${duration(after)}.`)] };
    if (after !== null) {
      const next = run.stepOf(i + 1);
      const gap = `Nothing for ${duration(after - before)} between step ${last} and step ${next}.`;
      return { pill: "idle", say: [t(gap)] };
    }
    if (run.goesOn)
      return { pill: "so far", say: [t(`Nothing is recorded after step ${last} so far.`)] };
    return run.complete
      ? { pill: "idle", say: [t(`Nothing after step ${last}.`)] }
      : { pill: "over", say: [t(`Its recording breaks off after step ${last}.`)] };
  }

  /** @param {ViewState & {ranks: RanksState}} state @param {number} per pixels per second */
  draw(state, per) {
    const { ranks, palette, presenter, layout } = state;
    const { member, run, chart, view } = this;
    this.at = stepAt(member, ranks.now);
    this._say(state);
    const { surface } = chart;
    if (!surface.visible || !run.length) return;
    const place = () => {
      const scale = laneScale(run, true, view.x(stretch(member, 0)[0]), per);
      return {
        scale,
        axis: STRIP,
        font: presenter ? 16 : layout === "phone" ? 12 : 11,
        end: run.complete ? surface.w : scale.to(run.length - 1),
      };
    };
    const stamp = `${per}/${ranks.from}/${presenter}/${layout}`;
    const shown = { run, palette, focus: this.focus, presenter };
    chart.paint(shown, stamp, place, (g) => this._ticks(g));
    const g = chart.show(view.x(ranks.now));
    if (this.at.inside) this._mark(g, palette);
  }

  /** @param {ViewState & {ranks: RanksState}} state */
  _say({ ranks, simple, language }) {
    const { member, run } = this;
    const { from, span } = ranks; // they change as the other ranks go on
    if (isRedrawn(this._said, { length: run.length, language, from, span })) {
      const steps = `${count(run.length)} [step|steps]`;
      const heard = member.name
        ? t(`Lanes of {name}, ${steps}`, { name: member.name })
        : t(`Lanes of rank ${member.rank}, ${steps}`);
      setAttr(this.chart.canvas, "aria-label", heard);
      tell(this.share, `busy ${Math.round(100 * busy(member, from, span))} %`);
    }
    const { pill, say } = this.words();
    const at = JSON.stringify([this.at, run.stepOf(this.at.i), run.length, simple, language]);
    if (!isRedrawn(this._said, { at })) return;
    tell(this.pill, pill);
    this.pill.classList.toggle("off", !this.at.inside);
    const holders = run.holders[this.at.i] || [];
    const held = new Set(holders.map((laneSpan) => run.laneSpans[laneSpan]?.request));
    this.sentence.replaceChildren(...spans(this, say, (r) => held.has(r)));
    // here the attribute would name a request of the run on screen
    for (const chip of this.sentence.children) chip.removeAttribute("data-request");
    this.sentence.title = this.sentence.textContent;
  }

  /** @param {Ink} g */
  _ticks(g) {
    const { scale } = this.chart;
    this.run.events.forEach((e, i) => {
      if (scale.from(i) < GUTTER) return;
      if (e.arrived.length) g.fillRect(scale.from(i), STRIP - 5, 1, 4);
      if (e.finished.length) g.fillRect(scale.to(i) - 2.5, STRIP - 7, 2.5, 6);
    });
  }

  /** Frame the current step across the rank's lanes. @param {Ink} g @param {Palette} palette */
  _mark(g, palette) {
    const { scale, pitch } = this.chart;
    const left = Math.max(scale.from(this.at.i), GUTTER);
    const width = Math.max(3, scale.to(this.at.i) - left);
    const height = this.run.numLanes * pitch;
    strokeBox(g, palette.ink, 1.5, left - 1, STRIP - 1, width + 2, height + 2);
  }

  /** {step, request, lines} at a point; step: null in a gap. @param {number} x @param {number} y */
  hit(x, y) {
    const { scale } = this.chart;
    if (!this.chart.painted?.run.length || x < GUTTER) return null;
    const i = indexAt(this.run, scale, x);
    const { name, rank } = this.member;
    if (x < scale.from(i) || x > scale.to(i) + 1) {
      const line = name
        ? [name, ": ", "nothing is computed here"]
        : [`rank ${rank} computes nothing here`];
      return { step: null, request: null, lines: [line] };
    }
    const found = this.chart.hit(x, y);
    const [line, ...more] = found?.lines || [[`step ${this.run.stepOf(i)}`]];
    return {
      step: i,
      request: found && found.request,
      lines: [[name ? `${name}: ` : `rank ${rank}: `, ...line], ...more],
    };
  }
}

export class RankLanes {
  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    /** @type {ViewState & {ranks: RanksState} | null} */
    this.state = null; // the state drawn last; null if not all ranks are on screen
    this.actions = actions;
    this.key = find(panel, ".key");
    this.area = find(panel, ".ranks-area");
    this.slider = find(panel, ".rank-axis");
    this.head = find(panel, ".playhead");
    this.bandsBox = find(panel, ".bands");
    this.axis = new Surface(canvasIn(panel, ".rank-axis canvas"), actions.redraw);
    this.surface = { canvas: this.area }; // the part that a table replaces
    /** @type {Band[]} */
    this.bands = [];
    /** @type {readonly Rank[]} */
    this._members = []; // the ranks that have these bands
    /** @type {RunRequest | null} */
    this._lit = null;
    this._point();
  }

  /** Pixels per second. */
  get per() {
    return Math.max(1, this.axis.w - GUTTER - 2) / (this.state?.ranks.room || 1);
  }

  /** The x of a moment. @param {number} moment */
  x(moment) {
    return GUTTER + (moment - (this.state?.ranks.from || 0)) * this.per;
  }

  /** @param {ViewState} state */
  draw(state) {
    const { ranks, presenter, layout, palette } = state;
    this.state = ranks && { ...state, ranks };
    if (!ranks || !this.state || !this.axis.visible) return;
    if (this._members !== ranks.members) {
      this._members = ranks.members;
      this.bands = ranks.members.map((member) => new Band(this, member));
      this.bandsBox.replaceChildren(...this.bands.map((band) => band.el));
      this.bandsBox.style.setProperty("--bands", String(this.bands.length));
    }
    const { per } = this;
    for (const band of this.bands) band.draw(this.state, per);
    const head = this.x(ranks.now);
    drawTimeAxis(this.axis, palette, {
      span: ranks.room,
      from: ranks.from,
      per,
      clock: true,
      font: presenter ? 18 : layout === "phone" ? 12 : 11,
      head,
    });
    this.head.style.transform = `translateX(${head.toFixed(2)}px)`;
    tell(this.key, ranks.readout);
    setAttr(this.slider, "aria-valuemin", ranks.from.toFixed(3));
    setAttr(this.slider, "aria-valuemax", ranks.span.toFixed(3));
    setAttr(this.slider, "aria-valuenow", ranks.now.toFixed(3));
    setAttr(this.slider, "aria-valuetext", ranks.readout);
  }

  // -- pointing ----------------------------------------------------------------------------------

  _point() {
    const { area, actions } = this;
    const moment = (/** @type {PointerEvent} */ e) =>
      (this.state?.ranks.from || 0) + (pointIn(area, e)[0] - GUTTER) / this.per;
    /** @type {ReturnType<RankLanes["_found"]>} */
    let pressed = null; // what was pressed, until the pointer is dragged
    onDrag(
      area,
      (e) => {
        if (/** @type {HTMLElement} */ (e.target).closest("h4")) return null;
        let dragged = false;
        pressed = this._found(e);
        this._light(null);
        if (!pressed || pressed.step === null) actions.hold(moment(e));
        return (now) => {
          dragged ||= Math.abs(now.clientX - e.clientX) > 5;
          if (!dragged) return;
          pressed = null;
          actions.hold(moment(now));
        };
      },
      ({ type }) => {
        if (type === "pointerup" && pressed && pressed.step !== null)
          actions.chooseRank(pressed.member, pressed.step);
      },
    );
    area.addEventListener("pointermove", (e) => {
      if (!area.hasPointerCapture(e.pointerId) && e.pointerType !== "touch")
        this._light(this._found(e), e);
    });
    area.addEventListener("pointerleave", () => this._light(null));
  }

  /** What is under the pointer, and in which rank. @param {PointerEvent} e */
  _found(e) {
    const band = this.bands.find((b) => b.stage.contains(/** @type {Node} */ (e.target)));
    if (!band) return null;
    const found = band.hit(...pointIn(band.stage, e));
    return found && { ...found, member: band.member };
  }

  /**
   * Highlight one request and dim the others of all ranks. @param {{request: RunRequest | null,
   * lines: Span[][]} | null} found @param {PointerEvent | null} e
   */
  _light(found, e = null) {
    this.actions.explain(found && found.lines, e?.clientX, e?.clientY);
    const request = found && found.request;
    if (request === this._lit) return;
    this._lit = request;
    for (const band of this.bands) band.focus = request && [request];
    this.actions.redraw();
  }

  /** @param {ViewState} state */
  table({ ranks }) {
    if (!ranks) return { caption: "", columns: [], rows: [] };
    return {
      caption: t(`All ranks at ${ranks.readout}`),
      columns: ["Rank", "Step", "Lanes", "Waiting", "What happens"],
      rows: this.bands.map((band) => {
        const { i, inside } = stepAt(band.member, ranks.now);
        const { pill, say } = band.words();
        const { run } = band;
        return [
          band.member.name || String(band.member.rank),
          inside ? String(run.stepOf(i)) : t(pill),
          inside ? lanesWords(run, i) : "",
          i < 0 ? "0" : String(run.numWaiting[i]),
          plain(band, say),
        ];
      }),
    };
  }
}
