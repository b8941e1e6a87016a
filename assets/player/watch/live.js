// A run as it happens. The previous picture stays until the first step arrives, and returns if the
// run fails; the partial run is then one click away. The session's storage notes the run in
// progress, so that a reloaded page can follow it, or start it again if it ended with the page.

import { count, joined } from "../parts/format.js";
import { keep, keptData } from "../parts/kept.js";
import { hideToast } from "../parts/look.js";
import { loadingWords } from "../parts/model_field.js";
import { Refusal, fetchJson } from "../parts/server.js";
import { tell } from "../parts/speech.js";
import { Run } from "../run/run.js";
import { isSpec } from "./address.js";

const GOES_ON = "inflight-run"; // in the session's storage: {spec, asked}, and {job} if it outlives the page

export class Live {
  constructor(/** @type {App} */ app) {
    this.app = app;
    /** @type {string | null} */
    this.id = null;
    this.going = false;
    this.run = null; // the run in progress, or the last one
    this.ended = null; // {run, entry} of the last run that reached its end
  }

  /**
   * Run a spec; resolves to whether the run reached its end. tell: {progress(share, words), done(),
   * failed(sentence, action)}. asked: facts about its requests, see `Beside`. @param {Json} spec
   * @param {string} visitor @param {Json} tell @param {Json} asked
   */
  async start(spec, visitor, tell, asked) {
    const { app } = this;
    const begin = async (/** @type {AbortSignal | undefined} */ signal) => {
      remember({ spec, asked });
      const job = await app.engines.begin("run", spec, visitor, signal);
      if (app.engines.outlives(job)) remember({ job, spec, asked });
      return job;
    };
    return this._follow(tell, begin, asked);
  }

  /** The run that was in progress before a reload: {spec, asked, job}, or null. */
  get left() {
    const left = keptData("visit", GOES_ON);
    return isSpec(left?.spec) ? left : null;
  }

  /** Follow that run from its start, or start it again. */
  async resume(/** @type {string} */ visitor, /** @type {Json} */ tell) {
    const { job, spec, asked } = this.left;
    if (!job) return this.start(spec, visitor, tell, asked);
    return this._follow(tell, async () => job, asked);
  }

  async _follow(/** @type {Json} */ tell, /** @type {Function} */ begin, asked = null) {
    const { app } = this;
    app.address.owes = false;
    /** @type {AbortController} */
    this._abort = new AbortController();
    /** @type {string | null} */
    this.id = null;
    this.going = true;
    if (app.run) app.fetching = null; // a run requested earlier must not replace it
    app.store.set({ following: true });
    /** @type {{done?: boolean, error?: string, stopped?: string, unkept?: string, url?: string, id?: string} | null} */
    let ended = null;
    /** @type {Json} */
    let begun = {}; // {header, records}
    this.run = null;
    const before = this._held();
    try {
      this.id = await begin(this._abort.signal);
      for await (const delta of app.engines.follow(this.id, this._abort.signal)) {
        if (delta.header)
          begun = { header: { ...delta.header, source: "live" }, records: delta.records };
        if (delta.events && delta.events.length) {
          if (!this.run) {
            app.transport.toggle(false);
            this.run = new Run({ ...begun, asked, complete: false, events: [], captions: [] });
            this.run.goesOn = true;
            const { lesson } = document.documentElement.dataset; // a lesson keeps its run on screen
            if (app.edge === this && app.following && !lesson) {
              hideToast(app.root); // the run has begun
              this.show({ run: this.run, entry: null, replay: null, index: 0 });
            }
          }
          if (app.run === this.run) app.extend(delta);
          // the visitor is looking at another run
          else this.run.append(delta.events, delta.captions, delta);
        }
        if (delta.progress) tell.progress(...progressOf(delta.progress));
        if (delta.done) ended = delta;
      }
    } catch (/** @type {Foreign} */ error) {
      const broke = this.id && !(error instanceof Refusal);
      ended =
        error.name === "AbortError"
          ? { stopped: "The run was cancelled." }
          : { error: broke ? `The run broke off: ${error.message}.` : error.message };
    }
    remember(null);
    this.going = false;
    if (app.edge === this) app.store.set({ following: false });
    ended ??= { error: "The run broke off: the server went away." };
    if (this.run) {
      this.run.goesOn = false;
      this.run.complete = Boolean(ended.done && !ended.error && !ended.stopped);
      // stored on the server, for exports and reloads
      this._entry = ended.url ? { name: null, id: ended.id, url: ended.url } : null;
      if (app.run === this.run) {
        app.store.set({ entry: this._entry });
        app.bar.marks();
      }
      this._total(this.run, ended.url || "");
    }
    app.redraw();
    this.ended = ended.error ? null : this.run && { run: this.run, entry: this._entry };
    if (ended.error) this._failed(ended.error, app.run === this.run ? before : this._held(), tell);
    else {
      const steps = this.run && `Done: ${count(this.run.length)} [step|steps].`;
      const done = steps || "Done: there was nothing to compute.";
      tell.done(joined([ended.stopped, ended.unkept], " ") || done);
    }
    return !ended.error && Boolean(this.run || !ended.stopped);
  }

