// The state of a run: folds events into which request held which lane, how long each cache was, and which waited. Its frames are
// those of core/trace/run_state.py; its events have the fields of core/trace/events.py, named as in visualizer/documents/replay.py.
//
//   events ─ append ─→ requests (waits, laneSpans, samples) + per step: holder, status and KV length of each lane
//   frame(i) ─→ everything that step i shows, the same whether stepped or jumped to

import { dealHue } from "../parts/colours.js";
import { speaking } from "../parts/speech.js";
import { eventReader } from "./events.js";
import { bandsOf, take } from "./holdings.js";
import { passesOf } from "./passes.js";
import { goOnFrom } from "./resumed.js";
import { waitingAt } from "./waiting.js";

export const PREFILL = 1;
export const DECODE = 2;
export const WASTED = 4;
export const STALLED = 8;
export const PREEMPTED = 16;
export const OVERRUN = 32;
export const HELD = PREFILL | DECODE | WASTED | STALLED | OVERRUN; // a request is in the lane

/** Whether a request that ends for this reason has its full answer. @param {string} reason */
export const isDone = (reason) => !["cancelled", "error"].includes(reason);
/** The requests whose answers are complete with a step. @param {StepEvent} event */
export const whoIsDone = ({ finished }) => finished.filter((one) => isDone(one.finishReason));

const NO_TEXT = "—"; // shown for a token of a simulated run, which no model chose

/**
 * The number of entries of `list` with values of at most `x`; the list is sorted by value,
 * ascending. value: computes the value from an entry and its index.
 * @template T
 * @param {T[]} list @param {number} x @param {(entry: T, i: number) => number} value
 */
export function countUpTo(list, x, value = Number) {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (value(list[mid], mid) <= x) low = mid + 1;
    else high = mid;
  }
  return low;
}

export class Run {
  /** @param {Replay} replay */
  constructor(replay) {
    this.header = replay.header;
    /** @type {(event: Record<string, unknown>) => StepEvent} */
    this._read = replay.records
      ? eventReader(replay.records)
      : (event) => /** @type {StepEvent} */ (/** @type {unknown} */ (event));
    this.complete = replay.complete !== false;
    this.goesOn = false; // more steps will come
    this.isHeld = () => false; // whether requests wait for the next run instead of a lane of this one
    this.room = Infinity; // the most steps kept; beyond it the oldest are dropped
    /** @type {Record<string, Replay["totals"]>} */
    this.totalsIn = { "": replay.totals }; // language → {name, value, means}[]
    // where each request's time went, see delays.js; known once the run is over
    this.delays = replay.delays || null;
    /** @type {StepEvent[]} */
    this.events = [];
    /** @type {Caption[]} */
    this.captions = [];
    /** @type {Record<string, Caption[]>} */
    this.translations = {}; // language → captions, for a run sent in several languages
    /** @type {{i: number, say: () => Span[], in: Record<string, Caption>} | null} */
    this.replaced = null; // the caption that replaces a step's own, by language
    for (const [language, said] of Object.entries(replay.others || {})) {
      if (!said) continue;
      this.translations[language] = [...said.captions];
      this.totalsIn[language] = said.totals;
    }
    /** @type {RunRequest[]} */
    this.requests = []; // in order of arrival
    /** @type {LaneSpan[]} */
    this.laneSpans = [];
    /** @type {number[][]} */
    this.holders = []; // step -> lane -> index into laneSpans, or -1
    /** @type {number[][]} */
    this.statuses = []; // step -> lane -> bits
    /** @type {number[][]} */
    this.kvLens = []; // step -> lane -> positions in the cache at the end of the step
    /** @type {{prompt: Record<string, string[]>, output: Record<string, string[]>}} */
    this.texts = { prompt: Object.create(null), output: Object.create(null) };
    /** @type {Record<string, (string | null)[]>} */
    this._said = Object.create(null); // request -> pieces of its messages, null for the template's
    /** @type {Record<string, string>} */
    this.letters = Object.create(null); // request -> letter
    this.longest = 1; // longest cache so far
    /** @type {number[]} */
    this.numWaiting = []; // step -> requests waiting
    /** @type {{from: number, places: Map<string, number>}[]} */
    this.queues = []; // recorded orders of the queue, each from its step on
    /** @type {Map<string, RunRequest>} */
    this._byId = new Map();
    this._hues = new Map(); // request -> hue, if assigned by the server
    this._asked = new Map();
    this._lastHue = -1;
    /** @type {(LaneSpan | null)[]} */
    this._leaving = []; // those that end with the latest step
    this._waitingNow = 0;
    /** @type {Frame | null} */
    this._frame = null; // the latest one made
    const config = this.header.config || {};
    const batching = this.header.batching || {}; // the policy's own fields
    this.numLanes = batching.one_lane ? 1 : config.max_num_seqs || 1;
    /** @type {number[]} */
    this._laneNow = new Array(this.numLanes).fill(-1); // lane -> laneSpan index, while folding
    this.blockSize = config.block_size || 1;
    /** @type {KVGroup[]} */
    this.groups = (this.header.kv_groups || [{}]).map(
      (
        /** @type {{kind?: string, window?: number | null, block_size?: number, units?: number, layers?: number[] | null}} */ g,
      ) => ({
        kind: g.kind || "",
        window: g.window || null,
        blockSize: g.block_size || this.blockSize,
        units: g.units || 1,
        layers: g.layers || null,
      }),
    );
    this.bands = bandsOf(this.groups);
    // whether layers differ, or give blocks back before a request ends
    this.isGrouped = Boolean(this.header.kv_groups);
    this.numBlocks = this.header.num_blocks || config.num_blocks || 0;
    this._planned = new Map(
      ((this.header.workload || {}).requests || []).map((/** @type {Json} */ r) => [r.id, r]),
    );
    this.windows = (this.header.model || {}).windows || [null];
    // the number of the first step here, from which earlier steps are counted back
    this._first = replay.begin ? replay.begin.step : 0;
    this._note(replay);
    for (const known of replay.begin ? replay.begin.requests : []) this._resume(known);
    if (replay.begin) this._order(replay.begin.queue, -1);
    this.append(replay.events || [], replay.captions || []);
  }

