// Run with the path of {whole, begun}: a replay, and others that begin in the middle of it and go
// on to its end. Prints every difference that a reader would see between the run from its start and
// the same run from a beginning.

import { readFileSync } from "node:fs";
import process from "node:process";

import { placesAt } from "../../assets/player/run/holdings.js";
import { Run } from "../../assets/player/run/run.js";
import { timesOf } from "../../assets/player/views/request_card.js";

function seen(run, i) {
  const { event, lanes, waiting } = run.frame(i);
  const of = (request) => {
    const { waited, ttft, preemptions } = timesOf(run, request, i);
    const n = run.numGenerated(request, i);
    const now = [
      request.letter,
      request.hue,
      request.by,
      request.maxNew,
      n,
      waited,
      ttft,
      preemptions,
      request.waits.length > 0, // where the card says in which step it came
      Boolean(request.finished && request.finished.step <= i),
    ];
    return [...now, run.promptLength(request), run.texts.output[request.id]?.slice(0, n).join("")];
  };
  return {
    step: event.step,
    lanes: lanes.map((l) => [
      l.status,
      l.kvLen,
      l.before,
      l.request && of(l.request),
      l.laneSpan && placesAt(l.laneSpan, i).map((p) => [p.group, p.at, p.block]),
    ]),
    waiting: waiting.map((w) => [of(w.request), run.stepOf(w.since), w.preempted]),
  };
}

const { whole, begun } = JSON.parse(readFileSync(process.argv[2], "utf8"));
const all = new Run(whole);
for (const replay of begun) {
  const run = new Run(replay);
  for (let i = 0; i < run.length; i += 1) {
    const [here, there] = [
      JSON.stringify(seen(all, all.indexOf(run.stepOf(i)))),
      JSON.stringify(seen(run, i)),
    ];
    if (here !== there)
      process.stdout.write(
        `from step ${replay.begin.step}, step ${run.stepOf(i)}:\n  ${here}\n  ${there}\n`,
      );
  }
}
