// The engine behind the page, by relative addresses: short questions over Gradio's plain HTTP (POST gradio_api/call/<name>, then its event
// stream), jobs over the server's own (POST inflight/jobs, then inflight/jobs/<id>).

const PATIENCE = 2000; // ms for the page around a Space to answer
const AGAIN = [300, 1000, 2000, 4000]; // ms before a stream that broke is taken up again; the server keeps a job about as long

export class Server {
  constructor(base = "") {
    this.base = base;
  }

  async _begin(name, args, signal) {
    const answer = await this._post(`gradio_api/call/${name}`, { data: args }, signal);
    return answer.event_id;
  }

  async _post(path, body, signal = undefined) {
    const answer = await fetch(this.base + path, {
      method: "POST", headers: { "Content-Type": "application/json", ...(await visitor()) }, body: JSON.stringify(body), signal,
    });
    if (!answer.ok) throw await refusal(answer);
    return answer.json();
  }

  /** The messages of an event stream: {event, data}. */
  async *_messages(path, signal) {
    const answer = await fetch(this.base + path, { signal });
    if (!answer.ok) throw await refusal(answer);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      rest += value || "";
      const messages = rest.split("\n\n");
      rest = messages.pop();
      for (const message of messages) {
        const data = message.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
        yield { event: /^event: *(.*)$/m.exec(message)?.[1], data };
      }
      if (done) return;
    }
  }

  async call(name, ...args) {
    const id = await this._begin(name, args);
    let result;
    for await (const { event, data } of this._messages(`gradio_api/call/${name}/${id}`)) {
      if (event === "error") throw new Error(errorOf(data));
      if (event === "complete" && data && data !== "null") [result] = JSON.parse(data);
    }
    return result;
  }

  /** Ask for a job; its id. kind: run, leak, compare, equivalence or fork. Throws the server's sentence. */
  async begin(kind, spec, who, signal = undefined) {
    const { job, error } = await this._post("inflight/jobs", { kind, spec, visitor: who }, signal);
    if (error) throw new Error(error);
    return job;
  }

  /** The deltas of a job from its first on, none lost and none twice, until its last; a connection that breaks is taken up again. */
  async *follow(job, signal = undefined) {
    let next = 0;
    for (let broken = 0; ; broken += 1) {
      try {
        for await (const { data } of this._messages(`inflight/jobs/${job}?from=${next}`, signal)) {
          if (!data) continue;
          const delta = JSON.parse(data);
          next = delta.seq + 1;
          broken = 0;
          yield delta;
          if (delta.done) return;
        }
      } catch (error) {
        if (error.name === "AbortError" || error instanceof Refusal || broken >= AGAIN.length) throw error;
      }
      if (broken >= AGAIN.length) throw new Error("the server went away");
      await new Promise((resolve) => { setTimeout(resolve, AGAIN[broken]); });
    }
  }

  /** Do a job; its last delta. onprogress(progress, cancel). Throws the server's sentence. */
  async ask(kind, spec, who, onprogress) {
    const job = await this.begin(kind, spec, who);
    let last = {};
    for await (const delta of this.follow(job)) {
      last = delta;
      if (!delta.done && delta.progress) onprogress(delta.progress, () => this.cancel(job).catch(() => {}));
    }
    if (last.error || last.stopped) throw new Error(last.error || last.stopped);
    return last;
  }

  async cancel(job) {
    return this._post(`inflight/jobs/${job}/cancel`, {});
  }
}

/** What the server says it will not do. */
export class Refusal extends Error {}

async function refusal(answer) {
  let sentence;
  try {
    sentence = (await answer.json()).error;
  } catch {
    sentence = null;
  }
  return new Refusal(sentence || `the server answered ${answer.status}`);
}

/** On a ZeroGPU Space a run is paid for by its visitor's quota: the page around the Space knows in which headers, as Gradio's own client asks it. */
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

function errorOf(data) {
  try {
    const parsed = JSON.parse(data);
    return (parsed && (parsed.error || parsed.message)) || "the server gave no reason";
  } catch {
    return "the server gave no reason";
  }
}

/** What the page has brought along (assets/site/runs.js) under an address, if it has. */
const brought = (url) => window.inflightEarly && window.inflightEarly[url];

async function fetched(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

/** JSON by its address. */
export async function fetchJson(url) {
  return (await brought(url)) || (await fetched(url)).json();
}

/** A file by its address; the page brings it along in base64. */
export async function fetchBytes(url) {
  const text = await brought(url);
  return text ? Uint8Array.from(atob(text), (c) => c.charCodeAt(0)) : new Uint8Array(await (await fetched(url)).arrayBuffer());
}
