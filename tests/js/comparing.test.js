// What Compare shows and says beside the race itself.

import assert from "node:assert/strict";
import { test } from "node:test";

import { documentOf, El, Event, finding, of } from "./elements.js";
import { two } from "./worlds.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "" },
  cancelAnimationFrame() {},
  ResizeObserver: class {
    observe() {}
  },
});
const { Charts } = await import("../../assets/player/compare/charts.js");
const { Chooser } = await import("../../assets/player/compare/chooser.js");
const { Compare } = await import("../../assets/player/compare/compare.js");
const { EquivalencePanel } = await import("../../assets/player/compare/equivalence.js");
const { NewComparison } = await import("../../assets/player/compare/new_comparison.js");
const { PlanPanel } = await import("../../assets/player/compare/plan.js");
const { Race } = await import("../../assets/player/compare/race.js");
const { Racer } = await import("../../assets/player/compare/racer.js");

test("a link names a moment by which all that is seen has happened, in the race's own unit", () => {
  const link = (now, clock = true, entry = /** @type {any} */ ({ name: "six" })) => {
    const race = { now, clock, racers: [{ name: "static" }, { name: "continuous" }] };
    const hash = of(Compare, { race, entry, palette: { dark: true } })._hash();
    return Object.fromEntries(new URLSearchParams(hash.slice(1)));
  };
  assert.equal(link(1.2341).at, "1.235");
  assert.equal(link(1.234).at, "1.234", "a moment of a link stays itself");
  assert.equal(link(0).at, "0.000");
  assert.deepEqual(link(7.9, false), {
    ...{ part: "compare", comparison: "six", at: "7", axis: "steps", who: "continuous" },
  });
  assert.deepEqual(
    link(1, true, { name: "six", doc: {} }),
    { part: "compare" },
    "it is nobody else's",
  );
});

test("on the other axis a race stands at the same share of its way", () => {
  const race = of(Race, { clock: true, now: 1, racers: [], redraw() {} });
  race.racers = [
    {
      get length() {
        return race.clock ? 4 : 60;
      },
    },
  ];
  race._spread();
  const after = (clock) => (race.setClock(clock), [race.now, race.span]);
  assert.deepEqual(
    [after(false), after(false), after(true)],
    [
      [15, 60],
      [15, 60],
      [1, 4],
    ],
  );
});

test("a number of an equivalence is short, and none and nothing are told apart", () => {
  const $ = finding();
  const panel = of(EquivalencePanel, { $, leak: { checked: false }, prompts: new Map() });
  const said = (size) => {
    const r = { request: "a", letter: "A", solo: [1], batched: [1], max_logit_difference: size };
    panel.kept = { honest: { says: "", requests: [{ ...r, solo_text: "x", batched_text: "x" }] } };
    panel.say();
    return $(".pairs")
      .querySelector(".why")
      .textContent.replace(/^.*difference /, "");
  };
  assert.deepEqual([0, null, 0.00001234, 0.0099, 0.01, 12.345].map(said), [
    "0",
    "–",
    "1.2e-5",
    "9.9e-3",
    "0.01",
    "12.35",
  ]);
});

test("comparisons for which the bar has no room are listed in their order, never the open one", () => {
  const [bar, lists, strip] = [new El(), new El(), new El()];
  bar.className = "presets";
  const places = { ".top .presets": bar, ".groups": lists, ".presets.small": strip };
  const root = {
    querySelector: (/** @type {string} */ s) => places[s],
    querySelectorAll: () => [],
  };
  const chooser = new Chooser(root, { open() {}, share() {} });
  const names = ["a", "b", "c", "d", "e"];
  chooser.fill(
    names.map((name) => ({ name, title: name, shows: "" })),
    [],
  );
  const chips = bar.querySelectorAll("[data-name]");
  for (const chip of chips) chip.dataset.name = chip.getAttribute("data-name");
  const fitted = (room, open) => {
    for (const chip of chips) chip.classList.toggle("on", chip.dataset.name === open);
    bar.clientWidth = room;
    Object.defineProperty(bar, "scrollWidth", {
      get: () => 10 * chips.filter((chip) => !chip.hidden).length,
      configurable: true,
    });
    chooser.fit();
    const listed = chooser.more.children.slice(1).map((option) => option.textContent);
    const shown = chips.filter((chip) => !chip.hidden).map((chip) => chip.textContent);
    return [shown.join(""), listed.join(""), chooser.more.hidden, bar.classes.has("tight")];
  };
  assert.deepEqual(fitted(50, "a"), ["abcde", "", true, false]);
  assert.deepEqual(fitted(30, "a"), ["abc", "de", false, false]);
  assert.deepEqual(fitted(20, "e"), ["ae", "bcd", false, false]);
  assert.deepEqual(fitted(5, "c"), ["c", "abde", false, true], "it is cut, and says so");
});

