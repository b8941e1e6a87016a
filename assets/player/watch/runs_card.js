// The runs that can be opened: recorded ones, and those of this visit, which can also be shared,
// compared and removed until the page is closed.

import { bareCard, cardHead } from "../parts/floating.js";
import { h, icon, newButton } from "../parts/dom.js";
import { goToPart } from "../parts/look.js";
import { count, duration } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { lanePieces } from "../run/lane_layout.js";
import { OVERRUN, WASTED } from "../run/run.js";
import { openFile } from "./open_file.js";

const [WIDTH, HEIGHT] = [132, 40];

/** A small picture of a run's lanes. */
function thumbnail(app, { lanes, steps }) {
  const canvas = h("canvas", {
    class: "thumb",
    "aria-hidden": "true",
    width: WIDTH * 2,
    height: HEIGHT * 2,
  });
  const g = /** @type {Ink} */ (canvas.getContext("2d"));
  g.scale(2, 2);
  const { palette } = app;
  const pitch = HEIGHT / Math.max(1, lanes.length);
  const gap = pitch > 5 ? 1.5 : pitch > 2.5 ? 0.5 : 0;
  const unit = WIDTH / Math.max(1, steps);
  lanes.forEach((pieces, lane) => {
    g.fillStyle = palette.empty;
    g.fillRect(0, lane * pitch, WIDTH, pitch - gap);
    for (const [from, end, hue] of pieces) {
      g.fillStyle = hue < 0 ? palette.pad : palette.hues[hue].solid;
      g.fillRect(
        from * unit,
        lane * pitch,
        Math.max(0.7, (end - from) * unit - (unit > 3 ? 0.5 : 0)),
        pitch - gap,
      );
    }
  });
  return canvas;
}

function recorded(app, dialog, entry) {
  return newButton(
    {
      class: "run-choice",
      "aria-current": app.entry === entry ? "true" : null,
      onclick: () => {
        dialog.close();
        app.open(entry);
      },
    },
    entry.lanes ? thumbnail(app, entry) : null,
    h(
      "span",
      { class: "run-words" },
      h("b", {}, t(entry.title)),
      h("small", {}, t(entry.shows)),
      h(
        "small",
        { class: "run-facts" },
        [entry.policy, entry.steps && t(`${count(entry.steps)} [step|steps]`)]
          .filter(Boolean)
          .join(" · "),
      ),
    ),
  );
}

function ofThisVisit(app, dialog, kept, again) {
  const { visit } = app;
  const act = (name, what) =>
    newButton(
      {
        class: "button",
        onclick: () => {
          dialog.close();
          what();
        },
      },
      name,
    );
  return h(
    "div",
    { class: "visit-run", "aria-current": app.run === kept.run ? "true" : null },
    newButton(
      {
        class: "run-choice",
        onclick: () => {
          dialog.close();
          app.put(kept);
        },
      },
      thumbnail(app, kept),
      h(
        "span",
        { class: "run-words" },
        h("b", {}, h("bdi", {}, kept.title)),
        h("small", {}, kept.says),
        h(
          "small",
          { class: "run-facts" },
          `${t(`${count(kept.steps)} [step|steps]`)} · ${t(duration(kept.seconds))} · ${kept.at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}`,
        ),
      ),
    ),
    h(
      "span",
      { class: "visit-acts" },
      app.options.tabs.some((tab) => tab.name === "compare")
        ? act(t("Compare"), () => visit.compare(kept))
        : null,
      act(t("Share"), () => {
        app.put(kept);
        app.address.share();
      }),
      newButton(
        {
          class: "icon-button",
          "aria-label": `Remove ${kept.title}`,
          onclick: () => {
            visit.remove(kept);
            again();
          },
        },
        icon("trash"),
      ),
    ),
  );
}

