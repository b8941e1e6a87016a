// Draws the people of the opening: a face, a question, the answer so far, and how long it took.

import { measure, roundBox, setFont, shorten } from "../../parts/surface.js";
import { t } from "../../parts/speech.js";
import { lerp } from "../../views/phases.js";
import { chipAt, widthOf, write } from "./brush.js";
import { inSeconds } from "./plot.js";

/** @typedef {import("./brush.js").Box} Box */
/**
 * @typedef {{plot: import("./plot.js").Plot, palette: Palette, moment: number, both: boolean,
 * settled: number}} Scene moment: -1 while people ask; both: both runs are shown; settled: 0 while
 * people ask, 1 when they are beside the lanes
 */

/**
 * What is said beside a person about their time in one run. @param {Scene} scene
 * @param {import("./plot.js").Course} course @param {number} r
 */
function stateOf({ moment }, course, r) {
  const { enters, from, done } = course.lives[r];
  if (from > 0 && moment < enters) return t(`waits ${moment.toFixed(2)} s`);
  if (moment >= done) return t(`done ${done.toFixed(2)} s`);
  return t(course.written(r, moment) ? "writing" : "reading");
}

/** A person in a box. @param {Ink} g @param {Scene} scene @param {number} r @param {Box} box */
export function drawPerson(g, scene, r, box) {
  const { plot, palette, moment, both, settled } = scene;
  const course = both ? plot.fast : plot.slow;
  const life = course.lives[r];
  const colours = palette.of(life.request);
  const asks = moment < 0;
  const waits = !asks && life.from > 0 && moment < life.enters;
  const finished = !asks && moment >= life.done;
  const n = asks ? 0 : course.written(r, moment);
  if (box.h < 40) return drawSlim(g, scene, r, box, { waits, finished, n });
  const face = 36;
  const middle = box.y + Math.min(box.h / 2, lerp(37, 26, settled));
  drawFace(g, box.x + face / 2, middle, colours);
  const x = box.x + face + 12;
  const card = { x, y: box.y, w: box.x + box.w - x, h: box.h };
  const writes = asks || (!waits && !finished && moment > 0);
  const ground = writes ? colours.tint : palette.panel;
  const edge = waits ? colours.solid : finished ? palette.rule : colours.tint;
  roundBox(g, card, 12, ground, edge, waits ? 1.3 : 1, waits ? [4, 3] : []);
  if (!waits) {
    // the tail of a speech bubble
    g.beginPath();
    g.moveTo(x + 0.8, middle - 6);
    g.lineTo(x - 7, middle);
    g.lineTo(x + 0.8, middle + 6);
    g.fillStyle = finished ? palette.rule : colours.tint;
    g.fill();
  }
  sayIn(g, scene, r, card, n);
  if (moment <= 0) return;
  const [right, foot] = [card.x + card.w - 12, box.y + box.h - 14];
  const [bold, small] = [`600 12px ${palette.sans}`, `12px ${palette.sans}`];
  if (!both) {
    const tag = waits || finished ? stateOf(scene, course, r) : "";
    if (tag) write(g, tag, right, foot, bold, waits ? palette.ink : palette.soft, 1);
    return;
  }
  const now = stateOf(scene, plot.fast, r);
  write(g, now, right, foot, bold, palette.ink, 1);
  const old = stateOf(scene, plot.slow, r);
  if (old === now) return;
  const end = right - widthOf(g, now, bold) - 6;
  const short = `${old}  →`;
  const whole = `${t("old way")} ${short}`;
  const said = widthOf(g, whole, small) < end - card.x - 12 ? whole : short;
  write(g, said, end, foot, small, palette.soft, 1);
}

/** @param {Ink} g @param {number} x @param {number} y @param {Colours} colours */
function drawFace(g, x, y, colours) {
  g.fillStyle = colours.tint;
  g.beginPath();
  g.arc(x, y, 18, 0, 7);
  g.fill();
  g.fillStyle = colours.solid;
  g.beginPath();
  g.arc(x, y - 4, 6.5, 0, 7);
  g.fill();
  g.beginPath();
  g.arc(x, y + 16, 12.4, Math.PI * 1.09, Math.PI * 1.91); // shoulders, cut off by the circle
  g.arc(x, y, 17.2, 0.817, Math.PI - 0.817);
  g.fill();
}

/**
 * Write the prompt, and the end of what the model has written. @param {Ink} g @param {Scene} scene
 * @param {number} r @param {Box} card @param {number} n tokens
 */
