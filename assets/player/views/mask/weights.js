// What the model uses of what the mask permits: real attention weights of one layer and head, fetched for a step that stays.

import { h } from "../../parts/dom.js";
import { t } from "../../parts/speech.js";

export class Weights {
  constructor(app) {
    this.app = app;
    this.reset();
  }

  reset() {
    [this.on, this.layer, this.head] = [false, 0, 0];
    this.known = new Map(); // step/pass/layer/head -> Map of request id -> {start, weights}
    this.error = null; // a sentence
    this.loading = false;
  }

  _turn(on) {
    this.on = on;
    this.error = null;
    this.app.redraw();
  }

  /** Only runs that the server keeps can be computed again. */
  get offered() {
    const { app } = this;
    return Boolean(app.server && !app.running && !app.leak.on && app.runId && app.run.header.model && app.run.header.model.layers);
  }

  /** The weights of a pass, or null until they are here. */
  of(frame, pass) {
    this.loading = false;
    if (!this.on || this.error || !this.offered || !pass) return null;
    const key = `${frame.event.step}/${pass.index}/${this.layer}/${this.head}`;
    if (!this.known.has(key)) this._soon(key, frame.event.step, pass.index);
    const found = this.known.get(key) || null;
    this.loading = !found;
    return found;
  }

  _soon(key, step, passIndex) {
    clearTimeout(this._timer);
    const { app } = this;
    this._timer = setTimeout(async () => {
      if (app.transport.playing || app.lanes.dragging || this.known.has(key)) return;
      this.known.set(key, null);
      const { run } = app;
      let answer;
      try {
        answer = await app.server.call("attention", app.runId, step, passIndex, this.layer, this.head);
      } catch (error) {
        answer = { error: `The weights could not be fetched: ${error.message}.` };
      }
      if (app.run !== run) return;
      if (answer.error) {
        if (this.head > 0 && /no head/.test(answer.error)) this.head = 0; // past the last head: begin again
        else this.error = answer.error;
        this.known.delete(key);
      } else this.known.set(key, new Map(answer.segments.map((s) => [s.request, s])));
      app.redraw();
    }, 250);
  }

  get signature() {
    return `${this.offered}${this.on}${this.layer}/${this.head}${this.loading}${this.error}`;
  }

  controls() {
    const { app } = this;
    if (!this.offered) return [];
    const toggle = h("button", {
      type: "button", class: "mini", "aria-pressed": String(this.on), title: t("The model's real attention weights inside the allowed cells"),
      onclick: () => this._turn(!this.on),
    }, t("Weights"));
    if (!this.on) return [toggle];
    if (this.error) return [toggle, h("span", { class: "weights-error", role: "alert", title: this.error }, this.error), h("button", { type: "button", class: "mini", onclick: () => this._turn(true) }, t("Try again"))];
    const { layers } = app.run.header.model;
    const select = h("select", { class: "mini", "aria-label": t("Layer of the weights"), onchange: () => { this.layer = Number(select.value); app.redraw(); } },
      ...Array.from({ length: layers }, (_, i) => h("option", { value: String(i) }, t(`layer ${i}`))));
    select.value = String(this.layer);
    const head = h("button", { type: "button", class: "mini", title: t("Next head"), onclick: () => { this.head += 1; app.redraw(); } }, t(`head ${this.head}`));
    return [toggle, select, head, this.loading ? h("span", { class: "weights-loading", role: "status" }, t("computing …")) : null].filter(Boolean);
  }
}
