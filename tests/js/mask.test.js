import assert from "node:assert/strict";
import test from "node:test";

import { allowedKeys, passesOf, queryOf } from "../../assets/player/run/passes.js";
import { inkCells, inkLeaks, inkWeights } from "../../assets/player/views/mask/cells.js";
import { coverTiles, layoutMask, viewOf } from "../../assets/player/views/mask/geometry.js";
import { inkHot, inkLabels, inkMinimap } from "../../assets/player/views/mask/labels.js";
import { MaskView } from "../../assets/player/views/mask/mask.js";
import { MaskTools } from "../../assets/player/views/mask/tools.js";
import { documentOf, El, Event, of } from "./elements.js";
import {
  admissions,
  arrivals,
  event,
  prefill,
  Recorder,
  runOf,
  two,
  pass as passOf,
} from "./worlds.js";

const run = two();
const [pass] = passesOf(run, run.events[1]); // A: 1 query of 4 keys; B: 2 queries of 2 keys

test("a view is the whole pass, unless it is zoomed to something that is there", () => {
  assert.deepEqual(viewOf(pass, null), [0, 3, 0, 6]);
  assert.deepEqual(viewOf(pass, { request: run.request("b") }), [1, 3, 4, 6]);
  assert.deepEqual(viewOf(pass, { view: [0, 2, 1, 5] }), [0, 2, 1, 5]);
  assert.deepEqual(
    viewOf(pass, { view: [0, 9, 1, 5] }),
    [0, 3, 0, 6],
    "a pass that is smaller than the view",
  );
  assert.deepEqual(viewOf(pass, { view: [0, 2, 1, 9] }), [0, 3, 0, 6], "one with fewer keys");
});

test("a pass has what was guessed in vain, what a graph adds, and whose row was computed for nobody", () => {
  const plain = run.events[1]; // one pass: A, then B
  const [forward] = plain.passes;
  const changed = (/** @type {object} */ given) => passesOf(run, { ...plain, ...given })[0];
  assert.deepEqual(
    pass.items.map(({ drafted, rejected }) => [drafted, rejected]),
    [
      [0, 0],
      [0, 0],
    ],
  );
  const drafts = [{ request: "b", drafted: 3, accepted: 1 }];
  assert.deepEqual(
    changed({ drafts }).items.map(({ drafted, rejected }) => [drafted, rejected]),
    [
      [0, 0],
      [3, 2],
    ],
  );
  const positions = forward.rows * forward.width;
  const graph = (/** @type {number | null} */ bucket) =>
    changed({ passes: [{ ...forward, bucket }] }).graphPads;
  assert.deepEqual([null, positions, positions + 3].map(graph), [0, 0, 3]);
  // rows are in the engine's order, unless some are of lanes whose request has ended
  const segments = [...plain.segments].reverse();
  const order = (/** @type {object} */ given) =>
    changed({ segments, ...given }).items.map(({ request, kvLen }) => [request.id, kvLen]);
  assert.deepEqual(
    order({}).map(([id]) => id),
    ["b", "a"],
  );
  const finishedRows = [{ request: "b", lane: -1 }];
  assert.deepEqual(order({ passes: [{ ...forward, finishedRows }] }), [
    ["b", 0],
    ["a", 4],
    ["b", 2],
  ]);
  assert.ok(pass.items.every((item) => item.leak === undefined));
});

test("cells lie side by side on whole device pixels, inside the canvas", () => {
  for (const [w, h, d] of [
    [640, 400, 1],
    [640, 400, 2],
    [333, 217, 1.5],
    [300, 90, 1],
  ]) {
    const at = layoutMask({ w, h, d }, [0, 37, 0, 101], 1, null);
    for (let k = 0; k <= 101; k += 1)
      assert.ok(Math.abs(at.x(k) * d - Math.round(at.x(k) * d)) < 1e-6);
    for (let k = 0; k < 101; k += 1) assert.ok(at.x(k + 1) >= at.x(k));
    assert.ok(at.x(101) <= w + 1 && at.y(37) <= h);
    assert.equal(at.exact, at.cw * d >= 1 && at.ch * d >= 1);
  }
  assert.equal(layoutMask({ w: 640, h: 400, d: 1 }, [0, 4096, 0, 4096], 1, null).exact, false);
});

