// One's own requests: asked, followed, cancelled. They stay in the session, so that a page that was loaded again finds them. Knows no DOM.

import { keep, keptData } from "../parts/kept.js";

const KEPT = "inflight-live-requests"; // in the session's storage
const MOST = 20;
const AGAIN = 1000; // ms before a stream that broke is taken up again

/** @typedef {{key: string, id: string, prompt: string, text: string, next: number, ended: any, seed?: number, lost?: string}} Own */

export class Mine {
  /**
   * @param {import("../parts/server.js").Server} server
   * @param {() => void} changed
   */
  constructor(server, changed) {
    this.server = server;
    this.changed = changed;
    /** @type {AbortController | null} */
    this._stop = null;
    /** @type {Own[]} newest first */
    this.requests = (keptData("visit", KEPT) || []).map(({ key, id, prompt }) => ({ key, id, prompt, text: "", next: 0, ended: null }));
    this._follow();
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
    const own = { key, id, prompt, seed, text: "", next: 0, ended: null };
    this.requests = [own, ...this.requests].slice(0, MOST);
    this._remember();
    this._follow();
    return own;
  }

  cancel(own) {
    return this.server.post(`inflight/live/requests/${own.key}/cancel`, {});
  }

  forget(own) {
    this.requests = this.requests.filter((other) => other !== own);
    this._remember();
  }

  /** All that are under way, in one stream: a browser has few connections. */
  async _follow() {
    this.changed();
    this._stop?.abort();
    const stop = this._stop = new AbortController();
    for (;;) {
      const open = this.requests.filter((own) => !own.ended && !own.lost);
      if (!open.length) return;
      try {
        const places = open.map((own) => `${own.key}:${own.next}`).join(",");
        for await (const delta of this.server.once(`inflight/live/requests?places=${places}`, stop.signal)) this._take(delta);
      } catch (error) {
        if (error.name === "AbortError") return;
      }
      await new Promise((resolve) => { setTimeout(resolve, AGAIN); });
      if (stop.signal.aborted) return;
    }
  }

  _take({ of, last, messages = [], gone }) {
    const own = this.requests.find(({ key }) => key === of);
    if (!own) return;
    if (gone) own.lost = "no longer on the server, which may have been restarted";
    else own.next = last + 1;
    for (const { text, ended } of messages) {
      own.text += text || "";
      own.ended = ended || own.ended;
    }
    this.changed();
  }

  _remember() {
    keep("visit", KEPT, JSON.stringify(this.requests.map(({ key, id, prompt }) => ({ key, id, prompt }))));
  }
}
