// The engine in this tab: it answers like a `Server`, from a worker (assets/engine/worker.js). The
// worker is started at the first request and ends with the page. Its documents are in the worker's
// memory, at addresses "tab:…", which `fetchJson` of parts/server.js can read.

import { LoadingBar } from "./loading_bar.js";

const GONE = "This run is no longer in this tab: run it again.";
const KEPT = "inflight-engine"; // the cache of assets/engine/loading.js
const ENDS = 3000; // ms for a cancelled job to end by itself

/**
 * Why there is no engine, in a sentence. lasting: trying again does not help. more: {size, arrived,
 * kept} for a model that is fetched only with consent; {all} where no model can be had.
 */
class NoEngine extends Error {
  /**
   * @param {string} sentence
   * @param {{all?: boolean, size?: number, arrived?: number, kept?: boolean}} more
   */
  constructor(sentence, lasting = false, more = {}) {
    super(sentence);
    this.lasting = lasting;
    this.more = more;
  }
}

export class BrowserEngine {
  /** @param {string} base where the engine's files are, see visualizer/page/engine_files.py */
  constructor(base, bar = new LoadingBar()) {
    this.base = new URL(base, document.baseURI).href;
    this.bar = bar;
    this.worker = null;
    this.requests = 0; // the number of the last request
    this._crashed = false;
    /** @type {Map<number, {resolve: Function, reject: Function, heard: (message: Json) => void}>} */
    this._asked = new Map();
    /** @type {Map<string, {id: number, model: string, ready: Promise<Json>, waits: number}>} */
    this._loads = new Map(); // by the model's name, "" for none; waits: how many wait for it
    /** @type {Set<string>} models that the visitor agreed to fetch, however large */
    this._agreed = new Set();
    /** @type {Map<string, File>} the visitor's own files, by the names of their models */
    this._files = new Map();
    /** @type {Map<string, TabJob>} */
    this._jobs = new Map();
    // leaving the page does not fail its jobs: a page that is loaded again resumes them
    window.addEventListener("pagehide", () => this.worker?.terminate());
    window.addEventListener("pageshow", ({ persisted }) => persisted && this.end());
    bring(this);
  }

  // -- the interface of a server -----------------------------------------------------------------

  async call(/** @type {string} */ name, /** @type {Json[]} */ ...args) {
    await this.ready();
    const asked = { do: "call", name, args };
    let value = await this._ask(asked);
    if (value.needs) {
      await this.ready(value.needs);
      value = await this._ask(asked);
    }
    return name.startsWith("export") && value.url
      ? { ...value, url: await this._file(value.url) }
      : value;
  }

  /** Open a file, which never leaves this machine. */
  async send(/** @type {string} */ path, /** @type {string} */ text) {
    const [where, query] = path.split("?");
    const asked = new URLSearchParams(query);
    return where.endsWith("uploads")
      ? this.call("upload", text, asked.getAll("name"))
      : this.call("dataset", text, asked.get("name"), asked.get("model"));
  }

  /**
   * Start a job once its model has loaded; returns its id. Throws a sentence. @param {string} kind
   * @param {Json} asked @param {Json} _who @param {AbortSignal | undefined} signal
   */
  async begin(kind, asked, _who, signal = undefined) {
    const { dtype: _one, ...spec } = asked; // the tab has one number format, see `Engines.fits`
    await this.ready(spec.model, signal);
    signal?.throwIfAborted();
    const job = new TabJob(this._next());
    const id = `tab-job-${job.number}`;
    this._jobs.set(id, job);
    this._ask({ do: "begin", kind, spec }, (message) => job.add(message.delta), job.number).catch(
      (error) => job.add({ done: true, [job.isCancelled ? "stopped" : "error"]: error.message }),
    );
    return id;
  }

  /** @param {string} id @param {AbortSignal | undefined} signal */
  async *follow(id, signal = undefined) {
    const job = this._jobs.get(id);
    if (!job) throw new Error(GONE);
    signal?.addEventListener("abort", () => this.cancel(id), { once: true });
    for (let over = false; !over;) {
      for (const delta of await job.unread()) {
        yield delta;
        over ||= Boolean(delta.done);
      }
    }
    this._jobs.delete(id);
  }

