// What the worker of the engine in a tab fetches, keeps, computes, says and refuses.

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { setImmediate as soon } from "node:timers/promises";
import { gunzipSync } from "node:zlib";

// first, because modules of the engine look at the browser as they are loaded
import { Channel, HERE, LARGE, SENT, cacheOf, computes, tab, threads, weights } from "./tabs.js";
import { Crew, SIZE, STACK, isShared } from "../../assets/engine/crew.js";
import { Sandbox } from "../../assets/engine/sandbox.js";
import { documentOf, El, Event } from "./elements.js";

const READY = { kind: "ready", restored: false };
const refused = (sentence, lasting = false, more = {}) => ({
  kind: "failed",
  sentence,
  lasting,
  more,
});
const size = (...names) => names.reduce((sum, name) => sum + SENT[name].length, 0);
const INTERPRETER = ["mjs", "asm.mjs", "asm.wasm"].map((ending) => `pyodide.${ending}.gz`);
const ENGINE = [...INTERPRETER, "python_stdlib.zip.gz", "pyodide-lock.json.gz", "sources.json.gz"];

test("a load says what has arrived, and under which request", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { ask, said } = await tab();
  await ask({ do: "load", model: "small" });
  assert.deepEqual(said.splice(0).length, 1, "no more often than one can see");
  t.mock.timers.tick(50);
  const total = size(...ENGINE, "kernels.wasm.gz", "small/weights.gz");
  const loading = { kind: "loading", id: 1, what: "", done: total, total, kept: true };
  assert.deepEqual(said, [loading]);
});

test("a start fetches and keeps the engine, gives Python our code, and restores it the next time", async () => {
  const cache = cacheOf();
  const first = await tab({ cache });
  const small = [...ENGINE, "kernels.wasm.gz", "small/weights.gz"];
  const fetched = size("manifest.json", ...small);
  assert.deepEqual(await first.ask({ do: "load", model: "small" }), { ...READY, fetched });
  assert.deepEqual(first.asked.toSorted(), ["manifest.json", "elsewhere", ...small].toSorted());
  computes(first.models.small);
  assert.deepEqual(
    [first.py.name, first.py.machine, first.py.stepped],
    [
      "ours.visualizer.browser.tab",
      { device_name: "Firefox 145, WebAssembly", versions: { pyodide: "314" } },
      undefined,
    ],
  );
  const written = [
    ["mkdir", "/engine/visualizer/browser/"],
    ["/engine/visualizer/browser/tab.py", "tab"],
    ["mkdir", "/engine/"],
    ["/engine/top.py", "top"],
  ];
  const imports = `import sys; sys.path.insert(0, "/engine"); import ours.visualizer.browser.tab`;
  assert.deepEqual(first.did, [["made", undefined], ...written, ["run", imports]]);
  assert.deepEqual(await first.ask({ do: "load", model: "small" }), { ...READY, fetched });
  assert.equal(first.did.length, 6, "it is started once");

  const second = await tab({ cache });
  assert.deepEqual(await second.ask({ do: "load" }), { ...READY, restored: true, fetched: 0 });
  assert.deepEqual(second.did, [["made", 5], ...written, ["run", "import random; random.seed()"]]);
  assert.deepEqual(second.asked, ["elsewhere"]);

  const snapshot = [...cache.all.keys()].find((url) => url.endsWith("snapshot"));
  cache.all.set(snapshot, new Response("x"));
  const third = await tab({ cache });
  assert.deepEqual(await third.ask({ do: "load" }), { ...READY, fetched: 0 });
  assert.deepEqual(
    [third.did[0], third.did[1]],
    [
      ["made", 1],
      ["made", undefined],
    ],
  );
  assert.deepEqual(await (await third.ask({ do: "load", fresh: true })).kind, "ready");
  const fourth = await tab({ cache });
  assert.equal(
    (await fourth.ask({ do: "load", fresh: true })).fetched,
    size("manifest.json", ...ENGINE),
  );
});

