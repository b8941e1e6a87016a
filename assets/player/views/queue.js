// The waiting requests and why they wait, how the token budget was split, lanes and blocks as
// gauges, and which limit bound the step. Numbers come from the event, words from its caption.

import { dims } from "../parts/colours.js";
import { find, h, isRedrawn, setAttr, setStyle, setText } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";
import { count, joined, milliseconds } from "../parts/format.js";
import { chip, wasAdmitted } from "../parts/chips.js";
import { movingIn, phase } from "./phases.js";
import { timed } from "./texts.js";

const PARTS = ["schedule", "prepare", "forward", "sample", "other"];

/**
 * @typedef {{el: HTMLElement, box: HTMLElement, text: HTMLElement, since: HTMLElement, why:
 * HTMLElement, request?: RunRequest | null, run?: Run, seen?: boolean}} QueueRow
 */

/**
 * The parts of the budget's bar, in tokens by request and phase, and the number that its whole
 * width stands for. Pads do not count towards a limit, so they are a part only if there is none.
 * @param {Run} run @param {Frame} frame
 */
export function budgetParts(run, { event, passes }) {
  const { limit, decode, prefill } = event.budget;
  const pads = passes.reduce((n, p) => n + p.padding, 0);
  /** @type {Map<string, {request: RunRequest | null, phase: string, n: number}>} */
  const byRequest = new Map();
  const nothing = new Set(event.overrun.map((o) => o.request));
  for (const s of event.segments) {
    const phase = nothing.has(s.request) ? "overrun" : s.phase;
    const key = phase + s.request;
    const n = (byRequest.get(key)?.n || 0) + s.length;
    byRequest.set(key, { request: run.request(s.request), phase, n });
  }
  const parts = [...byRequest.values()].sort((a, b) =>
    a.phase < b.phase ? -1 : a.phase > b.phase ? 1 : 0,
  );
  if (limit === null && pads) parts.push({ request: null, phase: "pads", n: pads });
  return { parts, pads, total: limit ?? decode + prefill + pads };
}

/**
 * Where a step's seconds went, as measured; "other" is the rest. In an asynchronous run the host
 * works beside the device. Null: another engine did not record it.
 * @param {Run} run @param {Frame["event"]} event
 */
export function timeParts(run, { tStart, tEnd, timings: { schedule, prepare, forward, sample } }) {
  const beside = run.asynchronous;
  const rest = tEnd - tStart - forward - sample - (beside ? 0 : schedule + prepare);
  const other = Math.max(0, rest);
  return beside
    ? { forward, sample, other, "host: schedule": schedule, "host: prepare": prepare }
    : { schedule, prepare, forward, sample, other };
}

export class QueueView {
  /** @type {Phase[]} */
  moves = ["lane", "row", "block"]; // phases of a step's motion in which the view changes

  /** @param {HTMLElement} panel */
  constructor(panel) {
    const $ = (/** @type {string} */ selector) => find(panel, selector);
    this.key = $(".key");
    this.list = $(".waiting-list");
    this.empty = $(".waiting-empty");
    this.budgetKey = $(".budget-key");
    this.bar = $(".budget-bar");
    this.split = $(".budget-split");
    this.gauges = ["lanes", "blocks"].map((name) => {
      const el = $(`.gauge-${name}`);
      return { name, el, value: find(el, ".gauge-value"), fill: find(el, ".gauge-fill") };
    });
    this.binding = $(".binding");
    this.timeKey = $(".time-key");
    this.times = PARTS.map(() => {
      const [name, bar, value] = [h("dt", {}), h("i", { "aria-hidden": "true" }), h("dd", {})];
      $(".timings").append(name, bar, value);
      return { name, bar, value };
    });
    this.waited = $(".waited");
    /** @type {QueueRow[]} */
    this.rows = [];
    /** @type {HTMLElement[]} */
    this.parts = [];
  }

  /** @param {ViewState} state */
  draw(state) {
    const before = movingIn(state)?.before;
    /** @type {(moment: Phase) => ViewState} */
    // each part of the panel changes in its own phase
    const at = (moment) =>
      before && !phase(state.share, moment) ? { ...state, frame: before, index: before.i } : state;
    this._waiting(at("lane"));
    this._budget(at("row"));
    this._gauges(at("block"));
    this._time(state);
  }

  /** The letter of a request that waits, if it is among those shown. @param {RunRequest} request */
  boxOf(request) {
    return this.rows.find((row) => row.request === request)?.box || null;
  }

  /** @param {ViewState} state */
  _time({ run, frame }) {
    const total = frame.event.tEnd - frame.event.tStart;
    const where = run.asynchronous ? " on the device" : "";
    setText(this.timeKey, timed(run, `${milliseconds(total)}${where}`));
    Object.entries(timeParts(run, frame.event)).forEach(([part, seconds], n) => {
      const { name, bar, value } = this.times[n];
      tell(name, part);
      tell(value, seconds === null ? "not recorded" : milliseconds(seconds));
      const share = total ? Math.min(1, seconds / total) : 0;
      setStyle(bar, "transform", `scaleX(${share.toFixed(3)})`);
    });
    const idle = run.idleBefore(frame.i);
    this.waited.hidden = !idle?.worth;
    if (!idle?.worth) return;
    const long = milliseconds(idle.seconds);
    const words = `Device waited ${long} for the host`;
    tell(this.waited, idle.forHost ? words : `Device idle ${long}: nobody to serve`);
  }

