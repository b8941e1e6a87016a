// The types of runs and of what views draw, used only by `make lint` and never sent to a browser. Other types are inferred from the modules.

type Run = import("./run/run.js").Run;
type Palette = import("./parts/colours.js").Palette;
type Ink = CanvasRenderingContext2D;
type Focus = RunRequest[] | null;
type Colours = Palette["none"];
type LaneChart = import("./views/lane_chart.js").LaneChart;
type MaskView = import("./views/mask/mask.js").MaskView;
type MaskLayout = ReturnType<typeof import("./views/mask/geometry.js").layoutMask>;

/** Parsed JSON: a document, a request to run, options, an address. Python writes and checks it; each reader knows the part that it uses. */
type Json = any;

/** Objects that come without types: from Pyodide, WebAssembly, Plotly, CodeMirror. Their own documentation describes them. */
type Foreign = any;

/** An event of a pointer, a key or a field, as the listeners of elements get it. */
type Happened = PointerEvent &
  KeyboardEvent & { target: HTMLInputElement; currentTarget: HTMLElement };

/** Attributes of a new element, and its listeners by "onclick" and the like. */
type Props = {
  [listener: `on${string}`]: ((e: Happened) => unknown) | false | null | undefined;
  [attribute: string]: unknown;
};

/** A request as `Run` tracks it. Steps are indices of events. */
interface RunRequest {
  id: string;
  index: number;
  letter: string;
  hue: number;
  by: string;
  isBot: boolean;
  isOwn: boolean;
  maxNew: number | null;
  priority: number;
  before: {
    generated: number;
    computed: number | null;
    isUnseen: boolean;
    token: number | null;
  } | null;
  arrived: number | null;
  waits: [first: number, last: number, preempted: boolean, since?: number][];
  laneSpans: LaneSpan[];
  samples: number[];
  lastToken: number | null;
  unseen: [first: number, count: number][];
  cameUnseen: boolean;
  finished: { step: number; reason: string } | null;
  live?: boolean;
}

/** One uninterrupted stay of a request in a lane, from step `from` to step `to`. */
interface LaneSpan {
  index: number;
  request: RunRequest;
  lane: number;
  from: number;
  to: number;
  end: string | null;
  places: BlockPlace[]; // in the order in which the request got them
  ends: number[]; // how many places each group's table has so far
  kvLen: number;
  hit?: number;
}

/** A block in a request's table. at: its index there. It is held from step `from` on; `to`: the last step, if it left before the request did. */
interface BlockPlace {
  block: number;
  group: number;
  at: number;
  from: number;
  to: number;
}

/** Layers that share a block table for each request: GroupFacts of core/trace/header.py. */
interface KVGroup {
  kind: string;
  window: number | null;
  blockSize: number;
  units: number; // how many of the pool's blocks make one block of the group
  layers: number[] | null;
}

/** KV cache groups whose layers are alike, which the KV panel draws as one. */
interface Band {
  index: number;
  groups: number[];
  kind: string;
  window: number | null;
  numLayers: number; // 0 if not known
}

/** What happened in a step, with the fields of core/trace/events.py. Times in seconds; lanes and blocks count from 0. */
interface StepEvent {
  step: number;
  tStart: number;
  tEnd: number;
  timings: { schedule: number; prepare: number; forward: number; sample: number };
  arrived: { request: string; t: number }[];
  admitted: { request: string; lane: number }[];
  waiting: { count: number; request: string | null };
  preempted: { request: string; tokensLost: number; lane: number }[];
  stalled: { request: string }[];
  passes: ForwardPass[];
  segments: Segment[];
  sampled: { passIndex: number; request: string; tokenId: number }[];
  finished: { request: string; finishReason: string }[];
  released: { request: string; when: "before" | "after" }[];
  kv: {
    used: number;
    total: number;
    changes: { request: string; added: (number | null)[]; group?: number; left?: number[] }[];
    prefixHits: { request: string; numCachedTokens: number }[];
  };
  budget: {
    limit: number | null;
    decode: number;
    prefill: number;
    unused: number;
    binding: string;
  };
  overrun: { request: string; rows: number }[];
  drafts: { request: string; drafted: number; accepted: number }[];
  queue?: string[]; // all waiting requests, if not in the order in which they came
  warnings?: string[]; // see `warningsOf`
  resumed: Resumed | null;
}

