// Marks along an axis of steps or seconds. Knows no canvas.

/** The smallest round distance (1, 2, 5 × a power of ten) that gives at most `most` marks over `span`; whole: of whole numbers. */
export function roundUnit(span, most, whole) {
  const rough = span / most;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const unit = [1, 2, 5, 10].map((m) => m * magnitude).find((u) => u >= rough) || rough;
  return whole ? Math.max(1, Math.round(unit)) : unit;
}
