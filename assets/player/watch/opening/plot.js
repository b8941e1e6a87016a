// What the opening tells, computed from two recorded runs of the same requests: which request is done first, which one keeps the others waiting, which one
// joins early, and when each sentence is said. No DOM and no canvas.
//
//   seconds of the opening ─ clock ─→ the moment of the runs ─→ what each has written by then
//
// The clock is bent, not the data: a token takes a few thousandths of a second, so time passes slowly at first, token by token, and fast at the end. Both
// runs are always at the same moment.

import { clamp } from "../../parts/dom.js";
import { unbroken } from "../../parts/format.js";
import { t } from "../../parts/speech.js";
import { countUpTo } from "../../run/run.js";
import { easeBoth, lerp } from "../../views/phases.js";

export const LENGTH = 20; // seconds of the opening

/** @type {(x: number, from: number, to: number) => number} */
export const share = (x, from, to) => clamp((x - from) / (to - from), 0, 1);

const NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"];
/** A small number as a word. @param {number} n */
export const inWords = (n) => (n < NUMBERS.length ? t(NUMBERS[n]) : String(n));
export const capital = (/** @type {string} */ word) => word[0].toUpperCase() + word.slice(1);
/** @param {number} s */
export const inSeconds = (s, decimals = 2) => t(`${s.toFixed(decimals)} s`);
/** The same within a sentence, without a line break. @param {number} s */
const told = (s, decimals = 2) => unbroken(inSeconds(s, decimals));

/** A recorded run on a clock that counts seconds from its first step. */
export class Course {
  /** @param {Run} run */
  constructor(run) {
    this.run = run;
    this.start = run.events[0].tStart;
    this.end = run.span(true);
    this.lives = run.requests.map((request) => {
      const [{ lane, from, to }] = request.laneSpans;
      return {
        request,
        lane,
        from,
        enters: run.events[from].tStart - this.start,
        done: this.endOf(request.finished?.step ?? 0),
        leaves: this.endOf(Math.min(to, run.length - 1)),
      };
    });
  }

  /** When step i ends, in seconds. @param {number} i */
  endOf(i) {
    return this.run.events[i].tEnd - this.start;
  }

  /** The number of steps that have ended. @param {number} moment */
  completed(moment) {
    return countUpTo(this.run.events, moment + 1e-9, (e) => e.tEnd - this.start);
  }

  /** How many tokens request `r` has by a moment. @param {number} r @param {number} moment */
  written(r, moment) {
    const steps = this.completed(moment);
    return steps ? this.run.numGenerated(this.lives[r].request, steps - 1) : 0;
  }
}

/** Whether the story fits a run: each request held one lane once, and finished. @param {Run} run */
const isPlain = (run) =>
  run.length > 1 && run.requests.every((r) => r.laneSpans.length === 1 && r.finished);

export class Plot {
  /**
   * @param {Run} before with static batching @param {Run} after with continuous batching: the same
   * requests
   */
  constructor(before, after) {
    for (const request of before.requests) request.hue = after.request(request.id).hue;
    this.slow = new Course(before);
    this.fast = new Course(after);
    const { slow, fast } = this;
    this.prompts = after.requests.map((r) => after.said(r).join("").trim());
    const others = slow.lives.map((life, r) => ({ ...life, r }));
    const ending = others.filter((life) => life.from === 0).sort((a, b) => a.done - b.done);
    this.first = ending[0].r; // the first request to be done
    this.longest = ending[ending.length - 1].r;
    // requests that wait before the door
    this.shut = others.filter((life) => life.from > 0).map((life) => life.r);
    // the first request to join later
    this.next = fast.lives
      .map((life, r) => ({ ...life, r }))
      .filter((life) => life.from > 0)
      .sort((a, b) => a.enters - b.enters)[0].r;
    this.hood = fast.lives[this.next].from - 1; // the step before it joins
    const [free, open] = [slow.lives[this.first].done, slow.lives[this.longest].done];
    this.closest = free * 1.8; // seconds across the chart when it is closest
    // [second of the opening, moment of the runs then, bend of the clock before; 0: it eases back]
    this._clock = [
      [5.2, 0, 1],
      [7.1, free * 1.08, 1],
      [10.4, open * 1.03, 2.2],
      [10.8, open * 1.03, 1],
      [11.6, 0, 0],
      [11.9, 0, 1],
      [14.5, fast.lives[this.first].done * 1.55, 1],
      [18.2, Math.max(slow.end, fast.end), 2.2],
    ];
    /** @type {Map<string, number[]>} */
    this._entries = new Map();
    this.said = this._sentences();
    this.pictures = this._pictures();
  }

  /** The story of two runs; null if it does not fit them. @param {Run} before @param {Run} after */
  static of(before, after) {
    const same =
      before.requests.length === after.requests.length &&
      before.requests.every((r) => after.request(r.id));
    if (!same || !isPlain(before) || !isPlain(after) || before.requests.length > 8) return null;
    const waits = (/** @type {Run} */ run) => run.requests.some((r) => r.laneSpans[0].from > 0);
    return waits(before) && waits(after) ? new Plot(before, after) : null;
  }

