// Run with the path of a replay: prints what each view has on screen in some steps of the run, at
// rest, on the way to the step, lit, as on a projector and on a phone; words as they are, and of all
// that is drawn a digest. tests/worlds/as_told.py keeps it.

import { readFileSync } from "node:fs";
import process from "node:process";

import { digest, print, rounded, Seen } from "./seen.js";

const { Palette } = await import("../../assets/player/parts/colours.js");
const { FigureLanes } = await import("../../assets/player/figure/lanes.js");
const { Run } = await import("../../assets/player/run/run.js");
const { DoorView } = await import("../../assets/player/views/door.js");
const { Flights } = await import("../../assets/player/views/flights.js");
const { BlocksView } = await import("../../assets/player/views/kv.js");
const { LanesView } = await import("../../assets/player/views/lanes.js");
const { LengthsView } = await import("../../assets/player/views/lengths.js");
const { MaskView } = await import("../../assets/player/views/mask/mask.js");
const { Narration } = await import("../../assets/player/views/narration.js");
const { PackedRow } = await import("../../assets/player/views/packed_row.js");
const { PeopleView } = await import("../../assets/player/views/people.js");
const { QueueView } = await import("../../assets/player/views/queue.js");
const { RequestCard } = await import("../../assets/player/views/request_card.js");
const { StripView } = await import("../../assets/player/views/strip.js");
const { TextsView } = await import("../../assets/player/views/texts.js");

const run = new Run(JSON.parse(readFileSync(process.argv[2], "utf8")));
for (const [n, request] of run.requests.entries())
  Object.assign(request, { by: n % 3 ? "" : "Ada", isOwn: n === 1, isBot: n === 2 });
const palette = new Palette(/** @type {any} */ (null));
const none = () => {};
const actions = new Proxy({}, { get: () => none });
const panels = {};
const on = (name, View, ...more) => new View((panels[name] = new Seen("section")), ...more);
const views = {
  lanes: on("lanes", LanesView, actions),
  strip: on("strip", StripView, actions),
  figure: on("figure", FigureLanes, actions, 0, true),
  row: on("row", PackedRow, actions),
  mask: on("mask", MaskView, actions),
  blocks: on("blocks", BlocksView, actions),
  lengths: on("lengths", LengthsView, actions),
  queue: on("queue", QueueView),
  door: on("door", DoorView, { desk: 3, phone: 2 }),
  texts: on("texts", TextsView),
  card: on("card", RequestCard, actions),
  narration: on("narration", Narration),
  people: on("people", PeopleView, (id) => id === run.requests[1]?.id, none),
};
const stage = (panels.flights = new Seen("section"));
const flights = new Flights(/** @type {any} */ (stage), /** @type {any} */ (views), none);
for (const name of ["lanes", "row", "mask"]) panels[name].querySelector(".key");

const WEIGHTS = {
  ...{ offered: true, on: false, layer: 0, head: 1, withoutFirst: false },
  ...{ loading: false, error: null, found: null },
};
/** Weights for each query of a pass, which tell one from another. */
const weightsOf = ({ passes }) =>
  new Map(
    (passes.at(-1)?.items ?? []).map(({ request, length, kvLen }) => [
      request.id,
      {
        weights: Array.from({ length }, (_, q) =>
          Array.from({ length: kvLen }, (_, k) => ((k * 7 + q * 3) % 11) / 11),
        ),
      },
    ]),
  );

/** The state of the page at step i. */
const stateOf = (i, more = {}) => {
  const frame = run.frame(i);
  return {
    ...{ run, frame, index: i, palette, focus: null, hot: null, share: 1, pinned: run.requests[0] },
    ...{ clock: false, layout: "desk", language: "en", simple: false, presenter: false, alone: "" },
    ...{ fast: false, ranks: null, pass: frame.passes.at(-1) ?? null },
    pair: { members: [], other: null, charted: [], step: null, leaks: false },
    leak: { offered: true, on: false, working: "" },
    weights: WEIGHTS,
    ...more,
  };
};

