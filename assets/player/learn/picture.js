// A lesson's picture: a view of its run at the step that shows most, drawn small by the page's own
// views once it comes into sight.

import { h } from "../parts/dom.js";
import { isDarkBeside, onTheme, paintTheme } from "../parts/look.js";
import { Figure } from "../figure/figure.js";
import { Run } from "../run/run.js";

const MARGIN = 1.04; // the axis is longer than the run, so that the mark at its end is not cut off

export class Picture {
  /** What to show: {run, step, view, clock}. */
  constructor(
    /** @type {Watch} */ watch,
    /** @type {NonNullable<Lesson["picture"]>} */ { run, step, view, clock },
  ) {
    this.el = h("div", {
      class: "lesson-picture",
      "data-view": view,
      "aria-hidden": "true",
      inert: true,
    });
    const entry = watch.recorded(run);
    const near = new IntersectionObserver(
      async (seen) => {
        if (!entry || !seen.some((one) => one.isIntersecting)) return;
        near.disconnect();
        try {
          const replay = await watch.fetch(entry.url ?? "");
          this._draw(new Run(replay), step, { views: [view], clock });
        } catch {
          // without a picture the lesson still has its words
        }
      },
      { rootMargin: "300px" },
    );
    near.observe(this.el);
  }

  _draw(/** @type {Run} */ run, /** @type {number} */ step, /** @type {Json} */ options) {
    const root = h("div");
    this.el.append(root);
    const figure = new Figure(root, run, { ...options, columns: MARGIN * run.span(options.clock) });
    const theme = () => {
      figure.palette = paintTheme(root, isDarkBeside());
      figure.show({ index: run.indexOf(step) });
    };
    theme();
    onTheme(theme, document.querySelector("#watch .inflight"));
  }
}
