// Brings the parts of the tab's engine to where it runs: files, fetched with progress and cached in
// this browser, and the Python interpreter, started from these files or restored from a snapshot of
// its memory. If a browser keeps nothing, every start is like the first.

import { Download, isPacked, stored } from "./download.js";

const KEPT = "inflight-engine"; // the cache's name in `caches`
const SNAPSHOT = "snapshot";
export const LARGE = 2e7; // bytes; a larger file is fetched only with consent, and kept in pieces
const MOST = 1.75 * 2 ** 30; // bytes of a model at most: the kernels' addresses end at 2 GiB
const BESIDE = 2 ** 30; // bytes that the browser and its machine need for themselves
const GROWTH = 2 ** 29; // bytes by which shared memory may grow: K, V and a pass's activations
/** Threads for a large model's passes: more than one where the page may share memory. */
export const THREADS = Math.min(
  4,
  globalThis.crossOriginIsolated ? navigator.hardwareConcurrency : 1,
);
const INTERPRETER = [
  "pyodide.mjs",
  "pyodide.asm.mjs",
  "pyodide.asm.wasm",
  "python_stdlib.zip",
  "pyodide-lock.json",
];
/** A WebAssembly module: one function with one SIMD instruction. */
const SIMD = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15,
  253, 98, 11,
]);
const INDEX = "https://engine.invalid/"; // the address at which Pyodide believes its files to be
/** @type {Record<string, string>} */
const TYPES = { mjs: "text/javascript", wasm: "application/wasm", json: "application/json" };

/**
 * Why there is no engine in this tab, as one sentence for the visitor. lasting: trying again does
 * not help. more: details for the page; its `all` means that no model can be had.
 */
export class Refused extends Error {
  constructor(/** @type {string} */ sentence, lasting = false, more = {}) {
    super(sentence);
    this.lasting = lasting;
    this.more = more;
  }
}

/** Why this browser cannot run the engine, or null if it can. */
export function obstacle() {
  const able =
    typeof WebAssembly !== "undefined" &&
    typeof DecompressionStream !== "undefined" &&
    WebAssembly.validate(SIMD);
  return able
    ? null
    : "This browser cannot run the engine: WebAssembly with SIMD is missing or turned off.";
}

/**
 * Allocate memory for a model before any of its file is fetched. There must be room for much else
 * beside the model. @param {number} bytes
 */
export function roomFor(bytes) {
  const { deviceMemory = Infinity } =
    /** @type {{deviceMemory?: number}} GiB, rounded, in browsers that tell it */ (navigator);
  const initial = 32 + Math.ceil(bytes / 65536);
  try {
    if (bytes > MOST || deviceMemory * 2 ** 30 < 4 * bytes + BESIDE) throw new RangeError("of all");
    if (bytes < LARGE || THREADS < 2) return new WebAssembly.Memory({ initial });
    const maximum = Math.min(initial + GROWTH / 65536, 32768);
    return new WebAssembly.Memory({ initial, maximum, shared: true });
  } catch {
    throw new Refused(
      `This browser has too little memory for the model: ${Math.ceil(bytes / 1e6)} MB.`,
      true,
    );
  }
}

/** The engine's files at one address, which names their version. */
export class Files {
  /**
   * @param {string} base
   * @param {(progress: {what: string, done: number, total: number, kept: boolean}) => void} progress called with the file that is being fetched, the
   *   arrived bytes of all requested files, their sum, and whether this browser keeps them
   */
  constructor(base, progress = () => {}) {
    this.base = base;
    this.progress = progress;
    /** @type {Record<string, number>} */
    this.sizes = {}; // packed bytes of the requested files, by name
    /** @type {Record<string, number>} */
    this.arrived = {}; // bytes that have arrived, by name
    this.keeps = true;
    /** @type {Record<string, string>} */
    this.beside = {};
    /** @type {Promise<Json> | null} */
    this._manifest = null; // where files with a version of their own are, by name
    /** @type {Map<string, Download>} */ this.going = new Map(); // downloads by file name
    this.fetched = 0; // bytes from the network, as sent
  }

  /**
   * What the server has: {version, package, files: {name: bytes}, models: {name: [files]}, memory:
   * {model: bytes}, beside: {file: its place}}.
   */
  async manifest() {
    this._manifest ??= this._told();
    this._manifest.catch(() => {
      this._manifest = null;
    });
    return this._manifest;
  }

  async _told() {
    this.keeps = Boolean(await opened());
    const bytes = await this._bytes("manifest.json");
    try {
      const manifest = JSON.parse(new TextDecoder().decode(bytes));
      this.beside = manifest.beside;
      return manifest;
    } catch {
      throw new Refused(BROKEN);
    }
  }

  /**
   * Files by their names without `.gz`, each as its unpacked bytes. @param {string[]} names
   * @returns {Promise<Map<string, ArrayBuffer>>}
   */
  async get(names) {
    const { files } = await this.manifest();
    for (const name of names) this.sizes[name] = files[`${name}.gz`] || 0;
    this._tell();
    const found = await Promise.all(names.map((name) => this._bytes(name, this.sizes[name])));
    return new Map(names.map((name, n) => [name, found[n]]));
  }

