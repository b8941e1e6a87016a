// The lanes in Simple: they scroll past a fixed "now", and cells say what was read and written in
// them. They can be dragged, and pressing a cell goes to its step; the small picture of the whole
// run beside them is the scrubber (lanes.js).

import { clamp, canvasIn, onDrag, setAttr, setStyle } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { measure, setFont, strokeBox } from "../parts/surface.js";
import { windowScale } from "../run/lane_layout.js";
import { LaneChart } from "./lane_chart.js";
import { easeOut, movingIn, phase } from "./phases.js";

const PAST = 0.3; // share of the width that is left of now
const DRAG = 4; // pixels; a shorter movement is a press

export class StripView extends LaneChart {
  /** @type {Phase[]} */
  moves = ["lane"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(canvasIn(panel, ".strip canvas"), actions.redraw);
    /** @type {ViewState | null} */
    this.state = null; // the state drawn last
    this.panel = panel;
    this.actions = actions;
    this.dragging = false;
    this._drag();
  }

  /** @param {ViewState} state */
  draw(state) {
    this.state = state;
    if (!state.simple || !this.surface.visible) return;
    const { run, frame, share = 1 } = state;
    setStyle(this.panel, "--lane-count", String(run.numLanes));
    const stamp = `${state.language}/${state.presenter}/${state.layout}/${frame.i}/${share}`;
    const come = movingIn(state) ? easeOut(phase(share, "lane")) : 1;
    const layout = () => this._layout(state, Math.max(0, frame.i - 1 + come));
    this.paint(state, stamp, layout, (g) => this._now(g, state));
    setStyle(this.panel, "--now-ends", `${this.now + this.scale.per + 1}px`);
    const g = this.show(this.now + this.scale.per, 0.3);
    const { now, axis } = this;
    const { ink } = state.palette;
    strokeBox(g, ink, 2, now - 1, axis - 1, this.scale.per + 1, this.surface.h - axis);
    const inLanes = frame.lanes.map(({ request }) => request?.letter ?? t("free")).join(", ");
    setAttr(this.canvas, "aria-label", `${t("Lanes around this step")}: ${inLanes}`);
  }

  /** Where "now" begins, in pixels. */
  get now() {
    const { w } = this.surface;
    return Math.round((w * PAST) / this._per) * this._per;
  }

  /** The width of a step in pixels, about that of a word. */
  get _per() {
    const { presenter, layout } = /** @type {ViewState} */ (this.state);
    return presenter ? 92 : layout === "phone" ? 44 : 56;
  }

  /** @param {ViewState} state @param {number} at @returns {LaneLayout} */
  _layout({ run, presenter, frame, share = 1 }, at) {
    const axis = presenter ? 28 : 18;
    const room = Math.floor((this.surface.h - axis) / run.numLanes) - 5;
    return {
      scale: windowScale(run, at, this.now, this._per),
      axis,
      font: presenter ? 20 : 12,
      end: this.surface.w,
      gutter: 0,
      words: Math.min(presenter ? 20 : 13, Math.max(11, room)),
      until: share < 1 ? frame.i - 1 : frame.i,
      queue: false,
    };
  }

  /** @param {Ink} g @param {ViewState} state */
  _now(g, { palette }) {
    const word = t("now");
    setFont(g, `600 ${this.font}px ${palette.sans}`);
    g.fillStyle = palette.ink;
    g.fillText(word, this.now + (this._per - measure(g, word)) / 2, this.axis - 6);
  }

  /** Dragging moves the run past "now"; a press goes to the step under the pointer. */
  _drag() {
    let moved = false;
    onDrag(
      this.canvas,
      ({ clientX: x }) => {
        const { state } = this;
        if (!state) return null;
        const { index, run } = state;
        [moved, this.dragging] = [false, true];
        this.actions.hover(null);
        return ({ clientX }) => {
          moved ||= Math.abs(clientX - x) > DRAG;
          const to = clamp(index - Math.round((clientX - x) / this._per), 0, run.length - 1);
          if (moved && to !== this.state?.index) this.actions.scrub(to);
        };
      },
      (e) => {
        this.dragging = false;
        const index = this.indexUnder(e);
        if (e.type === "pointerup" && !moved && index !== null) this.actions.scrub(index);
      },
    );
  }
}
