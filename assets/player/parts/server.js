// The page's server, at relative addresses: calls (POST inflight/call/<name>), and jobs (POST
// inflight/jobs, then the event stream of inflight/jobs/<id>).

import { pause } from "./dom.js";

const PATIENCE = 2000; // ms to wait for an answer of the page around a Space
// ms before each attempt to resume a broken stream; the server keeps a job about as long
const AGAIN = [300, 1000, 2000, 4000];

export class Server {
  constructor(base = "") {
    this.base = base;
  }

  /**
   * Post data to an address of the server and return the answer; throws the server's sentence.
   * @param {string} path @param {Json} data @param {AbortSignal | undefined} signal
   */
  post(path, data, headers = {}, signal = undefined) {
    const type = { "Content-Type": "application/json" };
    return this._post(path, JSON.stringify(data), { ...type, ...headers }, signal);
  }

  /** Send the text of a file that is to be opened, unchanged. */
  send(/** @type {string} */ path, /** @type {string} */ text) {
    return this._post(path, text, { "Content-Type": "text/plain" });
  }

  /**
   * @param {string} path @param {Json} body @param {Json} more
   * @param {AbortSignal | undefined} signal
   */
  async _post(path, body, more, signal = undefined) {
    const headers = { ...more, ...(await visitor()) };
    return (await fetched(this.base + path, { method: "POST", headers, body, signal })).json();
  }

  /** The messages of an event stream: {id, data}. */
  async *_messages(/** @type {string} */ path, /** @type {AbortSignal | undefined} */ signal) {
    const body = /** @type {ReadableStream} */ ((await fetched(this.base + path, { signal })).body);
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      rest += value || "";
      const messages = rest.split("\n\n");
      rest = messages.pop() || "";
      for (const message of messages) {
        const data = message
          .split("\n")
          .filter((l) => l.startsWith("data:"))
          .map((l) => l.slice(5).trimStart())
          .join("\n");
        yield { id: /^id: *(\d+)$/m.exec(message)?.[1], data };
      }
      if (done) return;
    }
  }

  /** Fetch an address of the server; throws the server's sentence. */
  fetched(/** @type {string} */ path, headers = {}) {
    return fetched(this.base + path, { headers });
  }

  async get(/** @type {string} */ path, headers = {}) {
    return (await this.fetched(path, headers)).json();
  }

  /** The answer to a call (visualizer/jobs/calls.py); a refusal is {error}. */
  async call(/** @type {string} */ name, /** @type {Json[]} */ ...args) {
    try {
      return await this.post(`inflight/call/${name}`, { args });
    } catch (/** @type {Foreign} */ error) {
      if (error instanceof Refusal) return { error: error.message };
      throw error;
    }
  }

  /**
   * Request a job of a kind (visualizer/jobs); returns its id. Throws the server's sentence.
   * @param {string} kind @param {Json} spec @param {string} who
   * @param {AbortSignal | undefined} signal
   */
  async begin(kind, spec, who, signal = undefined) {
    const asked = { kind, spec, visitor: who };
    const { job, error } = await this.post("inflight/jobs", asked, {}, signal);
    if (error) throw new Error(error);
    return job;
  }

  /** The deltas of a job from the first to the last. */
  follow(/** @type {Json} */ job, /** @type {AbortSignal | undefined} */ signal = undefined) {
    return this.deltas(`inflight/jobs/${job}`, { signal, from: 0 });
  }

  /**
   * The deltas at an address, each exactly once, to the last; a broken connection is resumed. from:
   * the number of the first delta wanted; null leaves it to the server. broke: called at each
   * break; without it, retries are limited. reached: called with the number of the next delta.
   * @param {string} path
   * @param {{signal?: AbortSignal, from?: number | null, broke?: (sentence: string) => void,
   * reached?: (next: number | null) => void}} options
   */
  async *deltas(path, { signal, from = null, broke, reached }) {
    let next = from;
    for (let broken = 0; ; broken += 1) {
      try {
        const place = next === null ? "" : `${path.includes("?") ? "&" : "?"}from=${next}`;
        for await (const { id, data } of this._messages(path + place, signal)) {
          if (!data) continue;
          if (id) next = Number(id) + 1;
          broken = 0;
          for (const delta of JSON.parse(data)) {
            yield delta;
            if (delta.done) return;
          }
          reached?.(next);
        }
        broke?.("The server went away.");
      } catch (/** @type {Foreign} */ error) {
        if (
          error.name === "AbortError" ||
          (!broke && (error instanceof Refusal || broken >= AGAIN.length))
        )
          throw error;
        broke?.(error instanceof Refusal ? error.message : "The server cannot be reached.");
      }
      if (!broke && broken >= AGAIN.length) throw new Error("the server went away");
      await pause(AGAIN[Math.min(broken, AGAIN.length - 1)], signal);
    }
  }

  /** The deltas of one connection. */
  async *once(/** @type {string} */ path, /** @type {AbortSignal | undefined} */ signal) {
    for await (const { data } of this._messages(path, signal)) if (data) yield* JSON.parse(data);
  }

  async cancel(/** @type {Json} */ job) {
    return this.post(`inflight/jobs/${job}/cancel`, {});
  }
}

