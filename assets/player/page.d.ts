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

/** What an address tells. */
type Wanted = Partial<ReturnType<import("./watch/address.js").Address["read"]>>;

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
