// The engine's files on their way.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { Files } from "../../assets/engine/loading.js";

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
  assert.deepEqual(
    said.map(({ total }) => total).filter((total) => total !== large.length),
    [],
  );
  files.leave("m/weights");
  await assert.rejects(passing, /broke off/);
});
