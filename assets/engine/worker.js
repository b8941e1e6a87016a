// The worker in which the tab's engine runs: Python schedules, `model.js` computes. Each request of the page is answered with its `id`.
//
//   {id, do: "load", model, agreed, fresh, file}  loading {what, done, total} …, ready {facts}; model: one of this engine's, or none; agreed: the
//                                      visitor wants it, however large; fresh: first delete what is cached; file: the visitor's own file of the model
//   {id, do: "open", model, file}      answer {value}: what a form says about a GGUF file, which gets this name; the engine must be ready
//   {id, do: "call", name, args}       answer {value}: see `visualizer.browser.tab.Tab`
//   {id, do: "begin", kind, spec, limit}  delta {delta} … until one is `done`; limit: ms that Python may compute at a time
//   {id, do: "cancel", of}             ends the job that was begun with that id
//   {id, do: "leave", model}           ends the download of a model that nobody waits for; what has arrived is kept
//   {id, do: "kept", model}            answer {value}: how many bytes of its file, or of pieces of it, this browser has cached
//   {id, do: "remove", model}          answer {value: 0}, once these bytes are deleted, or the model of a visitor's file is closed
//
// or failed {sentence, lasting, more}; more: {all} where no model can be had, or {size, arrived, kept} of a model that is too large to be fetched without consent. One job computes at a time and the others wait; calls are answered between its turns.

import { isShared } from "./crew.js";
import { Files, LARGE, Refused, THREADS, interpreter, obstacle, roomFor } from "./loading.js";
import { Model } from "./model.js";

const BASE = new URL("./", import.meta.url).href;
const TURN = 10; // ms between two looks at new messages
const SAID = 50; // ms between two messages about loading
// ms between the first two interrupts of Python; later on, every check interrupts it
const AGAIN = 250;
const HEARD = 500; // ms between two "alive" messages of a job with a time limit
const ENLISTED = 3000; // ms to wait for a model's threads to start
/** @type {Map<string, Worker[]>} a model's other threads, by its name */
const crews = new Map();

/** @type {Foreign} */ let python;
/** @type {Foreign} the `Tab` of visualizer/browser/tab.py */ let tab;
/** @type {Promise<boolean> | undefined} */ let begun;
/** @type {Map<string, Promise<Model>>} */ const models = new Map();
/** @type {Map<number, Foreign>} jobs by the id of their request */ const jobs = new Map();
let last = Promise.resolve();
let allowed = Infinity; // ms of Python per turn
let deadline = Infinity;
let told = 0; // how many interrupts there have been since the deadline was set
let alive = 0;
let progress = (/** @type {object} */ _) => {};
const files = new Files(BASE, (now) => progress(now));

const say = (/** @type {Json} */ message) => self.postMessage(message);

/** The interpreter reads this now and then: 2 means that its time is over, see time_limit.py. */
const interrupt = {
  get 0() {
    const over = performance.now() > deadline;
    if (over && told < 2) {
      told += 1;
      deadline = performance.now() + AGAIN;
    }
    return over ? 2 : 0;
  },
  set 0(_) {},
};

function limited(/** @type {number} */ ms) {
  told = 0;
  allowed = ms;
  deadline = performance.now() + ms;
}

/** In a sandbox, known by its opaque origin, each step has its own time, and the page is told. */
const stepped =
  self.origin === "null"
    ? () => {
        limited(allowed);
        if (performance.now() - alive < HEARD) return;
        alive = performance.now();
        say({ kind: "alive" });
      }
    : undefined;

/** @type {Set<string>} names under which visitors' own files were opened */
const own = new Set();

/** @param {string} model */
const weightsOf = (model) => `${model}/weights`;

/** Wait until pending messages have been handled. */
const turn = () =>
  new Promise((done) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  });

/** A browser's name and version, from its user agent. @param {string} agent */
export function browserOf(agent) {
  // Edge and Opera begin with Chrome's name, Android's WebView with Version
  const names = [/(Firefox|Edg|OPR)\/(\d+)/, /(Chrome)\/(\d+)/, /(Version)\/(\d+)/];
  const [, name, version] = names.map((found) => found.exec(agent)).find(Boolean) || [];
  /** @type {Record<string, string>} */
  const known = { Chrome: "Chromium", Edg: "Edge", OPR: "Opera", Version: "Safari" };
  return name ? `${known[name] || name} ${version}` : "a browser";
}

/** The machine that computes, for a trace's header. */
const machine = () => ({
  device_name: `${browserOf(navigator.userAgent)}, WebAssembly`,
  versions: { pyodide: python.version },
});

async function start(/** @type {Files} */ files) {
  const sources = files.get(["sources.json"]);
  const { package: ours } = await files.manifest();
  const texts = (await sources).get("sources.json");
  const found = await interpreter(files, (started, restored) => {
    write(started, texts);
    started.runPython(
      restored
        ? "import random; random.seed()"
        : `import sys; sys.path.insert(0, "/engine"); import ${ours}visualizer.browser.tab`,
    );
  });
  python = found.python;
  python.setInterruptBuffer(interrupt);
  tab = python.pyimport(`${ours}visualizer.browser.tab`).Tab(JSON.stringify(machine()), stepped);
  return found.restored;
}