  get length() {
    return this.events.length;
  }

  /**
   * The number of the step at an index. Idle steps have no event, so numbers may skip. Steps before
   * the first one here have indices below 0. @param {number} i
   */
  stepOf(i) {
    return i < 0 ? this._first + i : this.events[i].step;
  }

  /** The length of the run, in steps or in seconds. @param {boolean} clock in seconds */
  span(clock) {
    const [first, last] = [this.events[0], this.events[this.length - 1]];
    return clock ? last.tEnd - first.tStart : last.step + 1 - first.step;
  }

  /** The index of a step, or of the last one before it. @param {number} step */
  indexOf(step) {
    return Math.max(0, countUpTo(this.events, step, (e) => e.step) - 1);
  }

  /** The request with this id, which an event here names. @param {string} id */
  request(id) {
    return /** @type {RunRequest} */ (this._byId.get(id));
  }

  /** @param {Beside} beside */
  _note({ texts, letters, hues, asked }) {
    Object.assign(this.letters, letters);
    Object.assign(this._said, texts?.said);
    for (const [id, hue] of Object.entries(hues || {})) this._hues.set(id, hue);
    for (const [id, what] of Object.entries(asked || {})) this._asked.set(id, what);
    for (const side of /** @type {const} */ (["prompt", "output"]))
      for (const [id, pieces] of Object.entries(texts?.[side] || {})) {
        const known = (this.texts[side][id] ??= []);
        for (const piece of pieces) known.push(piece);
      }
  }