  /** End a job at its next step, if need be with the worker; a job that waits ends at once. */
  async cancel(/** @type {string} */ id) {
    const job = this._jobs.get(id);
    if (!job) return { cancelled: false };
    job.isCancelled = true;
    this.worker?.postMessage({ id: this._next(), do: "cancel", of: job.number });
    const isFirst = () => job === [...this._jobs.values()].find(({ isOver }) => !isOver);
    const end = () =>
      isFirst() && this.end("Cancelled. The engine was ended too: the next run loads it again.");
    if (isFirst()) setTimeout(end, ENDS);
    else if (!job.isOver) {
      this._asked.delete(job.number);
      job.add({ done: true, stopped: "Cancelled." });
    }
    return { cancelled: true };
  }

  // -- what this browser keeps -------------------------------------------------------------------

  /** Bytes that this browser has cached of a model. @param {string} model */
  async kept(model) {
    try {
      return (await window.caches.has(KEPT)) ? await this._ask({ do: "kept", model }) : 0;
    } catch {
      return 0;
    }
  }

  /**
   * Read a visitor's GGUF file, which never leaves their machine; returns what a form says about
   * its model. Throws a sentence. @param {File} file
   */
  async open(file) {
    await this.ready();
    const model = /\.gguf$/i.test(file.name) ? file.name : `${file.name}.gguf`;
    this._loads.delete(model);
    const facts = await this._ask({ do: "open", model, file });
    this._files.set(model, file);
    return { ...facts, name: model, file: file.size };
  }

  /** Delete a model from this browser; runs that use it go on. @param {string} model */
  async remove(model) {
    this._agreed.delete(model);
    this._files.delete(model);
    this._loads.delete(model);
    await this._ask({ do: "remove", model });
  }

  // -- the worker --------------------------------------------------------------------------------

  /**
   * Load the engine, with a model if one is named, and a large model only with the visitor's consent; a bar shows the
   * progress. Throws NoEngine, or the reason of `signal`. @param {string} model @param {AbortSignal | undefined} signal
   */
  async ready(model = "", /** @type {AbortSignal | undefined} */ signal = undefined) {
    for (;;) {
      signal?.throwIfAborted();
      try {
        return await this._load(model, signal);
      } catch (/** @type {Foreign} */ error) {
        signal?.throwIfAborted();
        if (!(error instanceof NoEngine) || error.lasting) throw error;
        if (error.more.size) {
          const isWanted = await this.bar.offer(model, error.more, signal);
          signal?.throwIfAborted();
          if (!isWanted)
            throw new Error("Nothing was run, because its model was not fetched.", {
              cause: error,
            });
          this._agreed.add(model);
        } else if (!(await this.bar.failed(error.message))) throw error;
      }
    }
  }

  /** End the worker and fail its requests with a sentence. again: trying again may help. */
  end(sentence = "The engine in this tab was ended.", again = false) {
    this.worker?.terminate();
    this.worker = null;
    this._loads.clear();
    const asked = [...this._asked.values()];
    this._asked.clear();
    for (const { reject } of asked) reject(again ? new NoEngine(sentence) : new Error(sentence));
  }

  /** Wait for a load to end or `signal` to abort; the last caller to leave ends the load. */
  async _load(/** @type {Json} */ model, /** @type {AbortSignal | undefined} */ signal) {
    const load = this._loads.get(model) ?? this._begun(model);
    const left = new Promise((_, fail) =>
      signal?.addEventListener("abort", () => fail(signal.reason), { once: true }),
    );
    load.waits += 1;
    try {
      return await Promise.race([load.ready, left]);
    } finally {
      load.waits -= 1;
      if (!load.waits) this._leave(load);
    }
  }

  _begun(/** @type {Json} */ model) {
    const file = this._files.get(model);
    // only one of the visitor's own files is loaded at a time
    if (file) for (const other of this._files.keys()) this._loads.delete(other);
    const id = this._next();
    const agreed = this._agreed.has(model);
    const asked = { do: "load", model, file, agreed, fresh: this._crashed };
    const ready = this._ask(asked, (message) => this.bar.progress(message), id);
    this._crashed = false;
    const load = { id, model, ready, waits: 0 };
    this._loads.set(model, load);
    this.bar.open(() => this._loads.forEach((each) => this._leave(each)));
    const isGoing = (/** @type {{id: number}} */ { id }) => this._asked.has(id);
    ready
      .then(
        () => this._loads.set("", load), // a load with a model has also loaded the engine
        () => this._loads.get(model) === load && this._loads.delete(model),
      )
      .finally(() => [...this._loads.values()].some(isGoing) || this.bar.close());
    return load;
  }

