// The engines that compute what the page asks for: the visitor's own tab, a server, or both, behind one interface, that of parts/server.js.
// Runs, leaks, forks and comparisons of the built-in models go to the tab first; whatever it cannot compute goes to the server, if there is one, and so
// does a large model, unless the visitor wants it on their own machine.
//
//   a kind and its spec, a call, a run's id, a file ─→ the tab ("tab-…") or the server

import { keep, kept } from "../parts/kept.js";
import { FILE_AGAIN, isFile } from "../parts/model_field.js";
import { Server, fetchJson } from "../parts/server.js";
import { t } from "../parts/speech.js";
import { BrowserEngine } from "./browser_engine.js";

/** @typedef {Pick<Server, "begin" | "follow" | "cancel" | "call" | "send">} Engine the interface */

// storage key: "tab" or "server", as the visitor chose where there are both
const CHOICE = "inflight-engine";
const OURS = "tab-"; // prefix of ids of what the tab made
/** What the tab can do: kinds of jobs, calls and files. */
const IN_TAB = [
  "run",
  "leak",
  "fork",
  "compare",
  "plan",
  "simulate",
  "export",
  "attention",
  "uploads",
];
const LARGE = ["smollm2"]; // models that take long to fetch
const EXACT = ["auto", "float32"]; // number formats in which the tab can compute

/** @type {Engines | null} shared by all parts of this page */
let found = null;

export class Engines {
  /**
   * The engines of this page; null if it has none. engine: where the files of the tab's engine are; engineModels:
   * the models it has. offers: where a page without a server has what can be run on it.
   * @param {{server?: boolean, base?: string, engine?: string, engineModels?: string[], offers?: string, [more: string]: Json}} options
   */
  static of({ server = false, base = "", engine = "", engineModels = [], offers = "" }) {
    if (!found && (server || engine))
      found = new Engines(
        engine ? new BrowserEngine(engine) : null,
        server ? new Server(base) : null,
        { models: engineModels, offers },
      );
    return found;
  }

  /** @param {BrowserEngine | null} tab @param {Server | null} server */
  constructor(tab, server, { models = /** @type {string[]} */ ([]), offers = "" } = {}) {
    this.tab = tab;
    this.server = server;
    this.lacksTab = !tab; // this page has none; `tab` is also null where this browser cannot run it
    this.models = models;
    /** @type {Record<string, Json>} what is known of the visitor's own files, by their models' names */
    this.own = Object.create(null);
    this.offers = offers;
    /** @type {Map<string, Engine>} */
    this._jobs = new Map();
  }

  /**
   * Whether an engine can do something: a kind of job, a call by its name, or "uploads". id: the
   * run that it is about, which only the engine that made it has.
   * @param {string} what @param {string | null} id
   */
  can(what, id = null) {
    return Boolean(
      (this.server && !isOurs(id)) || (this.tab && (!id || isOurs(id)) && IN_TAB.includes(what)),
    );
  }

  /** Whether the visitor can choose between tab and server. */
  get both() {
    return Boolean(this.tab && this.server);
  }

  /** Whether the tab is the first choice for a spec. @param {{model?: string}} spec */
  prefersTab({ model = "" }) {
    if (model in this.own) return true;
    const chosen = kept("good", CHOICE) || (LARGE.includes(model) ? "server" : "tab");
    return Boolean(this.tab && (!this.server || chosen === "tab"));
  }

  /** Store the visitor's choice, for every form. @param {boolean} tab */
  choose(tab) {
    keep("good", CHOICE, tab ? "tab" : "server");
  }

  /** Whether the tab can run it. @param {{model?: string, dtype?: string, device?: string}} spec */
  fits({ model, dtype = "auto", device = "auto" }) {
    return Boolean(
      this.tab &&
      (!model || this.models.includes(model) || model in this.own) &&
      EXACT.includes(dtype) &&
      (!this.server || device === "auto"),
    );
  }

  /**
   * The engine that runs a job. Throws a sentence if there is none. @param {string} kind
   * @param {Json} spec @returns {Engine}
   */
  whose(kind, spec) {
    if (spec.run) return /** @type {Engine} */ (isOurs(spec.run) ? this.tab : this.server);
    if (this.prefersTab(spec) && IN_TAB.includes(kind) && this.tab && this.fits(spec))
      return this.tab;
    if (this.server) return this.server;
    // a visitor's file that was chosen before the page was reloaded
    if (isFile(spec.model)) throw new Error(t(FILE_AGAIN, { name: spec.model }));
    throw new Error("The engine in this tab cannot run this: it takes a page with a server.");
  }

