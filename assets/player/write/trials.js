// Runs the visitor's code in the engine's sandbox (assets/engine/sandbox.js), a frame that can
// reach neither this page nor the network. Nothing of the engine is fetched before the first trial.

import { pause } from "../parts/dom.js";
import { believed } from "./believed.js";

const SOON = 100; // ms between two looks for the snapshot; LOOKS: the most looks
const LOOKS = 50;

export class Trials {
  /**
   * engine: the address of the engine's files, from the page. model: the one that the tasks run on.
   * tab: returns the page's own engine. @param {{engine: string, model: string}} options
   * @param {() => import("../engine/browser_engine.js").BrowserEngine | null | undefined} tab
   */
  constructor({ engine, model }, tab) {
    this.engine = engine;
    this.model = model;
    this.tab = tab;
    /** @type {Foreign} */
    this._sandbox = null;
  }

  /** A trial's deltas; errors are sentences. @param {object} spec @param {AbortSignal} signal */
  async *run(spec, signal) {
    const sandbox = await this._made(signal);
    for await (const delta of sandbox.run("policy", spec, signal)) yield believed(delta);
  }

  /** Called when the tab is left: gives back the sandbox that waits for the next trial. */
  rest() {
    this._sandbox?.then(
      (/** @type {Json} */ sandbox) => sandbox.end(),
      () => {},
    );
  }

  _made(/** @type {AbortSignal | undefined} */ signal) {
    this._sandbox ??= (async () => {
      const base = new URL(this.engine, document.baseURI).href;
      const [{ Sandbox }, { Files }] = await Promise.all(
        ["sandbox.js", "loading.js"].map((name) => import(base + name)),
      ).catch(() => this._unreached(signal));
      await this._pictured(new Files(base), signal);
      return Sandbox.of(base, this.model);
    })();
    this._sandbox.catch(() => {
      /** @type {Foreign} */
      this._sandbox = null;
    });
    return this._sandbox;
  }

  /** Throws the reason, which the page's own engine knows. @returns {Promise<never>} */
  async _unreached(/** @type {AbortSignal | undefined} */ signal) {
    await this.tab()?.ready("", signal);
    throw new Error("The engine's files cannot be reached: try again, or load the page again.");
  }

  /**
   * A sandbox starts in a quarter of the time from a snapshot of the interpreter's memory, which
   * only the page's own engine may take: start that engine once, if a snapshot can be kept.
   */
  async _pictured(/** @type {Json} */ files, /** @type {AbortSignal | undefined} */ signal) {
    const tab = this.tab();
    await files.manifest(); // says whether this browser keeps anything
    if (!tab || !files.keeps || (await files.snapshot())) return;
    const isIdle = !tab.worker;
    const before = tab.requests;
    await tab.ready("", signal);
    for (let look = 0; look < LOOKS && !(await files.snapshot()); look += 1) await pause(SOON);
    if (isIdle && tab.requests === before + 1) tab.end(); // nobody else has asked it for anything
  }
}
