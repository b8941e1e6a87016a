// A run as it happens: takes deltas in order, none lost, none twice; keeps the last picture until the first step is here.

import { plural } from "./dom.js";
import { Run } from "./run.js";

export class Live {
  constructor(app) {
    this.app = app;
    this.id = null;
  }

  /** Run a spec. tell: {progress(share, words), done(), failed(sentence)}. True if it ran to its end. */
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
    let begun = false;
    let ended = null;
    const take = (delta) => {
      if (delta.seq < next) return; // seen before
      next = delta.seq + 1;
      this.id = delta.run || this.id;
      if (delta.header) {
        this._header = delta.header;
      }
      if (delta.events && delta.events.length) {
        if (!begun) {
          begun = true;
          app.entry = null;
          app.transport.toggle(false);
          app.run = new Run({ header: { ...this._header, source: "live" }, complete: false, events: [], captions: [] });
          app.replay = null;
          app.entered();
        }
        app.extend(delta);
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
    app.running = false;
    if (begun) {
      app.run.complete = Boolean(ended && ended.done && !ended.error && !ended.stopped);
      if (ended && ended.url) app.entry = { name: null, id: ended.id, url: ended.url }; // on the server's shelf: to export, to fetch again
      app._marks();
    }
    app.following = false;
    app.redraw();
    if (!ended) tell.failed("The run broke off: the server went away.");
    else if (ended.error) tell.failed(ended.error);
    else tell.done(ended.stopped || (begun ? `Done: ${plural(app.run.length, "step")}.` : "Done: there was nothing to compute."));
    return Boolean(ended && !ended.error);
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
