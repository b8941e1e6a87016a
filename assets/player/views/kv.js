// The KV cache: how long each running request's cache is, and the block map of the pool (owner,
// fill, shared, free, vanished).

import { dims } from "../parts/colours.js";
import { clamp, setAttr, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { count } from "../parts/format.js";
import {
  CanvasView,
  fillBox,
  isIn,
  measure,
  setFont,
  shorten,
  strokeBox,
} from "../parts/surface.js";
import { bandName, heldBy, heldWords, placesAt, tokensHeld } from "../run/holdings.js";
import { blocksBetween } from "./blocks_between.js";
import { easeOut, lerp, movingIn, phase } from "./phases.js";

/** What a block of a group holds the cache of, as a line. @param {Run} run @param {number} group */
function ofLayers(run, group) {
  const { kind, window, layers } = run.groups[group];
  const which = layers ? `${layers.length} [layer|layers]` : "layers";
  if (kind === "mamba") return `A state of ${which}`;
  if (kind === "ring")
    return `Of ${which} whose newest token overwrites the one ${count(window || 0)} before`;
  if (!window)
    return kind.startsWith("sliding_window")
      ? `Of ${which} with a window`
      : `Of ${which} that look back over everything`;
  return kind === "chunked_local_attention"
    ? `Of ${which} that look back within chunks of ${count(window)} [token|tokens]`
    : `Of ${which} with a window of ${count(window)} [token|tokens]`;
}

export class LengthsView extends CanvasView {
  /** @type {Phase[]} */
  moves = ["leave", "block"]; // when it looks other than the moment before

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions, ".lengths canvas", ".lengths-key");
    this.pitch = 0; // of a lane, its gap included
    /** @type {Map<Band, {stretches: [number, number][], tokens: number}[]>} */
    this.held = new Map();
  }

  /** @param {ViewState} state */
  draw(state) {
    const { surface } = this;
    const { run, frame, palette, focus, presenter } = state;
    this.state = state;
    this.held = new Map(); // band → lane → what it holds
    for (const band of run.isGrouped ? run.bands : [])
      this.held.set(
        band,
        frame.lanes.map((lane) => heldBy(run, band, lane, frame.i)),
      );
    if (run.isGrouped) setText(this.key, this._bandsKey(run));
    else
      tell(
        this.key,
        `${count(tokensHeld(run, frame))} of ${count(run.numBlocks * run.blockSize)} tokens`,
      );
    if (!surface.visible) return;
    const g = surface.begin();
    const come = movingIn(state) ? easeOut(phase(state.share, "block")) : 1;
    const large = !presenter ? 12 : state.alone === "kv" ? 28 : 20;
    const pitch = Math.min(surface.h / run.numLanes, presenter ? 2.6 * large : 40);
    this.pitch = pitch;
    const gap = pitch >= 8 ? 3 : pitch >= 4 ? 1 : 0;
    const label = large > 20 ? 34 : 26;
    const size = Math.max(11, Math.min(large, presenter ? pitch : pitch - 2));
    setFont(g, `${size}px ${palette.mono}`);
    // numbers behind a lane's bars
    const perLane = run.isGrouped && pitch / run.bands.length < 9 ? run.bands.length : 1;
    const room =
      surface.w -
      label -
      measure(
        g,
        Array(perLane)
          .fill(t(count(run.longest)))
          .join("/"),
      ) -
      10;
    g.textBaseline = "middle";
    for (const lane of frame.lanes) {
      const y = lane.lane * pitch + gap / 2;
      const height = Math.max(1, pitch - gap);
      const { request } = lane;
      g.globalAlpha = dims(focus, request) ? 0.2 : 1;
      fillBox(g, palette.empty, label, y, surface.w - label, height);
      if (pitch >= 9) {
        setFont(g, `700 ${size}px ${palette.mono}`);
        g.fillStyle = request ? palette.ink : palette.soft;
        g.fillText(request ? request.letter : "–", 4, y + height / 2 + 0.5);
      }
      const lost = !request && frame.vanished.find((v) => v.lane === lane.lane);
      if (lost) this._lost(g, state, lost, label, y, height, room, size);
      if (!request) continue;
      const colours = palette.of(request);
      const old = (room * lane.before) / run.longest;
      const now = lerp(old, (room * lane.kvLen) / run.longest, come);
      // kept for the wave, or overrun
      const finished = Boolean(request.finished && request.finished.step < frame.i);
      if (run.isGrouped) {
        this._bands(g, state, lane, { label, y, height, room, size, finished });
        continue;
      }
      fillBox(
        g,
        finished ? palette.hatch(g, colours.solid, palette.empty) : colours.solid,
        label,
        y,
        old,
        height,
      );
      if (now > old) {
        const prefill =
          lane.kvLen - lane.before > 1 ||
          frame.event.segments.some((s) => s.request === request.id && s.phase === "prefill");
        const width = Math.max(2, now - old);
        if (prefill && height > 5) {
          fillBox(g, colours.tint, label + old, y, width, height);
          strokeBox(
            g,
            colours.solid,
            1.5,
            label + old + 0.75,
            y + 0.75,
            Math.max(0.5, width - 1.5),
            height - 1.5,
          );
        } else {
          g.fillRect(label + old, y, width, height);
          fillBox(g, palette.ink, label + now - 2, y, 2, height);
        }
      }
      // block boundaries
      if ((run.blockSize * room) / run.longest >= 5) {
        g.fillStyle = palette.panel;
        g.globalAlpha *= 0.7;
        for (let p = run.blockSize; p < lane.kvLen; p += run.blockSize)
          g.fillRect(label + (room * p) / run.longest - 0.5, y, 1, height);
        g.globalAlpha = dims(focus, request) ? 0.2 : 1;
      }
      if (pitch >= 9) {
        g.fillStyle = palette.ink;
        setFont(g, `${size}px ${palette.mono}`);
        g.fillText(
          t(count(come > 0 ? lane.kvLen : lane.before)),
          label + now + 6,
          y + height / 2 + 0.5,
        );
      }
    }
    g.globalAlpha = 1;
    setAttr(
      surface.canvas,
      "aria-label",
      `${t("Cache lengths")}: ${frame.lanes.flatMap((l) => (l.request ? [`${l.request.letter} ${l.kvLen}`] : [])).join(", ") || t("all empty")}`,
    );
  }

  /** How many tokens all requests hold in each band. @param {Run} run */
  _bandsKey(run) {
    return run.bands
      .map((band) => `${t(bandName(band))}: ${t(count(this._held(band)))}`)
      .join(" · ");
  }

  /** @param {Band} band */
  _held(band) {
    return (this.held.get(band) || []).reduce((n, { tokens }) => n + tokens, 0);
  }

  /**
   * A bar for each band, one below the other: what is held, new positions framed, and hollow what
   * the window has passed.
   * @param {Ink} g @param {ViewState} state @param {Frame["lanes"][number]} lane @param {any} place
   */
  _bands(g, { run, palette }, lane, { label, y, height, room, size, finished }) {
    const colours = palette.of(/** @type {RunRequest} */ (lane.request));
    const each = height / run.bands.length;
    const thick = Math.max(1, each - (each >= 5 ? 2 : each >= 3 ? 1 : 0));
    const x = (/** @type {number} */ position) => label + (room * position) / run.longest;
    run.bands.forEach((band, b) => {
      const { stretches, tokens } = /** @type {any} */ (this.held.get(band))[lane.lane];
      const top = y + b * each;
      const first = stretches.length ? stretches[0][0] : lane.kvLen;
      if (first && thick >= 3)
        strokeBox(
          g,
          colours.solid,
          1,
          label + 0.5,
          top + 0.5,
          Math.max(1, x(first) - label - 1),
          thick - 1,
          [2, 2],
        );
      for (const [from, end] of stretches) {
        const old = Math.max(from, Math.min(end, lane.before));
        fillBox(
          g,
          finished ? palette.hatch(g, colours.solid, palette.empty) : colours.solid,
          x(from),
          top,
          x(old) - x(from),
          thick,
        );
        if (end <= old) continue;
        const width = Math.max(2, x(end) - x(old));
        fillBox(
          g,
          lane.kvLen - lane.before > 1 ? colours.tint : colours.solid,
          x(old),
          top,
          width,
          thick,
        );
        if (lane.kvLen - lane.before === 1) fillBox(g, palette.ink, x(end) - 2, top, 2, thick);
        else if (thick > 5)
          strokeBox(
            g,
            colours.solid,
            1.5,
            x(old) + 0.75,
            top + 0.75,
            Math.max(0.5, width - 1.5),
            thick - 1.5,
          );
      }
      if (each < 9) return;
      g.fillStyle = palette.ink;
      setFont(g, `${Math.min(size, Math.max(9, each - 1))}px ${palette.mono}`);
      g.fillText(t(count(tokens)), x(lane.kvLen) + 6, top + thick / 2 + 0.5);
    });
    if (each < 9 && height >= 9) {
      g.fillStyle = palette.ink;
      setFont(g, `${size}px ${palette.mono}`);
      g.fillText(
        run.bands
          .map((band) => t(count(/** @type {any} */ (this.held.get(band))[lane.lane].tokens)))
          .join("/"),
        x(lane.kvLen) + 6,
        y + height / 2 + 0.5,
      );
    }
  }

  /**
   * A cache that was just freed by preemption: its length as an empty frame.
   * @param {Ink} g @param {ViewState} state @param {any} lost @param {number} label @param {number}
   * y @param {number} height @param {number} room @param {number} size
   */
  _lost(g, { run, palette, focus, share }, lost, label, y, height, room, size) {
    const gone = easeOut(phase(share, "leave"));
    g.globalAlpha = dims(focus, lost.request) ? 0.2 : 1;
    g.setLineDash([4, 3]);
    g.strokeStyle = palette.of(lost.request).solid;
    g.lineWidth = 1.5;
    const width = (room * lost.tokensLost) / run.longest;
    if (gone < 1) fillBox(g, palette.of(lost.request).solid, label, y, width * (1 - gone), height);
    g.strokeRect(label + 0.75, y + 0.75, Math.max(2, width - 1.5), height - 1.5);
    g.setLineDash([]);
    if (this.pitch >= 11) {
      setFont(g, `${size}px ${palette.mono}`);
      g.fillStyle = palette.ink;
      g.fillText(
        `${lost.request.letter} −${lost.tokensLost}`,
        label + width + 6,
        y + height / 2 + 0.5,
      );
    }
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const lane = this.state?.frame.lanes[Math.floor(y / this.pitch)];
    if (!lane) return null;
    if (!lane.request) return { request: null, lines: [[`lane ${lane.lane} is free`]] };
    const grown = lane.kvLen - lane.before;
    const note = grown ? `, ${grown} of them new in this step` : "";
    /** @type {Span[][]} */
    const lines = [
      [{ request: lane.request }, ` holds ${count(lane.kvLen)} [position|positions]${note}`],
    ];
    const { run } = /** @type {ViewState} */ (this.state);
    if (run.isGrouped) {
      lines[0] = [
        { request: lane.request },
        ` has ${count(lane.kvLen)} [position|positions]${note}`,
      ];
      for (const [band, held] of this.held)
        lines.push([heldWords(band, lane.kvLen, held[lane.lane].tokens)]);
    }
    return { request: lane.request, lines };
  }

  places() {
    return (this.state?.frame.lanes || []).map(({ lane }) => ({
      x: 0,
      y: lane * this.pitch,
      w: this.surface.w,
      h: this.pitch,
    }));
  }

  /** @param {ViewState} state */
  table({ run, frame }) {
    const bands = run.isGrouped ? run.bands : [];
    return {
      caption: t("Length of each request's cache"),
      columns: ["Lane", "Request", "Before this step", "After", ...bands.map(bandName)],
      rows: frame.lanes.flatMap((l) =>
        l.request
          ? [
              [
                String(l.lane),
                l.request.letter,
                String(l.before),
                String(l.kvLen),
                ...bands.map((band) => String(heldBy(run, band, l, frame.i).tokens)),
              ],
            ]
          : [],
      ),
    };
  }
}

