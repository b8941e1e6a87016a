import assert from "node:assert/strict";
import { test } from "node:test";

const ENTER = "../../assets/player/story/enter.js";

test("a language that the essay does not have is neither gone to nor kept", async () => {
  const [kept, gone, chosen] = [new Map(), [], []];
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (key) => kept.get(key) ?? null,
    setItem: (key, text) => chosen.push(text) && kept.set(key, text),
  });
  globalThis.window = /** @type {any} */ ({
    inflightEnter: { player: "watch.html", here: "en", others: { de: "de.html" } },
  });
  for (const asked of ["constructor", "de", "", "en"]) {
    globalThis.location = /** @type {any} */ ({
      hash: "#cache",
      search: `?lang=${asked}`,
      replace: (place) => gone.push(`${asked}: ${place}`),
    });
    await import(`${ENTER}?${asked}`);
  }
  assert.deepEqual(gone, ["de: de.html#cache", ": de.html#cache"]);
  assert.deepEqual(chosen, ["de", "en"]);
});

test("behind the # a language is the essay's, a section is its place, all else is the player's", async () => {
  const gone = [];
  globalThis.localStorage = /** @type {any} */ ({ getItem: () => null, setItem() {} });
  globalThis.window = /** @type {any} */ ({
    inflightEnter: { player: "watch.html", here: "en", others: { de: "de.html" } },
  });
  for (const hash of [
    "",
    "#cache",
    "#lang=en",
    "#lang=de",
    "#run=gpt2-six&lang=de",
    "#part=live",
  ]) {
    globalThis.location = /** @type {any} */ ({
      ...{ hash, search: "" },
      replace: (place) => gone.push(place),
    });
    await import(`${ENTER}?${encodeURIComponent(hash)}`);
  }
  assert.deepEqual(gone, [
    "de.html#lang=de",
    "watch.html#run=gpt2-six&lang=de",
    "watch.html#part=live",
  ]);
});
