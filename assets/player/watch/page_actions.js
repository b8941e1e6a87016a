// What the other parts of the page can see of Watch and ask of it: nothing else reaches its player.

import { focusView } from "./presenter.js";
import { NONE, UNLIT } from "./store.js";
import { viewActions } from "./view_state.js";

/**
 * What was on screen, for whoever takes Watch over and gives it back.
 * @typedef {{shown: Shown, step: number | null,
 *   pin: string | undefined, tab: string, following: boolean, opened: Json}} Held
 */

/** @param {App} app */
export function pageActions(app) {
  const { store, speech, ranks, detail, options } = app;
  return {
    ...viewActions(app),
    root: app.root,
    engines: app.engines,

    /** What it shows. */
    get state() {
      return store.state;
    },
    get simple() {
      return detail.simple;
    },
    /** The run on screen is all ranks: the moment in seconds on their clock. */
    get moment() {
      return ranks.now;
    },
    /** Whether the run on screen has its sentences in the page's language. */
    get isTranslated() {
      return speech.opened === speech.language;
    },
    get step() {
      const { run, index } = store.state;
      return run?.length ? run.stepOf(index) : null;
    },

    // -- opening a run ---------------------------------------------------------------------------

    open: (entry, wanted) => app.open(entry, wanted),
    /** A recorded run of the catalogue, by its name. */
    recorded: (name) => options.catalogue.find((entry) => entry.name === name),
    openReplay: (replay, wanted, entry) => app.openReplay(replay, wanted, entry),
    /** The same of a replay whose sentences are in the page's language. */
    openTranslated(replay, wanted, entry) {
      app.openReplay(replay, wanted, entry);
      speech.opened = speech.language;
    },
    /** Open the run on screen again, at its step, for its sentences in another language. */
    reopen() {
      const { entry, pinned, tab, following } = store.state;
      // what is on its way comes in that language
      if (app.fetching || !options.catalogue.includes(entry)) return;
      app.open(entry, {
        ...app.address.read(),
        following,
        step: this.step,
        pin: pinned?.letter,
        tab,
        view: null,
        ...ranks.place,
      });
    },
    fetch: (url) => app.fetch(url),
    /** Show what the address names. */
    follow: () => app.address.follow(),

    /** What is on its way is for Watch, and not for who takes it over. @returns {Held} */
    held() {
      app.fetching = null;
      const { run, entry, replay, pinned, tab, following } = store.state;
      const { opened } = speech;
      const shown = { run, entry, replay };
      return { shown, step: this.step, pin: pinned?.letter, tab, following, opened };
    },
    /** @param {Held} held */
    restore(held) {
      const { shown } = held;
      const { run: newest } = app.live;
      // it may have ended meanwhile, and is kept since then
      const kept = app.visit.runs.find(({ run }) => run === shown.run);
      speech.opened = held.opened;
      // the first step of another run may have come unseen
      store.set({ following: held.following && app.running && (!newest || newest === shown.run) });
      app.enter({ ...shown, entry: shown.entry || kept?.entry || null }, held);
    },
    /** Begin as the page does, with nothing on screen. */
    start() {
      store.set({ run: NONE });
      return app.start();
    },

    // -- steps that arrive -----------------------------------------------------------------------

    /** New steps come from here; null: from the runs that Watch makes. @param {Edge | null} edge */
    lead(edge) {
      store.set({ edge: edge || app.live, following: Boolean(edge || app.live.going) });
    },
    /** What is on screen stays there, though a run goes on. */
    stay: () => store.set({ following: false }),
    get running() {
      return app.running;
    },
    /** Put a run in progress on screen, at its newest step. @param {Run} run */
    enter(run) {
      store.set({ following: true });
      app.enter({ run }, { step: run.stepOf(run.length - 1) });
    },
    /** The run on screen has more steps. */
    extended() {
      const { run, following } = store.state;
      if (following) store.set({ index: run.length - 1 });
      app.redraw();
    },
    /**
     * The same run with other steps kept: position and highlight stay, if they still exist.
     * @param {Run} run
     */
    renew(run) {
      const { state } = store;
      const pinned = (state.pinned && run.request(state.pinned.id)) || null;
      const index = state.following ? run.length - 1 : run.indexOf(state.run.stepOf(state.index));
      if (app.mask.zoom?.request) app.mask.zoom = pinned && { request: pinned };
      store.set({ ...UNLIT, run, index, pinned });
    },
    /** Put ranks in progress on screen. */
    showRanks: (picture, alone) => ranks.renew(picture, alone),
    leaveRanks() {
      ranks.leave();
      store.set({ run: NONE });
    },
    empty: (sentence) => app.empty(sentence),

    // -- where it is -----------------------------------------------------------------------------

    pause: () => app.transport.toggle(false),
    seekStep: (step) => app.seekStep(step),
    /** The step that a lesson shows next, with nothing selected: one that is near moves. */
    turnToStep(step) {
      const from = app.index;
      app.clear();
      app.seekStep(step);
      app.motion.went(from, app.index, true);
    },
    chooseTab: (tab) => app.chooseTab(tab),
    focusView: (view) => focusView(app, view),
    present: (on) => app.present(on),
    enlarge: (large) => store.set({ large }),
    sized: () => app.sized(),
    /** How much is shown, while a lesson needs it; null: as the visitor has it. */
    need: (how) => detail.need(how),
    turnDetail: () => detail.turn(),

    /** Draw another view with the others; call the result to take it away. */
    addView(view) {
      app.views.push(view);
      return () => {
        app.views = app.views.filter((one) => one !== view);
      };
    },
    /** Open the form of requests, or close it. */
    edit: (on) => app.editor.toggle(on),
    /** The requests in the form, or null where they cannot be run; see `Editor.said`. */
    edited: () => app.editor.said(),
    toast: (sentence, ms, action) => app.toast(sentence, ms, action),
    missing: (run) => app.missing(run),
    absent: (part) => app.absent(part),
  };
}
