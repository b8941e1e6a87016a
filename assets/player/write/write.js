// The Write tab: a task, the code of a policy, and Run; the player beside the code draws the run. The code runs only in a sandbox (trials.js).
//
//   code ─→ Trials ─→ {replay, goals, help, fault} (visualizer/write/attempt.py) ─→ the player, the goals, a sentence

import { h, newButton, setText } from "../parts/dom.js";
import { putLanguage } from "../parts/language.js";
import { addressed, copyLink, linkTo, noLink, writeAddress } from "../parts/link.js";
import {
  besidePlayer,
  fillPart,
  fillTabs,
  goToPart,
  hideToast,
  pageWatch,
  showToast,
} from "../parts/look.js";
import { inLanguage, Speech, t } from "../parts/speech.js";
import { CodeField } from "./code_field.js";
import { Outcome, coded } from "./outcome.js";
import { OwnCode, packed, unpacked } from "./own_code.js";
import { Trials } from "./trials.js";

const LINK = 5000; // ms that a message stays, twice as long if it offers an action

export class Write {
  /**
   * root: the element of write.html. options: {tabs, tasks: see visualizer/write/tasks.py, model:
   * the one that they run on, engine: the address of its files, codemirror: url}
   */
  constructor(/** @type {Root} */ root, /** @type {Json} */ options) {
    this.root = root;
    /** @type {{tabs: Tab[], tasks: WriteTask[], engine: Json, model: string, codemirror: string}} */
    this.options = { tabs: [], tasks: [], engine: null, model: "", codemirror: "", ...options };
    this.page = document.documentElement;
    /** @type {Finder} */ this.$ = (s) => root.querySelector(s);
    this.own = new OwnCode();
    /** @type {WriteTask} */
    this.task = /** @type {Json} */ (null); // until one is opened
    /** @type {string | null} */
    this.came = null; // the packed code of a link, while it is on screen unchanged
    this.stop = null; // aborts the current trial
    this.entry = null; // the entry of the run that the last trial made
    this._theme = besidePlayer(root);
    this.speech = new Speech(root, () => this._named());
    this.trials = new Trials(this.options, () => this.watch.engines?.tab);
    this.code = new CodeField(this.$(".code"), {
      url: this.options.codemirror,
      changed: () => this._changed(),
      run: () => this.run(),
      describedBy: "write-keys",
    });
    this.outcome = new Outcome(this);
    this._buttons();
    fillTabs(root, this.options.tabs, "write");
    window.addEventListener(
      "hashchange",
      () => this.page.dataset.part === "write" && location.hash !== this._written && this._follow(),
    );
    this.ready = pageWatch().then((watch) => {
      /** @type {Watch} */
      this.watch = watch;
    });
  }

  // -- the part is opened and left ---------------------------------------------------------------

  async shown() {
    this._theme();
    await this.ready;
    if (this.page.dataset.part !== "write") return;
    this.watch.need("full"); // a scheduler is about budgets, blocks and queues
    await this._follow();
  }

  left() {
    this.watch?.need(null);
    this.stop?.abort();
    this.trials.rest();
  }

  async _follow() {
    const wanted = addressed();
    const task =
      this.options.tasks.find(({ name }) => name === wanted.get("task")) ||
      this.task ||
      this._next();
    const code = wanted.has("code") ? await unpacked(wanted.get("code") || "") : null;
    this.open(task, code);
    if (wanted.has("code") && code === null) this.toast("The code in this link cannot be read.");
  }

  _next() {
    const { tasks } = this.options;
    return tasks.find(({ name }) => !this.own.isDone(name)) || tasks[0];
  }

  /** Open a task. code: from a link. */
  open(/** @type {WriteTask} */ task, /** @type {string | null} */ code = null) {
    const isOther = task !== this.task;
    const came = code === null ? null : addressed().get("code");
    this.task = task;
    if (isOther) hideToast(this.root); // it offers code of the previous task
    if (isOther || (code !== null && came !== this.came)) {
      this._clear();
      this.came = came;
      this.code.code = code ?? this.own.of(task.name) ?? task.code;
    }
    this._draw();
    this._remember();
  }

  /** Drop the trial and its outcome, which are of the previous code. */
  _clear() {
    this.stop?.abort();
    this.entry = null;
    this.outcome.clear();
  }

  _remember() {
    if (this.page.dataset.part !== "write") return;
    const p = new URLSearchParams({ part: "write", task: this.task.name });
    if (this.came !== null) p.set("code", this.came);
    putLanguage(p);
    this._written = writeAddress(p, "task", this._written);
  }

  // -- a trial -----------------------------------------------------------------------------------

  run() {
    return this._try({}, ({ attempt }) => this._tried(attempt));
  }

  /** Time this policy and `continuous` in turns. */
  beside() {
    return this._try({ beside: true }, ({ comparison, attempt }) => {
      if (comparison) goToPart(this.root, "compare", { made: comparison });
      else this._tried(attempt);
    });
  }

  async _try(/** @type {Json} */ how, /** @type {(delta: Json) => void} */ done) {
    if (this.stop) return;
    const { task } = this;
    const { code } = this.code;
    const stop = (this.stop = new AbortController());
    this.outcome.begin();
    this.code.mark(null);
    this._acts();
    try {
      for await (const delta of this.trials.run({ task: task.name, code, ...how }, stop.signal)) {
        stop.signal.throwIfAborted();
        if (delta.error || delta.stopped) throw new Error(delta.error || delta.stopped);
        if (delta.done) this._take(done, delta);
        else this.outcome.progress(delta);
      }
    } catch (/** @type {Foreign} */ error) {
      if (stop.signal.aborted) this.task === task && this.outcome.say("Stopped.");
      else this.outcome.say(error.message);
    } finally {
      this.stop = null;
      if (this.task !== task) this.outcome.named(); // hides the bar
      this._acts();
    }
  }

