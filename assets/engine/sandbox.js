// Runs a stranger's code, such as a policy that came by a link or was just typed, in a hidden frame of an opaque origin, which has access to neither
// network nor storage nor page; such code runs nowhere else. All that it needs is handed in, and a frame is used for one job alone, because nothing
// that the code has touched is used again.
//
//   page: Sandbox  ⇄  frame: gate, which limits the number and length of messages  ⇄  worker: bootstrap, then the engine's own worker.js
//
// What comes back is JSON from a stranger: data to be checked, never markup.

import { Files, UNREACHED } from "./loading.js";

/**
 * This policy is what confines the code (tests/page/test_sandbox.py has the control). In
 * `script-src`, the gate needs the first word and Pyodide the other two.
 */
const CSP =
  "default-src 'none'; script-src 'unsafe-inline' blob: 'wasm-unsafe-eval'; worker-src blob:";
// most characters of one message and of all that answer a request; a message counts at least `each`
const MOST = { once: 8e6, inAll: 64e6, each: 10000 };
// bytes: an endless list then raises an error with a line instead of filling the machine's memory
const MEMORY = 768 * 2 ** 20;

/** The script of the frame. If a worker sends too much, this ends the worker. */
function gate(/** @type {typeof MOST} */ most) {
  window.onmessage = ({ data: { script, files, memory }, ports }) => {
    window.onmessage = null;
    const [page] = ports;
    // a module worker does not start in this frame
    const worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    let left = most.inAll;
    const end = (/** @type {string | null} */ sentence) => {
      worker.terminate();
      page.postMessage(JSON.stringify({ kind: "failed", sentence, ended: true }));
    };
    worker.onmessage = ({ data }) => {
      const size = typeof data === "string" ? Math.max(most.each, data.length) : Infinity;
      left -= size;
      if (size > most.once || left < 0)
        end("This code sent more than the page accepts from a stranger.");
      else page.postMessage(data);
    };
    worker.onerror = (event) => {
      event.preventDefault();
      end(
        event.message
          ? `The sandbox failed: “${String(event.message)
              .replace(/^Uncaught /, "")
              .slice(0, 200)}”.`
          : "The sandbox did not start in this browser.",
      );
    };
    page.onmessage = ({ data }) => {
      left = most.inAll;
      worker.postMessage(data);
    };
    worker.postMessage({ files, memory }, Object.values(files));
  };
}

/** The worker's script: modules and files are looked up in what was handed in, each file once. */
function bootstrap() {
  const HERE = "https://engine.invalid/";
  const scope = /** @type {{importScripts: unknown}} */ (/** @type {unknown} */ (self));
  self.onmessage = async ({ data: { files, memory } }) => {
    self.onmessage = null;
    const send = self.postMessage.bind(self);
    self.postMessage = (message) => send(JSON.stringify(message));
    scope.importScripts = () => {
      // this error tells Pyodide that the worker may import modules
      throw new TypeError("Nothing is imported here.");
    };
    const { grow } = WebAssembly.Memory.prototype;
    WebAssembly.Memory.prototype.grow = function (/** @type {Json} */ pages) {
      if (this.buffer.byteLength + pages * 65536 > memory)
        throw new RangeError("The sandbox has no more memory.");
      return grow.call(this, pages);
    };
    const cache = {
      match: async (/** @type {string} */ address) => {
        const name = address.replace(HERE, "");
        const bytes = files[name];
        delete files[name];
        return (
          bytes &&
          new Response(bytes, {
            headers: { "Content-Type": name.endsWith(".wasm") ? "application/wasm" : "" },
          })
        );
      },
      put: async () => {},
      keys: async () => [],
    };
    // where loading.js looks first, and in a sandbox the only place
    Object.defineProperty(self, "caches", { value: { open: async () => cache } });
    /** @type {Record<string, string>} */ const urls = {};
    /** @type {(name: string) => string} */
    const url = (name) =>
      (urls[name] ??= URL.createObjectURL(new Blob([module(name)], { type: "text/javascript" })));
    /** @type {(name: string) => string} */
    const module = (name) =>
      new TextDecoder()
        .decode(files[name])
        .replace(/\bfrom\s*"\.\/([\w.-]+)"/g, (_, other) => `from "${url(other)}"`)
        .replaceAll("import.meta.url", JSON.stringify(HERE + name));
    try {
      await import(url("worker.js"));
      self.postMessage({ kind: "started" });
    } catch (/** @type {Foreign} */ error) {
      self.postMessage({ kind: "failed", sentence: `The sandbox failed: “${error.message}”.` });
    }
  };
}

