// The types of the page's parts, used only by `make lint`.

type App = import("./watch/player.js").Player;
/** What other parts of the page see of Watch: see watch/page_actions.js. */
type Watch = ReturnType<typeof import("./watch/page_actions.js").pageActions>;

/** The source of steps while a run continues; back: puts that run on screen; find: to where a request is found by its id. */
interface Edge {
  going: boolean;
  run: Run | null;
  back(): void;
  find?(): void;
}

/** What an address tells; following: whether the first step of the run that began is waited for. */
type Wanted = Partial<ReturnType<import("./watch/address.js").Address["read"]>> & {
  following?: boolean;
};

/** A run of the catalogue, or what else is known of one: where it is from. */
interface Entry {
  name?: string | null;
  title?: Json;
  url?: string;
  id?: string;
  spec?: string | null;
  trace?: string | string[];
  comparison?: string;
  racer?: string;
  written?: boolean;
  leak?: boolean;
  axis?: string;
  beside?: boolean;
}

/** A run on screen, where it is from and its document. */
interface Shown {
  run: Run;
  entry?: Entry | null;
  replay?: Json;
}

/** A part of the page as its bar names it: visualizer/page/tabs.py. */
interface Tab {
  name: string;
  title: string;
  href?: string;
  minutes?: Record<string, number>;
  lacks?: boolean;
  speaks?: string[];
}

type Pen = import("./figure/drawing.js").Pen;

/** What the hand moves: a number of the state, in whole steps of one if nothing else is said. */
interface Slider {
  key: string;
  from: number;
  to: number;
  word: string;
  step?: number;
}

/** A slider in a drawing, with its words. */
interface Knob extends Slider {
  says(n: number): string;
}

/** Of a drawing: numbers, and names of what is lit, by what the hand moves. */
type DrawingState = Json;

/** A kind of drawing: its functions depend on its data and the state alone. */
interface DrawingKind {
  slider(data: Json): Slider;
  draw(pen: Pen, state: DrawingState, data: Json): void;
  says(state: DrawingState, data: Json): string;
  /** Whether it shows what the figure claims to have measured; without it, always. */
  isMeasured?(state: DrawingState): boolean;
  /** As the hand would find it. */
  settled?(state: DrawingState): DrawingState;
  /** As it stands on paper. */
  print(data: Json, first: DrawingState): DrawingState;
  /** Two or three places to go, in place of the slider or beside it. */
  switches?: { key: string; words: string[] };
  /** What is pointed at, or null. */
  point?(
    x: number,
    y: number,
    state: DrawingState,
    data: Json,
    size: { w: number; h: number; small: boolean },
  ): DrawingState | null;
  /** All that the hand moves, the slider first. */
  knobs?(data: Json): Knob[];
  /** The one of them that is there, or null. */
  grab?(
    x: number,
    y: number,
    state: DrawingState,
    data: Json,
    size: { w: number; h: number },
  ): string | null;
  /** Where it is once it was dragged so far. */
  drag?(
    knob: string,
    by: number,
    state: DrawingState,
    data: Json,
    size: { w: number; h: number },
  ): number;
}

interface Window {
  Inflight: { mount(root: HTMLElement, options?: object): void; icon: Function };
  inflight: App; // for tests and scripts
  inflightWatch: Watch;
  inflightModules: Record<string, Foreign>;
  inflightEmbed: object; // for tests
  inflightStory: import("./story/story.js").Story;
  inflightEnter: { player: string; here: string; others: Record<string, string> };
  inflightParts: Function;
  inflightCompare: import("./compare/compare.js").Compare;
  inflightCompareMount: Function;
  inflightLearn: import("./learn/learn.js").Learn;
  inflightLearnMount: Function;
  inflightLearnFiles: { style: string; markup: string };
  inflightLive: import("./live/live.js").Live;
  inflightLiveMount: Function;
  inflightLiveFiles: { style: string; markup: string };
  inflightWrite: import("./write/write.js").Write;
  inflightWriteMount: Function;
  inflightWriteFiles: { style: string; markup: string; model: string; tasks: Json[] };
  inflightCodeMirror: Foreign;
  inflightCompareFiles: { style: string; markup: string; hand: Json };
  inflightEarly?: Record<string, Promise<Json>>;
  inflightBring?: Function;
  Plotly: Foreign;
  supports_zerogpu_headers?: boolean;
}