  /**
   * Pass a large file on, unpacked, piece by piece: from this browser's cache, or from the network
   * while it is being cached, so that the whole file is never in memory.
   * @param {string} name without `.gz` @param {(bytes: Uint8Array) => void} take
   */
  async pass(name, take) {
    const { files, memory } = await this.manifest();
    const size = (this.sizes[name] = files[`${name}.gz`]);
    this._tell();
    const kept = await this._kept(name);
    if (kept) await drain(/** @type {ReadableStream} */ (kept.body), take);
    else
      await this._fetched(name, size, async (stream) => {
        const { readable, writable } = new TransformStream();
        let keeps = true;
        const keeping = this._keep(name, readable, memory[name.split("/")[0]]).then(() => {
          keeps = false; // done, or no room: then it is fetched again next time
        });
        const writer = writable.getWriter();
        writer.closed.catch(() => {});
        try {
          await drain(stream, async (bytes) => {
            take(bytes);
            // unread bytes would pile up
            if (keeps) await Promise.race([writer.write(bytes), keeping]).catch(() => {});
          });
          await Promise.race([writer.close(), keeping]).catch(() => {});
          await keeping;
        } catch (error) {
          writer.abort(error).catch(() => {});
          throw error;
        }
      });
    this.arrived[name] = size;
    this._tell();
  }

  /** Whether a file is in this browser's cache. @param {string} name */
  async has(name) {
    return Boolean(await this._kept(name));
  }

  /** Bytes of a file, or of pieces of it, in this browser's cache. @param {string} name */
  async amount(name) {
    const cache = await opened();
    const sizes = (await this._addresses(name)).map(async (url) => {
      const kept = /** @type {Response} */ (await cache?.match(url));
      return Number(kept.headers.get("Content-Length")) || (await kept.blob()).size;
    });
    return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
  }

  /** Delete a file and its pieces from this browser's cache. @param {string} name */
  async remove(name) {
    const cache = await opened();
    for (const url of await this._addresses(name)) await cache?.delete(url);
  }

  /** Abort the download of a file. @param {string} name */
  leave(name) {
    this.going.get(name)?.stop.abort();
  }

  /** The addresses under which a file and its pieces are cached. @param {string} name */
  async _addresses(name) {
    const kept = (await (await opened())?.keys().catch(() => [])) || [];
    return kept.map(({ url }) => url).filter((url) => url.startsWith(this._place(name)));
  }

  /** The cached snapshot of the interpreter's memory, or undefined. */
  async snapshot() {
    return (await this._kept(SNAPSHOT))?.arrayBuffer();
  }

  async keepSnapshot(/** @type {Json} */ bytes) {
    await this._keep(SNAPSHOT, bytes, bytes.byteLength);
  }

  async forgetSnapshot() {
    await (await opened())?.delete(this.base + SNAPSHOT).catch(() => {});
  }

  /**
   * Delete all cached files, or only those of other versions; files with a version of their own
   * stay.
   * @param {boolean} all
   */
  async forget(all) {
    const cache = await opened();
    const manifest = await this.manifest().catch(() => null);
    if (!manifest && !all) return;
    const stays = Object.keys(manifest?.beside ?? {}).map((name) => this._place(name));
    for (const { url } of (await cache?.keys().catch(() => [])) || [])
      if (!stays.some((place) => url.startsWith(place)) && (all || !url.startsWith(this.base)))
        await cache?.delete(url).catch(() => {});
  }

  /** The address under which a file is cached. @param {string} name */
  _place(name) {
    return new URL(this.beside[name] ?? name, this.base).href;
  }

  async _bytes(/** @type {string} */ name, size = 0) {
    let bytes = await (await this._kept(name))?.arrayBuffer();
    if (!bytes) {
      bytes = await this._fetched(name, size, (stream) => new Response(stream).arrayBuffer());
      this._keep(name, bytes, bytes.byteLength);
    }
    this.arrived[name] = size;
    this._tell();
    return bytes;
  }

  /** Start counting the progress of a new load, unless one is going on. */
  begin() {
    if (!this._what) [this.sizes, this.arrived] = [{}, {}];
  }

  /** The name of the file that is being fetched, or "". */
  get _what() {
    const names = Object.keys(this.sizes);
    return names.find((name) => (this.arrived[name] || 0) < this.sizes[name]) || "";
  }

  _tell() {
    const sum = (/** @type {Json} */ of) =>
      Object.keys(this.sizes).reduce((all, name) => all + (of[name] || 0), 0);
    const [done, total] = [sum(this.arrived), sum(this.sizes)];
    this.progress({ what: this._what, done, total, kept: this.keeps });
  }

