// A figure's colours in another theme: the figure is data, and those of its values that are colours of the page's table are replaced.

import { HUES, mix } from "../parts/colours.js";

const TINTS = [0.18, 0.25, 0.35]; // of a hue on white, in visualizer/charts

/**
 * The colours that visualizer/charts draws in, each with this theme's own.
 * @param {Palette} palette
 */
export function coloursOf(palette) {
  const table = new Map([
    ["#ffffff", palette.panel], ["#faf8f4", palette.panel], ["#e3ddd2", palette.rule], ["#1b1b1f", palette.ink], ["#5c5a55", palette.soft],
    ["#f0ece4", palette.empty], ["#bfb8aa", palette.pad],
  ]);
  HUES.forEach((hue, i) => {
    table.set(hue.toLowerCase(), palette.hues[i].solid);
    for (const share of TINTS) table.set(mix("#ffffff", hue, share), mix(palette.panel, palette.hues[i].solid, share));
  });
  return table;
}

/**
 * A copy of plain data in which the strings that are keys of the table stand for their values.
 * @template T
 * @param {T} data
 * @param {Map<string, string>} table
 * @returns {any}
 */
export function recolour(data, table) {
  if (Array.isArray(data)) return data.map((value) => recolour(value, table));
  if (data && typeof data === "object") return Object.fromEntries(Object.entries(data).map(([key, value]) => [key, recolour(value, table)]));
  return typeof data === "string" ? table.get(data.toLowerCase()) ?? data : data;
}
