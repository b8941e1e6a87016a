// Run with the paths of replays: prints what moved between the steps of each as plain data, for
// comparison with the events and with core/trace/run_state.py.

import { readFileSync } from "node:fs";
import process from "node:process";

import { betweenSteps } from "../../assets/player/run/happenings.js";
import { Run } from "../../assets/player/run/run.js";

const named = ({ request, ...rest }) => ({ request: request.id, ...rest });

function plain(run, i) {
  const between = betweenSteps(run, i);
  if (!between) return null;
  const lists = Object.entries(between.happened);
  return {
    before: between.before.i,
    ...Object.fromEntries(lists.map(([kind, list]) => [kind, list.map(named)])),
  };
}

for (const path of process.argv.slice(2)) {
  const run = new Run(JSON.parse(readFileSync(path, "utf8")));
  process.stdout.write(`${JSON.stringify(run.events.map((_, i) => plain(run, i)))}\n`);
}
