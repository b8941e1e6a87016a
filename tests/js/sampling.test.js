// Which tokens the engine in the tab may draw, at the edges where a filter ends.

import assert from "node:assert/strict";
import { test } from "node:test";

import { adjust, choose } from "../../assets/engine/sampling.js";

/** Logits of these probabilities. */
const of = (...shares) => Float32Array.from(shares, Math.log);
const FILTERS = { top_k: 0, top_p: 1, min_p: 0 };

/** The tokens that are drawn at all, of many draws. */
function drawn(shares, filters, temperature = 1) {
  const logits = of(...shares);
  const sum = logits.reduce((all, x) => all + Math.exp(x - logits[0]), 0);
  const largest = [0, logits[0], logits[1], sum];
  const found = new Set();
  for (let n = 0; n < 400; n += 1) {
    const row = /** @type {any} */ ({ temperature, noise: [n, 7], ...FILTERS, ...filters });
    found.add(choose(logits, row, largest)[0]);
  }
  return [...found].sort((a, b) => a - b).join("");
}

test("top-p keeps tokens until their sum reaches it, top-k so many, min-p what is likely enough", () => {
  const shares = [0.5, 0.25, 0.125, 0.125];
  assert.equal(drawn(shares, {}), "0123");
  assert.deepEqual(
    [0.49, 0.5, 0.51, 0.75, 0.76].map((top_p) => drawn(shares, { top_p })),
    ["0", "0", "01", "01", "012"],
  );
  assert.deepEqual(
    [1, 2, 3].map((top_k) => drawn(shares, { top_k })),
    ["0", "01", "012"],
  );
  assert.deepEqual(
    [0.5, 0.51, 1].map((min_p) => drawn(shares, { min_p })),
    ["01", "0", "0"],
  );
  // of what top-k has left, its two have two thirds and one third
  assert.deepEqual(
    [0.66, 0.67].map((top_p) => drawn(shares, { top_k: 2, top_p })),
    ["0", "01"],
  );
});

test("without temperature the likeliest is taken, and what is told of it is at temperature 1", () => {
  const logits = of(0.25, 0.5, 0.25);
  const [token, logprob, margin] = choose(logits, { temperature: 0 }, [1, logits[1], logits[0], 2]);
  assert.deepEqual(
    [token, logprob, margin].map((x) => x.toFixed(5)),
    ["1.00000", "-0.69315", "0.69315"],
  );
  assert.deepEqual(choose(logits, { temperature: 0 }, [1, 0, 0, NaN]), [NaN, 0, 0]);
});

test("bias comes first, a repeated token's score is divided or multiplied, and counts take away", () => {
  const adjusted = (more) => {
    const logits = Float32Array.from([2, -2, 4, 1]);
    const row = { logit_bias: [], prompt: [], generated: [], ...more };
    const penalties = { repetition_penalty: 1, frequency_penalty: 0, presence_penalty: 0 };
    adjust(logits, /** @type {any} */ ({ ...penalties, ...row }));
    return [...logits];
  };
  assert.deepEqual(adjusted({ logit_bias: [[3, -4]] }), [2, -2, 4, -3]);
  const repeated = { repetition_penalty: 2, prompt: [0, 1], generated: [2, 2] };
  assert.deepEqual(adjusted(repeated), [1, -4, 2, 1], "once, however often");
  const said = {
    frequency_penalty: 0.5,
    presence_penalty: 0.25,
    prompt: [0],
    generated: [2, 2, 3],
  };
  assert.deepEqual(adjusted(said), [2, -2, 2.75, 0.25], "the prompt does not count");
});
