// What was slow: the longest gaps between tokens and the longest waits, each a link to its step,
// and every request's time in a table that sorts. The numbers and the sentences are
// visualizer/documents/delays.py's.

import { bareCard, cardHead } from "../parts/floating.js";
import { chip, spans } from "../parts/chips.js";
import { h, newButton, tableOf } from "../parts/dom.js";
import { count, milliseconds } from "../parts/format.js";
import { speaking, t, tell } from "../parts/speech.js";
import { timeOf } from "../run/delays.js";
import { matching } from "../run/ids.js";
import { timeBar } from "../views/time_bar.js";

const MOST_ROWS = 200;

/** The longest of a kind, each a link to its step. */
function worst(app, go, kind, title, none) {
  const found = app.run.delays.worst.filter((one) => one.kind === kind);
  const shown = { run: app.run, index: Infinity };
  return h(
    "section",
    {},
    h("h3", {}, t(title)),
    found.length
      ? h(
          "ol",
          { class: "worst" },
          ...found.map(({ step, request, say }) => {
            const sentence = h("span", {}, ...spans(shown, say[speaking()] || say.en));
            if (step === null) return h("li", {}, sentence);
            const named = app.run.request(request);
            return h(
              "li",
              {},
              h(
                "a",
                {
                  href: app.address.hashAt(step, named),
                  onclick: (e) => {
                    e.preventDefault();
                    go(step, named.letter);
                  },
                },
                h("b", {}, t(`step ${step}`)),
                " ",
                sentence,
              ),
            );
          }),
        )
      : h("p", {}, t(none)),
  );
}

/**
 * Columns: [key, words, what they mean, the seconds of a request's time]. Parts that nobody has are
 * left out.
 */
function columnsOf(run, times) {
  const has = (part) => times.some(({ time }) => time.parts.some(({ name }) => name === part));
  const secondsOf = (part) => (time) => time.parts.find(({ name }) => name === part)?.seconds || 0;
  const parts = run.delays.parts
    .filter(([name]) => has(name))
    .map(([name, label, means]) => [name, label, means, secondsOf(name)]);
  const means = "From its arrival to its end; the parts add up to the whole";
  return [["whole", "in all", means, (time) => time.whole], ...parts];
}

/**
 * Every request's time, sorted by a column, and a field that keeps those with a letter or a piece
 * of an id.
 */
function table(app, go) {
  const { run } = app;
  const times = run.requests
    .map((request) => ({ request, time: timeOf(run, request) }))
    .filter(({ time }) => time);
  const columns = columnsOf(run, times);
  const most = Math.max(...times.map(({ time }) => time.whole));
  let [by, down] = [
    run.delays.worst.some(({ kind }) => kind === "wait") ? "queued" : "whole",
    true,
  ];
  const box = h("div", {
    class: "slow-table",
    tabindex: "0",
    role: "group",
    "aria-label": t("Where every request's time went"),
  });
  const field = h("input", {
    type: "search",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  const says = h("p", { class: "slow-says", role: "status" });
  let shown = times;
  const draw = (focused = "") => {
    const value = columns.find(([key]) => key === by)?.[3];
    const sorted = [...times].sort(
      (a, b) =>
        (down ? -1 : 1) *
        (value ? value(a.time) - value(b.time) : a.request.index - b.request.index),
    );
    shown = matching(sorted, field.value);
    const head = (key, words, means) =>
      h(
        "th",
        { scope: "col", "aria-sort": by === key ? (down ? "descending" : "ascending") : null },
        newButton(
          {
            title: means && t(means),
            "data-by": key,
            onclick: () => {
              [by, down] = [key, by === key ? !down : key !== "request"];
              draw(key);
            },
          },
          t(words),
          by === key ? h("span", { "aria-hidden": "true" }, down ? " ↓" : " ↑") : null,
        ),
      );
    const row = ({ request, time }) =>
      h(
        "tr",
        {
          "aria-current": app.pinned === request ? "true" : null,
          onclick: () => go(null, request.letter),
        },
        h(
          "th",
          { scope: "row" },
          newButton(
            { class: "link" },
            chip({ run, index: Infinity }, request),
            " ",
            h("bdi", { class: "slow-id", title: request.id }, request.id),
          ),
        ),
        h("td", {}, h("div", { class: "slow-bar" }, timeBar(time, most))),
        ...columns.map(([key, , , of]) =>
          h(
            "td",
            {},
            of(time) ? t(milliseconds(of(time))) : "–",
            key === "queued" && time.limits[0] && time.limits[0].limit !== "none"
              ? h("small", {}, t(time.limits[0].words))
              : null,
          ),
        ),
      );
    box.replaceChildren(
      tableOf(
        [
          head("request", "request"),
          h("td"),
          ...columns.map(([key, words, means]) => head(key, words, means)),
        ],
        shown.slice(0, MOST_ROWS).map(row),
      ),
    );
    const rest = shown.length - MOST_ROWS;
    tell(
      says,
      !shown.length
        ? "No request has this as its letter or in its id."
        : rest > 0
          ? `and ${count(rest)} more, which “show --delays” prints`
          : "",
    );
    says.hidden = rest <= 0 && shown.length > 0;
    if (focused) /** @type {HTMLElement} */ (box.querySelector(`[data-by="${focused}"]`)).focus();
  };
  field.addEventListener("input", () => draw());
  field.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && shown.length) go(null, shown[0].request.letter);
  });
  draw();
  return h(
    "section",
    {},
    h("h3", {}, t("Who waited longest, and why")),
    h("label", { class: "field search" }, h("span", {}, t("Find a request by its id")), field),
    box,
    says,
  );
}

/** The card about the run on screen; finds: with the field that finds a request. */
export function showSlow(app, finds = false) {
  const { run } = app;
  if (!run?.delays) return app.toast("Where the time went is known when the run has ended.");
  const dialog = bareCard(app.root, "What was slow?", "runs-card slow-card");
  const go = (step, pin) => {
    dialog.close();
    app.look({ step, pin });
  };
  dialog.replaceChildren(
    cardHead("What was slow?"),
    ...(run.header.source === "simulated"
      ? [h("p", {}, t("Simulated: these times come from a cost model."))]
      : []),
    worst(app, go, "gap", "The longest gaps between tokens", "No request got a second token."),
    worst(
      app,
      go,
      "wait",
      "The longest waits",
      "Nobody waited to be admitted for longer than for the next step to begin.",
    ),
    table(app, go),
  );
  dialog.showModal();
  if (finds) dialog.querySelector("input").focus();
}
