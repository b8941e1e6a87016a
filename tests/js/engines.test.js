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
