// How the model uses what the mask permits: real attention weights of one layer and head, fetched
// once a step stays on screen.

export class Weights {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {number | undefined} */
    this._timer = undefined;
    this.on = false;
    this.layer = this.head = 0;
    // in a trained model the first token often takes nearly all, and the rest could not be seen
    this.withoutFirst = true;
    this.reset();
  }

  reset() {
    clearTimeout(this._timer);
    [this.on, this.layer, this.head] = [false, 0, 0];
    /** @type {Map<string | null, Map<string, {weights: number[][]}> | null>} */
    this.known = new Map(); // step/pass/layer/head -> Map of request id -> {start, weights}
    /** @type {{key: string | null, says: string} | null} */
    this.error = null; // why those of a pass cannot be had
  }

  /** Only runs that an engine has can be computed again. */
  get offered() {
    const { app } = this;
    const isKept = app.runId && app.engines?.can("attention", app.runId);
    return Boolean(isKept && !app.running && !app.leak.on && app.run.header.model?.layers);
  }

  /**
   * The state for a view: which weights, and those of a pass, null until they have arrived.
   * @param {Frame} frame @param {Pass | null} pass @returns {WeightsState}
   */
  state(frame, pass) {
    const { offered, on, layer, head, withoutFirst } = this;
    const key = pass && `${frame.event.step}/${pass.index}/${layer}/${head}`;
    const error = this.error?.key === key ? this.error.says : null;
    const wanted = Boolean(on && !error && offered && pass);
    if (wanted && pass && !this.known.has(key))
      this._soon(key, [frame.event.step, pass.index, layer, head]);
    const found = wanted ? this.known.get(key) || null : null;
    const loading = wanted && !found;
    return { offered, on, layer, head, withoutFirst, error, found, loading };
  }

  _soon(key, which) {
    clearTimeout(this._timer);
    const { app } = this;
    this._timer = setTimeout(async () => {
      if (app.transport.playing || app.lanes.dragging || this.known.has(key)) return;
      this.known.set(key, null);
      const { run } = app;
      let answer;
      try {
        answer = await app.engines?.call("attention", app.runId, ...which);
      } catch (error) {
        answer = { error: `The weights could not be fetched: ${error.message}.` };
      }
      if (app.run !== run) return;
      if (answer.error) {
        // past the last head: start over
        if (this.head > 0 && /no head/.test(answer.error)) this.head = 0;
        else this.error = { key, says: answer.error };
        this.known.delete(key);
      } else this.known.set(key, new Map(answer.segments.map((s) => [s.request, s])));
      app.redraw();
    }, 250);
  }
}
