/** The `Model` of assets/engine/model.js in Node, asked line by line: node node_model.mjs WEIGHTS KERNELS. */
import { readFileSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";

import { Model } from "../../assets/engine/model.js";

const [weights, kernels] = process.argv.slice(2).map((path) => readFileSync(path));
const model = Model.of(new Uint8Array(weights).buffer, new WebAssembly.Module(kernels));
const answers = {
  facts: () => model.facts,
  heads: () => model.heads,
  words: () => [model.tokenizer, model.between],
  bytes: () => model.bytes,
  pool: ([slots]) => model.pool(slots),
  pass: ([told, rows]) => Array.from(model.pass(Int32Array.from(told), JSON.parse(rows))),
  attention: ([ids, layer, head]) => Array.from(model.attention(Int32Array.from(ids), layer, head)),
};
for await (const line of createInterface({ input: process.stdin })) {
  const [what, ...given] = JSON.parse(line);
  let answer;
  try {
    answer = answers[what](given) ?? null;
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
}