const FRAME = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${CSP}"><script>(${gate})(${JSON.stringify(MOST)})</script>`;

const TICK = 500; // ms between two checks
const START = 90_000; // ms of silence in which a slow phone may start
const LIMIT = 3000; // ms of Python between two turns of a job: then the error names its line
// ms of silence allowed to a job: after that, Python is in one long call and cannot be interrupted
const QUIET = LIMIT + 3000;

/** A hidden frame with a worker in it, for one job. */
class Frame {
  constructor(/** @type {Record<string, ArrayBuffer>} */ files) {
    /** @type {Json[]} */ this.heard = [];
    this.silence = 0; // ms since the last message
    /** @type {((_?: unknown) => void) | undefined} */ this.wake = undefined;
    this.element = document.createElement("iframe");
    this.element.sandbox = "allow-scripts";
    this.element.hidden = true;
    this.element.srcdoc = FRAME;
    const { port1, port2 } = new MessageChannel();
    this.port = port1;
    this.port.onmessage = ({ data }) => this._hear(data);
    const handed = { script: `(${bootstrap})()`, files, memory: MEMORY };
    const hand = () =>
      this.element.contentWindow?.postMessage(handed, "*", [port2, ...Object.values(files)]);
    this.element.addEventListener("load", hand, { once: true });
    document.body.append(this.element);
  }

  _hear(/** @type {string} */ text) {
    this.silence = 0;
    this.heard.push(checked(text));
    this.wake?.();
  }

  /**
   * The messages that answer a request, until `last` is true of one. patience: ms of silence before
   * the request fails. Throws the sentence of a failure. @param {Json} message
   * @param {(message: Json) => boolean} last @param {number} patience @param {AbortSignal} [signal]
   */
  async *answers(message, last, patience, signal) {
    const give = () => this.wake?.();
    this.silence = 0;
    // Silence is counted in ticks, so that the time in which a computer slept does not count.
    const watch = setInterval(() => {
      this.silence += TICK;
      give();
    }, TICK);
    signal?.addEventListener("abort", give);
    try {
      if (message) this.port.postMessage(message);
      for (;;) {
        signal?.throwIfAborted();
        while (!this.heard.length) {
          if (this.silence > patience) throw new Error(SILENT);
          await new Promise((wake) => {
            this.wake = wake;
          });
          signal?.throwIfAborted();
        }
        const said = this.heard.shift();
        if (said.kind === "failed") throw new Error(said.sentence);
        if (message && said.id !== message.id) continue;
        yield said;
        if (last(said)) return;
      }
    } finally {
      clearInterval(watch);
      signal?.removeEventListener("abort", give);
    }
  }

  /** @param {Parameters<Frame["answers"]>} request */
  async last(...request) {
    let last;
    for await (last of this.answers(...request));
    return last;
  }

  end() {
    this.port.close();
    this.element.remove();
  }
}

const SILENT = `Nothing was heard from this code for ${QUIET / 1000} seconds and it could not be interrupted, so its sandbox was ended.`;

/** A message after a check of its kind and types; a failure if it is anything else. */
function checked(/** @type {string} */ text) {
  try {
    const { kind, id, delta, sentence } = JSON.parse(text);
    if (kind === "started" || kind === "loading" || kind === "alive" || kind === "ready")
      return { kind, id };
    if (kind === "delta" && delta && typeof delta === "object" && !Array.isArray(delta))
      return { kind, id, delta };
    if (kind === "failed" && typeof sentence === "string")
      return { kind, id, sentence: sentence.slice(0, 1000) };
  } catch {
    /* answered below */
  }
  return { kind: "failed", sentence: "This code answered with something that is not an answer." };
}

/** Runs jobs of strangers' code, each in a frame of its own; one frame waits for the next job. */
export class Sandbox {
  /**
   * A sandbox that takes the engine's files from an address. model: the built-in model that jobs
   * use. @param {string} base @param {string} model
   */
  static of(base, model) {
    return new Sandbox((/** @type {Json} */ progress) => brought(base, model, progress), model);
  }

  /** files: called at each start with a callback for progress; gives {name: ArrayBuffer} away. */
  constructor(/** @type {Json} */ files, /** @type {Json} */ model) {
    this.files = files;
    this.model = model;
    this.frames = new Set();
    this.loading = { what: "", done: 0, total: 0 };
    /** @type {((_?: unknown) => void) | undefined} */ this.wake = undefined;
    /** @type {Promise<Frame> | undefined} */ this.waiting = undefined;
  }

