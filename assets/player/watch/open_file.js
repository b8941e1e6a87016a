// Opens runs from elsewhere, and models to run: a file of this machine, an address that the page's own address names
// (?trace=URL or #trace=URL), or a recorded comparison. A replay is opened here; a trace or another
// engine's recording is read by the engine in the tab, or by the server in a separate process. The
// browser fetches an address, never the server: so only what the visitor can reach is fetched, without
// cookies, and another site hands out a file only if it allows that (CORS). Only this page's origin
// and the hosts that it was started with are contacted; the page's policy (CSP) enforces the same.

import { isOurs } from "../engine/engines.js";
import { jsonIn } from "../parts/dom.js";
import { isFile } from "../parts/model_field.js";
import { comparisonUrl } from "../parts/server.js";
import { runOf } from "../parts/speech.js";
import { isOnWatch } from "./layout.js";

const MOST = 32 * 2 ** 20; // bytes, unless the server gives another limit
const WHAT = {
  file: "The file",
  address: "The run at this address",
  comparison: "This run of a comparison",
};

/** Open a file that the visitor chooses, or several: the ranks of one engine. */
export function openFile(/** @type {App} */ app) {
  const input = document.createElement("input");
  input.type = "file";
  input.multiple = true;
  input.accept = ".jsonl,.json,.gz,.gguf,application/json,application/gzip";
  input.addEventListener("change", () => openFiles(app, input.files));
  input.click();
}

export function openDropped(/** @type {App} */ app) {
  const takes = (/** @type {DragEvent} */ e) =>
    e.dataTransfer?.types.includes("Files") && isOnWatch();
  app.root.addEventListener("dragover", (e) => takes(e) && e.preventDefault());
  app.root.addEventListener("drop", (e) => {
    if (!takes(e)) return;
    e.preventDefault();
    openFiles(app, e.dataTransfer?.files);
  });
}

function openFiles(/** @type {App} */ app, /** @type {Json} */ chosen) {
  if (!chosen?.length) return;
  if (app.engines?.tab && chosen.length === 1 && isFile(chosen[0].name))
    return app.editor.openModel(chosen[0]);
  return tried(app, "file", async () => {
    const files = [];
    for (const file of chosen) {
      const text = textOf(app, file.stream()).catch((/** @type {Foreign} */ error) => {
        // a browser's own error, which names a network
        if (error.constructor === Error) throw error;
        throw new Error("it is a folder, or can no longer be read.");
      });
      files.push([file.name, await text]);
    }
    return read(app, files, {});
  });
}

/**
 * Open the run at an address, or ranks at several, at a step. Resolves to whether it succeeded.
 * @param {App} app @param {Json} addresses
 */
export async function openAddress(app, addresses, wanted = {}) {
  return tried(app, "address", async () => {
    const urls = addresses.map((/** @type {string} */ address) => allowed(app, address));
    const files = await Promise.all(
      urls.map(async (/** @type {URL} */ url) => [
        url.pathname.split("/").at(-1),
        await textAt(app, url),
      ]),
    );
    return read(app, files, { trace: addresses.length > 1 ? addresses : addresses[0] }, wanted);
  });
}

/** Open a contender's run of a recorded comparison, by both names. Resolves to whether it could. */
export async function openRacer(
  /** @type {App} */ app,
  /** @type {Json} */ { comparison, racer, ...wanted },
) {
  return tried(app, "comparison", async () => {
    const doc = await comparisonOf(app, comparison);
    if (!doc.runs[racer]) throw new Error(`nobody in it is called ${racer}.`);
    const entry = { name: null, title: `${doc.title}: ${racer}`, comparison, racer };
    return () => app.openReplay(runOf(doc, racer), wanted, entry);
  });
}

/** The document of a recorded comparison, by its name. */
export async function comparisonOf(/** @type {App} */ app, /** @type {Json} */ comparison) {
  const entry =
    (app.options.comparisons || []).find((e) => e.name === comparison) ||
    (app.engines?.can("open_comparison") && { name: comparison });
  if (!entry) throw new Error(`there is no comparison ${comparison} here.`);
  return app.fetch(await comparisonUrl(app.engines, entry));
}

