// The selected request in numbers, up to the step on screen: when it arrived, how long it waited,
// every gap between its tokens, the size of its cache; and, once the run is over, where all its
// time went.

import { find, h, isRedrawn, put, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { count, joined, milliseconds } from "../parts/format.js";
import { CanvasView, fillBox } from "../parts/surface.js";
import { chip } from "../parts/chips.js";
import { timeOf } from "../run/delays.js";
import { heldBy, heldWords } from "../run/holdings.js";
import { countUpTo } from "../run/run.js";
import { timeBar, timeLegend } from "./time_bar.js";
import { timed } from "./texts.js";

/**
 * The time of each token of a request up to step i, in seconds; null in steps that are not shown.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
function tokensOf(run, request, i) {
  return request.samples.slice(0, countUpTo(request.samples, i)).map((step, k) => {
    if (request.unseen.some(([first, count]) => k >= first && k < first + count)) return null;
    const event = run.events[step];
    // several if a step has several passes
    const mine = event.sampled.filter((s) => s.request === request.id);
    const hidden = request.unseen.filter(([first]) => request.samples[first] === step);
    const unseen = hidden.reduce((n, [, count]) => n + count, 0);
    return event.passes[mine[k - countUpTo(request.samples, step - 1) - unseen].passIndex].tEnd;
  });
}

/**
 * The known gaps between a request's tokens: the seconds, and the number of the token that follows.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function gapsOf(run, request, i) {
  const at = tokensOf(run, request, i);
  const first = (request.before?.generated ?? 0) + 1; // the number of the first token here
  return at.flatMap((t, k) => {
    const last = k ? at[k - 1] : null;
    return t === null || last === null ? [] : [{ token: first + k, seconds: t - last }];
  });
}

/**
 * The times of a request up to step i, in seconds since its arrival; null for what has not
 * happened, or happened in steps that are not shown.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
export function timesOf(run, request, i) {
  const { before } = request;
  const at = tokensOf(run, request, i);
  const arrived = request.arrived ?? 0;
  const began = before?.isUnseen ? null : (before?.computed ?? startOf(run, request, i));
  const first = before?.generated ? before.token : (at[0] ?? null);
  const n = run.numGenerated(request, i);
  const last = at.at(-1) ?? null;
  return {
    waited: began === null ? null : began - arrived,
    ttft: first === null ? null : first - arrived,
    gaps: gapsOf(run, request, i).map(({ seconds }) => seconds),
    tpot: n > 1 && last !== null && first !== null ? (last - first) / (n - 1) : null,
    lost: request.waits.some(([from, , preempted]) => preempted && from < 0)
      ? null
      : run.events
          .slice(0, i + 1)
          .flatMap(({ preempted }) => preempted.filter((p) => p.request === request.id))
          .reduce((sum, { tokensLost }) => sum + tokensLost, 0),
    preemptions: request.waits.filter(
      ([from, , preempted, place]) => preempted && place === undefined && from <= i,
    ).length,
  };
}

/**
 * How a request ended, and in which step or, in steps that are not shown, before which.
 * @param {Run} run @param {RunRequest} request
 * @param {NonNullable<RunRequest["finished"]>} finished
 */
function endWords(run, request, { step, reason }) {
  /** @type {Record<string, string>} */
  const ends = {
    cancelled: run.header.engine ? "ended from outside" : "cancelled",
    error: "failed",
  };
  const isUnseen =
    step < 0 || run.events[step].resumed?.ended.some((ended) => ended.request === request.id);
  return `${ends[reason] || "finished"} ${isUnseen ? "before" : "in"} step ${run.stepOf(Math.max(0, step))}`;
}

/**
 * When the first pass for a request began, in the steps up to i; null if there is none, or if that
 * was in steps that are not shown.
 * @param {Run} run @param {RunRequest} request @param {number} i
 */
function startOf(run, request, i) {
  for (const { segments, passes, resumed } of run.events.slice(0, i + 1)) {
    const now = resumed && [...resumed.running, ...resumed.waiting.filter((w) => w.wasPreempted)];
    if (now?.some((carried) => carried.request === request.id)) return null;
    const first = segments.find((s) => s.request === request.id);
    if (first) return passes[first.passIndex].tStart;
  }
  return null;
}

/**
 * The memory of n cached positions, in words, or null if the model's bytes per position are
 * unknown. @param {Run} run @param {number} n
 */
export function cacheWords(run, n) {
  const bytes = (run.header.model || {}).kv_bytes_per_token;
  if (!bytes) return null;
  const total = n * bytes;
  const [mib, kib] = [total / 2 ** 20, total / 2 ** 10];
  const words = mib >= 1 ? `${mib.toFixed(2)} MiB` : `${kib.toFixed(kib < 10 ? 1 : 0)} KiB`;
  const of = `keys and values of ${count(run.header.model.layers)} [layer|layers]`;
  return [words, `${count(n)} positions × ${count(bytes)} bytes (${of})`];
}

const HALF = new Set(["Waited", "TTFT", "TPOT", "Preempted"]); // two of these share a line

export class RequestCard extends CanvasView {
  /** @param {HTMLElement} panel @param {ViewActions} actions */
  constructor(panel, actions) {
    super(panel, actions, "canvas", ".gaps-key");
    this.name = find(panel, ".card-name");
    this.list = find(panel, "dl");
    this.went = find(panel, ".went-area");
    this.wentKey = find(panel, ".went-key");
    // on a phone the card covers what was tapped, so it stays folded until asked to open
    this.more = find(panel, ".card-more");
    this.more.addEventListener("click", () => this.unfold(panel.classList.contains("folded")));
    find(panel, ".card-close").addEventListener("click", () => actions.pin(null));
    this.rows = new Map();
    /** @type {{request?: RunRequest, run?: Run, language?: string}} */
    this._named = {}; // the request whose name is shown
    this._wentStamp = "";
  }

  /** @param {boolean} on */
  unfold(on) {
    this.panel.classList.toggle("folded", !on);
    this.more.setAttribute("aria-expanded", String(on));
    if (on) this.actions.explain(null);
  }

  /** @param {string} name @param {string} value @param {string | string[] | null} note */
  _row(name, value, note = null) {
    let row = this.rows.get(name);
    if (!row) {
      const [value, note] = [document.createTextNode(""), h("small", {})];
      row = { dt: h("dt", {}), dd: h("dd", {}), value, note };
      row.dd.append(value, note);
      this.list.append(row.dt, row.dd);
      this.rows.set(name, row);
    }
    row.dd.classList.toggle("whole", !HALF.has(name) || Boolean(note));
    tell(row.dt, name);
    const said = t(value);
    if (row.value.data !== said) row.value.data = said;
    setText(row.note, joined([note || ""].flat().map((part) => t(part))));
  }

  /** @param {ViewState} state */
  draw(state) {
    const { run, frame, pinned: request } = state;
    this.panel.hidden = !request;
    if (!request) return;
    const isOther = this._named.request !== request || this._named.run !== run;
    if (isOther) this.unfold(state.layout !== "phone");
    if (isRedrawn(this._named, { request, run, language: state.language })) {
      const id = ` ${timed(run, "request")} ${request.id}`;
      put(this.name, chip(state, request, true), request.by && h("bdi", {}, request.by), id);
    }
    const { waited, ttft, gaps, tpot, preemptions, lost } = timesOf(run, request, frame.i);
    const lane = frame.lanes.find((l) => l.request === request);
    const n = run.numGenerated(request, frame.i);
    const { finished } = request;
    const here =
      request.arrived !== null && request.waits.length > 0 && request.waits[0][0] <= frame.i;
    const stands = lane ? `in lane ${lane.lane}` : "waits";
    const ends = finished && finished.step <= frame.i ? endWords(run, request, finished) : null;
    this._row("Now", here ? (ends ?? stands) : "has not arrived");
    const came = here
      ? `${request.cameUnseen ? "before " : ""}step ${run.stepOf(request.waits[0][0])}, ${milliseconds(request.arrived ?? 0)}`
      : "–";
    const priority = `priority ${request.priority}: the lower, the sooner`;
    this._row("Arrived", came, request.priority ? priority : null);
    const most = request.maxNew ? ` of ${request.maxNew}` : "";
    const prompt = `${count(run.promptLength(request))} prompt [token|tokens]`;
    this._row("Tokens", `${prompt} + ${n}${most}`);
    this._row("Waited", here && waited !== null ? milliseconds(waited) : "–");
    this._row("TTFT", here && ttft !== null ? milliseconds(ttft) : "–");
    this._row("TPOT", tpot === null ? "–" : milliseconds(tpot));
    const often = preemptions === 1 ? "once" : preemptions ? `${preemptions} times` : "never";
    const cost = preemptions && lost !== null ? `lost ${count(lost)} cached [token|tokens]` : null;
    this._row("Preempted", often, cost);
    const cache = lane && !run.isGrouped ? cacheWords(run, lane.kvLen) : null;
    const held = (/** @type {Band} */ band) =>
      lane ? heldWords(band, lane.kvLen, heldBy(run, band, lane, frame.i).tokens) : "";
    const positions = lane ? `${count(lane.kvLen)} [position|positions]` : "none";
    const notes = lane && run.isGrouped ? run.bands.map(held) : cache && cache[1];
    this._row("Cache", cache ? cache[0] : positions, notes);
    this._went(run, request, state.language);
    this._gaps(gaps, state.palette, request);
  }

  /**
   * Show where a request's time went, from its arrival to its end.
   * @param {Run} run @param {RunRequest} request @param {string} language
   */
  _went(run, request, language) {
    const time = timeOf(run, request);
    const stamp = `${request.id}/${language}/${time?.whole}`;
    if (stamp === this._wentStamp) return;
    this._wentStamp = stamp;
    const whole =
      time && `${milliseconds(time.whole)}${time.ended ? " to its end" : ", not at its end"}`;
    tell(this.wentKey, whole || "known when the run has ended");
    const legend =
      time && h("ul", { class: "went-legend wrap nowrap soft fine" }, ...timeLegend(time));
    put(this.went, time && timeBar(time), legend);
  }

  /** @param {ViewState} state */
  table({ run, frame, pinned }) {
    const gaps = pinned ? gapsOf(run, pinned, frame.i) : [];
    const caption = pinned && `${t("Gaps between the tokens of")} ${pinned.letter}`;
    return {
      caption: caption || t("No request is selected"),
      columns: ["Before token", "Gap"],
      rows: gaps.map(({ token, seconds }) => [String(token), t(milliseconds(seconds))]),
    };
  }

  /**
   * Draw every gap as a bar; the mean of the gaps is TPOT.
   * @param {number[]} gaps @param {Palette} palette @param {RunRequest} request
   */
  _gaps(gaps, palette, request) {
    const { surface } = this;
    const most = Math.max(...gaps, 1e-9);
    const all = `${count(gaps.length)} [gap|gaps], longest ${milliseconds(most)}`;
    tell(this.key, gaps.length ? all : "none yet");
    if (!surface.visible) return;
    const g = surface.begin();
    fillBox(g, palette.empty, 0, 0, surface.w, surface.h);
    if (!gaps.length) return;
    const unit = Math.min(14, surface.w / gaps.length);
    g.fillStyle = palette.of(request).solid;
    gaps.forEach((gap, k) => {
      const height = Math.max(1, (gap / most) * (surface.h - 4));
      g.fillRect(k * unit, surface.h - height, Math.max(0.7, unit - (unit > 3 ? 1 : 0)), height);
    });
  }
}
