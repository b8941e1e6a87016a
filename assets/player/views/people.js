// Lanes with people's names: who sent the request in each lane, beside its text as it grows; on the
// left the lanes of the last steps; below the waiting requests, in order. Names, prompts and texts
// are data: shortened, and always text nodes.

import { dims } from "../parts/colours.js";
import { chip } from "../parts/chips.js";
import { h, icon, isRedrawn, put, setAttr, setStyle, setText } from "../parts/dom.js";
import { count, joined } from "../parts/format.js";
import { t, tell } from "../parts/speech.js";
import { windowScale } from "../run/lane_layout.js";
import { PREFILL, STALLED, isDone } from "../run/run.js";
import { DoorView } from "./door.js";
import { LaneChart } from "./lane_chart.js";
import { callsItself, clean, outputTail, tail } from "./texts.js";

const PROMPT = 160; // characters shown of the prompt's end
const OUTPUT = 420; // … of the text so far: more than fits the largest row
const PER = 14; // pixels per step in the lanes on the left; on a projector half as many again
const STAYS = 16; // steps for which a finished text stays in its lane if no other request takes it
const BREAKS = /(?:↵ )+/g; // line breaks, which would use up a row's two or three lines
// the most waiting requests that are named; on a phone they can be scrolled
const DOOR = { desk: 6, tablet: 5, phone: 8 };

/**
 * @typedef {Record<"el" | "chip" | "name" | "note" | "prompt" | "output" | "fresh" | "did",
 * HTMLElement> & {request?: RunRequest | null, run?: Run | null, held?: boolean, language?: string}}
 * PersonRow
 */

export class PeopleView {
  /**
   * @param {HTMLElement} panel an empty section @param {(id: string) => boolean} isMine @param {()
   * => void} redraw
   */
  constructor(panel, isMine, redraw) {
    this.panel = panel;
    this.isMine = isMine;
    this.title = h("span", { class: "title" });
    this.key = h("i", { class: "key" });
    this.list = h("ol", { class: "people-lanes stack" });
    this.invite = h("p", { class: "people-invite fixed", hidden: true });
    this.why = h("span", { class: "door-why soft" });
    // what matters most now, for a projector, where nothing else says it
    this.note = h("p", { class: "people-note fixed large round" });
    const canvas = h("canvas", { "aria-hidden": "true" });
    const strip = h("div", { class: "people-strip round" }, canvas);
    const track = h("div", { class: "people-track" }, strip, this.list);
    this.box = h("div", { class: "people-box scrolls round", tabindex: "0" }, track);
    this.chart = new LaneChart(canvas, redraw);
    const door = h(
      "p",
      { class: "door flex fixed nowrap soft plain" },
      h("span", { class: "door-title" }),
    );
    panel.append(
      h("h3", {}, this.title, this.key),
      this.invite,
      this.box,
      this.note,
      h("div", { class: "people-door flex wrap fixed" }, door, this.why),
    );
    this.door = new DoorView(panel, DOOR);
    /** @type {PersonRow[]} */
    this.rows = [];
  }

  /** Draw free lanes and a sentence before a run. @param {number} lanes @param {string} sentence */
  drawFree(lanes, sentence) {
    this._named();
    this._rows(lanes);
    for (const row of this.rows.slice(0, lanes)) this._free(row);
    tell(this.key, lanes ? `${count(lanes)} [lane is|lanes are] free` : "");
    setText(this.invite, sentence);
    this.invite.hidden = !sentence;
    this.panel.classList.add("empty");
    setText(this.why, "");
    if (this.chart.surface.visible) this.chart.surface.begin();
    this.chart.painted = null;
  }

  /** @param {ViewState} state */
  draw(state) {
    if (!this.panel.isConnected || this.panel.hidden) return;
    const { run, frame } = state;
    this.invite.hidden = true;
    this._named();
    this._rows(run.numLanes);
    const left = this._left(run, frame);
    let held = 0;
    let ended = 0; // requests done in this step, after which their lanes are free
    frame.lanes.forEach(({ lane, request, status }) => {
      const row = this.rows[lane];
      const shown = request || left.get(lane);
      if (!shown) return this._free(row);
      const { finished } = shown;
      const over = Boolean(finished && finished.step <= frame.i);
      held += Number(Boolean(request) && !over);
      ended += Number(Boolean(request) && finished?.step === frame.i && isDone(finished.reason));
      this._fill(row, state, shown, { over, holds: Boolean(request), status });
    });
    const inUse = `${held} of ${count(run.numLanes)} in use`;
    tell(this.key, ended ? `${inUse}, ${ended} just done` : inUse);
    this.panel.classList.remove("empty");
    this.door.draw({ ...state, simple: true });
    setText(this.why, frame.waiting.length ? frame.caption?.waits || "" : "");
    this._passing(state);
  }

  /** Draw the steps up to this one, which ends where the names begin. @param {ViewState} state */
  _passing(state) {
    const { chart } = this;
    const { w } = chart.surface;
    if (!chart.surface.visible) return;
    const per = state.presenter ? 1.5 * PER : PER;
    chart.paint(state, `${state.index}/${state.presenter}`, () => ({
      scale: windowScale(state.run, state.index, w - per, per),
      axis: 0,
      font: 12,
      end: w,
      gutter: 0,
      queue: false,
    }));
    chart.show(w);
  }

