// What is said of a run as a whole, and how a request of one's own went.

import assert from "node:assert/strict";
import { test } from "node:test";

import { howItWent, numWritten, whereabouts } from "../../assets/player/live/whereabouts.js";
import { speak } from "../../assets/player/parts/speech.js";
import { factsOf, limitsOf, notesOf, sourceOf } from "../../assets/player/watch/facts.js";

/** A run whose header says so much. */
const of = (header, more = {}) => ({
  header,
  complete: true,
  goesOn: false,
  numLanes: 3,
  numBlocks: 0,
  blockSize: 16,
  events: [],
  ...more,
});
const facts = (header, more) => Object.fromEntries(factsOf(of(header, more)));

test("a model's size has three digits, in millions or billions, or is counted", () => {
  const size = (parameters) => facts({ model: { name: "m", parameters } }).Model;
  assert.equal(size(8_030_261_248), "m, 8.03 B parameters");
  assert.equal(size(1_000_000_000), "m, 1.00 B parameters");
  assert.equal(size(134_515_008), "m, 135 M parameters");
  assert.equal(size(12_345), "m, 12,345 parameters");
  assert.equal(size(0), "m");
});

test("threads are of a processor's run", () => {
  const device = (name) => facts({ device: name, device_name: "a card", threads: 2 }).Device;
  assert.equal(device("cpu"), "CPU, a card, 2 threads");
  assert.equal(device("cuda:0"), "CUDA:0, a card");
  assert.equal(device("not recorded"), "not recorded");
  assert.equal(facts({}).Device, undefined);
});

test("what nothing proves of a run from a file is named, and of no other run", () => {
  const trust = (source, brought) => facts({ source, brought })["Taken on trust"];
  const said =
    /^everything said of it, such as its decisions, .* may have invented it; the command/;
  assert.match(trust("uploaded"), said);
  for (const source of ["recorded", "live", "simulated"]) {
    assert.match(trust(source, "uploaded"), said);
    assert.equal(trust(source), undefined);
    assert.equal(trust(source, "recorded"), undefined);
  }
  // an engine that is followed may write anything; the server's own is no stranger
  const followed = (engine) => facts({ source: "recorded", engine }, { goesOn: true });
  assert.match(followed({ name: "vLLM", version: "1" })["Taken on trust"], said);
  assert.equal(followed(undefined)["Taken on trust"], undefined);
  assert.equal(
    facts({ source: "recorded", engine: { name: "vLLM" } })["Taken on trust"],
    undefined,
  );
});

test("times of a data sheet are told with what is assumed, or not at all", () => {
  const sheet = {
    accelerator: { title: "Card" },
    model: { title: "Model" },
    reached: 0.5,
    overhead_s: 0.002,
    memory_share: 0.9,
  };
  const told = facts({ cost: sheet })["Cost model"];
  assert.match(told, /data sheet of Card and the config of Model; assumed: 50 % of each peak/);
  assert.match(told, /each pass takes 2\.00 ms besides, 90 % of memory may be used$/);
  assert.equal(facts({ cost: { ...sheet, reached: null } })["Cost model"], undefined);
  const error = { median: 0.05, p90: 0.2, total: 0.01 };
  const fit = facts({ cost: { about: { steps: 1234, engine: "vLLM" }, error } })["Cost model"];
  assert.match(
    fit,
    /^fitted to 1,234 measured steps of vLLM; .* off by 5 % \(median\), by 20 % for/,
  );
  speak({ name: "de", words: {} });
  const german = facts({ cost: { about: { steps: 1234 }, error } })["Cost model"];
  speak(null);
  assert.match(german, /^fitted to 1\.234 measured/);
});