/** What marks the blocks of a band, where there are several. @param {Band} band */
const mark = ({ index }) => "′".repeat(index);

export class BlocksView extends CanvasView {
  /** @type {Phase[]} */
  moves = ["leave", "lane", "block"]; // when it looks other than the moment before

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions, ".blocks canvas", ".blocks-key");
    /** @type {Map<number, BlockOwner[]>} */
    this.owned = new Map(); // block → who holds it
    /** @type {Frame | null} */
    this._of = null; // in this one
    /** @type {{between: Between | null, owned: Map<number, BlockOwner[]>}} */
    this._before = { between: null, owned: new Map() }; // block → who held it in the step before
    /** @type {Map<number, BlockOwner[]>} */
    this.shown = new Map(); // block → who holds it at this moment of the step's motion
    /** @type {Map<number, {request: RunRequest, left: number}>} */
    // block → whose cached prefix goes from it, and how much of it is left
    this.forgotten = new Map();
    /** @type {Map<number, {request: RunRequest, passed: boolean}>} */
    // block → who lost it in this step; passed: since the window had passed it, else by preemption
    this.ghosts = new Map();
    this.group = 1; // blocks a tile
    /** @type {{x: number, y: number, w: number, h: number}[]} */
    this.tiles = []; // where each lies, its gap included
  }

  /**
   * block -> its owners: {request, at: index in the table, fill: share of its positions, fresh}
   * @param {Frame} frame
   */
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
        const owner = {
          request,
          at,
          group,
          fill: kind === "mamba" ? 1 : clamp((length - at * blockSize) / blockSize, 0, 1),
          fresh: from === frame.i && at * blockSize >= (lane.laneSpan.hit || 0),
        };
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
    tell(
      this.key,
      state.simple
        ? `${count(kv.used)} of ${count(kv.total)} [block|blocks]`
        : `${count(kv.used)} of ${count(kv.total)} · ${count(run.blockSize)} [token|tokens] each`,
    );
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
    for (const { laneSpan, request } of run.isGrouped ? frame.lanes : []) {
      for (const { block, to } of laneSpan && request ? laneSpan.places : [])
        if (to === frame.i - 1)
          this.ghosts.set(block, { request: /** @type {RunRequest} */ (request), passed: true });
    }
    // blocks a tile, where even 4 px squares do not fit
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
    this.tiles = Array.from({ length: tiles }, (_, tile) => ({
      x: (tile % cols) * bw,
      y: Math.floor(tile / cols) * bh,
      w: bw,
      h: bh,
    }));
    const gap = bw >= 14 ? 3 : bw >= 7 ? 2 : bw >= 4 ? 1 : 0;
    const wide = presenter ? 34 : 22;
    // for the label, below the fill
    const strip = bw - gap >= wide && bh - gap >= wide + 8 ? (presenter ? 22 : 13) : 0;
    const marked =
      strip && run.isGrouped
        ? run.bands.slice(1).map((band) => `${mark(band)} ${t(bandName(band))}`)
        : [];
    if (marked.length && !state.simple)
      setText(this.key, [t(`${count(kv.used)} of ${count(kv.total)}`), ...marked].join(" · "));
    this.tiles.forEach(({ x, y }, tile) => {
      if (group === 1) this._block(g, state, tile, x, y, bw - gap, bh - gap - strip, strip);
      else this._tile(g, state, tile, x, y, bw - gap, bh - gap);
    });
    g.globalAlpha = 1;
    const preempted = [...this.ghosts.values()].filter((ghost) => !ghost.passed).length;
    const shared = [...this.owned.values()].filter((o) => o.length > 1).length;
    setAttr(
      surface.canvas,
      "aria-label",
      `${t(`Block map: ${kv.used} of ${kv.total} blocks in use`)}${shared ? `, ${t(`${shared} shared`)}` : ""}${preempted ? `, ${t(`${preempted} freed by preemption`)}` : ""}${this.ghosts.size > preempted ? `, ${t(`${this.ghosts.size - preempted} behind a window`)}` : ""}`,
    );
  }

  /** @param {ViewState} state */
  _move(state) {
    const moving = movingIn(state);
    [this.shown, this.forgotten] = [this.owned, new Map()];
    if (!moving) return;
    if (this._before.between !== moving)
      this._before = { between: moving, owned: this.owners(moving.before, state.run) };
    ({ shown: this.shown, forgotten: this.forgotten } = blocksBetween(
      this._before.owned,
      this.owned,
      moving.happened,
      state.share,
    ));
  }

  /**
   * h: of the fill; strip: what is left below it for a label, or 0.
   * @param {Ink} g @param {ViewState} state @param {number} block @param {number} x @param {number}
   * y @param {number} w @param {number} h @param {number} strip
   */
  _block(g, { palette, focus, hot, run }, block, x, y, w, h, strip) {
    const owners = this.shown.get(block);
    const ghost = this.ghosts.get(block);
    const lit = owners
      ? !owners.every((o) => dims(focus, o.request))
      : !dims(focus, ghost ? ghost.request : null);
    g.globalAlpha = lit ? 1 : 0.2;
    const forgotten = this.forgotten.get(block);
    if (!owners) {
      fillBox(g, palette.empty, x, y, w, h);
      if (forgotten) this._forget(g, palette, forgotten, x, y, w, h);
      if (ghost) {
        // freed in this step: an empty frame, crossed
        strokeBox(
          g,
          palette.of(ghost.request).solid,
          1.5,
          x + 0.75,
          y + 0.75,
          w - 1.5,
          h - 1.5,
          [3, 2],
        );
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
    if (forgotten) this._forget(g, palette, forgotten, x, y, w, h);
    if (owners.some((o) => o.fresh) && w > 7) {
      // new in this step
      strokeBox(g, palette.ink, 1.5, x + 0.75, y + 0.75, w - 1.5, h - 1.5);
    }
    if (owners.length > 1 && w > 7) {
      strokeBox(g, palette.ink, 1.2, x + 1, y + 1, w - 2, h - 2, [2, 2]);
    }
    if (strip) this._label(g, palette, run, owners, ghost && ghost.request, x, y + h + 1, w, strip);
    const [from, end] = hot?.keys || [0, 0];
    if (
      owners.some(
        (o) =>
          o.request === hot?.request &&
          from < (o.at + 1) * run.groups[o.group].blockSize &&
          end > o.at * run.groups[o.group].blockSize,
      )
    ) {
      strokeBox(g, palette.ink, 2.5, x + 1, y + 1, w - 2, h - 2);
    }
  }

  /**
   * A prefix that was kept for others goes, as its block is needed. @param {Ink} g @param {Palette}
   * palette @param {{request: RunRequest, left: number}} forgotten @param {number} x @param
   * {number} y @param {number} w @param {number} h
   */
  _forget(g, palette, { request, left }, x, y, w, h) {
    const alpha = g.globalAlpha;
    g.globalAlpha = alpha * left;
    fillBox(g, palette.of(request).cached, x, y, w, h);
    strokeBox(g, palette.of(request).solid, 1.5, x + 0.75, y + 0.75, w - 1.5, h - 1.5, [3, 2]);
    g.globalAlpha = alpha;
  }

  /**
   * Below the fill, never on it: the owner's letter and, struck through, that of the owner until
   * this step.
   * @param {Ink} g @param {Palette} palette @param {Run} run @param {BlockOwner[]} owners @param
   * {any} lost @param {number} x @param {number} y @param {number} w @param {number} strip
   */
  _label(g, palette, run, owners, lost, x, y, w, strip) {
    setFont(g, `700 ${strip - 2}px ${palette.mono}`);
    g.textBaseline = "middle";
    const middle = y + strip / 2;
    // it is still there, for a moment
    const going = owners.some((o) => (o.strength ?? 1) < 1 && o.request === lost);
    const was = lost && !going ? measure(g, lost.letter) + 3 : 0;
    const text =
      owners.map((o) => o.request.letter).join("") +
      (owners.length > 1 || this.state?.simple ? "" : owners[0].at);
    const band = run.isGrouped
      ? run.bands.find(({ groups }) => groups.includes(owners[0].group))
      : null;
    g.fillStyle = palette.ink;
    g.fillText(shorten(g, text + (band ? mark(band) : ""), w - was), x + 1, middle);
    if (!was || was > w) return;
    g.fillStyle = palette.soft;
    g.fillText(lost.letter, x + w - was + 2, middle);
    fillBox(g, palette.warn, x + w - was, middle - 1, was, 1.6);
  }

  /**
   * @param {Ink} g @param {ViewState} state @param {number} tile @param {number} x @param {number}
   * y @param {number} w @param {number} h
   */
  _tile(g, { palette, focus, run }, tile, x, y, w, h) {
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
    if (this.group > 1)
      return {
        request: null,
        lines: [
          [
            `Blocks ${tile * this.group} to ${Math.min((tile + 1) * this.group, run.numBlocks) - 1}`,
          ],
        ],
      };
    const owners = this.owned.get(tile);
    if (!owners) {
      const ghost = this.ghosts.get(tile);
      if (ghost?.passed)
        return {
          request: ghost.request,
          lines: [
            [
              `Block ${tile}: given back in this step, as the window of `,
              { request: ghost.request },
              " has passed it",
            ],
          ],
        };
      return ghost
        ? {
            request: ghost.request,
            lines: [
              [`Block ${tile}: freed in this step, `, { request: ghost.request }, " was preempted"],
            ],
          }
        : { request: null, lines: [[`Block ${tile} is free`]] };
    }
    const lines = owners.map((o) => {
      const { blockSize } = run.groups[o.group];
      const from = o.at * blockSize;
      return [
        `Block ${tile}: `,
        { request: o.request },
        ` ${run.groups[o.group].kind === "ring" ? "slots" : "positions"} ${from} to ${from + blockSize - 1}, ${Math.round(o.fill * blockSize)} of ${blockSize} filled${o.fresh ? ", new in this step" : ""}`,
      ];
    });
    const was = this.ghosts.get(tile);
    if (run.isGrouped) lines.push([ofLayers(run, owners[0].group)]);
    if (was)
      lines.push([
        { request: was.request },
        was.passed
          ? " gave it back in this step, as its window has passed it"
          : " was preempted in this step and lost it",
      ]);
    if (owners.length > 1) lines.push([`Shared by ${owners.length}: one copy in memory`]);
    const o = owners[0];
    return {
      request: o.request,
      lit: owners.map((owner) => owner.request),
      hot: {
        request: o.request,
        keys: [o.at * run.groups[o.group].blockSize, (o.at + 1) * run.groups[o.group].blockSize],
      },
      lines,
    };
  }

  places() {
    return this.tiles;
  }

  /** @param {ViewState} state */
  table({ run, frame }) {
    const owned = [...this.owners(frame, run)].sort((a, b) => a[0] - b[0]);
    const { kv } = frame.event;
    return {
      caption: `${t(`Blocks in use: ${kv.used} of ${kv.total}`)}${frame.vanished.length ? `; ${t("freed by preemption")}: ${frame.vanished.map((v) => v.request.letter).join(", ")}` : ""}`,
      columns: ["Block", "Owner", "Its block", "Filled"],
      rows: owned
        .slice(0, 500)
        .map(([b, o]) => [
          String(b),
          o.map((x) => x.request.letter).join(" "),
          String(o[0].at),
          `${Math.round(o[0].fill * 100)} %`,
        ]),
    };
  }
}
