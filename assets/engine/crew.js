/**
 * Threads that compute a model's passes together in one shared memory. Each operation of the
 * kernels is cut into parts, and whichever thread is free takes the next one. No sum is split
 * between parts, so every number equals that of a single thread. Until other threads have started,
 * the first one does all the work.
 */

// indices of the 32-bit counters in the shared memory: the current operation's number together with
// how many of its parts nobody has taken; parts that are done; sleeping threads; started threads
const [WORK, DONE, ASLEEP, HERE, COUNTS] = [0, 1, 2, 3, 4];
const CALL = 18; // numbers of eight bytes: the operation, its number of parts, its arguments
export const SIZE = 4 * COUNTS + 8 * CALL; // bytes of the counters and the call
export const STACK = 65536; // bytes of each thread's stack
const MOST = 4095; // parts of an operation at most
const EACH = 4; // parts for each thread; more than one, because a thread may be held up
const LOOKS = 4000; // times that a thread looks for work before it sleeps: some tens of µs

/** Whether threads can share a memory. @param {WebAssembly.Memory} memory */
export const isShared = (memory) => !(memory.buffer instanceof ArrayBuffer);

export class Crew {
  #number = 0;

  /**
   * at: the address of the counters and the call. @param {WebAssembly.Module} module
   * @param {WebAssembly.Instance} instance @param {WebAssembly.Memory} memory @param {number} at
   */
  constructor(module, instance, memory, at) {
    this.told = { module, memory, at };
    this.counts = new Int32Array(memory.buffer, at, COUNTS);
    this.call = new Float64Array(memory.buffer, at + 4 * COUNTS, CALL);
    this.names = WebAssembly.Module.exports(module).map(({ name }) => name);
    /** @type {Foreign[]} */ this.operations = this.names.map((name) => instance.exports[name]);
  }

  get threads() {
    return 1 + Atomics.load(this.counts, HERE);
  }

  /**
   * Run an operation in as many parts as are of use; all of them are done when this returns.
   * @param {string} name @param {number} most parts @param {number[]} given
   */
  run(name, most, ...given) {
    const { counts, call, threads } = this;
    const parts = Math.min(most, MOST, EACH * threads);
    const which = this.names.indexOf(name);
    if (threads === 1 || parts < 2) {
      this.operations[which](0, 1, ...given);
      return;
    }
    call.set([which, parts, ...given]);
    this.#number = (this.#number + 1) % 2 ** 19;
    Atomics.store(counts, DONE, 0);
    Atomics.store(counts, WORK, this.#number * (MOST + 1) + parts);
    if (Atomics.load(counts, ASLEEP)) Atomics.notify(counts, WORK);
    while (this.#take());
    for (let looks = 0, done; (done = Atomics.load(counts, DONE)) < parts; looks++)
      if (looks > LOOKS) Atomics.wait(counts, DONE, done);
  }

  /** Take parts of every operation that comes, forever. */
  assist() {
    Atomics.add(this.counts, HERE, 1);
    for (let looks = 0; ; looks++) {
      if (this.#take()) looks = 0;
      if (looks < LOOKS) continue;
      Atomics.add(this.counts, ASLEEP, 1);
      const work = Atomics.load(this.counts, WORK);
      if (!(work & MOST)) Atomics.wait(this.counts, WORK, work);
      Atomics.sub(this.counts, ASLEEP, 1);
    }
  }

  /** Take a part and do it; returns whether there was one. Its arguments stay until it is done. */
  #take() {
    const { counts, call } = this;
    const work = Atomics.load(counts, WORK);
    const left = work & MOST;
    if (!left) return false;
    if (Atomics.compareExchange(counts, WORK, work, work - 1) !== work) return true;
    const [which, parts, ...given] = call;
    this.operations[which](left - 1, parts, ...given);
    if (Atomics.add(counts, DONE, 1) + 1 === parts) Atomics.notify(counts, DONE);
    return true;
  }
}

/**
 * Runs in a thread of its own: see `Crew.assist`. stack: the upper end of the thread's stack.
 * @param {{module: WebAssembly.Module, memory: WebAssembly.Memory, at: number, stack: number}} told
 */
export function assist({ module, memory, at, stack }) {
  const instance = new WebAssembly.Instance(module, { env: { memory } });
  const { __stack_pointer: pointer } = /** @type {Foreign} */ (instance.exports);
  pointer.value = stack;
  new Crew(module, instance, memory, at).assist();
}