test("where and when a comparison was measured is said, with whatever is to be known of it", () => {
  const said = (more, says = {}) => {
    const $ = finding();
    const doc = {
      ...{ created: "2026-11-30T12:00:00Z", name: "one", source: "recorded", figures: [] },
      says: { where: "a CPU", sure: "Sure.", outputs: "O.", verdict: "V.", method: "M.", ...says },
      data: { environment: { device: "cpu", model: { name: "gpt2" }, versions: {} } },
      ...more,
    };
    of(Compare, {
      ...{ root: { hasAttribute: () => false }, $, doc, charts: { show() {} } },
      ...{ equivalence: { say() {} }, _headline() {}, _table() {} },
    })._say();
    return [".where", ".source", ".outputs", ".verdict", ".method"].map(
      (name) => $(name).textContent,
    );
  };
  const [where, source, ...rest] = said({}, { notes: ["Two threads.", "One round was repeated."] });
  assert.equal(where, "Measured on a CPU. Two threads. One round was repeated.");
  assert.match(source, /^Recorded · .*2026.* · gpt2 · CPU$/);
  assert.deepEqual(rest, ["O.", "V.", "M."]);
  const [bare, here] = said({ source: "measured" });
  assert.equal(bare, "Measured on a CPU.");
  assert.match(here, /^Measured here · /);
});

test("a group of comparisons is a list, each with what it shows, and the chosen one opens", () => {
  const opened = [];
  const chooser = of(Chooser, { acts: { open: (entry) => opened.push(entry) } });
  const entries = ["a", "b"].map((name) => ({ name, title: `${name}!`, shows: `shows ${name}` }));
  const list = chooser._list("Engines", /** @type {any} */ (entries));
  const [heading, ...options] = list.children;
  assert.deepEqual([list.getAttribute("aria-label"), heading.textContent], ["Engines", "Engines"]);
  assert.deepEqual(
    options.map((el) => [el.getAttribute("value"), el.textContent, el.getAttribute("title")]),
    [
      ["a", "a!", "shows a"],
      ["b", "b!", "shows b"],
    ],
  );
  list.value = "b";
  list.dispatchEvent(new Event("change"));
  assert.deepEqual(opened, [entries[1]]);
});

test("a run of a race has a pace once its clock goes, by seconds alone, and at its end its time", () => {
  const race = { unit: "seconds", clock: true, hues: {}, about: {}, palette: {}, layout: "desk" };
  const racer = new Racer(/** @type {any} */ (race), "r", two()); // 5 tokens in 3.5 s
  racer.end = () => 0;
  const said = (now, more = {}) => {
    Object.assign(race, { now, clock: true, unit: "seconds", layout: "desk" }, more);
    racer.draw();
    const ended = !racer.final.hidden && racer.final.textContent;
    return [racer.numbers.textContent, ended];
  };
  assert.deepEqual(said(0), ["0 tokens in 0 steps", false]);
  assert.deepEqual(said(2), ["3 tokens in 2 steps · 2 tok/s", false]);
  assert.deepEqual(said(3.5), ["5 tokens in 3 steps · 1 tok/s", "3.50 s"]);
  assert.deepEqual(said(7), ["5 tokens in 3 steps · 1 tok/s", "3.50 s"], "it does not slow down");
  assert.deepEqual(said(4, { clock: false, unit: "steps" }), ["5 tokens in 3 steps", "3 steps"]);
  assert.deepEqual(said(2, { layout: "phone" })[0], "3 tokens");
});