  _named() {
    tell(this.title, "Lanes");
    tell(this.door.title, "At the door");
    setAttr(this.list, "aria-label", t("Who is in which lane"));
  }

  /** Make a row for each lane. @param {number} lanes */
  _rows(lanes) {
    setStyle(this.panel, "--rows", String(lanes));
    while (this.rows.length < lanes) {
      const row = {
        chip: h("span", {}),
        name: h("bdi", { class: "person-name clip strong" }),
        note: h("span", { class: "person-note fixed nowrap soft" }),
        prompt: h("span", { class: "prompt" }),
        output: h("span", { class: "output" }),
        fresh: h("mark", {}),
        did: h("span", { class: "person-did nowrap soft mono" }),
      };
      const text = h("bdi", { dir: "auto" }, row.prompt, row.output, row.fresh);
      const el = h(
        "li",
        { class: "person" },
        h(
          "span",
          { class: "person-lane soft mono", "aria-hidden": "true" },
          String(this.rows.length),
        ),
        h("span", { class: "person-who flex" }, row.chip, row.name, row.note),
        h("p", { class: "person-words" }, text),
        row.did,
      );
      this.rows.push({ ...row, el });
      this.list.append(el);
    }
    this.rows.forEach((row, lane) => {
      row.el.hidden = lane >= lanes;
    });
  }

  /**
   * The request that last finished in each lane, within the last STAYS steps.
   * @param {Run} run @param {Frame} frame @returns {Map<number, RunRequest>}
   */
  _left(run, frame) {
    const left = new Map();
    for (const { lane, to, end, request } of run.laneSpans.slice(-4 * run.numLanes - 8 * STAYS))
      if (to < frame.i && to >= frame.i - STAYS && end === "finished") left.set(lane, request);
    return left;
  }

  /** Scroll the visitor's own row into sight. @param {PersonRow} row */
  _show({ el }) {
    const { box } = this;
    const top = el.getBoundingClientRect().top - this.list.getBoundingClientRect().top;
    if (top < box.scrollTop || top + el.offsetHeight > box.scrollTop + box.clientHeight)
      box.scrollTop = top;
  }

  /** @param {PersonRow} row */
  _free(row) {
    if (row.request !== null) {
      row.request = row.run = null;
      row.chip.replaceChildren();
      row.el.className = "person free";
      delete row.el.dataset.request;
      row.el.style.removeProperty("--tint");
      row.el.style.removeProperty("--hue");
      for (const part of [row.name, row.prompt, row.output, row.fresh, row.did]) setText(part, "");
    }
    tell(row.note, "free");
  }

  /**
   * @param {PersonRow} row @param {ViewState} state @param {RunRequest} request @param {{over:
   * boolean, holds: boolean, status: number}} now
   */
  _fill(row, state, request, { over, holds, status }) {
    const { run, frame, focus, language } = state;
    const mine = this.isMine(request.id);
    const isOther = row.request !== request;
    if (isRedrawn(row, { request, run, held: holds, language })) {
      if (mine && holds && isOther) this._show(row);
      put(row.chip, request.isBot && icon("bot"), chip(state, request, holds));
      row.el.dataset.request = String(request.index);
      const { hue } = request;
      row.el.style.setProperty("--tint", hue < 0 ? "var(--empty)" : `var(--tint-${hue})`);
      row.el.style.setProperty("--hue", hue < 0 ? "var(--rule)" : `var(--hue-${hue})`);
    }
    const isDim = dims(focus, request);
    const kinds = ["person", over && "over", !holds && "left", mine && "mine", isDim && "dim"];
    row.el.className = joined(kinds, " ");
    setText(row.name, callsItself(request) || (mine ? t("you") : ""));
    setText(row.note, mine && request.by ? t("you") : "");
    const total = run.numGenerated(request, frame.i);
    const before = run.numGenerated(request, frame.i - 1);
    const prompt = run.said(request);
    const output = run.answer(request);
    setText(row.prompt, tail(prompt, prompt.length, PROMPT).replace(BREAKS, " "));
    const old = outputTail(run, output, Math.min(before, output.length), OUTPUT);
    const fresh = clean((holds ? run.newPieces(request, frame.i) : []).join("")).slice(0, OUTPUT);
    setText(row.output, old.replace(BREAKS, " "));
    setText(row.fresh, fresh.replace(BREAKS, " "));
    row.fresh.hidden = total === before;
    const reason = over ? request.finished?.reason : "";
    const left = reason === "cancelled" || reason === "error";
    const reads = status & PREFILL && !total;
    const far = request.maxNew ? `${total} / ${request.maxNew}` : String(total);
    const done = `${left ? "✕" : "✓"} ${count(total)}`;
    const doing = status & STALLED ? "stalled" : reads ? "reads the prompt" : "";
    setText(row.did, doing ? t(doing) : over ? done : far);
    const ended = reason === "error" ? "failed" : left ? "cancelled" : "finished";
    const means = over ? `; ${ended}` : ", of those asked for";
    setAttr(row.did, "title", t(`Tokens written${means}`));
    const share = request.maxNew ? Math.min(1, total / request.maxNew).toFixed(3) : "0";
    setStyle(row.el, "--share", share);
  }
}
