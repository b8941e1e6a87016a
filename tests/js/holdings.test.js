import assert from "node:assert/strict";
import test from "node:test";

import { LengthsView } from "../../assets/player/views/lengths.js";
import { heldBy, heldWords, placesAt, tokensHeld } from "../../assets/player/run/holdings.js";
import { El, of } from "./elements.js";
import { admissions, arrivals, decode, event, prefill, Recorder, runOf } from "./worlds.js";

const change = (group, added, left = []) => ({ request: "a", added, group, left });
const kv = (...changes) => ({ used: 0, total: 8, changes, prefixHits: [] });

/** `a` reads 10 tokens and decodes; its layers are of five kinds, two groups of one. */
const layered = () =>
  runOf(
    [
      event(0, {
        arrived: arrivals("a"),
        admitted: admissions(["a", 0]),
        segments: [prefill("a", 0, 10)],
        kv: kv(
          change(0, [0, 1, 2]),
          change(1, [3, 4, 5]),
          change(2, [null, 6, 7]),
          change(3, [8, 9, 10, 11, 12, 13]),
          change(4, [14, 15]),
        ),
      }),
      event(1, { segments: [decode("a", 0, 10)], kv: kv(change(1, [], [4])) }),
      event(2, { segments: [decode("a", 0, 11)], kv: kv(change(1, [4])) }),
      event(3, { segments: [decode("a", 0, 12)], kv: kv(change(1, [], [4])) }),
    ],
    {},
    {
      kv_groups: [
        { kind: "full_attention", layers: [0] },
        { kind: "sliding_window", window: 4, layers: [1, 2] },
        { kind: "sliding_window", window: 4, layers: [3] },
        { kind: "mla_attention", units: 2 },
        { kind: "ring", window: 6 },
      ],
    },
  );

test("blocks leave a table where they are, and new ones join its end", () => {
  const run = layered();
  const held = (i, of = 1) =>
    placesAt(run.laneSpans[0], i)
      .filter(({ group }) => group === of)
      .map(({ block, at }) => [block, at]);
  const kept = [
    [3, 0],
    [5, 2],
  ];
  assert.deepEqual(
    [1, 2, 3].map((i) => held(i)),
    [kept, [...kept, [4, 3]], kept],
  );
  assert.equal(held(0).length, 3);
  assert.deepEqual(held(0, 2), [
    [6, 1],
    [7, 2],
  ]);
});

test("groups of one kind are a band, which holds what its blocks and its window hold", () => {
  const run = layered();
  const [full, window, , ring] = run.bands;
  assert.deepEqual(
    run.bands.map(({ groups, numLayers }) => [groups, numLayers]),
    [
      [[0], 1],
      [[1, 2], 3],
      [[3], 0],
      [[4], 0],
    ],
  );
  const held = (band, i) => {
    const { stretches, tokens } = heldBy(run, band, run.frame(i).lanes[0], i);
    return [tokens, ...stretches];
  };
  assert.deepEqual(
    [full, window, run.bands[2], ring].map((band) => held(band, 0)),
    [
      [10, [0, 10]],
      [10, [0, 10]],
      [10, [0, 10]],
      [6, [4, 10]],
    ],
  );
  assert.deepEqual(held(window, 1), [7, [0, 4], [8, 11]]);
  for (const band of [full, ring])
    assert.deepEqual(heldBy(run, band, { laneSpan: null, kvLen: 0 }, 0), {
      stretches: [],
      tokens: 0,
    });
});

test("what a band holds is said by its kind, with what was given back", () => {
  const said = [
    [{ kind: "full_attention" }, 10, 10, "full: 10 held"],
    [{ kind: "mla_attention" }, 10, 10, "full: 10 held"],
    [{ kind: "sliding_window", window: 4 }, 11, 7, "window 4: 7 held, 4 given back"],
    [{ kind: "sliding_window_mla" }, 1, 1, "window: 1 held"],
    [{ kind: "chunked_local_attention", window: 8 }, 9, 1, "chunks of 8: 1 held, 8 given back"],
    [{ kind: "ring", window: 6 }, 10, 6, "ring of 6: 6 held"],
    [{ kind: "mamba" }, 2, 2, "state: 2 held"],
    [{ kind: "cross_attention" }, 2, 2, "cross attention: 2 held"],
  ];
  for (const [band, kvLen, tokens, words] of said)
    assert.equal(heldWords(band, kvLen, tokens), words);
});

test("all caches hold what is computed: a shared block once, of the one that is farther", () => {
  const run = runOf([
    event(0, {
      arrived: arrivals("a", "b"),
      admitted: admissions(["a", 0], ["b", 1]),
      segments: [prefill("a", 0, 6), prefill("b", 1, 2)],
      kv: kv(change(0, [0, 1, 2]), { ...change(0, [0]), request: "b" }),
    }),
  ]);
  assert.equal(tokensHeld(run, run.frame(0)), 6);
});

test("each band has its bar: held positions filled, new ones marked, and its tokens behind it", () => {
  const run = layered(); // its longest cache: 13 positions, here of 10 pixels each
  const drawn = (/** @type {number} */ i, /** @type {number} */ h) => {
    const g = new Recorder();
    const canvas = { setAttribute() {}, getAttribute: () => null };
    const surface = { visible: true, w: 178, h, canvas, begin: () => g };
    const state = { run, frame: run.frame(i), palette: g.palette, focus: null };
    const view = of(LengthsView, { surface, key: new El() });
    view.draw(state);
    const boxes = g.boxes.filter(({ style }) => style !== "empty");
    const tops = [...new Set(boxes.map(({ y }) => y))];
    const bars = tops.map((top) =>
      boxes.filter(({ y }) => y === top).map(({ style, x, w }) => [style, (x - 26) / 10, w / 10]),
    );
    return { bars, key: view.key.textContent, texts: g.texts.map(({ text }) => text) };
  };
  // lanes of 40 pixels, four bands of 9.25
  const first = drawn(0, 80);
  assert.equal(first.key, "full: 10 · window 4: 10 · full: 10 · ring of 6: 6");
  assert.deepEqual(first.texts, ["A", "10", "10", "10", "6", "–"]);
  const { bars, key, texts } = drawn(1, 80);
  assert.equal(key, "full: 11 · window 4: 7 · full: 11 · ring of 6: 6");
  assert.deepEqual(texts, ["A", "11", "7", "11", "6", "–"]);
  const fresh = [
    ["A solid", 10, 1],
    ["ink", 10.8, 0.2],
  ];
  const full = [["A solid", 0, 10], ...fresh];
  const windowed = [["A solid", 0, 4], ["A solid", 8, 2], ...fresh];
  assert.deepEqual(bars, [full, windowed, full, [["A solid", 5, 5], ...fresh]]);
  assert.deepEqual(first.bars[3], [
    ["A solid", 4, 0],
    ["A tint", 4, 6],
  ]);
  // lanes of 20 pixels: bands too thin for numbers of their own
  assert.deepEqual(drawn(1, 40).texts, ["A", "11/7/11/6", "–"]);
});
