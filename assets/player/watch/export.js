// Export: the view as PNG, the replay as JSON, and files that the run's engine writes (JSONL,
// Perfetto, one HTML file).

import { download, h } from "../parts/dom.js";
import { inPage, plotlySource } from "../parts/plotly.js";
import { fetchJson } from "../parts/server.js";
import { openFile } from "./open_file.js";

const NAME = "inflight";
const PLOTLY = "<!--PLOTLY-->"; // stands where Plotly's script belongs
const OPTIONS = /id="inflight-props"[^>]*>\s*\{/; // where a page's options for its player begin

/** The player as a PNG: its markup with every canvas as an image, drawn through SVG. */
export async function picture(/** @type {App} */ app) {
  const { root } = app;
  const { width, height } = root.getBoundingClientRect();
  const scale = Math.max(2, window.devicePixelRatio || 1);
  const copy = /** @type {Root} */ (root.cloneNode(true));
  const pairs = (/** @type {string} */ selector) => {
    const sources = [...root.querySelectorAll(selector)];
    return [...copy.querySelectorAll(selector)].map((one, i) => [one, sources[i]]);
  };
  pairs("canvas").forEach(([canvas, source]) => {
    if (source.width <= 1 || !source.clientWidth) return canvas.remove();
    const style = "position:absolute;inset:0;width:100%;height:100%";
    canvas.replaceWith(h("img", { src: source.toDataURL(), style }));
  });
  for (const [el, { scrollTop }] of pairs(".texts"))
    Object.assign(el.style, { marginTop: `${-scrollTop}px`, overflow: "hidden" });
  for (const [field, source] of pairs("input, select, textarea")) said(field, source);
  for (const gone of copy.querySelectorAll(".tooltip, .menu, .toast, .card, .hidden-text"))
    gone.remove();
  Object.assign(copy.style, { position: "relative", width: `${width}px`, height: `${height}px` });
  // as written, because a serialized style sheet loses its fonts
  const css = [...document.querySelectorAll("style")]
    .map((sheet) => sheet.textContent)
    .filter((text) => text.includes(".inflight"))
    .join("\n");
  // without this, an element that fades in would be drawn as at its beginning, invisible
  copy.prepend(h("style", {}, `${css}\n.inflight * { animation: none !important; }`));
  const markup = new XMLSerializer()
    .serializeToString(copy)
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width * scale}" height="${height * scale}" viewBox="0 0 ${width} ${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = h("canvas", {
    width: Math.round(width * scale),
    height: Math.round(height * scale),
  });
  canvas.getContext("2d")?.drawImage(image, 0, 0);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"),
  );
}

/** Copy the value of a form field into its clone. */
function said(/** @type {Foreign} */ copy, /** @type {Foreign} */ field) {
  if (field.tagName === "SELECT") copy.options[field.selectedIndex]?.setAttribute("selected", "");
  else if (field.tagName === "TEXTAREA") copy.textContent = field.value;
  else copy.setAttribute("value", field.value);
  if (field.checked) copy.setAttribute("checked", "");
}

/** The file name for the run on screen, with the step if the file shows only one. */
function nameOf(/** @type {App} */ app, /** @type {number | null} */ step = null) {
  const { name, comparison, racer } = app.entry || {};
  const { source, policy } = app.run.header;
  const known = comparison ? `${comparison}-${racer}`.replace(/[^\w-]+/g, "-") : name;
  const unnamed = source === "uploaded" ? "uploaded" : policy;
  const run = /^[\w-]+$/.test(known || "") ? known : unnamed;
  const simulated = app.run.isSimulated ? ["simulated"] : [];
  return [NAME, ...simulated, run, ...(step === null ? [] : ["step", step])].join("-");
}

/** @type {Record<string, {text: string, note: string, ending: string, step?: boolean}>} */
const FILES = {
  jsonl: {
    text: "Trace",
    note: "JSON lines: open it here again, or with inflight.Trace.load",
    ending: "jsonl",
  },
  html: {
    text: "One page",
    note: "HTML that opens from disk at this step, with no network",
    ending: "html",
    step: true,
  },
  perfetto: {
    text: "Perfetto",
    note: "JSON for ui.perfetto.dev: a track for each lane",
    ending: "perfetto.json",
  },
  plotly: {
    text: "This step as a figure",
    note: "HTML, interactive; 5 MB, as Plotly is in it",
    ending: "figure.html",
    step: true,
  },
};

