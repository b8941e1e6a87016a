// One's own requests: asked, followed, cancelled. They stay in the session, so that a page that was loaded again finds them. Knows no DOM.

const KEPT = "inflight-live-requests"; // in the session's storage
const MOST = 20;

/** @typedef {{key: string, id: string, prompt: string, text: string, ended: any, seed?: number, lost?: string}} Own */

export class Mine {
  /**
   * @param {import("../parts/server.js").Server} server
   * @param {() => void} changed
   */
  constructor(server, changed) {
    this.server = server;
    this.changed = changed;
    /** @type {Own[]} newest first */
    this.requests = remembered().map(({ key, id, prompt }) => ({ key, id, prompt, text: "", ended: null }));
    for (const own of this.requests) this._follow(own);
  }

  has(id) {
    return this.requests.some((own) => own.id === id);
  }

  /** Ask; throws the server's sentence. */
  async ask({ prompt, tokens, nickname }) {
    const key = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
    const seed = crypto.getRandomValues(new Uint32Array(1))[0] % 2 ** 31;
    const asked = { key, prompt, nickname: nickname || null, max_new_tokens: tokens, temperature: 0.8, seed };
    const { id } = await this.server.post("inflight/live/requests", asked);
    const own = { key, id, prompt, seed, text: "", ended: null };
    this.requests = [own, ...this.requests].slice(0, MOST);
    this._remember();
    this._follow(own);
    return own;
  }

  cancel(own) {
    return this.server.post(`inflight/live/requests/${own.key}/cancel`, {});
  }

  forget(own) {
    this.requests = this.requests.filter((other) => other !== own);
    this._remember();
  }

  async _follow(own) {
    this.changed();
    try {
      for await (const delta of this.server.deltas(`inflight/live/requests/${own.key}`, { from: 0 })) {
        if (delta.text) own.text += delta.text;
        if (delta.done) own.ended = delta;
        this.changed();
      }
    } catch (error) {
      own.lost = error.message;
      this.changed();
    }
  }

  _remember() {
    try {
      sessionStorage.setItem(KEPT, JSON.stringify(this.requests.map(({ key, id, prompt }) => ({ key, id, prompt }))));
    } catch {
      // storage may be switched off, or full: they are then not found again
    }
  }
}

/** @returns {{key: string, id: string, prompt: string}[]} */
function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT)) || [];
  } catch {
    return [];
  }
}
