// Run with the path of the lessons' document: prints what Learn has on screen of the list of lessons,
// of every stop, of its question answered wrongly and rightly, and of the task at the end.
// tests/worlds/as_told.py keeps it.

import { readFileSync } from "node:fs";
import process from "node:process";

import { digest, print, Seen } from "./seen.js";

const kept = new Map();
Object.assign(globalThis, {
  localStorage: {
    getItem: (key) => kept.get(key) ?? null,
    setItem: (...entry) => kept.set(...entry),
  },
  location: { hash: "", search: "" },
  history: { replaceState() {} },
  IntersectionObserver: class {
    observe() {}
  },
});
window.parent = window;
const { Home } = await import("../../assets/player/learn/home.js");
const { Learn } = await import("../../assets/player/learn/learn.js");
const { Progress } = await import("../../assets/player/learn/progress.js");
const { Choose } = await import("../../assets/player/learn/questions.js");
const { byPointer } = await import("../../assets/player/learn/sentences.js");
const { Task } = await import("../../assets/player/learn/task.js");

const doc = JSON.parse(readFileSync(process.argv[2], "utf8"));
const root = new Seen("section");
const stage = [];
const note =
  (name) =>
  (...given) =>
    void stage.push([name, ...given]);
const letters = ["A", "B", "C", "D", "E", "F"];
const watch = {
  state: { run: { requests: letters.map((letter, hue) => ({ letter, hue })) }, layout: "desk" },
  recorded: (name) => ({ name, url: name }),
  ...{ redraw() {}, enlarge() {}, stay() {}, engines: {}, running: false },
  ...{
    edit: note("edit"),
    turnToStep: note("turnToStep"),
    need: note("need"),
    toast: note("toast"),
  },
};
const goals = (lesson, met) =>
  lesson.stops
    .at(-1)
    .goals?.map(({ name }, n) => ({ name, met, step: 3 + n, says: [`shows ${n}`] }));
const learn = Object.assign(Object.create(Learn.prototype), {
  ...{ root, doc, watch, language: "en", lesson: null, at: 0, large: false },
  $: (selector) => root.querySelector(selector),
  page: { dataset: { part: "learn" }, style: { setProperty() {} }, toggleAttribute() {} },
  options: { tabs: [{ title: "Watch" }], documents: {}, papers: {}, captions: {}, only: null },
  engines: {
    can: () => true,
    call: async (_check, name, id) => ({
      goals: goals(
        doc.lessons.find((lesson) => lesson.name === name),
        id === "good",
      ),
    }),
  },
  words: Object.fromEntries(
    Object.entries(doc.words).map(([name, text]) => [name, byPointer(text)]),
  ),
  progress: new Progress(),
  stage: Object.fromEntries(
    ["enter", "leave", "show", "point", "free"].map((name) => [name, note(name)]),
  ),
});
learn.home = new Home(learn);
/** @type {(e: object) => void} */
let ran = () => {};
document.addEventListener = (name, act) => {
  if (name === "inflight-ran") ran = act;
};
document.documentElement = learn.page;
learn.task = new Task(learn);

const tell = (name, ...more) => {
  print(name, [...more, digest([root.seen, stage.splice(0)])].join(" "));
};
const parts = (...names) => {
  for (const name of names) print(`    ${name}`, learn.$(name).words);
};

learn.$(".tabs").append(new Seen("button"));
learn._labels();
learn.home.draw();
tell("the list");
parts(".lesson-list", ".asked", ".terms dl");
for (const lesson of [...doc.lessons, doc.questions]) {
  for (const [n, stop] of lesson.stops.entries()) {
    await learn.open(lesson, n);
    tell(`${lesson.name} ${stop.name}`);
    parts(".stop-title", ".stop-text", ".stop-ask", ".stop-count", ".next-button", ".heard");
    const { asking } = learn;
    if (asking instanceof Choose)
      for (const i of asking.buttons.keys()) {
        asking.key(i + 1);
        tell(`    answer ${i + 1}`, asking.answer.words);
      }
    else if (asking) {
      asking.check();
      tell("    nothing is painted", asking.answer.words);
      asking._fill(() => true);
      asking.check();
      tell("    all is painted", asking.answer.words);
      asking.reveal();
      tell("    shown", asking.answer.words);
      asking.clear();
      tell("    cleared", asking.answer.words);
      asking._fill((q, k) => asking.ask.allowed[q][k] === "1");
      asking.check();
      tell("    painted", asking.answer.words);
    }
  }
  if (lesson.stops.at(-1).name === "now-you") {
    learn.beginTask();
    tell(`    task of ${lesson.name}`);
    for (const id of ["bad", "good"]) {
      ran({ detail: { id } });
      for (let n = 0; n < 9; n += 1) await null;
      tell(`    a run that is ${id}`);
      parts(".task-title", ".task-text", ".task-goals", ".task-next", ".heard");
    }
  }
  learn.close();
  tell(`the list after ${lesson.name}`, learn.$(".how-far").words);
}
