// In place of the engine's worker: answers what no engine answers. spec.way: how.
const ways = {
  well: (id) => postMessage({ kind: "delta", id, delta: { done: true, text: "<b>bold</b>" } }),
  flood: (id) => {
    for (let n = 0; n < 1e6; n += 1) postMessage({ kind: "delta", id, delta: { n } });
  },
  gigantic: (id) =>
    postMessage({ kind: "delta", id, delta: { done: true, text: "x".repeat(5e7) } }),
  endless: (id) => {
    for (;;) postMessage({ kind: "delta", id, delta: { text: "x".repeat(1e6) } });
  },
  word: () => postMessage("<img src=x onerror=alert(1)>"),
  list: (id) => postMessage({ kind: "delta", id, delta: [1] }),
  object: (id) => postMessage({ kind: "failed", id, sentence: { toString: 1 } }),
  other: (id) => postMessage({ kind: "answer", id, value: 1 }),
  thrown: () => {
    setTimeout(() => {
      throw new Error("<b>late</b>");
    });
  },
  busy: () => {
    for (;;);
  },
  gone: () => close(),
};

self.onmessage = ({ data: { id, do: what, spec } }) => {
  if (what === "load") postMessage({ kind: "ready", id });
  else ways[spec.way](id);
};
