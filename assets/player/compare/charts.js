// Plotly figures in panels: each with its finding as heading, a chart in the theme's colours, and
// downloads. Plotly is fetched when the first chart is about to become visible.

import { download, h, newButton, runScript } from "../parts/dom.js";
import { HUES, mix } from "../parts/colours.js";
import { unbroken } from "../parts/format.js";
import { inPage, plotlySource } from "../parts/plotly.js";
import { speaking, t } from "../parts/speech.js";

const CONFIG = { displayModeBar: false, displaylogo: false, responsive: true };
const TINTS = [0.18, 0.25, 0.35]; // shares of a hue on white that visualizer/charts uses
const [PNG_WIDTH, PNG_HEIGHT] = [1200, 675];

/** Load Plotly; returns it with its script: {Plotly, source}. */
async function fetchPlotly(/** @type {string} */ url) {
  const source = await plotlySource(url);
  const script = new Blob([source], { type: "text/javascript" });
  if (!window.Plotly) await runScript(URL.createObjectURL(script), "Plotly did not start");
  return { Plotly: window.Plotly, source };
}

export class Charts {
  /**
   * el: where panels go. options: {plotly: url, palette(), toast(sentence), phone(), picked(n):
   * called when point n of a figure with numbered points was clicked}.
   */
  constructor(/** @type {HTMLElement} */ el, /** @type {Json} */ options) {
    this.el = el;
    this.options = options;
    /** @type {Json[]} */
    this.panels = [];
    this.seen = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries)
          if (isIntersecting) this._draw(this.panels.find((p) => p.plot === target));
      },
      { rootMargin: "300px" },
    );
  }

  /** figures: [{name, title, finding, definitions, figure}]. of: what they show, for file names. */
  show(/** @type {Json} */ figures, /** @type {Json} */ of) {
    this.seen.disconnect();
    this.of = /^[\w-]+$/.test(of) ? of : "comparison";
    this.panels = figures.map((/** @type {Json} */ data) => {
      const plot = h("div", { class: "plot waiting", role: "img", "aria-label": data.finding });
      const save = (/** @type {string} */ kind, /** @type {string} */ title) =>
        newButton(
          { class: "mini", title: t(title), onclick: () => this._save(data, kind) },
          kind.toUpperCase(),
        );
      const tools = h(
        "span",
        { class: "tools end fixed" },
        save("png", "This figure as a picture"),
        save("html", "This figure as an interactive page that opens from disk"),
      );
      const title = h(
        "span",
        { class: "title", title: data.definitions.join("\n") || null },
        data.title,
      );
      const el = h(
        "section",
        { class: "panel chart surface", "data-chart": data.name },
        h("h3", {}, title, tools),
        h("p", {}, unbroken(data.finding)),
        plot,
      );
      return { data, plot, el, drawn: false };
    });
    this.el.replaceChildren(...this.panels.map((p) => p.el));
    for (const panel of this.panels) this.seen.observe(panel.plot);
  }

  repaint() {
    for (const panel of this.panels)
      if (panel.drawn) {
        panel.drawn = false;
        this._draw(panel);
      }
  }

  async _draw(/** @type {Json} */ panel) {
    if (!panel || panel.drawn) return;
    panel.drawn = true;
    try {
      this._plotly ??= fetchPlotly(this.options.plotly);
      const { Plotly } = await this._plotly;
      if (!panel.el.isConnected) return; // another comparison's charts stand there by now
      const { data, layout } = recolour(panel.data.figure, coloursOf(this.options.palette()));
      const phone = this.options.phone();
      const { title, meta, height, width, ...rest } = phone ? stacked(layout) : layout;
      panel.plot.classList.toggle("stacked", phone && rest.xaxis !== layout.xaxis);
      // a phone's charts are low: only thicker bars leave room for legible numbers
      const bars = data.map((/** @type {Json} */ trace) =>
        phone && trace.width ? { ...trace, width: 0.84 } : trace,
      );
      await Plotly.newPlot(
        panel.plot,
        bars,
        {
          ...rest,
          autosize: true,
          paper_bgcolor: "rgba(0,0,0,0)",
          plot_bgcolor: "rgba(0,0,0,0)",
          margin: { l: phone ? 78 : 96, r: 20, t: rest.showlegend === false ? 8 : 34, b: 46 },
          font: { ...rest.font, size: 12 },
          ...(phone && { bargap: 0.16, uniformtext: { minsize: 11, mode: "hide" } }),
          dragmode: false,
        },
        CONFIG,
      );
      panel.plot.classList.remove("waiting");
      panel.plot.on?.("plotly_click", (/** @type {Json} */ { points: [{ customdata: n }] }) => {
        if (Number.isInteger(n)) this.options.picked(n);
      });
    } catch (/** @type {Foreign} */ error) {
      panel.drawn = false;
      /** @type {Promise<Foreign> | null} */ this._plotly = null;
      panel.plot.textContent = t("The chart could not be drawn ({why}).", { why: error.message });
    }
  }

  async _save(/** @type {Json} */ data, /** @type {string} */ kind) {
    const name = `inflight-${this.of}-${data.name.replaceAll("_", "-")}`;
    try {
      this._plotly ??= fetchPlotly(this.options.plotly);
      const { Plotly, source } = await this._plotly;
      const [made, type] =
        kind === "png"
          ? [await pictureOf(data.figure, Plotly), "image/png"]
          : [figurePage(data, source), "text/html"];
      download(`${name}.${kind}`, new Blob([made], { type }));
    } catch (/** @type {Foreign} */ error) {
      this._plotly = window.Plotly ? this._plotly : null;
      this.options.toast(t("The figure could not be saved: {why}.", { why: error.message }));
    }
  }
}

