import assert from "node:assert/strict";
import test from "node:test";

import { changesOf } from "../../assets/player/watch/what_if.js";

const config = { policy: "dynamic", max_num_seqs: 1, max_num_batched_tokens: 16, num_blocks: null, chunked_prefill: true };
const offered = (...of) => changesOf(...of).map(({ knob, others }) => [knob, ...others.map((o) => o.value)]);

test("only settings that the policy has are offered, and never the same value", () => {
  assert.deepEqual(offered({ config, knobs: [] }, ["dynamic", "static"]), [["max_num_seqs", 2], ["policy", "static"]]);
  const all = offered({ config: { ...config, num_blocks: 9 }, knobs: ["max_num_batched_tokens", "chunked_prefill"] }, ["dynamic"]);
  assert.deepEqual(all, [["max_num_seqs", 2], ["max_num_batched_tokens", 64, 8], ["num_blocks", 18, 5], ["chunked_prefill", false]]);
});

test("the limit that held the step back comes first", () => {
  const [first] = changesOf({ config, knobs: ["max_num_batched_tokens"] }, ["dynamic"], "budget");
  assert.deepEqual([first.knob, first.now], ["max_num_batched_tokens", "16"]);
});
