// What the other parts of the page can read and do on Watch; they cannot reach its player
// otherwise.

import { focusView } from "./presenter.js";
import { NONE, UNLIT } from "./store.js";
import { viewActions } from "./view_state.js";

/**
 * What was on screen, for a part that takes Watch over and gives it back.
 * @typedef {{shown: Shown, step: number | null,
 * pin: string | undefined, tab: string, following: boolean, opened: Json}} Held
 */

/** @param {App} app */
export function pageActions(app) {
  const { store, speech, ranks, detail, options } = app;
  return {
    ...viewActions(app),
    root: app.root,
    engines: app.engines,

    /** Watch's state, see store.js. */
    get state() {
      return store.state;
    },
    get simple() {
      return detail.simple;
    },
    /** The moment in seconds on the ranks' clock, if all ranks are on screen. */
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

    open: app.open.bind(app),
    /** The entry of a recorded run in the catalogue, by its name. */
    recorded: (/** @type {string} */ name) =>
      options.catalogue.find((entry) => entry.name === name),
    openReplay: app.openReplay.bind(app),
    /**
     * Open a replay whose sentences are already in the page's language. @param {Replay} replay
     * @param {Wanted} wanted @param {Entry} entry
     */
    openTranslated(replay, wanted, entry) {
      app.openReplay(replay, wanted, entry);
      speech.opened = speech.language;
    },
    /** Open the run on screen again, at its step, to get its sentences in another language. */
    reopen() {
      const { entry, pinned, tab, following } = store.state;
      // a run that is still loading comes in that language
      if (app.fetching || !entry || !options.catalogue.includes(entry)) return;
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
    fetch: app.fetch.bind(app),
    /** Show what the address names. */
    follow: () => app.address.follow(),

    /**
     * What is on screen. A run that is still loading is dropped, because it was meant for Watch and
     * not for the part that takes over. @returns {Held}
     */
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
      // a run that has ended meanwhile has an entry among this visit's
      const kept = app.visit.runs.find(({ run }) => run === shown.run);
      speech.opened = held.opened;
      // the first step of another run may have come meanwhile
      store.set({ following: held.following && app.running && (!newest || newest === shown.run) });
      app.enter({ ...shown, entry: shown.entry || kept?.entry || null }, held);
    },
    /** Begin as the page does, with nothing on screen. */
    start() {
      store.set({ run: NONE });
      return app.start();
    },

    // -- steps that arrive -----------------------------------------------------------------------

    /** Take new steps from here; null: from the runs that Watch began. @param {Edge | null} edge */
    lead(edge) {
      store.set({ edge: edge || app.live, following: Boolean(edge || app.live.going) });
    },
    /** Keep what is on screen there, even though a run goes on. */
    stay: () => store.set({ following: false }),
    get running() {
      return app.running;
    },
    /** Show a run in progress, at its newest step. @param {Run} run */
    enter(run) {
      store.set({ following: true });
      app.enter({ run }, { step: run.stepOf(run.length - 1) });
    },
    /** Redraw, because the run on screen has more steps. */
    extended() {
      const { run, following } = store.state;
      if (following) store.set({ index: run.length - 1 });
      app.redraw();
    },
    /** Show the run with other steps kept; what still exists stays selected. @param {Run} run */
    renew(run) {
      const { state } = store;
      const pinned = (state.pinned && run.request(state.pinned.id)) || null;
      const index = state.following ? run.length - 1 : run.indexOf(state.run.stepOf(state.index));
      if (app.mask.zoom?.request) app.mask.zoom = pinned && { request: pinned };
      store.set({ ...UNLIT, run, index, pinned });
    },
    /** Show ranks in progress. */
    /** @type {App["ranks"]["renew"]} */
    showRanks: (...picture) => ranks.renew(...picture),
    leaveRanks() {
      ranks.leave();
      store.set({ run: NONE });
    },
    empty: app.empty.bind(app),

    // -- position and view -----------------------------------------------------------------------

    pause: () => app.transport.toggle(false),
    seekStep: app.seekStep.bind(app),
    /** Go to a lesson's next step with nothing selected; a neighbouring step moves. */
    turnToStep(/** @type {number} */ step) {
      const from = app.index;
      app.clear();
      app.seekStep(step);
      app.motion.went(from, app.index, true);
    },
    chooseTab: app.chooseTab.bind(app),
    focusView: (/** @type {string | null} */ view) => focusView(app, view),
    present: app.present.bind(app),
    enlarge: (/** @type {boolean} */ large) => store.set({ large }),
    sized: app.sized.bind(app),
    /** Show as much as a lesson needs; null: as much as the visitor has chosen. */
    /** @type {App["detail"]["need"]} */
    need: (how) => detail.need(how),
    turnDetail: () => detail.turn(),

    /** Draw another view with the others; the returned function removes it. */
    addView(/** @type {View} */ view) {
      app.views.push(view);
      return () => {
        app.views = app.views.filter((one) => one !== view);
      };
    },
    /** Open or close the form of requests. */
    /** @type {App["editor"]["toggle"]} */
    edit: (on) => app.editor.toggle(on),
    /** The spec in the form; see `Editor.said`. */
    edited: () => app.editor.said(),
    toast: app.toast.bind(app),
    missing: app.missing.bind(app),
    absent: app.absent.bind(app),
  };
}
