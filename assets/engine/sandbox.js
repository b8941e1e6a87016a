// Code of a stranger, a policy that came by a link or was just typed, runs here and nowhere else: in a hidden frame of an opaque origin, which
// has neither network nor storage nor a way to the page. All it needs is handed in, and nothing that it touched is used again: a frame is for
// one job.
//
//   page: Sandbox  ⇄  frame: gate, which lets strings pass, so many and so long  ⇄  worker: bootstrap, then the engine's own worker.js
//
// What comes back is JSON of a stranger: data to be checked, never markup.

import { Files, UNREACHED } from "./loading.js";

/**
 * It is this policy that holds (tests/page/test_sandbox.py has its control). Pyodide needs the two
 * words of `script-src` after the gate's.
 */
const CSP =
  "default-src 'none'; script-src 'unsafe-inline' blob: 'wasm-unsafe-eval'; worker-src blob:";
// characters of a message, of all that answer one request, and what each counts for at least
const MOST = { once: 8e6, inAll: 64e6, each: 10000 };
// bytes: a list without end is then an error with a line, not a machine without memory
const MEMORY = 768 * 2 ** 20;

/** The frame's script. It outlives nothing: who says too much ends its worker. */
function gate(most) {
  window.onmessage = ({ data: { script, files, memory }, ports }) => {
    window.onmessage = null;
    const [page] = ports;
    // a module worker does not start here
    const worker = new Worker(URL.createObjectURL(new Blob([script], { type: "text/javascript" })));
    let left = most.inAll;
    const end = (sentence) => {
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

/** The worker's script: modules and files are found among what was handed in, each file once. */
function bootstrap() {
  const HERE = "https://engine.invalid/";
  const scope = /** @type {{importScripts: unknown}} */ (/** @type {unknown} */ (self));
  self.onmessage = async ({ data: { files, memory } }) => {
    self.onmessage = null;
    const send = self.postMessage.bind(self);
    self.postMessage = (message) => send(JSON.stringify(message));
    scope.importScripts = () => {
      // by this Pyodide knows a worker that may import modules
      throw new TypeError("Nothing is imported here.");
    };
    const { grow } = WebAssembly.Memory.prototype;
    WebAssembly.Memory.prototype.grow = function (pages) {
      if (this.buffer.byteLength + pages * 65536 > memory)
        throw new RangeError("The sandbox has no more memory.");
      return grow.call(this, pages);
    };
    const cache = {
      match: async (address) => {
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
    // where loading.js looks first, and here alone
    Object.defineProperty(self, "caches", { value: { open: async () => cache } });
    const urls = {};
    const url = (name) =>
      (urls[name] ??= URL.createObjectURL(new Blob([module(name)], { type: "text/javascript" })));
    const module = (name) =>
      new TextDecoder()
        .decode(files[name])
        .replace(/\bfrom\s*"\.\/([\w.-]+)"/g, (_, other) => `from "${url(other)}"`)
        .replaceAll("import.meta.url", JSON.stringify(HERE + name));
    try {
      await import(url("worker.js"));
      self.postMessage({ kind: "started" });
    } catch (error) {
      self.postMessage({ kind: "failed", sentence: `The sandbox failed: “${error.message}”.` });
    }
  };
}

const FRAME = `<!doctype html><meta http-equiv="Content-Security-Policy" content="${CSP}"><script>(${gate})(${JSON.stringify(MOST)})</script>`;

const TICK = 500; // ms
const START = 90_000; // ms without a word in which a slow phone may start
const LIMIT = 3000; // ms of Python between two turns of a job: then its line is named
// ms without a word in which a job may compute: past it Python cannot be interrupted, as within one
// long call into C
const QUIET = LIMIT + 3000;

/** A frame with a worker in it, for one job. */
class Frame {
  constructor(/** @type {Record<string, ArrayBuffer>} */ files) {
    this.heard = [];
    this.silence = 0; // ms
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

  _hear(text) {
    this.silence = 0;
    this.heard.push(checked(text));
    this.wake?.();
  }

  /**
   * The messages about a request, until one of `last`. patience: ms without a word before it ends.
   * Throws the sentence of a failure. @param {AbortSignal} [signal]
   */
  async *answers(message, last, patience, signal) {
    const give = () => this.wake?.();
    this.silence = 0;
    // Counted in ticks: a computer that slept has not waited.
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

/** A message as it may be believed: of a known kind, its parts of their types. */
function checked(text) {
  try {
    const { kind, id, delta, sentence } = JSON.parse(text);
    if (kind === "started" || kind === "loading" || kind === "alive" || kind === "ready")
      return { kind, id };
    if (kind === "delta" && delta && typeof delta === "object" && !Array.isArray(delta))
      return { kind, id, delta };
    if (kind === "failed" && typeof sentence === "string")
      return { kind, id, sentence: sentence.slice(0, 1000) };
  } catch {
    /* as below */
  }
  return { kind: "failed", sentence: "This code answered with something that is not an answer." };
}

/** Runs jobs of strangers, each in a frame of its own. One frame waits, ready, for the next. */
export class Sandbox {
  /**
   * On the engine's files at an address. model: the built-in model that jobs compute with. @param
   * {string} base @param {string} model
   */
  static of(base, model) {
    return new Sandbox((progress) => brought(base, model, progress), model);
  }

  /** files: called at each start with what hears of progress; {name: ArrayBuffer}, given away. */
  constructor(files, model) {
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
    const { frames } = this; // `end` takes them away
    const files = await this.files((loading) => {
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
    } catch (error) {
      this._end(frame);
      throw error;
    }
  }

  _end(frame) {
    frame.end();
    this.frames.delete(frame);
  }

  /** The deltas of a job, {loading} before. Throws a sentence; `signal` ends it at once. */
  async *run(kind, spec, /** @type {AbortSignal | undefined} */ signal = undefined) {
    this.warm();
    const start = this.waiting;
    this.waiting = undefined;
    const frame = yield* this._waited(start, signal);
    try {
      const begin = { id: 2, do: "begin", kind, spec, limit: LIMIT };
      for await (const { delta } of frame.answers(begin, ({ delta }) => delta?.done, QUIET, signal))
        if (delta) yield delta;
    } finally {
      const wanted = this.frames.has(frame);
      this._end(frame);
      if (wanted) this.warm();
    }
  }

  /** The frame once it has started. Aborted, it is left to the next job. */
  async *_waited(start, signal) {
    const { frames } = this; // once `end` took them away, the start is of no use
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

  /** Ends whatever runs or waits, and frees it. */
  end() {
    for (const frame of this.frames) frame.end();
    this.frames = new Set();
    this.waiting = undefined;
  }
}

/** What no sandbox asks for: it shares no memory with threads, and opens nobody's own model. */
const UNASKED = ["shared.wasm", "jinja.json"];

/** All that a worker with one model asks for. @returns {Promise<Record<string, ArrayBuffer>>} */
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
async function scripts(base) {
  const found = {};
  for (const todo = ["worker.js"]; todo.length;) {
    const name = todo.pop();
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