  /** Add a request from before the first step: see documents/live.py. @param {Json} given */
  _resume({ id, hue, arrived, waits, laneSpans, kvLen, tables, reason, ...before }) {
    const request = this._meet(id);
    const from = (/** @type {number} */ step) => step - this._first;
    const to = (/** @type {number | null} */ step) => (step === null ? Infinity : from(step));
    Object.assign(request, {
      hue,
      arrived,
      before,
      waits: waits.map((/** @type {[number, number | null, boolean, ...number[]]} */ given) => {
        const [first, last, preempted, ...since] = given;
        return [from(first), to(last), preempted, ...since.map(from)];
      }),
    });
    if (request.waits.at(-1)?.[1] === Infinity) this._waitingNow += 1;
    for (const [lane, first, last] of laneSpans) {
      const laneSpan = this._enter(request, lane, from(first), to(last));
      if (last !== null) continue;
      Object.assign(laneSpan, { kvLen, hit: kvLen });
      tables.forEach((/** @type {(number | null)[]} */ table, /** @type {number} */ group) =>
        take(laneSpan, group, table, -1),
      );
    }
    if (reason) request.finished = { step: -1, reason };
    this.longest = Math.max(this.longest, kvLen);
  }

  /** The totals of the run, in the current language if the run has them in it. */
  get totals() {
    return this.totalsIn[speaking()] || this.totalsIn[""] || [];
  }

  /** A step's caption, in the current language if there is one, or null. @param {number} i */
  captionAt(i) {
    const own = (this.translations[speaking()] || this.captions)[i] || null;
    if (this.replaced?.i !== i) return own;
    const { simple, ...caption } = own || { say: [], why: [], waits: "", bound: "" };
    const why = caption.say.length ? [caption.say, ...caption.why] : caption.why;
    return (this.replaced.in[speaking()] ??= { ...caption, say: this.replaced.say(), why });
  }

  /**
   * Replace a step's caption; the old one becomes the first of its reasons.
   * @param {number} i @param {() => Span[]} say gives the caption in the current language
   */
  replaceCaption(i, say) {
    this.replaced = { i, say, in: {} };
  }

  /**
   * Add more steps, with their captions and what else comes with them.
   * @param {Record<string, unknown>[]} events @param {Caption[]} captions @param {Beside} also
   */
  append(events, captions = [], also = {}) {
    this._note(also);
    for (const event of events) this._fold(this._read(event));
    for (const caption of captions) this.captions.push(caption);
    for (const [language, captions] of Object.entries(also.translations || {}))
      (this.translations[language] ??= []).push(...captions);
    this._frame = null;
  }

  /** @param {string} id */
  _meet(id) {
    let request = this._byId.get(id);
    if (!request) {
      const plan = this._planned.get(id);
      const asked = this._asked.get(id);
      request = {
        id,
        index: this.requests.length,
        letter: this.letters[id] ?? id,
        hue: -1,
        // the sender's name; whether a program of ours sent it; whether this visitor did
        by: (asked && asked.by) || "",
        isBot: Boolean(asked && asked.isBot),
        isOwn: Boolean(asked && asked.isOwn),
        maxNew: asked ? asked.maxNew : plan && plan.sampling ? plan.sampling.max_new_tokens : null,
        priority: plan?.priority ?? 0, // lower comes first
        // its state before the first step here: {generated, computed, isUnseen, token}
        before: null,
        arrived: null, // seconds
        waits: [], // [first step, last step, preempted]
        laneSpans: [],
        samples: [], // the step of each generated token
        lastToken: null, // the id of the last generated token
        // [first, count] of tokens sampled in steps that are not shown; whether it came in one
        unseen: [],
        cameUnseen: false,
        finished: null,
      };
      this.requests.push(request);
      this._byId.set(id, request);
    }
    return request;
  }

  /** The length of the prompt, or 0 if not known. @param {RunRequest} request */
  promptLength(request) {
    const pieces = this.texts.prompt[request.id];
    return pieces ? pieces.length : 0;
  }

  /**
   * Whether the token at a position was added by the model's chat template.
   * @param {RunRequest} request @param {number} position
   */
  isTemplate(request, position) {
    return this._said[request.id]?.[position] === null;
  }

  /**
   * The pieces of a prompt that somebody wrote. Where a chat template wrote the rest: the messages,
   * with a break between them and a blank before the answer. @param {RunRequest} request
   */
  said(request) {
    const prompt = this.texts.prompt[request.id] || [];
    const said = this._said[request.id];
    if (!said) return prompt;
    const first = said.findIndex((piece) => piece !== null);
    const last = said.findLastIndex((piece) => piece !== null);
    return said
      .slice(first, last + 1)
      .flatMap((piece, i, all) => piece ?? (all[i - 1] === null ? [] : "\n"))
      .concat(" ");
  }

