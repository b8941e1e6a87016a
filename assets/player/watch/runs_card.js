// The list of runs that can be opened: recorded ones, and those of this visit, which can also be
// shared, compared and removed until the page is closed.

import { bareCard, cardHead } from "../parts/floating.js";
import { h, iconButton, newButton, put, randomHex } from "../parts/dom.js";
import { goToPart } from "../parts/look.js";
import { count, duration, joined } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { lanePieces } from "../run/lane_layout.js";
import { OVERRUN, WASTED } from "../run/run.js";
import { openFile } from "./open_file.js";

const [WIDTH, HEIGHT] = [132, 40];

/** A small picture of a run's lanes. */
function thumbnail(/** @type {App} */ app, /** @type {Json} */ { lanes, steps }) {
  const size = { width: WIDTH * 2, height: HEIGHT * 2 };
  const canvas = h("canvas", { class: "thumb", "aria-hidden": "true", ...size });
  const g = /** @type {Ink} */ (canvas.getContext("2d"));
  g.scale(2, 2);
  const { palette } = app;
  const pitch = HEIGHT / Math.max(1, lanes.length);
  const gap = pitch > 5 ? 1.5 : pitch > 2.5 ? 0.5 : 0;
  const unit = WIDTH / Math.max(1, steps);
  lanes.forEach((/** @type {Json} */ pieces, /** @type {number} */ lane) => {
    g.fillStyle = palette.empty;
    g.fillRect(0, lane * pitch, WIDTH, pitch - gap);
    for (const [from, end, hue] of pieces) {
      const width = Math.max(0.7, (end - from) * unit - (unit > 3 ? 0.5 : 0));
      g.fillStyle = hue < 0 ? palette.pad : palette.hues[hue].solid;
      g.fillRect(from * unit, lane * pitch, width, pitch - gap);
    }
  });
  return canvas;
}

/** A function that closes the list and then acts. */
const closed = (/** @type {HTMLDialogElement} */ dialog, /** @type {() => void} */ act) => () => {
  dialog.close();
  act();
};

/**
 * A run in the list: its picture and words, as a button. @param {Json} picture @param {Child} title
 * @param {string} says @param {Json} facts @param {Json} props
 */
function choice(picture, title, says, facts, props) {
  const more = h("small", { class: "run-facts" }, joined(facts));
  const words = [h("b", {}, title), h("small", {}, says), more];
  const kind = { class: "run-choice surface grid loose", ...props };
  return newButton(kind, picture, h("span", { class: "run-words grid" }, ...words));
}

const stepsOf = (/** @type {Json} */ { steps }) => steps && t(`${count(steps)} [step|steps]`);

/** @param {App} app @param {HTMLDialogElement} dialog @param {Entry} entry */
function recorded(app, dialog, entry) {
  const picture = entry.lanes && thumbnail(app, entry);
  const current = app.entry === entry ? "true" : null;
  const onclick = closed(dialog, () => app.open(entry));
  const props = { "aria-current": current, onclick };
  return choice(picture, t(entry.title), t(entry.shows), [entry.policy, stepsOf(entry)], props);
}

/**
 * @param {App} app @param {HTMLDialogElement} dialog @param {VisitRun} kept @param {() => void} again
 */
function ofThisVisit(app, dialog, kept, again) {
  const { visit } = app;
  const act = (/** @type {string} */ name, /** @type {() => void} */ what) =>
    newButton({ class: "button", onclick: closed(dialog, what) }, t(name));
  const at = kept.at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const remove = () => {
    visit.remove(kept);
    again();
  };
  const share = () => {
    app.put(kept);
    app.address.share();
  };
  const compares = app.options.tabs.some((/** @type {Json} */ tab) => tab.name === "compare");
  const facts = [stepsOf(kept), t(duration(kept.seconds)), at];
  const open = { onclick: closed(dialog, () => app.put(kept)) };
  return h(
    "div",
    { class: "visit-run flex spaced", "aria-current": app.run === kept.run ? "true" : null },
    choice(thumbnail(app, kept), h("bdi", {}, kept.title), kept.says, facts, open),
    h(
      "span",
      { class: "visit-acts flex fixed" },
      compares && act("Compare", () => visit.compare(kept)),
      act("Share", share),
      iconButton("trash", `Remove ${kept.title}`, remove),
    ),
  );
}