/** Common questions, each a link to its answer and the step that shows it. */
function asked(dialog, { title, shows, asked: list }) {
  return h(
    "section",
    { class: "asked" },
    h("h3", {}, title),
    h("p", {}, shows),
    h(
      "ul",
      {},
      ...list.map(({ name, title: question }) =>
        h(
          "li",
          {},
          h(
            "a",
            { href: `#part=learn&lesson=questions&stop=${name}`, onclick: () => dialog.close() },
            question,
          ),
        ),
      ),
    ),
  );
}

export function showRuns(app) {
  const dialog = bareCard(app.root, "Runs", "runs-card");
  const questionsAsked = app.speech.language?.asked || app.options.asked;
  const fill = () => {
    const { catalogue, questions } = app.options;
    const groups = (questions || []).map((question, n) => [
      question,
      catalogue.filter((e) => e.question === n),
    ]);
    const rest = catalogue.filter((e) => !Number.isInteger(e.question));
    if (rest.length) groups.push([{ title: "Recorded runs", answer: "" }, rest]);
    dialog.replaceChildren(
      cardHead(
        "Runs",
        newButton(
          {
            class: "button",
            onclick: () => {
              dialog.close();
              openFile(app);
            },
          },
          t("Open a file"),
        ),
      ),
      ...(app.visit.runs.length
        ? [
            h(
              "section",
              {},
              h("h3", {}, t("Runs of this visit")),
              h("p", {}, t("Made here; they are lost when the page is closed.")),
              h(
                "div",
                { class: "run-choices visit" },
                ...app.visit.runs.map((kept) => ofThisVisit(app, dialog, kept, fill)),
              ),
            ),
          ]
        : []),
      ...groups
        .filter(([, entries]) => entries.length)
        .map(([{ title, answer }, entries]) =>
          h(
            "section",
            {},
            h("h3", {}, t(title)),
            h("p", {}, t(answer)),
            h(
              "div",
              { class: "run-choices" },
              ...entries.map((entry) => recorded(app, dialog, entry)),
            ),
          ),
        ),
      ...(questionsAsked && app.options.tabs.some((tab) => tab.name === "learn")
        ? [asked(dialog, questionsAsked)]
        : []),
    );
  };
  fill();
  dialog.showModal();
}

/**
 * A run's lanes as the catalogue has them: lane by lane [first step, end, hue], hue -1 where it was
 * wasted.
 */
function lanesOf(run) {
  /** @type {number[][][]} */
  const lanes = Array.from({ length: run.numLanes }, () => []);
  for (const { lane, from, end, status, laneSpan } of lanePieces(run)) {
    if (laneSpan >= 0)
      lanes[lane].push([
        from,
        end,
        status & (WASTED | OVERRUN) ? -1 : run.laneSpans[laneSpan].request.hue,
      ]);
  }
  return lanes;
}

export class Visit {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    // identifies the visitor to the server
    this.visitor = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) =>
      b.toString(16).padStart(2, "0"),
    ).join("");
    this.runs = []; // {title, policy, seconds, at, run, entry, spec, lanes, steps}
  }

  /** Keep a run that has ended. */
  add(run, entry, spec, title) {
    const { config } = run.header;
    this.runs.unshift({
      title,
      run,
      entry,
      spec,
      lanes: lanesOf(run),
      steps: run.length,
      at: new Date(),
      seconds: run.events.at(-1).tEnd - run.events[0].tStart,
      says: [
        config.policy,
        t(`${run.numLanes} [lane|lanes]`),
        config.max_num_batched_tokens && `budget ${config.max_num_batched_tokens}`,
      ]
        .filter(Boolean)
        .join(", "),
    });
    this.app.root.dispatchEvent(
      new CustomEvent("inflight-ran", { detail: { id: entry.id }, bubbles: true }),
    );
  }

  remove(kept) {
    this.runs = this.runs.filter((other) => other !== kept);
  }

  async compare(kept) {
    this.app.put(kept);
    await this.app.editor.take(kept.spec);
    goToPart(this.app.root, "compare", "watched");
  }
}
