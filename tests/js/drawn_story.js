// Run with the path of the story's data: prints what its drawings say and draw from paragraph to
// paragraph and under the hand, wide and as on a phone. tests/worlds/as_told.py keeps it.

import { readFileSync } from "node:fs";
import process from "node:process";

import { digest, print, Seen } from "./seen.js";

const { blend } = await import("../../assets/player/figure/card.js");
const { Drawing } = await import("../../assets/player/figure/drawing.js");
const { hand } = await import("../../assets/player/figure/hand.js");
const { cost } = await import("../../assets/player/story/cost.js");
const { fold } = await import("../../assets/player/story/fold.js");
const { times } = await import("../../assets/player/story/times.js");
const { token } = await import("../../assets/player/story/token.js");
const { worth } = await import("../../assets/player/story/worth.js");

const KINDS = { token, cost, fold, hand, times, worth };
const { sections, drawings } = JSON.parse(readFileSync(process.argv[2], "utf8"));

for (const [id, { figure, beats }] of Object.entries(sections)) {
  if (!figure.drawing) continue;
  const kind = KINDS[figure.drawing];
  for (const [w, h] of [
    [620, 420],
    [360, 300],
  ]) {
    const card = new Drawing(/** @type {any} */ (new Seen()), kind, drawings[id], figure);
    Object.assign(card.surface, { w, h });
    const tell = (name) => {
      card.draw();
      const { canvas } = card.surface;
      print(`${id} ${name}, ${w} px`, `${card.says.words} ${digest(card.root.seen)}`);
      return canvas.words;
    };
    for (const [n, beat] of beats.entries()) {
      const ends = [0, 1].map((end) =>
        Object.fromEntries(
          Object.entries(beat).flatMap(([key, value]) =>
            Array.isArray(value) ? [[key, value[end]]] : [],
          ),
        ),
      );
      for (const share of [0, 0.2, 0.4, 0.6, 0.8, 1]) {
        card.show(blend(ends[0], ends[1], share));
        print("    drawn", tell(`paragraph ${n + 1} at ${share}`));
      }
    }
    for (const { key, from, to, step = 1 } of kind.knobs?.(drawings[id]) ?? [card.slider])
      for (let at = from; at <= to; at += step * Math.max(1, Math.round((to - from) / step / 6))) {
        card.take({ [key]: at });
        tell(`${key} ${at}`);
      }
    if (kind.switches)
      for (const n of kind.switches.words.keys()) {
        card.take({ [kind.switches.key]: n });
        tell(kind.switches.words[n]);
      }
    for (let y = 5; y < h && kind.point; y += 40)
      for (let x = 5; x < w; x += 60) {
        const found = kind.point(x, y, card.now(), drawings[id], { w, h, small: w < 420 });
        if (found) print(`    at ${x}, ${y}`, JSON.stringify(found));
      }
    card.release(false);
    card.show(kind.print(drawings[id], beats[0]));
    tell("on paper");
  }
}
