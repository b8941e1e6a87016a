// The address of the Watch tab: run, step, selection, view and theme, so that a link shows the same
// again; and a spec as text, if it is short enough.

import { h, jsonIn } from "../parts/dom.js";
import { putLanguage } from "../parts/language.js";
import { addressed, copyLink, copyText, linkTo, noLink, setAddress } from "../parts/link.js";
import { t } from "../parts/speech.js";
import { isOnWatch, ownAxis } from "./layout.js";
import { bytesOf, openAddress, openRacer } from "./open_file.js";
import { UNLIT } from "./store.js";

const FIGURES = ["lanes", "row", "mask", "kv", "text"]; // views that an embedded figure can show

/** The four whole numbers that name a part of a mask, or null. */
function viewFrom(/** @type {string | null} */ text) {
  const view = (text || "").split(",").map(Number);
  const isView = view.length === 4 && view.every((n) => Number.isInteger(n) && n >= 0);
  return isView && view[0] < view[1] && view[2] < view[3] ? view : null;
}

const wholeFrom = (/** @type {string | null} */ text) =>
  text !== null && /^\d{1,9}$/.test(text) ? Number(text) : null;

/** The addresses that the run on screen, or each of its ranks, was opened from; empty if none. */
const tracesOf = (/** @type {App} */ app) => [app.entry?.trace ?? []].flat();