/** Common questions, each linking to its answer and the step that shows it. */
function asked(
  /** @type {HTMLDialogElement} */ dialog,
  /** @type {Json} */ { title, shows, asked: list },
) {
  const link = (/** @type {Json} */ { name, title: question }) => {
    const href = `#part=learn&lesson=questions&stop=${name}`;
    return h("li", {}, h("a", { href, onclick: () => dialog.close() }, question));
  };
  const head = [h("h3", {}, title), h("p", {}, shows)];
  return h("section", { class: "asked" }, ...head, h("ul", {}, ...list.map(link)));
}

export function showRuns(/** @type {App} */ app) {
  const dialog = bareCard(app.root, "Runs", "runs-card");
  const questionsAsked = app.speech.language?.asked || app.options.asked;
  const fill = () => {
    const { catalogue, questions } = app.options;
    const groups = (questions || []).map(
      (/** @type {string} */ question, /** @type {number} */ n) => [
        question,
        catalogue.filter((e) => e.question === n),
      ],
    );
    const rest = catalogue.filter((e) => !Number.isInteger(e.question));
    groups.push([{ title: "Recorded runs", answer: "" }, rest]);
    /** @param {string} title @param {string} says @param {string} kind @param {Json} choices */
    const section = (title, says, kind, choices) => {
      const list = h("div", { class: kind }, ...choices);
      const head = [h("h3", {}, t(title)), h("p", {}, t(says))];
      return choices.length > 0 && h("section", {}, ...head, list);
    };
    const made = app.visit.runs.map((kept) => ofThisVisit(app, dialog, kept, fill));
    const lost = "Made here; they are lost when the page is closed.";
    const file = closed(dialog, () => openFile(app));
    const learns = app.options.tabs.some((tab) => tab.name === "learn");
    put(
      dialog,
      cardHead("Runs", newButton({ class: "button", onclick: file }, t("Open a file"))),
      section("Runs of this visit", lost, "run-choices grid spaced visit", made),
      ...groups.map((/** @type {Json} */ [{ title, answer }, entries]) => {
        const choices = entries.map((/** @type {Entry} */ entry) => recorded(app, dialog, entry));
        return section(title, answer, "run-choices grid spaced", choices);
      }),
      learns && questionsAsked && asked(dialog, questionsAsked),
    );
  };
  fill();
  dialog.showModal();
}

/** A run's lanes as in the catalogue: per lane [first step, end, hue], hue -1 for wasted steps. */
function lanesOf(/** @type {Run} */ run) {
  /** @type {number[][][]} */
  const lanes = Array.from({ length: run.numLanes }, () => []);
  for (const { lane, from, end, status, laneSpan } of lanePieces(run)) {
    if (laneSpan < 0) continue;
    const { hue } = run.laneSpans[laneSpan].request;
    lanes[lane].push([from, end, status & (WASTED | OVERRUN) ? -1 : hue]);
  }
  return lanes;
}

export class Visit {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    // identifies the visitor to the server
    this.visitor = randomHex(12);
    /** @type {VisitRun[]} */
    this.runs = [];
  }

  /**
   * Add a run that has ended. @param {Run} run @param {Entry} entry @param {Json} spec
   * @param {string} title
   */
  add(run, entry, spec, title) {
    const { policy, max_num_batched_tokens: budget } = run.header.config;
    const limits = [policy, t(`${run.numLanes} [lane|lanes]`), budget && `budget ${budget}`];
    this.runs.unshift({
      title,
      run,
      entry,
      spec,
      lanes: lanesOf(run),
      steps: run.length,
      at: new Date(),
      seconds: run.span(true),
      says: joined(limits, ", "),
    });
    const detail = { id: entry.id };
    this.app.root.dispatchEvent(new CustomEvent("inflight-ran", { detail, bubbles: true }));
  }

  remove(/** @type {VisitRun} */ kept) {
    this.runs = this.runs.filter((other) => other !== kept);
  }

  async compare(/** @type {VisitRun} */ kept) {
    this.app.put(kept);
    await this.app.editor.take(kept.spec);
    goToPart(this.app.root, "compare", "watched");
  }
}
