// The block map of the KV pool: the owners of each block, how full it is, and whether it is shared,
// free or just lost.

import { dims } from "../parts/colours.js";
import { clamp, setAttr, setText } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { t, tell } from "../parts/speech.js";
import {
  CanvasView,
  fillBox,
  frameBox,
  isIn,
  measure,
  setFont,
  shorten,
  strokeBox,
} from "../parts/surface.js";
import { bandName, placesAt } from "../run/holdings.js";
import { blocksBetween } from "./blocks_between.js";
import { movingIn } from "./phases.js";

/** @typedef {import("../parts/surface.js").Box} Box */

/** The layers that a group's blocks are for, as a line. @param {Run} run @param {number} group */
function ofLayers(run, group) {
  const { kind, window, layers } = run.groups[group];
  const which = layers ? `${layers.length} [layer|layers]` : "layers";
  if (kind === "mamba") return `A state of ${which}`;
  if (kind === "ring")
    return `Of ${which} whose newest token overwrites the one ${count(window || 0)} before`;
  if (!window && kind.startsWith("sliding_window")) return `Of ${which} with a window`;
  if (!window) return `Of ${which} that look back over everything`;
  const tokens = `${count(window)} [token|tokens]`;
  if (kind === "chunked_local_attention")
    return `Of ${which} that look back within chunks of ${tokens}`;
  return `Of ${which} with a window of ${tokens}`;
}

/** What marks the blocks of a band, if there are several bands. @param {Band} band */
const mark = ({ index }) => "′".repeat(index);

/**
 * The positions of a cache that an owner's block is for: the first, and one past the last.
 * @param {Run} run @param {BlockOwner} owner @returns {[number, number]}
 */
function positionsOf(run, { at, group }) {
  const { blockSize } = run.groups[group];
  return [at * blockSize, (at + 1) * blockSize];
}

