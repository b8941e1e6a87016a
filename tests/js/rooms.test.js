// Who reaches what: outside watch/, Watch is its state and its verbs (watch/page_actions.js).

import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";

const PLAYER = "assets/player";
const sources = readdirSync(PLAYER, { recursive: true })
  .map(String)
  .filter((path) => path.endsWith(".js"))
  .map((path) => /** @type {const} */ ([path, readFileSync(`${PLAYER}/${path}`, "utf8")]));
const named = (/** @type {RegExp} */ what, /** @type {(path: string) => boolean} */ where) =>
  sources.filter(([path, text]) => where(path) && what.test(text)).map(([path]) => path);

test("no file outside watch/ reaches the player", () => {
  const outside = (/** @type {string} */ path) => !path.startsWith("watch/");
  assert.ok(sources.length > 90);
  assert.deepEqual(
    named(/window\.inflight\b|\{App\b|\bapp\??\.(?!py)|watch\/player\.js/, outside),
    [],
  );
});

test("only the store's own `set` writes the player's state", () => {
  const fields = [
    ...readFileSync(`${PLAYER}/watch/store.js`, "utf8").matchAll(/^ \* @property .+\} (\w+)/gm),
  ].map((m) => m[1]);
  assert.ok(fields.includes("run") && fields.includes("focus"));
  const written = new RegExp(
    `\\b(app|state)\\.(${fields.join("|")}) [-+|?]*=(?!=)|Object\\.assign\\((this\\.)?app,`,
  );
  assert.match("app.index = 3", written);
  assert.deepEqual(
    named(written, () => true),
    [],
  );
});
