// A race's transport: start, the last and next request done, play, end; the moment; axis, table and speed.

import { h, icon, setAttr, setText } from "../parts/dom.js";
import { RACE_SPEEDS } from "./race.js";
import { t, tell } from "../parts/speech.js";

export class RaceBar {
  /** el: an empty toolbar. heading: where the table's button goes. */
  constructor(el, heading, race) {
    this.race = race;
    const key = (act, label, shape, ...more) => h("button", {
      type: "button", class: `key-button ${act}`, "data-act": act, "data-label": label, "aria-pressed": act === "play" ? "false" : null, onclick: () => this.act(act),
    }, icon(shape), ...more);
    this.play = key("play", "Play", "play");
    this.play.firstElementChild.classList.add("when-paused");
    this.play.append(icon("pause"));
    this.play.lastElementChild.classList.add("when-playing");
    this.moment = h("output", { class: "race-time", "data-label": "Moment of the race" });
    this.table = h("button", { type: "button", class: "mini table-button", "aria-pressed": "false", "data-title": "This moment as a table (t)", onclick: () => this.act("table") });
    this.clock = h("button", { type: "button", class: "button clock-button", "aria-pressed": "true", "data-title": "Measured time, or steps: steps do not cost the same (c)", onclick: () => this.act("clock") });
    this.speed = h("select", { class: "speed", "data-label": "Speed of the race", onchange: () => { race.speed = Number(this.speed.value); } }, ...RACE_SPEEDS.map((s) => h("option", { value: String(s) }, `${s}×`)));
    el.replaceChildren(key("first", "Start", "first"), key("prev", "Last request done", "prev"), this.play, key("next", "Next request done", "next"), key("last", "End", "last"),
      this.name = h("span", { class: "bar-name" }), this.moment, h("span", { class: "spring" }), this.clock, this.speed);
    heading.append(this.table);
    this.named = () => this._name([...el.querySelectorAll("*"), this.table]);
    this.named();
    this.draw();
  }

  /** What does not depend on the moment, in the language that is spoken. */
  _name(elements) {
    tell(this.name, "Race");
    tell(this.table, "Table");
    for (const el of elements) {
      const { label, title = el.matches(".key-button") ? label : undefined } = el.dataset;
      if (label) setAttr(el, "aria-label", t(label));
      if (title) setAttr(el, "title", t(title));
    }
  }

  act(name) {
    const { race } = this;
    const verbs = {
      first: () => race.seek(0), last: () => race.seek(Infinity), play: () => race.toggle(), prev: () => race.land(-1), next: () => race.land(1),
      clock: () => race.setClock(!race.clock), table: () => race.showTable(!race.tabled),
    };
    verbs[name]();
  }

  /** Another race is shown: at a speed at which it takes some seconds. */
  fit() {
    this.race.speed = this.race.fittingSpeed();
    this.speed.value = String(this.race.speed);
  }

  draw() {
    const { race } = this;
    setText(this.moment, race.readout());
    this.play.classList.toggle("on", race.playing);
    setAttr(this.play, "aria-label", t(race.playing ? "Pause" : "Play"));
    setAttr(this.play, "aria-pressed", String(race.playing));
    setAttr(this.table, "aria-pressed", String(race.tabled));
    tell(this.clock, `${race.layout === "phone" ? "" : "Axis: "}${race.clock ? "time" : "steps"}`);
    setAttr(this.clock, "aria-pressed", String(race.clock));
  }

  /** What a key does, or undefined. */
  key(e) {
    const { race } = this;
    const far = e.shiftKey ? 10 : 1;
    const keys = {
      ArrowRight: () => race.step(far), ArrowLeft: () => race.step(-far), " ": () => this.act("play"), n: () => this.act("next"), b: () => this.act("prev"),
      c: () => this.act("clock"), t: () => this.act("table"),
    };
    if (e.target.closest?.(".race-area, .table-holder")) Object.assign(keys, { Home: () => this.act("first"), End: () => this.act("last") });
    return keys[e.key];
  }
}