/** The state after a gap in the record, whose steps are not shown. */
interface Resumed {
  first: number;
  last: number;
  missing: number;
  arrived: { request: string; t: number }[];
  ended: { request: string; finishReason: string }[];
  running: Carried[];
  waiting: Carried[];
}

interface Carried {
  request: string;
  lane: number;
  computed: number;
  tokens: number[];
  tables: (number | null)[][];
  wasPreempted: boolean;
}

interface ForwardPass {
  layout: string;
  rows: number;
  width: number;
  tokens: number;
  padding: number;
  tStart: number;
  tEnd: number;
  finishedRows: { request: string; lane: number }[];
  bucket: number | null;
}

/** Consecutive positions of a request that a pass computes. */
interface Segment {
  passIndex: number;
  request: string;
  lane: number;
  phase: string;
  start: number;
  length: number;
  kvLen: number;
}

/** A run as it is fetched: core/trace's header and events, and additional data. records: how to read events, see run/events.js; without it, events are objects. */
interface Replay extends Beside {
  header: Json;
  records?: Record<string, Record<string, string | string[] | { default: unknown } | null>>;
  events?: Record<string, unknown>[];
  captions?: Caption[];
  complete?: boolean;
  totals?: { name: string; value: string; means: string }[];
  /** Captions and totals in other languages. */
  others?: Record<string, { captions: Caption[]; totals: Replay["totals"] }>;
  delays?: Delays | null;
  begin?: { step: number; queue: string[]; requests: Json[] } | null;
}

/** Where each request's time went: see visualizer/documents/delays.py. Times in microseconds. */
interface Delays {
  parts: [string, string, string][];
  requests: Record<
    string,
    {
      us: number[];
      steps: number[];
      queued: Record<string, number>;
      uncompared: number;
      ended: boolean;
    }
  >;
  limits: Record<string, string>;
  worst: {
    kind: "gap" | "wait";
    us: number;
    step: number | null;
    request: string;
    say: Record<string, Span[]>;
  }[];
}

/** Data in addition to the events, by request. texts: new pieces of prompts and outputs. */
interface Beside {
  texts?:
    | (Record<"prompt" | "output", Record<string, string[]>> & {
        said?: Record<string, (string | null)[]>;
      })
    | null;
  letters?: Record<string, string> | null;
  hues?: Record<string, number> | null;
  asked?: Record<string, { by: string; maxNew: number; isOwn?: boolean }> | null;
  translations?: Record<string, Caption[]>; // captions in other languages
}

/** The sentences about a step. */
interface Caption {
  say: Span[];
  simple?: Span[]; // the same sentence in plain words
  why: Span[][];
  waits?: string;
  bound?: string;
}

interface Waiting {
  request: RunRequest;
  since: number;
  preempted: boolean;
  place: number | null;
}

/** What step i shows. */
interface Frame {
  i: number;
  event: StepEvent;
  caption: Caption | null;
  lanes: {
    lane: number;
    laneSpan: LaneSpan | null;
    request: RunRequest | null;
    status: number;
    kvLen: number;
    before: number;
  }[];
  vanished: { request: RunRequest; tokensLost: number; lane: number; laneSpan?: LaneSpan }[];
  waiting: Waiting[];
  passes: Pass[];
}

/** A block that a request in a lane has just taken or begun to share. */
interface HeldPlace {
  request: RunRequest;
  lane: number;
  block: number;
  group: number;
  at: number;
}

/** What moves between two steps: see run/happenings.js. */
interface Happenings {
  preempted: { request: RunRequest; lane: number; tokensLost: number }[];
  admitted: { request: RunRequest; lane: number }[];
  computed: (Omit<Segment, "request"> & { request: RunRequest })[];
  sampled: { request: RunRequest; passIndex: number; count: number }[];
  taken: HeldPlace[]; // from the pool, with no contents
  shared: HeldPlace[]; // with contents found in the prefix cache
  evicted: { block: number; request: RunRequest }[]; // of the blocks taken: those that lose what the prefix cache kept of their last holder
}

