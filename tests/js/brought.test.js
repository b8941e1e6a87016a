// What is asked of an engine or brought to Watch, run again and taken away, without a page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

import { documentOf, El, finding, of, soon } from "./elements.js";
import { arrivals, event, runOf } from "./worlds.js";

Object.assign(globalThis, {
  window: { addEventListener() {} },
  HTMLElement: El,
  document: documentOf(),
  location: { hash: "", search: "", href: "http://x/", origin: "http://x", protocol: "http:" },
});
const { Beside } = await import("../../assets/player/watch/beside.js");
const { Conversation } = await import("../../assets/player/watch/conversation.js");
const { Editor } = await import("../../assets/player/watch/editor.js");
const { picture, take } = await import("../../assets/player/watch/export.js");
const { Leak } = await import("../../assets/player/watch/leak.js");
const { Messages } = await import("../../assets/player/watch/messages.js");
const { openAddress } = await import("../../assets/player/watch/open_file.js");
const { Pair } = await import("../../assets/player/watch/pair.js");
const { Visit } = await import("../../assets/player/watch/runs_card.js");
const { Weights } = await import("../../assets/player/watch/weights.js");
const { runBeside } = await import("../../assets/player/watch/what_if.js");
const { loadWorkload } = await import("../../assets/player/watch/workload_file.js");
const { none, playerOf } = await import("./players.js");

test("a replay from elsewhere is marked so, and a simulated one stays simulated, of ranks each", async () => {
  const opened = [];
  const app = {
    options: {},
    openReplay: ({ ranks, header }) => {
      const headers = ranks?.map(({ replay }) => replay.header) ?? [header];
      for (const { brought } of headers) assert.equal(brought, "uploaded");
      opened.push(ranks?.map(({ id, replay }) => [id, replay.header.source]) ?? header.source);
    },
    toast: (sentence) => opened.push(sentence),
    changed: none,
  };
  const opens = async (doc) => {
    globalThis.fetch = /** @type {any} */ (async () => Response.json(doc));
    await openAddress(app, ["/r.json"]);
    return opened.splice(0)[0];
  };
  const replay = (source) => ({ header: { source }, events: [], captions: [] });
  assert.equal(await opens(replay("recorded")), "uploaded");
  assert.equal(await opens(replay("live")), "uploaded");
  assert.equal(await opens(replay("simulated")), "simulated");
  const ranks = ["live", "simulated"].map((source, rank) => ({
    ...{ rank, offset: 0, id: "theirs" },
    replay: replay(source),
  }));
  assert.deepEqual(await opens({ ranks, says: [] }), [
    [null, "uploaded"],
    [null, "simulated"],
  ]);
});

