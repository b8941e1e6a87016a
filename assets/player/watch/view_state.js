// What views get from the player: the state for each draw, and the actions that they can call.

import { clamp } from "../parts/dom.js";

/**
 * One step of the run on screen, or a share of the motion to it, and how it is viewed.
 * @param {App} app @returns {ViewState}
 */
export function viewState(app, index = app.index, share = 1) {
  const { store, alone, transport } = app;
  const { run, palette, focus, hot, pinned, layout, clock, detail } = store.state;
  const frame = run.frame(Math.min(index, run.length - 1));
  const pass = frame.passes[clamp(store.state.pass, 0, frame.passes.length - 1)] || null;
  const isDragged = app.lanes.dragging || app.strip.dragging;
  const isQuick = transport.playing && transport.speed > 8;
  return {
    run,
    frame,
    index: frame.i,
    share,
    flights: app.flights,
    pass,
    palette,
    focus,
    hot,
    pinned,
    presenter: store.state.presenter || store.state.large,
    alone,
    layout,
    clock,
    simple: detail === "simple",
    language: app.speech.name,
    fast: isDragged || isQuick || (app.running && app.following),
    pair: app.pair.state,
    leak: app.leak.state,
    weights: app.weights.state(frame, pass),
    ranks: app.ranks.state,
  };
}

/** @param {App} app @returns {ViewActions} */
export function viewActions(app) {
  return {
    redraw: () => app.redraw(),
    changed: () => app.changed(),
    hover: (found, x, y) => app.hover(found, x, y),
    explain: (lines, x, y) => app.explain(lines, x, y),
    pin: (request) => app.pin(request),
    scrub: (index) => app.scrub(index),
    choosePass: (index) => app.choosePass(index),
    toggleLeak: () => app.leak.toggle(),
    weigh: (change) => {
      Object.assign(app.weights, change);
      app.redraw();
    },
    turnTo: (step) => app.pair.other && app.pair.show(app.pair.other, step),
    hold: (moment) => {
      app.transport.toggle(false);
      app.ranks.hold(moment);
    },
    chooseRank: (rank, index) => app.ranks.choose(rank, index),
  };
}