export class Address {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.owes = false; // whether it names a run that has yet to begin: until then it stays
    this.due = 0; // timer of the next write; 0: none is pending
    window.addEventListener("hashchange", () => {
      // first the part that is left must restore what it shows: see parts/tabs.js
      if (!isOnWatch()) return;
      // what is still loading must not replace what the address asks for now
      if (app.run && !addressed().has("part")) app.fetching = null;
      this.follow();
    });
  }

  read() {
    const { app } = this;
    const p = addressed();
    const theme = p.get("theme");
    if (theme === "dark" || theme === "light") app.setTheme(theme);
    app.detail.follow(p);
    if (["time", "steps"].includes(p.get("axis") || "")) app.setClock(p.get("axis") === "time");
    if (p.get("present") === "1" && !app.presenter) app.present(true, true);
    return {
      part: p.get("part"),
      run: p.get("run"),
      comparison: p.get("racer") && p.get("comparison"),
      racer: p.get("racer"),
      step: wholeFrom(p.get("step")),
      pin: p.get("pin"),
      request: p.get("request"),
      zoom: p.get("zoom") === "1" ? "pin" : viewFrom(p.get("zoom")),
      trace:
        p.has("trace") || p.get("run") || p.get("spec")
          ? p.getAll("trace")
          : new URLSearchParams(location.search).getAll("trace"),
      rank: p.get("rank") === "all" ? "all" : wholeFrom(p.get("rank")),
      at: /^\d+(\.\d+)?$/.test(p.get("at") || "") ? Number(p.get("at")) : null,
      tab: p.get("tab"),
      pass: wholeFrom(p.get("pass")),
      layer: wholeFrom(p.get("layer")),
      view: p.get("view"),
      spec: p.get("spec"),
      what: p.get("spec") && p.get("what"),
      side: p.get("side"),
      beside: p.get("racer") && p.get("beside"),
    };
  }

  /** Why no link can show the run on screen, or null. */
  get hindrance() {
    const { app } = this;
    const { run, entry } = app;
    if (!run || !run.length) return "There is no run on screen.";
    if (app.pair.address) return null;
    if (entry && (entry.name || entry.spec || entry.trace || entry.comparison)) return null;
    // a page with a run of its own needs no more than its address
    if (app.options.replay && app.document === app.options.replay) return null;
    if (run.goesOn) return "This run is still going. Once it is done a link can run it again.";
    if (entry?.written)
      return "A policy that you wrote made this run. In Write, Copy link gives its code.";
    if (run.header.leak)
      return "This run leaks on purpose. Share the run as it was: the leak is one click from there.";
    if (run.header.source === "uploaded")
      return "This run was opened from a file: it is on your machine alone.";
    if (entry && entry.racer)
      return "This run was measured here, for you: nobody else can open it.";
    return entry
      ? "What this run was asked is too long for an address."
      : "This run did not come to its end, and is kept nowhere.";
  }

  /** The address of what is on screen. all: for a link, with the theme and how much is shown. */
  _hash(all = false) {
    const { app } = this;
    const p = new URLSearchParams();
    if (!this.hindrance) {
      /** @type {Json} */
      const { name, spec, comparison, racer } = app.entry || {};
      const named = [name && { run: name }, spec && { spec }, comparison && { comparison, racer }];
      const address = app.pair.address || named.find(Boolean);
      for (const [key, value] of Object.entries(address || {})) p.set(key, value);
      for (const trace of address ? [] : tracesOf(app)) p.append("trace", trace);
      if (app.ranks.current) p.set("rank", app.ranks.all ? "all" : String(app.ranks.current.rank));
      if (app.ranks.all) p.set("at", app.ranks.now.toFixed(4));
      else p.set("step", String(app.run.stepOf(Math.min(app.index, app.run.length - 1))));
      if (app.pinned) this._select(p, app.pinned);
      const { zoom, layer } = app.mask;
      if (zoom) p.set("zoom", zoom.request ? "1" : zoom.view.join());
      if (layer !== null) p.set("layer", String(layer));
      if (app.pass !== Infinity) p.set("pass", String(app.pass));
    }
    putLanguage(p);
    if (app.layout !== "desk" && app.tab !== "mask") p.set("tab", app.tab);
    if (!app.beside.on && app.clock !== ownAxis(app)) p.set("axis", app.clock ? "time" : "steps");
    if (app.presenter) p.set("present", "1");
    if (app.presenter && app.root.dataset.focusView) p.set("view", app.root.dataset.focusView);
    if (app.detail.chosen || all) p.set("detail", app.detail.now);
    if (app.store.state.chosenTheme || all) p.set("theme", app.palette.dark ? "dark" : "light");
    return `#${p}`;
  }

  /** Put a request into an address: another engine's by the id in its log, ours by letter. */
  _select(/** @type {Json} */ p, /** @type {RunRequest} */ request) {
    if (this.app.run.header.engine) p.set("request", request.id);
    else p.set("pin", request.letter);
  }

  /** The address of another step of this run, with a request selected. */
  hashAt(/** @type {number} */ step, /** @type {RunRequest} */ request) {
    const p = new URLSearchParams(this._hash().slice(1));
    p.set("step", String(step));
    this._select(p, request);
    return `#${p}`;
  }

  write() {
    // the address belongs to another part now
    if (!this.app.run || this.owes || !isOnWatch() || addressed().has("part")) return;
    this._written = this._hash();
    setAddress(this._written);
  }

  /** Write the address after a moment, because browsers limit how often it may change. */
  soon() {
    if (this.due) return;
    this.due = setTimeout(() => {
      this.due = 0;
      this.write();
    }, 300);
  }

  /** Show what the address names, unless that is on screen or belongs to another part. */
  follow() {
    if (location.hash === this._written || addressed().has("part")) return;
    const wanted = this.read();
    const { app } = this;
    const { address } = app.pair;
    const isRacer =
      wanted.comparison === app.entry?.comparison &&
      wanted.racer === app.entry?.racer &&
      wanted.beside === (address?.beside ?? null);
    const isSpecOf = wanted.what ? wanted.what === address?.what : wanted.spec === app.entry?.spec;
    const entry = app.options.catalogue.find((e) => e.name === wanted.run);
    if (entry && entry !== app.entry) app.open(entry, wanted);
    else if (wanted.run && !entry) app.missing(wanted.run);
    else if (wanted.trace.length && String(wanted.trace) !== String(tracesOf(app)))
      openAddress(app, wanted.trace, wanted);
    else if (wanted.comparison && !isRacer) openRacer(app, wanted);
    else if (wanted.spec && app.engines && !isSpecOf) app.editor.restore(wanted);
    else {
      if (wanted.run || wanted.trace.length || wanted.comparison || wanted.spec) {
        // whatever the link leaves out is as in a run just opened
        app.store.set({ ...UNLIT, pass: Infinity });
        app.mask.reset();
      }
      if (app.ranks.current) app.ranks.look(wanted);
      else if (app.run) app.look(wanted);
    }
  }

  /** Code that shows this run and step in any page; null unless this page has it as a recording. */
  get embedCode() {
    const { app } = this;
    const { entry, options } = app;
    if (!options.embed || !entry?.name || app.ranks.current || app.pair.address || this.hindrance)
      return null;
    const p = new URLSearchParams({
      run: entry.name,
      view: FIGURES.includes(app.alone) ? app.alone : "lanes,row,mask",
      step: String(app.run.stepOf(app.index)),
    });
    if (app.clock) p.set("axis", "time");
    if (app.store.state.chosenTheme) p.set("theme", app.store.state.chosenTheme);
    putLanguage(p);
    const src = new URL(`${options.embed}#${String(p).replaceAll("%2C", ",")}`, document.baseURI);
    const frame = h("iframe", {
      src: src.href,
      title: `Inflight: ${t(entry.title)}`,
      width: "720",
      height: "560",
      style: "border: 0",
      loading: "lazy",
    });
    return frame.outerHTML;
  }

  embed() {
    const { app, embedCode } = this;
    const copied = () => app.toast("Code copied: put it into any page.");
    return embedCode && copyText(app.root, "Copy this code", embedCode, copied);
  }

  share() {
    const { app } = this;
    const why = this.hindrance;
    if (why) {
      const save = (/** @type {string} */ text, /** @type {string} */ kind) => ({
        text,
        act: () => app.take(kind),
      });
      const page = app.engines && app.runId && save("Save it as one page (HTML)", "html");
      const replay = app.isKept && save("Save its replay (JSON)", "replay");
      return noLink(app.root, why, (app.run?.length && (page || replay)) || null);
    }
    this.write();
    const copied = () => {
      const says = app.pair.address?.what
        ? "Link copied: it runs both again, and opens them at this step."
        : "Link copied: it opens this run at this step.";
      const embed = { text: "Copy embed code", act: () => this.embed() };
      app.toast(says, 8000, this.embedCode && embed);
    };
    return copyLink(app.root, linkTo(this._hash(true)), copied);
  }
}