  /** Use an answer of the sandbox, which may be anything; if that fails, say so. */
  _take(/** @type {(delta: Json) => void} */ done, /** @type {Json} */ delta) {
    try {
      done(delta);
    } catch {
      this.entry = null;
      this.outcome.say("This code answered with something that cannot be drawn.");
      this._draw();
    }
  }

  _tried(/** @type {Json} */ attempt) {
    const { task } = this;
    const { replay, goals, fault } = attempt;
    this.attempt = attempt;
    if (goals.every((/** @type {Json} */ { met }) => met)) this.own.keep(task.name, { done: true });
    this.entry = replay && { title: task.title, written: task.name };
    if (replay) this._open(fault ? { step: fault.step } : {});
    this.code.mark(fault?.line ?? null, fault ? t(fault.says, fault.holes) : "");
    this.outcome.show(attempt);
    this._draw();
    this.$(".outcome").scrollIntoView({ block: "nearest" });
  }

  /** Draw the run of the last trial, with its sentences in the page's language. */
  _open(/** @type {Wanted} */ wanted) {
    this.watch.openTranslated(inLanguage(this.attempt.replay), wanted, this.entry);
  }

  /** Choose what a phone shows: the code or the picture. */
  side(/** @type {Json} */ side) {
    this.page.dataset.side = side;
    this.watch?.redraw();
  }

  // -- the code ----------------------------------------------------------------------------------

  _changed() {
    const { task } = this;
    if (!task) return;
    if (this.came !== null) {
      const before = this.own.of(task.name);
      this.came = null;
      this._remember();
      this._draw();
      if (before !== null)
        this.toast("This is your code now.", {
          text: "Back to my code",
          act: () => this._put(before),
        });
    }
    this.own.keep(task.name, { code: this.code.code });
  }

  _put(/** @type {string} */ code) {
    this._clear();
    this.code.code = code;
    this.own.keep(this.task.name, { code });
    this.came = null;
    this._remember();
    this._draw();
  }

  _startOver() {
    const { code } = this.code;
    this._put(this.task.code);
    if (code !== this.task.code)
      this.toast("This is the code that you were given.", {
        text: "Back to my code",
        act: () => this._put(code),
      });
  }

  async _share() {
    const code = await packed(this.code.code);
    if (!code) return noLink(this.root, "This code is too long for an address.");
    const p = new URLSearchParams({ part: "write", task: this.task.name, code });
    putLanguage(p);
    return copyLink(this.root, linkTo(`#${p}`), () =>
      this.toast("Link copied: it shows this code, and runs it when its reader presses Run."),
    );
  }

  // -- buttons, labels and messages --------------------------------------------------------------

  _buttons() {
    const clicked = {
      ".run-button": () => this.run(),
      ".stop-button": () => this.stop?.abort(),
      ".again-button": () => this._startOver(),
      ".link-button": () => this._share(),
      ".beside-button": () => this.beside(),
      ".own-button": () => this._put(this.own.of(this.task.name) ?? this.task.code),
      ".code-side": () => this.side("code"),
      ".picture-side": () => this.side("picture"),
    };
    for (const [button, act] of Object.entries(clicked))
      this.$(button).addEventListener("click", act);
    this.side("code");
  }

  _acts() {
    const going = Boolean(this.stop);
    this.$(".run-button").disabled = this.$(".beside-button").disabled = going;
    this.$(".stop-button").hidden = !going;
  }

  /** Whether the picture is of the last trial of this task, never of other code. */
  get _isOurs() {
    return (
      Boolean(this.entry) &&
      this.watch?.state.entry === this.entry &&
      this.entry.written === this.task.name
    );
  }

  _draw() {
    const { $, task, watch, own } = this;
    const isOurs = this._isOurs;
    this.page.toggleAttribute("data-written", isOurs);
    if (!isOurs && this.page.dataset.side !== "code") this.side("code");
    $(".came").hidden = this.came === null;
    $(".beside-button").hidden = !isOurs || task.kind !== "policy" || Boolean(this.attempt?.fault);
    setText($(".hidden-run p"), t(task.before));
    $(".task-list").replaceChildren(
      ...this.options.tasks.map((one, i) => {
        const isDone = own.isDone(one.name);
        const title = t(one.title);
        const props = {
          class: isDone ? "done" : "",
          "aria-current": one === task ? "step" : null,
          title,
          "aria-label": `${i + 1}: ${title}${isDone ? `, ${t("done")}` : ""}`,
          onclick: () => this.open(one),
        };
        return h("li", {}, newButton(props, isDone ? "✓" : String(i + 1)));
      }),
    );
    setText($(".task-title"), t(task.title));
    $(".task-says").replaceChildren(...coded(t(task.says)));
    this.outcome.goals();
    if (isOurs) watch.redraw();
  }

  _named() {
    fillTabs(this.root, this.options.tabs, "write");
    this.code.named();
    if (!this.task) return;
    if (this._isOurs && !this.watch.isTranslated)
      this._open({ step: this.watch.step, pin: this.watch.state.pinned?.letter });
    this._draw();
    this.outcome.named();
    this._remember();
  }

  toast(/** @type {string} */ sentence, /** @type {Action | null} */ action = null) {
    showToast(this.root, sentence, action ? 2 * LINK : LINK, action);
  }
}

window.inflightWriteMount = (/** @type {Root} */ holder, /** @type {Json} */ options) => {
  const { tasks, model, ...files } = window.inflightWriteFiles;
  return (window.inflightWrite = new Write(fillPart(holder, files, ".inflight-write"), {
    ...options,
    tasks,
    model,
  }));
};
