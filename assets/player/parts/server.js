// The engine behind the page, over Gradio's plain HTTP: POST gradio_api/call/<name>, then its event stream. Relative addresses.

const PATIENCE = 2000; // ms for the page around a Space to answer

export class Server {
  constructor(base = "") {
    this.base = base;
  }

  async _begin(name, args, signal) {
    const answer = await fetch(`${this.base}gradio_api/call/${name}`, {
      method: "POST", headers: { "Content-Type": "application/json", ...(await visitor()) }, body: JSON.stringify({ data: args }), signal,
    });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    return (await answer.json()).event_id;
  }

  /** Every value that the function yields. */
  async *stream(name, args = [], signal = undefined) {
    const id = await this._begin(name, args, signal);
    const answer = await fetch(`${this.base}gradio_api/call/${name}/${id}`, { signal });
    if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      rest += value || "";
      const messages = rest.split("\n\n");
      rest = messages.pop();
      for (const message of messages) {
        const event = /^event: *(.*)$/m.exec(message)?.[1];
        const data = message.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart()).join("\n");
        if (event === "error") throw new Error(errorOf(data));
        if ((event === "generating" || event === "complete") && data && data !== "null") yield { last: event === "complete", value: JSON.parse(data)[0] };
      }
      if (done) return;
    }
  }

  async call(name, ...args) {
    let result;
    for await (const { value } of this.stream(name, args)) result = value;
    return result;
  }
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
  if (!answer.ok) throw new Error(`status ${answer.status}`);
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