/** Write modules to where Python imports them from. */
function write(/** @type {Foreign} */ { FS }, /** @type {ArrayBuffer | undefined} */ texts) {
  const modules = JSON.parse(new TextDecoder().decode(texts));
  for (const [path, text] of Object.entries(modules)) {
    FS.mkdirTree(`/engine/${path.replace(/[^/]*$/, "")}`);
    FS.writeFile(`/engine/${path}`, /** @type {string} */ (text));
  }
}

/**
 * Allocate memory for a model, after checking that it may be fetched.
 * @param {Files} files @param {string} name @param {boolean} agreed
 */
async function admitted(files, name, agreed) {
  const { models: known, memory, files: sizes } = await files.manifest();
  if (!Object.hasOwn(known, name))
    throw new Refused("The engine in this tab does not have this model.", true);
  const room = roomFor(memory[name]);
  const weights = weightsOf(name);
  const size = sizes[`${weights}.gz`];
  if (size > LARGE && !agreed && !(await files.has(weights))) {
    const about = { size, arrived: await files.amount(weights), kept: files.keeps };
    throw new Refused("The model is not in this browser yet.", false, about);
  }
  return room;
}

/** @param {Files} files @param {string} name @param {WebAssembly.Memory} room */
async function model(files, name, room) {
  const kernels = await kernelsFor(files, room);
  const { files: sizes, memory } = await files.manifest();
  const weights = weightsOf(name);
  const isLarge = sizes[`${weights}.gz`] > LARGE;
  const bytes = isLarge ? null : (await files.get([weights])).get(weights);
  const made = bytes
    ? Model.of(bytes, kernels, room)
    : await placed(files, weights, memory[name], kernels, room);
  await Promise.all([begun, enlist(name, made)]);
  tab.add(name, made);
  return made;
}

/**
 * A large model, stored piece by piece as its file arrives. @param {Files} files
 * @param {string} weights its file @param {number} size @param {WebAssembly.Module} kernels
 * @param {WebAssembly.Memory} room
 */
async function placed(files, weights, size, kernels, room) {
  /** @type {Model | undefined} */
  let made;
  let head = new Uint8Array();
  await files.pass(weights, (bytes) => {
    if (made) return made.place(bytes);
    const before = head;
    head = new Uint8Array(before.length + bytes.length);
    head.set(before);
    head.set(bytes, before.length);
    made = Model.begun(head, size, kernels, room);
  });
  return /** @type {Model} */ (made);
}

/** @param {Files} files @param {WebAssembly.Memory} room */
async function kernelsFor(files, room) {
  const name = isShared(room) ? "shared.wasm" : "kernels.wasm";
  return WebAssembly.compile(/** @type {ArrayBuffer} */ ((await files.get([name])).get(name)));
}

/**
 * Start threads for a model whose memory they can share. They are waited for, because a trace's
 * header counts them, but not for long; if some do not come, the others are enough.
 * @param {string} name @param {Model} made
 */
async function enlist(name, made) {
  if (!isShared(made.memory)) return;
  const crew = Array.from({ length: THREADS - 1 }, () => {
    const thread = new Worker(new URL("thread.js", BASE), { type: "module" });
    made.enlist((told) => thread.postMessage(told));
    return thread;
  });
  crews.set(name, crew);
  const until = performance.now() + ENLISTED;
  while (made.threads < THREADS && performance.now() < until)
    await new Promise((done) => setTimeout(done, 10));
}

/**
 * What a form says about a visitor's own file, after checking that it can be computed here. The
 * file is read piece by piece and never leaves this tab. @param {string} name @param {File} file
 */
function look(name, file) {
  close(name);
  const reader = new /** @type {Foreign} */ (self).FileReaderSync();
  const read = (/** @type {number} */ at, /** @type {number} */ size) =>
    new Uint8Array(reader.readAsArrayBuffer(file.slice(at, at + size)));
  const said = JSON.parse(tab.open(name, read));
  if (said.error) throw new Refused(said.error, true);
  roomFor(said.weights);
  own.add(name);
  return said;
}

/** @param {string} name */
function close(name) {
  if (!own.delete(name)) return;
  models.delete(name);
  crews.get(name)?.forEach((thread) => thread.terminate());
  crews.delete(name);
  tab.close(name);
}

/**
 * The model of a visitor's own file. Only one is kept at a time, because such models are large.
 * @param {Files} files @param {string} id @param {string} name @param {File} file
 */
async function ownModel(files, id, name, file) {
  await begun;
  for (const other of own) if (other !== name) close(other);
  try {
    if (!own.has(name)) look(name, file);
    const packed = tab.opened(name);
    if (packed.chat_text) write(python, (await files.get(["jinja.json"])).get("jinja.json"));
    const room = roomFor(packed.size);
    const kernels = await kernelsFor(files, room);
    const header = packed.header.toJs({ dict_converter: Object.fromEntries });
    const made = new Model(header, packed.size, kernels, room);
    await enlist(name, made);
    let done = 0;
    for (const piece of packed) {
      const bytes = piece.getBuffer("u8");
      made.place(bytes.data);
      done += bytes.data.length;
      bytes.release();
      piece.destroy();
      say({ kind: "loading", id, what: weightsOf(name), reads: true, done, total: packed.size });
    }
    tab.add(name, made);
    return made;
  } catch (/** @type {Foreign} */ error) {
    close(name);
    throw ofFile(error);
  }
}