test("a cell is explained as allowed exactly where it is drawn so, with a window or without", () => {
  for (const window of [null, 1, 2, 3, 9])
    for (const frame of run.events.map((_, i) => run.frame(i)))
      for (const drawn of frame.passes) {
        const mask = Object.assign(Object.create(MaskView.prototype), {
          state: { run, frame, weights: null, simple: false },
          drawn: { pass: drawn, window, weights: null },
        });
        for (const item of drawn.items)
          for (let q = item.q0; q < item.q0 + item.length; q += 1) {
            const [first, end] = allowedKeys(item, q, window) ?? [0, 0];
            for (let k = 0; k < drawn.nk; k += 1)
              assert.equal(
                mask.explain(q, k).reason === "allowed",
                k >= first && k < end,
                `${q} ${k}`,
              );
          }
      }
});

test("tiles hold exactly the share of allowed cells, windowed or not, zoomed or not", () => {
  for (const window of [null, 2])
    for (const view of [
      [0, 3, 0, 6],
      [0, 3, 2, 6],
      [1, 3, 0, 6],
    ])
      for (const [width, height] of [
        [1, 1],
        [2, 1],
        [3, 2],
        [4, 2],
      ]) {
        const [q0, q1, k0, k1] = view;
        const shares = new Float32Array(width * height);
        coverTiles(pass.items, view, window, width, height, shares);
        const expected = new Float64Array(width * height);
        const rows = new Float64Array(height);
        for (let q = q0; q < q1; q += 1) {
          const y = Math.min(height - 1, Math.floor(((q - q0) * height) / (q1 - q0)));
          rows[y] += 1;
          for (const item of pass.items) {
            const allowed =
              q >= item.q0 && q < item.q0 + item.length ? allowedKeys(item, q, window) : null;
            if (!allowed) continue;
            // the overlap of the tile with the allowed keys, in tiles
            for (let x = 0; x < width; x += 1) {
              const [from, end] = [
                k0 + (x * (k1 - k0)) / width,
                k0 + ((x + 1) * (k1 - k0)) / width,
              ];
              expected[y * width + x] +=
                Math.max(0, Math.min(end, allowed[1]) - Math.max(from, allowed[0])) / (end - from);
            }
          }
        }
        expected.forEach((sum, i) =>
          assert.ok(
            Math.abs(shares[i] - sum / rows[Math.floor(i / width)]) < 1e-5,
            `${view} ${width}×${height} tile ${i}`,
          ),
        );
      }
});

// A padded pass in which a request goes on with a chunk: A computes positions 2 to 4, B its only
// one after two pads. Keys: 5 of A, 1 of B.
const chunked = runOf([
  event(0, {
    arrived: arrivals("a"),
    admitted: admissions(["a", 0]),
    segments: [prefill("a", 0, 2)],
  }),
  event(1, {
    arrived: arrivals("b"),
    admitted: admissions(["b", 1]),
    passes: [passOf(1, 2, { layout: "padded", rows: 2, width: 3, tokens: 4, padding: 2 })],
    segments: [{ ...prefill("a", 0, 3), start: 2, kvLen: 5 }, prefill("b", 1, 1)],
  }),
]);
Object.assign(chunked.texts.prompt, { a: ["a0", "a1", "a2", "a3", "a4"], b: ["b0"] });
const [padded] = passesOf(chunked, chunked.events[1]);
const AT = {
  view: [0, padded.nq, 0, padded.nk],
  x: (k) => k,
  y: (q) => 10 * q,
  cw: 1,
  ch: 10,
  gutter: 60,
  top: 0,
  big: 1,
  compact: false,
  words: null,
};

/** What is drawn on `g`: all of the padded pass, if nothing else is said. */
const sheet = (g, more = {}) => ({
  ...{ g, run: chunked, palette: g.palette, at: AT, pass: padded, items: padded.items },
  ...{ window: null, focus: null, reach: null, right: 6, bottom: 60, ...more },
});

const weights = {
  a: [
    [0.2, 0.3, 0.5],
    [0.1, 0.2, 0.3, 0.4],
    [0.5, 0.2, 0.1, 0.1, 0.1],
  ],
  b: [[1]],
};
const found = (rows) => new Map(Object.entries(rows).map(([id, of]) => [id, { weights: of }]));

