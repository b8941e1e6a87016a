// Run with the paths of replays: prints the frames of each as plain data, for comparison with
// core/trace/run_state.py.

import { readFileSync } from "node:fs";
import process from "node:process";

import { placesAt } from "../../assets/player/run/holdings.js";
import { DECODE, OVERRUN, PREFILL, Run, STALLED, WASTED } from "../../assets/player/run/run.js";

const DOING = [
  [DECODE, "decode"],
  [WASTED, "finished"],
  [OVERRUN, "overrun"],
  [PREFILL, "prefill"],
  [STALLED, "stalled"],
];

function plain(run, i) {
  const { event, lanes, waiting } = run.frame(i);
  const held = lanes.filter((l) => l.laneSpan);
  const blocks = {};
  for (const { request, laneSpan } of held) {
    for (const { block } of placesAt(laneSpan, i)) (blocks[block] ??= []).push(request.id);
  }
  return {
    step: event.step,
    lanes: held.map((l) => [
      l.lane,
      l.request.id,
      DOING.filter(([bit]) => l.status & bit).map(([, name]) => name),
      l.kvLen,
    ]),
    waiting: waiting.map((w) => [w.request.id, run.stepOf(w.since), w.preempted]),
    blocks: Object.fromEntries(
      Object.entries(blocks).map(([block, owners]) => [block, owners.sort()]),
    ),
  };
}

for (const path of process.argv.slice(2)) {
  const run = new Run(JSON.parse(readFileSync(path, "utf8")));
  process.stdout.write(`${JSON.stringify(run.events.map((_, i) => plain(run, i)))}\n`);
}
