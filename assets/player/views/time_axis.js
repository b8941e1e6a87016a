// The strip above charts that share an axis: labels at round distances. Draws on a surface of its own; knows no run.

import { clockLabel, roundUnit } from "../run/axis.js";
import { measure, setFont } from "../parts/surface.js";
import { t } from "../parts/speech.js";
import { GUTTER } from "./lane_chart.js";

/**
 * @param {import("../parts/surface.js").Surface} surface
 * @param {Palette} palette
 * @param {{span: number, per: number, clock: boolean, font: number, from?: number}} axis span: seconds or steps; per: pixels for each; font: its size; from: where it begins
 */
export function drawTimeAxis(surface, palette, { span, per, clock, font, from = 0 }) {
  const g = surface.begin();
  setFont(g, `${font}px ${palette.sans}`);
  g.fillStyle = palette.soft;
  g.textBaseline = "middle";
  const unit = roundUnit(span, Math.max(2, surface.w / 110), !clock);
  for (let i = Math.ceil(from / unit - 1e-9); i * unit <= from + span + 1e-9; i += 1) {
    const v = i * unit;
    const x = GUTTER + (v - from) * per;
    const label = t(clock ? clockLabel(v, span) : String(v));
    if (x + measure(g, label) <= surface.w) g.fillText(label, x, surface.h / 2);
  }
}
