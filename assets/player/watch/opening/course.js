// Draws one policy's lanes on the opening's clock: the same lanes as Watch's, and before them the
// door where people wait.

import { t } from "../../parts/speech.js";
import { clipped, measure, roundBox } from "../../parts/surface.js";
import { laneScale, roundUnit } from "../../run/lane_layout.js";
import { LaneInk } from "../../views/lane_ink.js";
import { along, easeBoth } from "../../views/phases.js";
import { chipAt, widthOf, write } from "./brush.js";
import { capital, inSeconds, share } from "./plot.js";

/** @typedef {import("./brush.js").Box} Box */
/** @typedef {import("./plot.js").Course} Course */
/**
 * What `drawCourse` shows. moment: seconds of the runs; extent: seconds across the chart; at:
 * seconds of the opening; enters: when each request enters its lane, in seconds of the opening;
 * arrives: since when chips fly from cards to the door, or null; main: whether this chart is the
 * one to look at.
 * @typedef {{palette: Palette, title: string, moment: number, extent: number, at: number, enters:
 * number[], arrives: number | null, cards: {x: number, y: number}[], main: boolean}} Showing
 */

/** @type {WeakMap<Course, LaneInk>} */
const inks = new WeakMap();

/** An easing curve: fast at first, then slower. @param {number} p */
const landing = (p) => 1 - (1 - p) ** 3;

/**
 * @param {Ink} g @param {Course} course @param {Box} box @param {Showing} showing
 * @param {number} strength @param {number} d device pixels per pixel
 */
export function drawCourse(g, course, box, showing, strength, d) {
  const { palette, moment, extent, title, main } = showing;
  const { run } = course;
  const small = box.h < 170 || box.w < 500;
  const pad = small ? 10 : 16;
  const over = moment >= course.end;
  g.globalAlpha = strength;
  roundBox(g, box, 10, palette.panel, main ? palette.ink : palette.rule, main ? 1.5 : 1);
  const head = box.y + (small ? 14 : 21);
  const size = small ? 12 : 14;
  const time = over
    ? t("all done: {time}", { time: inSeconds(course.end) })
    : inSeconds(Math.max(0, moment));
  const timeFont = `${over ? "600 " : ""}${size}px ${palette.sans}`;
  write(g, time, box.x + box.w - pad, head, timeFont, over ? palette.ink : palette.soft, 1);
  const named = `600 ${size}px ${palette.sans}`;
  const fits = widthOf(g, title, named) < box.w - 2 * pad - widthOf(g, time, timeFont) - 8;
  const short = capital((title.split(":").at(-1) || "").trim());
  write(g, fits ? title : short, box.x + pad, head, named, palette.ink);

  const axis = small ? 18 : 24;
  const door = small ? 26 : 44;
  const [left, top] = [pad + (small ? 0 : 8), small ? 24 : 38];
  const w = box.w - left - pad;
  const lanes = { x: box.x + left, y: box.y + top, w, h: box.h - top - door };
  const pitch = (lanes.h - axis) / run.numLanes;
  const scale = laneScale(run, true, 0, lanes.w / extent);
  const x = (/** @type {number} */ s) => (s / extent) * lanes.w; // of seconds since its first step
  const completed = course.completed(moment);
  const ink = inks.get(course) || new LaneInk();
  inks.set(course, ink);
  const state = { run, palette, focus: null, presenter: false };
  const words = small ? 0 : pitch > 60 ? 15 : 13;
  const room = { axis, end: lanes.w, gutter: 0, queue: false };
  g.translate(lanes.x, lanes.y);
  ink.place(
    run,
    { w: lanes.w, h: lanes.h, d },
    { ...room, scale, font: small ? 12 : 11, words, until: completed - 1 },
  );
  ink.drawGround(g, state, () => drawAxis(g, palette, extent, lanes.w, axis, small));
  const past = completed ? x(course.endOf(completed - 1)) : 0;
  const now = Math.min(x(moment), x(course.end));
  if (past > 0) clipped(g, 0, 0, past, lanes.h, () => ink.drawLanes(g, state, strength));
  // the step that is being computed is drawn paler
  if (now > past)
    clipped(g, past, 0, now - past, lanes.h, () => ink.drawLanes(g, state, strength * 0.5));
  g.globalAlpha = strength;
  if (moment > 0) {
    drawWaste(g, course, ink, showing, x);
    const bottom = axis + pitch * run.numLanes;
    drawNow(g, course, showing, strength, { x, top: axis, bottom, w: lanes.w, small });
  }
  g.translate(-lanes.x, -lanes.y);
  const place = (/** @type {number} */ lane) => lanes.y + axis + (lane + 0.5) * pitch;
  drawDoor(g, course, showing, {
    x: lanes.x,
    y: box.y + box.h - door / 2 - (small ? 0 : 3),
    w: lanes.w,
    small,
    at: (life) => ({ x: lanes.x + x(life.enters) + (small ? 8 : 13), y: place(life.lane) }),
  });
  g.globalAlpha = 1;
}

/**
 * Draw the axis of seconds. @param {Ink} g @param {Palette} palette @param {number} extent
 * @param {number} w @param {number} axis @param {boolean} small
 */
function drawAxis(g, palette, extent, w, axis, small) {
  const unit = roundUnit(extent, Math.max(2, w / (small ? 60 : 110)), false);
  for (let k = 0; k * unit <= extent; k += 1) {
    const x = (k * unit * w) / extent;
    g.fillRect(x, axis - 6, 1, 4);
    const label = `${t(String(Number((k * unit).toFixed(3))))}${k ? "" : " s"}`;
    const half = measure(g, label) / 2;
    if (x + half < w) g.fillText(label, k ? x - half : x, axis - 10);
  }
}

