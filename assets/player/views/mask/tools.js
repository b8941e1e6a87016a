// The buttons above a mask: which pass, which layer's window, zoom, weights.

import { h } from "../../parts/dom.js";
import { t } from "../../parts/speech.js";

/** bar: where they stand. */
export class MaskTools {
  constructor(mask, bar) {
    this.mask = mask;
    this.bar = bar;
    this._signature = "";
  }

  /** Make them again where their labels have changed. */
  show(frame, pass) {
    const { mask } = this;
    const { app } = mask;
    const pinned = app.pinned;
    const zoomable = pinned && pass && pass.items.some((i) => i.request === pinned && i.length);
    const windows = new Set(app.run.windows);
    const signature = JSON.stringify([frame.passes.length, app.passIndex(frame), frame.passes.map((p) => p.items.length + p.layout),
      zoomable && pinned.letter, Boolean(mask.zoom), mask.layer, app.speech.name, app.leak.offered, app.leak.on, app.leak.working, app.run.windows, mask.weights.signature]);
    if (signature === this._signature) return;
    this._signature = signature;
    const buttons = [];
    if (frame.passes.length > 1) {
      frame.passes.forEach((p, i) => {
        const what = p.padded ? t("decode") : p.items.map((x) => x.request.letter).join(" ");
        buttons.push(h("button", {
          type: "button", class: "mini", "aria-pressed": String(i === app.passIndex(frame)), title: t(`Pass ${i + 1} of ${frame.passes.length}`),
          onclick: () => app.choosePass(i, frame),
        }, `${i + 1} ${what}`));
      });
    }
    if (windows.size > 1) {
      const select = h("select", { class: "mini", "aria-label": t("Layer"), onchange: () => {
        mask.layer = select.value === "" ? null : Number(select.value);
        app.redraw();
      } }, h("option", { value: "" }, t("widest layer")), ...app.run.windows.map((w, i) => h("option", { value: String(i) }, t(`layer ${i}: ${w === null ? "full" : `window ${w}`}`))));
      select.value = mask.layer === null ? "" : String(mask.layer);
      buttons.push(select);
    }
    if (app.leak.offered || app.leak.on) buttons.push(h("button", {
      type: "button", class: "mini leak-button", "aria-pressed": String(app.leak.on), title: t("Take the mask's wall away: these requests once more, and each also reads the next one's keys"), onclick: () => app.leak.toggle(),
    }, `${t("Leak")}${app.leak.working ? `: ${t(app.leak.working)}` : ""}`));
    if (mask.zoom) buttons.push(h("button", { type: "button", class: "mini", onclick: () => { mask.zoom = null; app.redraw(); app.changed(); } }, t("Whole mask")));
    else if (zoomable) buttons.push(h("button", { type: "button", class: "mini", onclick: () => mask.zoomTo(pinned) }, `${t("Zoom to")} ${pinned.letter}`));
    this.bar.replaceChildren(...buttons, ...mask.weights.controls());
  }
}