test("an address that may not be fetched, that is not answered or holds no run is refused in a sentence", async () => {
  const page = globalThis.location;
  const replay = { header: { source: "live" }, events: [], captions: [] };
  const own = "this page opens runs of its own address";
  const large = new Uint8Array(2 ** 20 + 1);
  const refusal = async (/** @type {string[]} */ addresses, /** @type {any} */ more = {}) => {
    const { answer, protocol = "http:", ...options } = more;
    /** @type {string[]} */
    const told = [];
    const toast = (/** @type {string} */ words) => told.push(words);
    const openReplay = (/** @type {any[]} */ ...[, , entry]) => {
      assert.deepEqual(entry, { name: null, trace: addresses[0] });
      told.push("opened");
    };
    globalThis.location = /** @type {any} */ ({ ...page, protocol });
    globalThis.fetch = async (/** @type {any} */ url, /** @type {any} */ how) => {
      const found = answer ? answer() : Response.json(replay);
      if (found === null) throw new TypeError("failed to fetch");
      const isOwn = url.host === "x";
      const credentials = isOwn ? "same-origin" : "omit";
      assert.deepEqual(how, { credentials, referrerPolicy: "no-referrer" });
      return Object.defineProperty(found, "url", { value: more.to ?? String(url) });
    };
    const app = { options, openReplay, toast, changed: none };
    const opened = await openAddress(/** @type {any} */ (app), addresses);
    assert.deepEqual([opened, told.length], [told[0] === "opened", 1]);
    return told[0].replace("The run at this address could not be opened: ", "");
  };
  const hosts = { traceHosts: ["https://y", "http://z:8"] };
  for (const [said, addresses, more] of /** @type {[string, string[], object?][]} */ ([
    ["opened", ["/r.json"]],
    ["opened", ["https://y/r.json"], hosts],
    ["it is no address.", ["http://["]],
    ["a page that was opened from disk may fetch nothing.", ["/r.json"], { protocol: "file:" }],
    [`${own}, and of no other.`, ["https://y/r.json"]],
    [`${own}, and of no other.`, ["/r.json", "http://x:8/r.json"]],
    [`${own} and of https://y, http://z:8, and of no other.`, ["http://z/r.json"], hosts],
    [`${own}, and of no other.`, ["/r.json"], { to: "http://y/r.json" }],
    [
      "y did not answer, or does not let other pages read it (CORS).",
      ["https://y/r"],
      { ...hosts, answer: () => null },
    ],
    ["x answered 404.", ["/r.json"], { answer: () => new Response("", { status: 404 }) }],
    ...[large, gzipSync(large)].map((bytes) => [
      "it has more than 1 MiB, and this page opens no larger one.",
      ["/r"],
      { uploadBytes: 2 ** 20, answer: () => new Response(bytes) },
    ]),
    ["opened", ["/r"], { answer: () => new Response(gzipSync(JSON.stringify(replay))) }],
    [
      "it is no replay, and this page has no engine that could read a trace or a recording.",
      ["/r"],
      { answer: () => Response.json({ ...replay, captions: null }) },
    ],
    [
      "a replay is opened alone; one that was saved with several ranks on screen has all of them.",
      ["/r", "/s"],
    ],
  ]))
    assert.equal(await refusal(addresses, more), said);
  globalThis.location = page;
});

test("weights that come late are not those of the run that was opened meanwhile", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let answer = none;
  const drawn = [];
  const app = {
    runId: "a",
    engines: { can: () => true, call: () => new Promise((done) => (answer = done)) },
    ...{ leak: {}, transport: {}, lanes: {}, run: { header: { model: { layers: 1 } } } },
    redraw: () => drawn.push(true),
  };
  const weights = new Weights(/** @type {any} */ (app));
  const asks = async (meanwhile) => {
    weights.reset();
    weights.on = true;
    const frame = /** @type {any} */ ({ event: { step: 0 } });
    const look = () => weights.state(frame, /** @type {any} */ ({ index: 0 }));
    look();
    t.mock.timers.tick(1000);
    meanwhile();
    answer({ segments: [{ request: "r" }] });
    for (let n = 0; n < 3; n += 1) await null;
    return look().found?.size ?? null;
  };
  assert.equal(await asks(none), 1);
  drawn.length = 0;
  const other = { header: { model: { layers: 1 } } };
  assert.deepEqual([await asks(() => (app.run = other)), drawn], [null, []]);
});

test("weights are offered of a run that an engine can compute again; after the last head comes the first", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  /** @type {any} */
  let answer = {};
  const { setImmediate: turn } = globalThis; // a test has no timer of its own
  const weightsOf = (/** @type {any} */ more = {}) =>
    new Weights(
      /** @type {any} */ ({
        runId: "r",
        engines: { can: (...what) => what.join() === "attention,r", call: () => answer() },
        ...{ running: false, leak: { on: false }, run: { header: { model: { layers: 2 } } } },
        ...{ transport: {}, lanes: {}, redraw: none, ...more },
      }),
    );
  assert.equal(weightsOf().offered, true);
  for (const more of [
    ...[{ runId: null }, { runId: "other" }, { engines: null }, { running: true }],
    ...[{ leak: { on: true } }, { run: { header: {} } }],
  ])
    assert.equal(weightsOf(more).offered, false, JSON.stringify(more));
  const told = async (/** @type {() => Promise<any>} */ given, head = 0, more = {}) => {
    answer = given;
    const weights = weightsOf(more);
    Object.assign(weights, { on: true, head });
    const look = () =>
      weights.state(/** @type {any} */ ({ event: { step: 3 } }), /** @type {any} */ ({ index: 0 }));
    const before = look();
    assert.deepEqual([before.loading, before.found, before.error], [true, null, null]);
    t.mock.timers.tick(250);
    await new Promise((done) => turn(done));
    const { loading, found, error, head: now } = look();
    return [loading, found && [...found.keys()], error, now];
  };
  const segments = [{ request: "a", weights: [] }];
  assert.deepEqual(await told(async () => ({ segments })), [false, ["a"], null, 0]);
  const refused = async () => ({ error: "It has no head 4." });
  assert.deepEqual(await told(refused, 4), [true, null, null, 0]);
  assert.deepEqual(await told(refused), [false, null, "It has no head 4.", 0]);
  assert.deepEqual(await told(async () => ({ error: "It is gone." }), 4), [
    ...[false, null, "It is gone.", 4],
  ]);
  assert.deepEqual(await told(() => Promise.reject(new Error("away"))), [
    ...[false, null, "The weights could not be fetched: away.", 0],
  ]);
  for (const busy of [{ transport: { playing: true } }, { lanes: { dragging: true } }])
    assert.deepEqual(await told(assert.fail, 0, busy), [true, null, null, 0]);
});

