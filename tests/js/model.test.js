// The passes of the model in a tab, its real kernels: however a prompt is cut, wherever its keys lie and whoever computes, it is the same to the last
// bit. That these are the right numbers is tested in tests/core/test_browser.py.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";

// first, because it brings the browser's part
import { HERE, SENT } from "./tabs.js";
import { Model } from "../../assets/engine/model.js";

const VOCABULARY = 40;
const SIZES = { layers: 2, hidden: 16, heads: 4, kv_heads: 2, head_size: 8, inner: 24 };

/** Numbers that look random, always the same. */
function* noise() {
  for (let x = 1; ;) yield (x = (x * 48271) % 2147483647) / 2147483647 - 0.5;
}

/** The file of a small model, whose queries, keys and values are one matrix or three. */
function file(together = true, llama = true) {
  const [tensors, numbers, random] = [{}, [], noise()];
  const add = (name, outputs, inputs) => {
    tensors[name] = [4 * numbers.length, outputs, inputs];
    for (let n = 0; n < outputs * inputs; n += 1) numbers.push(random.next().value);
  };
  const matrix = (name, outputs, inputs) => {
    add(name, outputs, inputs);
    if (!llama) add(`${name}.bias`, outputs, 1);
  };
  const norm = (name) => {
    add(name, SIZES.hidden, 1);
    if (!llama) add(`${name}.bias`, SIZES.hidden, 1);
  };
  const { hidden, inner } = SIZES;
  add("head", VOCABULARY, hidden);
  if (!llama) add("positions", 1024, hidden);
  for (let l = 0; l < SIZES.layers; l += 1) {
    norm(`${l}.norm`);
    if (together) matrix(`${l}.qkv`, 64, hidden);
    else
      for (const [part, size] of Object.entries({ q: 32, k: 16, v: 16 }))
        matrix(`${l}.${part}`, size, hidden);
    if (!together) for (const part of ["q", "k"]) add(`${l}.${part}_norm`, 8, 1);
    matrix(`${l}.out`, hidden, 32);
    norm(`${l}.mlp_norm`);
    matrix(`${l}.up`, llama ? 2 * inner : inner, hidden);
    matrix(`${l}.down`, hidden, inner);
  }
  norm("norm");
  const sizes = { ...SIZES, positions: 1024, epsilon: 1e-5, ...(llama && { rope_theta: 1e4 }) };
  const header = { model: { vocab_size: VOCABULARY - 3 }, sizes, float16: false, tensors };
  return { header, bytes: new Uint8Array(Float32Array.from(numbers).buffer) };
}

function made({ header, bytes }, kernels = "kernels.wasm", memory = undefined) {
  const module = new WebAssembly.Module(gunzipSync(SENT[`${kernels}.gz`]));
  const model = new Model(header, bytes.length, module, memory);
  // piece by piece, as it arrives
  for (let from = 0; from < bytes.length; from += 4096)
    model.place(bytes.subarray(from, from + 4096));
  return model;
}

test("a model takes the room of its numbers, and of a table of its positions", () => {
  for (const [given, more] of [
    [file(), 4 * 1024 * SIZES.head_size],
    [file(true, false), 0],
  ]) {
    const { top, weights } = made(given);
    const room = top - weights - given.bytes.length - more;
    assert.ok(room >= 0 && room < 32, String(room));
  }
  const { header } = file();
  const half = made({ header: { ...header, float16: true }, bytes: new Uint8Array(1024) });
  assert.equal(half.placed - half.weights, 2048, "halves are widened");
});

test("a pair of numbers turns by its frequency times the position, divided where positions are scaled", () => {
  const turned = (factors) => {
    const { header, bytes } = file();
    const sizes = { ...header.sizes, ...factors };
    const { f, table } = made({ header: { ...header, sizes }, bytes });
    return [...f.subarray((table >> 2) + 2 * 8, (table >> 2) + 3 * 8)]; // at position 2
  };
  const near = (found, angles) => {
    const wanted = [...angles.map(Math.cos), ...angles.map(Math.sin)];
    found.forEach((x, n) => assert.ok(Math.abs(x - wanted[n]) < 1e-6, `${n}: ${x}`));
  };
  near(turned({}), [2, 0.2, 0.02, 0.002]);
  near(turned({ rope_factors: [1, 2, 4, 8] }), [2, 0.1, 0.005, 0.00025]);
});