  /**
   * Fetch a file; a large one resumes where its last download ended. A file with a size is packed.
   * @template T @param {string} name @param {number} size
   * @param {(stream: ReadableStream) => Promise<T>} read what is made of its bytes
   */
  async _fetched(name, size, read) {
    const address = this._place(name) + (size ? ".gz" : "");
    const download = new Download(address, size, size > LARGE ? await opened() : undefined);
    const count = (/** @type {number} */ bytes) => {
      this.arrived[name] = Math.min(this.sizes[name] ?? 0, bytes);
      this._tell();
    };
    this.going.set(name, download);
    const answer = await download.begin();
    if (!answer) throw new Refused(UNREACHED);
    if (!answer.ok) throw new Refused(answer.status === 404 ? GONE : UNREACHED);
    try {
      const made = await read(await unpacked(download, size, count));
      await download.forget(); // the whole file is cached
      return made;
    } catch (error) {
      await download.failed();
      throw error instanceof Refused ? error : new Refused(BROKEN);
    } finally {
      this.fetched += download.fetched;
    }
  }

  async _kept(/** @type {string} */ name) {
    return (await opened())?.match(this._place(name)).catch(() => undefined);
  }

  async _keep(/** @type {string} */ name, /** @type {Json} */ bytes, /** @type {number} */ size) {
    const cache = await opened();
    const whole = stored(bytes, size, TYPES[name.replace(/.*\./, "")]);
    // without room for it the file is fetched again next time
    await cache?.put(this._place(name), whole).catch(() => {});
  }
}

export const UNREACHED = "The engine's files cannot be reached: try again, or load the page again.";
const BROKEN = "The download of the engine broke off: try again.";
const GONE = "The engine's files have changed since this page was opened: load the page again.";

/** The cache; undefined where storage is refused, as in a private window of some browsers. */
async function opened() {
  try {
    return await caches.open(KEPT);
  } catch {
    return undefined;
  }
}

/** Read a stream to its end. @param {ReadableStream} stream @param {(bytes: Uint8Array) => unknown} take */
async function drain(stream, take) {
  const reader = stream.getReader();
  for (let read = await reader.read(); !read.done; read = await reader.read())
    await take(read.value);
}

/**
 * A file as a stream, unpacked here unless its host did that. count: called with the bytes so far.
 * @param {Download} download @param {number} size @param {(bytes: number) => void} count
 */
async function unpacked(download, size, count) {
  const next = async () => {
    const value = await download.next();
    count(download.sum);
    return value;
  };
  const first = await next();
  // an HTML page, which begins with "<", was sent instead of the file
  if (size && (!first || first[0] === 0x3c)) throw new Refused(GONE);
  const packed = first && isPacked(first);
  const stream = new ReadableStream({
    start: (control) => control.enqueue(first),
    pull: async (control) => {
      const value = await next();
      if (value) control.enqueue(value);
      else control.close();
    },
  });
  if (!packed) return stream;
  const whole = new TransformStream({
    flush: () => {
      if (size && download.sum !== size) throw new Refused(BROKEN);
    },
  });
  // unpacking gzip verifies the file's checksum
  return stream.pipeThrough(new DecompressionStream("gzip")).pipeThrough(whole);
}

/**
 * Pyodide, restored from its snapshot if one fits; otherwise it is started, given our code by
 * `prepare`, and its snapshot is kept.
 * @param {Files} files
 * @param {(python: Foreign, restored: boolean) => void} prepare brings our sources into it; only what a
 * full start imports is in the snapshot
 */
export async function interpreter(files, prepare) {
  const found = await files.get(INTERPRETER);
  const snapshot = await files.snapshot();
  if (snapshot) {
    try {
      const python = await start(found, { _loadSnapshot: snapshot });
      prepare(python, true);
      return { python, restored: true };
    } catch {
      await files.forgetSnapshot(); // the snapshot does not fit
    }
  }
  const python = await start(found, { _makeSnapshot: true });
  prepare(python, false);
  try {
    files.keepSnapshot(python.makeMemorySnapshot());
  } catch {
    // making snapshots is experimental: without one the next start takes as long as this one
  }
  return { python, restored: false };
}

async function start(/** @type {Json} */ found, /** @type {Json} */ options) {
  const scripts = ["pyodide.mjs", "pyodide.asm.mjs"].map((name) =>
    URL.createObjectURL(new Blob([found.get(name)], { type: TYPES.mjs })),
  );
  const [{ loadPyodide }, { default: createPyodideModule }] = await Promise.all(
    scripts.map((url) => import(url)),
  );
  for (const url of scripts) URL.revokeObjectURL(url);
  const outside = self.fetch;
  // Pyodide's own requests are answered with the files above; a model may be fetched meanwhile
  self.fetch = async (address, ...more) => {
    const name = String(address).startsWith(INDEX) ? String(address).split("/").at(-1) : "";
    return name
      ? new Response(found.get(name), {
          headers: { "Content-Type": TYPES[name.replace(/.*\./, "")] || "" },
        })
      : outside(address, ...more);
  };
  try {
    const lockFileContents = new TextDecoder().decode(found.get("pyodide-lock.json"));
    return await loadPyodide({
      createPyodideModule,
      lockFileContents,
      indexURL: INDEX,
      ...options,
    });
  } finally {
    self.fetch = outside;
  }
}
