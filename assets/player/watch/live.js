// A run as it happens: takes deltas in order, none lost, none twice; keeps the last picture until the first step is here, and comes back to
// it if the run fails: what ran until then is a click away.

import { plural } from "../parts/format.js";
import { fetchJson } from "../parts/server.js";
import { Run } from "../run/run.js";

export class Live {
  constructor(app) {
    this.app = app;
    this.id = null;
    this.run = null; // the one that goes on, or went on last
    this.ended = null; // {run, entry} of the last, where it came to an end
  }

  /** Run a spec. tell: {progress(share, words), done(), failed(sentence, action)}. True if it ran to its end. */
  async start(spec, tell) {
    const { app } = this;
    if (app.running) {
      tell.failed("A run is already going: cancel it first.");
      return false;
    }
    this._abort = new AbortController();
    this.id = null;
    app.running = true;
    app.following = true;
    let next = 0;
    let ended = null;
    this.run = null;
    const before = this._held();
    const take = (delta) => {
      if (delta.seq < next) return; // seen before
      next = delta.seq + 1;
      this.id = delta.run || this.id;
      if (delta.header) {
        this._header = delta.header;
      }
      if (delta.events && delta.events.length) {
        if (!this.run) {
          app.transport.toggle(false);
          this.run = new Run({ header: { ...this._header, source: "live" }, complete: false, events: [], captions: [] });
          this.run.goesOn = true;
          this._show({ run: this.run, entry: null, replay: null, index: 0 });
        }
        if (app.run === this.run) app.extend(delta);
        else this.run.append(delta.events, delta.captions, delta.texts, delta.letters); // somebody looks at another run meanwhile
      }
      if (delta.progress) tell.progress(...progressOf(delta.progress));
      if (delta.done || delta.error) ended = delta;
    };
    try {
      for await (const { value: said, last } of app.server.stream("run", [{ ...spec, as_text: true }], this._abort.signal)) {
        const value = typeof said === "string" ? JSON.parse(said) : said; // text costs the engine less than objects
        if (!value || (last && value.seq < next)) continue;
        if (value.seq > next && this.id) await this._catchUp(next, take);
        take(value);
      }
      if (!ended && this.id) await this._catchUp(next, take);
    } catch (error) {
      if (error.name !== "AbortError") ended = { error: `The run broke off: ${error.message}.` };
    }
    app.running = app.following = false;
    ended ??= { error: "The run broke off: the server went away." };
    if (this.run) {
      this.run.goesOn = false;
      this.run.complete = Boolean(ended.done && !ended.error && !ended.stopped);
      this._entry = ended.url ? { name: null, id: ended.id, url: ended.url } : null; // kept on the server: to export, to fetch again
      if (app.run === this.run) {
        app.entry = this._entry;
        app.bar.marks();
      }
      this._total(this.run, ended.url);
    }
    app.redraw();
    this.ended = ended.error ? null : this.run && { run: this.run, entry: this._entry };
    if (ended.error) this._failed(ended.error, app.run === this.run ? before : this._held(), tell);
    else tell.done(ended.stopped || (this.run ? `Done: ${plural(this.run.length, "step")}.` : "Done: there was nothing to compute."));
    return !ended.error;
  }

  /** What the whole run cost, from what the server has kept of it. */
  async _total(run, url) {
    if (!url) return;
    try {
      run.totals = (await fetchJson(url)).totals;
    } catch {
      return; // the run itself is here
    }
    if (this.app.run === run) this.app.bar.marks();
  }

  /** Say why; where a run was on screen before, it comes back, and the two can be changed for each other. */
  _failed(sentence, before, tell) {
    if (!this.run || !before.run) return tell.failed(sentence);
    const failed = { run: this.run, entry: this._entry, replay: null, index: this.run.length - 1 };
    const offer = (shown, other, text) => {
      this._show(shown);
      tell.failed(sentence, { text, act: () => offer(other, shown, shown === before ? "Back to the run before" : whole) });
    };
    const whole = `Show the ${plural(failed.run.length, "step")} until it failed`;
    return offer(before, failed, whole);
  }

  /** The run that goes on, on screen again. */
  back() {
    if (this.run && this.app.run !== this.run) this._show({ run: this.run, entry: null, replay: null, index: this.run.length - 1 });
  }

  /** The run on screen, to come back to. */
  _held() {
    const { run, entry, replay, index } = this.app;
    return { run, entry, replay, index };
  }

  _show({ run, entry, replay, index }) {
    Object.assign(this.app, { run, entry, replay });
    this.app.editor.shown = run; // the form stays: it says what was asked
    this.app.entered({ step: run.length ? run.stepOf(Math.min(index, run.length - 1)) : null });
  }

  async _catchUp(from, take) {
    const answer = await this.app.server.call("missing", this.id, from);
    for (const delta of (Array.isArray(answer) ? answer : answer && answer.deltas) || []) take(delta);
  }

  async cancel() {
    if (!this.app.running) return;
    if (this.id) await this.app.server.call("cancel", this.id);
    else this._abort.abort();
  }
}

function progressOf({ step, tokens, total_tokens: total, ahead }) {
  if (ahead) return [0, `${plural(ahead, "run")} ahead of yours.`];
  const where = Number.isInteger(step) ? `Step ${step}: ` : tokens ? "" : "Starting: ";
  return [total ? tokens / total : 0, `${where}${tokens || 0} of ${plural(total || 0, "token")}.`];
}
