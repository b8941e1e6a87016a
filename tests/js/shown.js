// Run with the paths of replays: prints what the views are given to draw of each step, as plain
// data, for comparison with core/trace.

import { readFileSync } from "node:fs";
import process from "node:process";

import { heldBy, placesAt } from "../../assets/player/run/holdings.js";
import { allowedKeys } from "../../assets/player/run/passes.js";
import { waitedBy } from "../../assets/player/run/delays.js";
import { Run } from "../../assets/player/run/run.js";
import { BlocksView } from "../../assets/player/views/kv.js";
import { LengthsView } from "../../assets/player/views/lengths.js";
import { MaskView } from "../../assets/player/views/mask/mask.js";
import { PackedRow } from "../../assets/player/views/packed_row.js";
import { budgetParts } from "../../assets/player/views/queue.js";

const MOST_CELLS = 1500; // of a mask that is compared cell by cell

function rowOf(run, pass) {
  return PackedRow.prototype
    ._cellsOf(run, pass, { most: Infinity, dots: true })
    .flatMap(({ item, position, pads, graph, guess, phase }) => {
      if (pads) return Array(pads).fill([item.request.id, null]);
      return graph
        ? [["graph padding", graph]]
        : [
            [
              item.request.id,
              position,
              guess === "forgotten" ? null : run.tokenText(item.request, position),
              guess,
              phase,
            ],
          ];
    });
}

function maskOf(run, pass) {
  if (pass.nq * pass.nk > MOST_CELLS) return null;
  const window = MaskView.prototype.window.call({ layer: null }, run);
  return pass.items.flatMap((item) =>
    Array.from({ length: item.pads + item.length }, (_, n) => {
      const seen = [
        allowedKeys(item, item.q0 + n, window),
        item.leak && n >= item.pads ? [item.leak.k0, item.leak.k0 + item.leak.kvLen] : null,
      ];
      return Array.from({ length: pass.nk }, (_, k) =>
        seen.some((keys) => keys && k >= keys[0] && k < keys[1]) ? "1" : "0",
      ).join("");
    }),
  );
}

const KINDS = ["admission", "chunk", "preemption", "finish"];

function plain(run, i, kinds) {
  const frame = run.frame(i);
  const { lanes, waiting, vanished, passes, event } = frame;
  const owners = [...BlocksView.prototype.owners(frame, run)];
  const budget = budgetParts(run, frame);
  return {
    step: event.step,
    lengths: LengthsView.prototype.table({ run, frame }).rows.map((row) => row.slice(0, 4)),
    lanes: lanes.filter((l) => l.request).map((l) => [l.lane, l.request.id, l.before, l.kvLen]),
    kinds: KINDS.filter((kind) => kinds[kind].includes(i)),
    waiting: waiting.map((w) => [w.request.id, run.stepOf(w.since), w.preempted]),
    waited: waiting.map((w) => waitedBy(run, w.request, i)),
    held: run.isGrouped
      ? run.bands.map((band) => lanes.map((lane) => heldBy(run, band, lane, i).tokens))
      : null,
    vanished: vanished.map((v) => [
      v.request.id,
      v.lane,
      v.tokensLost,
      event.resumed
        ? null
        : placesAt(v.laneSpan, i - 1)
            .map(({ block }) => block)
            .sort((a, b) => a - b),
    ]),
    blocks: Object.fromEntries(
      owners.map(([block, all]) => [
        block,
        all.map((o) => [o.request.id, o.group, o.at, o.fill, o.fresh]).sort(),
      ]),
    ),
    wrote: Object.fromEntries(
      run.requests
        .map((request) => [request.id, run.newPieces(request, i)])
        .filter(([, pieces]) => pieces.length),
    ),
    idle: run.idleBefore(i) && [run.idleBefore(i).seconds, run.idleBefore(i).forHost],
    budget: [
      budget.parts.map((part) => [part.request && part.request.id, part.phase, part.n]),
      budget.total,
    ],
    rows: passes.map((pass) => rowOf(run, pass)),
    masks: passes.map((pass) => maskOf(run, pass)),
  };
}

for (const path of process.argv.slice(2)) {
  const run = new Run(JSON.parse(readFileSync(path, "utf8")));
  const kinds = Object.fromEntries(KINDS.map((kind) => [kind, run.eventSteps(kind)]));
  process.stdout.write(`${JSON.stringify(run.events.map((_, i) => plain(run, i, kinds)))}\n`);
}
