// The clock of a step's motion. When a single step is taken, what happened in it moves once from
// where it was to where it is. Views draw the pictures, at a share of the step.

import { reducedMotion } from "../parts/dom.js";
import { phase } from "../views/phases.js";
import { viewState } from "./view_state.js";

const FORWARD = 560; // milliseconds of a motion to the next step, and back to the one before
const BACK = 260;
const HELD = 120; // ms; steps closer together come from a key held down and do not move
const SLOW = 2; // steps per second; steps that play or arrive faster do not move

export class Motion {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.index = 0; // the step whose motion is drawn
    this.share = 1; // the share of its motion that is done, 0 to 1
    /** @type {number | undefined} */
    this._frame = undefined;
    this._last = -Infinity; // time of the last step
    /** @type {Map<View, string>} */
    this._drawn = new Map(); // each view's parts of the motion, as last drawn
    document.addEventListener("visibilitychange", () => document.hidden && this.settle());
  }

  /** Whether steps of the run on screen may move now. */
  get _may() {
    const { root, ranks, lanes, strip } = this.app;
    const isSeen = !document.hidden && root.getClientRects().length > 0;
    return !reducedMotion() && isSeen && !ranks.current && !lanes.dragging && !strip.dragging;
  }

  /**
   * A step to the next or the previous one was taken; it moves if steps come slowly enough. byHand:
   * by key or button, one at a time. @param {number} from @param {number} to
   */
  went(from, to, byHand = false) {
    const now = performance.now();
    const gap = now - this._last;
    this._last = now;
    this.settle();
    if (Math.abs(to - from) !== 1 || !this._may || gap < (byHand ? HELD : 900 / SLOW)) return;
    const { transport } = this.app;
    const length =
      to < from ? BACK : transport.playing ? Math.min(FORWARD, 880 / transport.speed) : FORWARD;
    this._run(Math.max(from, to), to > from ? 0 : 1, to > from ? 1 : 0, length);
  }

  /** @param {number} index @param {number} from @param {number} to @param {number} length */
  _run(index, from, to, length) {
    [this.index, this.share] = [index, from];
    this._drawn.clear();
    this.app.redraw();
    let start = 0;
    const tick = (/** @type {number} */ now) => {
      this._frame = requestAnimationFrame(tick);
      if (this.app.drawsSoon)
        start = now; // first, everything is drawn once at the initial share
      else {
        start ||= now;
        const done = Math.min(1, (now - start) / length);
        if (done === 1) return this.settle();
        this.share = from + (to - from) * done;
        this._draw();
      }
    };
    this._frame = requestAnimationFrame(tick);
  }

  /** End the motion: everything is where it is after the step. The next key does this, too. */
  settle() {
    if (this._frame !== undefined) cancelAnimationFrame(this._frame);
    this._frame = undefined;
    if (this.share === 1) return;
    this.share = 1;
    this.app.redraw();
  }

  /** Hold the motion of the step on screen at a share, for a picture. @param {number} share */
  hold(share) {
    this.settle();
    [this.index, this.share] = [this.app.index, Math.max(0, Math.min(1, share))];
    this.app.redraw();
  }

  /**
   * The state that moving views draw, while the others draw the step on screen.
   * @param {ViewState} settled @returns {ViewState}
   */
  stateOf(settled) {
    return this.share < 1 ? viewState(this.app, this.index, this.share) : settled;
  }

  _draw() {
    const { app } = this;
    if (!app.run?.length || this.index >= app.run.length) return this.settle();
    const state = viewState(app, this.index, this.share);
    for (const view of app.views) if ("moves" in view && this._changes(view)) view.draw(state);
    app.flights.draw(state);
  }

  /**
   * Whether a view looks different from the last time it was drawn: a canvas differs in every frame
   * of its part of the motion, text only when its part begins or ends. @param {View} view
   */
  _changes(view) {
    const now = /** @type {readonly Phase[]} */ (view.moves)
      .map((name) => phase(this.share, name))
      .map((come) => (view.surface ? come : Math.ceil(come) + Math.floor(come)))
      .join();
    const changes = this._drawn.get(view) !== now;
    this._drawn.set(view, now);
    return changes;
  }
}