test("a large model is fetched with consent alone, kept in pieces, and computed by several threads", async (t) => {
  t.mock.method(performance, "now", () => 0); // its threads may take their time
  const cache = cacheOf();
  const { ask, asked, models } = await tab({ cache });
  const bytes = SENT["large/weights.gz"].length;
  assert.deepEqual(
    await ask({ do: "load", model: "large" }),
    refused("The model is not in this browser yet.", false, {
      size: bytes,
      arrived: 0,
      kept: true,
    }),
  );
  assert.ok(!asked.includes("large/weights.gz"));
  assert.equal((await ask({ do: "load", model: "large", agreed: true })).kind, "ready");
  assert.deepEqual([models.large.threads, threads.length], [2, 1]);
  for (let n = 0; n < 20; n += 1) computes(models.large);
  assert.deepEqual(await ask({ do: "kept", model: "large" }), {
    kind: "answer",
    value: 4 * LARGE + 1000,
  });
  const again = await tab({ cache });
  assert.equal((await again.ask({ do: "load", model: "large" })).kind, "ready", "it is here");
  assert.deepEqual(again.asked, ["elsewhere"]);
  computes(again.models.large);
  assert.deepEqual(await again.ask({ do: "remove", model: "large" }), { kind: "answer", value: 0 });
  assert.deepEqual(await again.ask({ do: "kept", model: "large" }), { kind: "answer", value: 0 });
});

const FAILED = "The engine in this tab failed: the browser's console says how.";

test("a model that there is not is refused, and after a failure the engine's files are fetched anew", async (t) => {
  const errors = t.mock.method(console, "error", () => {});
  const cache = cacheOf();
  const { ask, asked } = await tab({ cache });
  assert.deepEqual(
    await ask({ do: "load", model: "toString" }),
    refused("The engine in this tab does not have this model.", true),
  );
  const python = globalThis.python;
  globalThis.python = async () => {
    throw new Error("It broke.");
  };
  assert.deepEqual(await ask({ do: "load" }), refused(FAILED));
  assert.deepEqual([errors.mock.callCount(), cache.all.size], [1, 0]);
  globalThis.python = python;
  asked.length = 0;
  assert.equal((await ask({ do: "load" })).kind, "ready");
  assert.deepEqual(asked.toSorted(), [...ENGINE, "elsewhere"].toSorted());
  const before = [...cache.all.keys()];
  const gone = await tab({ cache, sent: { "manifest.json": SENT["manifest.json"] } });
  const sentence =
    "The engine's files have changed since this page was opened: load the page again.";
  assert.deepEqual(await gone.ask({ do: "load", model: "small" }), refused(sentence));
  assert.ok(before.length > 4 && before.every((url) => cache.all.has(url)), "what is here stays");
  assert.equal(errors.mock.callCount(), 1, "a refusal is no error");
});

test("one job computes at a time, the others hear how many are ahead, and calls are answered between its turns", async () => {
  const [delta, done] = [{ step: 1 }, { done: true }];
  const jobs = [[[delta], [], [done]], [[done]], [[delta], [delta], [done]]];
  const calls = { upload: (...given) => ({ given }), "tab:a": "a document" };
  const { ask, did, said } = await tab({ jobs, calls });
  await ask({ do: "load" });
  [did.length, said.length] = [0, 0];
  const asked = ["run", "compare", "run"].map((kind, n) => ask({ do: "begin", kind, spec: { n } }));
  const called = [
    { name: "upload", args: ["text", ["name"]] },
    { name: "document", args: ["tab:a"] },
    { name: "document", args: ["tab:b"] },
  ].map((call) => ask({ do: "call", ...call }));
  ask({ do: "cancel", of: 4 });
  ask({ do: "cancel", of: 99 });
  const values = [{ given: ["text", ["name"]] }, "a document", null];
  assert.deepEqual(
    await Promise.all(called),
    values.map((value) => ({ kind: "answer", value })),
  );
  await Promise.all(asked);
  for (let n = 0; n < 99 && did.at(-1)[0] !== "destroy"; n += 1) await soon();
  const heard = (of) =>
    said.filter(({ id, kind }) => id === of && kind === "delta").map(({ delta }) => delta);
  const ahead = (n) => ({ progress: { ahead: n } });
  assert.deepEqual(heard(2), [delta, done]);
  assert.deepEqual(heard(3), [ahead(1), ahead(1), done]);
  assert.deepEqual(heard(4), [ahead(2), ahead(1), { done: true, stopped: "Stopped." }]);
  const turn = ["turn", 0.01];
  assert.deepEqual(did, [
    ["begin", "run", { n: 0 }],
    ["begin", "compare", { n: 1 }],
    ["begin", "run", { n: 2 }],
    ...[
      turn,
      turn,
      turn,
      ["destroy", "run"],
      turn,
      ["destroy", "compare"],
      turn,
      ["destroy", "run"],
    ],
  ]);
});

