// The player's types, for `make lint` alone: nothing of this is sent to a browser. What is not here is inferred from the modules.

type Run = import("./run/run.js").Run;
type Palette = import("./parts/colours.js").Palette;
type App = import("./watch/player.js").Player;

/** Where steps come from while a run goes on; back: puts that run on screen. */
interface Edge {
  going: boolean;
  run: Run | null;
  back(): void;
}

/** A request as the fold knows it. Steps are indices of events. */
interface RunRequest {
  id: string;
  index: number;
  letter: string;
  hue: number;
  by: string;
  maxNew: number | null;
  before: { generated: number; computed: number | null; token: number | null } | null;
  arrived: number | null;
  waits: [first: number, last: number, preempted: boolean][];
  stays: Stay[];
  samples: number[];
  finished: { step: number; reason: string } | null;
  live?: boolean;
}

/** One time in one lane. */
interface Stay {
  index: number;
  request: RunRequest;
  lane: number;
  from: number;
  to: number;
  end: string | null;
  blocks: number[];
  blockSteps: number[];
  kvLen: number;
  hit?: number;
}

/** What step i shows. */
interface Frame {
  i: number;
  event: any;
  caption: { say: Span[]; why: Span[][] } | null;
  lanes: { lane: number; stay: Stay | null; request: RunRequest | null; status: number; kvLen: number; before: number }[];
  vanished: { request: RunRequest; tokensLost: number; lane: number; stay?: Stay }[];
  waiting: { request: RunRequest; since: number; preempted: boolean }[];
  passes: Pass[];
}

/** A request's rows and keys in a pass. */
interface PassItem {
  request: RunRequest;
  lane: number;
  phase: string;
  start: number;
  length: number;
  kvLen: number;
  finished: boolean;
  overrun?: boolean;
  pads: number;
  q0: number;
  k0: number;
  leak?: PassItem;
}

interface Pass {
  index: number;
  layout: string;
  rows: number;
  width: number;
  tokens: number;
  padding: number;
  bucket: number | null;
  padded: boolean;
  items: PassItem[];
  nq: number;
  nk: number;
  graphPads: number;
}

/** A piece of a sentence: text, or a request by its id or itself. */
type Span = string | { r?: string; request?: RunRequest };

/** Steps or seconds to pixels: where step i begins and ends. */
interface LaneScale {
  clock: boolean;
  left: number;
  per: number;
  start: number;
  from(i: number): number;
  to(i: number): number;
}

/** Whoever has a lane chart drawn: a run and how it is lit. */
interface LaneHost {
  run: Run;
  palette: Palette;
  focus: RunRequest[] | null;
  presenter?: boolean;
  redraw(): void;
}

/** What lies under a pointer. */
interface Found {
  request: RunRequest | null;
  /** All that it lights, where that is more than the one request. */
  lit?: RunRequest[];
  lines?: Span[][];
  hot?: { request: RunRequest; q?: number; row?: number; column?: number; keys?: number[] };
  stays?: boolean;
}

interface Table {
  caption: string;
  columns: string[];
  rows: string[][];
}

/** A policy as the server tells it; knobs: the settings it takes of those that not every policy takes. */
interface Policy {
  name: string;
  shows: string;
  knobs: string[];
}

/** What can be done about a sentence. */
interface Action {
  text: string;
  act(): void;
}

interface Window {
  Inflight: { mount(root: HTMLElement, options?: object): void; icon: Function };
  inflight: App;
  inflightModules: Record<string, any>;
  inflightParts: Function;
  inflightCompare: import("./compare/compare.js").Compare;
  inflightCompareMount: Function;
  inflightLearn: import("./learn/learn.js").Learn;
  inflightLearnMount: Function;
  inflightLearnFiles: { style: string; markup: string };
  inflightLive: import("./live/live.js").Live;
  inflightLiveMount: Function;
  inflightLiveFiles: { style: string; markup: string };
  inflightCompareFiles: { style: string; markup: string };
  inflightEarly?: Record<string, Promise<any>>;
  inflightBring?: Function;
  Plotly: any;
  supports_zerogpu_headers?: boolean;
}

/** What `setText` and their like remember on what they change. */
interface Element {
  [remembered: `_${string}`]: any;
}

interface CanvasRenderingContext2D {
  _font?: string | null;
  _widths?: Map<string, number>;
}
