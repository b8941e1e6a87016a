// Text with requests in it, as DOM nodes. A span is a plain string, {said} for text that is already
// in the current language, or {r: id} / {request} for a request, which becomes its coloured letter.
// Text is never parsed as markup.

import { h } from "./dom.js";
import { t } from "./speech.js";

/**
 * Whether a request had held a lane by step i; before that, its hue would reveal the future.
 * @type {(request: RunRequest, i: number) => boolean}
 */
export const wasAdmitted = (request, i) =>
  request.laneSpans.length > 0 && request.laneSpans[0].from <= i;

/**
 * The coloured letter of a request, dashed while the request holds no lane.
 * @param {SentenceContext} shown @param {RunRequest} request
 */
export function chip(shown, request, held = true) {
  const el = h(
    "bdi",
    {
      class: held ? "chip" : "chip chip-out",
      "data-request": String(request.index),
      title: `${t("request")} ${request.id}`,
    },
    request.letter,
  );
  if (wasAdmitted(request, shown.index ?? -1))
    el.style.setProperty(
      held ? "--tint" : "--hue",
      `var(--${held ? "tint" : "hue"}-${request.hue})`,
    );
  return el;
}

/**
 * @param {SentenceContext} shown @param {Span[]} list
 * @param {(request: RunRequest) => boolean} held whether a request is in a lane
 */
export function spans(shown, list, held = (_request) => true) {
  return (list || []).map((span) => {
    if (typeof span === "string") return document.createTextNode(span);
    if (span.said !== undefined) return document.createTextNode(span.said);
    const request = span.request || shown.run.request(span.r);
    return request
      ? chip(shown, request, held(request))
      : document.createTextNode(String(shown.run.letters?.[span.r] ?? span.r ?? ""));
  });
}

/** The same spans as plain text. @param {SentenceContext} shown @param {Span[]} list */
export function plain(shown, list) {
  return (list || [])
    .map((span) =>
      typeof span === "string"
        ? span
        : (span.said ?? (span.request || shown.run.request(span.r) || { letter: span.r }).letter),
    )
    .join("");
}

/** Whether two pointers are at the same token. @param {Hot | null} a @param {Hot | null} b */
export const isSameHot = (a, b) =>
  JSON.stringify([a?.q, a?.row, a?.column, a?.keys]) ===
  JSON.stringify([b?.q, b?.row, b?.column, b?.keys]);