  /**
   * @param {string} kind @param {Json} spec @param {string} who
   * @param {AbortSignal | undefined} signal
   */
  async begin(kind, spec, who, signal = undefined) {
    const first = this.whose(kind, spec);
    const ask = async (/** @type {Engine} */ engine) => {
      const job = await engine.begin(kind, spec, who, signal);
      this._jobs.set(job, engine);
      return job;
    };
    return this._first(first, ask, spec.model);
  }

  /** An engine's answer, or the server's if this tab can have no engine, or not with this model. */
  async _first(/** @type {Json} */ engine, /** @type {Json} */ asked, model = "") {
    try {
      return await asked(engine);
    } catch (/** @type {Foreign} */ error) {
      const isTheirs = engine === this.server || model in this.own;
      if (!error.lasting || !this.server || isTheirs) throw error;
      if (error.more.all) this.tab = null;
      this.models = this.models.filter((name) => name !== model);
      return asked(this.server);
    }
  }

  /**
   * Run a job; returns its last delta. onprogress: called with its progress. An aborted `signal`
   * cancels the job. Throws a sentence. @param {string} kind @param {Json} spec @param {string} who
   * @param {Function} onprogress @param {AbortSignal} [signal]
   */
  async ask(kind, spec, who, onprogress, signal) {
    const job = await this.begin(kind, spec, who, signal).catch((error) => {
      throw error.name === "AbortError" ? new Error("Cancelled.") : error;
    });
    signal?.addEventListener("abort", () => this.cancel(job).catch(() => {}));
    let last = /** @type {Json} */ ({});
    for await (const delta of this.follow(job)) {
      last = delta;
      if (!delta.done && delta.progress) onprogress(delta.progress);
    }
    if (last.error || last.stopped) throw new Error(last.error || last.stopped);
    return last;
  }

  follow(/** @type {Json} */ job, /** @type {AbortSignal | undefined} */ signal = undefined) {
    return this._of(job).follow(job, signal);
  }

  async cancel(/** @type {Json} */ job) {
    return this._of(job).cancel(job);
  }

  /** Whether a job survives a reload of the page. @param {string} job */
  outlives(job) {
    return this._of(job) === this.server;
  }

  /** The engine that has a job; a job from before a reload is the server's. */
  _of(/** @type {Json} */ job) {
    return /** @type {Engine} */ (this._jobs.get(job) || this.server);
  }

  /** Bytes that this browser has cached of a large model for the tab. @param {string} model */
  async kept(model) {
    return this.tab && LARGE.includes(model) && this.models.includes(model)
      ? this.tab.kept(model)
      : 0;
  }

  /** Read a visitor's GGUF file: its model can be chosen. Throws a sentence. @param {File} file */
  async open(file) {
    const facts = await /** @type {BrowserEngine} */ (this.tab).open(file);
    this.own[facts.name] = facts;
    return facts;
  }

  /** What a form needs to know about models: the options of `ModelField`. */
  get forModels() {
    return {
      call: (/** @type {string} */ name, /** @type {unknown[]} */ ...args) =>
        this.call(name, ...args),
      kept: (/** @type {string} */ name) => this.kept(name),
      remove: (/** @type {string} */ name) => this.remove(name),
      own: () => this.own,
      open: this.tab ? (/** @type {File} */ file) => this.open(file) : undefined,
    };
  }

  /** Delete a model from this browser. @param {string} model */
  async remove(model) {
    delete this.own[model];
    return /** @type {BrowserEngine} */ (this.tab).remove(model);
  }

  /** A call's answer; calls about what the tab made go to the tab. */
  async call(/** @type {string} */ name, /** @type {Json[]} */ ...args) {
    const engine = args.some(isOurs) || !this.server ? this.tab : this.server;
    return /** @type {Engine} */ (engine).call(name, ...args);
  }

  /** GET a server's answer; a page without a server has a file of answers to read instead. */
  async get(/** @type {string} */ path, headers = {}) {
    return this.server ? this.server.get(path, headers) : (await fetchJson(this.offers))[path];
  }

  /** Send a file. If the tab can read it, it never leaves this machine. */
  async send(/** @type {string} */ path, /** @type {string} */ text) {
    const model = new URLSearchParams(path.split("?")[1]).get("model") || "";
    const engine = model in this.own || (await this._reads()) ? this.tab : this.server;
    return this._first(engine, (/** @type {Json} */ first) => first.send(path, text), model);
  }

  /** Whether the tab reads files; a server for any model has the tokenizers of more of them. */
  async _reads() {
    return Boolean(this.tab && !(this.server && (await this.get("inflight/state")).any_model));
  }
}

/** Whether an id belongs to what the tab made. */
export const isOurs = (/** @type {unknown} */ id) => typeof id === "string" && id.startsWith(OURS);