test("a cell's weight is that of its own query and key, relative to the strongest of its row", () => {
  const g = new Recorder();
  inkWeights(sheet(g), found(weights), false);
  const drawn = g.boxes
    .filter(({ style }) => style.endsWith("solid"))
    .map(({ x, y, alpha, style }) => [style[0], y / 10, x, Number((alpha ** 2).toFixed(6))]);
  const expected = [
    ["A", 0, 0],
    ["B", 5, 5],
  ].flatMap(([letter, first, k0]) =>
    weights[letter.toLowerCase()].flatMap((row, n) =>
      row.map((w, k) => [letter, first + n, k0 + k, Number((w / Math.max(...row)).toFixed(6))]),
    ),
  );
  assert.deepEqual(drawn, expected);
});

test("without the first token the strongest of the others is full, and the first is grey", () => {
  const g = new Recorder();
  inkWeights(sheet(g), found(weights), true);
  const drawn = g.boxes
    .filter(({ style, w }) => !style.endsWith("tint") && w)
    .map(({ style, x, y, alpha }) => [style, y / 10, x, Number((alpha ** 2).toFixed(6))]);
  const { soft } = g.palette;
  assert.deepEqual(drawn, [
    [soft, 0, 0, 1],
    ["A solid", 0, 1, 0.6],
    ["A solid", 0, 2, 1],
    [soft, 1, 0, 1],
    ["A solid", 1, 1, 0.5],
    ["A solid", 1, 2, 0.75],
    ["A solid", 1, 3, 1],
    [soft, 2, 0, 1],
    ["A solid", 2, 1, 1],
    ["A solid", 2, 2, 0.5],
    ["A solid", 2, 3, 0.5],
    ["A solid", 2, 4, 0.5],
    [soft, 5, 5, 1],
  ]);
});

test("of keys that share a column of pixels the strongest is seen", () => {
  const g = new Recorder();
  const narrow = { ...AT, x: (k) => Math.floor(k / 2), cw: 0.5 };
  inkWeights(sheet(g, { at: narrow }), found(weights), false);
  const drawn = g.boxes
    .filter(({ style, y }) => style === "A solid" && y === 10)
    .map(({ x, w, alpha }) => [x, w, Number((alpha ** 2).toFixed(6))]);
  assert.deepEqual(drawn, [
    [0, 1, 0.5],
    [1, 1, 1],
  ]);
});

test("cells are pale where the key was cached and full where it is new; a leak is the next request's keys, pads see nothing", () => {
  const g = new Recorder();
  inkCells(sheet(g));
  assert.deepEqual(
    g.boxes.map(({ style, x, y, w }) => [style, y / 10, x, w]),
    [
      ["A cached", 0, 0, 2],
      ["A cached", 1, 0, 2],
      ["A cached", 2, 0, 2],
      ["A solid", 0, 2, 1],
      ["A solid", 1, 2, 2],
      ["A solid", 2, 2, 3],
      ["B solid", 5, 5, 1],
    ],
  );
  const [a, b] = padded.items;
  const leak = new Recorder();
  const items = [
    { ...a, leak: b },
    { ...b, leak: a },
  ];
  inkLeaks(sheet(leak, { items }));
  assert.deepEqual(
    leak.boxes.map(({ x, y, w, h }) => [x, y, w, h]),
    [
      [5, 0, 1, 30],
      [0, 50, 5, 10],
    ],
  );
});

test("beside each query stands its own token, above the keys their letters", () => {
  const g = new Recorder();
  inkLabels(sheet(g, { at: { ...AT, x: (k) => 20 * k, cw: 20 } }));
  const beside = g.texts.filter(({ x }) => x === AT.gutter - 7).map(({ text, y }) => [text, y]);
  assert.deepEqual(beside, [
    ["a2", 5],
    ["a3", 15],
    ["a4", 25],
    ["b0", 55],
    ["2 pads", 40],
  ]);
  assert.deepEqual(
    g.texts.filter(({ y }) => y === 9).map(({ text, x }) => [text, x]),
    [
      ["A", 5],
      ["B", 105],
    ],
  );
});

