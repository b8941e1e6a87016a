/**
 * The `Model` of assets/engine/model.js in Node, asked line by line: node node_model.mjs WEIGHTS KERNELS [THREADS]. With threads, KERNELS are those
 * for a memory that is shared.
 */
import { readFileSync } from "node:fs";
import process from "node:process";
import { createInterface } from "node:readline";
import { Worker, isMainThread, workerData } from "node:worker_threads";

import { assist } from "../../assets/engine/crew.js";
import { Model } from "../../assets/engine/model.js";

if (!isMainThread) assist(workerData); // for ever

const [weights, kernels] = process.argv.slice(2, 4).map((path) => readFileSync(path));
const threads = Number(process.argv[4] ?? 1);
const memory = new WebAssembly.Memory(
  threads > 1 ? { initial: 32, maximum: 16384, shared: true } : { initial: 32 },
);
const model = Model.of(new Uint8Array(weights).buffer, new WebAssembly.Module(kernels), memory);
for (let n = 1; n < threads; n++)
  model.enlist((told) => new Worker(new URL(import.meta.url), { workerData: told }).unref());
const answers = {
  facts: () => model.facts,
  heads: () => model.heads,
  threads: () => model.threads,
  words: () => [model.tokenizer, model.between],
  bytes: () => memory.buffer.byteLength,
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