test("a comparison says whether all its rounds were measured, or how many", async () => {
  const measured = async (asked, rounds) => {
    const said = [];
    const box = (value) => ({ value: String(value) });
    const spec = { config: { policy: "static" }, dtype: "bfloat16" };
    /** @type {any} */ let sent;
    const form = of(NewComparison, {
      presets: [{ name: "six", spec, shows: "" }],
      fields: {
        ...{ preset: { value: "six" }, repeats: box(asked) },
        ...{ max_num_seqs: box(4), max_num_batched_tokens: box(64) },
      },
      model: { fault: null, spec: { model: "m" } },
      device: { value: "auto" },
      drawer: {
        form: { querySelectorAll: () => [box("static"), box("continuous")] },
        busy: (on) => said.push(on),
        say: (...words) => said.push(words.join()),
      },
      options: {
        ask: async (_kind, what) => ((sent = what), { url: "u", rounds }),
        done: async () => {},
        phone: () => false,
      },
    });
    await form._run();
    assert.deepEqual(sent, {
      ...{ model: "m", device: "auto", policies: ["static", "continuous"], repeats: asked },
      config: { policy: "static", max_num_seqs: 4, max_num_batched_tokens: 64 },
    });
    assert.deepEqual([said[0], said.at(-1), form._running], [true, false, false]);
    return said.at(-2);
  };
  assert.equal(await measured(3, 3), "Done: the race shows the runs of median time.");
  assert.equal(await measured(1, 1), "Done: the race shows the run of each.");
  assert.equal(await measured(5, 2), "Time was up after 2 of 5 rounds: the race shows these.");
});

test("a new comparison begins with the requests on screen, unless its form is open", async () => {
  const presets = ["six", "one"].map((name) => ({ name, shows: "", spec: { config: { name } } }));
  const form = of(NewComparison, { presets, fields: { preset: { value: "one" } } });
  form._chosen = () => {};
  form.drawer = { isOpen: false };
  const page = of(Compare, { catalogue: { presets }, form });
  page.show = (_doc, spec) => (page.spec = spec);
  const after = async (name, more = {}) => {
    await page.open({ name, doc: {}, ...more });
    return [form.fields.preset.value, page.spec?.config.name];
  };
  assert.deepEqual(await after("engines-six"), ["six", "six"]);
  assert.deepEqual(await after("Measured 10:00 #0"), ["six", undefined]);
  form.drawer.isOpen = true;
  assert.deepEqual(await after("one"), ["six", "one"]);
  form.drawer.isOpen = false;
  assert.deepEqual(await after("one"), ["one", "one"]);
});

test("a figure's page holds its words as data: no markup in them is markup there", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] }); // the file's address is given up later
  /** @type {any} */ let saved;
  URL.createObjectURL = (blob) => ((saved = blob), "blob:");
  const plotly = { Plotly: {}, source: "var s = '</script>';" };
  const charts = of(Charts, { of: "six", _plotly: Promise.resolve(plotly), options: {} });
  const figure = { data: [{ name: "</script><b>", text: "</script><i>" }], layout: {} };
  await charts._save({ name: "a_b", finding: "x", figure }, "html");
  const page = await saved.text();
  assert.equal(page.split("</script>").length, 4, "of its three scripts alone");
  assert.ok(!page.includes("<b>") && !page.includes("<i>"));
  const [, data] = /type="application\/json">(.*?)<\/script>/.exec(page) || [];
  assert.deepEqual(JSON.parse(data || ""), figure);
});

test("settings of a plan are what stands between commas, each once; others are refused", async () => {
  const asked = [];
  const run = async (typed) => {
    const said = [];
    const plan = of(PlanPanel, {
      run: "r",
      el: { hasAttribute: () => false, toggleAttribute() {} },
      options: { ask: async (_kind, spec) => asked.push(spec) && {}, done: async () => {} },
      $: (selector) => ({ value: typed[selector.slice(6, -1)] ?? "" }),
      _message: (...words) => said.push(words),
    });
    await plan._run();
    return asked.splice(0)[0] ?? said.at(-1);
  };
  assert.deepEqual(await run({ lanes: "4, 8,,8 ", policies: "static,", ttft_s: " 0.5 " }), {
    ...{ run: "r", lanes: [4, 8], budgets: [], blocks: [], policies: ["static"] },
    slos: { ttft_s: 0.5 },
  });
  const whole = "Lanes, budgets and blocks are whole numbers, with commas between them.";
  assert.deepEqual(await run({ blocks: "4.5" }), [whole, true]);
  assert.deepEqual(await run({ budgets: "many" }), [whole, true]);
  const above = "The limits of a good request are seconds above 0.";
  assert.deepEqual(
    [await run({ e2e_s: "0" }), await run({ tpot_s: "soon" })],
    [
      [above, true],
      [above, true],
    ],
  );
});

