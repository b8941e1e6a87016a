// Attention weights: what one layer and head of the model does with the positions that the mask
// permits. They are fetched when a step stays on screen.

export class Weights {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    /** @type {number | undefined} */
    this._timer = undefined;
    this.on = false;
    this.layer = this.head = 0;
    // in a trained model the first token often gets nearly all weight, which would hide the rest
    this.withoutFirst = true;
    this.reset();
  }

  reset() {
    clearTimeout(this._timer);
    [this.on, this.layer, this.head] = [false, 0, 0];
    /** @type {Map<string | null, Map<string, {weights: number[][]}> | null>} */
    this.known = new Map(); // step/pass/layer/head -> Map of request id -> {start, weights}
    /** @type {{key: string | null, says: string} | null} */
    this.error = null; // why a pass has no weights
  }

  /** Whether weights can be had: an engine must have the run to compute it again. */
  get offered() {
    const { app } = this;
    const isKept = app.runId && app.engines?.can("attention", app.runId);
    return Boolean(isKept && !app.running && !app.leak.on && app.run.header.model?.layers);
  }

  /**
   * The state for views: which weights are wanted, and those of a pass, null until they have
   * arrived.
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

  _soon(/** @type {string | null} */ key, /** @type {Json} */ which) {
    clearTimeout(this._timer);
    const { app } = this;
    this._timer = setTimeout(async () => {
      if (app.transport.playing || app.lanes.dragging || this.known.has(key)) return;
      this.known.set(key, null);
      const { run } = app;
      let answer;
      try {
        answer = await app.engines?.call("attention", app.runId, ...which);
      } catch (/** @type {Foreign} */ error) {
        answer = { error: `The weights could not be fetched: ${error.message}.` };
      }
      if (app.run !== run) return;
      if (answer.error) {
        // after the last head, begin with the first again
        if (this.head > 0 && /no head/.test(answer.error)) this.head = 0;
        else this.error = { key, says: answer.error };
        this.known.delete(key);
      } else
        this.known.set(
          key,
          new Map(answer.segments.map((/** @type {Json} */ s) => [s.request, s])),
        );
      app.redraw();
    }, 250);
  }
}