  /** The moment of the runs, in seconds. @param {number} at seconds of the opening */
  moment(at) {
    const clock = this._clock;
    const next = clock.findIndex(([till]) => at < till);
    if (next === 0) return 0;
    if (next < 0) return clock[clock.length - 1][1];
    const [[from, before], [till, after, bend]] = [clock[next - 1], clock[next]];
    const p = share(at, from, till);
    return lerp(before, after, bend ? p ** bend : easeBoth(p));
  }

  /** Seconds across the chart, more and more as time goes by. @param {number} moment */
  extent(moment) {
    return clamp(moment * 1.14, this.closest, this.slow.end * 1.07);
  }

  /**
   * When each request enters its lane, in seconds of the opening.
   * @param {Course} course @param {boolean} again the second time that the clock runs
   */
  entries(course, again) {
    const key = `${course === this.fast}${again}`;
    let found = this._entries.get(key);
    if (!found) {
      const [from, to] = again ? [11.9, 18.2] : [5.2, 10.8];
      found = course.lives.map((life) => {
        for (let at = from; at < to; at += 0.02) if (this.moment(at) >= life.enters) return at;
        return Infinity;
      });
      this._entries.set(key, found);
    }
    return found;
  }

  /**
   * The last second of the opening before a moment of the runs, the first time that the clock runs.
   * @param {number} moment
   */
  _before(moment) {
    let at = 10.4;
    while (at > 5.2 && this.moment(at) >= moment - 5e-4) at -= 0.005;
    return at;
  }

  /** The first second from `from` on at which no chip is moving to a lane. @param {number} from */
  _landed(from) {
    const entries = [this.slow, this.fast].flatMap((course) => this.entries(course, true));
    let at = from;
    while (entries.some((entry) => entry <= at && at < entry + 0.5)) at += 0.02;
    return at;
  }

  /** @param {number} r @returns {Span} */
  _who(r) {
    return { request: this.fast.lives[r].request };
  }

  /**
   * The sentences, each with the second from which it is said: at most twelve words, because four a
   * second can be read beside a moving picture. @returns {[number, () => Span[]][]}
   */
  _sentences() {
    const { slow, first, longest, next } = this;
    const who = (/** @type {number} */ r) => this._who(r);
    return [
      [0, () => [t("{many} people ask one model.", { many: capital(inWords(slow.lives.length)) })]],
      [
        3.5,
        () => [
          t("The old way: {many} get in, then the door is shut.", {
            many: inWords(slow.run.numLanes),
          }),
        ],
      ],
      [7, () => [who(first), t(" is done. Its lane works on, for nobody.")]],
      [
        9,
        () => [
          ...this._shut(),
          t(this.shut.length > 1 ? " get in only when " : " gets in only when "),
          who(longest),
          t(" finishes."),
        ],
      ],
      [10.8, () => [t("Continuous batching: the same people, the same model, the same clock.")]],
      [13.6, () => [who(first), t(" is done, and "), who(next), t(" is in at once.")]],
      [15.6, () => [t("Whoever leaves makes room. Nobody waits for the longest.")]],
      [18.1, () => [this.sum()]],
    ];
  }

  /**
   * The four still pictures: the second of each, and its text, which can be longer because nothing
   * moves.
   * @returns {[number, () => Span[]][]}
   */
  _pictures() {
    const { slow, fast, first, next } = this;
    const who = (/** @type {number} */ r) => this._who(r);
    return [
      [
        3.3,
        () => [
          t("{many} people ask one model at the same moment. It has {lanes} lanes.", {
            many: capital(inWords(slow.lives.length)),
            lanes: inWords(slow.run.numLanes),
          }),
        ],
      ],
      [
        this._before(this._wait()),
        () => [
          ...this._shut(),
          t(" wait {time}, while {pads} of {lanes} lanes work for nobody.", {
            time: told(this._wait()),
            pads: inWords(slow.lives.filter((l) => l.from === 0).length - 1),
            lanes: inWords(slow.run.numLanes),
          }),
        ],
      ],
      [
        this._landed(14.5),
        () => [
          who(first),
          t(" is done, so "),
          who(next),
          t(" takes its lane at once. It waited {fast}, not {slow}.", {
            fast: told(fast.lives[next].enters),
            slow: told(slow.lives[next].enters),
          }),
        ],
      ],
      [LENGTH, () => [this.sum()]],
    ];
  }

  /** How long requests waited before the door, at least. */
  _wait() {
    return Math.min(...this.shut.map((r) => this.slow.lives[r].enters));
  }

  /** @returns {Span[]} */
  _shut() {
    return this.shut.flatMap((r, i) => (i ? [" ", this._who(r)] : [this._who(r)]));
  }

  /** The conclusion. */
  sum() {
    const { slow, fast } = this;
    return t("The same {many} requests: done in {fast} instead of {slow}.", {
      many: inWords(slow.lives.length),
      fast: told(fast.end, 1),
      slow: told(slow.end, 1),
    });
  }

  /** The index of the sentence at a second. @param {number} at */
  sentence(at) {
    return this.said.findLastIndex(([from]) => from <= at);
  }
}