test("the keys of a race go to the nearest request that is done, in whichever run", () => {
  const completions = (...seconds) => ({
    completions: seconds.map((s) => ({ seconds: s })),
    length: 9,
  });
  const race = of(Race, {
    clock: true,
    span: 9,
    racers: [completions(1, 4), completions(2, 7)],
    redraw() {},
  });
  const after = (now, by) => {
    race.now = now;
    race.seekCompletion(by);
    return race.now;
  };
  assert.deepEqual([after(0, 1), after(2, 1), after(7, 1)], [1, 4, 7]);
  assert.deepEqual([after(9, -1), after(4, -1), after(1, -1)], [7, 2, 1]);
  const steps = (now, by) => ((race.now = now), race.step(by), race.now);
  assert.deepEqual([steps(4.5, 1), steps(0, -1)], [4.59, 0]);
});

test("who races is chosen one by one, and one always does", () => {
  const $ = finding();
  const names = ["a", "b", "c"];
  const page = of(Compare, {
    ...{ $, chosen: new Set(["a", "b"]), race: { now: 1, seek() {} }, _race() {} },
    doc: { names, runs: { a: {}, b: {}, c: {} }, about: {}, hues: {} },
  });
  page.doc.says = { headline: "b beats a.", pairs: ["c beats a.", "c beats b."] };
  globalThis.CSS = /** @type {any} */ ({ escape: (text) => text });
  const pressed = (name) => {
    page._who();
    const button = $(".who").children.find((one) => one.textContent === name);
    button.click();
    const { hidden, textContent } = $(".headline");
    return [[...page.chosen].sort().join(""), hidden ? "" : textContent];
  };
  assert.deepEqual(["a", "b", "c", "a", "b"].map(pressed), [
    ["b", ""],
    ["b", ""],
    ["bc", "c beats b."],
    ["abc", "b beats a."],
    ["ac", "c beats a."],
  ]);
  page.chosen = new Set("c");
  page.doc.runs.c = null; // it left no trace
  page._who();
  assert.deepEqual([$(".who").hidden, $(".who").children.length], [true, 2]);
});

test("what was measured is taken away as a table and as data, each named and marked as what it is", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const saved = [];
  URL.createObjectURL = (blob) => (saved.push(blob), "blob:");
  globalThis.document = documentOf({
    createElement: () => ({
      click() {
        saved.push(this.download);
      },
    }),
  });
  const taken = async (kind, name) => {
    of(Compare, { doc: { csv: "a,b", data: { a: 1 }, name } })._save(kind);
    const [blob, file] = saved.splice(0);
    return [file, blob.type, await blob.text()];
  };
  assert.deepEqual(await taken("csv", "six"), ["inflight-six-compared.csv", "text/csv", "a,b"]);
  const data = ["application/json", '{\n "a": 1\n}'];
  assert.deepEqual(await taken("json", "a/b"), ["inflight-comparison-compared.json", ...data]);
  globalThis.document = documentOf();
});

test("of a long prompt its end stands before the texts that are compared", () => {
  const $ = finding();
  const panel = of(EquivalencePanel, { $, leak: { checked: false } });
  const request = { request: "a", letter: "A", solo: [1], batched: [1], max_logit_difference: 0 };
  const shown = (prompt) => {
    panel.prompts = new Map([["a", prompt]]);
    const requests = [{ ...request, solo_text: "x", batched_text: "x" }];
    panel.kept = { honest: { says: "", requests } };
    panel.say();
    return $(".pairs").querySelector(".asked")?.textContent;
  };
  assert.equal(shown("Why?"), "Why?");
  const long = shown(`${"word ".repeat(40)}end`);
  assert.match(long, /^….* end$/);
  assert.ok(long.length <= 122, `${long.length}`);
  assert.equal(shown(undefined), undefined);
});

