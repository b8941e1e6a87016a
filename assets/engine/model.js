/**
 * A model whose passes a browser computes in float32: packed or padded rows, K and V in the scheduler's blocks, tokens drawn with keyed noise.
 *
 *     const model = Model.of(weights, kernels);    // weights: ArrayBuffer, a file of core/browser/weights.py; kernels: WebAssembly.Module of kernels.wasm
 *     const model = new Model(header, size, kernels, memory)  // or from the file's header and the size of its numbers, which follow piece by piece:
 *     model.place(bytes)
 *     model.facts                                  // JSON of core.trace.header.ModelFacts
 *     model.tokenizer, model.between               // if the file has them: its tokenizer.json, and JSON of core.browser.chat.Between
 *     const owner = model.pool(slots)              // allocates K and V for so many tokens; replaces the previous pool, whose owner becomes invalid
 *     model.pass(told, rows)                       // Int32Array that begins with the owner, array of objects; returns a Float64Array
 *     model.compute(told, rows)                    // the same for Python: its array of 32-bit integers, and rows as JSON
 *     model.attention(ids, layer, head)            // attention weights of one head over one text, also for Python; leaves the pool as it is
 *     model.heads                                  // query heads of a layer
 *     model.enlist(start)                          // adds a thread, see crew.js; only before the first pool, and only in shared memory
 *     model.threads                                // how many compute
 *
 * `BrowserRunner` of core/browser/executor.py defines `told` and `rows`. A pass returns token, log-probability and margin of each
 * request that samples (NaN for a token whose logits are not finite), then the seconds of the forward pass and of sampling.
 * This module needs neither DOM nor worker, so it runs in Node, too.
 */
import { Crew, SIZE, STACK, isShared } from "./crew.js";
import { adjust, choose } from "./sampling.js";

const TILE = 64; // rows of the MLP at once: activations of a long prompt take hundreds of MB

/** The value of every float16, by its bits. */
const HALF = new Float32Array(65536);
for (let h = 0; h < 65536; h++) {
  const exponent = (h >> 10) & 31,
    rest = h & 1023;
  const size =
    exponent === 0
      ? rest * 2 ** -24
      : exponent === 31
        ? rest
          ? NaN
          : Infinity
        : (1 + rest / 1024) * 2 ** (exponent - 15);
  HALF[h] = h >> 15 ? -size : size;
}

/**
 * @typedef {{layers: number, hidden: number, heads: number, kv_heads: number, head_size: number, inner: number, positions: number,
 *   epsilon: number, rope_theta?: number, rope_factors?: number[], no_rope_interval?: number}} Sizes rope_factors: divisors of the rotary
 *   frequencies, if there are any; no_rope_interval: of every so many layers the last one has no rotary embedding
 * @typedef {{w: number, b: number, outputs: number, inputs: number, kind?: string}} Matrix kind: how its blocks are quantized, if they are
 * @typedef {{row: number, count: number, start: number, reads: number, blocks: Int32Array, seen?: number, at?: number}} Part
 * @typedef {{getBuffer: (type: string) => {data: Int32Array, release: () => void}}} PythonArray
 * @typedef {{ids: number[], places: number[], slots: number[], parts: Part[], keys: number[], picked: number[]}} Laid
 */

export class Model {
  /** @type {Foreign} */ #ops;
  /** @type {Crew | null} null unless threads can share the memory */ #crew = null;
  /** @type {Record<string, number>} addresses of the activations */ #at = {};
  #room = { rows: 0, keys: 0, samples: 0 };

  /**
   * The model of a whole file. @param {ArrayBuffer} weights @param {WebAssembly.Module} kernels
   * @param {WebAssembly.Memory} [memory]
   */
  static of(weights, kernels, memory) {
    const whole = Model.begun(new Uint8Array(weights), weights.byteLength, kernels, memory);
    return /** @type {Model} */ (whole);
  }