test("where rows are too low for words, letters that are too near stand beside each other", () => {
  const letters = (/** @type {number} */ ch) => {
    const g = new Recorder();
    inkLabels(sheet(g, { at: { ...AT, ch, y: (q) => ch * q } }));
    return g.texts.filter(({ x }) => x < AT.gutter).map(({ text, x, y }) => [text, x, y]);
  };
  // rows 0 to 2, and 3 to 5 with two pads
  const end = AT.gutter - 7;
  assert.deepEqual(letters(8), [
    ["A", end, 12],
    ["B", end, 36],
  ]);
  assert.deepEqual(letters(2), [
    ["A", end, 3],
    ["B", end - 10, 9],
  ]);
});

test("a token's query is the row that ends with its own key", () => {
  for (const item of padded.items)
    for (let position = item.start; position < item.kvLen; position += 1) {
      assert.equal(allowedKeys(item, queryOf(item, position), null)[1], item.k0 + position + 1);
    }
});

test("a request that is zoomed to is there with its pads", () => {
  const request = run.request("b");
  const item = { request, q0: 1, pads: 2, length: 3, k0: 4, kvLen: 3 };
  const padded = /** @type {Pass} */ ({ ...pass, items: [item], nq: 6, nk: 7 });
  assert.deepEqual(viewOf(padded, { request }), [1, 6, 4, 7]);
});

test("of a part that is zoomed to only the cells in it are drawn", () => {
  const drawn = (/** @type {number[]} */ view) => {
    const g = new Recorder();
    inkCells(sheet(g, { at: { ...AT, view } }));
    return g.boxes.map(({ style, x, y, w }) => [style, y / 10, x, w]);
  };
  assert.deepEqual(drawn([0, 2, 0, 1]), [
    ["A cached", 0, 0, 1],
    ["A cached", 1, 0, 1],
  ]);
  assert.deepEqual(drawn([1, 6, 1, 3]), [
    ["A cached", 1, 1, 1],
    ["A cached", 2, 1, 1],
    ["A solid", 1, 2, 1],
    ["A solid", 2, 2, 1],
  ]);
  assert.deepEqual(drawn([2, 6, 3, 6]), [
    ["A solid", 2, 3, 2],
    ["B solid", 5, 5, 1],
  ]);
});

test("the token under the pointer has its row where it is computed, its column where it is a key", () => {
  const framed = (/** @type {object} */ hot, view = AT.view) => {
    /** @type {number[][]} */
    const boxes = [];
    const g = { strokeRect: (/** @type {number[]} */ ...box) => boxes.push(box) };
    const of = { palette: {}, at: { ...AT, view, x: (k) => 60 + k }, right: 66, bottom: 60 };
    inkHot(sheet(g, of), /** @type {any} */ ({ request: chunked.request("a"), ...hot }));
    return boxes;
  };
  const row = (/** @type {number} */ q) => [60.5, 10 * q, 5, 10];
  const column = (/** @type {number} */ k) => [60 + k, 0.5, 1, 59];
  const token = (/** @type {number} */ n) => framed({ q: n, keys: [n, n + 1] });
  // A computes its positions 2 to 4 in rows 0 to 2, and has keys for 0 to 4
  assert.deepEqual([1, 2, 4, 5].map(token), [
    [column(1)],
    [row(0), column(2)],
    [row(2), column(4)],
    [],
  ]);
  assert.deepEqual(framed({ row: 3, column: 5 }), [row(3), column(5)], "a cell, of pads too");
  assert.deepEqual(framed({ q: 4, keys: [4, 5] }, [0, 2, 0, 3]), [], "out of sight");
  assert.deepEqual(framed({ request: null, q: 4, keys: [4, 5] }), []);
});

