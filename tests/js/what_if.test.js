import assert from "node:assert/strict";
import test from "node:test";

import { changesOf, partingStep } from "../../assets/player/watch/what_if.js";
import { event, runOf, two } from "./worlds.js";

test("two runs part at the first step that computes something else, whatever it took", () => {
  assert.equal(partingStep(two(), two()), null);
  const slower = two();
  slower.events[1].tEnd += 5;
  assert.equal(partingStep(two(), slower), null);
  const other = two();
  other.events[1].segments[0].length = 9;
  assert.equal(partingStep(two(), other), 1);
  assert.equal(partingStep(runOf([event(0)]), runOf([event(0), event(1)])), 0, "one is the beginning of the other: at its last step");
});

test("only settings that the policy has are offered, and never the same value", () => {
  const config = { policy: "dynamic", max_num_seqs: 1, max_num_batched_tokens: 16, num_blocks: null, chunked_prefill: true };
  const offered = changesOf({ config, knobs: [] }, ["dynamic", "static"]);
  assert.deepEqual(offered.map((c) => c.config), [{ max_num_seqs: 2 }, { policy: "static", prefill_first: false, prefix_caching: false }]);
  const all = changesOf({ config: { ...config, num_blocks: 9 }, knobs: ["max_num_batched_tokens", "chunked_prefill"] }, ["dynamic"]);
  assert.deepEqual(all.map((c) => Object.keys(c.config)[0]), ["max_num_seqs", "max_num_batched_tokens", "max_num_batched_tokens", "num_blocks", "chunked_prefill"]);
});