async function textAt(/** @type {App} */ app, /** @type {URL} */ url) {
  let answer;
  try {
    answer = await fetch(url, {
      credentials: url.origin === location.origin ? "same-origin" : "omit",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw new Error(`${url.host} did not answer, or does not let other pages read it (CORS).`);
  }
  if (!answer.ok) throw new Error(`${url.host} answered ${answer.status}.`);
  allowed(app, answer.url); // a redirect must be allowed, too
  return textOf(app, answer.body);
}

/**
 * Show what `find` finds, unless another run was requested meanwhile. False if there is nothing to
 * show. @param {App} app @param {keyof typeof WHAT} what @param {() => Promise<() => unknown>} find
 */
async function tried(app, what, find) {
  const mine = (app.fetching = {});
  try {
    const show = await find();
    if (app.fetching === mine) await show();
    return true;
  } catch (/** @type {Foreign} */ error) {
    app.toast(`${WHAT[what]} could not be opened: ${error.message}`, 8000);
    return false;
  } finally {
    if (app.fetching === mine) app.fetching = null;
  }
}

function allowed(/** @type {App} */ app, /** @type {string} */ address) {
  let url;
  try {
    url = new URL(address, location.href);
  } catch {
    throw new Error("it is no address.");
  }
  if (location.protocol === "file:")
    throw new Error("a page that was opened from disk may fetch nothing.");
  const hosts = app.options.traceHosts || [];
  const others = hosts.length ? ` and of ${hosts.join(", ")}` : "";
  if (url.origin !== location.origin && !hosts.includes(url.origin))
    throw new Error(`this page opens runs of its own address${others}, and of no other.`);
  return url;
}

/** The text of a stream, decompressed if needed; throws if it is larger than the limit. */
async function textOf(/** @type {App} */ app, /** @type {Json} */ stream) {
  const most = app.options.uploadBytes || MOST;
  const bytes = await bytesOf(stream, most);
  if (bytes[0] !== 0x1f || bytes[1] !== 0x8b) return new TextDecoder().decode(bytes);
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  try {
    return new TextDecoder().decode(await bytesOf(unpacked, most));
  } catch (/** @type {Foreign} */ error) {
    throw error instanceof TypeError ? new Error("it is packed, and breaks off.") : error;
  }
}

/** The content of a stream; throws if it is larger than the limit. */
export async function bytesOf(/** @type {Json} */ stream, /** @type {number} */ most) {
  const chunks = [];
  let size = 0;
  for (const reader = stream.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) return new Uint8Array(await new Blob(chunks).arrayBuffer());
    size += value.length;
    if (size > most) {
      reader.cancel().catch(() => {});
      const limit = `${Math.round(most / 2 ** 20)} MiB`;
      throw new Error(`it has more than ${limit}, and this page opens no larger one.`);
    }
    chunks.push(value);
  }
}

/**
 * A function that shows the run in some files. files: [name, text] of each; several are the ranks
 * of one engine. entry: what the address says of the run. @returns {Promise<() => unknown>}
 * @param {App} app @param {Json} files @param {Entry} entry
 */
async function read(app, files, entry, wanted = {}) {
  const replays = files.map((/** @type {Json} */ [, text]) => replayIn(text));
  if (replays[0] && files.length === 1) {
    const [came] = replays;
    const ofRank = (/** @type {Json} */ rank) => ({
      ...rank,
      id: null,
      replay: uploaded(rank.replay),
    });
    const replay = came.ranks ? { ...came, ranks: came.ranks.map(ofRank) } : uploaded(came);
    return () => {
      app.openReplay(replay, wanted, entry.trace ? { name: null, ...entry } : null);
      app.changed();
    };
  }
  if (replays.some(Boolean))
    throw new Error(
      "a replay is opened alone; one that was saved with several ranks on screen has all of them.",
    );
  if (!app.engines?.can("uploads"))
    throw new Error(
      "it is no replay, and this page has no engine that could read a trace or a recording.",
    );
  const names = files.map((/** @type {Json} */ [name]) => name);
  const asked = names
    .map((/** @type {string} */ name) => `name=${encodeURIComponent(name)}`)
    .join("&");
  const texts = files.map((/** @type {Json} */ [, text]) => text).join("\x1e");
  const answer = await app.engines.send(`inflight/uploads?${asked}`, texts);
  if (answer.error) throw new Error(answer.error);
  const opened = { name: null, title: names[0], ...entry, ...answer };
  return async () => {
    await app.open(opened, wanted);
    // only if it was opened, because opening may have failed with a sentence of its own
    if (app.entry === opened && isOurs(answer.id))
      app.toast("Read and checked in this tab: nothing of it left your machine.", 8000);
  };
}

/** A replay marked as coming from elsewhere. */
function uploaded(/** @type {Replay} */ replay) {
  const source = replay.header.source === "simulated" ? "simulated" : "uploaded";
  return { ...replay, header: { ...replay.header, source, brought: "uploaded" } };
}

const isReplay = (/** @type {Json} */ data) =>
  Boolean(data && data.header && Array.isArray(data.events) && Array.isArray(data.captions));
const isRank = (/** @type {Json} */ { rank, offset, replay }) =>
  Number.isInteger(rank) && Number.isFinite(offset) && isReplay(replay);
const isRanks = (/** @type {Json} */ data) =>
  [data?.ranks, data?.says].every(Array.isArray) && data.ranks.length && data.ranks.every(isRank);

/** The replay in a text, of one run or of all ranks, or null if the text is something else. */
function replayIn(/** @type {string} */ text) {
  const data = jsonIn(text);
  return isReplay(data) || isRanks(data) ? data : null;
}