  /** @param {RunRequest} request @param {number} i @param {boolean} preempted */
  _startWaiting(request, i, preempted) {
    request.waits.push([i, Infinity, preempted]);
    this._waitingNow += 1;
  }

  /** Note the order of the queue from step i on. @param {string[]} queue @param {number} i */
  _order(queue, i) {
    this.queues.push({ from: i, places: new Map(queue.map((request, place) => [request, place])) });
  }

  /** @param {RunRequest} request @param {number} i */
  _stopWaiting(request, i) {
    const wait = request.waits.at(-1);
    if (!wait || wait[1] !== Infinity) return;
    wait[1] = i - 1;
    this._waitingNow -= 1;
  }

  /**
   * Begin a stay in a lane. to: its last step, if the request was preempted before the first step
   * here. @param {RunRequest} request @param {number} lane @param {number} from
   */
  _enter(request, lane, from, to = Infinity) {
    /** @type {LaneSpan} */
    const laneSpan = {
      index: this.laneSpans.length,
      request,
      lane,
      from,
      to,
      end: to === Infinity ? null : "preempted",
      places: [],
      ends: this.groups.map(() => 0),
      kvLen: 0,
    };
    this.laneSpans.push(laneSpan);
    request.laneSpans.push(laneSpan);
    if (to < Infinity) return laneSpan;
    request.live = true;
    this._laneNow[lane] = laneSpan.index;
    return laneSpan;
  }

  /** @param {LaneSpan | null} laneSpan @param {number} to its last step @param {string} end */
  _leave(laneSpan, to, end) {
    if (!laneSpan) return;
    Object.assign(laneSpan, { to, end });
    if (this._laneNow[laneSpan.lane] === laneSpan.index) this._laneNow[laneSpan.lane] = -1;
    laneSpan.request.live = false;
  }

  /** The stay of a request in its current lane, or null. @param {string} id */
  _laneSpanOf(id) {
    const laneSpan = this._meet(id).laneSpans.at(-1);
    return laneSpan?.to === Infinity ? laneSpan : null;
  }

  /** @param {RunRequest} request */
  _dealHue(request) {
    if (request.hue >= 0) return;
    const isHere = (/** @type {RunRequest} */ r) => r.live || r.waits.at(-1)?.[1] === Infinity;
    const live = this.requests.filter((r) => r.hue >= 0 && isHere(r)).map((r) => r.hue);
    request.hue = this._lastHue = this._hues.get(request.id) ?? dealHue(live, this._lastHue);
  }

