// Marks along an axis of steps or seconds. Knows no canvas.

import { milliseconds } from "../parts/format.js";

/** The smallest round distance (1, 2, 5 × a power of ten) that gives at most `most` marks over `span`; whole: of whole numbers. */
export function roundUnit(span, most, whole) {
  const rough = span / most;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].map((m) => m * magnitude).find((u) => u >= rough) || rough;
  return whole ? Math.max(1, Math.round(unit)) : unit;
}

/** A moment on an axis of `span` seconds: "0", "50 ms", "1.5 s". */
export function clockLabel(seconds, span) {
  if (seconds === 0) return "0";
  return span >= 1 ? `${Number(seconds.toFixed(3))} s` : milliseconds(seconds).replace(/\.0+ |(\.\d*[1-9])0+ /, "$1 ");
}