test("a stranger's code runs in the sandbox alone, in which each step has its time", async (t) => {
  t.mock.method(console, "error", () => {});
  const clock = t.mock.method(performance, "now", () => now);
  let now = 10_000;
  const begin = { do: "begin", kind: "policy", spec: {}, limit: 3000 };
  const page = await tab({ jobs: [[[{ done: true }]]] });
  await page.ask({ do: "load" });
  assert.deepEqual(
    await page.ask(begin),
    refused("A visitor's code runs in the sandbox alone.", true),
  );
  const interrupted = Object.assign(new Error(), { type: "KeyboardInterrupt" });
  const raise = (error) => () => {
    throw error;
  };
  const heard = [];
  const after = (ms) => ((now += ms), heard.push(own.interrupt()));
  const timed = () => {
    for (const ms of [3000, 1]) after(ms);
    heard.push("step");
    for (let n = 0; n < 2; n += 1) own.py.stepped();
    for (const ms of [3000, 1, 250, 1, 250, 1, 0]) after(ms);
    return [{ done: true }];
  };
  const jobs = [[timed], [raise(interrupted)], [raise(new Error("SystemExit"))]];
  const own = await tab({ jobs, origin: "null" });
  await own.ask({ do: "load" });
  assert.equal(own.interrupt(), 0, "nothing is limited outside a job");
  assert.deepEqual((await own.ask(begin)).delta, { done: true });
  assert.deepEqual(heard, [0, 2, "step", 0, 2, 0, 2, 0, 2, 2]);
  assert.equal(own.said.filter(({ kind }) => kind === "alive").length, 1);
  now += 10 ** 6;
  assert.equal(own.interrupt(), 0, "and nothing after it");
  assert.deepEqual((await own.ask(begin)).delta, { done: true, error: "Overdue." });
  assert.deepEqual(await own.ask(begin), refused("This code ended the Python that ran it."));
  clock.mock.restore();
});

test("a visitor's own file is read piece by piece, and one is kept at a time", async (t) => {
  t.mock.method(console, "error", () => {});
  const { header, bytes } = weights();
  const numbers = bytes.subarray(-144);
  const free = [];
  const packed =
    (over = {}) =>
    () =>
      Object.assign(
        [0, 1].map((n) => ({
          getBuffer: (type) => ({
            data: numbers.subarray(72 * n, 72 * (n + 1)),
            release: () => free.push(type),
          }),
          destroy: () => free.push("destroyed"),
        })),
        { size: 144, chat_text: null, header: { toJs: () => header }, ...over },
      );
  const files = {
    "a.gguf": { facts: { weights: 144 }, packed: packed() },
    "b.gguf": { facts: { weights: 144 }, packed: packed({ chat_text: "…" }) },
    "bad.gguf": { facts: { error: "It is no model." } },
    "huge.gguf": { facts: { weights: 2e9 } },
  };
  const { ask, did, said, asked, models } = await tab({ files });
  await ask({ do: "load" });
  [did.length, said.length] = [0, 0];
  const file = { slice: (at, to) => ({ buffer: Buffer.from("0123456789").subarray(at, to) }) };
  assert.deepEqual(await ask({ do: "open", model: "a.gguf", file }), {
    kind: "answer",
    value: { weights: 144 },
  });
  assert.deepEqual(
    await ask({ do: "open", model: "bad.gguf", file }),
    refused("It is no model.", true),
  );
  assert.deepEqual(
    await ask({ do: "open", model: "huge.gguf", file }),
    refused("This browser has too little memory for the model: 2000 MB.", true),
  );
  assert.deepEqual(did, [
    ["open", "a.gguf", "234"],
    ["open", "bad.gguf", "234"],
    ["open", "huge.gguf", "234"],
  ]);
  did.length = 0;
  const load = { do: "load", model: "a.gguf", file };
  assert.equal((await ask(load)).kind, "ready");
  computes(models["a.gguf"]);
  const loading = said.filter(({ reads }) => reads);
  const about = { kind: "loading", id: 5, what: "a.gguf/weights", reads: true, total: 144 };
  assert.deepEqual(loading, [
    { ...about, done: 72 },
    { ...about, done: 144 },
  ]);
  assert.deepEqual(free, ["u8", "destroyed", "u8", "destroyed"]);
  assert.deepEqual(did, [], "it is open");
  assert.equal((await ask({ ...load, model: "b.gguf" })).kind, "ready");
  assert.ok(asked.includes("jinja.json.gz"));
  assert.deepEqual(did, [
    ["close", "a.gguf"],
    ["open", "b.gguf", "234"],
    ["mkdir", "/engine/jinja/"],
    ["/engine/jinja/__init__.py", "jinja"],
  ]);
  did.length = 0;
  assert.deepEqual(await ask({ do: "remove", model: "b.gguf" }), { kind: "answer", value: 0 });
  assert.deepEqual(await ask({ do: "remove", model: "b.gguf" }), { kind: "answer", value: 0 });
  assert.deepEqual(did, [["close", "b.gguf"]]);
  const lost = { slice: () => ({ error: new Error("NotReadableError: it has moved.") }) };
  const unread = refused(
    "The file of this model has changed or can no longer be read: choose it again.",
    true,
  );
  assert.deepEqual(await ask({ do: "open", model: "a.gguf", file: lost }), unread);
  assert.deepEqual(await ask({ ...load, file: lost }), unread);
  files["a.gguf"].packed = () => {
    throw Object.assign(new Error(), { type: "BadWeights" });
  };
  assert.deepEqual(await ask(load), unread);
  files["a.gguf"].packed = packed();
  assert.equal((await ask(load)).kind, "ready", "chosen again");
});

