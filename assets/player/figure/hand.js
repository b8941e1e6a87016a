// The interactive figure about scheduling: six requests in waves and continuously, one above the other. The reader sets the length of an answer, the
// number of lanes, and when D arrives. The scheduler decided every setting in advance (visualizer/documents/hand.py), so both pictures follow a drag
// at once; no model ran, so there are steps but no times. Data: that document. State: length, lanes, arrival.

import { clamp } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { fillBox } from "../parts/surface.js";
import { laneScale } from "../run/lane_layout.js";
import { Run } from "../run/run.js";
import { GUTTER, LaneInk } from "../views/lane_ink.js";
import { stepMarks } from "./lanes.js";

const KNOBS = /** @type {const} */ (["length", "lanes", "arrival"]);
const LONGER = 1; // the index of B, whose answer can be lengthened
const LATER = 3; // the index of D, which can arrive later
const NAMES = { static: "in waves", continuous: "continuously" };
const TITLE = 20; // pixels above each picture
const AXIS = 18; // pixels of the axis above the lanes
const ROOM = 48; // steps that always fit, so that the scale seldom changes
const REACH = 16; // pixels within which something can be grabbed

/**
 * @typedef {Record<typeof KNOBS[number], [number, number, number, number]> & {letters: string, hues:
 * number[], decided: Record<keyof typeof NAMES, number[][]>}} HandData
 */

/** The nearest setting that was decided. @param {DrawingState} state @param {HandData} data */
const snapped = (state, data) =>
  KNOBS.map((key) => {
    const [from, to, step] = data[key];
    return clamp(from + Math.round((state[key] - from) / step) * step, from, to);
  });

/** Both runs, built from their decisions. @param {DrawingState} state @param {HandData} data */
function runsOf(state, data) {
  const values = snapped(state, data);
  const setting = KNOBS.reduce((n, key, i) => {
    const [from, to, step] = data[key];
    return n * ((to - from) / step + 1) + (values[i] - from) / step;
  }, 0);
  const [, lanes, arrival] = values;
  return /** @type {(keyof typeof NAMES)[]} */ (Object.keys(NAMES)).map((policy) => {
    const decided = data.decided[policy][setting];
    const requests = [...data.letters].map((letter, n) => {
      const [lane, from, to, until] = decided.slice(4 * n, 4 * n + 4);
      return { request: letter, lane, from, to, until, came: n === LATER ? arrival : 0 };
    });
    const length = Math.max(...requests.map(({ until }) => until)) + 1;
    const hues = Object.fromEntries(requests.map(({ request }, n) => [request, data.hues[n]]));
    const header = { source: "simulated", config: { max_num_seqs: lanes } };
    const run = new Run({ header, hues, events: eventsOf(requests, length) });
    return { policy, requests, length, run };
  });
}

/**
 * @param {{request: string, lane: number, from: number, to: number, until: number, came: number}[]}
 * requests @param {number} length
 */
const eventsOf = (requests, length) =>
  Array.from({ length }, (_, step) => {
    const held = requests.filter(({ from, until }) => from <= step && step <= until);
    return {
      step,
      tStart: step,
      tEnd: step + 1,
      arrived: requests.filter(({ came }) => came === step).map((r) => ({ ...r, t: step })),
      admitted: held.filter(({ from }) => from === step),
      segments: held
        .filter(({ to }) => step <= to)
        .map((r) => ({ ...r, phase: r.from === step ? "prefill" : "decode", kvLen: 0 })),
      passes: [{ finishedRows: held.filter(({ to }) => step > to) }],
      finished: held.filter(({ to }) => to === step),
      released: held.filter(({ until }) => until === step).map((r) => ({ ...r, when: "after" })),
      kv: { prefixHits: [], changes: [] },
      ...{ preempted: [], stalled: [], sampled: [], overrun: [], drafts: [] },
    };
  });

/** The layout. @param {ReturnType<typeof runsOf>} runs @param {{w: number, h: number}} size */
function laidOut(runs, { w, h }) {
  const span = Math.max(ROOM, ...runs.map(({ length }) => length));
  const height = h / 2 - TITLE - 4;
  return {
    span,
    height,
    per: (w - GUTTER - 8) / span,
    tops: runs.map((_, n) => n * (h / 2) + TITLE),
  };
}

