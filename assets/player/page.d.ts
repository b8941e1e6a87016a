// The types of the page's parts, used only by `make lint`.

type App = import("./watch/player.js").Player;
type Engines = import("./engine/engines.js").Engines;
type Compare = import("./compare/compare.js").Compare;
type Live = import("./live/live.js").Live;
type Learn = import("./learn/learn.js").Learn;
/** What an element can have as a child, see `h`. */
type Child = import("./parts/dom.js").Child;
/** Watch as the other parts of the page see it: see watch/page_actions.js. */
type Watch = ReturnType<typeof import("./watch/page_actions.js").pageActions>;

/** Finds an element of a part by its selector. The part's markup says of which kind it is. */
type Finder = (selector: string) => Foreign;

/** The element that holds a part. The part's markup says what is in it. */
interface Root extends HTMLElement {
  querySelector(selector: string): Foreign;
  querySelectorAll(selector: string): NodeListOf<Foreign>;
}

/** Where new steps come from while a run goes on. back: shows that run; find: opens the search for a request by id. */
interface Edge {
  going: boolean;
  run: Run | null;
  back(): void;
  find?(): void;
}

/** What an address asks for. following: whether to wait for the first step of a new run. */
type Wanted = Partial<ReturnType<import("./watch/address.js").Address["read"]>> & {
  following?: boolean;
};

/** Where a run comes from: its entry in the catalogue, or what else is known of its origin. */
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
  [more: string]: Json; // what a list of runs shows of it
}

/** Options of the player, see `Player`; each part of the page knows what it reads of the rest. */
interface PlayerOptions {
  catalogue: Entry[];
  tabs: Tab[];
  comparisons?: ComparisonEntry[];
  [more: string]: Json;
}

/** What can be run here: visualizer/jobs/offers.py. */
type Offers = import("./parts/model_field.js").Offered & {
  presets: Preset[];
  policies: Policy[];
  limits: Record<string, number>;
};
interface Preset {
  name: string;
  title: string;
  shows: string;
  spec: Json;
}

/** What can be compared here. offered: what the server says about its models. */
interface ComparisonOffers {
  recorded: ComparisonEntry[];
  presets: Preset[];
  policies: Policy[];
  most_repeats: number;
  note: string;
  offered?: Json;
}

/** A run of this visit. lanes: see `thumbnail` of visualizer/documents/catalogue.py. */
interface VisitRun {
  title: string;
  run: Run;
  entry: Entry;
  spec: Json;
  lanes: number[][][];
  steps: number;
  at: Date;
  seconds: number;
  says: string;
}

/** A comparison, recorded or of this visit. */
interface ComparisonEntry {
  name: string;
  title: string;
  shows: string;
  group?: string;
  doc?: Json;
  spec?: Json;
  [more: string]: Json;
}

/** A task of Write: visualizer/write/tasks.py. */
interface WriteTask {
  name: string;
  title: string;
  says: string;
  code: string;
  before: string;
  kind: string;
  goals: { name: string; asks: string }[];
}

/** The document of the Learn tab: visualizer/lessons/document.py. */
interface LessonsDocument {
  language: string;
  languages: Record<string, string>;
  words: Record<string, Json>;
  lessons: Lesson[];
  questions: Lesson;
  terms: Record<string, Term>;
  catalogue: Record<string, string>;
}
interface Term {
  word: string;
  means: string;
  vllm: string;
  words: string[];
  run: string;
  step: number;
  view: string;
}
interface Lesson {
  name: string;
  number: number;
  title: string;
  question: string;
  minutes: number;
  language?: string;
  simple?: boolean;
  picture: { run: string; step: number; view: string; clock: boolean } | null;
  stops: Stop[];
}
interface Stop {
  name: string;
  title: string;
  text: LessonSpan[][];
  run: string;
  step: number;
  views: string[];
  pin: string | null;
  quiet: boolean;
  ask: Ask | null;
  then: { run: string; step: number } | null;
  goals: { name: string; text: LessonSpan[] }[];
  table?: { label: string; head: { name: string; url: string | null }[]; rows: string[][] } | null;
}

/** A question: one to choose an answer of, or a mask to paint. */
interface Ask {
  kind: "choose" | "paint";
  text: LessonSpan[];
  why: LessonSpan[];
  options: { text: LessonSpan[]; right: boolean; why: LessonSpan[] }[];
  queries: MaskLabel[];
  keys: MaskLabel[];
  allowed: string[];
}
interface MaskLabel {
  r: string;
  at: number;
  text: string;
  new: boolean;
}

/** A piece of a lesson's sentence, with a term of the glossary, a measured number or words for a pointer or keys. */
type LessonSpan =
  Span | { t?: string; s?: string; n?: string; keys?: string; [more: string]: Json };

/** A run on screen, its origin and its document. */
interface Shown {
  run: Run;
  entry?: Entry | null;
  replay?: Json;
}

/** A part of the page as its tab bar lists it: visualizer/page/tabs.py. */
interface Tab {
  name: string;
  title: string;
  href?: string;
  minutes?: Record<string, number>;
  lacks?: boolean;
  speaks?: string[];
}

type Pen = import("./figure/drawing.js").Pen;

/** A number in a drawing's state that the visitor moves, by 1 unless `step` is given. */
interface Slider {
  key: string;
  from: number;
  to: number;
  word: string;
  step?: number;
}

/** A slider within a drawing, with its text. */
interface Knob extends Slider {
  says(n: number): string;
}

/** The state of a drawing: numbers that the visitor moves, and names of what is highlighted. */
type DrawingState = Json;

/** A kind of drawing: functions that depend on its data and state alone. */
interface DrawingKind {
  slider(data: Json): Slider;
  draw(pen: Pen, state: DrawingState, data: Json): void;
  says(state: DrawingState, data: Json): string;
  /** Whether it shows what the figure claims to have measured; if left out, it always does. */
  isMeasured?(state: DrawingState): boolean;
  /** The state at rest, fully drawn and with whole numbers, from which the visitor moves on. */
  settled?(state: DrawingState): DrawingState;
  /** The state that is printed on paper. */
  print(data: Json, first: DrawingState): DrawingState;
  /** Two or three values of the state as buttons, in place of the slider or beside it. */
  switches?: { key: string; words: string[] };
  /** What is at a point of the drawing, as a change of its state, or null. */
  point?(
    x: number,
    y: number,
    state: DrawingState,
    data: Json,
    size: { w: number; h: number; small: boolean },
  ): DrawingState | null;
  /** Everything that the visitor can move, the slider first. */
  knobs?(data: Json): Knob[];
  /** The key of the knob at a point, or null. */
  grab?(
    x: number,
    y: number,
    state: DrawingState,
    data: Json,
    size: { w: number; h: number },
  ): string | null;
  /** The value of a knob after it was dragged so far. */
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
  inflight: App; // used by tests and scripts
  inflightWatch: Watch;
  inflightModules: Record<string, Foreign>;
  inflightEmbed: object; // used by tests
  inflightStory: import("./story/story.js").Story;
  inflightEnter: { player: string; here: string; others: Record<string, string> };
  inflightParts: Function;
  inflightCompare: Compare;
  inflightCompareMount: Function;
  inflightLearn: Learn;
  inflightLearnMount: Function;
  inflightLearnFiles: { style: string; markup: string };
  inflightLive: Live;
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
