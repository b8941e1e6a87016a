// The KV blocks that a request holds, for each group of layers. Layers with a window give blocks
// back before the request ends, once the window has passed them. Draws nothing.

import { clamp } from "../parts/dom.js";
import { count } from "../parts/format.js";

/**
 * Change a block table at step i: blocks in `left` leave it, then `blocks` join its end. Null
 * stands for a place that is empty from the start.
 * @param {LaneSpan} laneSpan @param {number} group @param {(number | null)[]} blocks @param
 * {number} i @param {number[]} left
 */
export function take(laneSpan, group, blocks, i, left = []) {
  for (const place of left.length ? laneSpan.places : [])
    if (place.group === group && place.to === Infinity && left.includes(place.block))
      place.to = i - 1;
  for (const block of blocks) {
    if (block !== null)
      laneSpan.places.push({ block, group, at: laneSpan.ends[group], from: i, to: Infinity });
    laneSpan.ends[group] += 1;
  }
}

/** The blocks held while the passes of step i run. @param {LaneSpan} laneSpan @param {number} i */
export function placesAt(laneSpan, i) {
  return laneSpan.places.filter((place) => place.from <= i && i <= place.to);
}

/**
 * Collects groups with layers of the same kind and window into bands: the tables of a band's groups
 * are equally long at every step. @param {KVGroup[]} groups @returns {Band[]}
 */
export function bandsOf(groups) {
  /** @type {Map<string, Band>} */
  const bands = new Map();
  groups.forEach(({ kind, window, layers }, group) => {
    const key = `${kind} ${window}`;
    const band = bands.get(key) || { index: bands.size, groups: [], kind, window, numLayers: 0 };
    band.groups.push(group);
    band.numLayers += layers ? layers.length : 0;
    bands.set(key, band);
  });
  return [...bands.values()];
}

/** How far back the layers of a band attend, in words. @param {Band} band */
export function bandName({ kind, window }) {
  if (kind === "mamba") return "state";
  if (kind === "ring") return `ring of ${window}`;
  if (kind === "chunked_local_attention") return `chunks of ${window}`;
  if (kind.startsWith("sliding_window")) return window ? `window ${window}` : "window";
  return kind === "full_attention" || kind === "mla_attention" ? "full" : kind.replaceAll("_", " ");
}

/**
 * How much of a cache of `kvLen` positions a band still holds, and how much it has given back, in
 * words. @param {Band} band @param {number} kvLen @param {number} tokens
 */
export const heldWords = (band, kvLen, tokens) =>
  `${bandName(band)}: ${count(tokens)} held${tokens < kvLen && band.kind !== "ring" ? `, ${count(kvLen - tokens)} given back` : ""}`;

/**
 * The positions that a lane's request holds in a band, as stretches [first, end), and their number,
 * `tokens`. They are those of the first group, since all groups of a band hold the same positions.
 * @param {Run} run @param {Band} band @param {Frame["lanes"][number]} lane @param {number} i
 */
export function heldBy(run, band, lane, i) {
  const group = band.groups[0];
  const { blockSize, units, kind, window } = run.groups[group];
  /** @type {[number, number][]} */
  const stretches = [];
  if (kind === "ring" && window) {
    const tokens = lane.laneSpan ? Math.min(lane.kvLen, window) : 0;
    if (tokens) stretches.push([lane.kvLen - tokens, lane.kvLen]);
    return { stretches, tokens };
  }
  let tokens = 0;
  for (const place of lane.laneSpan ? placesAt(lane.laneSpan, i) : []) {
    const first = Math.floor(place.at / units) * blockSize;
    const end = Math.min(first + blockSize, lane.kvLen);
    if (place.group !== group || place.at % units || end <= first) continue;
    tokens += end - first;
    const last = stretches.at(-1);
    if (last && last[1] === first) last[1] = end;
    else stretches.push([first, end]);
  }
  return { stretches, tokens };
}

/** Tokens in all caches; those of a shared block count once. @param {Run} run @param {Frame} frame */
export function tokensHeld({ blockSize }, frame) {
  /** @type {Map<number, number>} */
  const held = new Map();
  for (const { laneSpan, kvLen } of frame.lanes)
    for (const { block, at } of laneSpan ? placesAt(laneSpan, frame.i) : []) {
      const filled = clamp(kvLen - at * blockSize, 0, blockSize);
      held.set(block, Math.max(held.get(block) || 0, filled));
    }
  return [...held.values()].reduce((sum, n) => sum + n, 0);
}