/** Parts of a step's motion: see views/phases.js. */
type Phase = "leave" | "lane" | "row" | "mask" | "keep" | "block" | "text";
type Flights = import("./views/flights.js").Flights;

/** The way from one frame to the next, which is drawn as motion: the frame before, and what happened. */
interface Between {
  before: Frame;
  happened: Happenings;
}

/** The rows and keys of a request in a pass. */
interface PassItem {
  request: RunRequest;
  lane: number;
  phase: string;
  start: number;
  length: number;
  kvLen: number;
  finished: boolean;
  overrun: boolean;
  sampled: boolean;
  drafted: number; // guessed by speculative decoding: the last positions
  rejected: number; // how many of these guesses were wrong
  pads: number;
  q0: number;
  k0: number;
  leak?: PassItem;
}

interface Pass extends ForwardPass {
  index: number;
  padded: boolean;
  items: PassItem[];
  nq: number;
  nk: number;
  graphPads: number; // positions that pad the pass to the size of a CUDA graph
}

/** A piece of a sentence: text, or a request by its id or as an object. said: text that is already in the current language. */
type Span =
  | string
  | { r: string; request?: undefined; said?: undefined }
  | { r?: undefined; request: RunRequest; said?: undefined }
  | { r?: undefined; request?: undefined; said: string };

/** Maps moments, which are steps or seconds of a run, to pixels: see run/lane_layout.js. */
interface LaneScale {
  clock: boolean; // whether moments are seconds
  left: number; // pixels: where the first step begins
  per: number; // pixels per moment
  start: number; // the moment at which the first step begins
  x(moment: number): number;
  from(i: number): number; // pixels: where step i begins, and where it ends
  to(i: number): number;
}

/** The sizes of a run's lanes, in pixels. */
interface LaneLayout {
  scale: LaneScale;
  axis: number; // height of the axis above the lanes
  font: number; // size of the axis's labels
  end: number; // where the lanes end
  gutter?: number; // where the lanes begin; less than GUTTER: lanes have no numbers
  words?: number; // the font size of tokens in cells that are wide enough; 0: none
  until?: number; // the last step whose tokens are written
  queue?: boolean; // whether the queue is drawn below
}

/** What a lane chart shows: a run, and what is highlighted. */
interface LaneState {
  readonly run: Run;
  readonly palette: Palette;
  readonly focus: RunRequest[] | null; // the highlighted requests; null: none
  readonly presenter: boolean;
}

/** One step of a run and how it is viewed: all that a view gets. The player makes a new one for each draw. */
interface ViewState extends LaneState {
  readonly frame: Frame;
  readonly index: number; // the index of the step on screen
  readonly share?: number; // the share of this step's motion that is done, 0 to 1; left out: all of it
  readonly flights?: Flights | null; // what moves across panels during the motion; without it, things appear in their places
  readonly pass: Pass | null; // the pass on screen
  readonly hot: Hot | null;
  readonly pinned: RunRequest | null;
  readonly clock: boolean; // whether the lanes' axis is measured time instead of steps
  readonly simple: boolean; // whether names are in plain words with few numbers, see watch/detail.js
  readonly alone: string; // the only view on a presenter's screen, or ""
  readonly layout: "desk" | "tablet" | "phone";
  readonly language: string;
  readonly fast: boolean; // whether steps change too fast to read
  readonly pair: PairState;
  readonly leak: { readonly offered: boolean; readonly on: boolean; readonly working: string };
  readonly weights: WeightsState;
  readonly ranks: RanksState | null; // null unless all ranks are on screen
}

/** The pair that is open: two runs of the same requests, or none. */
interface PairState {
  readonly members: readonly { run: Run; name: () => string }[];
  readonly other: { run: Run; name: () => string } | null; // the run that is not on screen
  readonly charted: readonly Run[]; // runs whose lanes are drawn one below the other
  readonly step: number | null; // the first step that differs
  readonly leaks: boolean;
}

/** The model's attention weights. found: by request id; null until they have arrived. */
interface WeightsState {
  readonly offered: boolean;
  readonly on: boolean;
  readonly layer: number;
  readonly head: number;
  readonly withoutFirst: boolean; // whether the colour scale leaves out each request's first token
  readonly loading: boolean;
  readonly error: string | null;
  readonly found: Map<string, { weights: number[][] }> | null;
}

