// Static beside continuous batching: the lanes of the same requests under the other policy, below
// those on screen, with how long each request has waited so far under both. Both runs are from one
// recorded comparison, on the same clock; if no comparison has them, an engine runs both now, and
// they are shown by steps, because the time of a single run says little. They are shown as a pair.

import { chip } from "../parts/chips.js";
import { find, h, put, setAttr, setText } from "../parts/dom.js";
import { count, wallClock } from "../parts/format.js";
import { hideToast } from "../parts/look.js";
import { inLanguage, runOf, t, whenSpoken } from "../parts/speech.js";
import { stepsWaited, waitedSoFar } from "../run/delays.js";
import { countUpTo, Run } from "../run/run.js";
import { ownAxis, setAxis } from "./layout.js";
import { comparisonOf } from "./open_file.js";
import { runBeside } from "./what_if.js";

const POLICIES = ["static", "continuous"];
const MOST = { desk: 8, tablet: 6, phone: 2 }; // requests named in a line at most

export class Beside {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.button = /** @type {HTMLButtonElement} */ (app.$(".beside-button"));
    this.lines = [".waited.mine", ".waited.theirs"].map((line) => find(app.root, line));
    this.on = false;
    this.working = false;
    this.button.addEventListener("click", () => this.toggle());
  }

  /** The other policy, whose lanes can be put below those on screen. */
  get policy() {
    const { run } = this.app;
    return run ? POLICIES.find((name) => name !== run.header.policy) : "static";
  }

  /** The recorded comparison that has these requests under both policies, or null. */
  get recorded() {
    const { entry, options } = this.app;
    const name = entry?.racer ? POLICIES.includes(entry.racer) && entry.comparison : entry?.name;
    const known = options.catalogue.find((e) => e.name === name);
    const can =
      this.app.engines?.can("open_comparison") || options.comparisons?.some((e) => e.name === name);
    return known?.beside && can ? name : null;
  }

  /** Whether the other run can be shown: from a recorded comparison, or run by an engine. */
  get offered() {
    const { run, engines, running, ranks, pair } = this.app;
    if (this.on) return true;
    const isAlone = !running && !ranks.current && !pair.members.length;
    if (!run?.length || !isAlone || run.header.engine || run.header.leak) return false;
    return Boolean(this.recorded || (engines && POLICIES.includes(run.header.policy)));
  }

  toggle() {
    if (this.on) this.app.pair.close();
    else this.open();
  }

  /** Put the other policy's lanes below those on screen. */
  async open() {
    if (this.working || !this.offered) return;
    this.working = true;
    setAttr(this.button, "aria-busy", "true");
    try {
      await (this.recorded ? this._recorded(this.recorded) : this._run());
    } catch (/** @type {Foreign} */ error) {
      this.app.toast(t("The other run could not be opened: {why}", { why: t(error.message) }));
    }
    this.working = false;
    setAttr(this.button, "aria-busy", "false");
  }

  /** @param {string} comparison */
  async _recorded(comparison) {
    const { app } = this;
    const { run: before, entry, index } = app;
    const doc = await comparisonOf(app, comparison);
    await whenSpoken();
    if (app.run !== before) return; // another run was opened meanwhile
    const front = POLICIES.find((name) => name === entry?.racer) || POLICIES[1];
    const below = POLICIES.find((name) => name !== front) || POLICIES[0];
    const members = [front, below].map((racer) => {
      const replay = runOf(doc, racer);
      const entry = { name: null, title: `${t(doc.title)}: ${racer}`, comparison, racer };
      return { run: new Run(replay), entry, replay, name: () => racer };
    });
    this._begin(true);
    app.pair.open({
      members,
      step: null,
      says: () => inLanguage(doc).says.headline,
      link: { comparison, racer: front, beside: below },
      front: members[0],
      at: before.stepOf(index),
    });
  }

  async _run() {
    const { app } = this;
    this._begin(false);
    const tell = (/** @type {string} */ words) => app.toast(t(words), 8000);
    const failed = await runBeside(app, this.policy || "", tell);
    if (failed || !app.pair.members.length) this._end();
    if (failed) app.toast(failed, 8000);
    else hideToast(app.root);
  }

  /** @param {boolean} clock whether both are on a clock of seconds, not on steps */
  _begin(clock) {
    this.on = true;
    setAxis(this.app, clock);
  }

  _end() {
    if (!this.on) return;
    this.on = false;
    setAxis(this.app, this.app.store.state.chosenAxis ?? ownAxis(this.app));
  }

  /** A run was put on screen. wanted: see `Address.read`. @param {Wanted} wanted */
  entered(wanted) {
    if (this.on && !this.working && !this.app.pair.members.length) this._end();
    if (wanted.beside && !this.on) this.open();
  }

  /** @param {ViewState} state */
  draw(state) {
    this.button.hidden = !this.offered;
    const shown = this.on && state.pair.other;
    const policy = (shown && shown.run.header.policy) || this.policy;
    setText(this.button, t("vs. {policy}", { policy }));
    setAttr(this.button, "aria-pressed", String(this.on));
    this.app.root.toggleAttribute("data-beside", this.on);
    for (const line of this.lines) line.hidden = !shown;
    if (!shown) return;
    const { run, frame } = state;
    const { run: other } = shown;
    const { events } = other;
    // on a clock, usually within a step of the other run
    const now = frame.event.tEnd - run.events[0].tStart + events[0].tStart;
    const there = state.clock
      ? countUpTo(events, now + 1e-9, (e) => e.tStart) - 1
      : other.indexOf(frame.event.step);
    this.lines[1].style.order = this.app.pair.members[0].run === other ? "-1" : "1";
    this._tell(this.lines[0], state, run, frame.i);
    this._tell(this.lines[1], state, other, there, Math.min(now, events[there].tEnd));
  }

  /**
   * Write how long each request has waited so far under one of the policies.
   * @param {HTMLElement} line @param {ViewState} state @param {Run} run @param {number} i
   * @param {number} now a moment in step i, its end if none is given
   */
  _tell(line, state, run, i, now = run.events[i].tEnd) {
    const { clock } = state;
    const words = (/** @type {number} */ n) => t(clock ? wallClock(n) : `${count(n)} [step|steps]`);
    const long = (/** @type {RunRequest} */ request) =>
      clock ? waitedSoFar(run, request, i, now) : stepsWaited(run, request, i);
    const waited = run.requests
      .map((request) => ({ request, long: long(request) }))
      .sort((a, b) => b.long - a.long);
    const some = waited.filter(({ long }) => long >= (clock ? 0.005 : 1));
    const named = some.slice(0, MOST[state.layout]);
    const rest = some.length - named.length;
    const phone = state.layout === "phone";
    // if every request is named, the sum must equal that of the rounded numbers in the line
    const isSum = clock && !rest;
    const each = waited.map(({ long }) => (isSum ? parseFloat(wallClock(long)) : long));
    const seconds = words(each.reduce((sum, long) => sum + long, 0));
    const all = some.length ? t("{seconds} in all", { seconds }) : t("nobody has waited");
    put(
      line,
      h("b", {}, run.header.policy),
      h("span", {}, t(phone ? "waited" : "waited so far")),
      ...named.map(({ request, long }) =>
        h("span", { class: "waiter" }, chip({ run, index: i }, request), words(long)),
      ),
      rest > 0 && h("span", {}, phone ? `+${rest}` : t(`and ${rest} more`)),
      h("span", { class: some.length ? "long" : null }, all),
    );
  }
}
