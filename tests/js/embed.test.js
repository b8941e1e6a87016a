// The embeddable page: what of its address it shows, and where its source leads.

import assert from "node:assert/strict";
import test from "node:test";

import { documentOf, El } from "./elements.js";
import { admissions, arrivals, event, prefill } from "./worlds.js";

test("an embedded figure shows the step of its address, and its source opens the player there in a tab of its own", async () => {
  const [main, page] = [new El("main"), new El("script")];
  const entry = { title: { en: "One <b>run</b>" }, urls: { en: "one.json" } };
  page.textContent = JSON.stringify({ runs: { one: entry }, words: { en: {} }, player: "watch" });
  const steps = [2, 3, 5].map((step) =>
    event(step, {
      arrived: step === 2 ? arrivals("a") : [],
      admitted: step === 2 ? admissions(["a", 0]) : [],
      segments: [prefill("a", 0, 2)],
    }),
  );
  const replay = { header: { config: {} }, events: steps, letters: { a: "A" } };
  Object.assign(globalThis, {
    window: { addEventListener() {}, devicePixelRatio: 1 },
    location: { hash: "" },
    HTMLElement: El,
    document: documentOf({
      body: new El("body"),
      querySelector: (/** @type {string} */ found) => (found === "main" ? main : page),
    }),
    matchMedia: () => ({ matches: false, addEventListener() {} }),
    getComputedStyle: () => ({ getPropertyValue: () => "#123456" }),
    requestAnimationFrame() {},
    fetch: async () => ({ ok: true, json: async () => replay }),
  });
  await import("../../assets/player/figure/embed.js");
  const embed = /** @type {any} */ (window).inflightEmbed;
  assert.equal(main.textContent, "The address names no run.");
  const opened = async (/** @type {string} */ hash) => {
    location.hash = hash;
    await embed.open();
    const [a] = main.querySelectorAll("a");
    const { slider, clock } = embed.figure;
    return [embed.figure.position(), slider.to, clock, a.getAttribute("href"), a.target];
  };
  const [tab, from] = ["_blank", "watch#run=one"];
  assert.deepEqual(await opened("#run=one&view=none"), [1, 3, false, from, tab]);
  assert.deepEqual(await opened("#run=one&view=none&step=3"), [2, 3, false, `${from}&step=3`, tab]);
  assert.deepEqual(await opened("#run=one&view=none&step=5&axis=time&theme=dark&lang=xx&other=1"), [
    3,
    3,
    true,
    `${from}&step=5&axis=time&lang=xx&theme=dark`,
    tab,
  ]);
  assert.equal(document.documentElement.dataset.theme, "dark");
  assert.equal((await opened("#run=one&view=none&step=-1"))[0], 1, "no number of a step");
  assert.match(main.textContent, /^One <b>run<\/b>Inflight/);
});