/** All ranks on one clock, at a moment, in seconds. from, span: the first and last moment known; room: seconds for which the picture has room. */
interface RanksState {
  readonly members: readonly Rank[];
  readonly now: number;
  readonly from: number;
  readonly span: number;
  readonly room: number;
  readonly readout: string;
}

/** The run of one rank. offset: its time 0 on the common clock, in seconds. */
interface Rank {
  rank: number;
  name?: string; // of its engine, if there are several
  offset: number;
  run: Run;
  replay?: Replay;
  id?: string | null;
}

/** Draws a state. moves: the parts of a step's motion that this view shows. */
interface View {
  draw(state: ViewState): void;
  moves?: readonly Phase[];
  surface?: { canvas: HTMLElement; measure?(): void };
}

/** A view whose places can be found with pointer and keys. */
interface PointedView extends View {
  surface: { canvas: HTMLElement; visible: boolean };
  places(): { x: number; y: number; w: number; h: number }[];
  hit(x: number, y: number): Found | null;
}

/** What a view can ask the player to do. */
interface ViewActions {
  redraw(): void;
  /** Update the address, because the view of the run has changed. */
  changed(): void;
  hover(found: Found | null, x?: number, y?: number): void;
  /** Show a tooltip; null hides it. */
  explain(lines: Span[][] | null, x?: number, y?: number): void;
  pin(request: RunRequest | null): void;
  scrub(index: number): void;
  choosePass(index: number): void;
  toggleLeak(): void;
  weigh(
    change: Partial<{
      on: boolean;
      layer: number;
      head: number;
      withoutFirst: boolean;
      error: null;
    }>,
  ): void;
  /** Show the other run of a pair. */
  turnTo(step: number): void;
  /** Go to a moment of all ranks. */
  hold(moment: number): void;
  chooseRank(rank: Rank, index?: number | null): void;
}

/** The run whose requests a sentence names. index: the step up to which they are known. */
interface SentenceContext {
  readonly run: { request(id: string): RunRequest | undefined; letters?: Record<string, string> };
  readonly index?: number;
}

/** The token under the pointer. row, column: in the mask; keys: positions of its request, from ≤ k < end. */
interface Hot {
  request: RunRequest;
  q?: number;
  row?: number;
  column?: number;
  keys?: number[];
}

/** What a mask is zoomed to: a request's own part, or the first and end of a range of queries and of keys. */
type Zoom = { request: RunRequest; view?: undefined } | { view: number[]; request?: undefined };

/** A mask as last drawn. */
interface DrawnMask {
  pass: Pass;
  at: MaskLayout;
  window: number | null;
  weights: WeightsState["found"];
}

/** A mask being drawn. items: requests whose rows are visible; reach: how far each query's stripe has grown, null for all of it. */
interface MaskSheet {
  g: Ink;
  run: Run;
  palette: Palette;
  at: MaskLayout;
  pass: Pass;
  items: PassItem[];
  window: number | null;
  focus: Focus;
  reach: ((q: number) => number) | null;
  right: number; // where the mask's cells end
  bottom: number;
}

/** A block's holder. at: the block's index in the request's table; fill: the share of its positions that are filled; fresh: new in this step. */
interface BlockOwner {
  request: RunRequest;
  group: number;
  at: number;
  fill: number;
  from: number; // the step from which it is held
  fresh: boolean;
  strength?: number; // 0 to 1, while it appears or disappears
}

/** What is under the pointer. */
interface Found {
  request: RunRequest | null;
  /** All requests that it highlights, if more than one. */
  lit?: RunRequest[];
  lines?: Span[][];
  hot?: Hot;
  keepsPin?: boolean; // whether a click leaves the selection as it is
}

interface Table {
  caption: string;
  columns: string[];
  rows: string[][];
}

/** A policy as the server describes it. knobs: the settings it takes of those that not every policy takes. */
interface Policy {
  name: string;
  shows: string;
  knobs: string[];
  order_by: string;
}

/** What can be done about a sentence: the text of a button, and its function. */
interface Action {
  text: string;
  act(): void;
}