test("of two runs the one at work is counted from the first, and what it waits for is said", async () => {
  const said = [];
  const ask = async (_kind, _spec, _who, progress) => {
    progress({ total: 0 });
    progress({ ahead: 3, total: 2 });
    for (const index of [0, 1]) progress({ total: 2, index });
    throw new Error("The end.");
  };
  const spec = { config: { policy: "static" } };
  const editor = { specOnScreen: async () => spec, titleOf: () => "" };
  const app = { run: {}, engines: { ask }, visit: {}, editor };
  assert.equal(await runBeside(app, "continuous", (words) => said.push(words)), "The end.");
  assert.deepEqual(said, [
    "Starting the engine.",
    "Loading the model.",
    "3 ahead of yours.",
    "Run 1 of 2.",
    "Run 2 of 2.",
  ]);
});

test("the other policy's run stands below this one, or why it does not, and another run ends the wait", async () => {
  const replay = (/** @type {string} */ policy, /** @type {number} */ steps) => ({
    header: { config: { policy, max_num_seqs: 1 }, policy },
    events: Array.from({ length: steps }, (_, step) => event(step)),
    captions: [],
  });
  const runs = [replay("static", 3), replay("continuous", 2)];
  const spec = { config: { policy: "static" } };
  const beside = async (/** @type {(app: any) => void} */ meanwhile) => {
    /** @type {any[]} */
    const [toasts, kept, toast] = [[], [], { hidden: false }];
    const run = runOf([event(0), event(4)], {}, { policy: "static" });
    const app = playerOf({ run, index: 1 });
    Object.assign(app, {
      ...{ $: () => new El(), root: { querySelector: () => toast } },
      ...{ beside: {}, visit: { visitor: "v" } },
      toast: (/** @type {string} */ words) => toasts.push(words),
      pair: { members: [], open: (/** @type {any} */ given) => Object.assign(app.pair, given) },
      editor: {
        ...{ specOnScreen: async () => spec, titleOf: () => "Six", packed: async () => "packed" },
        keep: async (/** @type {any[]} */ ...what) => kept.push(what),
      },
      fetch: async () => ({ runs, names: ["as it was", "changed"], says: [["same"], "after"] }),
      engines: {
        ask: async (/** @type {any[]} */ ...[kind, asks, who]) => {
          assert.deepEqual(
            [kind, asks, who],
            [...["fork", { ...spec, knob: "policy", value: "continuous" }, "v"]],
          );
          meanwhile(app);
          return { url: "u", runs: [{ id: 1 }, { id: 2 }] };
        },
      },
    });
    const panel = of(Beside, { app, on: false });
    await panel._run();
    return { app, on: panel.on, last: toasts.at(-1), hidden: toast.hidden, kept };
  };
  const { app, on, hidden, last, kept } = await beside(none);
  assert.deepEqual([on, hidden, last], [true, true, "Starting the engine."]);
  const { link, at, step, front, members, says } = app.pair;
  assert.deepEqual([link, at, step], [{ spec: "packed", what: "policy:continuous" }, 4, null]);
  assert.equal(front, members[0]);
  assert.deepEqual(
    members.map((/** @type {any} */ one) => [one.name(), one.entry.id, one.run.length]),
    [
      ["as it was", 1, 3],
      ["changed", 2, 2],
    ],
  );
  assert.equal(
    says(),
    "The same requests, run again: 3 steps with static, 2 steps with continuous.",
  );
  const [[run, entry, asked, title]] = kept;
  assert.deepEqual(
    [run, entry.id, asked.config.policy, title],
    [members[1].run, 2, "continuous", "Six: the policy “continuous” instead of “static”"],
  );
  const failed = await beside(() => {
    throw new Error("The end.");
  });
  assert.deepEqual([failed.on, failed.hidden, failed.last], [false, false, "The end."]);
  const left = await beside((app) => app.store.set({ run: runOf([]) }));
  assert.deepEqual([left.on, left.hidden, left.app.pair.members], [false, true, []]);
});

