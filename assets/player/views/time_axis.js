// The strip above charts that share an axis: labels at round distances. Draws on a surface of its own; knows no run.

import { clockLabel, roundUnit } from "../run/axis.js";
import { measure, setFont } from "../parts/surface.js";
import { GUTTER } from "./lane_chart.js";

/**
 * @param {import("../parts/surface.js").Surface} surface
 * @param {Palette} palette
 * @param {{span: number, per: number, clock: boolean, font: number}} axis span: seconds or steps; per: pixels for each; font: its size
 */
export function drawTimeAxis(surface, palette, { span, per, clock, font }) {
  const g = surface.begin();
  setFont(g, `${font}px ${palette.sans}`);
  g.fillStyle = palette.soft;
  g.textBaseline = "middle";
  const unit = roundUnit(span, Math.max(2, surface.w / 110), !clock);
  for (let i = 0; i * unit <= span + 1e-9; i += 1) {
    const v = i * unit;
    const label = clock ? clockLabel(v, span) : String(v);
    if (GUTTER + v * per + measure(g, label) <= surface.w) g.fillText(label, GUTTER + v * per, surface.h / 2);
  }
}