/** A refusal by the server. status: of HTTP; retryAfter: seconds until another try, or null. */
export class Refusal extends Error {
  /** @param {string} sentence @param {number} status @param {number | null} retryAfter */
  constructor(sentence, status, retryAfter = null) {
    super(sentence);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function refusal(/** @type {Json} */ answer) {
  const said = await answer.json().catch(() => null);
  // our own format, or OpenAI's
  const sentence = said && (typeof said.error === "string" ? said.error : said.error?.message);
  return new Refusal(
    sentence || `the server answered ${answer.status}`,
    answer.status,
    Number(answer.headers.get("retry-after")) || null,
  );
}

/** On a ZeroGPU Space a run uses its visitor's quota: headers of the surrounding page say whose. */
async function visitor() {
  if (window.parent === window || !window.supports_zerogpu_headers) return {};
  const { port1, port2 } = new MessageChannel();
  const answer = new Promise((resolve) => {
    port1.onmessage = ({ data }) => resolve(data || {});
    setTimeout(resolve, PATIENCE, {});
  });
  window.parent.postMessage("zerogpu-headers", "https://huggingface.co", [port2]);
  return answer.finally(() => port1.close());
}

/** Data that the page brings along for an address (assets/site/runs.js), if any. */
const brought = (/** @type {string} */ url) => window.inflightEarly && window.inflightEarly[url];

async function fetched(/** @type {string} */ url, options = {}) {
  const answer = await fetch(url, options).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("The server cannot be reached.");
  });
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

/** The address of a recorded comparison, from its entry or the server; throws its sentence. */
export async function comparisonUrl(/** @type {Json} */ server, /** @type {Json} */ { name, url }) {
  if (url) return url;
  const answer = await server.call("open_comparison", name);
  if (answer.error) throw new Error(answer.error);
  return answer.url;
}

export async function fetchJson(/** @type {string} */ url) {
  return (await brought(url)) || (await fetched(url)).json();
}

/** @type {Map<string, Promise<Json>>} */
const documents = new Map();

/** The JSON at an address, fetched only once per page. @param {string} url */
export function fetchOnce(url) {
  const found = documents.get(url) || fetchJson(url);
  documents.set(url, found);
  found.catch(() => documents.delete(url));
  return found;
}

/** The bytes at an address; a page may contain them in base64. */
export async function fetchBytes(/** @type {string} */ url) {
  const text = await brought(url);
  return text
    ? Uint8Array.from(atob(text), (c) => c.charCodeAt(0))
    : new Uint8Array(await (await fetched(url)).arrayBuffer());
}