test("a leak that is on its way is not asked for twice, and one that failed can be asked again", async () => {
  const [fails, toasts] = [[], []];
  const app = playerOf(
    { run: { header: {} }, entry: { leak: "u" } },
    {
      pair: {},
      toast: (words) => toasts.push(words),
      fetch: () => new Promise((_, fail) => fails.push(fail)),
    },
  );
  const leak = new Leak(app);
  const pressed = async (times) => {
    const toggled = Array.from({ length: times }, () => leak.toggle());
    await soon();
    const asked = fails.splice(0);
    for (const fail of asked) fail(new Error("Away."));
    await Promise.all(toggled);
    return [asked.length, toasts.splice(0), leak.working];
  };
  assert.deepEqual(await pressed(2), [1, ["Away."], ""]);
  assert.deepEqual(await pressed(1), [1, ["Away."], ""]);
});

test("prompts that share their beginning share blocks under a policy that can, and no other", async () => {
  const answer = { workload: { name: "w" }, block_size: 512, says: ["Scaled."] };
  const policies = ["plain", "sharing"].map((name, n) => ({
    name,
    knobs: n ? ["prefix_caching"] : [],
  }));
  const loaded = async (policy, size = 10) => {
    const said = [];
    let config = null;
    const editor = {
      limits: { upload_bytes: 2 ** 20 },
      frame: { busy: none, say: (...words) => said.push(words) },
      app: { engines: { send: async () => answer } },
      model: {},
      spec: () => ({ config: { policy, block_size: 16 } }),
      state: { policies },
      setAside: (act) => act(),
      edit: (spec) => ({ config } = spec),
      field: () => ({}),
      $: finding(),
    };
    const file = { name: "f.jsonl", size, text: async () => "not json" };
    const input = /** @type {any} */ ({ files: [file], value: "f" });
    await loadWorkload(/** @type {any} */ (editor), input);
    return config ?? said.at(-1);
  };
  assert.deepEqual(await loaded("plain"), { policy: "plain", block_size: 16 });
  assert.deepEqual(await loaded("sharing"), {
    ...{ policy: "sharing", block_size: 512, prefix_caching: true },
  });
  assert.deepEqual(await loaded("plain", 2 ** 20 + 1), [
    "f.jsonl has more than 1 MiB, and this page opens no larger one.",
    true,
  ]);
});

test("a prompt that was changed since becomes one message, an unchanged one its own again", () => {
  const form = new El("form");
  const [label, box] = [new El("label"), new El("input")];
  box.setAttribute("name", "as_messages");
  label.append(box);
  form.append(label);
  form.querySelector = () => box;
  const [system, user] = [
    { role: "system", content: "Be brief." },
    { role: "user", content: "Why?" },
  ];
  const row = { el: new El(), prompt: new El("textarea"), request: { messages: [system, user] } };
  const messages = new Messages(/** @type {any} */ (form), () => [row], none);
  messages.added(/** @type {any} */ (row));
  const turned = (on, typed = row.prompt.value) => {
    row.prompt.value = typed;
    messages.turn(on);
    return [row.prompt.value, /** @type {any} */ (row).messages];
  };
  assert.equal(row.prompt.value, "Why?");
  assert.deepEqual(turned(false), ["Be brief.\nWhy?", null]);
  assert.deepEqual(turned(true), ["Why?", [system, user]]);
  turned(false);
  assert.deepEqual(turned(true, "Why not?"), ["Why not?", [{ role: "user", content: "Why not?" }]]);
  messages.offer(false); // the model takes none, and keeps those that are here
  assert.deepEqual([messages.switch.checked, messages.label.hidden], [true, false]);
  turned(false);
  assert.deepEqual([messages.switch.checked, messages.label.hidden], [false, true]);
});

