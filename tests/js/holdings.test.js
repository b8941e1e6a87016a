import assert from "node:assert/strict";
import test from "node:test";

import { heldBy, heldWords, placesAt, tokensHeld } from "../../assets/player/run/holdings.js";
import { admissions, arrivals, decode, event, prefill, runOf } from "./worlds.js";

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