  /** Start the frame that the next job will take. */
  warm() {
    if (this.waiting) return;
    const start = this._started();
    start.catch(() => {
      if (this.waiting === start) this.waiting = undefined;
    });
    this.waiting = start;
  }

  async _started() {
    const { frames } = this; // `end` replaces this set
    const files = await this.files((/** @type {Json} */ loading) => {
      this.loading = loading;
      this.wake?.();
    });
    if (frames !== this.frames) throw new Error("The sandbox was ended.");
    const frame = new Frame(files);
    frames.add(frame);
    try {
      await frame.last(null, ({ kind }) => kind === "started", START);
      await frame.last(
        { id: 1, do: "load", model: this.model },
        ({ kind }) => kind === "ready",
        START,
      );
      return frame;
    } catch (/** @type {Foreign} */ error) {
      this._end(frame);
      throw error;
    }
  }

  _end(/** @type {Frame} */ frame) {
    frame.end();
    this.frames.delete(frame);
  }

  /**
   * The deltas of a job, after {loading} ones. Throws a sentence; `signal` ends the job at once.
   * @param {string} kind @param {Json} spec @param {AbortSignal | undefined} signal
   */
  async *run(kind, spec, signal = undefined) {
    this.warm();
    const start = this.waiting;
    this.waiting = undefined;
    const frame = yield* this._waited(start, signal);
    try {
      const begin = { id: 2, do: "begin", kind, spec, limit: LIMIT };
      for await (const { delta } of frame.answers(
        begin,
        (/** @type {Json} */ { delta }) => delta?.done,
        QUIET,
        signal,
      ))
        if (delta) yield delta;
    } finally {
      const wanted = this.frames.has(frame);
      this._end(frame);
      if (wanted) this.warm();
    }
  }

  /**
   * The frame once it has started; if the job is aborted first, it is left to the next job.
   * @param {Promise<Frame> | undefined} start @param {AbortSignal | undefined} signal
   */
  async *_waited(start, signal) {
    const { frames } = this; // once `end` has replaced this set, the start is of no use
    let frame, told;
    const aborted = new Promise((_, fail) => {
      signal?.addEventListener("abort", () => fail(signal.reason), { once: true });
    });
    try {
      for (;;) {
        signal?.throwIfAborted();
        const news = new Promise((wake) => {
          this.wake = wake;
        });
        frame = await Promise.race([start, news, aborted]);
        if (frame) return frame;
        if (told !== this.loading && this.loading.done < this.loading.total)
          yield { loading: this.loading };
        told = this.loading;
      }
    } finally {
      if (!frame && !this.waiting && signal?.aborted && frames === this.frames)
        this.waiting = start;
    }
  }

  /** Ends and frees all frames, running or waiting. */
  end() {
    for (const frame of this.frames) frame.end();
    this.frames = new Set();
    this.waiting = undefined;
  }
}

/** Files for threads with shared memory and for visitors' own models; a sandbox uses neither. */
const UNASKED = ["shared.wasm", "jinja.json"];

/**
 * All files that a worker with one model needs. @returns {Promise<Record<string, ArrayBuffer>>}
 * @param {string} base @param {Json} model @param {Json} progress
 */
async function brought(base, model, progress) {
  const files = new Files(base, progress);
  const manifest = await files.manifest();
  const others = Object.entries(manifest.models).flatMap(([name, names]) =>
    name === model ? [] : names,
  );
  const names = Object.keys(manifest.files)
    .filter((name) => !others.includes(name))
    .map((name) => name.replace(/\.gz$/, ""))
    .filter((name) => !UNASKED.includes(name));
  const [found, snapshot, modules] = await Promise.all([
    files.get(names),
    files.snapshot(),
    scripts(base),
  ]);
  const told = new TextEncoder().encode(JSON.stringify(manifest)).buffer;
  return {
    ...modules,
    ...Object.fromEntries(found),
    "manifest.json": told,
    ...(snapshot && { snapshot }),
  };
}

/** worker.js and what it imports, by name. */
async function scripts(/** @type {string} */ base) {
  /** @type {Record<string, ArrayBuffer>} */ const found = {};
  for (const todo = ["worker.js"]; todo.length;) {
    const name = /** @type {string} */ (todo.pop());
    const answer = await fetch(base + name);
    if (!answer.ok) throw new Error(UNREACHED);
    found[name] = await answer.arrayBuffer();
    for (const [, other] of new TextDecoder()
      .decode(found[name])
      .matchAll(/\bfrom\s*"\.\/([\w.-]+)"/g))
      if (!(other in found)) todo.push(other);
  }
  return found;
}