test("messages are added and removed until one is left, each in its turn", () => {
  const said = [];
  const two = [
    { role: "user", content: "Why?" },
    { role: "assistant", content: "So." },
  ];
  const talk = new Conversation(two, (messages) =>
    said.push(messages.map(({ role }) => role).join()),
  );
  Object.assign(talk.el, { open: true });
  talk.show(two);
  const removes = () =>
    talk.list
      .querySelectorAll("button")
      .filter((b) => /^Remove/.test(b.getAttribute("aria-label") || ""));
  assert.deepEqual(
    removes().map(({ disabled }) => disabled),
    [false, false],
  );
  removes()[1].click();
  assert.deepEqual(
    removes().map(({ disabled }) => disabled),
    [true],
  );
  removes()[0].click();
  assert.deepEqual(said, ["user"]);
  talk._insert(1);
  talk._insert(0);
  assert.deepEqual(said, ["user", "user,assistant", "system,user,assistant"]);
  assert.equal(talk.summary.textContent, "3 messages");
  talk._insert(1);
  assert.equal(said.at(-1), "system,user,user,assistant", "after the system a user speaks");
  talk._insert(0);
  assert.equal(said.at(-1), "user,system,user,user,assistant", "there is one system");
});

test("the run of this visit that ended last stands first, and is told of", () => {
  const told = [];
  const dispatchEvent = (/** @type {any} */ { detail }) => told.push(detail.id);
  const visit = new Visit(/** @type {any} */ ({ root: { dispatchEvent } }));
  const run = runOf([event(0), event(1)]);
  for (const id of ["a", "b"]) visit.add(run, { id }, {}, `Title ${id}`);
  assert.deepEqual(
    [visit.runs.map(({ title }) => title), told],
    [
      ["Title b", "Title a"],
      ["a", "b"],
    ],
  );
  assert.deepEqual([visit.runs[0].says, visit.runs[0].steps], ["continuous, 2 lanes", 2]);
  visit.remove(visit.runs[0]);
  assert.deepEqual(
    visit.runs.map(({ title }) => title),
    ["Title a"],
  );
});

test("each request of a form is sampled with a seed of its own, counted from the one that was typed", () => {
  const fields = {};
  const editor = of(Editor, {
    field: (name) => (fields[name] ??= new El("input")),
    $: () => new El(),
    messages: { added: none },
    model: { choose: none, spec: { model: "m" } },
    device: { choose: none, value: "auto" },
    touchedSampling: new Set(),
    _policy: none,
    _compare: none,
  });
  const asks = (sampling) => ({ id: `r${sampling?.seed ?? ""}`, prompt: "p", sampling });
  const requests = [asks({ max_new_tokens: 4, seed: 5 }), asks({ max_new_tokens: 4, seed: 9 })];
  editor.fill({ workload: { requests }, config: { policy: "continuous" }, model: "m" });
  const seeds = () => editor.spec().workload.requests.map(({ sampling }) => sampling.seed);
  assert.deepEqual(seeds(), [5, 9], "as they were given");
  editor._row({ prompt: "q", arrival: 0 });
  assert.deepEqual(seeds(), [5, 9, 7], "an added one");
  fields.seed.value = "20";
  editor.touchedSampling.add("seed");
  assert.deepEqual(seeds(), [20, 21, 22]);
});

test("a request has one colour in both runs of a pair, and closing it returns to where it was", () => {
  const [before, after] = [0, 1].map(() =>
    runOf([event(0, { arrived: arrivals("a", "b") }), event(4)]),
  );
  for (const [n, request] of after.requests.entries()) request.hue = n;
  before.requests[0].hue = 5;
  const put = [];
  const app = playerOf({ run: before, index: 1, pass: Infinity }, {});
  app.put = ({ run }, { step }) => put.push([run === before ? "before" : "after", step]);
  const pair = of(Pair, { app, members: [] });
  const members = [before, after].map((run) => ({
    run,
    entry: null,
    replay: null,
    name: () => "",
  }));
  pair.open({ members, step: 4, says: () => "" });
  assert.deepEqual(
    after.requests.map(({ hue }) => hue),
    before.requests.map(({ hue }) => hue),
  );
  assert.equal(after.requests[0].hue, 5);
  pair.flip();
  pair.close();
  pair.close();
  assert.deepEqual(put, [
    ["after", 4],
    ["after", 4],
    ["before", 4],
  ]);
});

