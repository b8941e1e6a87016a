// Runs what a visitor wrote: in the engine's sandbox (assets/engine/sandbox.js), a frame that can reach neither this page nor the network. Nothing
// of it is fetched before the first trial.

export class Trials {
  /** engine: the address of the engine's files, from the page. model: that the tasks run on. @param {{engine: string, model: string}} options */
  constructor({ engine, model }) {
    this.engine = engine;
    this.model = model;
    this._sandbox = null;
  }

  /** The deltas of a trial; {loading} while files are fetched. Throws a sentence. @param {object} spec @param {AbortSignal} signal */
  async *run(spec, signal) {
    const sandbox = await this._made();
    yield* sandbox.run("policy", spec, signal);
  }

  /** The part is left: what waits for the next trial is given back. */
  rest() {
    this._sandbox?.then((sandbox) => sandbox.end(), () => {});
  }

  _made() {
    this._sandbox ??= (async () => {
      const base = new URL(this.engine, document.baseURI).href;
      const { Sandbox } = await import(`${base}sandbox.js`);
      return Sandbox.of(base, this.model);
    })();
    this._sandbox.catch(() => { this._sandbox = null; });
    return this._sandbox;
  }
}