  /** Fetch the totals of the whole run and where its requests' time went, from its stored copy. */
  async _total(/** @type {Run} */ run, /** @type {string} */ url) {
    if (!url) return;
    try {
      ({ totals: run.totalsIn[""], delays: run.delays } = await fetchJson(url));
    } catch {
      return; // the run can be shown without them
    }
    if (this.app.run !== run) return;
    this.app.bar.marks();
    this.app.redraw();
  }

  /**
   * Say why the run failed. If a run was on screen before, it is restored, and the visitor can
   * switch between the two. @param {string | null} sentence @param {Json} before @param {Json} tell
   */
  _failed(sentence, before, tell) {
    if (!this.run || !before.run || this.app.edge !== this) return tell.failed(sentence);
    const failed = { run: this.run, entry: this._entry, replay: null, index: this.run.length - 1 };
    /** @param {Json} shown @param {Json} other @param {string} text */
    const offer = (shown, other, text) => {
      if (this.app.run !== shown.run) this.show(shown);
      const back = shown === before ? "Back to the run before" : whole;
      tell.failed(sentence, { text, act: () => offer(other, shown, back) });
    };
    const whole = `Show the ${count(failed.run.length)} [step|steps] until it failed`;
    return offer(before, failed, whole);
  }

  back() {
    if (this.run && this.app.run !== this.run)
      this.show({ run: this.run, entry: null, replay: null, index: this.run.length - 1 });
  }

  /** What is on screen, to return to later. */
  _held() {
    const { run, entry, replay, index } = this.app;
    return { run, entry, replay, index };
  }

  show(/** @type {Json} */ { run, entry, replay, index }) {
    this.app.editor.shown = run; // the form stays as it is: it has what was requested
    const step = run.length ? run.stepOf(Math.min(index, run.length - 1)) : null;
    this.app.enter({ run, entry, replay }, { step });
  }

  /** Show how many steps the one on screen is behind the run in progress. */
  draw() {
    const { app } = this;
    const badge = app.$(".live-badge");
    badge.hidden = !app.running || !app.edge?.run; // no step of the run has come yet
    if (badge.hidden) return;
    badge.classList.toggle("behind", !app.following);
    const { track, place } = app.transport;
    const behind = app.edge?.run === app.run ? track.length - 1 - place : 0;
    const back = behind ? `${behind} behind: back to live` : "back to live";
    tell(badge, app.following ? "live" : back);
  }

  async cancel() {
    if (!this.going) return;
    if (this.id) await this.app.engines.cancel(this.id);
    else this._abort.abort();
  }
}

function progressOf(/** @type {Json} */ { step, tokens, total_tokens: total, ahead, loading }) {
  if (loading) return loadingWords(loading);
  if (ahead) return [0, `${count(ahead)} [run|runs] ahead of yours.`];
  const where = Number.isInteger(step) ? `Step ${step}: ` : tokens ? "" : "Starting: ";
  const words = `${where}${tokens || 0} of ${count(total || 0)} [token|tokens].`;
  return [total ? tokens / total : 0, words];
}

const remember = (/** @type {Json} */ run) => keep("visit", GOES_ON, run && JSON.stringify(run));