test("in a picture texts are scrolled, fields filled and canvases drawn as they are on the page", async () => {
  const make = (tag, more = {}) => Object.assign(new El(tag), { style: {} }, more);
  const lists = (found) => (selector) => found[selector] ?? [];
  const canvas = { width: 40, clientWidth: 20, toDataURL: () => "data:canvas" };
  const sources = {
    canvas: [canvas, { width: 1 }],
    ".texts": [{ scrollTop: 40 }],
    "input, select, textarea": [
      { tagName: "INPUT", value: "7", checked: true },
      { tagName: "TEXTAREA", value: "Why?" },
      { tagName: "SELECT", selectedIndex: 1 },
    ],
  };
  const gone = [];
  const drawn = make("canvas", { replaceWith: (img) => gone.push(img.getAttribute("src")) });
  const small = make("canvas", { remove: () => gone.push("small") });
  const options = [make("option"), make("option")];
  const fields = [make("input"), make("textarea"), make("select", { options })];
  const texts = make("div");
  const tooltip = make("div", { remove: () => gone.push("tooltip") });
  const copy = make("div", {
    querySelectorAll: (selector) =>
      selector.startsWith(".tooltip")
        ? [tooltip]
        : lists({ canvas: [drawn, small], ".texts": [texts], "input, select, textarea": fields })(
            selector,
          ),
  });
  const root = {
    getBoundingClientRect: () => ({ width: 300, height: 200 }),
    cloneNode: () => copy,
    querySelectorAll: lists(sources),
  };
  let svg = "";
  Object.assign(globalThis, {
    window: { devicePixelRatio: 1 },
    document: documentOf({
      createElement: (tag) => make(tag, { toBlob: (done) => done("a picture") }),
      querySelectorAll: () =>
        [".inflight { x: y }", "other"].map((textContent) => ({ textContent })),
    }),
    XMLSerializer: class {
      serializeToString = (el) => `<p>${el.children[0].textContent}\u0007</p>`;
    },
    Image: class {
      set src(url) {
        svg = decodeURIComponent(url);
      }
      async decode() {}
    },
  });
  assert.equal(await picture({ root }), "a picture");
  assert.deepEqual([texts.style.marginTop, texts.style.overflow], ["-40px", "hidden"]);
  assert.deepEqual(gone, ["data:canvas", "small", "tooltip"]);
  const [input, textarea] = fields;
  assert.deepEqual([input.getAttribute("value"), input.getAttribute("checked")], ["7", ""]);
  assert.deepEqual(
    [textarea.textContent, options.map((o) => o.getAttribute("selected"))],
    ["Why?", [null, ""]],
  );
  assert.match(svg, /width="600" height="400" viewBox="0 0 300 200"/);
  assert.ok(
    svg.includes(".inflight { x: y }") && !svg.includes("other") && !svg.includes("\u0007"),
  );
  globalThis.document = documentOf();
});