/** The error to show where a visitor's file may have caused it. */
function ofFile(/** @type {Json} */ error) {
  const isLost = error.type === "BadWeights" || /Not(Readable|Found)Error/.test(String(error));
  return isLost ? new Refused(UNREAD, true) : error;
}
const UNREAD = "The file of this model has changed or can no longer be read: choose it again.";

async function load(
  /** @type {Json} */ { id, model: name, agreed = false, fresh = false, file = null },
) {
  const obstructed = obstacle();
  if (obstructed) throw new Refused(obstructed, true, { all: true });
  let /** @type {Json} */ state, later;
  progress = (now) => {
    state = now;
    later ??= setTimeout(() => {
      later = undefined;
      say({ kind: "loading", id, ...state });
    }, SAID);
  };
  files.begin();
  if (fresh) await files.forget(true);
  else if (!begun) files.forget(false);
  const room = name && !file && !models.has(name) ? await admitted(files, name, agreed) : null;
  if (!begun) begun = start(files);
  if (file && !models.has(name)) models.set(name, ownModel(files, id, name, file));
  if (room && !models.has(name)) models.set(name, model(files, name, room));
  try {
    const [restored] = await Promise.all([begun, models.get(name)]);
    say({ kind: "ready", id, restored, fetched: files.fetched });
  } catch (/** @type {Foreign} */ error) {
    if (!python) begun = undefined; // the next request starts again …
    if (!(error instanceof Refused)) await files.forget(true); // … with files that are fetched anew
    models.delete(name);
    throw error;
  }
}

async function run(/** @type {Json} */ { id, kind, spec, limit }) {
  if (kind === "policy" && !stepped)
    throw new Refused("A visitor's code runs in the sandbox alone.", true);
  const job = tab.begin(kind, JSON.stringify(spec));
  jobs.set(id, job);
  queue();
  const before = last;
  let left = () => {};
  last = new Promise((done) => {
    left = () => done(undefined);
  });
  try {
    await before;
    for (let done = false; !done; await turn()) {
      limited(limit ?? Infinity);
      const deltas = JSON.parse(taken(job));
      limited(Infinity);
      for (const delta of deltas) {
        say({ kind: "delta", id, delta });
        done ||= Boolean(delta.done);
      }
    }
  } finally {
    limited(Infinity);
    jobs.delete(id);
    queue();
    job.destroy();
    left();
  }
}

function queue() {
  for (const [ahead, id] of [...jobs.keys()].entries())
    if (ahead) say({ kind: "delta", id, delta: { progress: { ahead } } });
}

/** Take a turn of a job. Code that catches other interrupts is ended by the last, caught here. */
function taken(/** @type {Json} */ job) {
  try {
    return job.turn(TURN / 1000);
  } catch (/** @type {Foreign} */ error) {
    limited(Infinity);
    if (error.type !== "KeyboardInterrupt") throw error;
    return job.overdue();
  }
}

/** What can be asked, by name; a result other than undefined is sent as the answer. */
const asked = {
  load,
  begin: run,
  call: (/** @type {Json} */ { name, args }) =>
    name === "document"
      ? (tab.document(...args) ?? null)
      : JSON.parse(tab.call(name, JSON.stringify(args))),
  cancel(/** @type {Json} */ { of }) {
    jobs.get(of)?.stop();
  },
  leave: (/** @type {Json} */ { model: name }) => files.leave(weightsOf(name)),
  async kept(/** @type {Json} */ { model: name }) {
    await files.manifest();
    return files.amount(weightsOf(name));
  },
  open(/** @type {Json} */ { model: name, file }) {
    try {
      return look(name, file);
    } catch (/** @type {Foreign} */ error) {
      throw ofFile(error);
    }
  },
  async remove(/** @type {Json} */ { model: name }) {
    await files.manifest();
    if (own.has(name)) close(name);
    else await files.remove(weightsOf(name));
    return 0;
  },
};

const FAILED = "The engine in this tab failed: the browser's console says how.";
const ENDED = "This code ended the Python that ran it.";

self.onmessage = async ({ data }) => {
  try {
    const value = await asked[/** @type {keyof typeof asked} */ (data.do)](data);
    if (value !== undefined) say({ kind: "answer", id: data.id, value });
  } catch (/** @type {Foreign} */ error) {
    const refused =
      error instanceof Refused
        ? error
        : new Refused(stepped && data.do === "begin" ? ENDED : FAILED);
    if (refused !== error) console.error(error);
    const { message, lasting, more } = refused;
    say({ kind: "failed", id: data.id, sentence: message, lasting, more });
  }
};
