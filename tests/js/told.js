// Run with the path of a replay: prints what the page says of the run as text, view by view and
// step by step, as tests/worlds/as_told.py keeps it.

import { readFileSync } from "node:fs";
import process from "node:process";

import { slowSteps, stepsWaited, timeOf, waitedSoFar } from "../../assets/player/run/delays.js";
import { betweenSteps } from "../../assets/player/run/happenings.js";
import { firstStepOf, matching } from "../../assets/player/run/ids.js";
import {
  countLaneSteps,
  indexAt,
  lanePieces,
  laneScale,
  queueColumns,
} from "../../assets/player/run/lane_layout.js";
import { written } from "../../assets/player/run/passes.js";
import { Run } from "../../assets/player/run/run.js";
import { laneWords } from "../../assets/player/views/lane_chart.js";
import { LanesView } from "../../assets/player/views/lanes.js";
import { BlocksView } from "../../assets/player/views/kv.js";
import { LengthsView } from "../../assets/player/views/lengths.js";
import { layoutMask, viewOf } from "../../assets/player/views/mask/geometry.js";
import { MaskView } from "../../assets/player/views/mask/mask.js";
import { PackedRow } from "../../assets/player/views/packed_row.js";
import { budgetParts, timeParts } from "../../assets/player/views/queue.js";
import { cacheWords, timesOf } from "../../assets/player/views/request_card.js";
import { outputTail } from "../../assets/player/views/texts.js";
import { factsOf, limitsOf, sourceOf } from "../../assets/player/watch/facts.js";
import { paceOf } from "../../assets/player/watch/happens.js";

const CELLS = 7; // of a side of the mask, whose words are told

/** JSON in which a request is its letter, and a number has six digits. */
const plain = (value) =>
  JSON.stringify(value, (key, part) => {
    if (part && typeof part === "object" && "letter" in part && "laneSpans" in part)
      return part.letter;
    if (part instanceof Map) return [...part];
    if (typeof part === "number" && !Number.isInteger(part)) return Number(part.toPrecision(6));
    return part;
  });

const say = (name, value) => process.stdout.write(`${name}: ${plain(value)}\n`);

function tellMask(run, frame, pass) {
  const mask = Object.assign(Object.create(MaskView.prototype), { layer: null });
  say("    mask", mask.table({ run, pass }));
  const sheet = { w: 600, h: 400, d: 1 };
  const at = layoutMask(sheet, viewOf(pass, null), 1, {});
  const window = mask.window(run);
  Object.assign(mask, { state: { run, frame, weights: null, simple: false } });
  mask.drawn = { at, pass, window, weights: null };
  const every = (n) => [
    ...new Set(Array.from({ length: CELLS }, (_, i) => Math.floor((i * n) / CELLS))),
  ];
  for (const q of every(pass.nq))
    say(
      `    query ${q}`,
      every(pass.nk).map((k) => mask.explain(q, k)?.lines),
    );
}

function tellStep(run, i, alsoMask) {
  const frame = run.frame(i);
  const { event, lanes, passes } = frame;
  say(`step ${event.step}`, budgetParts(run, frame));
  say("    blocks", BlocksView.prototype.table({ run, frame }));
  say("    lengths", LengthsView.prototype.table({ run, frame }));
  say("    row", PackedRow.prototype.table({ run, frame }));
  say(
    "    lanes",
    lanes.map((lane) => lane.request && laneWords(lane)),
  );
  say("    times", timeParts(run, event));
  say("    pace", paceOf(run, i));
  const { happened = null } = betweenSteps(run, i) || {};
  say("    between", happened);
  for (const request of run.requests) {
    const { gaps, ...times } = timesOf(run, request, i);
    say(`    ${request.letter}`, {
      ...times,
      gaps: gaps.length,
      waited: waitedSoFar(run, request, i),
      steps: stepsWaited(run, request, i),
      text: outputTail(run, run.texts.output[request.id] || [], run.numGenerated(request, i), 40),
      at: written(run, request, i),
    });
  }
  for (const pass of alsoMask ? passes : []) tellMask(run, frame, pass);
}

const run = new Run(JSON.parse(readFileSync(process.argv[2], "utf8")));
say("source", sourceOf(run));
for (const [name, words] of factsOf(run)) say(name, words);
say("limits", limitsOf(run));
say("slow", slowSteps(run));
const pieces = lanePieces(run);
say("lane-steps", countLaneSteps(run, pieces));
say("queue", queueColumns(run));
for (const clock of [false, true]) {
  const scale = laneScale(run, clock, 24, clock ? 900 : 12);
  say(
    "scale",
    [30, 90, 240, 600].map((x) => indexAt(run, scale, x)),
  );
}
say(
  "kinds",
  Object.fromEntries(
    ["admission", "chunk", "preemption", "finish", "any"].map((kind) => [
      kind,
      run.eventSteps(kind),
    ]),
  ),
);
for (const request of run.requests)
  say(request.letter, [timeOf(run, request), firstStepOf(request), cacheWords(run, 5)]);
say(
  "found",
  matching(
    run.requests.map((request) => ({ request })),
    "1",
  ),
);
const frame = run.frame(run.length - 1);
const lanesView = Object.assign(Object.create(LanesView.prototype), { counts: [] });
say("at the end", lanesView.table({ run, frame }));
const steps = Math.min(run.length, Number(process.argv[3]));
for (let i = 0; i < steps; i += 1) tellStep(run, i, i % 5 === 0);