test("of a file that is large its size is said, in MiB, and a figure is named after its step", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] }); // the file's address is given up later
  const [saved, said] = [[], []];
  globalThis.document = documentOf({
    createElement: () => ({
      click() {
        saved.push(this.download);
      },
    }),
  });
  URL.createObjectURL = () => "blob:";
  globalThis.fetch = /** @type {any} */ (async (url) => new Response(new Uint8Array(Number(url))));
  const six = { name: "six", id: "r" };
  const taken = async (kind, size, { entry = six, header = {}, answer = {} } = {}) => {
    const run = runOf([], {}, { policy: "static", source: "recorded", ...header });
    const app = playerOf(
      { run, entry },
      {
        ...{ frame: { event: { step: 7 } }, ranks: {}, detail: { now: "full" } },
        toast: (words) => said.push(words),
        engines: { call: async () => answer && { url: String(size), ...answer } },
      },
    );
    await take(app, kind);
    return [...saved.splice(0), ...said.splice(0)];
  };
  assert.deepEqual(await taken("jsonl", 2 ** 20), ["inflight-six.jsonl"]);
  assert.deepEqual(await taken("html", 3 * 2 ** 19), [
    "inflight-six-step-7.html",
    "The file has 1.5 MiB.",
  ]);
  const named = async (entry, header = {}) => (await taken("perfetto", 9, { entry, header }))[0];
  for (const [name, entry, header] of /** @type {[string, any, any?][]} */ ([
    ["six", six],
    ["static", { id: "r", name: "a b" }],
    ["static", { id: "r" }],
    ["uploaded", { id: "r" }, { source: "uploaded" }],
    ["simulated-static", { id: "r" }, { source: "simulated" }],
    ["six-six-own-rule", { id: "r", comparison: "six six", racer: "own/rule" }],
  ]))
    assert.equal(await named(entry, header), `inflight-${name}.perfetto.json`);
  const unkept = "Only recorded, uploaded and finished runs can be exported.";
  assert.deepEqual(await taken("jsonl", 9, { entry: /** @type {any} */ ({}) }), [unkept]);
  const refused = { answer: /** @type {any} */ ({ error: "It is gone." }) };
  assert.deepEqual(await taken("jsonl", 9, refused), ["The export failed: It is gone."]);
  assert.deepEqual(await taken("jsonl", 9, { answer: /** @type {any} */ (null) }), [
    "The export failed: nothing came back",
  ]);
  globalThis.document = documentOf();
});

test("what was typed before a reload comes back, but not into a lesson; a run goes on without it", async () => {
  const { dataset } = document.documentElement;
  const kept = globalThis.sessionStorage;
  const typed = { workload: { requests: [{ id: "r0" }] }, config: {}, model: "m" };
  /** @type {any[]} */
  const told = [];
  const tell =
    (/** @type {string} */ name) =>
    (/** @type {any[]} */ ...what) =>
      void told.push([name, ...what]);
  const editorOf = (/** @type {unknown} */ text, /** @type {any} */ more = {}) => {
    globalThis.sessionStorage = /** @type {any} */ ({ getItem: () => JSON.stringify(text) });
    const { get = async () => ({ presets: [], policies: [] }), live = {}, edited } = more;
    const editor = of(Editor, {
      app: { engines: { get }, live, visit: { visitor: "v" }, toast: tell("toast") },
      ...{ frame: { say: tell("say"), button: {} }, model: { fill() {} }, edit: tell("edit") },
      ...{ field: () => new El(), _running: tell("run") },
    });
    return Object.defineProperty(editor, "edited", { value: edited });
  };
  const typedIn = (/** @type {string} */ part, /** @type {unknown} */ text) => {
    dataset.part = part;
    return editorOf(text).typed;
  };
  assert.deepEqual([typedIn("watch", typed), typedIn("learn", typed)], [typed, null]);
  assert.deepEqual([typedIn("watch", { config: {} }), typedIn("watch", null)], [null, null]);
  const ready = async (/** @type {any[]} */ ...given) => [
    await editorOf(...given).ready(),
    ...told.splice(0),
  ];
  assert.deepEqual(await ready(typed), [true, ["edit", typed]]);
  assert.deepEqual(await ready(null), [true]);
  const get = () => Promise.reject(new Error("it is away"));
  assert.deepEqual(await ready(typed, { get }), [
    ...[false, ["say", "The engine cannot be reached: it is away.", true]],
  ]);
  const resumed = async (/** @type {any} */ left, more = {}) => [
    await editorOf(null, { live: { left }, ...more }).resume(),
    ...told
      .splice(0)
      .map(([name, what, words]) => [name, what, words].slice(0, name === "run" ? 3 : 2)),
  ];
  const again = ["toast", "The run that was going on is taken up again."];
  const anew = ["toast", "The run that was going on starts again."];
  const run = ["run", typed, "Taking up the run."];
  assert.deepEqual(await resumed({ spec: typed, job: "j" }), [true, ["edit", typed], again, run]);
  assert.deepEqual(await resumed({ spec: typed }, { edited: true }), [true, anew, run]);
  assert.deepEqual(await resumed(null), [false]);
  assert.equal((await resumed({ spec: typed }, { get }))[0], false);
  delete dataset.part;
  globalThis.sessionStorage = kept;
});
