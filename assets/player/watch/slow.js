// What was slow: the longest gaps between tokens and the longest waits, each with a link to its
// step, and a sortable table of where every request's time went. The numbers and sentences come
// from visualizer/documents/delays.py.

import { bareCard, cardHead } from "../parts/floating.js";
import { chip, spans } from "../parts/chips.js";
import { h, newButton, put, tableOf } from "../parts/dom.js";
import { count, milliseconds } from "../parts/format.js";
import { speaking, t, tell } from "../parts/speech.js";
import { timeOf } from "../run/delays.js";
import { matching } from "../run/ids.js";
import { timeBar } from "../views/time_bar.js";

const MOST_ROWS = 200;

/** The delays of a run that has them, as the card's button knows. */
const delaysOf = (/** @type {Run} */ run) => /** @type {Delays} */ (run.delays);

/**
 * The longest gaps or waits, each with a link to its step. @param {App} app
 * @param {(step: number | null, pin: string) => void} go @param {string} kind @param {string} title
 * @param {string} none
 */
function worst(app, go, kind, title, none) {
  const shown = { run: app.run, index: Infinity };
  const found = delaysOf(app.run).worst.filter((one) => one.kind === kind);
  const lines = found.map(({ step, request, say }) => {
    const sentence = h("span", {}, ...spans(shown, say[speaking()] || say.en));
    if (step === null) return h("li", {}, sentence);
    const named = app.run.request(request);
    const onclick = (/** @type {Happened} */ e) => {
      e.preventDefault();
      go(step, named.letter);
    };
    const href = app.address.hashAt(step, named);
    return h("li", {}, h("a", { href, onclick }, h("b", {}, t(`step ${step}`)), " ", sentence));
  });
  const list = found.length ? h("ol", { class: "worst reading" }, ...lines) : h("p", {}, t(none));
  return h("section", {}, h("h3", {}, t(title)), list);
}

/**
 * The table's columns: [key, words, meaning, function from a request's time to seconds]. Parts that
 * no request has are left out.
 */
function columnsOf(/** @type {Run} */ run, /** @type {Json} */ times) {
  const secondsOf = (/** @type {Json} */ part) => (/** @type {Json} */ time) =>
    time.parts.find((/** @type {Json} */ { name }) => name === part)?.seconds || 0;
  /** @type {Json[]} */
  const columns = delaysOf(run).parts.map((part) => [...part, secondsOf(part[0])]);
  const parts = columns.filter(([, , , seconds]) =>
    times.some((/** @type {Json} */ { time }) => seconds(time)),
  );
  const means = "From its arrival to its end; the parts add up to the whole";
  return [["whole", "in all", means, (/** @type {Json} */ time) => time.whole], ...parts];
}

/**
 * A table of every request's time, sorted by a column, with a field that keeps requests by letter
 * or a piece of their id. @param {App} app @param {(step: number | null, pin: string) => void} go
 */
function table(app, go) {
  const { run } = app;
  const times = run.requests
    .map((request) => ({ request, time: /** @type {Json} */ (timeOf(run, request)) }))
    .filter(({ time }) => time);
  const columns = columnsOf(run, times);
  const most = Math.max(...times.map(({ time }) => time.whole));
  let by = delaysOf(run).worst.some(({ kind }) => kind === "wait") ? "queued" : "whole";
  let down = true;
  const heard = { role: "group", "aria-label": t("Where every request's time went") };
  const box = h("div", { class: "slow-table", tabindex: "0", ...heard });
  const plain = { autocomplete: "off", autocapitalize: "off", spellcheck: "false" };
  const field = h("input", { type: "search", ...plain });
  const says = h("p", { class: "slow-says", role: "status" });
  let shown = times;
  const draw = (focused = "") => {
    const value = columns.find(([key]) => key === by)?.[3];
    const place = (/** @type {Json} */ { request, time }) => (value ? value(time) : request.index);
    const sorted = [...times].sort((a, b) => (down ? -1 : 1) * (place(a) - place(b)));
    shown = matching(sorted, field.value);
    const head = (/** @type {string} */ key, /** @type {string} */ words, means = "") => {
      const isBy = by === key;
      const onclick = () => {
        [by, down] = [key, isBy ? !down : key !== "request"];
        draw(key);
      };
      const arrow = isBy && h("span", { "aria-hidden": "true" }, down ? " ↓" : " ↑");
      const isPart = key !== "request" && key !== "whole";
      const colour = isPart && h("i", { class: `went went-${key}`, "aria-hidden": "true" });
      return h(
        "th",
        { scope: "col", "aria-sort": isBy ? (down ? "descending" : "ascending") : null },
        newButton({ title: means && t(means), "data-by": key, onclick }, colour, t(words), arrow),
      );
    };
    const row = (/** @type {Json} */ { request, time }) => {
      const letter = chip({ run, index: Infinity }, request);
      const id = h("bdi", { class: "slow-id clip", title: request.id }, request.id);
      const [bound] = time.limits;
      const limit = bound && bound.limit !== "none" && h("small", {}, t(bound.words));
      const onclick = () => go(null, request.letter);
      return h(
        "tr",
        { "aria-current": app.pinned === request ? "true" : null, onclick },
        h("th", { scope: "row" }, newButton({ class: "link" }, letter, " ", id)),
        h("td", {}, h("div", { class: "slow-bar" }, timeBar(time, most))),
        ...columns.map(([key, , , of]) => {
          const long = of(time) ? t(milliseconds(of(time))) : "–";
          return h("td", {}, long, key === "queued" && limit);
        }),
      );
    };
    const heads = columns.map(([key, words, means]) => head(key, words, means));
    const rows = shown.slice(0, MOST_ROWS).map(row);
    box.replaceChildren(tableOf([head("request", "request"), h("td"), ...heads], rows));
    const rest = shown.length - MOST_ROWS;
    const more = rest > 0 ? `and ${count(rest)} more, which “show --delays” prints` : "";
    tell(says, shown.length ? more : "No request has this as its letter or in its id.");
    says.hidden = rest <= 0 && shown.length > 0;
    if (focused) /** @type {HTMLElement} */ (box.querySelector(`[data-by="${focused}"]`)).focus();
  };
  field.addEventListener("input", () => draw());
  field.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && shown.length) go(null, shown[0].request.letter);
  });
  draw();
  const asks = h("span", {}, t("Find a request by its id"));
  const search = h("label", { class: "field search" }, asks, field);
  return h("section", {}, h("h3", {}, t("Who waited longest, and why")), search, box, says);
}

/** Show the card about the run on screen. finds: focus the field that finds a request. */
export function showSlow(/** @type {App} */ app, finds = false) {
  const { run } = app;
  if (!run?.delays) return app.toast("Where the time went is known when the run has ended.");
  const dialog = bareCard(app.root, "What was slow?", "runs-card slow-card");
  const go = (/** @type {number | null} */ step, /** @type {string} */ pin) => {
    dialog.close();
    app.look({ step, pin });
  };
  const nobody = "Nobody waited to be admitted for longer than for the next step to begin.";
  put(
    dialog,
    cardHead("What was slow?"),
    run.isSimulated && h("p", {}, t("Simulated: these times come from a cost model.")),
    worst(app, go, "gap", "The longest gaps between tokens", "No request got a second token."),
    worst(app, go, "wait", "The longest waits", nobody),
    table(app, go),
  );
  dialog.showModal();
  if (finds) dialog.querySelector("input").focus();
}
