// Playing, stepping, jumping: buttons, keys and speed; and all other keys of the player.

import { clamp, keyButton, setText } from "../parts/dom.js";
import { isOurKey, isTyping, pressesButton, toggleFullscreen } from "../parts/look.js";
import { showKeys } from "../parts/floating.js";
import { t } from "../parts/speech.js";
import { paceOf } from "./happens.js";
import { focusView } from "./presenter.js";
import { showSlow } from "./slow.js";

export const SPEEDS = [1, 2, 4, 8, 15, 30, 60];

/** @type {Record<string, string>} */
const KEYS = {
  ArrowRight: "next",
  ArrowLeft: "prev",
  PageDown: "next-page",
  PageUp: "prev-page",
  Home: "first",
  End: "last",
  " ": "play",
  n: "next-event",
  b: "prev-event",
  "+": "faster",
  "-": "slower",
};

export class Transport {
  constructor(/** @type {Json} */ bar, /** @type {App} */ app) {
    this.app = app;
    this.bar = bar;
    this.speed = 2;
    this.playing = false;
    this.played = -1; // the place that playback has reached
    this._frame = 0;
    this.playButton = bar.querySelector(".play");
    const came = "Back to the last request that came or went";
    const goes = "To the next request that comes or goes";
    this.playButton.before(
      keyButton("prev-event", "first", came, "b", "in-simple"),
      keyButton("first", "first", "First step", "Home", "in-full"),
      keyButton("prev", "prev", "Previous step", "←"),
    );
    this.playButton.after(
      keyButton("next", "next", "Next step", "→"),
      keyButton("next-event", "last", goes, "n", "in-simple"),
      keyButton("last", "last", "Last step", "End", "in-full"),
    );
    this.count = bar.querySelector(".count");
    this.select = bar.querySelector(".speed");
    this.kind = bar.querySelector(".kind");
    this.progress = app.root.querySelector(".progress-line i");
    bar.addEventListener("click", (/** @type {Happened} */ e) => {
      const button = e.target.closest("[data-act]");
      if (button) this.act(/** @type {Json} */ (button).dataset.act);
    });
    this.select.addEventListener("change", () => {
      this.speed = Number(this.select.value);
    });
  }

  /** What the transport moves along: steps of the run on screen, or moments of all ranks. */
  get track() {
    return this.app.ranks.all ? this.app.ranks : this.app.run;
  }

  get place() {
    return this.app.ranks.all ? this.app.ranks.at : this.app.index;
  }

  /** Act as a button (data-act) or key (KEYS). far: steps at once. False for an unknown one. */
  act(/** @type {string} */ name, far = 1) {
    const { app } = this;
    /** @type {Record<string, () => unknown>} */
    const verbs = {
      first: () => app.seek(0, true),
      last: () => app.seek(Infinity, true),
      prev: () => app.step(-far),
      next: () => app.step(far),
      "prev-page": () => app.seek(this.place - 10, true),
      "next-page": () => app.seek(this.place + 10, true),
      play: () => this.toggle(),
      "prev-event": () => this.jump(-1),
      "next-event": () => this.jump(1),
      clock: () => app.setClock(!app.clock),
      faster: () => this.faster(1),
      slower: () => this.faster(-1),
    };
    verbs[name]?.();
    return name in verbs;
  }

  jump(/** @type {number} */ direction, kind = this.app.detail.simple ? "any" : this.kind.value) {
    const { app } = this;
    if (!app.run) return;
    const steps = this.track.eventSteps(kind);
    const isLater = direction > 0;
    const target = isLater
      ? steps.find((i) => i > this.place)
      : steps.findLast((i) => i < this.place);
    const what = `${isLater ? "later" : "earlier"} ${kind === "any" ? "event" : kind}`;
    if (target === undefined) app.toast(`No ${what} in this run.`, 2500);
    else app.seek(target, true);
  }

  toggle(on = !this.playing) {
    const { app } = this;
    if (on === this.playing || !app.run) return;
    this.playing = on;
    if (on) app.intro.used();
    this.playButton.setAttribute("aria-label", t(on ? "Pause" : "Play"));
    this.playButton.setAttribute("aria-pressed", String(on));
    this.playButton.classList.toggle("on", on);
    if (!on) {
      cancelAnimationFrame(this._frame);
      app.redraw();
      return;
    }
    if (this.place >= this.track.length - 1 && !app.following) app.seek(0);
    this.played = this.place;
    let last = performance.now();
    let due = 0;
    const tick = (/** @type {number} */ t) => {
      if (!this.playing) return;
      const from = this.place;
      const { rate, goal } = this._pace;
      due += (clamp(t - last, 0, 500) * rate) / 1000;
      last = t;
      const n = Math.floor(due);
      if (n) {
        const to = Math.min(from + n, goal);
        due = to === goal ? 0 : due - n;
        app.seek(to);
        this.played = this.place;
        app.motion.went(from, this.place);
        if (this.place >= this.track.length - 1 && !app.grows) {
          this.toggle(false);
          return;
        }
      }
      /** @type {number} */
      this._frame = requestAnimationFrame(tick);
    };
    this._frame = requestAnimationFrame(tick);
  }