/** Wait for a condition, which other threads bring about. */
async function until(/** @type {() => boolean} */ met) {
  for (let n = 0; n < 1e5; n += 1) {
    if (met()) return;
    await soon();
  }
  assert.fail(`It did not come to this: ${met}`);
}

test("each part of an operation is done once, by whichever thread, and the operation ends with its last", async () => {
  const memory = new WebAssembly.Memory({ initial: 32, maximum: 32, shared: true });
  const module = new WebAssembly.Module(gunzipSync(SENT["shared.wasm.gz"]));
  const instance = new WebAssembly.Instance(module, { env: { memory } });
  const [at, x, y, stack, n] = [2 ** 19, 2 ** 20, 2 ** 20 + 2 ** 18, 2 ** 21, 2 ** 14];
  const crew = new Crew(module, instance, memory, at);
  const [sums, ones] = [x, y].map((place) => new Float32Array(memory.buffer, place, n));
  ones.fill(1);
  const same = (sum) => sums.every((value) => value === sum);
  crew.run("add", 99, x, y, n);
  assert.ok(isShared(memory) && crew.threads === 1 && same(1), "alone it does everything itself");
  assert.equal(crew.counts[1], 0);
  for (let t = 0; t < 2; t += 1)
    new Worker(new URL("thread.js", HERE), { type: "module" }).postMessage(
      /** @type {any} */ ({ ...crew.told, stack: stack - t * STACK }),
    );
  await until(() => crew.threads === 3);
  for (let sum = 2; sum <= 200; sum += 1) {
    crew.run("add", 99, x, y, n);
    assert.ok(same(sum));
  }
  assert.equal(crew.counts[1], 12, "four parts for each");
  crew.run("add", 5, x, y, n);
  assert.equal(crew.counts[1], 5, "no more than are of use");
  crew.run("add", 1, x, y, n);
  assert.equal(crew.counts[1], 5, "by itself");
  assert.ok(same(202));
  await until(() => crew.counts[2] === 2); // both sleep
  const [parts, name] = [40, crew.names.indexOf("add")];
  crew.call.set([name, parts, x, y, n]);
  Atomics.store(crew.counts, 1, 0);
  Atomics.store(crew.counts, 0, 4096 + parts);
  Atomics.notify(crew.counts, 0);
  await until(() => crew.counts[1] === parts);
  assert.ok(same(203), "what nobody else takes they do alone");
  await until(() => crew.counts[2] === 2);
  let sum = 203;
  await until(() => {
    crew.run("add", 99, x, y, n);
    sum += 1;
    return crew.counts[2] < 2; // somebody was woken
  });
  assert.ok(same(sum));
  assert.ok(at + SIZE <= x);
  const last = new Float32Array(memory.buffer, at + SIZE, 4);
  assert.deepEqual([...last], [0, 0, 0, 0], "nothing is written behind the call");
});