test("above a mask stands what can be done with it now", () => {
  globalThis.document = documentOf();
  const weights = { offered: false, found: null };
  const mask = { zoom: null, layer: null, actions: {}, zoomTo: (to) => (mask.zoom = to) };
  const bar = new El();
  const tools = new MaskTools(/** @type {any} */ (mask), /** @type {any} */ (bar));
  const frame = { passes: [padded] };
  const told = (/** @type {object} */ more = {}) => {
    const leak = { offered: false, on: false, working: "" };
    tools.show({ run: chunked, frame, pass: padded, pinned: null, leak, weights, ...more });
    return bar.children.map((el) => el.textContent);
  };
  const [a, gone] = [chunked.request("a"), { letter: "Z" }];
  assert.deepEqual(told(), []);
  assert.deepEqual(told({ pinned: gone }), [], "it has no row here");
  assert.deepEqual(told({ pinned: a }), ["Zoom to A"]);
  bar.children[0].click();
  assert.deepEqual([mask.zoom, told({ pinned: a })], [a, ["Whole mask"]]);
  bar.children[0].click();
  assert.deepEqual([mask.zoom, told({ pinned: a })], [null, ["Zoom to A"]]);
  const finished = { ...padded, items: [{ ...padded.items[0], length: 0 }] };
  assert.deepEqual(told({ pinned: a, pass: finished }), [], "its row is computed for nobody");
  const two = { passes: [padded, { ...padded, padded: false }] };
  assert.deepEqual(told({ frame: two }), ["1 decode", "2 A B"]);
  assert.deepEqual(told({ leak: { offered: true, on: false, working: "computing" } }), [
    "Leak: computing",
  ]);
});

test("the choice of a layer is of that layer's window, the first choice of the widest", () => {
  const told = [];
  const mask = /** @type {any} */ ({
    layer: null,
    actions: { redraw: () => told.push("redraw"), changed: () => told.push("changed") },
  });
  const windows = /** @type {any} */ ({ windows: [null, 8, 4] });
  const tools = new MaskTools(mask, /** @type {any} */ (new El()));
  const select = /** @type {any} */ (tools._layers(windows));
  assert.deepEqual(
    select.children.map((/** @type {El} */ el) => el.textContent),
    ["widest layer", "layer 0: full", "layer 1: window 8", "layer 2: window 4"],
  );
  assert.equal(select.selectedIndex, 0);
  const choose = (/** @type {number} */ n) => {
    select.selectedIndex = n;
    select.dispatchEvent(new Event("change"));
    return [mask.layer, MaskView.prototype.window.call(mask, windows)];
  };
  assert.deepEqual([1, 2, 3, 0].map(choose), [
    [0, null],
    [1, 8],
    [2, 4],
    [null, null],
  ]);
  assert.deepEqual(told.slice(0, 2), ["redraw", "changed"]);
  assert.equal(choose(3)[1], 4);
  assert.equal(/** @type {any} */ (tools._layers(windows)).selectedIndex, 3);
  const narrow = (/** @type {number[]} */ ...of) =>
    MaskView.prototype.window.call({ layer: null }, { windows: of });
  assert.equal(narrow(4, 8, 6), 8, "the widest of those that all have an end");
});

test("the small mask frames the part that is shown, in its own measure", () => {
  /** @type {number[][]} */
  const frames = [];
  const g = Object.assign(new Recorder(), {
    strokeRect: (/** @type {number[]} */ ...box) => frames.push(box),
  });
  const at = { ...AT, view: [3, 6, 1, 4] }; // of six queries and six keys
  const { x, y, w, h } = inkMinimap(sheet(g, { at }), 400);
  assert.deepEqual([w, h], [104, 72]);
  assert.deepEqual(frames.at(-1), [x + 104 / 6, y + 3 * 12, 52, 36]);
});

/** Spans as a reader sees them. @param {any[][]} lines */
const read = (lines) => lines.map((spans) => spans.map((s) => s.request?.letter ?? s).join(""));

/** A view that has drawn the padded pass: cells of 10 × 10 pixels, right of 60 and below 10. */
const seen = (more = {}, drawn = {}) =>
  of(MaskView, {
    state: { run: chunked, weights: { layer: 1, head: 2, withoutFirst: true }, ...more },
    drawn: { pass: padded, window: null, at: { ...AT, top: 10, cw: 10 }, ...drawn },
  });