/** Download the run on screen. kind: png, replay or a kind that an engine writes. */
export async function take(/** @type {App} */ app, /** @type {string} */ kind) {
  const step = app.frame ? app.frame.event.step : 0;
  const file = FILES[kind];
  try {
    // named before waiting: another run may be on screen when the file has come
    const name = nameOf(app, kind === "png" || file?.step ? step : null);
    if (kind === "png") return download(`${name}.png`, await picture(app));
    if (kind === "replay") {
      // a run that came step by step is fetched as its engine stored it
      const data = JSON.stringify(
        app.document || (await fetchJson(/** @type {Json} */ (app.entry).url)),
      );
      return download(`${name}.replay.json`, new Blob([data], { type: "application/json" }));
    }
    if (!app.runId) return app.toast("Only recorded, uploaded and finished runs can be exported.");
    const place = { step, rank: null, at: null, ...app.ranks.place };
    const answer = await (kind === "html" && app.ranks.current
      ? app.engines.call("export_ranks", app.entry?.id, place.step, place.rank, place.at)
      : app.engines.call("export", kind, app.runId, step));
    if (!answer || answer.error) throw new Error(answer ? answer.error : "nothing came back");
    const blob = await whole(app, await (await fetch(answer.url)).blob(), kind);
    download(`${name}.${file.ending}`, blob);
    if (blob.size > 2 ** 20) app.toast(`The file has ${(blob.size / 2 ** 20).toFixed(1)} MiB.`);
  } catch (/** @type {Foreign} */ error) {
    const failed = `The export failed: ${error.message}`;
    app.toast(kind === "png" ? "This browser could not draw the picture." : failed);
  }
}

/**
 * The file as it is saved: a page opens as simple or as full as this one, and figures of the tab's
 * engine (visualizer/page/step.py) get Plotly's script here. @param {Blob} blob
 */
async function whole(/** @type {App} */ app, blob, /** @type {string} */ kind) {
  if (kind === "html") {
    const text = await blob.text();
    return new Blob([text.replace(OPTIONS, `$&"detail":"${app.detail.now}",`)]);
  }
  if (kind !== "plotly") return blob;
  const [before, after] = (await blob.text()).split(PLOTLY);
  if (after === undefined) return blob;
  const source = inPage(await plotlySource(app.options.plotly));
  return new Blob([before, source, after], { type: "text/html" });
}

/** An item of a menu. @param {string} text @param {() => unknown} act @param {string} note */
export const item = (text, act, note = "") => ({ text, note, act });

export function exportMenu(/** @type {App} */ app) {
  const { engines, address } = app;
  /** @param {string} kind @param {string} text @param {string} note */
  const file = (kind, text, note) => item(text, () => take(app, kind), note);
  const open = (/** @type {string} */ text, /** @type {string} */ note) =>
    item(text, () => openFile(app), note);
  const items = [file("png", "Picture of this view", "PNG")];
  const replay = "JSON: every step, text and sentence; it opens here again";
  if (app.isKept) items.push(file("replay", "Replay", replay));
  if (app.runId && engines?.can("export", app.runId)) {
    for (const [kind, { text, note }] of Object.entries(FILES))
      if (kind !== "plotly" || engines.server || app.options.plotly)
        items.push(file(kind, text, note));
  }
  const frame = "A frame for your own page, at this step";
  if (address.embedCode) items.push(item("Copy embed code", () => address.embed(), frame));
  const recording = "Or a recording of vLLM or transformers";
  const note = engines?.tab ? recording : "Saved from here or by core";
  return [
    ...items,
    /** @type {const} */ ("-"),
    engines?.can("uploads")
      ? open("Open a trace or a replay", note)
      : open("Open a replay", "JSON saved from here"),
  ];
}
