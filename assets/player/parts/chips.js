// Spans with requests in them, as DOM: a plain string, {said} for one that is in the spoken
// language already, or {r: id} / {request} drawn as its tinted letter. Text stays text.

import { h } from "./dom.js";
import { t } from "./speech.js";

/**
 * Whether it had held a lane by step i: before, a hue would show the future.
 * @type {(request: RunRequest, i: number) => boolean}
 */
export const wasAdmitted = (request, i) =>
  request.laneSpans.length > 0 && request.laneSpans[0].from <= i;

/**
 * The tinted letter of a request; dashed while it holds no lane.
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
 * @param {(request: RunRequest) => boolean} held whether it is in a lane
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

/** The same as text. @param {SentenceContext} shown @param {Span[]} list */
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
