// Where something is computed, what a browser has room for, and what is left of a download.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Download } from "../../assets/engine/download.js";
import { DeviceField } from "../../assets/player/engine/device_field.js";
import { LoadingBar } from "../../assets/player/engine/loading_bar.js";
import { Engines } from "../../assets/player/engine/engines.js";
import { documentOf, El, Event } from "./elements.js";

Object.assign(globalThis, {
  document: documentOf(),
  self: { postMessage() {}, origin: "http://x" },
});
const stored = new Map();
globalThis.localStorage = /** @type {any} */ ({
  getItem: (key) => stored.get(key) ?? null,
  setItem: (key, text) => stored.set(key, text),
});
const browserIs = (said) =>
  Object.defineProperty(globalThis, "navigator", { value: said, configurable: true });
browserIs({});
const { roomFor } = await import("../../assets/engine/loading.js");
const { browserOf } = await import("../../assets/engine/worker.js");

const [tab, server] = /** @type {any[]} */ ([{ name: "tab" }, { name: "server" }]);
const models = ["small"];

test("where there is a server a run on a device that was named is the server's", () => {
  const fits = (engines, more) => engines.fits({ model: "small", ...more });
  const [both, alone] = [new Engines(tab, server, { models }), new Engines(tab, null, { models })];
  assert.ok(fits(both, { device: "auto" }) && fits(both, { dtype: "float32" }) && fits(both, {}));
  assert.ok(!fits(both, { device: "cpu" }) && !fits(both, { device: "cuda" }));
  assert.ok(fits(alone, { device: "cpu" }), "the tab is all that there is");
  for (const engines of [both, alone]) assert.ok(!fits(engines, { dtype: "bfloat16" }));
  assert.ok(!new Engines(null, server, { models }).fits({}));
  assert.equal(both.whose("run", { model: "small", device: "cuda" }), server);
});

test("below the choice of a device stands where it computes, and why the tab does not", () => {
  const said = (here, home, asked, chosen = null) => {
    const small = new El("small");
    const select = /** @type {any} */ (
      Object.assign(new El("select"), { parentElement: { querySelector: () => small } })
    );
    const engines = here || home ? new Engines(here, home, { models }) : null;
    new DeviceField(select, engines, () => asked);
    if (chosen) {
      select.value = chosen;
      select.dispatchEvent(new Event("change"));
    }
    return [select.children.map((option) => option.textContent).join(), small.textContent];
  };
  const here = "The engine runs in this tab: what you type stays on your machine.";
  const either = "your machine,the server,the server: CPU,the server: CUDA";
  assert.deepEqual(said(tab, server, { model: "small" }), [either, here]);
  assert.deepEqual(said(tab, server, { model: "small" }, "cpu"), [
    either,
    "Where it computes them.",
  ]);
  stored.clear();
  assert.deepEqual(said(tab, server, { model: "large" }), [
    "the server,the server: CPU,the server: CUDA",
    "This tab computes small in float32; the server does the rest.",
  ]);
  assert.deepEqual(said(tab, null, { model: "small" }), ["your machine", here]);
  assert.match(said(null, server, { model: "small" })[1], /need Pyodide/);
});

test("a browser is known by the name that it goes by", () => {
  const chrome =
    "Mozilla/5.0 (X11) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36";
  const safari =
    "Mozilla/5.0 (Macintosh) AppleWebKit/605 (KHTML, like Gecko) Version/26.1 Safari/605";
  assert.deepEqual(
    [
      chrome,
      `${chrome} Edg/141.0.0.0`,
      `${chrome} OPR/122.0`,
      "Gecko/2010 Firefox/145.0",
      safari,
      "curl",
    ].map(browserOf),
    ["Chromium 140", "Edge 141", "Opera 122", "Firefox 145", "Safari 26", "a browser"],
  );
  const webview = chrome.replace("Chrome", "Version/4.0 Chrome");
  assert.equal(browserOf(webview), "Chromium 140");
});

test("a model has room where a browser and its machine keep a GiB beside four times its size", () => {
  const fits = (bytes, deviceMemory) => {
    browserIs({ deviceMemory });
    try {
      return roomFor(bytes).buffer.byteLength >= bytes;
    } catch (error) {
      return error.message;
    }
  };
  const little = (mb) => `This browser has too little memory for the model: ${mb} MB.`;
  assert.equal(fits(1000, 1), little(1));
  assert.equal(fits(2 ** 24, 2), true);
  assert.equal(fits(2 ** 28 + 1, 2), little(269));
  assert.equal(fits(2 ** 24, undefined), true, "where it is not told");
  assert.equal(fits(1.75 * 2 ** 30 + 1, undefined), little(1880));
});

test("a large model has up to four threads, where the page may share memory, and else one", async () => {
  const threads = async (/** @type {number} */ cores, /** @type {boolean} */ isolated) => {
    browserIs({ hardwareConcurrency: cores });
    Object.assign(globalThis, { crossOriginIsolated: isolated });
    const { THREADS } = await import(`../../assets/engine/loading.js?${cores}${isolated}`);
    return THREADS;
  };
  assert.deepEqual([await threads(2, true), await threads(16, true)], [2, 4]);
  assert.equal(await threads(16, false), 1);
});

test("pieces of a file that has become shorter are dropped, and it is fetched whole the next time", async () => {
  const kept = new Map(
    [0, 4].map((from) => [`http://page.test/m?from=${from}`, new Uint8Array(4)]),
  );
  const cache = /** @type {any} */ ({
    keys: async () => [...kept.keys()].map((url) => ({ url })),
    match: async (url) => (kept.has(url) ? new Response(kept.get(url)) : undefined),
    delete: async (url) => kept.delete(url),
  });
  const asked = [];
  const answers = [416, 200];
  globalThis.fetch = /** @type {any} */ (
    async (_url, { headers }) => {
      asked.push(headers.Range ?? "all");
      return new Response("", { status: answers.shift() });
    }
  );
  kept.set("http://page.test/n?from=0", new Uint8Array(1)); // of another
  for (let n = 0; n < 2; n += 1) await new Download("http://page.test/m", 20, cache).begin();
  assert.deepEqual([asked, [...kept.keys()]], [["bytes=8-", "all"], ["http://page.test/n?from=0"]]);
});

test("a large model is offered with its size in millions of bytes, and what of it is here", async () => {
  const host = new El();
  globalThis.document = documentOf({ body: host, querySelectorAll: () => [] });
  const bar = new LoadingBar();
  const offered = async (about, presses) => {
    const answer = bar.offer("smollm2", about, undefined);
    const words = host.querySelector("p").textContent;
    host.querySelectorAll("button")[presses].click();
    return [words, await answer, host.children.length];
  };
  assert.deepEqual(await offered({ size: 2 ** 27, kept: true }, 0), [
    "To run here, smollm2 is fetched once: 134 MB.",
    true,
    0,
  ]);
  assert.deepEqual(await offered({ size: 9.9e7, arrived: 2.1e7, kept: false }, 1), [
    "To run here, smollm2 is fetched: 99 MB. 21 MB of it are here already.",
    false,
    0,
  ]);
  const [first, second] = ["a", "b"].map((name) => bar.offer(name, { size: 1e8 }, undefined));
  assert.equal(await first, false, "another is asked about");
  host.querySelector("button").click();
  assert.equal(await second, true);
});
