// The outcome of a trial: its progress, each goal with what the run shows of it, and a sentence
// about what is wrong, what helps, or that all is done.

import { h, newButton, put, setText } from "../parts/dom.js";
import { goalItem } from "../parts/goal.js";
import { bytes } from "../parts/format.js";
import { t } from "../parts/speech.js";

/** A sentence with its `code` as elements. @param {string} text */
export const coded = (text) =>
  text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

/** What the code printed, as Python comments. @param {string} printed */
const linesOf = (printed) =>
  printed
    .split("\n")
    .filter(Boolean)
    .map((line) => `# ${t("printed")} ${line}`);

/** @param {string} label @param {string[]} lines */
const codeOf = (label, lines) =>
  h("pre", { class: "case box", tabindex: "0", "aria-label": t(label) }, lines.join("\n"));

/** The smallest case that shows the fault, to be run by hand; the rest are Python comments. */
const caseOf = (/** @type {Json} */ { lines, expected, got, printed }) =>
  codeOf("The smallest case that shows it", [
    ...lines,
    ...(expected === null ? [] : [`# ${t("expected")} ${expected}`]),
    ...(got === null ? [] : [`# ${t("got")} ${got}`]),
    ...linesOf(printed),
  ]);

/**
 * @typedef {{loading?: {what: string, done: number, total: number} | null,
 *   progress?: {step?: number, index?: number, total?: number, cases?: number} | null}} Progress
 */

/** @param {Progress["loading"]} loading @param {NonNullable<Progress["progress"]>} progress */
function howFar(loading, { step, index = 0, total, cases }) {
  if (total) return t("Turn {n} of {total}", { n: String(index + 1), total: String(total) });
  if (step) return t("Step {n}", { n: String(step) });
  if (cases !== undefined) return t("{n} right so far", { n: String(cases) });
  if (!loading?.total) return t("Starting …");
  const sizes = { done: bytes(loading.done, t), total: bytes(loading.total, t) };
  return t("Loading the engine, once: {done} of {total}", sizes);
}

export class Outcome {
  /** part: the Write tab. */
  constructor(/** @type {import("./write.js").Write} */ part) {
    this.part = part;
    this.box = part.$(".outcome");
    this.bar = part.$(".progress");
    this.clear();
  }

  clear() {
    this.attempt = null;
    this.sentence = "";
    this.named();
  }

  begin() {
    this.clear();
    this.progress();
  }

  /** loading: {what, done, total}, bytes; progress: {step}, {index, total} of turns, or {cases} */
  progress(/** @type {Progress} */ { loading, progress } = {}) {
    const { bar } = this;
    bar.hidden = false;
    bar.style.setProperty("--share", String(loading?.total ? loading.done / loading.total : 0));
    setText(bar, howFar(loading, progress ?? {}));
  }

  /** Show one sentence instead of an attempt. */
  say(/** @type {string | null} */ sentence) {
    this.sentence = sentence;
    this.named();
  }

  /** attempt: {goals, help, fault, case}, see attempt.py and exercises.py of visualizer/write */
  show(/** @type {Json} */ attempt) {
    this.attempt = attempt;
    this.named();
  }

  named() {
    const { part, attempt, box, bar, sentence } = this;
    if (!part.stop || attempt || sentence) bar.hidden = true;
    put(
      box,
      ...(attempt ? this._said(attempt) : []),
      attempt?.printed && codeOf("What it printed", linesOf(attempt.printed)),
      !attempt && sentence && h("p", { class: "fault" }, ...coded(t(sentence))),
    );
    this.goals();
  }

  _said(/** @type {Json} */ { fault, help, goals, case: shown = null }) {
    const { part } = this;
    const isUnseen = shown && this.attempt.replay && fault?.step === null;
    if (fault)
      return [
        h("p", { class: "fault" }, ...coded(t(fault.says, fault.holes))),
        shown && caseOf(shown),
        isUnseen &&
          h("p", { class: "help" }, t("No run reaches this case, so a whole one is drawn.")),
        this._places(fault),
      ];
    if (!goals.every((/** @type {Json} */ { met }) => met))
      return [help && h("p", { class: "help" }, ...coded(t(help)))];
    const { tasks } = part.options;
    const at = tasks.indexOf(part.task);
    // the next task, or one that was left out before
    const next = [...tasks.slice(at), ...tasks].find(({ name }) => !part.own.isDone(name));
    return [
      h("p", { class: "done" }, t("Every goal is met.")),
      next &&
        newButton(
          { class: "mini", onclick: () => part.open(next) },
          `${t("Next:")} ${t(next.title)}`,
        ),
    ];
  }

  /** Buttons that lead to the fault: to its line in the code and its step in the picture. */
  _places(/** @type {Json} */ { line, step }) {
    const { part } = this;
    /** @param {string} word @param {number} n @param {Json} side @param {() => void} go */
    const place = (word, n, side, go) => {
      const onclick = () => {
        part.side(side);
        go();
      };
      return newButton({ class: "mini", onclick }, t(`${word} {n}`, { n: String(n) }));
    };
    return h(
      "p",
      { class: "places spaced flex" },
      line && place("Line", line, "code", () => part.code.go(line)),
      step !== null &&
        this.attempt.replay &&
        place("Step", step, "picture", () => part.watch.seekStep(step)),
    );
  }

  /** The goals, each with what the run shows of it. */
  goals() {
    const { part, attempt } = this;
    if (!part.task) return;
    part.$(".goals").replaceChildren(
      ...part.task.goals.map(({ name, asks }) => {
        const { met = false, says = null } =
          attempt?.goals.find((/** @type {Json} */ goal) => goal.name === name) || {};
        const heard = `${t(met ? "Met:" : "Not met yet:")} `;
        return goalItem({ met, asks: [t(asks)], says: says && [` ${t(says)}`], heard });
      }),
    );
  }
}