  /** Add the next step. @param {StepEvent} event */
  _fold(event) {
    const i = this.events.length;
    for (const laneSpan of this._leaving) this._leave(laneSpan, i - 1, "finished");
    this._leaving = [];
    const overrun = new Set(event.overrun.map((o) => o.request));
    if (event.resumed) goOnFrom(this, event.resumed, i);

    // at the start of the step: arrivals, cancellations, preemptions, admissions
    for (const { request, t } of event.arrived) {
      const met = this._meet(request);
      met.arrived = t;
      this._startWaiting(met, i, false);
    }
    for (const { request, finishReason } of event.finished) {
      const met = this._meet(request);
      met.finished = { step: i, reason: finishReason };
      if (finishReason === "cancelled") this._stopWaiting(met, i);
    }
    for (const { request, when } of event.released)
      if (when === "before") this._leave(this._laneSpanOf(request), i - 1, "finished");
    const status = new Array(this.numLanes).fill(0);
    for (const { request, lane } of event.preempted) {
      const met = this._meet(request);
      this._leave(this._laneSpanOf(request), i - 1, "preempted");
      this._startWaiting(met, i, true);
      status[lane] |= PREEMPTED;
    }
    for (const { request, lane } of event.admitted) {
      const met = this._meet(request);
      this._stopWaiting(met, i);
      this._dealHue(met);
      this._enter(met, lane, i);
    }
    if (event.queue?.length) this._order(event.queue, i);
    for (const { request, numCachedTokens } of event.kv.prefixHits) {
      const laneSpan = this._laneSpanOf(request);
      if (laneSpan) [laneSpan.kvLen, laneSpan.hit] = [numCachedTokens, numCachedTokens];
    }

    // the passes
    for (const { request, added, group = 0, left = [] } of event.kv.changes) {
      const laneSpan = this._laneSpanOf(request);
      if (laneSpan) take(laneSpan, group, added, i, left);
    }
    for (const s of event.segments) {
      const laneSpan = this._laneSpanOf(s.request);
      if (laneSpan) laneSpan.kvLen = s.kvLen;
      this.longest = Math.max(this.longest, s.kvLen);
      status[s.lane] |= overrun.has(s.request) ? OVERRUN : s.phase === "decode" ? DECODE : PREFILL;
    }
    for (const forward of event.passes)
      for (const { lane } of forward.finishedRows) status[lane] |= WASTED;
    for (const { request } of event.stalled) {
      const laneSpan = this._laneSpanOf(request);
      if (laneSpan) status[laneSpan.lane] |= STALLED;
    }
    for (const { request, tokenId } of event.sampled) {
      const met = this._meet(request);
      met.samples.push(i);
      met.lastToken = tokenId;
    }

    const holder = this._laneNow.slice(0, this.numLanes);
    this.holders.push(holder);
    this.statuses.push(status);
    this.kvLens.push(holder.map((index) => (index < 0 ? 0 : this.laneSpans[index].kvLen)));
    this.numWaiting.push(this._waitingNow);
    this.events.push(event);

    for (const { request, drafted, accepted } of event.drafts) {
      const laneSpan = this._laneSpanOf(request);
      // positions of rejected drafts are dropped
      if (laneSpan) laneSpan.kvLen -= drafted - accepted;
    }
    for (const { request, when } of event.released)
      if (when === "after") this._leaving.push(this._laneSpanOf(request));
  }

  /** The requests that wait in step i, in the order of the queue. @param {number} i */
  waitingAt(i) {
    return waitingAt(this, i);
  }

  /** Tokens generated by the end of step i. @param {RunRequest} request @param {number} i */
  numGenerated(request, i) {
    return (request.before ? request.before.generated : 0) + countUpTo(request.samples, i);
  }

  /** Whether the model ended an answer itself, with an end token. @param {RunRequest} request */
  endedItself({ finished, lastToken }) {
    return finished?.reason === "stop" && this.header.model?.eos_token_ids?.includes(lastToken);
  }

  /**
   * The pieces from ≤ n < end of an answer as it is read, in which the token that ended it is
   * empty. @param {RunRequest} request @param {number} from @param {number} end
   */
  answer(request, from = 0, end = Infinity) {
    const all = this.texts.output[request.id] || [];
    const pieces = all.slice(from, end);
    const hasLast = pieces.length && end >= all.length;
    return hasLast && this.endedItself(request) ? pieces.with(-1, "") : pieces;
  }

  /** A request's new text in step i, by token. @param {RunRequest} request @param {number} i */
  newPieces(request, i) {
    const [from, end] = [this.numGenerated(request, i - 1), this.numGenerated(request, i)];
    return this.isSimulated
      ? Array.from({ length: end - from }, () => NO_TEXT)
      : this.answer(request, from, end);
  }

  /**
   * The text of the token at a position in prompt + output.
   * @param {RunRequest} request @param {number} position
   */
  tokenText(request, position) {
    const prompt = this.texts.prompt[request.id] || [];
    if (position < prompt.length) return prompt[position];
    if (this.isSimulated) return NO_TEXT;
    const output = this.texts.output[request.id] || [];
    return output[position - prompt.length] ?? "";
  }

  /** Whether no model ran, so that tokens have no text. */
  get isSimulated() {
    return this.header.source === "simulated";
  }

  /** Whether requests came while the engine ran, as those of visitors do. */
  get isInteractive() {
    const { name, arrival_unit: unit } = this.header.workload || {};
    return name === "interactive" && unit === "s";
  }

