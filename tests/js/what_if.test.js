import assert from "node:assert/strict";
import test from "node:test";

import { changesOf } from "../../assets/player/watch/what_if.js";

const config = {
  policy: "dynamic",
  max_num_seqs: 1,
  max_num_batched_tokens: 16,
  num_blocks: null,
  chunked_prefill: true,
};
const policies = [
  { name: "dynamic", shows: "", knobs: [] },
  { name: "chunked", shows: "", knobs: ["max_num_batched_tokens", "chunked_prefill"] },
  { name: "shared", shows: "", knobs: ["prefill_first", "prefix_caching"] },
];
const offered = (...of) =>
  changesOf(...of).map(({ knob, others }) => [knob, ...others.map((o) => o.value)]);

test("only settings that the policy has are offered, and never the same value", () => {
  assert.deepEqual(offered(config, policies), [
    ["max_num_seqs", 2],
    ["policy", "chunked", "shared"],
  ]);
  const all = offered({ ...config, policy: "chunked", num_blocks: 9 }, policies);
  assert.deepEqual(all, [
    ["max_num_seqs", 2],
    ["max_num_batched_tokens", 64, 8],
    ["num_blocks", 18, 5],
    ["chunked_prefill", false],
    ["policy", "dynamic", "shared"],
  ]);
});

test("the limit that held the step back comes first", () => {
  const [first] = changesOf({ ...config, policy: "chunked" }, policies, "budget");
  assert.deepEqual([first.knob, first.now], ["max_num_batched_tokens", "16"]);
});
