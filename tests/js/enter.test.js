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