export const SAMPLING_DEFAULTS = { temperature: 0, top_k: 0, top_p: 1, seed: 0 };
const MOST_UNPACKED = 2 ** 20; // bytes that a link's text may inflate to

/** A text that is equal for equal data, in any order of keys; absent fields count as defaults. */
export function canonical(/** @type {Json} */ { requests, arrival_unit: unit }) {
  return JSON.stringify([
    unit || "step",
    requests.map((/** @type {Json} */ r) => [
      r.id,
      r.prompt ?? null,
      r.prompt_token_ids ?? null,
      r.messages ?? null,
      r.arrival,
      r.priority ?? 0,
      r.leaves_after ?? null,
      Object.entries({ ...SAMPLING_DEFAULTS, ...r.sampling }).sort(([a], [b]) => (a < b ? -1 : 1)),
    ]),
  ]);
}

/** A spec as text for an address, or null if that is too long. */
export async function pack(/** @type {Json} */ data) {
  const text = new Blob([JSON.stringify(data)]);
  const packed = text.stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
  if (bytes.length > 6000) return null; // too long for an address
  return btoa(String.fromCharCode(...bytes))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=+$/, "");
}

/** The spec in a text of an address. Throws if there is none. */
export async function unpack(/** @type {string} */ text) {
  const packed = atob(text.replace(/-/g, "+").replace(/_/g, "/"));
  const bytes = Uint8Array.from(packed, (c) => c.charCodeAt(0));
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(new TextDecoder().decode(await bytesOf(unpacked, MOST_UNPACKED)));
}

const isPlain = (/** @type {Json} */ value) =>
  Boolean(value) && typeof value === "object" && !Array.isArray(value);

const MOST_ROWS = 2000; // no engine of a page takes as many, and far more would freeze the form

/** Whether the form can show these requests; the server checks what is inside. */
const areRequests = (/** @type {Json} */ requests) =>
  Array.isArray(requests) &&
  requests.length <= MOST_ROWS &&
  requests.every(
    (r) =>
      isPlain(r) &&
      (!r.messages ||
        (Array.isArray(r.messages) && r.messages.length && r.messages.every(isPlain))),
  );

/** Whether what names the model and where it runs are texts, as far as they are given. */
const areNames = (/** @type {Json} */ { model, device, dtype }) =>
  [model, device, dtype].every((name) => typeof (name ?? "") === "string");

/** Whether a link's data has the form of a spec. */
export function isSpec(/** @type {Json} */ spec) {
  if (!isPlain(spec) || !isPlain(spec.config ?? {}) || !areNames(spec)) return false;
  if (typeof spec.preset === "string") return true;
  return isPlain(spec.config) && areRequests(spec.workload?.requests);
}

/** The workload in the text of a file that the page saved; null if it is something else. */
export function savedIn(/** @type {string} */ text) {
  const data = jsonIn(text);
  return areRequests((data?.workload || data)?.requests) && areNames(data) ? data : null;
}