const BLOCK = 4;
const prompt = (length, first) =>
  Array.from({ length }, (_, n) => (n * n + 5 * n + first) % VOCABULARY);

/** A request in a pass: tokens from `start`, in every third block behind `block`. */
function part(tokens, start, block, { samples = true, pads = 0, reads = -1 } = {}) {
  const count = Math.ceil((start + tokens.length) / BLOCK);
  const blocks = Array.from({ length: count }, (_, n) => block + 3 * n);
  return [pads, tokens.length, start, reads, Number(samples), count, ...tokens, ...blocks];
}

/** What is sampled of each of these parts. */
function pass(model, owner, parts, more = {}) {
  const rows = parts.filter((given) => given[4]).map(() => ({ temperature: 0, ...more }));
  const out = model.pass(Int32Array.from([owner, BLOCK, parts.length, ...parts.flat()]), rows);
  assert.equal(out.length, 3 * rows.length + 2);
  return rows.map((_, n) => [...out.subarray(3 * n, 3 * n + 3)]);
}

const MODELS = { llama: file(), "three matrices": file(false), "gpt-2": file(true, false) };

for (const [name, given] of Object.entries(MODELS))
  test(`${name}: however a prompt is cut and padded, and whoever is beside it, it gives the same`, () => {
    const [model, tokens, other] = [made(given), prompt(700, 1), prompt(9, 3)];
    const slots = 3 * BLOCK * 180;
    pass(model, model.pool(3 * BLOCK * 4), [part(other, 0, 1)]); // a smaller pool, before
    let owner = model.pool(slots);
    const [whole] = pass(model, owner, [part(tokens, 0, 0)]);
    const [beside] = pass(model, (owner = model.pool(slots)), [part(other, 0, 1)]);
    const fresh = made(given);
    assert.deepEqual(pass(fresh, fresh.pool(slots), [part(tokens, 0, 0)]), [whole]);
    assert.notDeepEqual(whole, beside);
    assert.ok(whole[0] < VOCABULARY - 3 && whole[1] < 0 && whole[2] > 0);
    owner = model.pool(slots);
    const sizes = [1, 63, 64, 65, 7, 400, 100];
    let from = 0;
    for (const size of sizes) {
      const isLast = from + size === tokens.length;
      const mine = part(tokens.slice(from, from + size), from, 0, {
        samples: isLast,
        pads: size % 5,
      });
      const found = pass(model, owner, [part(other, 0, 1), mine]);
      assert.deepEqual(found, isLast ? [beside, whole] : [beside]);
      from += size;
    }
    assert.equal(from, tokens.length);
    const many = Array.from({ length: 60 }, (_, n) => part(other, 0, 9 * n));
    assert.deepEqual(
      pass(model, model.pool(slots), many),
      many.map(() => beside),
    );
    assert.throws(() => pass(model, owner, [part(other, 0, 1)]), /Another run has taken/);
    const leak = [part(other, 0, 1, { reads: 1 }), part(prompt(5, 2), 0, 2)];
    const [mixed, alone] = pass(model, model.pool(slots), leak);
    assert.notDeepEqual(mixed, beside);
    assert.deepEqual(alone, pass(model, model.pool(slots), [part(prompt(5, 2), 0, 2)])[0]);
  });