export class BlocksView extends CanvasView {
  /** @type {Phase[]} */
  moves = ["leave", "lane", "block"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions, ".blocks canvas", ".blocks-key");
    /** @type {Map<number, BlockOwner[]>} */
    this.owned = new Map(); // block → its owners
    /** @type {Frame | null} */
    this._of = null; // the frame of `owned`
    /** @type {{between: Between | null, owned: Map<number, BlockOwner[]>}} */
    this._before = { between: null, owned: new Map() }; // block → its owners in the step before
    /** @type {Map<number, BlockOwner[]>} */
    this.shown = new Map(); // block → its owners at this moment of the step's motion
    /** @type {Map<number, {request: RunRequest, left: number}>} */
    // block → whose cached prefix is evicted from it, and the share of it left
    this.forgotten = new Map();
    /** @type {Map<number, {request: RunRequest, passed: boolean}>} */
    // block → who lost it in this step; passed: because a window had passed it, else by preemption
    this.ghosts = new Map();
    this.group = 1; // blocks per tile
    /** @type {Box[]} */
    this.tiles = []; // the place of each tile, gap included
  }

  /** The owners of each block in a frame. @param {Frame} frame */
  owners(frame, run = /** @type {ViewState} */ (this.state).run) {
    /** @type {Map<number, BlockOwner[]>} */
    const owners = new Map();
    for (const lane of frame.lanes) {
      const { request } = lane;
      if (!lane.laneSpan || !request) continue;
      for (const { block, group, at: place, from } of placesAt(lane.laneSpan, frame.i)) {
        const { blockSize, units, kind, window } = run.groups[group];
        const at = Math.floor(place / units);
        const length = kind === "ring" ? Math.min(lane.kvLen, window || lane.kvLen) : lane.kvLen;
        const fill = kind === "mamba" ? 1 : clamp((length - at * blockSize) / blockSize, 0, 1);
        const fresh = from === frame.i && at * blockSize >= (lane.laneSpan.hit || 0);
        const owner = { request, at, group, fill, from, fresh };
        owners.set(block, [...(owners.get(block) || []), owner]);
      }
    }
    return owners;
  }

  /** @param {ViewState} state */
  draw(state) {
    const { surface } = this;
    const { run, frame, presenter, alone } = state;
    this.state = state;
    const { kv } = frame.event;
    const used = `${count(kv.used)} of ${count(kv.total)}`;
    const each = `${used} · ${count(run.blockSize)} [token|tokens] each`;
    tell(this.key, state.simple ? `${used} [block|blocks]` : each);
    if (!surface.visible) return;
    const g = surface.begin();
    const total = kv.total;
    const { w, h } = surface;
    if (this._of !== frame) [this._of, this.owned] = [frame, this.owners(frame, run)];
    this.ghosts = new Map();
    for (const v of frame.vanished)
      if (v.laneSpan)
        for (const { block } of placesAt(v.laneSpan, frame.i - 1))
          this.ghosts.set(block, { request: v.request, passed: false });
    for (const { laneSpan } of run.isGrouped ? frame.lanes : []) {
      if (!laneSpan) continue;
      const { request, places } = laneSpan;
      for (const { block, to } of places)
        if (to === frame.i - 1) this.ghosts.set(block, { request, passed: true });
    }
    // more than one block per tile if even squares of 4 px do not fit
    const group = Math.max(1, Math.ceil(total / Math.max(1, Math.floor((w * h) / 16))));
    const tiles = Math.ceil(total / group);
    this._move(state);
    let cols = Math.max(1, Math.ceil(Math.sqrt((tiles * w) / h)));
    const even = [16, 12, 10, 8, 20, 24, 32, 6, 5, 4].find((c) => c >= cols && c <= cols * 1.3);
    if (even) cols = even;
    const rows = Math.ceil(tiles / cols);
    const bw = Math.min(w / cols, alone ? 160 : presenter ? 110 : 64);
    const bh = Math.min(h / rows, bw * 1.25, alone ? 130 : presenter ? 84 : 48);
    this.group = group;
    this.tiles = Array.from({ length: tiles }, (_, tile) => {
      const [x, y] = [(tile % cols) * bw, Math.floor(tile / cols) * bh];
      return { x, y, w: bw, h: bh };
    });
    const gap = bw >= 14 ? 3 : bw >= 7 ? 2 : bw >= 4 ? 1 : 0;
    const wide = presenter ? 34 : 22;
    // height of the label below the fill
    const strip = bw - gap >= wide && bh - gap >= wide + 8 ? (presenter ? 22 : 13) : 0;
    const marked =
      strip && run.isGrouped
        ? run.bands.slice(1).map((band) => `${mark(band)} ${t(bandName(band))}`)
        : [];
    if (marked.length && !state.simple) setText(this.key, [t(used), ...marked].join(" · "));
    this.tiles.forEach(({ x, y }, tile) => {
      const box = { x, y, w: bw - gap, h: bh - gap - strip };
      if (group === 1) this._block(g, state, tile, box, strip);
      else this._tile(g, state, tile, box);
    });
    g.globalAlpha = 1;
    // blocks that others still hold are not free
    const freed = [...this.ghosts].filter(
      ([block, { passed }]) => !passed && !this.owned.get(block)?.some((o) => o.from < frame.i),
    ).length;
    const shared = [...this.owned.values()].filter((o) => o.length > 1).length;
    const passed = [...this.ghosts.values()].filter((ghost) => ghost.passed).length;
    const words = [
      `Block map: ${kv.used} of ${kv.total} blocks in use`,
      shared && `${shared} shared`,
      freed && `${freed} freed by preemption`,
      passed && `${passed} behind a window`,
    ].flatMap((part) => (part ? t(part) : []));
    setAttr(surface.canvas, "aria-label", words.join(", "));
  }

  /** @param {ViewState} state */
  _move(state) {
    const moving = movingIn(state);
    [this.shown, this.forgotten] = [this.owned, new Map()];
    if (!moving) return;
    if (this._before.between !== moving)
      this._before = { between: moving, owned: this.owners(moving.before, state.run) };
    const { owned: before } = this._before;
    Object.assign(this, blocksBetween(before, this.owned, moving.happened, state.share));
  }

  /**
   * Draw a block. box: of the fill; strip: the height below it for a label, or 0.
   * @param {Ink} g @param {ViewState} state @param {number} block @param {Box} box @param {number}
   * strip
   */
  _block(g, { palette, focus, hot, run }, block, box, strip) {
    const { x, y, w, h } = box;
    const owners = this.shown.get(block);
    const ghost = this.ghosts.get(block);
    const lit = owners
      ? !owners.every((o) => dims(focus, o.request))
      : !dims(focus, ghost ? ghost.request : null);
    g.globalAlpha = lit ? 1 : 0.2;
    const forgotten = this.forgotten.get(block);
    if (!owners) {
      fillBox(g, palette.empty, x, y, w, h);
      if (forgotten) this._forget(g, palette, forgotten, box);
      if (ghost) {
        // freed in this step: an empty frame, crossed
        frameBox(g, palette.of(ghost.request).solid, 1.5, box, [3, 2]);
        g.beginPath();
        g.moveTo(x + 2, y + h - 2);
        g.lineTo(x + w - 2, y + 2);
        g.stroke();
      }
      return;
    }
    const part = w / owners.length; // shared: side by side
    owners.forEach((o, n) => {
      const colours = palette.of(o.request);
      g.globalAlpha = 1;
      if ((o.strength ?? 1) < 1) fillBox(g, palette.empty, x + n * part, y, part, h);
      g.globalAlpha = (dims(focus, o.request) ? 0.2 : 1) * (o.strength ?? 1);
      fillBox(g, colours.tint, x + n * part, y, part, h);
      fillBox(g, colours.solid, x + n * part, y + h * (1 - o.fill), part, h * o.fill);
    });
    g.globalAlpha = lit ? 1 : 0.2;
    if (forgotten) this._forget(g, palette, forgotten, box);
    // new in this step
    if (owners.some((o) => o.fresh) && w > 7) frameBox(g, palette.ink, 1.5, box);
    if (owners.length > 1 && w > 7)
      strokeBox(g, palette.ink, 1.2, x + 1, y + 1, w - 2, h - 2, [2, 2]);
    if (strip) this._label(g, palette, run, owners, ghost && ghost.request, x, y + h + 1, w, strip);
    const [from, end] = hot?.keys || [0, 0];
    const isHot = owners.some((o) => {
      const [first, past] = positionsOf(run, o);
      return o.request === hot?.request && from < past && end > first;
    });
    if (isHot) strokeBox(g, palette.ink, 2.5, x + 1, y + 1, w - 2, h - 2);
  }

  /**
   * Draw a prefix that was cached for others and is evicted, since its block is needed.
   * @param {Ink} g @param {Palette} palette @param {{request: RunRequest, left: number}} forgotten
   * @param {Box} box
   */
  _forget(g, palette, { request, left }, box) {
    const alpha = g.globalAlpha;
    g.globalAlpha = alpha * left;
    fillBox(g, palette.of(request).cached, box.x, box.y, box.w, box.h);
    frameBox(g, palette.of(request).solid, 1.5, box, [3, 2]);
    g.globalAlpha = alpha;
  }

  /**
   * Draw below the fill, never on it, the owner's letter and, struck through, the letter of the
   * owner until this step.
   * @param {Ink} g @param {Palette} palette @param {Run} run @param {BlockOwner[]} owners @param
   * {any} lost @param {number} x @param {number} y @param {number} w @param {number} strip
   */
  _label(g, palette, run, owners, lost, x, y, w, strip) {
    setFont(g, `700 ${strip - 2}px ${palette.mono}`);
    g.textBaseline = "middle";
    const middle = y + strip / 2;
    // the owner until this step is still drawn
    const going = owners.some((o) => (o.strength ?? 1) < 1 && o.request === lost);
    const was = lost && !going ? measure(g, lost.letter) + 3 : 0;
    const text =
      owners.map((o) => o.request.letter).join("") +
      (owners.length > 1 || this.state?.simple ? "" : owners[0].at);
    const band = run.isGrouped && run.bands.find(({ groups }) => groups.includes(owners[0].group));
    g.fillStyle = palette.ink;
    g.fillText(shorten(g, text + (band ? mark(band) : ""), w - was), x + 1, middle);
    if (!was || was > w) return;
    g.fillStyle = palette.soft;
    g.fillText(lost.letter, x + w - was + 2, middle);
    fillBox(g, palette.warn, x + w - was, middle - 1, was, 1.6);
  }

  /** @param {Ink} g @param {ViewState} state @param {number} tile @param {Box} box */
  _tile(g, { palette, focus, run }, tile, { x, y, w, h }) {
    const size = Math.min(this.group, run.numBlocks - tile * this.group);
    const held = Array.from({ length: size }, (_, n) =>
      this.shown.get(tile * this.group + n),
    ).filter((owners) => owners !== undefined);
    const owner = held.length ? held[0][0].request : null;
    g.globalAlpha = dims(focus, owner) ? 0.2 : 1;
    fillBox(g, palette.empty, x, y, w, h);
    if (owner) {
      g.globalAlpha *= 0.35 + (0.65 * held.length) / size;
      fillBox(g, palette.of(owner).solid, x, y, w, h);
    }
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const tile = this.tiles.findIndex((place) => isIn(place, x, y));
    if (tile < 0 || !this.state) return null;
    const { run } = this.state;
    const last = Math.min((tile + 1) * this.group, run.numBlocks) - 1;
    if (this.group > 1)
      return { request: null, lines: [[`Blocks ${tile * this.group} to ${last}`]] };
    const owners = this.owned.get(tile);
    const was = this.ghosts.get(tile);
    if (!owners) {
      if (!was) return { request: null, lines: [[`Block ${tile} is free`]] };
      const { request, passed } = was;
      const [how, why] = passed
        ? ["given back in this step, as the window of ", " has passed it"]
        : ["freed in this step, ", " was preempted"];
      return { request, lines: [[`Block ${tile}: ${how}`, { request }, why]] };
    }
    const lines = owners.map((o) => {
      const { blockSize, kind } = run.groups[o.group];
      const [first, past] = positionsOf(run, o);
      const which = `${kind === "ring" ? "slots" : "positions"} ${first} to ${past - 1}`;
      const filled = `${Math.round(o.fill * blockSize)} of ${blockSize} filled`;
      const fresh = o.fresh ? ", new in this step" : "";
      return [`Block ${tile}: `, { request: o.request }, ` ${which}, ${filled}${fresh}`];
    });
    if (run.isGrouped) lines.push([ofLayers(run, owners[0].group)]);
    const lost = was?.passed
      ? " gave it back in this step, as its window has passed it"
      : " was preempted in this step and lost it";
    if (was) lines.push([{ request: was.request }, lost]);
    if (owners.length > 1) lines.push([`Shared by ${owners.length}: one copy in memory`]);
    const { request } = owners[0];
    return {
      request,
      lit: owners.map((owner) => owner.request),
      hot: { request, keys: positionsOf(run, owners[0]) },
      lines,
    };
  }

  places() {
    return this.tiles;
  }

  /** @param {ViewState} state */
  table({ run, frame }) {
    const owned = [...this.owners(frame, run)].sort((a, b) => a[0] - b[0]).slice(0, 500);
    const { kv } = frame.event;
    const freed = frame.vanished.map((v) => v.request.letter).join(", ");
    return {
      caption: `${t(`Blocks in use: ${kv.used} of ${kv.total}`)}${freed && `; ${t("freed by preemption")}: ${freed}`}`,
      columns: ["Block", "Owner", "Its block", "Filled"],
      rows: owned.map(([block, owners]) => {
        const [{ at, fill }] = owners;
        const letters = owners.map(({ request }) => request.letter).join(" ");
        return [String(block), letters, String(at), `${Math.round(fill * 100)} %`];
      }),
    };
  }
}