  /** End a load that nobody waits for, and the worker if it holds nothing else. */
  _leave(/** @type {Json} */ { id, model }) {
    const asked = this._asked.get(id);
    if (!asked) return; // the load is over
    this._asked.delete(id);
    this._loads.delete(model);
    asked.reject(new Error("The engine was not loaded, because that was cancelled."));
    if (this._loads.size) this.worker?.postMessage({ id: this._next(), do: "leave", model });
    else this.end();
  }

  _next() {
    this.requests += 1;
    return this.requests;
  }

  /** The worker's answer. heard: called with earlier messages. Throws the worker's sentence. */
  _ask(/** @type {Json} */ message, heard = (/** @type {Json} */ _) => {}, id = this._next()) {
    return new Promise((resolve, reject) => {
      this._start();
      this._asked.set(id, { resolve, reject, heard });
      this.worker?.postMessage({ id, ...message });
    });
  }

  _start() {
    if (this.worker) return;
    if (location.protocol === "file:")
      throw new NoEngine(
        "The engine in this tab needs a page that comes over HTTP: run `python -m http.server` in its folder, and open the address that it prints.",
        true,
        { all: true },
      );
    let isThere = false;
    this.worker = new Worker(new URL("worker.js", this.base), { type: "module" });
    this.worker.onmessage = ({ data }) => {
      isThere = true;
      this._hear(data);
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      this._crashed = isThere; // then the next load fetches the engine's files anew
      if (isThere)
        this.end("The engine in this tab broke down, perhaps for want of memory: try again.", true);
      else
        this.end("The engine's files cannot be reached: try again, or load the page again.", true);
    };
  }

  _hear(/** @type {Json} */ { kind, id, ...message }) {
    const asked = this._asked.get(id);
    if (!asked) return;
    if (kind === "loading" || kind === "delta") asked.heard(message);
    else this._asked.delete(id);
    if (kind === "ready") asked.resolve(message);
    if (kind === "answer") asked.resolve(message.value);
    if (kind === "failed")
      asked.reject(new NoEngine(message.sentence, message.lasting, message.more));
    if (message.delta?.done) this._asked.delete(id);
  }

  // -- documents in the worker -------------------------------------------------------------------

  async document(/** @type {string} */ url) {
    return JSON.parse(await this._text(url));
  }

  /** An address from which the browser can download a file that the worker holds. */
  async _file(/** @type {string} */ url) {
    return URL.createObjectURL(new Blob([await this._text(url)]));
  }

  async _text(/** @type {string} */ url) {
    if (!this.worker) throw new Error(GONE);
    const text = await this._ask({ do: "call", name: "document", args: [url] });
    if (text === null) throw new Error(GONE);
    return text;
  }
}

/** A job of the worker, with the deltas that nobody has read yet. */
class TabJob {
  constructor(/** @type {number} */ number) {
    this.number = number;
    this.isOver = this.isCancelled = false;
    /** @type {Json[]} */ this._unread = [];
    this._wake = () => {};
  }

  add(/** @type {Json} */ delta) {
    this._unread.push(delta);
    this.isOver ||= Boolean(delta.done);
    this._wake();
  }

  /** The unread deltas; waits until there is one. */
  async unread() {
    if (!this._unread.length)
      await new Promise((resolve) => {
        this._wake = () => resolve(undefined);
      });
    return this._unread.splice(0);
  }
}

/** Let `fetchJson` find the worker's documents beside those that the page brings along. */
function bring(/** @type {Json} */ engine) {
  const given = window.inflightEarly;
  window.inflightEarly = new Proxy(
    {},
    {
      get: (_, url) =>
        String(url).startsWith("tab:") ? engine.document(url) : given?.[String(url)],
    },
  );
}