test("on a phone two charts lie one below the other, unless they share an axis", async () => {
  const drawn = [];
  const Plotly = { newPlot: async (_plot, _bars, layout) => drawn.push(layout) };
  const hues = Array(8).fill({ solid: "#000000" });
  const palette = { hues, panel: "#ffffff" };
  const layoutOf = async (layout, phone = true, isConnected = true) => {
    const plot = new El();
    const charts = of(Charts, {
      _plotly: Promise.resolve({ Plotly }),
      options: { palette: () => palette, phone: () => phone },
    });
    await charts._draw({ data: { figure: { data: [], layout } }, plot, el: { isConnected } });
    if (!isConnected) return drawn.length;
    const { xaxis, yaxis2 } = drawn.pop();
    return [xaxis.domain, yaxis2?.domain, plot.classes.has("stacked")];
  };
  const half = { xaxis: { domain: [0, 0.4] }, xaxis2: {}, yaxis: {}, yaxis2: {} };
  assert.deepEqual(await layoutOf(half), [[0, 1], [0, 0.38], true]);
  assert.deepEqual(await layoutOf(half, false), [[0, 0.4], undefined, false]);
  const shared = { ...half, yaxis2: { matches: "y" } };
  assert.deepEqual(await layoutOf(shared), [[0, 0.4], undefined, false]);
  assert.deepEqual(await layoutOf({ xaxis: {} }), [undefined, undefined, false]);
  assert.equal(await layoutOf(half, true, false), 0, "a chart that was replaced is not drawn");
});

test("how far a comparison is, is told by its turn, its run and what is done of it", () => {
  const told = (/** @type {any} */ how) => {
    /** @type {any[]} */
    const said = [];
    const drawer = {
      progress: (/** @type {number} */ share) => said.push(share),
      say: (/** @type {string} */ words) => said.push(words),
    };
    of(NewComparison, { drawer })._progress(how);
    return said;
  };
  const run = { index: 2, total: 8, contender: "static", round: 1 };
  for (const [how, said] of /** @type {[object, any[]][]} */ ([
    [{ ahead: 2 }, ["2 ahead of you."]],
    [{ ahead: 2, ...run }, ["2 ahead of you."]],
    [{}, []],
    [run, [0.25, "Run 3 of 8: static, round 1."]],
    [{ ...run, round: 0 }, [0.25, "Run 3 of 8: static, warm-up."]],
    [{ ...run, contender: null }, [0.25, "The cost of a step on this device …"]],
    [
      { ...run, ended: 1, requests: 4, tokens: 1234 },
      [0.28125, "Run 3 of 8: static, round 1. 1 of 4 requests done, 1,234 tokens written."],
    ],
    [
      { ...run, loading: { phase: "load", done: 1, total: 4 } },
      [0.25, "Loading the model: 1 of 4 [tensor|tensors]."],
    ],
  ]))
    assert.deepEqual(told(how), said);
});

test("Compare begins with what its address names, or says what there is not", async () => {
  const begun = async (/** @type {string} */ hash, /** @type {any} */ more = {}) => {
    /** @type {string[]} */
    const did = [];
    const { recorded = [{ name: "six" }, { name: "ten" }], get = null, ...fields } = more;
    const compare = of(Compare, {
      ...{ $: finding(), made: [], wanted: new URLSearchParams(hash), engines: get && { get } },
      ...{ catalogue: { recorded, presets: [] }, chooser: { fill() {} }, form: { fill() {} } },
      ...{ _who() {}, _race() {}, _remember() {}, ...fields },
      open: (/** @type {any} */ entry) => {
        did.push(`open ${entry.name}`);
        Object.assign(compare, { entry, doc: {} });
      },
      toast: (/** @type {string} */ words) => did.push(words),
      empty: (/** @type {string} */ words) => did.push(words),
      race: {
        all: new Map([["static", {}]]),
        setClock: (/** @type {boolean} */ clock) => did.push(clock ? "time" : "steps"),
        seek: (/** @type {number} */ at) => did.push(`at ${at}`),
      },
    });
    await compare._start();
    return [...did, ...(compare.chosen ?? [])];
  };
  assert.deepEqual(await begun(""), ["open six"]);
  assert.deepEqual(await begun("comparison=ten"), ["open ten", "time"]);
  assert.deepEqual(await begun("comparison=ten&axis=steps&at=7&who=static&who=x"), [
    ...["open ten", "steps", "at 7", "static"],
  ]);
  assert.deepEqual(await begun("comparison=ten&at=soon&who=x"), ["open ten", "time"]);
  assert.deepEqual(await begun("comparison=no"), [
    ...["There is no comparison no here.", "open six"],
  ]);
  const none = "There is no recorded comparison here yet. Run one.";
  assert.deepEqual(await begun("", { recorded: [] }), [none]);
  const get = async () => ({ recorded: [{ name: "served" }], presets: [] });
  assert.deepEqual(await begun("", { recorded: [], get }), ["open served"]);
  const away = () => Promise.reject(new Error("it is away"));
  assert.deepEqual(await begun("", { get: away }), [
    "The comparisons could not be loaded: it is away.",
  ]);
});

