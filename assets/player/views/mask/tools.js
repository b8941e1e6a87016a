// The buttons above a mask: which pass, which layer's window, zoom, weights.

import { h, newButton, put } from "../../parts/dom.js";
import { t } from "../../parts/speech.js";

const LEAK = "Break the mask: these requests once more, and each also reads the next one's keys";

export class MaskTools {
  /** @param {MaskView} mask @param {HTMLElement} bar of the buttons */
  constructor(mask, bar) {
    this.mask = mask;
    this.bar = bar;
    this._signature = "";
  }

  /** Rebuild the buttons if their labels have changed. @param {ViewState} state */
  show(state) {
    const { mask } = this;
    const { actions } = mask;
    const { run, frame, pass, pinned, leak } = state;
    const { found, ...weights } = state.weights;
    const zoomable = pinned && pass && pass.items.some((i) => i.request === pinned && i.length);
    const windows = new Set(run.windows);
    const signature = JSON.stringify([
      pass?.index,
      frame.passes.map(takenBy),
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
    const { passes } = frame;
    const each = passes.map((p, i) => {
      const title = `Pass ${i + 1} of ${passes.length}`;
      const more = { title, on: p === pass, kind: "pass-choice" };
      return mini(`${i + 1} ${takenBy(p)}`, () => actions.choosePass(i), more);
    });
    const leaking = `${t("Leak")}${leak.working ? `: ${t(leak.working)}` : ""}`;
    put(
      this.bar,
      ...(passes.length > 1 ? each : []),
      windows.size > 1 && this._layers(run),
      (leak.offered || leak.on) &&
        mini(leaking, () => actions.toggleLeak(), {
          kind: "leak-button",
          title: LEAK,
          on: leak.on,
        }),
      mask.zoom
        ? mini(t("Whole mask"), () => mask.zoomTo(null))
        : zoomable && mini(`${t("Zoom to")} ${pinned.letter}`, () => mask.zoomTo(pinned)),
      ...weightTools(run, weights, actions),
    );
  }

  /** The choice of the layer whose window is shown. @param {Run} run */
  _layers({ windows }) {
    const { mask } = this;
    const names = windows.map(
      (/** @type {number | null} */ w, /** @type {number} */ i) =>
        `layer ${i}: ${w === null ? "full" : `window ${w}`}`,
    );
    return choice("Layer", ["widest layer", ...names], (mask.layer ?? -1) + 1, (n) => {
      mask.layer = n ? n - 1 : null;
      mask.actions.redraw();
      mask.actions.changed();
    });
  }
}

/** The requests in a pass, as its button names them. @param {Pass} pass */
const takenBy = ({ padded, items }) =>
  padded ? t("decode") : items.map(({ request }) => request.letter).join(" ");

/**
 * A small button. title: what it does; on: whether it is pressed, if it is a switch.
 * @param {string} words @param {() => void} onclick
 * @param {{title?: string, on?: boolean, kind?: string}} more
 */
function mini(words, onclick, { title, on, kind = "" } = {}) {
  const pressed = on === undefined ? null : String(on);
  const props = { class: `mini ${kind}`, "aria-pressed": pressed, title: title && t(title) };
  return newButton({ ...props, onclick }, words);
}

/**
 * A menu with one of several names chosen, by index. @param {string} label @param {string[]} names
 * @param {number} now @param {(n: number) => void} chosen
 */
function choice(label, names, now, chosen) {
  const options = names.map((name, n) => h("option", { value: String(n) }, t(name)));
  const select = h("select", { class: "mini", "aria-label": t(label) }, ...options);
  select.selectedIndex = now;
  select.addEventListener("change", () => chosen(select.selectedIndex));
  return select;
}

/**
 * The switch for attention weights and, once on, the choice of layer and head.
 * @param {Run} run @param {Omit<WeightsState, "found">} weights @param {ViewActions} actions
 */
function weightTools(run, { offered, on, layer, head, withoutFirst, loading, error }, actions) {
  if (!offered) return [];
  const turn = (/** @type {boolean} */ to) => actions.weigh({ on: to, error: null });
  const title = "The model's real attention weights inside the allowed cells";
  const toggle = mini(t("Weights"), () => turn(!on), { title, on });
  if (!on) return [toggle];
  if (error) {
    const says = h("span", { class: "weights-error fine", role: "alert", title: error }, error);
    return [toggle, says, mini(t("Try again"), () => turn(true))];
  }
  const layers = Array.from({ length: run.header.model.layers }, (_, i) => `layer ${i}`);
  return [
    toggle,
    choice("Layer of the weights", layers, layer, (n) => actions.weigh({ layer: n })),
    mini(t(`head ${head}`), () => actions.weigh({ head: head + 1 }), { title: "Next head" }),
    mini(t("without the first token"), () => actions.weigh({ withoutFirst: !withoutFirst }), {
      title:
        "Many models attend mostly to a request's first token: without it, the rest has the whole scale",
      on: withoutFirst,
    }),
    loading && h("span", { class: "weights-loading soft fine", role: "status" }, t("computing …")),
  ];
}
