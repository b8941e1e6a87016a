// The opening's picture as a pure function of the seconds since it began: people ask one model;
// then its lanes under the old policy; then, below these and on the same clock, its lanes under the
// new one. Playing, seeking, still pictures and tests all use this function.

import { t } from "../../parts/speech.js";
import { clamp } from "../../parts/dom.js";
import { roundBox } from "../../parts/surface.js";
import { easeBoth, lerp } from "../../views/phases.js";
import { between, chipAt, write } from "./brush.js";
import { drawCourse } from "./course.js";
import { drawPerson } from "./people.js";
import { inWords, share } from "./plot.js";

/** @typedef {import("./brush.js").Box} Box */
/** @typedef {import("./plot.js").Plot} Plot */

/**
 * Where everything is drawn. bare: only the lanes.
 * @param {Box} box @param {number} n people @param {boolean} bare
 */
export function layOut(box, n, bare) {
  return box.w < 820 ? narrow(box, n, bare) : wide(box, n);
}

/** People beside the lanes; while they ask, around the model. @param {Box} box @param {number} n */
function wide({ x, y, w, h }, n) {
  const side = clamp(w * 0.29, 300, 390);
  const card = Math.min(104, (h - (n - 1) * 8) / n);
  const tall = n * card + (n - 1) * 8;
  const top = y + (h - tall) / 2;
  const [left, room] = [x + side + 18, w - side - 18];
  const [aw, ah] = [Math.min(450, w * 0.325), Math.min(74, h / 6)];
  const rows = Math.ceil(n / 2);
  const model = Math.min(250, h * 0.46);
  return {
    small: false,
    people: Array.from({ length: n }, (_, i) => ({ x, y: top + i * (card + 8), w: side, h: card })),
    asking: Array.from({ length: n }, (_, i) => {
      const row = (i >> 1) - (rows - 1) / 2;
      const inset = row === 0 ? 0 : w * 0.035;
      return {
        x: i % 2 ? x + w - aw - inset : x + inset,
        y: y + h / 2 + row * (ah + h * (rows > 3 ? 0.05 : 0.145)) - ah / 2,
        w: aw,
        h: ah,
      };
    }),
    model: { x: x + w / 2 - model / 2, y: y + h / 2 - model / 2, w: model, h: model },
    alone: { x: left, y: top + tall * 0.19, w: room, h: tall * 0.62 },
    slow: { x: left, y: top, w: room, h: (tall - 12) / 2 },
    fast: { x: left, y: top + (tall + 12) / 2, w: room, h: (tall - 12) / 2 },
  };
}

/**
 * People above the lanes, one line each; while they ask, above the model. @param {Box} box
 * @param {number} n @param {boolean} bare
 */
function narrow({ x, y, w, h }, n, bare) {
  const two = h < 420; // whether people are in two columns
  const pairs = two && w >= 480; // whether two questions fit side by side
  const [line, gap] = two ? [26, 4] : [34, 5];
  const people = Array.from({ length: n }, (_, i) =>
    two
      ? { x: x + ((i % 2) * (w + 8)) / 2, y: y + (i >> 1) * (line + gap), w: (w - 8) / 2, h: line }
      : { x, y: y + i * (line + gap), w, h: line },
  );
  const top = bare ? y : people[n - 1].y + line + 10;
  const rest = y + h - top;
  const beside = bare && w >= 520;
  const model = Math.min(96, h * 0.22);
  const step = (h - model - 16) / (pairs ? Math.ceil(n / 2) : n);
  const tall = Math.min(step - 8, 58);
  return {
    small: true,
    people,
    asking: Array.from({ length: n }, (_, i) =>
      pairs
        ? { x: x + ((i % 2) * w) / 2, y: y + (i >> 1) * step, w: w / 2 - 8, h: tall }
        : { x: x + (i % 2) * w * 0.12, y: y + i * step, w: w * 0.88, h: tall },
    ),
    model: { x: x + w * 0.2, y: y + h - model, w: w * 0.6, h: model },
    alone: { x, y: top, w, h: bare ? rest : Math.min(rest, 250) },
    slow: beside ? { x, y, w: (w - 10) / 2, h } : { x, y: top, w, h: (rest - 8) / 2 },
    fast: beside
      ? { x: x + (w + 10) / 2, y, w: (w - 10) / 2, h }
      : { x, y: top + (rest + 8) / 2, w, h: (rest - 8) / 2 },
  };
}

/**
 * Draw the picture at a second of the opening.
 * @param {Ink} g @param {Box} box @param {Plot} plot @param {Palette} palette @param {number} at
 * @param {number} d device pixels per pixel @param {boolean} bare only the lanes
 */