/** A figure as the bytes of a PNG. */
async function pictureOf(/** @type {Json} */ { data, layout }, /** @type {Json} */ Plotly) {
  const size = { width: PNG_WIDTH, height: PNG_HEIGHT };
  const figure = { data, layout: { ...layout, ...size } };
  const url = await Plotly.toImage(figure, { format: "png", ...size, scale: 2 });
  // the page's content security policy does not let it fetch a data: address
  return Uint8Array.from(atob(url.split(",")[1]), (c) => c.charCodeAt(0));
}

/** The layout with two separate charts one below the other instead of side by side. */
function stacked(/** @type {Json} */ layout) {
  if (!layout.xaxis2 || layout.yaxis2.matches) return layout;
  const { xaxis, xaxis2, yaxis, yaxis2 } = layout;
  return {
    ...layout,
    xaxis: { ...xaxis, domain: [0, 1] },
    xaxis2: { ...xaxis2, domain: [0, 1] },
    yaxis: { ...yaxis, domain: [0.62, 1] },
    yaxis2: { ...yaxis2, domain: [0, 0.38] },
  };
}

/** An HTML page with the figure and Plotly. The figure is embedded as data, never as markup. */
function figurePage(/** @type {Json} */ data, /** @type {string} */ source) {
  const inert = JSON.stringify(data.figure).replaceAll("<", "\\u003c");
  const title = document.createElement("title");
  title.textContent = data.finding;
  return (
    `<!doctype html>\n<html lang="${speaking()}"><head><meta charset="utf-8">${title.outerHTML}<style>html, body, #figure { height: 100%; margin: 0; }</style></head><body><div id="figure"></div>` +
    `${inPage(source)}<script id="data" type="application/json">${inert}</script><script>` +
    `const f = JSON.parse(document.getElementById("data").textContent); delete f.layout.height; Plotly.newPlot("figure", f.data, f.layout, {responsive: true, displaylogo: false});</script></body></html>\n`
  );
}

/** This theme's colour for each colour of visualizer/charts. @param {Palette} palette */
function coloursOf(palette) {
  const table = new Map([
    ["#ffffff", palette.panel],
    ["#faf8f4", palette.panel],
    ["#e3ddd2", palette.rule],
    ["#1b1b1f", palette.ink],
    ["#5c5a55", palette.soft],
    ["#f0ece4", palette.empty],
    ["#bfb8aa", palette.pad],
  ]);
  HUES.forEach((hue, i) => {
    table.set(hue.toLowerCase(), palette.hues[i].solid);
    for (const share of TINTS)
      table.set(mix("#ffffff", hue, share), mix(palette.panel, palette.hues[i].solid, share));
  });
  return table;
}

/**
 * A copy of plain data in which strings are replaced as a table says, ignoring case.
 * @template T @param {T} data @param {Map<string, string>} table @returns {Json}
 */
export function recolour(data, table) {
  if (Array.isArray(data)) return data.map((value) => recolour(value, table));
  if (data && typeof data === "object")
    return Object.fromEntries(
      Object.entries(data).map(([key, value]) => [key, recolour(value, table)]),
    );
  return typeof data === "string" ? (table.get(data.toLowerCase()) ?? data) : data;
}