test("where a run is from, whether it ended, and what was odd in it", () => {
  assert.equal(sourceOf(of({ source: "live" }, { goesOn: true })), "Live run");
  assert.equal(
    sourceOf(of({ source: "live", versions: { pyodide: "1" } })),
    "Run in a browser tab",
  );
  assert.equal(sourceOf(of({ source: "live" })), "Run by the server");
  assert.equal(sourceOf(of({ source: "unheard of" })), "Recorded");
  assert.equal(
    facts({ created: "2026-11-29T10:00" }, { complete: false }).Recorded,
    "2026-11-29, stopped before its end",
  );
  const events = [{ step: 3 }, { step: 5, warnings: ["odd"] }, { step: 7, warnings: ["odd"] }];
  assert.match(facts({}, { events }).Warnings, /^2 steps are against .* first step 5$/);
  assert.deepEqual(notesOf({ notes: ["a", "", 5, "b"] }), ["a", "b"]);
});

test("limits are those that the policy heeds", () => {
  const config = { max_num_batched_tokens: 24, chunked_prefill: false, prefix_caching: true };
  const limits = (batching) =>
    limitsOf(of({ policy: "p", config, batching }, { numBlocks: 9 })).map(([words]) => words);
  const blocks = "9 blocks of 16";
  const lanes = "3 [lane|lanes]";
  assert.deepEqual(limits({}), ["p", lanes, "budget 24", "whole prompts", blocks, "prefix cache"]);
  assert.deepEqual(limits({ token_budget: false }), ["p", lanes, blocks, "prefix cache"]);
});

test("no more of an answer is counted than is drawn, until it has ended", () => {
  const run = { length: 4, request: (id) => (id === "a" ? { id } : null), numGenerated: () => 2 };
  assert.equal(numWritten(run, { id: "a", ends: [1, 2, 3] }), 2);
  assert.equal(numWritten(run, { id: "a", ends: [1] }), 1);
  assert.equal(numWritten(run, { id: "b", ends: [1] }), 0);
  assert.equal(numWritten(run, { id: "a", ends: [1, 2, 3], ended: {} }), 3);
});

test("how a request went, whoever it was", () => {
  const went = { waited_s: 0, tokens: 1, steps: 2, others: 1 };
  assert.equal(howItWent(went), "1 token in 2 steps with 1 other · waited 0 ms");
  assert.equal(howItWent({ ...went, waited_s: null, others: 0 }), "1 token in 2 steps, alone");
  assert.equal(whereabouts(null, { id: "a", ended: { queue_s: null } }), "Done.");
  assert.equal(whereabouts(null, { id: "a", ended: { finish_reason: "cancelled" } }), "Cancelled.");
  assert.equal(whereabouts(null, { id: "a" }), "On its way.");
  const failed = { id: "a", ended: { error: "It failed.", finish_reason: "cancelled" } };
  assert.equal(whereabouts(null, failed), "It failed.");
  assert.equal(whereabouts(null, { ...failed, lost: "It is lost." }), "It is lost.");
  assert.equal(whereabouts(null, { id: "a", ends: [1, 2] }), "2 tokens so far.");
});

test("another engine is named with its version, and its rank where it has several", () => {
  const named = (more) => facts({ engine: { name: "vLLM", version: "0.11", ...more } }).Engine;
  assert.equal(named({ ranks: 1, rank: 0 }), "vLLM 0.11");
  assert.equal(named({ ranks: 2, rank: 1 }), "vLLM 0.11, rank 1 of 2");
  assert.equal(named({ scheduler: "v1", async: true }), "vLLM 0.11, v1, asynchronous");
});

test("each limit has vLLM's name and the glossary's word", () => {
  const config = {
    policy: "p",
    max_num_seqs: 3,
    max_num_batched_tokens: 2048,
    chunked_prefill: true,
  };
  const limits = limitsOf(of({ policy: "p", config }, { numBlocks: 1000 }));
  assert.deepEqual(limits, [
    ["p", "policy: p"],
    ["3 [lane|lanes]", "max_num_seqs = 3", "lane"],
    ["budget 2,048", "max_num_batched_tokens = 2048", "token budget"],
    ["chunked", "enable_chunked_prefill = True", "chunk"],
    ["1,000 blocks of 16", "num_gpu_blocks = 1000, block_size = 16", "block"],
  ]);
});