/** A page in which frames only hear: what is given to one, and its gate. */
function framed() {
  const handed = [];
  const frame = Object.assign(new El("iframe"), {
    contentWindow: { postMessage: (...given) => handed.push(given) },
  });
  globalThis.document = documentOf({ createElement: () => frame, body: new El() });
  return { frame, handed };
}

test("a sandbox is given its model, the interpreter as it was left, and every script that its worker imports", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const cache = cacheOf();
  const page = await tab({ cache });
  await page.ask({ do: "load" });
  const { fetch: sent } = globalThis;
  globalThis.fetch = /** @type {any} */ (
    async (url) =>
      String(url).endsWith(".js") ? new Response(readFileSync(new URL(url))) : sent(url)
  );
  const given = async () => {
    const { frame, handed } = framed();
    const sandbox = Sandbox.of(HERE, "small");
    sandbox.warm();
    for (let n = 0; n < 1e4 && !frame.srcdoc; n += 1) await soon();
    frame.dispatchEvent(new Event("load"));
    sandbox.end();
    return handed[0];
  };
  const [{ files, memory, script }, origin, moved] = await given();
  const scripts = ["worker", "crew", "loading", "model", "download", "sampling"];
  const names = ["manifest.json", "kernels.wasm", "small/weights", "sources.json", "snapshot"];
  const all = [...INTERPRETER, "python_stdlib.zip.gz", "pyodide-lock.json.gz"].map((name) =>
    name.replace(".gz", ""),
  );
  assert.deepEqual(
    Object.keys(files).toSorted(),
    [...scripts.map((name) => `${name}.js`), ...names, ...all].toSorted(),
  );
  assert.deepEqual([origin, memory, moved.length], ["*", 768 * 2 ** 20, 1 + 16]);
  assert.ok(moved.slice(1).every((bytes) => Object.values(files).includes(bytes)));
  const texts = Object.fromEntries(
    ["crew.js", "manifest.json"].map((name) => [name, Buffer.from(files[name]).toString()]),
  );
  assert.deepEqual(texts, {
    "crew.js": readFileSync(new URL("crew.js", HERE), "utf8"),
    "manifest.json": SENT["manifest.json"].toString(),
  });
  assert.match(script, /^\(function bootstrap/);
});

test("a sandbox's gate lets through so much, and what does not start or fails says so", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { frame } = framed();
  let starts = 0;
  const sandbox = new Sandbox(async () => ((starts += 1), {}), "small");
  t.after(() => sandbox.end());
  for (let n = 0; n < 2; n += 1) sandbox.warm();
  assert.equal(starts, 1, "one waits");
  await soon();
  const [, source] = frame.srcdoc.match(/<script>(.*)<\/script>/s);
  const opened = () => {
    const [window, heard, page] = [{}, [], { postMessage: (text) => heard.push(text) }];
    /** @type {any} */ let worker;
    class Own {
      constructor() {
        worker = this;
        this.given = [];
      }
      postMessage(...given) {
        this.given.push(given);
      }
      terminate() {
        heard.push("terminated");
      }
    }
    new Function("window", "Worker", source)(window, Own);
    const files = { "a.js": new ArrayBuffer(1) };
    window.onmessage({ data: { script: "", files, memory: 5 }, ports: [page] });
    assert.equal(window.onmessage, null, "it takes no second order");
    assert.deepEqual(worker.given, [[{ files, memory: 5 }, [files["a.js"]]]]);
    return { page, worker, heard, say: (data) => worker.onmessage({ data }) };
  };
  const ended = (sentence) => [
    "terminated",
    JSON.stringify({ kind: "failed", sentence, ended: true }),
  ];
  const much = ended("This code sent more than the page accepts from a stranger.");
  const last = (say, heard, ...sizes) => {
    for (const size of sizes) say(typeof size === "number" ? "x".repeat(size) : size);
    return heard.splice(0).slice(-2);
  };
  const [a, b, c] = [opened(), opened(), opened()];
  assert.deepEqual(
    last(a.say, a.heard, 8e6 - 1, 8e6).map((x) => x.length),
    [8e6 - 1, 8e6],
  );
  assert.deepEqual(last(a.say, a.heard, 8e6 + 1), much);
  assert.deepEqual(last(c.say, c.heard, /** @type {any} */ ({ length: 1 })), much, "no text");
  const small = Array(6400).fill(1);
  assert.deepEqual(last(b.say, b.heard, ...small), ["x", "x"]);
  b.page.onmessage({ data: { do: "begin" } });
  assert.deepEqual(b.worker.given[1], [{ do: "begin" }]);
  assert.deepEqual(last(b.say, b.heard, ...small), ["x", "x"], "each request has its own");
  assert.deepEqual(last(b.say, b.heard, 1), much);
  const failed = (message) => {
    const { worker, heard } = opened();
    let prevented = 0;
    worker.onerror({ message, preventDefault: () => (prevented += 1) });
    assert.equal(prevented, 1);
    return heard;
  };
  assert.deepEqual(failed("Uncaught x"), ended("The sandbox failed: “x”."));
  const long = `The sandbox failed: “${"y".repeat(200)}”.`;
  assert.deepEqual(failed("y".repeat(201)), ended(long));
  assert.deepEqual(failed(""), ended("The sandbox did not start in this browser."));
});

