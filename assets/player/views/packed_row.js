// The forward pass as it ran, one row per pass: every token in order, by request, with pads, and
// after an arrow the token that came out. What does not fit is counted.

import { dims } from "../parts/colours.js";
import { find, setAttr, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { count, joined } from "../parts/format.js";
import {
  CanvasView,
  fillBox,
  frameBox,
  isIn,
  measure,
  setFont,
  strokeBox,
} from "../parts/surface.js";
import { guessAt, NOT_USED, overrunWords, visible, written } from "../run/passes.js";
import { movingIn, phase, some, turn } from "./phases.js";

const GAP = 2;
const FLYING = 40; // the most cells that fly from their lanes
// Ways to fold a row, of which the first that fits is used. most: tokens shown of each request;
// dots: whether each template token has a dot; saysOut: whether what came out is shown.
const FOLDS = [
  { most: 1e9, dots: true, saysOut: true },
  ...[1e9, 24, 12, 6, 3].map((most) => ({ most, dots: false, saysOut: true })),
  ...[24, 12, 6, 3, 2, 1, 0].map((most) => ({ most, dots: false, saysOut: false })),
];
const DOTS = 3; // from this many on, template tokens in a row are one cell if room is short

/**
 * A token, or a placeholder for several: pads of a row or of a graph, folded tokens.
 * @typedef {{item: PassItem, text: string, position?: number, guess?: string, phase?: string,
 * added?: boolean, pads?: number, fold?: number, from?: number, sum?: boolean, template?:
 * boolean, graph?: number, bucket?: number | null, out?: string | null}} Cell added: by a chat
 * template, drawn small; template: all folded tokens were; out: the token that came out for the
 * request in this pass, "" if only the end of its answer, shown after its last token
 * @typedef {Cell & {x: number, y: number, w: number, h: number, flies?: boolean, come?: number}}
 * PlacedCell come: the share of its flight that is done
 * @typedef {{h: number, pad: number, font: number, line: number, least: number}} Style
 */

/** The words for what came out. @param {Cell} cell */
const outWords = ({ out }) => (typeof out === "string" ? `→ ${out || t("end")}` : "");

/** The text of a row's token. @param {Run} run @param {PassItem} item @param {number} position */
const textOf = (run, item, position) =>
  guessAt(item, position) === "forgotten"
    ? NOT_USED
    : visible(run.tokenText(item.request, position));

/** Why a token is in the row. @param {Run} run @param {Cell} cell */
function cameFrom(run, { item, position = 0, guess }) {
  if (guess) return "Guessed correctly by speculation";
  if (run.isTemplate(item.request, position)) return "Added by the model's chat template";
  if (item.phase === "decode") return "Decode: the token sampled last, fed back in";
  const prompt = run.promptLength(item.request);
  return position < prompt
    ? `Prefill: one of ${count(Math.min(item.kvLen, prompt) - item.start)} prompt [token|tokens] in this pass`
    : "Prefill: a token it wrote, computed again after its preemption";
}

export class PackedRow extends CanvasView {
  /** @type {Phase[]} */
  moves = ["row", "text"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions);
    this.title = find(panel, ".title");
    /** @type {PlacedCell[]} */
    this.cells = [];
    /** @type {Style} */
    this.style = { h: 22, pad: 5, font: 12, line: 3, least: 9 }; // of the cells
  }

  /**
   * An item's first tokens, one more than `most` if there are more. Several template tokens in a
   * row are one cell, unless each has its dot.
   * @param {Run} run @param {PassItem} item @param {number} most @param {boolean} dots
   */
  _tokensOf(run, item, most, dots) {
    /** @type {(Cell & {from: number})[]} */
    const cells = [];
    const end = item.start + item.length;
    const isTemplate = (/** @type {number} */ position) => run.isTemplate(item.request, position);
    for (let from = item.start; from < end && cells.length <= most;) {
      let to = from;
      while (!dots && to < end && isTemplate(to)) to += 1;
      const fold = to - from;
      if (fold >= DOTS) {
        cells.push({ item, from, fold, template: true, text: `·×${fold}`, phase: item.phase });
        from = to;
        continue;
      }
      const guess = guessAt(item, from);
      const added = isTemplate(from);
      const text = added ? "·" : textOf(run, item, from);
      const phase = guess ? "draft" : item.phase;
      cells.push({ item, from, position: from, guess, text, added, phase });
      from += 1;
    }
    return cells;
  }

  /**
   * The cells of one pass; a request with more than `most` of them is folded to "first two … +n".
   * @param {Run} run @param {Pass} pass @param {{most: number, dots?: boolean}} fold
   * @param {Frame | null} frame whose new tokens are shown, if any
   */
  _cellsOf(run, pass, { most, dots = false }, frame = null) {
    /** @type {Cell[]} */
    const cells = [];
    for (const item of pass.items) {
      const { pads, request, phase } = item;
      if (pads) cells.push({ item, pads, text: t(pads === 1 ? "pad" : `${pads} pads`) });
      const all = this._tokensOf(run, item, most, dots);
      const shown = all.length <= most ? all.length : Math.max(0, most - 1);
      cells.push(...all.slice(0, shown));
      if (shown < all.length) {
        const { from } = all[shown];
        const fold = item.start + item.length - from;
        const text = shown ? `… +${fold}` : `${request.letter} ${fold}`;
        cells.push({ item, fold, from, text, phase });
      }
      if (frame && item.sampled)
        cells[cells.length - 1].out = written(run, request, frame.i, pass.index);
    }
    const { graphPads: graph, bucket } = pass;
    if (graph) {
      const text = `+${t(`${graph} graph padding`)}`;
      cells.push({ item: pass.items[pass.items.length - 1], graph, bucket, text });
    }
    return cells;
  }

  /** One cell that counts several passes. @param {Pass[]} passes */
  _sumOf(passes) {
    const fold = passes.reduce((n, p) => n + p.tokens, 0);
    const text = `… ${t(`${count(passes.length)} more [pass|passes]`)}: ${t(`${count(fold)} [token|tokens]`)}`;
    return { item: passes[0].items[0], fold, sum: true, text };
  }

  /** @param {Ink} g @param {Cell[][]} groups @param {Style} style @param {number} left */
  _place(g, groups, style, left) {
    const { w: width, h: height } = this.surface;
    let x = left;
    let y = 0;
    const placed = [];
    for (const [index, cells] of groups.entries()) {
      if (index) {
        x = left;
        y += style.h + style.line;
      }
      for (const cell of cells) {
        const pad = cell.added ? 0 : style.pad;
        const w = Math.max(style.least, measure(g, cell.text) + 2 * pad);
        const out = outWords(cell);
        const all = w + (out ? measure(g, out) + 2 * style.pad + GAP : 0);
        if (x + all > width && x > left) {
          x = left;
          y += style.h + style.line;
        }
        if (y + style.h > height + 0.5) return null;
        placed.push({ ...cell, x, y, w: Math.min(w, width - left), h: style.h });
        x += all + GAP;
      }
    }
    return placed;
  }

  /** @param {ViewState} state */
  draw(state) {
    const { surface } = this;
    const { run, frame, palette, presenter, simple } = state;
    const { event, passes } = frame;
    const moving = surface.visible ? movingIn(state) : null;
    const past = moving && this.past(state, moving.before);
    this.state = state;
    const tokens = event.budget.decode + event.budget.prefill;
    const pads = passes.reduce((n, p) => n + p.padding, 0);
    const many = passes.length > 1;
    const [one, several] = simple
      ? ["One pass through the model", `${passes.length} passes through the model`]
      : ["One forward pass", `${passes.length} forward passes`];
    tell(this.title, many ? several : one);
    const shape = !many && passes[0]?.padded ? `${passes[0].rows} × ${passes[0].width}: ` : "";
    const over = event.overrun.reduce((n, o) => n + o.rows, 0);
    const guessed = event.drafts.reduce((n, d) => n + d.drafted, 0);
    const used = event.drafts.reduce((n, d) => n + d.accepted, 0);
    const graph = passes.reduce((n, p) => n + p.graphPads, 0);
    const said = [
      !simple && shape,
      t(`${count(tokens)} [token|tokens]`),
      !simple && over && ` (${t(`${over} overrun`)})`,
      !simple && guessed && `, ${t(`${guessed} guessed: ${used} used`)}`,
      pads && ` + ${t(`${count(pads)} [pad|pads]`)}`,
      !simple && !pads && !graph && passes.length && `, ${t("no padding")}`,
      !simple && graph && ` + ${t(`${graph} graph padding`)}`,
    ];
    setText(this.key, joined(said, ""));
    if (!surface.visible) return;
    const g = surface.begin();
    this.cells = [];
    const come = phase(state.share, "row");
    if (past && come < 0.5) {
      g.globalAlpha = 1 - 2 * come;
      g.drawImage(past, 0, 0, surface.w, surface.h);
      g.globalAlpha = 1;
    }
    if (!passes.length) return;
    const phone = state.layout === "phone";
    const style = state.alone
      ? { h: 54, pad: 13, font: 30, line: 10, least: 22 }
      : presenter
        ? { h: 38, pad: 9, font: 21, line: 4, least: 16 }
        : { h: 22, pad: 5, font: 12, line: 3, least: 9 };
    let shown = passes;
    /** @type {Pass[]} */
    let hidden = [];
    const fits = Math.floor((surface.h + style.line) / (style.h + style.line));
    if (passes.length > fits && !presenter) {
      const lines = Math.min(passes.length, Math.floor((surface.h + 1) / 14));
      const h = Math.floor((surface.h - lines + 1) / lines);
      Object.assign(style, { h, line: 1, font: phone ? 12 : 11 });
      if (passes.length > lines) {
        // the passes in between become one line that counts them
        shown = [...passes.slice(0, Math.max(1, lines - 2)), passes[passes.length - 1]];
        hidden = passes.slice(shown.length - 1, -1);
      }
    }
    setFont(g, `${style.font}px ${palette.mono}`);
    const thumb =
      passes.some((p) => p.padded && p.width > 1) && !phone ? Math.min(150, surface.w * 0.16) : 0;
    const label = passes.length > 1 ? measure(g, "0") + 12 : 0;
    /** @type {PlacedCell[] | null} */
    let placed = null;
    for (const fold of FOLDS) {
      const groups = shown.map((p) => this._cellsOf(run, p, fold, fold.saysOut ? frame : null));
      if (hidden.length) groups.splice(-1, 0, [this._sumOf(hidden)]);
      placed = this._place(g, groups, style, thumb + label);
      if (placed) break;
    }
    const flows = !placed; // the passes follow each other in the lines, without numbers
    if (!placed) placed = this._counted(g, run, passes, style, thumb + label);
    this.style = style;
    const wide = passes.findLast((p) => p.padded && p.width > 1);
    if (thumb && wide && come >= 0.5) this._thumbnail(g, state, wide, thumb - 12);
    if (label && !flows && come >= 0.5) {
      g.textBaseline = "middle";
      g.fillStyle = palette.soft;
      const seen = new Set();
      for (const cell of placed) {
        const pass = shown.find((p) => p.items.includes(cell.item));
        if (!pass || seen.has(pass)) continue;
        seen.add(pass);
        g.fillText(String(pass.index + 1), thumb + 2, cell.y + style.h / 2 + 0.5);
      }
    }
    const isToken = (/** @type {PlacedCell} */ { pads, graph, sum }) => !pads && !graph && !sum;
    const carries = moving && state.flights?.carries(state);
    const flying = carries ? some(placed.filter(isToken), FLYING) : null;
    placed.forEach((cell, n) => {
      Object.assign(cell, { flies: flying?.has(cell), come: turn(come, n, placed.length) });
      if (cell.come === 1 || !cell.flies) this.ink(g, state, cell, cell.come);
      this._out(g, state, cell);
    });
    this.cells = placed;
    const each = (/** @type {PassItem} */ i) => {
      const what = i.finished ? "finished" : `${i.length} ${i.overrun ? "overrun" : i.phase}`;
      const after = i.pads ? ` ${t(`after ${count(i.pads)} [pad|pads]`)}` : "";
      return `${i.request.letter} ${t(what)}${after}`;
    };
    const heard = passes.map((p) => p.items.map(each).join(", ")).join("; ");
    const ran = t(many ? `${passes.length} passes` : "One pass");
    setAttr(surface.canvas, "aria-label", `${ran}: ${heard}`);
  }

  /**
   * If even one cell per request is too many: as many as fit, then the number of those left.
   * @param {Ink} g @param {Run} run @param {Pass[]} passes @param {Style} style @param {number}
   * left
   */
  _counted(g, run, passes, style, left) {
    const cells = passes.flatMap((p) => this._cellsOf(run, p, { most: 0 }));
    for (let n = cells.length - 1; n >= 0; n -= Math.ceil(cells.length / 40)) {
      const rest = cells.slice(n);
      const fold = rest.reduce((sum, c) => sum + (c.fold || 0), 0);
      const requests = new Set(rest.filter((c) => c.fold).map(({ item }) => item.request)).size;
      const text = `+${t(`${count(fold)} [token|tokens] of ${count(requests)} [request|requests]`)}`;
      const last = { ...rest[0], fold, text, sum: true };
      const placed = this._place(g, [[...cells.slice(0, n), last]], style, left);
      if (placed) return placed;
    }
    return [];
  }

  /**
   * Draw a cell in the row, or on its way to it.
   * @param {Ink} g @param {ViewState} state @param {PlacedCell} cell @param {number} alpha
   */
  ink(g, { palette, focus, hot }, cell, alpha = 1) {
    if (!alpha) return;
    const { style } = this;
    const colours = palette.of(cell.item.request);
    const strength = alpha * (dims(focus, cell.item.request) || (focus && cell.graph) ? 0.2 : 1);
    g.globalAlpha = strength;
    const { x, y, w, h } = cell;
    const forNobody =
      cell.pads || cell.graph || (cell.item.overrun && !cell.sum) || cell.guess === "forgotten";
    g.beginPath();
    g.roundRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5, 4);
    g.textBaseline = "middle";
    if (forNobody || cell.sum) {
      g.fillStyle = cell.sum ? palette.empty : palette.hatch(g);
      g.fill();
      if (forNobody) {
        g.fillStyle = palette.panel;
        g.globalAlpha *= 0.8;
        g.fillRect(x + style.pad - 2, y + 3, w - 2 * style.pad + 4, h - 6);
        g.globalAlpha = strength;
      }
      g.fillStyle = palette.soft;
    } else if (cell.phase === "decode") {
      g.fillStyle = colours.fill;
      g.fill();
      g.fillStyle = colours.text;
    } else {
      g.fillStyle = colours.tint;
      g.fill();
      g.strokeStyle = colours.solid;
      g.lineWidth = 1.5;
      g.stroke();
      g.fillStyle = palette.ink;
    }
    const left = Math.max(cell.added ? 0 : style.pad, (w - measure(g, cell.text)) / 2);
    g.fillText(cell.text, x + left, y + h / 2 + 0.5);
    if (hot?.request === cell.item.request && hot.q !== undefined && cell.position === hot.q)
      strokeBox(g, palette.ink, 2, x, y, w, h);
    g.globalAlpha = 1;
  }

  /**
   * Draw what came out, after the last token that went in.
   * @param {Ink} g @param {ViewState} state @param {PlacedCell} cell
   */
  _out(g, { palette, focus, share }, cell) {
    g.globalAlpha = phase(share, "text") * (dims(focus, cell.item.request) ? 0.2 : 1);
    g.fillStyle = cell.out ? palette.ink : palette.soft;
    g.fillText(outWords(cell), cell.x + cell.w + 2 * GAP, cell.y + cell.h / 2 + 0.5);
    g.globalAlpha = 1;
  }

  /**
   * Draw the rectangle that was computed: rows × width, pads hatched.
   * @param {Ink} g @param {ViewState} state @param {Pass} pass @param {number} width
   */
  _thumbnail(g, { palette, focus }, pass, width) {
    const height = this.surface.h - 2;
    const cw = Math.min(width / pass.width, 14);
    const rh = Math.min(height / pass.rows, 12);
    fillBox(g, palette.hatch(g), 0, 1, cw * pass.width, rh * pass.rows);
    pass.items.forEach((item, row) => {
      if (!item.length) return;
      const colours = palette.ofItem(item);
      g.globalAlpha = dims(focus, item.request) ? 0.2 : 1;
      const [x, y, w] = [item.pads * cw, 1 + row * rh, item.length * cw];
      const decodes = item.phase === "decode";
      fillBox(g, decodes ? colours.solid : colours.tint, x, y, w, rh - (rh > 4 ? 1 : 0));
      if (!decodes && rh > 3) frameBox(g, colours.solid, 1, { x, y, w, h: rh - 1 });
    });
    g.globalAlpha = 1;
  }

  /** @param {number} x @param {number} y */
  hit(x, y) {
    const cell = this.cells.find((c) => isIn(c, x, y));
    if (!cell || !this.state) return null;
    const { item, position = 0 } = cell;
    const request = item.request;
    if (cell.sum) return { request: null, lines: [[cell.text]] };
    if (cell.graph) {
      const has = `the CUDA graph has ${count(cell.bucket ?? 0)} [position|positions]`;
      const line = [`Graph padding: ${has}, ${cell.graph} of them for no request`];
      return { request: null, lines: [line] };
    }
    const wasted = item.overrun ? [overrunWords(item)] : [];
    if (cell.pads) {
      const why = item.finished
        ? "finished; its row is still computed until the wave ends"
        : "fewer tokens than this pass has columns";
      return { request, lines: [[{ request }, ` ${count(cell.pads)} [pad|pads]: ${why}`]] };
    }
    if (cell.fold && cell.template) {
      const to = (cell.from ?? 0) + cell.fold - 1;
      const what = ` ${count(cell.fold)} [token|tokens], positions ${cell.from} to ${to}`;
      return { request, lines: [[{ request }, what], ["Added by the model's chat template"]] };
    }
    if (cell.fold) {
      const more = ` ${count(cell.fold)} more [token|tokens], positions ${cell.from} to ${item.kvLen - 1}`;
      return { request, lines: [[{ request }, more], ...wasted] };
    }
    if (cell.guess === "forgotten") {
      const why = ` position ${position}: a token that was guessed and not used; it is forgotten`;
      return { request, lines: [[{ request }, why]] };
    }
    const { run } = this.state;
    const text = visible(run.tokenText(request, position), 40);
    return {
      request,
      hot: { request, q: position, keys: [position, position + 1] },
      lines: [
        [{ request }, ` token ${position}: “${text}”`],
        ...(item.overrun ? wasted : [[cameFrom(run, cell)]]),
      ],
    };
  }

  places() {
    return this.cells;
  }

  /** @param {ViewState} state */
  table({ run, frame }) {
    const rowOf = (/** @type {Pass} */ pass, /** @type {PassItem} */ i) => {
      const shown = Array.from({ length: Math.min(i.length, 40) }, (_, n) => i.start + n);
      const tokens = shown.map((position) => textOf(run, i, position));
      if (i.length > 40) tokens.push(`… +${i.length - 40}`);
      return [
        String(pass.index + 1),
        i.request.letter,
        `${t(i.phase)}${i.overrun ? `, ${t("overrun")}` : ""}`,
        i.length ? t(`${i.start} to ${i.kvLen - 1}`) : "–",
        tokens.join(" "),
        String(i.pads),
        i.sampled ? written(run, i.request, frame.i, pass.index) || t("end") : "",
      ];
    };
    const padded = (/** @type {Pass} */ { index, graphPads }) =>
      [index + 1, t("nobody"), t("graph padding"), "–", "", graphPads, ""].map(String);
    return {
      caption: t("Tokens of this forward pass, in order"),
      columns: ["Pass", "Request", "Phase", "Positions", "Tokens", "Pads", "Came out"],
      rows: frame.passes.flatMap((pass) => [
        ...pass.items.map((i) => rowOf(pass, i)),
        ...(pass.graphPads ? [padded(pass)] : []),
      ]),
    };
  }
}
