// The choice of where a run is computed, in a form: in this tab, on the visitor's own machine, or
// by the server, on one of its devices. The choice is stored and applies to every form of the page.

import { h } from "../parts/dom.js";
import { NO_PYODIDE } from "../parts/look.js";
import { t, tell } from "../parts/speech.js";

const TAB = "tab"; // an option beside a spec's devices; the spec then says "auto"
const DEVICES = [
  ["auto", "auto"],
  ["cpu", "CPU"],
  ["cuda", "CUDA"],
];

export class DeviceField {
  /**
   * @param {HTMLSelectElement} select in a label with a <small>
   * @param {import("./engines.js").Engines | null} engines
   * @param {() => {model?: string, dtype?: string}} asked the form's fields about the model
   */
  constructor(select, engines, asked) {
    this.select = select;
    this.engines = engines;
    this.asked = asked;
    this.says = /** @type {HTMLElement} */ (select.parentElement?.querySelector("small"));
    select.addEventListener("change", () => this._chosen());
    select.form?.addEventListener("change", (e) => e.target !== select && this.named());
    this.named();
  }

  get value() {
    return this.select.value === TAB ? "auto" : this.select.value;
  }

  /** Choose a spec's device. @param {string} device */
  choose(device) {
    this.device = device;
    this.named();
  }

  /** Write the options again: the model, the language or the choice in another form changed. */
  named() {
    const { engines, select, device = "auto" } = this;
    const fits = Boolean(engines?.fits(this.asked()));
    const options = [
      ...(fits ? [[TAB, "your machine"]] : []),
      ...(engines?.server && !((this.asked().model ?? "") in engines.own)
        ? DEVICES.map(([value, name]) => [
            value,
            !engines.tab ? name : value === "auto" ? "the server" : `the server: ${name}`,
          ])
        : []),
    ];
    select.replaceChildren(...options.map(([value, name]) => h("option", { value }, t(name))));
    select.value =
      fits && device === "auto" && engines?.prefersTab(this.asked())
        ? TAB
        : options.some(([value]) => value === device)
          ? device
          : options[0]?.[0];
    this._say();
  }

  _chosen() {
    if (this.engines?.both) this.engines.choose(this.select.value === TAB);
    this.device = this.value;
    this._say();
  }

  _say() {
    const { engines, select } = this;
    const rest = engines?.both && !engines.fits(this.asked());
    const says =
      select.value === TAB
        ? "The engine runs in this tab: what you type stays on your machine."
        : rest
          ? "This tab computes {models} in float32; the server does the rest."
          : engines?.lacksTab
            ? NO_PYODIDE
            : "Where it computes them.";
    tell(this.says, says, { models: engines?.models.join(", ") || "" });
  }
}