  /** Steps per second, and the step at which play must stop; in Simple both follow the events. */
  get _pace() {
    const { app } = this;
    const byEvents = app.detail.simple && !app.ranks.all && !app.grows;
    return byEvents ? paceOf(app.run, this.place) : { rate: this.speed, goal: Infinity };
  }

  /** @param {ViewState} state */
  draw({ run, frame, ranks }) {
    const { track, place } = this;
    const steps = `${frame.event.step} / ${run.stepOf(run.length - 1)}`;
    setText(this.count, ranks ? ranks.readout : steps);
    const share = track.length > 1 ? place / (track.length - 1) : 1;
    this.progress.style.transform = `scaleX(${share})`;
  }

  faster(/** @type {number} */ by) {
    const at = clamp(SPEEDS.indexOf(this.speed) + by, 0, SPEEDS.length - 1);
    this.setSpeed(SPEEDS[at]);
  }

  setSpeed(/** @type {number} */ speed) {
    this.speed = speed;
    this.select.value = String(speed);
  }
}

/** Esc leaves one thing at a time, the innermost first. */
function leave(/** @type {App} */ app) {
  if (app.menu.close() || app.clear()) return;
  if (!app.narration.list.hidden) app.narration.open(false);
  else if (!app.editor.drawer.hidden) app.editor.toggle(false);
  else if (app.root.dataset.focusView) focusView(app, null);
  else if (app.presenter) app.present(false);
}

/** Select the next request: first those in lanes, then those that wait. */
function selectNext(/** @type {App} */ app, /** @type {number} */ by) {
  if (!app.frame) return;
  const { lanes, waiting } = app.frame;
  const all = [...lanes, ...waiting].map(({ request }) => request).filter(Boolean);
  const present = [...new Set(all)];
  if (!present.length) return;
  const at = present.indexOf(app.pinned);
  const from = by < 0 ? Math.max(at, 0) : at; // if none is selected: the first, or the last
  const next = present.at((from + by) % present.length);
  if (next && next !== app.pinned) app.pin(next);
}

export function playerKeys(/** @type {App} */ app) {
  document.addEventListener("keydown", (e) => {
    if (!isOurKey(e, app.root) || app.root.querySelector("dialog[open]")) return;
    const el = /** @type {HTMLElement} */ (e.target);
    if (e.key === "Escape") return leave(app);
    if (isTyping(el) || (el.closest && el.closest(".menu")) || pressesButton(e)) return;
    if (el.closest && el.closest(".texts, .table-holder") && /^(Page|Home|End)/.test(e.key)) return;
    if (app.transport.act(KEYS[e.key], e.shiftKey ? 10 : 1)) e.preventDefault();
    else if (e.key === "?") showKeys(app.root, app.intro.words);
    else if (e.key === "p") app.present(!app.presenter);
    else if (e.key === "t") app.tables.toggle();
    else if (e.key === "w") showSlow(app);
    else if (e.key === "/") {
      e.preventDefault(); // otherwise the key would be typed into the field
      if (app.edge?.find) app.edge.find();
      else showSlow(app, true);
    } else if (e.key === "d") app.detail.turn();
    else if (e.key === "c") app.setClock(!app.clock);
    else if (e.key === "j" || e.key === "k") selectNext(app, e.key === "j" ? 1 : -1);
    else if (e.key === "s") app.beside.toggle();
    else if (e.key === "x") app.ranks.current ? app.ranks.turn(1) : app.pair.flip();
    else if (e.key === "a" && app.ranks.current) app.ranks.showAll(!app.ranks.all);
    else if (e.key === "z" && app.pinned) app.mask.zoomTo(app.pinned);
    else if (e.key === "r") app.narration.open(Boolean(app.narration.list.hidden));
    else if (app.presenter && e.key === "f") toggleFullscreen(app.root);
    else if (app.presenter && /^[1-6]$/.test(e.key)) focusView(app, Number(e.key));
    else if (!app.presenter && /^[0-9]$/.test(e.key))
      app.ranks.choose(app.ranks.members.find((m) => m.rank === Number(e.key)) || null);
    else return;
    app.root.classList.add("by-keys");
  });
}
