// Small runs for tests, as replays: what each lane computes in each step.

import { Run } from "../../assets/player/run/run.js";

const WHY = { limit: "none", have: 0, need: 0, total: 0 };

/** A pass of one row, or of a row a request. */
export const pass = (tStart, tEnd, given = {}) => ({
  layout: "packed",
  rows: 1,
  width: 1,
  tokens: 1,
  padding: 0,
  tStart,
  tEnd,
  finishedRows: [],
  bucket: null,
  ...given,
});

/**
 * An event of `core/trace/events.py`, named as a replay names it, with nothing in it but what is
 * given.
 */
export function event(step, given = {}) {
  return {
    step,
    tStart: step,
    tEnd: step + 0.5,
    timings: { schedule: 0, prepare: 0, forward: 0.5, sample: 0 },
    arrived: [],
    admitted: [],
    waiting: { count: 0, request: null, why: null },
    preempted: [],
    stalled: [],
    passes: [pass(step, step + 0.5)],
    segments: [],
    sampled: [],
    finished: [],
    kv: { used: 0, total: 8, changes: [], prefixHits: [] },
    budget: { limit: 16, decode: 0, prefill: 0, unused: 16, binding: "none" },
    overrun: [],
    drafts: [],
    released: [],
    ...given,
  };
}

export const arrivals = (...requests) => requests.map((request) => ({ request, t: 0 }));
export const admissions = (...pairs) =>
  pairs.map(([request, lane]) => ({ request, lane, why: WHY }));
export const prefill = (request, lane, length) => ({
  passIndex: 0,
  request,
  lane,
  phase: "prefill",
  start: 0,
  length,
  kvLen: length,
});
export const decode = (request, lane, start) => ({
  passIndex: 0,
  request,
  lane,
  phase: "decode",
  start,
  length: 1,
  kvLen: start + 1,
});
export const samples = (...requests) =>
  requests.map((request) => ({ passIndex: 0, request, tokenId: 7, logprob: 0, margin: 0 }));

export const runOf = (events, config = {}, header = {}) =>
  new Run({
    header: {
      config: { policy: "continuous", max_num_seqs: 2, block_size: 4, num_blocks: 8, ...config },
      workload: { requests: [] },
      ...header,
    },
    events,
    captions: [],
    letters: { a: "A", b: "B" },
  });

/**
 * Two requests in two lanes: `a` reads 3 tokens and decodes twice, `b` waits a step, reads 2,
 * decodes once.
 */
export const two = () =>
  runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0]),
      waiting: { count: 1, request: "b", why: { limit: "budget", have: 0, need: 2, total: 16 } },
      segments: [prefill("a", 0, 3)],
      sampled: samples("a"),
    }),
    event(1, {
      admitted: admissions(["b", 1]),
      segments: [decode("a", 0, 3), prefill("b", 1, 2)],
      sampled: samples("a", "b"),
    }),
    event(3, { segments: [decode("a", 0, 4), decode("b", 1, 2)], sampled: samples("a", "b") }),
  ]);

/**
 * Ink that remembers the boxes and texts drawn with it, and a palette whose colours are named by
 * request and kind.
 */
export class Recorder {
  boxes = [];
  texts = [];
  globalAlpha = 1;
  palette = {
    ink: "ink",
    soft: "soft",
    warn: "warn",
    panel: "panel",
    pad: "pad",
    empty: "empty",
    hatch: () => "hatched",
    ofItem: ({ request }) => this.palette.of(request),
    of: ({ letter }) =>
      Object.fromEntries(
        ["cached", "solid", "tint", "faint", "fill", "text"].map((kind) => [
          kind,
          `${letter} ${kind}`,
        ]),
      ),
  };

  fillRect(x, y, w, h) {
    this.boxes.push({ x, y, w, h, style: this.fillStyle, alpha: this.globalAlpha });
  }

  fillText(text, x, y) {
    this.texts.push({ text, x, y });
  }

  strokeRect() {}

  beginPath() {}

  arc() {}

  moveTo() {}

  lineTo() {}

  fill() {}

  stroke() {}

  setLineDash() {}

  measureText(text) {
    return { width: 6 * text.length };
  }
}
