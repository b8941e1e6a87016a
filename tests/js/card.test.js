import assert from "node:assert/strict";
import test from "node:test";

import { Card } from "../../assets/player/figure/card.js";

test("play ends at the last step, of a single one too", ({ mock }) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  const played = (/** @type {number} */ from, /** @type {number} */ to) => {
    /** @type {number[]} */
    const steps = [];
    const card = Object.assign(Object.create(Card.prototype), {
      slider: { key: "n", from: 0, to },
      held: { n: from },
      take(/** @type {{n: number}} */ now) {
        card.held = now;
        steps.push(now.n);
      },
    });
    card.play(true);
    for (let n = 0; n < 9; n += 1) mock.timers.tick(500);
    return steps;
  };
  assert.deepEqual([played(1, 3), played(3, 3), played(0, 0)], [[2, 3], [0, 1, 2, 3], [0]]);
});
