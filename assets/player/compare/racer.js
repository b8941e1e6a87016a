// One run of a race: its lanes on the race's axis, finished requests, counters and final number.

import { chip } from "../parts/chips.js";
import { h, isRedrawn, newButton, put, setAttr, setText } from "../parts/dom.js";
import { count, duration, joined } from "../parts/format.js";
import { setHue } from "../parts/look.js";
import { speaking, t, tell } from "../parts/speech.js";
import { laneScale } from "../run/lane_layout.js";
import { HELD, countUpTo, whoIsDone } from "../run/run.js";
import { LaneChart } from "../views/lane_chart.js";
import { GUTTER } from "../views/lane_ink.js";

const STRIP = 18; // pixels above the lanes, for ticks where requests are done
const FUTURE = 0.13;
/** @type {Record<string, number>} */
const MOST = { desk: 14, tablet: 8, phone: 3 }; // chips of finished requests at most, by layout

export class Racer {
  /** @param {import("./race.js").Race} race @param {string} name @param {Run} run */
  constructor(race, name, run) {
    this.race = race;
    this.name = name;
    this.run = run;
    /** @type {RunRequest[] | null} */
    this.focus = null;
    this.startStep = run.events[0].step;
    this.seconds = run.events[run.length - 1].tEnd; // since the requests were handed over
    this.steps = run.span(false); // including steps that computed nothing
    this.tokens = run.events.flatMap((e) =>
      e.sampled.map((s) => this.ends(e, e.passes[s.passIndex].tEnd)),
    );
    this.completions = run.events.flatMap((e) =>
      whoIsDone(e).map(({ request }) => ({ request: run.request(request), ...this.ends(e) })),
    );
    this.chips = h("span", { class: "landed fixed end flex", "aria-hidden": "true" });
    this.numbers = h("span", { class: "racer-now fixed mono" });
    this.final = h("b", { class: "final nowrap mono large", hidden: true });
    const canvas = h("canvas", { role: "img", "aria-label": name });
    this.stage = h("div", { class: "canvas" }, canvas, this.final);
    this.el = h(
      "section",
      { class: "racer stack", "data-racer": name },
      h(
        "h4",
        { class: "flex spaced nowrap plain" },
        h("b", { class: "racer-name fixed" }, name),
        (this.about = h("span", { class: "racer-about clip soft" })),
        (this.button =
          race.watches &&
          newButton({ class: "mini watch-button fixed", onclick: () => race.watch(this) })),
        this.chips,
        this.numbers,
      ),
      this.stage,
    );
    setHue(this.el, race.hues[name] ?? 0);
    this.lanes = new LaneChart(canvas, () => race.redraw());
  }

  /** Highlight a request by its id; null for none. A request of other runs only clears it. */
  light(/** @type {string | null} */ id) {
    const request = id === null ? null : this.run.request(id);
    this.focus = request ? [request] : null;
  }

  get length() {
    return this[this.race.unit];
  }

  /** When a step ends, in both units. @param {StepEvent} e */
  ends(e, seconds = e.tEnd) {
    return { seconds, steps: e.step + 1 - this.startStep };
  }

  tokensAt(/** @type {number} */ now) {
    return countUpTo(this.tokens, now + 1e-9, (t) => t[this.race.unit]);
  }

  completedBy(/** @type {number} */ now) {
    return this.completions.filter((l) => l[this.race.unit] <= now + 1e-9);
  }

  /** The run's final number. */
  inAll() {
    return t(this.race.clock ? duration(this.seconds) : `${count(this.run.length)} [step|steps]`);
  }

  /** The last step begun at a moment, -1 before the first. inside: whether it is still running. */
  stepAt(/** @type {number} */ now) {
    const { events } = this.run;
    const begins = this.race.clock
      ? (/** @type {StepEvent} */ e) => e.tStart
      : (/** @type {StepEvent} */ e) => e.step - this.startStep;
    const i = countUpTo(events, now + 1e-9, begins) - 1;
    return { i, inside: i >= 0 && now < this.ends(events[i])[this.race.unit] - 1e-9 };
  }

