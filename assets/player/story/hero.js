// The first picture: the lanes of two runs of the same requests on one scale, in waves and
// continuously. It plays once, then shows the end.

import { h, newButton, reducedMotion, setText } from "../parts/dom.js";
import { drawSoon, paintTheme, prefersDark } from "../parts/look.js";
import { t } from "../parts/speech.js";
import { LaneChart } from "../views/lane_chart.js";
import { GUTTER } from "../views/lane_ink.js";
import { laneScale } from "../run/lane_layout.js";

const EACH = 330; // milliseconds per step

export class Hero {
  /**
   * @param {HTMLElement} root
   * @param {{name: string, run: Run}[]} members
   * @param {string} again the label of the button that plays the picture again
   * @param {string} label what the picture shows, for screen readers
   */
  constructor(root, members, again, label) {
    this.root = root;
    root.classList.add("inflight", "figure");
    this.palette = paintTheme(root, prefersDark());
    this.drawsSoon = false;
    this.columns = Math.max(...members.map(({ run }) => run.length));
    this.at = this.columns; // steps since the beginning
    this._since = NaN;
    this.button = newButton({ class: "button", onclick: () => this.play() }, again);
    this.charts = members.map(({ name, run }, n) => {
      const says = h("b", {});
      const canvas = h(
        "canvas",
        n ? { "aria-hidden": "true" } : { role: "img", "aria-label": label },
      );
      root.append(
        h("p", { class: "hero-name" }, h("span", {}, name), says),
        h("div", { class: "canvas hero-lanes" }, canvas),
      );
      return { run, says, chart: new LaneChart(canvas, () => drawSoon(this)) };
    });
    root.append(this.button);
  }

  play() {
    if (reducedMotion()) return;
    this._since = performance.now();
    drawSoon(this);
  }

  /** Show the end, as for printing. */
  settle() {
    this._since = NaN;
    this.at = this.columns;
    this.draw();
  }

  /** @param {boolean} dark */
  theme(dark) {
    this.palette = paintTheme(this.root, dark);
    drawSoon(this);
  }

  draw() {
    if (this._since) {
      this.at = Math.min(this.columns, (performance.now() - this._since) / EACH);
      if (this.at >= this.columns) this._since = NaN;
    }
    for (const { run, chart, says } of this.charts) {
      if (!chart.surface.visible) continue;
      const per = (chart.surface.w - GUTTER - 2) / this.columns;
      chart.paint({ run, palette: this.palette, focus: null, presenter: false }, "", () => ({
        scale: laneScale(run, false, GUTTER, per),
        axis: 2,
        font: 12,
        end: GUTTER + run.length * per,
      }));
      chart.show(GUTTER + Math.min(this.at, run.length) * per, 0);
      const done = Math.min(run.length, Math.floor(this.at + 1e-6));
      setText(says, t(`${done} [step|steps]`));
    }
    if (this._since) drawSoon(this);
  }
}