test("a cell says whose query and key meet in it, and why it is allowed or blocked", () => {
  const say = (/** @type {number[]} */ [q, k], more = {}, drawn = {}) =>
    read(seen(more, drawn).explain(q, k).lines);
  const items = padded.items.map((item) => ({ ...item }));
  const [a, b] = items;
  const changed = (/** @type {object} */ given) => ({
    pass: { ...padded, items: [{ ...a, ...given }, b] },
  });
  assert.deepEqual(say([0, 0]), [
    "Query A token 2 “a2”, prefill",
    "Key A token 0 “a0”, cached",
    "Allowed: 2 [token|tokens] back, read from the cache",
  ]);
  assert.deepEqual(say([0, 2], { simple: true }), [
    ...["A token 2 “a2”", "→ A token 2 “a2”", "It may look: itself, new"],
  ]);
  const why = (/** @type {any[]} */ ...given) => [
    say(given[0], {}, given[1]).at(-1),
    say(given[0], { simple: true }, given[1]).at(-1),
  ];
  const window = { window: 2 };
  assert.deepEqual(
    [why([1, 1]), why([1, 2]), why([0, 4]), why([0, 5]), why([2, 3], window), why([2, 2], window)],
    [
      [
        "Allowed: 2 [token|tokens] back, read from the cache",
        "It may look: 2 [token|tokens] back, remembered",
      ],
      [
        "Allowed: 1 [token|tokens] back, computed in this pass",
        "It may look: 1 [token|tokens] back, new",
      ],
      [
        "Blocked: the key is 2 [token|tokens] in the future",
        "It may not look: 2 [token|tokens] in the future",
      ],
      ["Blocked: the key belongs to another request", "It may not look: somebody else’s"],
      [
        "Allowed: 1 [token|tokens] back, computed in this pass",
        "It may look: 1 [token|tokens] back, new",
      ],
      [
        "Blocked: 2 tokens back, outside the window of 2",
        "It may not look: 2 tokens back, outside the window of 2",
      ],
    ],
  );
  const blocked = "Blocked: a pad attends to nothing and nothing attends to it";
  assert.deepEqual(say([3, 0]), [
    ...["Pad: B has fewer tokens than this pass has columns", blocked],
  ]);
  const over = { ...padded, items: [{ ...a, finished: true, pads: 3, length: 0 }, b] };
  assert.deepEqual(say([0, 0], {}, { pass: over }), [
    ...["Pad: A has finished; its row is computed as padding until the wave ends", blocked],
  ]);
  assert.equal(
    say([0, 5], {}, changed({ leak: b })).at(-1),
    "A may read it by the leak alone: it belongs to another request",
  );
  assert.deepEqual(say([0, 0], {}, changed({ overrun: true })).slice(2), [
    "A had stopped when this step was already launched: overrun, computed for nothing",
    "Allowed: 2 [token|tokens] back, read from the cache",
  ]);
  const weighed = { weights: found(weights) };
  assert.deepEqual(say([1, 0], {}, weighed).slice(3), [
    "Weight 0.1 in layer 1, head 2",
    "The first token: it is not on the scale of the others",
  ]);
  assert.deepEqual(say([1, 1], {}, weighed).slice(3), ["Weight 0.2 in layer 1, head 2"]);
  const all = { weights: { layer: 0, head: 3, withoutFirst: false } };
  assert.deepEqual(say([1, 0], all, weighed).slice(3), ["Weight 0.1 in layer 0, head 3"]);
  assert.equal(say([0, 4], {}, weighed).length, 3, "what is blocked has no weight");
});

test("under a pointer lie a key, a query, a cell, the small mask or nothing", () => {
  const mask = seen();
  const [A, B] = ["a", "b"].map((id) => chunked.request(id));
  const at = (/** @type {number} */ x, /** @type {number} */ y) => {
    const under = mask.hit(x, y);
    return under && [under.request, under.hot, read(under.lines).at(-1)];
  };
  assert.deepEqual(
    [at(69, 5), at(110, 9)],
    [
      [A, undefined, "A 5 [key|keys]: 2 cached, 3 new"],
      [B, undefined, "B 1 [key|keys]: 0 cached, 1 new"],
    ],
  );
  assert.deepEqual(
    [at(59, 29), at(59, 40)],
    [
      [A, { request: A, row: 1 }, "A 3 [query|queries], prefill"],
      [B, { request: B, row: 3 }, "B 1 [query|queries], prefill"],
    ],
  );
  assert.deepEqual(
    [at(70, 20), at(90, 10)],
    [
      [
        ...[A, { request: A, row: 1, column: 1, q: 3, keys: [1, 2] }],
        "Allowed: 2 [token|tokens] back, read from the cache",
      ],
      [
        ...[A, { request: A, row: 0, column: 3, q: 2 }],
        "Blocked: the key is 1 [token|tokens] in the future",
      ],
    ],
  );
  // above and left of it, right of it, and below it
  assert.deepEqual([at(59, 9), at(120, 30), at(120, 9), at(80, 70)], [null, null, null, null]);
  mask.minimap = { x: 60, y: 10, w: 20, h: 20 };
  assert.equal(at(80, 30)?.[2], "The whole mask: drag to move the view");
  assert.equal(mask.hit(60, 10).keepsPin, true);
  assert.notEqual(at(81, 30)?.[2], "The whole mask: drag to move the view");
  const items = padded.items.map((item) => ({ ...item, overrun: true }));
  assert.equal(
    read(seen({}, { pass: { ...padded, items } }).hit(30, 10).lines)[1],
    "A had stopped when this step was already launched: overrun, computed for nothing",
  );
  assert.equal(of(MaskView, { drawn: null }).hit(60, 10), null);
});