export function drawOpening(g, box, plot, palette, at, d = 1, bare = false) {
  const { slow, fast } = plot;
  const place = layOut(box, slow.lives.length, bare);
  const away = easeBoth(share(at, 3.5, 4.5)); // people move from the model to its lanes
  const both = easeBoth(share(at, 10.8, 11.6));
  const moment = plot.moment(at);
  const extent = plot.extent(moment);
  const boxes = place.asking.map((from, r) => between(from, place.people[r], away));
  const cards = boxes.map((one) => ({ x: one.x + 17, y: one.y + Math.min(one.h / 2, 26) }));
  if (away < 1 && !bare) drawAsking(g, place, boxes, plot, palette, at, away);
  if (!bare)
    boxes.forEach((one, r) => {
      const born = share(at, 0.15 + r * 0.3, 0.5 + r * 0.3);
      if (born <= 0) return;
      g.globalAlpha = born;
      const up = { ...one, y: one.y + (1 - born) ** 3 * 14 };
      const now = { moment: away < 1 ? -1 : moment, both: both >= 1, settled: away };
      drawPerson(g, { plot, palette, ...now }, r, up);
    });
  g.globalAlpha = 1;
  if (away > 0) {
    const showing = { palette, extent, at, cards };
    const old = between(between(place.model, place.alone, away), place.slow, both);
    const before = {
      ...showing,
      moment,
      title: t("The old way: static batching"),
      enters: plot.entries(slow, at >= 11.2),
      arrives: at < 6 ? at - 4.35 : null,
      main: false,
    };
    drawCourse(g, slow, old, before, share(away, 0.3, 1), d);
    if (both > 0.55) {
      const below = { ...place.fast, y: place.fast.y + (1 - both) * 30 };
      const after = {
        ...showing,
        moment: at < 11.6 ? 0 : moment,
        title: t("Continuous batching"),
        enters: plot.entries(fast, true),
        arrives: at < 12.4 ? at - 11.2 : null,
        main: true,
      };
      drawCourse(g, fast, below, after, share(both, 0.55, 1), d);
    }
  }
  g.globalAlpha = 1;
}

/**
 * Draw the model, and a chip that moves to it from each person. @param {Ink} g
 * @param {ReturnType<typeof layOut>} place @param {Box[]} boxes @param {Plot} plot
 * @param {Palette} palette @param {number} at @param {number} away
 */
function drawAsking(g, { small, model }, boxes, plot, palette, at, away) {
  const middle = { x: model.x + model.w / 2, y: model.y + model.h / 2 };
  boxes.forEach((box, r) => {
    const p = share(at, 0.6 + r * 0.3, 1.4 + r * 0.3);
    if (p <= 0 || away > 0) return;
    const left = box.x + box.w / 2 < middle.x;
    const from = small
      ? { x: box.x + box.w / 2, y: box.y + box.h }
      : { x: left ? box.x + box.w + 6 : box.x - 6, y: box.y + box.h / 2 };
    const to = small
      ? { x: middle.x, y: model.y }
      : { x: left ? model.x : model.x + model.w, y: middle.y + (from.y - middle.y) * 0.25 };
    const bend = {
      x: (from.x + to.x) / 2,
      y: small ? (from.y + to.y) / 2 : lerp(from.y, to.y, 0.2),
    };
    if (!small) {
      g.strokeStyle = palette.rule;
      g.lineWidth = 1.5;
      g.beginPath();
      g.moveTo(from.x, from.y);
      g.quadraticCurveTo(bend.x, bend.y, to.x, to.y);
      g.stroke();
    }
    if (p >= 1) return;
    const e = easeBoth(p);
    const curve = (/** @type {"x" | "y"} */ axis) =>
      (1 - e) ** 2 * from[axis] + 2 * (1 - e) * e * bend[axis] + e * e * to[axis];
    const here = { x: curve("x"), y: curve("y") };
    chipAt(g, palette, plot.fast.lives[r].request, here, 22, false);
  });
  g.globalAlpha = clamp((1 - away * 3) * share(at, 0, 0.3), 0, 1);
  roundBox(g, model, 18, palette.ink);
  const unit = Math.min(model.w, model.h);
  const low = unit < 130;
  const size = low ? Math.min(130, model.h * 1.7) : unit;
  const logo = low
    ? { x: middle.x - 78, y: middle.y - size * 0.155 }
    : { x: middle.x - unit * 0.2, y: middle.y - unit * 0.27 };
  const bars = [0, 0.08, 0.02].map((dx, i) => ({
    x: logo.x + dx * size,
    y: logo.y + i * size * 0.11,
    w: [0.24, 0.28, 0.16][i] * size,
    h: size * 0.08,
  }));
  bars.forEach((bar, i) => roundBox(g, bar, 3, palette.hues[i].solid));
  const name = t("one model");
  const lanes = t("{many} lanes", { many: inWords(plot.slow.run.numLanes) });
  const { x, y } = middle;
  const large = `600 ${low ? 16 : clamp(unit * 0.1, 13, 22)}px ${palette.sans}`;
  const plain = `${low ? 13 : 15}px ${palette.sans}`;
  const [left, align] = low ? [x - 14, 0] : [x, 0.5];
  const [first, second] = low ? [-9, 12] : [unit * 0.17, unit * 0.3];
  write(g, name, left, y + first, large, palette.panel, align);
  write(g, lanes, left, y + second, plain, palette.panel, align);
  g.globalAlpha = 1;
}
