// A figure's lanes: the page's own chart over all steps of the run, with the playhead at the moment
// shown. Dragging changes the moment.

import { LaneChart } from "../views/lane_chart.js";
import { GUTTER } from "../views/lane_ink.js";
import { canvasIn, onDrag, setAttr } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { clockLabel, laneScale, roundUnit } from "../run/lane_layout.js";
import { fillBox, measure } from "../parts/surface.js";

const AXIS = 18; // pixels above the lanes
const WORDS = 11; // the font size of tokens in cells
const ROOM = 22; // pixels that a step needs for its tokens

export class FigureLanes extends LaneChart {
  /**
   * @param {HTMLElement} panel
   * @param {ViewActions} actions
   * @param {number} columns steps, or seconds, that the axis has room for; 0: as many as the run
   * has
   * @param {boolean} future whether later steps are drawn, pale
   */
  constructor(panel, actions, columns, future) {
    super(canvasIn(panel), actions.redraw);
    this.columns = columns;
    this.future = future;
    const seek = (/** @type {PointerEvent} */ e) => {
      const index = this.indexUnder(e);
      if (index !== null) actions.scrub(index);
    };
    onDrag(this.canvas, (e) => {
      seek(e);
      return seek;
    });
  }

  /** @param {ViewState} state */
  draw(state) {
    const { run, clock, palette, index, share = 1 } = state;
    if (!this.surface.visible) return;
    const span = Math.max(this.columns, run.span(clock));
    const per = (this.surface.w - GUTTER - 2) / span;
    const layout = () => ({
      scale: laneScale(run, clock, GUTTER, per),
      axis: AXIS,
      font: 12,
      end: GUTTER + run.span(clock) * per,
    });
    const words = per >= ROOM && !clock;
    this.paint(
      state,
      `${clock}/${this.columns}/${state.language}/${words ? index : ""}`,
      () => ({ ...layout(), words: words ? WORDS : 0, until: index }),
      (g) => stepMarks(g, this.scale, span, this.surface.w),
    );
    const from = this.scale.from(index);
    const x = from + (this.scale.to(index) - from) * share;
    const g = this.show(x, this.future ? undefined : 0);
    fillBox(g, palette.ink, x - 1, AXIS - 4, 2, this.surface.h);
    g.beginPath();
    g.arc(x, AXIS - 4, 5, 0, 7);
    g.fill();
    const [step, last] = [run.stepOf(index), run.stepOf(run.length - 1)];
    setAttr(this.canvas, "aria-label", t(`Lanes over time: step ${step} of ${last}`));
  }
}

/**
 * Draw the labels of an axis.
 * @param {Ink} g @param {LaneScale} scale @param {number} span @param {number} w pixels available
 * @param {number} covered the x of something drawn over the axis, beside which there is no label
 */
export function stepMarks(g, scale, span, w, covered = -99) {
  const { clock, start, per } = scale;
  const unit = roundUnit(span, Math.max(3, w / 90), !clock);
  for (let v = clock ? 0 : Math.ceil(start / unit) * unit - start; v <= span; v += unit) {
    const label = clock ? t(clockLabel(v, span)) : String(start + v);
    const x = GUTTER + v * per;
    const end = x + measure(g, label);
    if (end <= w && (end < covered - 9 || x > covered + 9)) g.fillText(label, x, 11);
  }
}