  /**
   * The model of a file, from its first bytes; undefined if they do not contain the whole header.
   * The rest of the file is for `place`.
   * @param {Uint8Array} bytes @param {number} size of the file
   * @param {WebAssembly.Module} kernels @param {WebAssembly.Memory} [memory]
   */
  static begun(bytes, size, kernels, memory) {
    if (bytes.length < 4) return undefined;
    const end = 4 + new DataView(bytes.buffer, bytes.byteOffset).getUint32(0, true);
    if (bytes.length < end) return undefined;
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, end)));
    const model = new Model(header, size - end, kernels, memory);
    model.place(bytes.subarray(end));
    return model;
  }

  /**
   * memory: for weights, the KV pool and activations; it grows as needed. size: bytes of the
   * weights. @param {Json} header @param {number} size @param {WebAssembly.Module} kernels
   * @param {WebAssembly.Memory} memory
   */
  constructor(header, size, kernels, memory = new WebAssembly.Memory({ initial: 32 })) {
    const { model, float16, tokenizer = "", between = null } = header;
    this.facts = JSON.stringify(model);
    this.tokenizer = tokenizer;
    this.between = JSON.stringify(between);
    /** @type {Sizes} */ this.sizes = header.sizes;
    this.vocabulary = model.vocab_size;
    this.memory = memory;
    const instance = new WebAssembly.Instance(kernels, { env: { memory: this.memory } });
    this.#ops = instance.exports;
    this.top = this.#ops.__heap_base.value; // the kernels' own stack lies below this address
    this.f = new Float32Array(memory.buffer);
    this.i = new Int32Array(memory.buffer);
    this.float16 = float16;
    this.weights = this.placed = this.#take(float16 ? size / 2 : Math.ceil(size / 4));
    this.#name(header.tensors);
    this.table = this.sizes.rope_theta ? this.#rope() : 0;
    if (isShared(memory)) this.#crew = new Crew(kernels, instance, memory, this.#take(SIZE / 4));
    this.slots = 0;
    this.keys = 0;
    this.values = 0;
    this.owner = 0;
    this.base = this.behind = this.top;
  }

  get heads() {
    return this.sizes.heads;
  }
  get threads() {
    return this.#crew?.threads ?? 1;
  }

  /** Add a thread. start: see crew.js. @param {(told: object) => void} start */
  enlist(start) {
    const stack = this.#take(STACK / 4) + STACK;
    this.base = this.behind = this.top;
    start({ ...this.#crew?.told, stack });
  }

  /**
   * Run an operation of the kernels. parts: the largest number into which it may be cut so that
   * each is worth a thread.
   * @param {string} name @param {number} parts @param {number[]} given
   */
  #run(name, parts, ...given) {
    if (this.#crew) this.#crew.run(name, parts, ...given);
    else this.#ops[name](0, 1, ...given);
  }

  /** Store the file's next numbers; float16 becomes float32. @param {Uint8Array} bytes */
  place(bytes) {
    if (this.float16) {
      const halves = new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2),
        to = this.f.subarray(this.placed >> 2);
      for (let n = 0; n < halves.length; n++) to[n] = HALF[halves[n]];
    } else new Uint8Array(this.memory.buffer).set(bytes, this.placed);
    this.placed += bytes.length * (this.float16 ? 2 : 1);
  }

  /**
   * Note the address of each tensor; 0 for a tensor that the file does not have.
   * @param {Record<string, [number, number, number, string?]>} tensors
   */
  #name(tensors) {
    /** @param {string} name */
    const at = (name) => (name in tensors ? this.weights + tensors[name][0] : 0);
    /** @param {string} name */
    const matrix = (name) => ({
      w: at(name),
      b: at(name + ".bias"),
      outputs: tensors[name][1],
      inputs: tensors[name][2],
      kind: tensors[name][3],
    });
    /** @param {string} name */
    const norm = (name) => ({ g: at(name), b: at(name + ".bias") });
    /**
     * @typedef {{g: number, b: number}} Norm
     * @type {{norm: Norm, qkv: Matrix[], headNorms: number[], out: Matrix, mlpNorm: Norm, up: Matrix, down: Matrix}[]}
     * qkv: one matrix, or three if they are stored in several ways; headNorms: of queries and keys
     */
    this.layers = Array.from({ length: this.sizes.layers }, (_, l) => ({
      norm: norm(`${l}.norm`),
      qkv: (`${l}.qkv` in tensors ? ["qkv"] : ["q", "k", "v"]).map((part) =>
        matrix(`${l}.${part}`),
      ),
      headNorms: ["q_norm", "k_norm"].map((part) => at(`${l}.${part}`)),
      out: matrix(`${l}.out`),
      mlpNorm: norm(`${l}.mlp_norm`),
      up: matrix(`${l}.up`),
      down: matrix(`${l}.down`),
    }));
    /** @type {Matrix} */
    this.head = matrix("head");
    /** @type {Matrix} */
    this.embedding = "embedding" in tensors ? matrix("embedding") : this.head;
    /** @type {Norm} */
    this.lastNorm = norm("norm");
    /** @type {number} */
    this.positions = at("positions");
  }

  /** Compute every position's cosine and sine, rounded where torch rounds. */
  #rope() {
    const { positions, head_size: d, rope_theta: theta, rope_factors } = this.sizes,
      at = this.#take(positions * d),
      f = this.f,
      to = at >> 2;
    for (let p = 0; p < d / 2; p++) {
      const usual = Math.fround(1 / Math.fround(/** @type {number} */ (theta) ** ((2 * p) / d))),
        frequency = Math.fround(usual / (rope_factors?.[p] ?? 1));
      for (let t = 0; t < positions; t++) {
        const angle = Math.fround(t * frequency);
        f[to + t * d + p] = Math.cos(angle);
        f[to + t * d + d / 2 + p] = Math.sin(angle);
      }
    }
    return at;
  }

  /** Allocate so many numbers of four bytes; returns their address. @param {number} count */
  #take(count) {
    const at = (this.top + 15) & ~15;
    this.top = at + 4 * count;
    const short = this.top - this.memory.buffer.byteLength;
    if (short > 0) {
      this.memory.grow(Math.ceil(short / 65536)); // growing detaches the earlier views
      this.f = new Float32Array(this.memory.buffer);
      this.i = new Int32Array(this.memory.buffer);
    }
    return at;
  }

  /** Replace the pool by one of so many tokens; returns its owner. @param {number} slots */
  pool(slots) {
    this.top = this.base;
    this.#keep(slots);
    return ++this.owner;
  }

  /** Allocate K and V for so many tokens, activations behind them. @param {number} slots */
  #keep(slots) {
    const { layers, kv_heads, head_size } = this.sizes,
      numbers = layers * slots * kv_heads * head_size;
    this.slots = slots;
    this.keys = this.#take(numbers);
    this.values = this.#take(numbers);
    this.behind = this.top;
    this.#room = { rows: 0, keys: 0, samples: 0 };
  }

  /** Room for activations. @param {number} rows @param {number} keys @param {number} samples */
  #fit(rows, keys, samples) {
    const room = this.#room;
    if (rows <= room.rows && keys <= room.keys && samples <= room.samples) return;
    room.rows = Math.max(rows, room.rows, TILE);
    room.keys = Math.max(keys, room.keys, 1024);
    room.samples = Math.max(samples, room.samples, 8);
    const { hidden, heads, kv_heads, head_size, inner } = this.sizes;
    this.top = this.behind;
    this.#at = {
      x: this.#take(room.rows * hidden),
      h: this.#take(room.rows * hidden),
      qkv: this.#take(room.rows * (heads + 2 * kv_heads) * head_size),
      mixed: this.#take(room.rows * heads * head_size),
      wide: this.#take(TILE * 2 * inner),
      narrow: this.#take(TILE * inner),
      ids: this.#take(room.rows),
      places: this.#take(room.rows),
      slots: this.#take(room.rows),
      keys: this.#take(room.keys),
      requests: this.#take(4 * room.rows),
      scores: this.#take(heads * (room.keys + 4)),
      picked: this.#take(room.samples * hidden),
      normed: this.#take(room.samples * hidden),
      logits: this.#take(room.samples * this.head.outputs),
      largest: this.#take(8 * room.samples),
    };
  }

  /** The rows of a pass, from `BrowserRunner.launch`. @param {Int32Array} told @returns {Laid} */
  #lay(told) {
    const [owner, size, requests] = told;
    if (owner !== this.owner) throw new Error("Another run has taken this model's memory.");
    /** @type {Laid} */
    const laid = { ids: [], places: [], slots: [], parts: [], keys: [], picked: [] };
    let p = 3;
    for (let r = 0; r < requests; r++) {
      const [pads, count, start, reads, samples, blocks] = told.subarray(p, (p += 6));
      for (let n = 0; n < pads; n++) {
        laid.ids.push(0);
        laid.places.push(0);
        laid.slots.push(-1);
      }
      const part = {
        row: laid.ids.length,
        count,
        start,
        reads,
        blocks: told.subarray(p + count, p + count + blocks),
      };
      for (let n = 0; n < count; n++) {
        laid.ids.push(told[p + n]);
        laid.places.push(start + n);
        laid.slots.push(part.blocks[Math.floor((start + n) / size)] * size + ((start + n) % size));
      }
      p += count + blocks;
      laid.parts.push(part);
      if (samples) laid.picked.push(laid.ids.length - 1);
    }
    /** @param {Part} part */
    const cache = ({ start, count, blocks }) => {
      for (let t = 0; t < start + count; t++)
        laid.keys.push(blocks[Math.floor(t / size)] * size + (t % size));
      return start + count;
    };
    for (const part of laid.parts) {
      part.at = laid.keys.length;
      part.seen = (part.reads < 0 ? 0 : cache(laid.parts[part.reads])) + part.start;
      cache(part);
    }
    return laid;
  }

  /** @param {number} y @param {number} x @param {Matrix} matrix @param {number} rows */
  #linear(y, x, { w, b, outputs, inputs, kind }, rows) {
    const parts = outputs >> 4;
    if (kind) {
      this.#run(`linear_${kind}`, parts, y, x, w, rows, inputs, outputs);
      if (b) this.#run("bias", rows >> 2, y, b, rows, outputs);
    } else this.#run("linear", parts, y, x, w, b, rows, inputs, outputs);
  }

  /**
   * @param {number} y @param {number} x @param {{g: number, b: number}} norm @param {number} rows
   */
  #norm(y, x, { g, b }, rows) {
    this.#run("norm", rows >> 2, y, x, g, b, rows, this.sizes.hidden, this.sizes.epsilon);
  }

  /**
   * Embeddings are stored like the head's matrix, in panels of eight tokens, so that the numbers of
   * one token are eight apart. @param {Laid} laid
   */
  #embed({ ids, places }) {
    const {
        f,
        sizes: { hidden },
        embedding: { w, kind },
      } = this,
      x = this.#at.x >> 2,
      head = w >> 2,
      at = this.positions >> 2;
    if (kind) {
      const { x, ids: told } = this.#at;
      this.i.set(ids, told >> 2);
      this.#run(`embed_${kind}`, ids.length >> 2, x, w, told, ids.length, hidden);
      return;
    }
    ids.forEach((id, row) => {
      const from = head + (id >> 3) * hidden * 8 + (id & 7),
        to = x + row * hidden;
      for (let p = 0; p < hidden; p++) f[to + p] = f[from + 8 * p];
      if (at) for (let p = 0; p < hidden; p++) f[to + p] += f[at + places[row] * hidden + p];
    });
  }

  /** A layer's queries; keys and values go to the pool. @param {Laid} laid @param {number} l */
  #project(laid, l) {
    const { heads, kv_heads, head_size: d, epsilon, no_rope_interval = 0 } = this.sizes,
      { x, h, places, slots } = this.#at,
      { norm, qkv, headNorms } = this.layers[l];
    const rows = laid.ids.length,
      size = kv_heads * d,
      layer = 4 * l * this.slots * size,
      parts = this.#parts(l, rows),
      [, keys, values] = parts;
    this.#norm(h, x, norm, rows);
    qkv.forEach((matrix, n) => this.#linear(parts[n].at, h, matrix, rows));
    [heads, kv_heads].forEach((count, n) => {
      const { at, stride } = parts[n],
        g = headNorms[n];
      if (g)
        for (let row = at, r = 0; r < rows; row += 4 * stride, r++)
          this.#run("norm", 1, row, row, g, 0, count, d, epsilon);
      if (this.table && (l + 1) % no_rope_interval !== 0)
        this.#run("rope", rows >> 2, at, this.table, places, rows, count, stride, d);
    });
    const store = (/** @type {number} */ pool, /** @type {{at: number, stride: number}} */ part) =>
      this.#run("store", rows >> 2, pool + layer, part.at, slots, rows, part.stride, size);
    store(this.keys, keys);
    store(this.values, values);
  }

  /**
   * Where the queries, keys and values of a layer lie, and the stride between two rows: one matrix
   * has them side by side, three have one part after the other. @param {number} l
   * @param {number} rows
   */
  #parts(l, rows) {
    const { heads, kv_heads, head_size: d } = this.sizes,
      together = this.layers[l].qkv.length === 1;
    let before = 0;
    return [heads, kv_heads, kv_heads].map((count) => {
      const at = this.#at.qkv + 4 * before * (together ? 1 : rows);
      before += count * d;
      return { at, stride: (together ? heads + 2 * kv_heads : count) * d };
    });
  }

  /** @param {Laid} laid @param {number} l */
  #attend(laid, l) {
    const { heads, kv_heads, head_size: d } = this.sizes,
      { mixed, keys, requests, scores, x, h } = this.#at;
    const rows = laid.ids.length,
      [{ at: queries, stride }] = this.#parts(l, rows),
      layer = 4 * l * this.slots * kv_heads * d;
    this.f.fill(0, mixed >> 2, (mixed >> 2) + rows * heads * d); // a pad attends to nothing
    this.#run(
      "attend",
      heads,
      mixed,
      queries,
      this.keys + layer,
      this.values + layer,
      keys,
      requests,
      laid.parts.length,
      heads,
      kv_heads,
      d,
      stride,
      scores,
      laid.keys.length + 4,
    );
    this.#linear(h, mixed, this.layers[l].out, rows);
    this.#run("add", rows >> 2, x, h, rows * this.sizes.hidden);
  }

  /** @param {number} rows @param {number} l */
  #transform(rows, l) {
    const { hidden, inner } = this.sizes,
      { wide, narrow, h } = this.#at,
      { mlpNorm, up, down } = this.layers[l];
    for (let row = 0; row < rows; row += TILE) {
      const count = Math.min(TILE, rows - row),
        x = this.#at.x + 4 * row * hidden;
      this.#norm(h, x, mlpNorm, count);
      if (up.outputs === 2 * inner) {
        this.#linear(wide, h, up, count);
        this.#run("silu", count >> 2, narrow, wide, count, inner);
      } else {
        this.#linear(narrow, h, up, count);
        this.#run("gelu", count >> 2, narrow, count * inner);
      }
      this.#linear(h, narrow, down, count);
      this.#run("add", count >> 2, x, h, count * hidden);
    }
  }

  /** @param {Laid} laid @returns {Float32Array} logits of the rows that sample, row after row */
  #forward(laid) {
    this.#begin(laid);
    for (let l = 0; l < this.sizes.layers; l++) {
      this.#project(laid, l);
      this.#attend(laid, l);
      this.#transform(laid.ids.length, l);
    }
    const { hidden } = this.sizes,
      { x, picked, normed, logits } = this.#at,
      count = laid.picked.length;
    laid.picked.forEach((row, j) =>
      this.f.copyWithin(
        (picked >> 2) + j * hidden,
        (x >> 2) + row * hidden,
        (x >> 2) + (row + 1) * hidden,
      ),
    );
    this.#norm(normed, picked, this.lastNorm, count);
    this.#linear(logits, normed, this.head, count);
    return this.f.subarray(logits >> 2, (logits >> 2) + count * this.head.outputs);
  }

  /** @param {Laid} laid */
  #begin(laid) {
    const most = Math.max(laid.ids.length, laid.parts.length);
    this.#fit(most, laid.keys.length, laid.picked.length);
    const { places, slots, keys, requests } = this.#at;
    laid.parts.forEach(({ row, count, seen, at }, n) =>
      this.i.set(/** @type {number[]} */ ([row, count, seen, at]), (requests >> 2) + 4 * n),
    );
    this.i.set(laid.places, places >> 2);
    this.i.set(laid.slots, slots >> 2);
    this.i.set(laid.keys, keys >> 2);
    this.#embed(laid);
  }

  /**
   * @param {Int32Array} told @param {import("./sampling.js").Row[]} rows how to choose each token
   */
  pass(told, rows) {
    const began = performance.now(),
      logits = this.#forward(this.#lay(told)),
      computed = performance.now(),
      stride = this.head.outputs,
      V = this.vocabulary,
      { logits: at, largest } = this.#at;
    const out = new Float64Array(3 * rows.length + 2);
    const each = rows.map((_, j) => logits.subarray(j * stride, j * stride + V));
    rows.forEach((row, j) => row.logit_bias && adjust(each[j], row));
    this.#run("largest", rows.length, largest, at, rows.length, stride, V);
    const found = new Float64Array(this.memory.buffer, largest, 4 * rows.length);
    rows.forEach((row, j) => out.set(choose(each[j], row, found.subarray(4 * j)), 3 * j));
    out.set([(computed - began) / 1e3, (performance.now() - computed) / 1e3], 3 * rows.length);
    return out;
  }

  /** @param {PythonArray} told @param {string} rows */
  compute(told, rows) {
    return read(told, (numbers) => this.pass(numbers, JSON.parse(rows)));
  }

  /**
   * The attention weights of one head over a text that is computed by itself: for each token a row
   * with a weight for every token.
   * @param {Int32Array | PythonArray} ids @param {number} layer @param {number} head @returns
   * {Float64Array} row after row
   */
  attention(ids, layer, head) {
    const { slots, keys, values, behind } = this;
    this.top = behind; // the pool of a run stays: this text gets one behind it
    try {
      return read(ids, (numbers) => {
        const n = numbers.length;
        this.#keep(n);
        const told = [this.owner, 1, 1, 0, n, 0, -1, 0, n, ...numbers, ...numbers.keys()];
        const laid = this.#lay(Int32Array.from(told));
        this.#begin(laid);
        for (let l = 0; l < layer; l++) {
          this.#project(laid, l);
          this.#attend(laid, l);
          this.#transform(n, l);
        }
        this.#project(laid, layer);
        return this.#weights(n, layer, head);
      });
    } finally {
      Object.assign(this, { slots, keys, values, behind });
      this.#room = { rows: 0, keys: 0, samples: 0 };
    }
  }

  /** @param {number} length @param {number} layer @param {number} head */
  #weights(length, layer, head) {
    const { heads, kv_heads, head_size: d } = this.sizes,
      f = this.f,
      [{ at, stride }] = this.#parts(layer, length),
      out = new Float64Array(length * length);
    const keys =
      (this.keys >> 2) +
      layer * this.slots * kv_heads * d +
      Math.floor((head * kv_heads) / heads) * d;
    for (let row = 0; row < length; row++) {
      const query = (at >> 2) + row * stride + head * d,
        weights = out.subarray(row * length, row * length + row + 1);
      for (let t = 0; t <= row; t++) {
        let dot = 0;
        for (let p = 0; p < d; p++) dot += f[query + p] * f[keys + t * kv_heads * d + p];
        weights[t] = dot / Math.sqrt(d);
      }
      const best = weights.reduce((a, b) => Math.max(a, b)),
        sum = weights.reduce((total, score) => total + Math.exp(score - best), 0);
      weights.forEach((score, t) => {
        weights[t] = Math.exp(score - best) / sum;
      });
    }
    return out;
  }
}

/**
 * Calls a function with numbers that may lie in Python's memory; returns its result.
 * @template T @param {Int32Array | PythonArray} given @param {(numbers: Int32Array) => T} use
 * @returns {T}
 */
function read(given, use) {
  if (given instanceof Int32Array) return use(given);
  const view = given.getBuffer("i32");
  try {
    return use(view.data);
  } finally {
    view.release();
  }
}
