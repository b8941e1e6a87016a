import assert from "node:assert/strict";
import { test } from "node:test";

import { Engines } from "../../assets/player/engine/engines.js";

/** @type {Map<string, string>} */
const stored = new Map();
globalThis.localStorage = /** @type {any} */ ({
  getItem: (/** @type {string} */ key) => stored.get(key) ?? null,
  setItem: (/** @type {string} */ key, /** @type {string} */ text) => stored.set(key, text),
});

const SMALL = { model: "shakespeare-bpe" };
const LARGE = { model: "smollm2" };
const OTHER = { model: "org/other" };
const tab = /** @type {any} */ ({ name: "tab" });
const server = /** @type {any} */ ({ name: "server" });
const models = ["shakespeare-bpe", "smollm2"];

test("without a server the tab computes the models that it has", () => {
  const engines = new Engines(tab, null, { models });
  assert.equal(engines.whose("run", SMALL), tab);
  assert.equal(engines.whose("run", LARGE), tab);
  assert.throws(() => engines.whose("run", OTHER), /takes a page with a server/);
  const few = new Engines(tab, null, { models: ["shakespeare-bpe"] });
  assert.throws(() => few.whose("fork", LARGE), /takes a page with a server/);
});

test("where both are a large model is the server's, until its visitor chooses", () => {
  const engines = new Engines(tab, server, { models });
  assert.equal(engines.whose("run", SMALL), tab);
  assert.equal(engines.whose("run", LARGE), server);
  assert.ok(engines.fits(LARGE));
  engines.choose(true);
  assert.equal(engines.whose("run", LARGE), tab);
  assert.equal(engines.whose("run", OTHER), server);
  engines.choose(false);
  assert.equal(engines.whose("run", SMALL), server);
});

test("a model that a browser has no room for is the server's, and the tab keeps the others", async () => {
  const none = Object.assign(new Error("Too little memory."), { lasting: true, more: {} });
  const asked = (name) => ({
    name,
    begin: async (_kind, { model }) => {
      if (name === "tab" && model !== SMALL.model) throw none;
      return `${name} runs ${model}`;
    },
    send: async () => `${name} reads`,
  });
  const [here, home] = /** @type {any} */ ([asked("tab"), asked("server")]);
  const engines = new Engines(here, home, { models });
  engines.choose(true);
  assert.equal(await engines.begin("run", LARGE, ""), "server runs smollm2");
  assert.deepEqual([engines.fits(LARGE), engines.fits(SMALL)], [false, true]);
  assert.equal(await engines.begin("run", SMALL, ""), "tab runs shakespeare-bpe");
  assert.ok(engines.can("export", "tab-1"));
  engines.own["mine.gguf"] = {};
  assert.equal(await engines.send("inflight/datasets?model=mine.gguf", ""), "tab reads");
  await assert.rejects(engines.begin("run", { model: "mine.gguf" }, ""), /Too little/);
  none.more.all = true;
  engines.models = models;
  assert.equal(await engines.begin("run", LARGE, ""), "server runs smollm2");
  assert.equal(engines.tab, null);
});

test("a file of one's own that is not here any more is asked for", () => {
  const engines = new Engines(tab, null, { models });
  const run = () => engines.whose("run", { model: "mine.gguf" });
  assert.throws(run, /mine.gguf is a file on a disk: choose it/);
});

test("a name that every object has is no file of one's own", () => {
  assert.equal(new Engines(tab, null, { models }).fits({ model: "constructor" }), false);
});
