// Spans with requests in them, as DOM: a plain string, or {r: id} / {request} drawn as its tinted letter. Text stays text.

import { h } from "./dom.js";
import { t } from "./speech.js";

/** Whether a request had held a lane by step i: only then has it a hue, or the page would show the future. */
export const wasAdmitted = (request, i) => request.stays.length > 0 && request.stays[0].from <= i;

/** The tinted letter of a request; dashed while it holds no lane. */
export function chip(app, request, held = true) {
  const el = h("bdi", { class: held ? "chip" : "chip chip-out", "data-request": String(request.index), title: `${t("request")} ${request.id}` }, request.letter);
  if (wasAdmitted(request, app.index)) el.style.setProperty(held ? "--tint" : "--hue", `var(--${held ? "tint" : "hue"}-${request.hue})`);
  return el;
}

/**
 * @param {{run: {request(id: string): any, letters?: Record<string, string>}, index?: number}} app
 * @param {Span[]} list
 * @param {(request: RunRequest) => boolean} held whether it is in a lane
 */
export function spans(app, list, held = (_request) => true) {
  return (list || []).map((span) => {
    if (typeof span === "string") return document.createTextNode(span);
    const request = span.request || app.run.request(span.r);
    return request ? chip(app, request, held(request)) : document.createTextNode(String(app.run.letters?.[span.r] ?? span.r ?? ""));
  });
}

export function plain(app, list) {
  return (list || []).map((span) => (typeof span === "string" ? span : (span.request || app.run.request(span.r) || { letter: span.r }).letter)).join("");
}