test("statistics stay open or closed for the next visit, and are open on paper alone", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const [stored, heard] = [new Map(), {}];
  let themes = 0;
  globalThis.localStorage = /** @type {any} */ ({
    getItem: (key) => stored.get(key) ?? null,
    setItem: (key, text) => stored.set(key, text),
    removeItem: (key) => stored.delete(key),
  });
  window.addEventListener = (name, act) => (heard[name] = act);
  const folded = () => {
    const fold = Object.assign(new El("details"), { open: null });
    const compare = of(Compare, { $: () => fold, _theme: () => (themes += 1) });
    compare._fold();
    const set = (open) => {
      fold.open = open;
      fold.dispatchEvent(new Event("toggle"));
    };
    return { fold, set };
  };
  const { fold, set } = folded();
  assert.equal(fold.open, false);
  set(true);
  assert.equal(folded().fold.open, true);
  set(false);
  assert.equal(folded().fold.open, false);
  const last = folded();
  let printed = 0;
  for (const isOpen of [false, true]) {
    last.set(isOpen);
    heard.beforeprint();
    assert.deepEqual([last.fold.open, themes], [true, (printed += 1)]);
    last.set(last.fold.open); // a browser tells it of the change
    heard.afterprint();
    assert.equal(last.fold.open, isOpen);
    last.set(last.fold.open);
    t.mock.timers.tick(0);
    assert.equal(folded().fold.open, isOpen, "paper changes nothing that is kept");
  }
  last.set(false);
  assert.equal(folded().fold.open, false);
});

test("the comparison that is shown is marked in every list, and scrolled to", () => {
  const chips = ["a", "b"].map((name, n) =>
    Object.assign(new El(), { dataset: { name }, offsetLeft: 100 + 200 * n, offsetWidth: 150 }),
  );
  const list = Object.assign(new El("select"), { options: [{ value: "" }, { value: "b" }] });
  const querySelectorAll = (what) => (what === "select.group" ? [list] : chips);
  const strip = {
    ...{ offsetLeft: 20, scrollLeft: 0, clientWidth: 260 },
    querySelector: () => chips.find((chip) => chip.classes.has("on")) ?? null,
  };
  const chooser = of(Chooser, { root: { querySelectorAll }, strip, fit: () => (fits += 1) });
  let fits = 0;
  const marked = (name, scrollLeft = 0) => {
    strip.scrollLeft = scrollLeft;
    chooser.mark(name);
    const on = [...chips, list].map((el) => el.classes.has("on"));
    return [on.join(), list.value, strip.scrollLeft];
  };
  assert.deepEqual(marked("a"), ["true,false,false", "", 0]);
  assert.deepEqual(marked("b"), ["false,true,true", "b", 268], "it begins 280 pixels on");
  assert.deepEqual(marked("b", 170), ["false,true,true", "b", 170], "it is in sight");
  assert.deepEqual(marked("b", 169), ["false,true,true", "b", 268]);
  assert.deepEqual(marked("a", 81), ["true,false,false", "", 68]);
  assert.deepEqual(marked("c", 81), ["false,false,false", "", 81]);
  assert.equal(fits, 6, "the one that is shown is among those that fit");
});

test("a race begins with the contenders that its document names, or with all if these are too few or it is live", () => {
  const chosen = (race, source = "recorded", kind = "comparison") => {
    const plans = [];
    const idle = new Proxy({}, { get: () => () => {} });
    const compare = of(Compare, {
      ...{ root: new El(), $: finding(), empty() {}, bar: idle, equivalence: idle, chooser: idle },
      ...{ _who() {}, _race() {}, _say() {}, _remember() {}, _showPlan: (doc) => plans.push(doc) },
    });
    compare.root.toggleAttribute = () => {};
    const run = { header: { workload: { requests: [] } } };
    const doc = {
      kind,
      names: ["a", "b", "c", "d"],
      runs: { a: run, b: run, c: run },
      race,
      source,
    };
    compare.show(doc, null);
    return compare.chosen ? [...compare.chosen].join("") : plans.length;
  };
  assert.deepEqual(
    [["a", "c"], ["b", "d"], ["b"], []].map((race) => chosen(race)),
    ["ac", "abc", "abc", "abc"],
  );
  assert.equal(chosen(["a", "c"], "live"), "abc");
  assert.equal(chosen(["a", "c"], "recorded", "plan"), 1);
});

