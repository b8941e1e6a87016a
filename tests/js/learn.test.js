import assert from "node:assert/strict";
import test from "node:test";

globalThis.window = /** @type {any} */ ({});
const { Home } = await import("../../assets/player/learn/home.js");
const { Learn } = await import("../../assets/player/learn/learn.js");
const { Task } = await import("../../assets/player/learn/task.js");

test("of two languages chosen in a row the last one stays, whichever comes first", async () => {
  const come = {};
  const documentOf = (language) =>
    `data:application/json,${JSON.stringify({ language, words: {}, questions: {} })}`;
  const none = () => {};
  const learn = Object.assign(Object.create(Learn.prototype), {
    options: { documents: {} },
    engines: {
      can: () => true,
      call: (_, language) =>
        new Promise((resolve) => {
          come[language] = () => resolve({ url: documentOf(language) });
        }),
    },
    root: {},
    task: {},
    home: { draw: none },
    ...Object.fromEntries(["_speak", "_labels", "_remember"].map((name) => [name, none])),
  });
  const both = ["de", "en"].map((language) => learn.speak(language));
  await new Promise((resolve) => setTimeout(resolve));
  come.en();
  await both[1];
  come.de();
  await both[0];
  assert.equal(learn.language, "en");
});

test("a sheet that could not be made leaves no empty tab of the browser", async () => {
  const done = [];
  window.open = () => /** @type {any} */ ({ close: () => done.push("closed") });
  const call = async () => {
    throw new Error("The server cannot be reached.");
  };
  const learn = {
    options: {},
    engines: { can: () => true, call },
    watch: { toast: (words) => done.push(words) },
  };
  await Home.prototype._paper.call({ learn }, { name: "l" }, "learner");
  assert.deepEqual(done, ["closed", "The server cannot be reached."]);
});

test("what runs of a task showed is told in the language that is chosen", async () => {
  const call = async (_check, _lesson, id, language) => ({
    goals: [{ name: "x", met: id === "first", says: `${id}, ${language}` }],
  });
  const lesson = { name: "l", stops: [{}] };
  const task = Object.assign(Object.create(Task.prototype), {
    on: true,
    ran: ["first", "second"],
    found: { x: { met: true, says: "first, en" } },
    learn: { engines: { call }, language: "de", lesson, at: 0 },
    _draw() {},
  });
  task.renew();
  await new Promise((resolve) => setTimeout(resolve));
  assert.equal(task.found.x.says, "first, de");
});

test("Enter belongs to what it selects, on a canvas that is walked too", () => {
  const gone = [];
  globalThis.document = /** @type {any} */ ({ querySelector: () => null });
  const learn = Object.assign(Object.create(Learn.prototype), {
    page: { dataset: { part: "learn" } },
    lesson: {},
    task: {},
    go: (by) => gone.push(by),
  });
  const press = (on) =>
    learn._key({
      key: "Enter",
      target: { closest: (selectors) => selectors.split(", ").includes(on) },
      preventDefault() {},
      stopImmediatePropagation() {},
    });
  for (const on of ["button", "summary", "[role=listbox]"]) press(on);
  assert.deepEqual(gone, []);
  press("div");
  assert.deepEqual(gone, [1]);
});