function sayIn(g, { plot, palette, moment, both, settled }, r, card, n) {
  const course = both ? plot.fast : plot.slow;
  const { request } = course.lives[r];
  const asks = moment < 0;
  const last = card.h < 76 ? 13 : 14;
  const size = asks ? lerp(card.w > 360 ? 18 : card.w > 320 ? 16 : 14, last, settled) : last;
  const [font, bold] = [`${size}px ${palette.sans}`, `700 ${size}px ${palette.mono}`];
  const line = size + 6;
  const room = card.w - 24;
  const indent = widthOf(g, `${request.letter}  `, bold);
  // room for the line about the time
  const foot = both || (moment >= 0 && (!n || moment >= course.lives[r].done)) ? 18 : 0;
  const most = Math.max(1, Math.floor((card.h - 12 - foot) / line));
  let asked = wrapped(g, `${r}`, plot.prompts[r].split(/(?= )/), font, room, indent);
  const shown = n && most < 4 ? 1 : most;
  if (asked.length > shown) {
    setFont(g, font);
    const last = shorten(g, `${asked[shown - 1]} …`, room - (shown === 1 ? indent : 0));
    asked = [...asked.slice(0, shown - 1), last];
  }
  const top = card.y + 16;
  const y = asks ? lerp(card.y + card.h / 2 - ((asked.length - 1) * line) / 2, top, settled) : top;
  write(g, request.letter, card.x + 12, y, bold, palette.ink);
  const colour = asks ? palette.ink : palette.soft;
  asked.forEach((text, i) =>
    write(g, text.trim(), card.x + 12 + (i ? 0 : indent), y + i * line, font, colour),
  );
  const left = most - asked.length;
  if (!n || left <= 0) return;
  // only the last tokens: these are more than fit
  const pieces = course.run
    .answer(request)
    .slice(Math.max(0, n - 60), n)
    .map((piece) => piece.replace(/\n+/g, " "));
  const lines = wrapped(g, `${r} ${n}`, pieces, font, room - widthOf(g, "… ", font), 0);
  const cut = lines.length > left || n > 60 ? "… " : ""; // marks that the beginning is cut off
  lines.slice(-left).forEach((text, i) => {
    const said = (i ? "" : cut) + text.trim();
    write(g, said, card.x + 12, y + (asked.length + i) * line, font, palette.ink);
  });
}

/**
 * Draw a person in one line, on a narrow screen. @param {Ink} g @param {Scene} scene
 * @param {number} r @param {Box} box @param {{waits: boolean, finished: boolean, n: number}} now
 */
function drawSlim(g, { plot, palette, moment, both }, r, box, { waits, finished, n }) {
  const course = both ? plot.fast : plot.slow;
  const { request, done } = course.lives[r];
  const y = box.y + box.h / 2;
  chipAt(g, palette, request, { x: box.x + box.h / 2 - 3, y }, box.h - 10, waits);
  const [font, bold] = [`12px ${palette.sans}`, `600 12px ${palette.sans}`];
  const x = box.x + box.h + 2;
  const right = box.x + box.w - 2;
  const time = (/** @type {import("./plot.js").Course} */ { lives }) => {
    const { from, enters, done } = lives[r];
    if (moment >= done) return inSeconds(done);
    return from > 0 && moment < enters ? t("waits") : "…";
  };
  let room = right - x - 8;
  if (moment > 0 && both) {
    if (r === 0) {
      const small = `10px ${palette.sans}`;
      write(g, t("old way"), right - 48, box.y + 5, small, palette.soft, 1);
      write(g, t("now"), right, box.y + 5, small, palette.ink, 1);
    }
    write(g, time(plot.fast), right, y, bold, palette.ink, 1);
    write(g, time(plot.slow), right - 48, y, font, palette.soft, 1);
    room -= 94;
  } else if (moment > 0 && (waits || finished)) {
    const whole = t(waits ? `waits ${moment.toFixed(2)} s` : `done ${done.toFixed(2)} s`);
    const tag = box.w < 240 ? time(course) : whole;
    write(g, tag, right, y, bold, waits ? palette.ink : palette.soft, 1);
    room -= widthOf(g, tag, bold);
  }
  const reply = course.run
    .answer(request)
    .slice(Math.max(0, n - 30), n)
    .join("")
    .replace(/\s+/g, " ")
    .trimStart();
  setFont(g, font);
  const taken = n ? Math.min(room * 0.55, measure(g, reply)) : 0;
  const asked = shorten(g, plot.prompts[r], room - taken);
  write(g, asked, x, y, font, palette.soft);
  let tail = n > 30 ? `… ${reply}` : reply;
  const left = room - measure(g, asked) - 6;
  // drop whole words
  for (let rest = reply; rest && measure(g, tail) > left; tail = rest && `… ${rest}`)
    rest = rest.slice(rest.indexOf(" ") + 1 || rest.length);
  if (tail) write(g, tail, x + measure(g, asked) + 5, y, font, palette.ink);
}

/** @type {Map<string, string[]>} */
const broken = new Map();

/**
 * Wrap pieces of text into lines that fit; a piece that does not begin with a space stays with the
 * word before it. @param {Ink} g @param {string} of identifies the text @param {string[]} pieces
 * @param {string} font
 * @param {number} room @param {number} indent of the first line
 */
function wrapped(g, of, pieces, font, room, indent) {
  const key = `${of} ${font} ${Math.round(room)}`;
  const known = broken.get(key);
  if (known) return known;
  setFont(g, font);
  const lines = [];
  let line = "";
  let width = indent;
  for (let i = 0; i < pieces.length;) {
    let word = pieces[i];
    for (i += 1; i < pieces.length && !/^\s/.test(pieces[i]); i += 1) word += pieces[i];
    const more = measure(g, word);
    if (line && width + more > room) {
      lines.push(line);
      [line, width] = ["", 0];
    }
    line += word;
    width += more;
  }
  if (line) lines.push(line);
  if (broken.size > 2000) broken.clear();
  broken.set(key, lines);
  return lines;
}
