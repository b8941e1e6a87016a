// What Watch shows: one state that only `set` changes, which then notifies listeners.

/**
 * @typedef {object} WatchState
 * @property {Run} run on screen; null before the first one, so code that runs earlier must check
 * @property {Entry | null} entry the run's entry in the catalogue, or what else is known of its origin
 * @property {Json} replay its document, as fetched
 * @property {number} index of the step on screen
 * @property {number} pass of the step; Infinity: the last one
 * @property {RunRequest | null} pinned the selected request
 * @property {RunRequest | null} hovered the request under the pointer
 * @property {RunRequest[] | null} lit what the pointer highlights, if more than one request
 * @property {Focus} focus the highlighted requests; follows from the three above
 * @property {Hot | null} hot the token under the pointer
 * @property {boolean} following whether the newest step is always shown
 * @property {Edge | null} edge where new steps come from
 * @property {string} tab which of the views is shown that share their place on a small screen
 * @property {"desk" | "tablet" | "phone"} layout
 * @property {boolean} narrow a tablet too narrow for all buttons
 * @property {"simple" | "full"} detail
 * @property {boolean} clock whether the lanes' axis is measured seconds instead of steps
 * @property {boolean} presenter
 * @property {boolean} large type for a projector, beside a lesson
 * @property {"dark" | "light" | null} chosenTheme by the visitor or the address
 * @property {boolean | undefined} chosenAxis `clock`, if the visitor or the address chose it
 * @property {Palette} palette
 */

/** @typedef {(changed: Set<keyof WatchState>) => void} Listener */

/** Nothing is highlighted, as in a run that has just been put on screen. */
export const UNLIT = Object.freeze({ pinned: null, hovered: null, lit: null, hot: null });

/** @type {Omit<WatchState, "palette" | "run">} */
const BEGINNING = {
  ...UNLIT,
  focus: null,
  entry: null,
  replay: null,
  index: 0,
  pass: Infinity,
  following: false,
  edge: null,
  tab: "mask",
  layout: "desk",
  narrow: false,
  detail: "simple",
  clock: false,
  presenter: false,
  large: false,
  chosenTheme: null,
  chosenAxis: undefined,
};

/** Stands for a run before the first one is on screen. */
export const NONE = /** @type {Run} */ (/** @type {unknown} */ (null));

export class Store {
  /** @param {Palette} palette */
  constructor(palette) {
    /** @type {Readonly<WatchState>} */
    this.state = Object.freeze({ ...BEGINNING, palette, run: NONE });
    /** @type {Set<Listener>} */
    this._listeners = new Set();
  }

  /** Call `act` after each change with the names of the changed fields. @param {Listener} act */
  listen(act) {
    this._listeners.add(act);
  }

  /** Change the state. @param {Partial<Omit<WatchState, "focus">>} patch */
  set(patch) {
    const names = /** @type {(keyof typeof patch)[]} */ (Object.keys(patch));
    const changed = new Set(names.filter((name) => patch[name] !== this.state[name]));
    if (!changed.size) return;
    const { pinned, hovered, lit } = { ...this.state, ...patch };
    const isLit = changed.has("pinned") || changed.has("hovered") || changed.has("lit");
    const one = hovered || pinned;
    const focus = isLit ? lit || (one && [one]) : this.state.focus;
    this.state = Object.freeze({ ...this.state, ...patch, focus });
    for (const act of this._listeners) act(changed);
  }
}