function show(state) {
  for (const view of Object.values(views)) view.draw(state);
  flights.draw(state);
}

/** What lies under a grid of points of a view, each answer once. */
function underPointer(view) {
  const said = new Set();
  const { w, h } = view.surface;
  for (let y = h / 20; y < h; y += h / 10)
    for (let x = w / 50; x < w; x += w / 25) {
      const found = view.hit(x, y);
      said.add(
        found ? JSON.stringify([found.lines, found.hot ?? found.request], rounded) : "nothing",
      );
    }
  return [...said].join(" ");
}

const digests = (names = Object.keys(panels)) =>
  names.map((name) => `${name} ${digest(panels[name].seen)}`).join(", ");

const firstWith = (test) => run.events.findIndex((event, i) => i > 0 && test(event));
const chosen = [
  ...["admission", "chunk", "preemption", "finish"].map(
    (kind) => run.eventSteps(kind).find((i) => i > 0) ?? 0,
  ),
  firstWith(({ kv }) => kv.changes.some(({ left }) => left?.length)),
  firstWith(({ drafts }) => drafts.some(({ drafted, accepted }) => drafted > accepted)),
  firstWith(({ overrun }) => overrun.length),
  firstWith(({ passes }) => passes.some(({ finishedRows }) => finishedRows.length)),
];
const steps = [...new Set([...chosen, run.length >> 1, run.length - 1])]
  .filter((i) => i > 0)
  .sort((a, b) => a - b);
for (const i of steps) {
  print(`step ${run.stepOf(i)}`, "");
  views.narration.open(true);
  show(stateOf(i));
  for (const [name, panel] of Object.entries(panels)) print(`    ${name}`, panel.words);
  print("    at rest", digests());
  for (const name of ["lanes", "row", "mask", "blocks", "lengths"])
    print(`    under a pointer on ${name}`, underPointer(views[name]));
  print("    places", digest([views.row, views.mask, views.blocks].map((v) => v.places())));
  for (const share of [0.1, 0.22, 0.45, 0.65, 0.8, 0.95])
    for (const simple of [false, true]) {
      show(stateOf(i, { share, simple }));
      print(`    ${simple ? "simple" : "full"} at ${share}`, digests());
    }
  const held = run.frame(i).lanes.flatMap(({ request }) => request ?? []);
  const [first] = held;
  const hot = first && { request: first, q: 1, keys: [1, 2] };
  for (const [name, more] of Object.entries({
    simple: { simple: true },
    lit: { focus: run.requests.slice(0, 2), hot },
    "the last request, by the clock": { clock: true, pinned: run.requests.at(-1) },
    "on a projector": { presenter: true, alone: "mask" },
    "on a phone": { layout: "phone", simple: true },
    "beside another run": {
      pair: {
        ...{ members: [{ run, name: () => "one" }], charted: [run], step: run.stepOf(i) },
        other: { run, name: () => "other" },
        leaks: false,
      },
    },
    "nobody is selected": { pinned: null },
    weighed: { weights: { ...WEIGHTS, on: true, found: weightsOf(run.frame(i)) } },
    "without the first": {
      weights: { ...WEIGHTS, on: true, withoutFirst: true, found: weightsOf(run.frame(i)) },
    },
  })) {
    show(stateOf(i, more));
    if (more.simple)
      for (const name of ["strip", "door", "narration"]) print(`    ${name}`, panels[name].words);
    print(`    ${name}`, digests());
  }
  views.mask.zoomTo(held.at(-1) ?? null);
  const { w, h } = views.blocks.surface;
  Object.assign(views.blocks.surface, { w: 900, h: 600 });
  show(stateOf(i));
  print(
    "    zoomed, large blocks",
    `${digests(["mask", "blocks"])}, ${digest(views.mask.places())}`,
  );
  Object.assign(views.blocks.surface, { w: 24, h: 12 });
  show(stateOf(i));
  print("    tiles of blocks", `${digests(["blocks"])}, ${underPointer(views.blocks)}`);
  Object.assign(views.blocks.surface, { w, h });
  views.mask.reset();
}
