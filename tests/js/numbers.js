// Run with the paths of replays: prints what the page counts of each run, as plain data, for
// comparison with the lines of its trace: the lanes' totals and, of every request at every tenth
// step and the last, the numbers of its card.

import { readFileSync } from "node:fs";
import process from "node:process";

import { countLaneSteps, lanePieces } from "../../assets/player/run/lane_layout.js";
import { Run } from "../../assets/player/run/run.js";
import { timesOf } from "../../assets/player/views/request_card.js";

function cards(run, i) {
  return Object.fromEntries(
    run.requests.map((request) => {
      const { waited, ttft, gaps, tpot, preemptions } = timesOf(run, request, i);
      return [
        request.id,
        {
          waited,
          ttft,
          gaps,
          tpot,
          preemptions,
          prompt: run.promptLength(request),
          tokens: run.numGenerated(request, i),
          arrived: request.arrived,
          maxNew: request.maxNew,
        },
      ];
    }),
  );
}

for (const path of process.argv.slice(2)) {
  const run = new Run(JSON.parse(readFileSync(path, "utf8")));
  const steps = run.events.map((_, i) => i).filter((i) => i % 10 === 0 || i === run.length - 1);
  process.stdout.write(
    `${JSON.stringify({ lanes: countLaneSteps(run, lanePieces(run)), cards: steps.map((i) => [i, cards(run, i)]) })}\n`,
  );
}
