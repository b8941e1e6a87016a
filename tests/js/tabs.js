// The worker of the engine in a tab, for tests in Node. Its models, kernels and threads are real; its Python only hears, and gives the answers that it
// is told (tests/page has the real one).

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { Worker as Thread } from "node:worker_threads";
import { gzipSync } from "node:zlib";

/** What a browser keeps, by address. */
export function cacheOf(/** @type {[string, Response][]} */ ...kept) {
  const all = new Map(kept);
  return /** @type {any} */ ({
    all,
    keys: async () => [...all.keys()].map((url) => ({ url })),
    match: async (url) => all.get(url)?.clone(),
    put: async (url, answer) => {
      all.set(url, new Response(await answer.arrayBuffer(), { headers: answer.headers }));
    },
    delete: async (url) => all.delete(url),
  });
}

export const HERE = new URL("../../assets/engine/", import.meta.url).href;
const CACHE = "inflight-engine";
const kernels = (name) => readFileSync(new URL(name, HERE));

/** A model without layers, whose logits are worked out by hand: eight tokens of four numbers. */
const TOKENS = [[2], [0, 2], [1, 1, 1, 1], [0, 0, 3], [-1, 1, -1, 1], [], [], [0, 0, 0, 4]];

/** Its file: the head's matrix, which embeds its tokens too, in one panel, and the last norm. */
export function weights(float16 = false, pad = 0) {
  const numbers = new Float32Array(36 + pad).fill(1, 32, 36);
  TOKENS.forEach((row, token) => row.forEach((x, p) => (numbers[8 * p + token] = x)));
  const halves = { 0: 0, 1: 0x3c00, "-1": 0xbc00, 2: 0x4000, 3: 0x4200, 4: 0x4400 };
  const data = float16 ? Uint16Array.from(numbers, (x) => halves[x]) : numbers;
  const sizes = { layers: 0, hidden: 4, heads: 1, kv_heads: 1, head_size: 4, inner: 4 };
  const header = {
    model: { name: "m", vocab_size: 8 },
    sizes: { ...sizes, positions: 16, epsilon: 0 },
    float16,
    tensors: { head: [0, 8, 4], norm: [128, 4, 1] },
  };
  let text = JSON.stringify(header);
  text += " ".repeat(-text.length & 3);
  const length = new Uint8Array(Uint32Array.of(text.length).buffer);
  return { header, bytes: Buffer.concat([length, Buffer.from(text), new Uint8Array(data.buffer)]) };
}

/** Tokens 0 and 3 as one request, in blocks of two: the logits of what follows the second. */
const TOLD = (owner) => Int32Array.of(owner, 2, 1, 0, 2, 0, -1, 1, 1, 0, 3, 0);

export function computes(model) {
  const [token, logprob, margin] = model.pass(TOLD(model.pool(2)), [{ temperature: 0 }]);
  // token 3 is [0, 0, 3], which its norm makes [0, 0, 2]: with the others it gives 0, 0, 2, 6, -2, 0, 0, 0
  const sum = 1 + Math.exp(-4) + Math.exp(-8) + 5 * Math.exp(-6);
  assert.deepEqual([token, margin], [3, 4]);
  assert.ok(Math.abs(logprob + Math.log(sum)) < 1e-6);
}

const SCRIPTS = {
  "pyodide.mjs": "export const loadPyodide = (options) => globalThis.python(options);",
  "pyodide.asm.mjs": "export default 'made';",
  "pyodide.asm.wasm": "wasm",
  "python_stdlib.zip": "library",
  "pyodide-lock.json": "locked",
  "sources.json": JSON.stringify({ "visualizer/browser/tab.py": "tab", "top.py": "top" }),
  "jinja.json": JSON.stringify({ "jinja/__init__.py": "jinja" }),
};
export const LARGE = 5.1e6; // numbers: more than 20 MB
/** @type {Record<string, Buffer>} what the site sends, by name */
export const SENT = Object.fromEntries(
  Object.entries({
    ...SCRIPTS,
    "kernels.wasm": kernels("kernels.wasm"),
    "shared.wasm": kernels("shared.wasm"),
    "small/weights": weights(true).bytes,
    "large/weights": weights(false, LARGE).bytes,
  }).map(([name, text]) => [`${name}.gz`, gzipSync(text, { level: 0 })]),
);
SENT["manifest.json"] = Buffer.from(
  JSON.stringify({
    version: "1",
    package: "ours.",
    files: Object.fromEntries(Object.entries(SENT).map(([name, { length }]) => [name, length])),
    models: { small: ["small/weights.gz"], large: ["large/weights.gz"] },
    memory: { small: 1000, large: 4 * LARGE + 1000 },
    beside: {},
  }),
);