  /** @param {ViewState} state */
  _waiting(state) {
    const { run, frame, layout } = state;
    const { waiting } = frame;
    const most = layout === "tablet" ? 5 : 4;
    const shown = waiting.slice(0, waiting.length > most ? most - 1 : most);
    tell(this.key, waiting.length ? count(waiting.length) : "nobody");
    this.empty.hidden = waiting.length > 0;
    while (this.rows.length < shown.length + 1) {
      const row = {
        box: h("span", { class: "wait-chip" }),
        text: h("span", { class: "wait-text" }),
        since: h("span", { class: "wait-since soft" }),
        why: h("span", { class: "wait-why strong" }),
      };
      const words = h("span", { class: "wait-words" }, row.text, row.since, row.why);
      const el = h("li", { class: "wait spaced fine round" }, row.box, words);
      this.rows.push({ ...row, el });
      this.list.append(el);
    }
    this.rows.forEach((row, n) => {
      const wait = shown[n];
      const more = n === shown.length && waiting.length > shown.length;
      row.el.hidden = !wait && !more;
      row.el.classList.toggle("more", more);
      if (more) {
        row.request = null;
        row.box.replaceChildren();
        tell(row.text, `and ${waiting.length - shown.length} more behind`);
        setText(row.since, "");
        setText(row.why, "");
        return;
      }
      if (!wait) return;
      const seen = wasAdmitted(wait.request, frame.i);
      if (isRedrawn(row, { request: wait.request, run, seen, language: state.language })) {
        row.box.replaceChildren(chip(state, wait.request, false));
      }
      row.el.dataset.request = String(wait.request.index);
      row.el.classList.toggle("dim", dims(state.focus, wait.request));
      const { by } = wait.request;
      const prompt = `prompt of ${count(run.promptLength(wait.request))} [token|tokens]`;
      const what = t(wait.preempted ? "preempted, waits again" : prompt);
      setText(row.text, by ? `${by}: ${what}` : what);
      tell(row.since, `since step ${run.stepOf(wait.since)}`);
      const isNext = n === 0 && frame.event.waiting.request === wait.request.id;
      setText(row.why, (isNext && frame.caption?.waits) || "");
    });
  }

  /** @param {ViewState} state */
  _budget({ run, frame, focus }) {
    const { bar } = this;
    const { limit, decode, prefill, unused } = frame.event.budget;
    const { parts, pads, total } = budgetParts(run, frame);
    const used = count(decode + prefill);
    tell(this.budgetKey, limit === null ? "no limit" : `${used} of ${count(limit)}`);
    while (this.parts.length < parts.length) {
      const el = h("span", { class: "part" });
      this.parts.push(el);
      bar.append(el);
    }
    this.parts.forEach((el, n) => {
      const part = parts[n];
      el.hidden = !part;
      if (!part) return;
      const share = (100 * part.n) / Math.max(1, total);
      setStyle(el, "width", `${share.toFixed(3)}%`);
      const kind = `part ${part.phase}${dims(focus, part.request) ? " dim" : ""}`;
      if (el.className !== kind) el.className = kind;
      const hue = part.request?.hue ?? -1;
      setStyle(el, "--hue", hue < 0 ? "var(--pad)" : `var(--hue-${hue})`);
      setStyle(el, "--tint", hue < 0 ? "var(--empty)" : `var(--tint-${hue})`);
      if (part.request) el.dataset.request = String(part.request.index);
      else delete el.dataset.request;
      const letter = part.phase === "prefill" && share > 11 && part.request?.letter;
      setText(el, letter || "");
    });
    const over = frame.event.overrun.reduce((n, o) => n + o.rows, 0);
    const padded = `${count(pads)} [pad|pads]`;
    const parted = [
      t(`${count(decode)} decode + ${count(prefill)} prefill`),
      limit === null ? pads && ` + ${t(padded)}` : ` + ${t(`${count(unused)} unused`)}`,
      limit !== null && pads && `; ${t(`${padded} besides`)}`,
      over && `; ${t(`${over} of it overrun`)}`,
    ];
    setText(this.split, joined(parted, ""));
    setAttr(bar, "aria-label", `${t("Token budget")}: ${this.split.textContent}`);
  }

  /** @param {ViewState} state */
  _gauges({ run, frame }) {
    const { kv, budget } = frame.event;
    const lanes = frame.lanes.filter((l) => l.laneSpan).length;
    /** @type {Record<string, number[]>} */
    const values = { lanes: [lanes, run.numLanes], blocks: [kv.used, kv.total] };
    for (const gauge of this.gauges) {
      const [value, total] = values[gauge.name];
      tell(gauge.value, `${count(value)} of ${count(total)}`);
      setStyle(gauge.fill, "width", `${((100 * value) / Math.max(1, total)).toFixed(2)}%`);
      gauge.el.classList.toggle("binds", budget.binding === gauge.name);
    }
    this.bar.classList.toggle("binds", budget.binding === "budget");
    setText(this.binding, frame.caption?.bound || "");
    this.binding.classList.toggle("on", budget.binding !== "none");
  }
}
