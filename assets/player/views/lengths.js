// The length of each running request's cache, lane by lane.

import { dims } from "../parts/colours.js";
import { setAttr, setText } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { t, tell } from "../parts/speech.js";
import { CanvasView, fillBox, frameBox, measure, setFont } from "../parts/surface.js";
import { bandName, heldBy, heldWords, tokensHeld } from "../run/holdings.js";
import { easeOut, lerp, movingIn, phase } from "./phases.js";

/** @typedef {{label: number, y: number, height: number, room: number, size: number}} LanePlace */

export class LengthsView extends CanvasView {
  /** @type {Phase[]} */
  moves = ["leave", "block"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions, ".lengths canvas", ".lengths-key");
    this.pitch = 0; // the height of a lane, gap included
    /** @type {Map<Band, {stretches: [number, number][], tokens: number}[]>} */
    this.held = new Map();
  }

  /** @param {ViewState} state */
  draw(state) {
    const { surface } = this;
    const { run, frame, palette, focus, presenter } = state;
    this.state = state;
    this.held = new Map(); // band → lane → the positions held
    for (const band of run.isGrouped ? run.bands : []) {
      const held = frame.lanes.map((lane) => heldBy(run, band, lane, frame.i));
      this.held.set(band, held);
    }
    if (run.isGrouped) setText(this.key, this._bandsKey());
    else {
      const all = run.numBlocks * run.blockSize;
      tell(this.key, `${count(tokensHeld(run, frame))} of ${count(all)} tokens`);
    }
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
    // numbers after a lane's bars
    const perLane = run.isGrouped && pitch / run.bands.length < 9 ? run.bands.length : 1;
    const numbers = new Array(perLane).fill(t(count(run.longest))).join("/");
    const room = surface.w - label - measure(g, numbers) - 10;
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
      const place = { label, y, height, room, size };
      if (!request) {
        const lost = frame.vanished.find((v) => v.lane === lane.lane);
        if (lost) this._lost(g, state, lost, place);
        continue;
      }
      const colours = palette.of(request);
      const old = (room * lane.before) / run.longest;
      const now = lerp(old, (room * lane.kvLen) / run.longest, come);
      // hatched: kept until the wave ends, or overrun
      const finished = request.finished && request.finished.step < frame.i;
      const held = finished ? palette.hatch(g, colours.solid, palette.empty) : colours.solid;
      if (run.isGrouped) {
        this._bands(g, state, lane, { ...place, held });
        continue;
      }
      fillBox(g, held, label, y, old, height);
      if (now > old) {
        const mine = frame.event.segments.filter((s) => s.request === request.id);
        const width = Math.max(2, now - old);
        if (mine.some((s) => s.phase === "prefill") && height > 5) {
          fillBox(g, colours.tint, label + old, y, width, height);
          frameBox(g, colours.solid, 1.5, { x: label + old, y, w: width, h: height });
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
        const shown = t(count(come > 0 ? lane.kvLen : lane.before));
        g.fillText(shown, label + now + 6, y + height / 2 + 0.5);
      }
    }
    g.globalAlpha = 1;
    const said = frame.lanes.flatMap((l) => (l.request ? `${l.request.letter} ${l.kvLen}` : []));
    const words = `${t("Cache lengths")}: ${said.join(", ") || t("all empty")}`;
    setAttr(surface.canvas, "aria-label", words);
  }

  /** How many tokens all requests hold in each band. */
  _bandsKey() {
    const each = [...this.held].map(([band, lanes]) => {
      const all = lanes.reduce((n, { tokens }) => n + tokens, 0);
      return `${t(bandName(band))}: ${t(count(all))}`;
    });
    return each.join(" · ");
  }

  /**
   * Draw a bar for each band, one below the other: held positions filled, new ones framed, and
   * those that the window has passed hollow.
   * @param {Ink} g @param {ViewState} state @param {Frame["lanes"][number]} lane
   * @param {LanePlace & {held: string | CanvasPattern}} place
   */
  _bands(g, { run, palette }, lane, { label, y, height, room, size, held }) {
    const colours = palette.of(/** @type {RunRequest} */ (lane.request));
    const each = height / run.bands.length;
    const thick = Math.max(1, each - (each >= 5 ? 2 : each >= 3 ? 1 : 0));
    const x = (/** @type {number} */ position) => label + (room * position) / run.longest;
    run.bands.forEach((band, b) => {
      const { stretches, tokens } = (this.held.get(band) || [])[lane.lane];
      const top = y + b * each;
      const first = stretches.length ? stretches[0][0] : lane.kvLen;
      if (first && thick >= 3) {
        const passed = { x: label, y: top, w: Math.max(2, x(first) - label), h: thick };
        frameBox(g, colours.solid, 1, passed, [2, 2]);
      }
      for (const [from, end] of stretches) {
        const old = Math.max(from, Math.min(end, lane.before));
        fillBox(g, held, x(from), top, x(old) - x(from), thick);
        if (end <= old) continue;
        const grown = lane.kvLen - lane.before;
        const width = Math.max(2, x(end) - x(old));
        fillBox(g, grown > 1 ? colours.tint : colours.solid, x(old), top, width, thick);
        if (grown === 1) fillBox(g, palette.ink, x(end) - 2, top, 2, thick);
        else if (thick > 5)
          frameBox(g, colours.solid, 1.5, { x: x(old), y: top, w: width, h: thick });
      }
      if (each < 9) return;
      g.fillStyle = palette.ink;
      setFont(g, `${Math.min(size, Math.max(9, each - 1))}px ${palette.mono}`);
      g.fillText(t(count(tokens)), x(lane.kvLen) + 6, top + thick / 2 + 0.5);
    });
    if (each < 9 && height >= 9) {
      g.fillStyle = palette.ink;
      setFont(g, `${size}px ${palette.mono}`);
      const all = run.bands.map((band) => t(count((this.held.get(band) || [])[lane.lane].tokens)));
      g.fillText(all.join("/"), x(lane.kvLen) + 6, y + height / 2 + 0.5);
    }
  }

  /**
   * Draw a cache that was just freed by preemption: its length as an empty frame.
   * @param {Ink} g @param {ViewState} state
   * @param {Frame["vanished"][number]} lost @param {LanePlace} place
   */
  _lost(g, { run, palette, focus, share }, lost, { label, y, height, room, size }) {
    const gone = easeOut(phase(share, "leave"));
    g.globalAlpha = dims(focus, lost.request) ? 0.2 : 1;
    const { solid } = palette.of(lost.request);
    const width = (room * lost.tokensLost) / run.longest;
    if (gone < 1) fillBox(g, solid, label, y, width * (1 - gone), height);
    frameBox(g, solid, 1.5, { x: label, y, w: Math.max(3.5, width), h: height }, [4, 3]);
    if (this.pitch >= 11) {
      setFont(g, `${size}px ${palette.mono}`);
      g.fillStyle = palette.ink;
      const left = `${lost.request.letter} −${lost.tokensLost}`;
      g.fillText(left, label + width + 6, y + height / 2 + 0.5);
    }
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const lane = this.state?.frame.lanes[Math.floor(y / this.pitch)];
    if (!lane) return null;
    if (!lane.request) return { request: null, lines: [[`lane ${lane.lane} is free`]] };
    const grown = lane.kvLen - lane.before;
    const note = grown ? `, ${grown} of them new in this step` : "";
    const does = /** @type {ViewState} */ (this.state).run.isGrouped ? "has" : "holds";
    const lines = [
      [{ request: lane.request }, ` ${does} ${count(lane.kvLen)} [position|positions]${note}`],
    ];
    for (const [band, held] of this.held)
      lines.push([heldWords(band, lane.kvLen, held[lane.lane].tokens)]);
    return { request: lane.request, lines };
  }

  places() {
    const [w, h] = [this.surface.w, this.pitch];
    return (this.state?.frame.lanes || []).map(({ lane }) => ({ x: 0, y: lane * h, w, h }));
  }

  /** @param {ViewState} state */
  table({ run, frame }) {
    const bands = run.isGrouped ? run.bands : [];
    return {
      caption: t("Length of each request's cache"),
      columns: ["Lane", "Request", "Before this step", "After", ...bands.map(bandName)],
      rows: frame.lanes.flatMap((lane) => {
        const held = bands.map((band) => heldBy(run, band, lane, frame.i).tokens);
        const row = [lane.lane, lane.request?.letter, lane.before, lane.kvLen, ...held];
        return lane.request ? [row.map(String)] : [];
      }),
    };
  }
}
