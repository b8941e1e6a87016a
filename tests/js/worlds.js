// Small runs for tests, as replays: what each lane computes in each step.

import { Run } from "../../assets/player/run/run.js";

const WHY = { limit: "none", have: 0, need: 0, total: 0 };

/** An event of `core/trace/events.py` with nothing in it but what is given. */
export function event(step, given = {}) {
  return {
    step, t_start: step, t_end: step + 0.5, timings: [0, 0, 0.5, 0], arrived: [], admitted: [], waiting: [0, null, null], preempted: [], stalled: [],
    passes: [["packed", 1, 1, 1, 0, step, step + 0.5, [], null]], segments: [], sampled: [], finished: [], kv: [0, 8, [], []], budget: [16, 0, 0, 16, "none"], overrun: [],
    ...given,
  };
}

export const why = Object.values(WHY);

export const runOf = (events, config = {}) => new Run({
  header: { config: { policy: "continuous", max_num_seqs: 2, block_size: 4, num_blocks: 8, ...config }, workload: { requests: [] } }, events, captions: [], letters: { a: "A", b: "B" },
});

/** Two requests in two lanes: `a` reads 3 tokens and decodes twice, `b` waits a step, reads 2, decodes once. */
export const two = () => runOf([
  event(0, { arrived: [["a", 0], ["b", 0]], admitted: [["a", 0, why]], waiting: [1, "b", ["budget", 0, 2, 16]], segments: [[0, "a", 0, "prefill", 0, 3, 3]], sampled: [[0, "a", 7, 0, 0]] }),
  event(1, { admitted: [["b", 1, why]], segments: [[0, "a", 0, "decode", 3, 1, 4], [0, "b", 1, "prefill", 0, 2, 2]], sampled: [[0, "a", 7, 0, 0], [0, "b", 7, 0, 0]] }),
  event(3, { segments: [[0, "a", 0, "decode", 4, 1, 5], [0, "b", 1, "decode", 2, 1, 3]], sampled: [[0, "a", 7, 0, 0], [0, "b", 7, 0, 0]] }),
]);