test("attention weights are those of a text alone, sum to one, and leave a run's keys as they are", () => {
  const model = made(MODELS.llama);
  const [tokens, next] = [prompt(9, 3), prompt(1, 7)];
  const weights = model.attention(Int32Array.from(tokens), 1, 3);
  for (let row = 0; row < 9; row += 1) {
    const mine = weights.subarray(9 * row, 9 * row + 9);
    assert.ok(Math.abs(mine.reduce((sum, x) => sum + x) - 1) < 1e-12);
    assert.ok(mine.every((x, t) => (t <= row ? x > 0 : x === 0)));
  }
  assert.equal(weights[0], 1);
  const goes = (/** @type {boolean} */ looks) => {
    const mine = model.pool(3 * BLOCK * 30);
    pass(model, mine, [part(tokens, 0, 1)]);
    if (looks) model.attention(Int32Array.from(prompt(30, 5)), 0, 1);
    return pass(model, mine, [part(next, 9, 1)]);
  };
  assert.deepEqual(goes(true), goes(false));
  const { top } = model;
  for (let n = 0; n < 9; n += 1) model.attention(Int32Array.from(tokens), 0, n % 4);
  assert.ok(model.top <= top + 65536, "each text takes the place of the one before");
});

test("several threads compute what one computes", async () => {
  const { llama } = MODELS;
  const memory = new WebAssembly.Memory({ initial: 32, maximum: 1024, shared: true });
  const [one, several] = [made(llama), made(llama, "shared.wasm", memory)];
  const stacks = [];
  for (let n = 0; n < 2; n += 1)
    several.enlist((told) => {
      stacks.push(/** @type {any} */ (told).stack);
      new Worker(new URL("thread.js", HERE), { type: "module" }).postMessage(told);
    });
  assert.ok(
    stacks[1] - stacks[0] >= 65536 && stacks[0] - 65536 >= several.weights + llama.bytes.length,
  );
  while (several.threads < 3) await new Promise((done) => setTimeout(done));
  assert.equal(one.threads, 1);
  const parts = [part(prompt(150, 1), 0, 0), part(prompt(40, 4), 0, 1)];
  const found = [one, several].map((model) => pass(model, model.pool(3 * BLOCK * 60), parts));
  for (let n = 0; n < 20; n += 1)
    assert.deepEqual(pass(several, several.pool(3 * BLOCK * 60), parts), found[0]);
  assert.deepEqual(found[1], found[0]);
});

test("a bias is added before a token is chosen, and only of the logits that are tokens", () => {
  const model = made(MODELS.llama);
  const chosen = (value) => {
    const adjusts = { logit_bias: [[36, value]], repetition_penalty: 1, prompt: [], generated: [] };
    const more = { ...adjusts, frequency_penalty: 0, presence_penalty: 0 };
    const owner = model.pool(3 * BLOCK * 30);
    const twice = [part(prompt(9, 3), 0, 1), part(prompt(5, 2), 0, 2)];
    return pass(model, owner, twice, more).map(([token]) => token);
  };
  assert.deepEqual(chosen(100), [36, 36]);
  assert.ok(chosen(-100).every((token) => token !== 36));
});

test("Python's arrays are read where they lie, and let go whatever happens", (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => (now += 500));
  const model = made(MODELS.llama);
  const did = [];
  const held = (numbers) => ({
    getBuffer: (type) => ({ data: Int32Array.from(numbers), release: () => did.push(type) }),
  });
  const told = (owner) => [owner, BLOCK, 1, ...part(prompt(9, 3), 0, 1)];
  const slots = 3 * BLOCK * 30;
  const rows = [{ temperature: 0 }];
  const given = model.compute(held(told(model.pool(slots))), JSON.stringify(rows));
  const direct = model.pass(Int32Array.from(told(model.pool(slots))), rows);
  assert.deepEqual([...given.subarray(0, 3)], [...direct.subarray(0, 3)]);
  assert.deepEqual([...given.subarray(3)], [0.5, 0.5], "seconds");
  assert.throws(() => model.compute(held(told(-1)), "[]"), /Another run/);
  const ids = prompt(5, 1);
  assert.deepEqual(model.attention(held(ids), 1, 2), model.attention(Int32Array.from(ids), 1, 2));
  assert.deepEqual(did, ["i32", "i32", "i32"]);
  assert.deepEqual(
    [model.heads, model.threads, JSON.parse(model.facts)],
    [4, 1, { vocab_size: 37 }],
  );
  assert.deepEqual([model.tokenizer, model.between], ["", "null"]);
});