// the last, because what a sandbox's worker changes stays changed
test("a stranger's job goes through the gate to a worker that has nothing but what it was given, and comes back", async () => {
  const jobs = [[[{ step: 1 }], [{ done: true }]]];
  const { did } = await tab({ jobs, origin: "null" });
  const { fetch: sent } = globalThis;
  const asked = [];
  globalThis.fetch = /** @type {any} */ (
    async (url) => {
      asked.push(String(url).replace(HERE, ""));
      return String(url).endsWith(".js") ? new Response(readFileSync(new URL(url))) : sent(url);
    }
  );
  const { frame } = framed();
  const { MessageChannel: brief } = globalThis; // a port of these hears one message
  globalThis.MessageChannel = Channel;
  const sandbox = Sandbox.of(HERE, "small");
  const deltas = [];
  const running = (async () => {
    for await (const delta of sandbox.run("policy", { x: 1 })) deltas.push(delta);
  })();
  for (let n = 0; n < 1e4 && !frame.srcdoc; n += 1) await soon();
  globalThis.MessageChannel = brief;
  sandbox.warm = () => {}; // it starts no other
  const [, source] = frame.srcdoc.match(/<script>(.*)<\/script>/s);
  const [window, grow] = [/** @type {any} */ ({}), WebAssembly.Memory.prototype.grow];
  /** What its own thread would be: the scope of its script is this process. */
  class Own {
    constructor(/** @type {string} */ url) {
      Object.assign(globalThis, {
        self: globalThis,
        origin: "null",
        postMessage: (data) => /** @type {any} */ (this).onmessage({ data }),
      });
      const [type, text] = url.split(",");
      assert.equal(type, "data:text/javascript;base64");
      (0, eval)(Buffer.from(text, "base64").toString());
    }
    postMessage(data) {
      /** @type {any} */ (globalThis).onmessage({ data });
    }
    terminate() {}
  }
  new Function("window", "Worker", source)(window, Own);
  frame.contentWindow.postMessage = (data, _origin, ports) => window.onmessage({ data, ports });
  asked.length = 0;
  frame.dispatchEvent(new Event("load"));
  await running;
  assert.deepEqual(deltas.slice(-2), [{ step: 1 }, { done: true }]);
  assert.deepEqual(
    deltas.slice(0, -2).filter(({ loading }) => !loading),
    [],
  );
  assert.deepEqual(
    did.filter(([what]) => what === "begin"),
    [["begin", "policy", { x: 1 }]],
  );
  assert.deepEqual(asked, ["elsewhere"], "all else was given");
  const memory = new WebAssembly.Memory({ initial: 1 });
  assert.equal(memory.grow(1), 1);
  assert.throws(() => memory.grow(12287), /The sandbox has no more memory/);
  assert.throws(() => /** @type {any} */ (globalThis).importScripts("x"), TypeError);
  WebAssembly.Memory.prototype.grow = grow;
});
