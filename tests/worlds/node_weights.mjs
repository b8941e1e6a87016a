/**
 * The weights that a kernel multiplies with, as float32 on standard output, output by output, four times: as it embeds them, and as it finds them
 * with one row, two, and more, each a row of the identity: node node_weights.mjs KERNELS KIND OUTPUTS INPUTS < PANELS
 */
import { readFileSync } from "node:fs";
import process from "node:process";

const [kernels, kind, ...sizes] = process.argv.slice(2);
const [n, k] = sizes.map(Number);
const memory = new WebAssembly.Memory({ initial: 512 });
const ops = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(kernels)), {
  env: { memory },
}).exports;
let top = ops.__heap_base.value;
const take = (bytes) => (top += bytes + 15) && (top - bytes) & ~15;
const floats = (at, count) => new Float32Array(memory.buffer, at, count);
const panels = readFileSync(0);
const w = take(panels.length),
  ids = take(4 * n),
  x = take(4 * k * k),
  y = take(4 * k * n),
  embedded = take(4 * k * n);
new Uint8Array(memory.buffer).set(panels, w);
new Int32Array(memory.buffer, ids, n).set(Array.from({ length: n }, (_, i) => i));
for (let p = 0; p < k; p++) floats(x, k * k)[p * k + p] = 1;
const say = (values) => process.stdout.write(new Uint8Array(values.slice().buffer));
ops[`embed_${kind}`](0, 1, embedded, w, ids, n, k);
say(floats(embedded, n * k));
for (const rows of [1, 2, k]) {
  for (let p = 0; p < k; p += rows)
    ops[`linear_${kind}`](0, 1, y + 4 * p * n, x + 4 * p * k, w, rows, k, n);
  const columns = floats(y, k * n);
  say(Float32Array.from({ length: n * k }, (_, i) => columns[(i % k) * n + Math.floor(i / k)]));
}
