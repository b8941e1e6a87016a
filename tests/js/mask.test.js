import assert from "node:assert/strict";
import test from "node:test";

import { allowedKeys, passesOf } from "../../assets/player/run/passes.js";
import { coverTiles, layoutMask, viewOf } from "../../assets/player/views/mask/geometry.js";
import { two } from "./worlds.js";

const run = two();
const [pass] = passesOf(run, run.events[1]); // A: 1 query of 4 keys; B: 2 queries of 2 keys

test("a view is the whole pass, unless it is zoomed to something that is there", () => {
  assert.deepEqual(viewOf(pass, null), [0, 3, 0, 6]);
  assert.deepEqual(viewOf(pass, { request: run.request("b") }), [1, 3, 4, 6]);
  assert.deepEqual(viewOf(pass, { view: [0, 2, 1, 5] }), [0, 2, 1, 5]);
  assert.deepEqual(viewOf(pass, { view: [0, 9, 1, 5] }), [0, 3, 0, 6], "a pass that is smaller than the view");
});

test("cells lie side by side on whole device pixels, inside the canvas", () => {
  for (const [w, h, d] of [[640, 400, 1], [640, 400, 2], [333, 217, 1.5], [300, 90, 1]]) {
    const at = layoutMask({ w, h, d }, [0, 37, 0, 101], 1, null);
    for (let k = 0; k <= 101; k += 1) assert.ok(Math.abs(at.x(k) * d - Math.round(at.x(k) * d)) < 1e-6);
    for (let k = 0; k < 101; k += 1) assert.ok(at.x(k + 1) >= at.x(k));
    assert.ok(at.x(101) <= w + 1 && at.y(37) <= h);
    assert.equal(at.exact, at.cw * d >= 1 && at.ch * d >= 1);
  }
  assert.equal(layoutMask({ w: 640, h: 400, d: 1 }, [0, 4096, 0, 4096], 1, null).exact, false);
});

test("tiles hold exactly the share of allowed cells, windowed or not, zoomed or not", () => {
  for (const window of [null, 2]) for (const view of [[0, 3, 0, 6], [0, 3, 2, 6], [1, 3, 0, 6]]) for (const [width, height] of [[1, 1], [2, 1], [3, 2], [4, 2]]) {
    const [q0, q1, k0, k1] = view;
    const shares = new Float32Array(width * height);
    coverTiles(pass.items, view, window, width, height, shares);
    const expected = new Float64Array(width * height);
    const rows = new Float64Array(height);
    for (let q = q0; q < q1; q += 1) {
      const y = Math.min(height - 1, Math.floor(((q - q0) * height) / (q1 - q0)));
      rows[y] += 1;
      for (const item of pass.items) {
        const allowed = q >= item.q0 && q < item.q0 + item.length ? allowedKeys(item, q, window) : null;
        if (!allowed) continue;
        for (let x = 0; x < width; x += 1) { // the overlap of the tile with the allowed keys, in tiles
          const [from, end] = [k0 + (x * (k1 - k0)) / width, k0 + ((x + 1) * (k1 - k0)) / width];
          expected[y * width + x] += Math.max(0, Math.min(end, allowed[1]) - Math.max(from, allowed[0])) / (end - from);
        }
      }
    }
    expected.forEach((sum, i) => assert.ok(Math.abs(shares[i] - sum / rows[Math.floor(i / width)]) < 1e-5, `${view} ${width}×${height} tile ${i}`));
  }
});
