// The engine's files on their way.

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { Download } from "../../assets/engine/download.js";
import { Files } from "../../assets/engine/loading.js";
import { cacheOf } from "./tabs.js";

const small = gzipSync(randomBytes(3000));
const large = gzipSync(randomBytes(2.1e7));
const manifest = {
  files: { "python.zip.gz": small.length, "m/weights.gz": large.length },
  memory: { m: 2.1e7 },
  beside: {},
};

/** A host that sends the beginning of the large file, and then nothing more. */
function host() {
  globalThis.fetch = /** @type {any} */ (
    async (url, { signal }) => {
      if (url.endsWith("manifest.json")) return new Response(JSON.stringify(manifest));
      if (!url.endsWith("weights.gz")) return new Response(small);
      return new Response(
        new ReadableStream({
          start(control) {
            control.enqueue(new Uint8Array(large.subarray(0, 5e6)));
            signal.addEventListener("abort", () => control.error(signal.reason));
          },
        }),
      );
    }
  );
}

test("what is here already is not counted again, and a download that nobody waits for is ended", async () => {
  host();
  const said = [];
  let passes = () => {};
  const files = new Files("http://page.test/engine/", (now) => {
    said.push(now);
    if (now.done > 1e6) passes();
  });
  await files.get(["python.zip"]);
  said.length = 0;
  files.begin();
  const arrived = new Promise((done) => (passes = () => done(undefined)));
  const passing = files.pass("m/weights", () => {});
  await arrived;
  files.begin(); // of another model, while this one is on its way
  files._tell();
  assert.deepEqual(
    said.map(({ total }) => total).filter((total) => total !== large.length),
    [],
  );
  const counted = said.map(({ done, total, kept, what }) => [done <= total, kept, what]);
  assert.ok(counted.every(([isLess, kept]) => isLess && kept === false));
  assert.deepEqual(new Set(counted.map(([, , what]) => what)), new Set(["m/weights"]));
  files.leave("m/weights");
  await assert.rejects(passing, /broke off/);
});

test("a file that was fetched is kept, and is not fetched again", async () => {
  host();
  const cache = cacheOf();
  const [asked, fetched] = [[], globalThis.fetch];
  Object.assign(globalThis, {
    caches: { open: async () => cache },
    fetch: (url, options) => (asked.push(url.split("/").at(-1)), fetched(url, options)),
  });
  for (let n = 0; n < 2; n += 1) await new Files("http://page.test/engine/").get(["python.zip"]);
  assert.deepEqual(asked, ["manifest.json", "python.zip.gz"]);
  Object.assign(globalThis, { caches: undefined });
});

test("of a download that breaks off the pieces are kept, if they are as its host sends them", async () => {
  const keptOf = async (bytes, readsOn = true) => {
    const cache = cacheOf();
    globalThis.fetch = async () => new Response(bytes);
    const download = new Download("http://page.test/m.gz", 9e6, cache);
    await download.begin();
    while ((await download.next()) && readsOn);
    await download.failed();
    return [...cache.all.keys()];
  };
  const packed = large.subarray(0, 5e6);
  assert.deepEqual(await keptOf(packed), ["http://page.test/m.gz?from=0"]);
  assert.deepEqual(await keptOf(new Uint8Array(5e6)), [], "its host has unpacked it");
  assert.deepEqual(await keptOf(packed, false), [], "it is what came that is of no use");
});

test("a start that cannot read its manifest leaves what this browser keeps", async () => {
  const here = "http://page.test/engine/2/";
  const there = ["http://page.test/models/m.gguf", "http://page.test/engine/1/python.zip"];
  const forgotten = async (answer) => {
    const cache = cacheOf(...there.map((url) => /** @type {any} */ ([url, new Response()])));
    Object.assign(globalThis, { caches: { open: async () => cache }, fetch: async () => answer() });
    await new Files(here).forget(false);
    return there.filter((url) => !cache.all.has(url));
  };
  const away = () => new Response("", { status: 503 });
  const manifest = { files: {}, beside: { "m.gguf": "../../models/m.gguf" } };
  assert.deepEqual(await forgotten(away), []);
  assert.deepEqual(await forgotten(() => Response.json(manifest)), [there[1]]);
});

test("of a download whose pieces are all here its last bytes are asked for, not what lies behind them", async () => {
  const pieces = [4, 4, 2].map((length) => new Uint8Array(length));
  const cache = cacheOf(
    ...pieces.map(
      (piece, n) =>
        /** @type {[string, Response]} */ ([
          `http://page.test/m?from=${4 * n}`,
          new Response(piece),
        ]),
    ),
  );
  /** @type {any} */ let asked;
  globalThis.fetch = /** @type {any} */ (
    async (_url, { headers }) => (asked = headers.Range) && new Response("", { status: 206 })
  );
  await new Download("http://page.test/m", 10, cache).begin();
  assert.equal(asked, "bytes=8-");
});

test("what is no file of the engine is refused, in a sentence that says what to do", async () => {
  const gone = "The engine's files have changed since this page was opened: load the page again.";
  const unreached = "The engine's files cannot be reached: try again, or load the page again.";
  const broken = "The download of the engine broke off: try again.";
  const said = async (answer, name = "python.zip.gz") => {
    Object.assign(globalThis, { caches: undefined });
    globalThis.fetch = /** @type {any} */ (
      async (url) => (url.endsWith(name) ? answer() : new Response(JSON.stringify(manifest)))
    );
    const files = new Files("http://page.test/engine/", ({ done, total }) =>
      assert.ok(done >= 0 && done <= total),
    );
    const found = files.get(["python.zip"]);
    return found.then(
      (all) => all.get("python.zip").byteLength,
      (error) => [error.message, error.lasting],
    );
  };
  const status = (code) => () => new Response("", { status: code });
  const away = async () => {
    throw new TypeError("Failed to fetch");
  };
  assert.equal(await said(() => new Response(small)), 3000);
  assert.equal(await said(() => new Response(new Uint8Array(9000))), 9000, "its host unpacked it");
  assert.deepEqual(await said(status(404)), [gone, false]);
  assert.deepEqual(await said(status(503)), [unreached, false]);
  assert.deepEqual(await said(away), [unreached, false]);
  assert.deepEqual(await said(() => new Response("<!doctype html>")), [gone, false]);
  assert.deepEqual(await said(() => new Response("")), [gone, false]);
  assert.deepEqual(await said(() => new Response(small.subarray(0, 2000))), [broken, false]);
  const more = Buffer.concat([small, small]);
  assert.deepEqual(await said(() => new Response(more)), [broken, false]);
  assert.deepEqual(await said(() => new Response("no JSON"), "manifest.json"), [broken, false]);
});