/**
 * Mark the time in which lanes are computed for a request that is already done. @param {Ink} g
 * @param {Course} course @param {LaneInk} ink @param {Showing} showing
 * @param {(s: number) => number} x
 */
function drawWaste(g, course, ink, { palette, moment }, x) {
  const words = t("for nobody");
  const font = `12px ${palette.sans}`;
  const width = widthOf(g, words, font);
  for (const { lane, done, leaves } of course.lives) {
    if (leaves <= done || moment <= done) continue;
    const [from, to] = [x(done), x(Math.min(moment, leaves))];
    const [y, h] = ink.lane(lane);
    if (to - from < width + 30 || h < 20) continue;
    const middle = (from + to) / 2;
    const box = { x: middle - width / 2 - 8, y: y + h / 2 - 10, w: width + 16, h: 20 };
    roundBox(g, box, 6, palette.panel);
    write(g, words, middle, y + h / 2 + 0.5, font, palette.soft, 0.5);
  }
}

/**
 * Draw where the clock is, and where this run ended. @param {Ink} g @param {Course} course
 * @param {Showing} showing @param {number} strength
 * @param {{x: (s: number) => number, top: number, bottom: number, w: number, small: boolean}} at
 */
function drawNow(g, course, { palette, moment }, strength, { x, top, bottom, w, small }) {
  const over = moment >= course.end;
  const now = Math.min(x(moment), w);
  if (over) {
    const end = x(course.end);
    g.fillStyle = palette.ink;
    g.fillRect(end - 1, top - 4, 2, bottom - top + 4);
    const words = inSeconds(course.end);
    const font = `700 13px ${palette.mono}`;
    const width = widthOf(g, words, font) + 14;
    if (now - end > width + 12) {
      roundBox(g, { x: end + 6, y: top + 2, w: width, h: 22 }, 6, palette.ink);
      write(g, words, end + 6 + width / 2, top + 13.5, font, palette.panel, 0.5);
    }
    const [middle, y, plain] = [(end + now) / 2, (top + bottom) / 2, `12px ${palette.sans}`];
    if (!small && now - end > 230)
      write(g, t("all lanes are free"), middle, y, plain, palette.soft, 0.5);
  }
  g.globalAlpha = strength * (over ? 0.25 : 1);
  g.fillStyle = palette.ink;
  g.fillRect(now - 0.75, top - 5, 1.5, bottom - top + 5);
  g.beginPath();
  g.arc(now, top - 6, 4, 0, 7);
  g.fill();
  g.globalAlpha = strength;
}

/**
 * Draw the requests before the door, and those that go through it. at: where a request's lane
 * begins.
 * @param {Ink} g @param {Course} course @param {Showing} showing @param {{x: number, y: number, w:
 * number, small: boolean, at: (life: Course["lives"][number]) => {x: number, y: number}}} door
 */
function drawDoor(
  g,
  course,
  { palette, moment, at: now, enters, arrives, cards },
  { x, y, w, small, at },
) {
  const size = small ? 17 : 22;
  const queued = course.lives
    .map((life, r) => ({ ...life, r }))
    .filter((life) => life.from > 0)
    .sort((a, b) => a.enters - b.enters || a.r - b.r);
  const label = t("At the door");
  const font = `12px ${palette.sans}`;
  const left = small ? 0 : widthOf(g, label, font) + 14;
  const unit = Math.min(128, (w - left) / Math.max(1, queued.length));
  /** @typedef {import("../../views/phases.js").Point} Point */
  /** @type {[RunRequest, Point, Point, number][]} */
  const flying = [];
  let places = 0;
  let anybody = false;
  for (const life of queued) {
    const gone =
      moment >= life.enters
        ? share(now, enters[life.r], enters[life.r] + (life.enters < 0.06 ? 0.5 : 0.28))
        : 0;
    const stand = { x: x + left + places * unit + size / 2, y };
    places += 1 - easeBoth(gone);
    if (gone >= 1) continue;
    anybody = true;
    if (gone > 0) flying.push([life.request, stand, at(life), gone]);
    else {
      const arrived =
        arrives === null ? 1 : landing(share(arrives, 0.25 + life.r * 0.07, 0.8 + life.r * 0.07));
      if (arrived <= 0) continue;
      const from = cards[life.r] || stand;
      chipAt(g, palette, life.request, along(from, stand, arrived), size, true);
      const words = unit < 100 ? inSeconds(moment) : t(`waits ${moment.toFixed(2)} s`);
      if (arrived >= 1 && moment > 0)
        write(g, words, stand.x + size / 2 + 6, y + 0.5, font, palette.ink);
    }
  }
  if (!small) write(g, label, x, y + 0.5, font, palette.soft);
  if (!anybody && moment > 0) write(g, t("nobody waits"), x + left, y + 0.5, font, palette.soft);
  for (const [request, from, to, p] of flying) {
    const [e, up] = [easeBoth(p), Math.sin(p * Math.PI)];
    const { x: left, y: top } = along(from, to, e);
    chipAt(g, palette, request, { x: left, y: top - up * 10 }, size + up * 5, false);
  }
  if (moment > 0) return;
  course.lives.forEach((life, r) => {
    // requests that enter their lanes in the first step
    if (life.from > 0) return;
    const arrived = arrives === null ? 1 : landing(share(arrives, r * 0.07, 0.55 + r * 0.07));
    const to = at(life);
    const from = cards[r] || to;
    if (arrived > 0) chipAt(g, palette, life.request, along(from, to, arrived), size, false);
  });
}