/** @type {DrawingKind} */
export const hand = {
  slider: (data) => /** @type {NonNullable<typeof hand.knobs>} */ (hand.knobs)(data)[0],
  knobs: (/** @type {HandData} */ data) =>
    KNOBS.map((key) => {
      const [from, to, step] = data[key];
      return { key, from, to, step, word: "", says: (n) => WORDS[key](n, data) };
    }),
  print: (/** @type {HandData} */ data) => recorded(data),
  draw(pen, state, /** @type {HandData} */ data) {
    const { g, w, palette } = pen;
    const runs = runsOf(state, data);
    const { span, height, per, tops } = laidOut(runs, pen);
    runs.forEach(({ policy, run, length, requests }, n) => {
      pen.font(14, 600);
      pen.text(t(NAMES[policy]), 0, tops[n] - TITLE / 2);
      pen.text(t(`${count(length)} [step|steps]`), w, tops[n] - TITLE / 2, palette.ink, "right");
      g.save();
      g.translate(0, tops[n]);
      const ink = new LaneInk();
      const scale = laneScale(run, false, GUTTER, per);
      const drawn = { run, palette, focus: null, presenter: false };
      const d = window.devicePixelRatio || 1;
      const queue = height > 110; // only if there is room
      ink.place(
        run,
        { w, h: height, d },
        { scale, axis: AXIS, font: 12, end: scale.x(length), queue },
      );
      const late = requests[LATER];
      const x = scale.x(late.came);
      ink.drawGround(g, drawn, () => stepMarks(g, scale, span, w, x));
      ink.drawLanes(g, drawn);
      const own = requests[LONGER];
      const [y, tall] = ink.lane(own.lane);
      fillBox(g, palette.ink, scale.x(own.to + 1) - 2, y - 2, 4, tall + 4);
      fillBox(g, palette.ink, x - 0.75, 12, 1.5, height - 12);
      pen.chip(late.request, data.hues[LATER], clamp(x - 8, GUTTER - 8, w - 16), 8, 16);
      g.restore();
    });
  },
  says(state, /** @type {HandData} */ data) {
    const [waves, own] = runsOf(state, data).map(({ length, requests }) => ({
      length: count(length),
      waits: count(requests[LATER].from - requests[LATER].came),
    }));
    return t(
      `In waves ${waves.length} [step|steps], continuously ${own.length}. {who} waits ${waves.waits} [step|steps] in waves, ${own.waits} continuously.`,
      { who: data.letters[LATER] },
    );
  },
  grab(x, y, state, data, size) {
    const runs = runsOf(state, data);
    const { per, tops, height } = laidOut(runs, size);
    const n = y < tops[1] - TITLE ? 0 : 1;
    const near = (/** @type {number} */ step) => Math.abs(x - GUTTER - step * per) < REACH;
    const { requests } = runs[n];
    if (near(requests[LATER].came) && y - tops[n] < AXIS + 4) return "arrival";
    const lane = (y - tops[n] - AXIS) / ((height - AXIS) / snapped(state, data)[1]);
    return near(requests[LONGER].to + 1) && Math.abs(lane - requests[LONGER].lane - 0.5) < 1
      ? "length"
      : null;
  },
  drag(knob, by, from, data, size) {
    const { per } = laidOut(runsOf(from, data), size);
    return snapped({ ...from, [knob]: from[knob] + by / per }, data)[
      KNOBS.indexOf(/** @type {typeof KNOBS[number]} */ (knob))
    ];
  },
};

/** The setting that was recorded. @param {HandData} data @returns {DrawingState} */
export const recorded = (data) => Object.fromEntries(KNOBS.map((key) => [key, data[key][3]]));

/** @type {Record<typeof KNOBS[number], (n: number, data: HandData) => string>} */
const WORDS = {
  length: (n, { letters }) =>
    t(`The answer to {who}: ${count(n)} [token|tokens]`, { who: letters[LONGER] }),
  lanes: (n) => t(`${count(n)} [lane|lanes]`),
  arrival: (n, { letters }) => t(`{who} comes in step ${count(n)}`, { who: letters[LATER] }),
};