  /**
   * The requests of this run for another one. Visitors' requests arrive in the steps in which they
   * came, since their pauses, and the pace that a teacher set, say nothing about a policy.
   */
  get workload() {
    const { workload } = this.header;
    if (!this.isInteractive) return workload;
    const came = new Map(this.requests.map(({ id, waits }) => [id, waits[0]?.[0] ?? 0]));
    const requests = workload.requests.map((/** @type {Json} */ request) => ({
      ...request,
      arrival: came.get(request.id) ?? 0,
    }));
    return { ...workload, name: "custom", arrival_unit: "step", requests };
  }

  get asynchronous() {
    return Boolean((this.header.execution || {}).asynchronous);
  }

  /**
   * Seconds that the device of an asynchronous run was idle before step i; whether it waited for
   * the host or had nothing to serve; whether that is worth showing. Null if it was not idle.
   * @param {number} i
   */
  idleBefore(i) {
    if (!this.asynchronous || i < 1) return null;
    const seconds = this.events[i].tStart - this.events[i - 1].tEnd;
    if (seconds <= 0) return null;
    const served =
      this.numWaiting[i - 1] > 0 ||
      this.holders[i - 1].some((index) => index >= 0 && this.laneSpans[index].to >= i);
    const step = this.events[i].tEnd - this.events[i].tStart;
    return { seconds, forHost: served, worth: seconds > 0.01 * step };
  }

  /** Everything that step i shows. @param {number} i */
  frame(i) {
    const caption = this.captionAt(i);
    if (this._frame && this._frame.i === i && this._frame.caption === caption) return this._frame;
    const event = this.events[i];
    // the start of each request's first segment
    const starts = new Map([...event.segments].reverse().map((s) => [s.request, s.start]));
    const lanes = this.holders[i].map((index, lane) => {
      const laneSpan = index < 0 ? null : this.laneSpans[index];
      const request = laneSpan && laneSpan.request;
      const [status, kvLen] = [this.statuses[i][lane], this.kvLens[i][lane]];
      // its first segment starts where its cache ended
      const before = (request && starts.get(request.id)) ?? kvLen;
      return { lane, laneSpan, request, status, kvLen, before };
    });
    const vanished = event.preempted.map((p) => {
      const request = this.request(p.request);
      const laneSpan = request.laneSpans.findLast((s) => s.end === "preempted" && s.to === i - 1);
      return { ...p, request, laneSpan };
    });
    const [waiting, passes] = [this.waitingAt(i), passesOf(this, event)];
    this._frame = { i, event, caption, lanes, vanished, waiting, passes };
    return this._frame;
  }

  /**
   * The index of a step to open with: prefill beside decode, several requests, a readable number of
   * tokens; the middle of the run if no step mixes prefill and decode.
   */
  openingStep() {
    let best = Math.floor(this.length / 2);
    let score = -1;
    for (let i = 0; i < this.length; i += 1) {
      const { segments, waiting } = this.events[i];
      const reading = new Set(segments.filter((s) => s.phase === "prefill").map((s) => s.request));
      const writing = segments.filter((s) => s.phase === "decode" && !reading.has(s.request));
      const tokens = segments.reduce((n, s) => n + s.length, 0);
      if (!writing.length || !reading.size) continue;
      const points =
        Math.min(writing.length, 4) +
        Math.min(reading.size, 2) +
        (waiting.count > 0 ? 1.5 : 0) +
        (tokens > 8 && tokens < 64 ? 2 : 0);
      if (points > score) [best, score] = [i, points];
    }
    return best;
  }

  /**
   * The steps of a kind: "admission", "chunk" (a prompt computed in pieces), "preemption", "finish"
   * or "any". @param {string} kind
   */
  eventSteps(kind) {
    /** @type {Record<string, (e: StepEvent) => boolean>} */
    const tests = {
      admission: (e) => e.admitted.length > 0,
      chunk: (e) => e.segments.some((s) => s.phase === "prefill" && this._isChunk(s)),
      preemption: (e) => e.preempted.length > 0,
      finish: (e) => e.finished.length > 0,
    };
    const chosen = kind === "any" ? Object.values(tests) : [tests[kind]];
    return this.events.flatMap((e, i) => (chosen.some((test) => test(e)) ? [i] : []));
  }

  /** @param {Segment} segment */
  _isChunk(segment) {
    const request = this.request(segment.request);
    return segment.start > 0 || segment.kvLen < this.promptLength(request);
  }
}
