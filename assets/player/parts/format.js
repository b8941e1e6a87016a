// Numbers as text: counts, times and sizes. No DOM.

/** 12,345; `toLocaleString` would take longer than the rest of a step. @param {number} n */
export const count = (n) => (n < 1000 ? String(n) : String(n).replace(/\B(?=(\d{3})+$)/g, ","));

/** @param {number} seconds */
export function milliseconds(seconds) {
  const ms = seconds * 1000;
  if (ms >= 9999.5) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms >= 100 ? Math.round(ms) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2)} ms`;
}

const SECOND = 0.9995; // seconds; from here on, milliseconds would round to 1000

/** A moment of a span of seconds: "0.27 of 2.39 s". @param {number} now @param {number} span */
export function momentOf(now, span) {
  return span >= SECOND
    ? `${now.toFixed(2)} of ${duration(span)}`
    : `${Math.round(now * 1000)} of ${duration(span)}`;
}

/** A whole run's time: "9.54 s", "1,234 s", "333 ms". @param {number} seconds */
export function duration(seconds) {
  if (seconds < SECOND) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds < 99.95 ? seconds.toPrecision(3) : count(Math.round(seconds))} s`;
}

/** Seconds with fewer decimals the more there are: "0.03 s", "12.4 s". @param {number} seconds */
export const wallClock = (seconds) =>
  `${seconds < 10 ? seconds.toFixed(2) : seconds < 1000 ? seconds.toFixed(1) : seconds.toFixed(0)} s`;

/** A wait in the unit of its run's span. @param {number} seconds @param {number} span */
export const waitOf = (seconds, span) => (span < SECOND ? duration : wallClock)(seconds);

/** Put no-break spaces between numbers and their units. @param {string} words */
export const unbroken = (words) => words.replace(/(\d) (?=m?s\b|%)/g, "$1\u00a0");

/** Those parts that are not empty, in one line. @param {unknown[]} parts */
export const joined = (parts, between = " · ") => parts.filter(Boolean).join(between);

/** @type {[string, number][]} */
const SIZES = [
  ["GiB", 2 ** 30],
  ["MiB", 2 ** 20],
  ["KiB", 2 ** 10],
];

/** A size in memory: "1.19 GiB". @param {number} n @param {(number: string) => string} written */
export function bytes(n, written = (number) => number) {
  const [unit, size] = SIZES.find(([, s]) => n >= s) || ["B", 1];
  const value = n / size;
  const number = value >= 100 || size === 1 ? String(Math.round(value)) : value.toPrecision(3);
  return `${written(number)} ${unit}`;
}