test("the layout follows the width, and is drawn anew when it changes; a projector has the whole one", () => {
  const [page, drawn, root] = [{ clientWidth: 0 }, [], new El()];
  const strips = [];
  root.toggleAttribute = (name, on) => strips.push([name, on]);
  const compare = of(Compare, {
    ...{ root, $: () => page, layout: null, presenter: false, chooser: { fit() {} } },
    ...{
      race: { redraw: () => drawn.push("race") },
      charts: { repaint: () => drawn.push("charts") },
    },
  });
  const at = (width, presenter = false) => {
    page.clientWidth = width;
    compare.presenter = presenter;
    compare._size();
    return [root.dataset.layout, drawn.splice(0).join()];
  };
  assert.deepEqual(at(0), [undefined, ""], "it is not on screen");
  assert.deepEqual(at(400), ["phone", "race,charts"]);
  assert.deepEqual(at(410), ["phone", ""]);
  assert.deepEqual(at(2000), ["desk", "race,charts"]);
  assert.deepEqual(at(400, true), ["desk", ""]);
  assert.deepEqual(
    strips.map(([name, on]) => `${name} ${on}`),
    ["data-strip true", "data-strip true", "data-strip false", "data-strip false"],
  );
});

test("a press on a chart chooses what it stands for; a chart that cannot be drawn says so and is tried again", async () => {
  const [picked, heard, listens] = [[], {}, { on: (name, act) => (heard[name] = act) }];
  let isBroken = false;
  const Plotly = {
    newPlot: async () => {
      if (isBroken) throw new Error("no WebGL");
    },
  };
  const charts = of(Charts, {
    _plotly: Promise.resolve({ Plotly }),
    options: {
      ...{ palette: () => ({ hues: Array(8).fill({ solid: "#000000" }), panel: "#ffffff" }) },
      ...{ phone: () => false, picked: (n) => picked.push(n) },
    },
  });
  const panel = () => ({
    ...{ data: { figure: { data: [], layout: {} } }, el: { isConnected: true } },
    plot: Object.assign(new El(), listens, { className: "waiting" }),
  });
  const drawn = panel();
  await charts._draw(drawn);
  await charts._draw(drawn); // it is
  assert.deepEqual([drawn.drawn, drawn.plot.classes.has("waiting")], [true, false]);
  for (const customdata of [3, undefined, "3"]) heard.plotly_click({ points: [{ customdata }] });
  assert.deepEqual(picked, [3]);
  isBroken = true;
  const failed = panel();
  await charts._draw(failed);
  assert.equal(failed.plot.textContent, "The chart could not be drawn (no WebGL).");
  assert.deepEqual([failed.drawn, charts._plotly], [false, null]);
});

test("a figure is saved as a picture of its own size, as sharp as paper needs it", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  /** @type {any} */ let saved;
  URL.createObjectURL = (blob) => ((saved = blob), "blob:");
  const asked = [];
  const Plotly = { toImage: async (...given) => asked.push(given) && "data:image/png;base64,AQID" };
  const said = [];
  const options = { toast: (sentence) => said.push(sentence) };
  const charts = of(Charts, { of: "six", _plotly: Promise.resolve({ Plotly }), options });
  const figure = { data: [1], layout: { title: "x", width: 5 } };
  await charts._save({ name: "a_b", figure }, "png");
  assert.deepEqual(
    [...new Uint8Array(await saved.arrayBuffer()), saved.type],
    [1, 2, 3, "image/png"],
  );
  const [[{ data, layout }, how]] = asked;
  const { width, height } = layout;
  assert.deepEqual(
    [data, layout.title, how],
    [[1], "x", { format: "png", width, height, scale: 2 }],
  );
  assert.ok(width > height && height >= 400);
  charts._plotly = Promise.reject(new Error("it is away"));
  await charts._save({ name: "a_b", figure }, "png");
  assert.deepEqual(said, ["The figure could not be saved: it is away."]);
  assert.equal(charts._plotly, null, "it is fetched again");
});