test("as a table a mask says of each request what it sees and why it is odd", () => {
  const mask = seen();
  const rows = (/** @type {object[]} */ items, windows = [null]) => {
    const state = { run: { windows }, pass: { ...padded, items } };
    return mask.table.call({ ...mask, window: MaskView.prototype.window, layer: null }, state).rows;
  };
  const [a, b] = padded.items;
  assert.deepEqual(rows([a, { ...b, overrun: true }]), [
    ["A", "2 to 4", "its own, up to itself", "2", "3", "0", ""],
    ["B", "0 to 0", "its own, up to itself", "0", "1", "2", "overrun: computed for nothing"],
  ]);
  assert.deepEqual(
    rows(
      [
        { ...a, leak: b },
        { ...b, length: 0, pads: 3 },
      ],
      /** @type {any} */ ([4]),
    ),
    [
      [
        "A",
        "2 to 4",
        "its own, up to itself, at most 4 back",
        "2",
        "3",
        "0",
        "leak: also all keys of B",
      ],
      ["B", "none (finished)", "nothing", "0", "0", "3", ""],
    ],
  );
  const none = mask.table(/** @type {any} */ ({ run: chunked, pass: undefined }));
  assert.deepEqual([none.caption, none.rows], ["Attention mask: nothing was computed", []]);
});

test("tokens stand above the keys where each fits its column, upright where they are longer", () => {
  const g = Object.assign(new Recorder(), {
    ...{ save() {}, restore() {}, rotate() {} },
    translate: (/** @type {number[]} */ ...to) => turned.push(to),
  });
  /** @type {number[][]} */
  const turned = [];
  const long = Object.assign(Object.create(chunked), {
    tokenText: (/** @type {any} */ { letter }, /** @type {number} */ n) => `${letter}longest${n}`,
  });
  const words = (/** @type {object} */ run, /** @type {number} */ cw, view = AT.view, big = 1) =>
    of(MaskView, { surface: { g } })._keyWords(run, g.palette, padded, view, cw, big);
  const texts = ["a0", "a1", "a2", "a3", "a4", "b0"]; // of 12 pixels each
  const upright = [...Array(5).fill("Alonge…"), "Blonge…"];
  assert.deepEqual(words(chunked, 13), { texts, across: true, room: 16 });
  assert.deepEqual(words(chunked, 26, [0, 6, 1, 3], 2), {
    ...{ texts: ["a1", "a2"], across: true, room: 32 },
  });
  assert.deepEqual(words(long, 13), { texts: upright, across: false, room: 46 });
  assert.deepEqual([words(chunked, 12), words(long, 12), words(chunked, 8)], [null, null, null]);
  assert.equal(words(long, 25, AT.view, 2), null);
  const at = { ...AT, top: 40, x: (/** @type {number} */ k) => 20 * k };
  inkLabels(sheet(g, { at: { ...at, words: words(chunked, 20) } }));
  const above = g.texts.filter(({ y }) => y === 32).map(({ text, x }) => [text, x]);
  assert.deepEqual(
    above,
    texts.map((text, k) => [text, 20 * k + 10 - 6]),
  );
  g.texts = [];
  inkLabels(sheet(g, { at: { ...at, words: words(long, 20) } }));
  assert.deepEqual(
    turned,
    upright.map((_, k) => [20 * k + 10, 35]),
  );
  assert.deepEqual(
    g.texts.filter(({ x, y }) => !x && !y).map(({ text }) => text),
    upright.map((text) => `${text.slice(0, 5)}…`), // six characters fit 46 − 6 pixels
  );
});
