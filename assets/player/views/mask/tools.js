// The buttons above a mask: which pass, which layer's window, zoom, weights.

import { h, newButton } from "../../parts/dom.js";
import { t } from "../../parts/speech.js";

export class MaskTools {
  /** @param {MaskView} mask @param {HTMLElement} bar where they stand */
  constructor(mask, bar) {
    this.mask = mask;
    this.bar = bar;
    this._signature = "";
  }

  /** Recreate them if their labels have changed. @param {ViewState} state */
  show(state) {
    const { mask } = this;
    const { actions } = mask;
    const {
      run,
      frame,
      pass,
      pinned,
      leak,
      weights: { found, ...weights },
    } = state;
    const zoomable = pinned && pass && pass.items.some((i) => i.request === pinned && i.length);
    const windows = new Set(run.windows);
    const signature = JSON.stringify([
      frame.passes.length,
      pass?.index,
      frame.passes.map((p) => p.items.length + p.layout),
      zoomable && pinned.letter,
      Boolean(mask.zoom),
      mask.layer,
      state.language,
      leak,
      run.windows,
      weights,
    ]);
    if (signature === this._signature) return;
    this._signature = signature;
    const buttons = [];
    if (frame.passes.length > 1) {
      frame.passes.forEach((p, i) => {
        const what = p.padded ? t("decode") : p.items.map((x) => x.request.letter).join(" ");
        buttons.push(
          newButton(
            {
              class: "mini",
              "aria-pressed": String(p === pass),
              title: t(`Pass ${i + 1} of ${frame.passes.length}`),
              onclick: () => actions.choosePass(i),
            },
            `${i + 1} ${what}`,
          ),
        );
      });
    }
    if (windows.size > 1) {
      const select = h(
        "select",
        {
          class: "mini",
          "aria-label": t("Layer"),
          onchange: () => {
            mask.layer = select.value === "" ? null : Number(select.value);
            actions.redraw();
          },
        },
        h("option", { value: "" }, t("widest layer")),
        ...run.windows.map((/** @type {number | null} */ w, /** @type {number} */ i) =>
          h(
            "option",
            { value: String(i) },
            t(`layer ${i}: ${w === null ? "full" : `window ${w}`}`),
          ),
        ),
      );
      select.value = mask.layer === null ? "" : String(mask.layer);
      buttons.push(select);
    }
    if (leak.offered || leak.on)
      buttons.push(
        newButton(
          {
            class: "mini leak-button",
            "aria-pressed": String(leak.on),
            title: t(
              "Break the mask: these requests once more, and each also reads the next one's keys",
            ),
            onclick: () => actions.toggleLeak(),
          },
          `${t("Leak")}${leak.working ? `: ${t(leak.working)}` : ""}`,
        ),
      );
    if (mask.zoom)
      buttons.push(
        newButton(
          {
            class: "mini",
            onclick: () => {
              mask.zoom = null;
              actions.redraw();
              actions.changed();
            },
          },
          t("Whole mask"),
        ),
      );
    else if (zoomable)
      buttons.push(
        newButton(
          { class: "mini", onclick: () => mask.zoomTo(pinned) },
          `${t("Zoom to")} ${pinned.letter}`,
        ),
      );
    this.bar.replaceChildren(...buttons, ...weightTools(run, weights, actions));
  }
}

/**
 * Switched on: whose weights, of which layer and head. @param {Run} run @param {Omit<WeightsState,
 * "found">} weights @param {ViewActions} actions
 */
function weightTools(run, { offered, on, layer, head, withoutFirst, loading, error }, actions) {
  if (!offered) return [];
  const turn = (/** @type {boolean} */ to) => actions.weigh({ on: to, error: null });
  const toggle = newButton(
    {
      class: "mini",
      "aria-pressed": String(on),
      title: t("The model's real attention weights inside the allowed cells"),
      onclick: () => turn(!on),
    },
    t("Weights"),
  );
  if (!on) return [toggle];
  if (error)
    return [
      toggle,
      h("span", { class: "weights-error", role: "alert", title: error }, error),
      newButton({ class: "mini", onclick: () => turn(true) }, t("Try again")),
    ];
  const select = h(
    "select",
    {
      class: "mini",
      "aria-label": t("Layer of the weights"),
      onchange: () => actions.weigh({ layer: Number(select.value) }),
    },
    ...Array.from({ length: run.header.model.layers }, (_, i) =>
      h("option", { value: String(i) }, t(`layer ${i}`)),
    ),
  );
  select.value = String(layer);
  const next = newButton(
    { class: "mini", title: t("Next head"), onclick: () => actions.weigh({ head: head + 1 }) },
    t(`head ${head}`),
  );
  const scale = newButton(
    {
      class: "mini",
      "aria-pressed": String(withoutFirst),
      title: t(
        "Many models attend mostly to a request's first token: without it, the rest has the whole scale",
      ),
      onclick: () => actions.weigh({ withoutFirst: !withoutFirst }),
    },
    t("without the first token"),
  );
  return [
    toggle,
    select,
    next,
    scale,
    ...(loading ? [h("span", { class: "weights-loading", role: "status" }, t("computing …"))] : []),
  ];
}