// scripts are imported from addresses that Node can import from, too
globalThis.Blob = class extends Blob {
  constructor(parts, options) {
    super(parts, options);
    this.parts = parts;
  }
};
URL.createObjectURL = /** @type {any} */ (
  ({ type, parts }) => `data:${type};base64,${Buffer.from(parts[0]).toString("base64")}`
);
URL.revokeObjectURL = () => {};
const agent = "Mozilla/5.0 (X11) Gecko/2010 Firefox/145.0";
const browser = { userAgent: agent, hardwareConcurrency: 2 };
Object.defineProperty(globalThis, "navigator", { value: browser, configurable: true });
export const threads = [];
Object.assign(globalThis, {
  crossOriginIsolated: true,
  Worker: class {
    constructor(/** @type {URL} */ url, options) {
      assert.deepEqual(options, { type: "module" });
      this.url = url.href;
      threads.push(this);
    }
    postMessage(workerData) {
      const script = `import { workerData } from "node:worker_threads"; globalThis.self = {};
        await import("${this.url}"); self.onmessage({ data: workerData });`;
      this.thread = new Thread(new URL(`data:text/javascript,${encodeURIComponent(script)}`), {
        workerData,
      });
      this.thread.unref();
    }
    terminate() {
      this.ended = true;
      this.thread.terminate();
    }
  },
});

// a port that nobody closes would keep Node from ending
export const { MessageChannel: Channel } = globalThis;
globalThis.MessageChannel = /** @type {any} */ (
  class {
    constructor() {
      const { port1, port2 } = new Channel();
      port1.addEventListener("message", () => port1.close(), { once: true });
      return { port1, port2 };
    }
  }
);

let tabs = 0;

/** A worker. cache: what its browser keeps; jobs: of each job what its turns say. */
export async function tab({
  cache = cacheOf(),
  origin = "http://x",
  jobs = [],
  files = {},
  calls = {},
  sent = SENT,
} = {}) {
  const [did, said, asked, models] = [[], [], [], {}];
  const waits = new Map();
  const fetched = async (url) => {
    const name = String(url).replace(HERE, "");
    asked.push(name);
    return name in sent ? new Response(sent[name]) : new Response("", { status: 404 });
  };
  const py = {
    begin(kind, spec) {
      const turns = jobs.shift();
      did.push(["begin", kind, JSON.parse(spec)]);
      return {
        turn(seconds) {
          did.push(["turn", seconds]);
          const turn = turns.shift();
          return JSON.stringify(typeof turn === "function" ? turn() : turn);
        },
        stop: () => turns.unshift([{ done: true, stopped: "Stopped." }]),
        overdue: () => JSON.stringify([{ done: true, error: "Overdue." }]),
        destroy: () => did.push(["destroy", kind]),
      };
    },
    add: (name, model) => (models[name] = model),
    call: (name, given) => JSON.stringify(calls[name](...JSON.parse(given))),
    document: (url) => calls[url],
    open(name, read) {
      did.push(["open", name, Buffer.from(read(2, 3)).toString()]);
      return JSON.stringify(files[name].facts);
    },
    opened: (name) => files[name].packed(),
    close: (name) => did.push(["close", name]),
  };
  let buffer;
  globalThis.caches = /** @type {any} */ ({
    open: async (name) => (assert.equal(name, CACHE), cache),
  });
  globalThis.fetch = fetched;
  globalThis.python = async (options) => {
    const own = await globalThis.self.fetch(`${options.indexURL}pyodide.asm.wasm`);
    assert.deepEqual(
      [await own.text(), own.headers.get("Content-Type"), options.lockFileContents],
      ["wasm", "application/wasm", "locked"],
    );
    assert.equal(
      (await globalThis.self.fetch(`${HERE}elsewhere`)).status,
      404,
      "a model may be on its way",
    );
    did.push([options.createPyodideModule, options._loadSnapshot?.byteLength]);
    if (options._loadSnapshot?.byteLength === 1) throw new Error("It does not fit.");
    return {
      version: "314",
      FS: {
        mkdirTree: (path) => did.push(["mkdir", path]),
        writeFile: (...file) => did.push(file),
      },
      runPython: (text) => did.push(["run", text]),
      setInterruptBuffer: (given) => (buffer = given),
      makeMemorySnapshot: () => new Uint8Array(5),
      pyimport: (name) => ({
        Tab: (machine, stepped) =>
          Object.assign(py, { name, machine: JSON.parse(machine), stepped }),
      }),
    };
  };
  const self = /** @type {any} */ ({
    origin,
    fetch: fetched,
    postMessage(message) {
      said.push(message);
      const isLast =
        message.kind !== "loading" && !(message.kind === "delta" && !message.delta.done);
      if (isLast) waits.get(message.id)?.(message);
    },
    FileReaderSync: class {
      readAsArrayBuffer(file) {
        if (file.error) throw file.error;
        return file.buffer;
      }
    },
  });
  globalThis.self = self;
  await import(`${HERE}worker.js?${(tabs += 1)}`);
  let last = 0;
  const ask = (message) => {
    const id = (last += 1);
    const answer = new Promise((done) => waits.set(id, done));
    self.onmessage({ data: { id, ...message } });
    return answer.then(({ id: of, ...more }) => (assert.equal(of, id), more));
  };
  return { ask, did, said, asked, models, py, cache, self, interrupt: () => buffer[0] };
}
