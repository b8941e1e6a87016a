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

interface Window {
  Inflight: { mount(root: HTMLElement, options?: object): void; icon: Function };
  inflight: App; // for tests and scripts
  inflightWatch: Watch;
  inflightModules: Record<string, any>;
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
  inflightWriteFiles: { style: string; markup: string; model: string; tasks: any[] };
  inflightCodeMirror: any;
  inflightCompareFiles: { style: string; markup: string; hand: any };
  inflightEarly?: Record<string, Promise<any>>;
  inflightBring?: Function;
  Plotly: any;
  supports_zerogpu_headers?: boolean;
}
