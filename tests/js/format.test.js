import assert from "node:assert/strict";
import test from "node:test";

import {
  bytes,
  count,
  duration,
  joined,
  milliseconds,
  momentOf,
  waitOf,
  wallClock,
} from "../../assets/player/parts/format.js";

/** @type {[(value: number) => string, [number, string][]][]} */
const WRITTEN = [
  [
    count,
    [
      [0, "0"],
      [999, "999"],
      [1000, "1,000"],
      [1234567, "1,234,567"],
    ],
  ],
  [
    milliseconds,
    [
      [0.001234, "1.23 ms"],
      [0.01, "10.0 ms"],
      [0.1, "100 ms"],
      [9.9994, "9999 ms"],
      [10, "10.0 s"],
    ],
  ],
  [
    duration,
    [
      [0.3334, "333 ms"],
      [0.9994, "999 ms"],
      [0.9996, "1.00 s"],
      [1, "1.00 s"],
      [9.544, "9.54 s"],
      [99.94, "99.9 s"],
      [99.96, "100 s"],
      [999.6, "1,000 s"],
      [86400, "86,400 s"],
    ],
  ],
  [
    wallClock,
    [
      [0.034, "0.03 s"],
      [10, "10.0 s"],
      [12.44, "12.4 s"],
      [1000, "1000 s"],
    ],
  ],
  [
    bytes,
    [
      [1, "1 B"],
      [1023, "1023 B"],
      [1024, "1.00 KiB"],
      [102400, "100 KiB"],
      [2 ** 20, "1.00 MiB"],
      [1.19 * 2 ** 30, "1.19 GiB"],
    ],
  ],
];

for (const [write, cases] of WRITTEN)
  test(`numbers as ${write.name} writes them`, () => {
    for (const [value, text] of cases) assert.equal(write(value), text);
  });

test("a moment is in the unit of its span", () => {
  assert.equal(momentOf(0.1, 0.333), "100 of 333 ms");
  assert.equal(momentOf(0.2666, 1), "0.27 of 1.00 s");
  assert.equal(momentOf(0.5, 0.9996), "0.50 of 1.00 s");
  assert.equal(momentOf(600, 1234), "600.00 of 1,234 s");
  assert.deepEqual([waitOf(0.0034, 0.197), waitOf(0.034, 2.74)], ["3 ms", "0.03 s"]);
});

test("what there is not leaves no gap in a line", () => {
  assert.equal(joined(["a", "", null, "b"]), "a · b");
  assert.equal(
    bytes(2048, (number) => number.replace(".", ",")),
    "2,00 KiB",
  );
});