  stepsAt(/** @type {number} */ now) {
    return countUpTo(this.run.events, now + 1e-9, (e) => this.ends(e)[this.race.unit]);
  }

  /** The x coordinate at which the lanes end, in pixels. */
  end() {
    return this.lanes.scale.to(this.run.length - 1);
  }

  _lanes() {
    const { race, run, lanes } = this;
    const { surface } = lanes;
    if (!surface.visible) return;
    const layout = () => {
      const per = Math.max(1, surface.w - GUTTER - race.room) / race.span;
      const before = race.clock ? run.events[0].tStart * per : 0;
      const scale = laneScale(run, race.clock, GUTTER + before, per);
      // nothing is drawn after the run's end
      return { scale, axis: STRIP, font: race.font, end: scale.to(run.length - 1) };
    };
    if (
      lanes.paint(
        { run, palette: race.palette, focus: this.focus, presenter: race.presenter },
        `${speaking()}/${race.clock}/${race.span}/${race.layout}/${race.presenter}`,
        layout,
      )
    )
      this._describe(lanes.counted);
    const now = Math.min(GUTTER + race.now * lanes.scale.per, this.end());
    const g = lanes.show(now, FUTURE);
    g.fillStyle = race.palette.soft;
    run.events.forEach((e, i) => {
      const x = lanes.scale.to(i);
      if (whoIsDone(e).length && x <= now + 0.5) g.fillRect(x - 2.5, STRIP - 7, 2.5, 6);
    });
  }

  _describe(/** @type {Json} */ c) {
    const { run } = this;
    const held = run.statuses.reduce((n, lanes) => n + lanes.filter((s) => s & HELD).length, 0);
    const idle = run.length * run.numLanes - held;
    const parts = [`${c.prefill} prefill`, `${c.decode} decode`];
    if (c.wasted - c.overrun) parts.push(`${c.wasted - c.overrun} padding`);
    if (c.overrun) parts.push(`${c.overrun} overrun`);
    if (idle > 0) parts.push(`${idle} idle`);
    this.lanes.canvas.setAttribute(
      "aria-label",
      t("Lanes of {name}, in lane-steps: {counts}", {
        name: this.name,
        counts: parts.map((part) => t(part)).join(", "),
      }),
    );
  }

  draw() {
    const { race, run } = this;
    this._lanes();
    setText(this.about, race.about[this.name] ? t(race.about[this.name]) : "");
    if (this.button) {
      tell(this.button, "Watch");
      const says = "This run at this moment, in the Watch tab; so does a double click on its lanes";
      setAttr(this.button, "title", t(says));
    }
    const { now, clock } = race;
    const done = now >= this.length - 1e-9;
    const tokens = this.tokensAt(now);
    const landed = this.completedBy(now);
    // as many chips as fit beside the rest of the line
    const most = race.presenter
      ? Math.max(3, Math.floor(this.lanes.surface.w / 160))
      : MOST[race.layout];
    const { palette } = race;
    if (isRedrawn(this, { shown: landed.length, most, palette, language: speaking() })) {
      const shown = landed.slice(-most);
      const more = landed.length - shown.length;
      put(
        this.chips,
        more > 0 && h("span", { class: "more" }, `+${more}`),
        ...shown.map(({ request }) => {
          const el = chip({ run, index: Infinity }, request);
          el.title = t("request {id} is done", { id: request.id });
          return el;
        }),
      );
    }
    const written = `${count(tokens)} [token|tokens]`;
    const rate = count(Math.round(tokens / Math.min(now, this.seconds)));
    const numbers = [
      t(`${written} in ${count(this.stepsAt(now))} [step|steps]`),
      now > 0 && clock && t(`${rate} tok/s`),
    ];
    setText(this.numbers, race.layout === "phone" ? t(written) : joined(numbers));
    this.final.hidden = !done;
    if (done) {
      setText(this.final, this.inAll());
      this.final.style.transform = `translateX(${Math.round(this.end() + 8)}px)`;
    }
    this.el.classList.toggle("done", done);
  }
}
