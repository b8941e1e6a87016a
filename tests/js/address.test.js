import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { speak } from "../../assets/player/parts/speech.js";
import {
  Address,
  canonical,
  isSpec,
  pack,
  savedIn,
  unpack,
} from "../../assets/player/watch/address.js";
import { Pair } from "../../assets/player/watch/pair.js";
import { documentOf, El, of } from "./elements.js";

const request = { id: "r0", prompt: "To be", arrival: 0, sampling: { max_new_tokens: 4 } };

test("a spec goes into an address and comes back; one that is too long does not", async () => {
  const spec = {
    workload: { requests: [{ ...request, prompt: "Zoë ‘?&#’ 日本" }] },
    config: { policy: "static" },
  };
  const text = await pack(spec);
  assert.match(text, /^[\w-]+$/);
  assert.deepEqual(await unpack(text), spec);
  let x = 1;
  const noise = Array.from({ length: 12000 }, () =>
    String.fromCharCode(33 + ((x = (x * 48271) % 2147483647) % 90)),
  ).join("");
  assert.equal(await pack({ noise }), null);
  await assert.rejects(unpack("not a spec"));
  const large = String(await pack({ text: "x".repeat(2 ** 20) })); // packed it is short
  await assert.rejects(unpack(large), /it has more than 1 MiB/);
});

test("the same requests are the same text, whatever the order of keys; the unit of arrival counts", () => {
  const said = canonical({ requests: [request] });
  assert.equal(
    canonical({
      arrival_unit: "step",
      requests: [
        { sampling: { seed: 0, max_new_tokens: 4 }, arrival: 0, prompt: "To be", id: "r0" },
      ],
    }),
    said,
  );
  assert.notEqual(canonical({ arrival_unit: "s", requests: [request] }), said);
  assert.notEqual(canonical({ requests: [{ ...request, arrival: 1 }] }), said);
  for (const more of [{ priority: 1 }, { leaves_after: 3 }])
    assert.notEqual(canonical({ requests: [{ ...request, ...more }] }), said);
  assert.equal(canonical({ requests: [{ ...request, priority: 0, leaves_after: null }] }), said);
  const usual = { temperature: 0, top_k: 0, top_p: 1, seed: 0 };
  const told = { ...request, sampling: { ...usual, ...request.sampling } };
  assert.equal(canonical({ requests: [told] }), said, "what is usual need not be said");
});

test("what the form cannot show is neither a link's spec nor a saved workload", () => {
  const spec = { config: {}, model: "m", workload: { requests: [request] } };
  const said = [{ role: "user", content: "To be" }];
  const isTaken = (more, of = {}) => {
    const changed = { ...spec, ...more, workload: { requests: [{ ...request, ...of }] } };
    const found = [isSpec(changed), savedIn(JSON.stringify(changed)) !== null];
    assert.equal(found[0], found[1]);
    return found[0];
  };
  for (const messages of [undefined, null, said])
    assert.ok(isTaken({ device: null }, { messages }));
  for (const messages of ["To be", [], [null], {}, 5, ["To be"]])
    assert.ok(!isTaken({}, { messages }), JSON.stringify(messages));
  for (const name of ["model", "device", "dtype"]) assert.ok(!isTaken({ [name]: {} }), name);
  assert.ok(isSpec({ preset: "gpt2-six" }) && !isSpec({ preset: "gpt2-six", model: ["m"] }));
  const many = (length) => isSpec({ config: {}, workload: { requests: Array(length).fill({}) } });
  assert.ok(many(2000) && !many(2001));
  assert.ok(savedIn(JSON.stringify({ requests: [request] })) && !savedIn('{"requests": [null]}'));
});

test("a part of a mask is named by where it begins and ends, and is not empty", () => {
  const none = () => {};
  const app = { detail: { follow: none }, setTheme: none, setClock: none, present: none };
  const zoomOf = (zoom) => {
    globalThis.location = /** @type {any} */ ({ hash: `#zoom=${zoom}`, search: "" });
    return Address.prototype.read.call({ app }).zoom;
  };
  assert.deepEqual(["0,2,1,5", "1,1,0,3", "0,2,3,3", "1"].map(zoomOf), [
    [0, 2, 1, 5],
    null,
    null,
    "pin",
  ]);
});

test("a pair's address names the run in front first", () => {
  const [front, below] = [{ run: {} }, { run: {} }];
  const link = { comparison: "c", racer: "static", beside: "continuous" };
  const addressOf = Object.getOwnPropertyDescriptor(Pair.prototype, "address")?.get;
  const pair = (run) => ({ members: [front, below], link, app: { run } });
  assert.equal(addressOf?.call(pair(front.run)), link);
  const flipped = { ...link, racer: "continuous", beside: "static" };
  assert.deepEqual(addressOf?.call(pair(below.run)), flipped);
});

test("an address names the pass that was chosen, and a request as its engine does", () => {
  const hash = (state, header = {}) => {
    const app = {
      ...{ run: { length: 9, header, stepOf: (i) => i + 1 }, entry: { name: "six" }, index: 3 },
      ...{ pass: Infinity, pinned: null, pair: {}, ranks: {}, mask: { zoom: null, layer: null } },
      ...{
        layout: "desk",
        tab: "mask",
        beside: {},
        clock: false,
        detail: {},
        root: { dataset: {} },
      },
      ...{ store: { state: {} }, options: {} },
      ...state,
    };
    return Object.assign(Object.create(Address.prototype), { app })._hash();
  };
  globalThis.location = /** @type {any} */ ({ hash: "" });
  assert.equal(hash({}), "#run=six&step=4");
  assert.equal(hash({ pass: 0 }), "#run=six&step=4&pass=0");
  const pinned = { id: "req-7", letter: "C" };
  assert.equal(hash({ pinned }), "#run=six&step=4&pin=C");
  assert.equal(hash({ pinned }, { engine: { name: "vLLM" } }), "#run=six&step=4&request=req-7");
  const mask = { zoom: { view: [0, 4, 2, 9] }, layer: 0 };
  assert.equal(hash({ mask }), "#run=six&step=4&zoom=0%2C4%2C2%2C9&layer=0");
  assert.equal(
    hash({ layout: "phone", tab: "text", clock: true }),
    "#run=six&step=4&tab=text&axis=time",
  );
});

test("a link shows what anybody can open; of anything else it is said why it cannot", () => {
  const run = { length: 3, header: {} };
  const why = (more = {}) => {
    const app = { run, pair: {}, options: {}, entry: {}, ...more };
    return Object.assign(Object.create(Address.prototype), { app }).hindrance;
  };
  for (const kind of ["name", "spec", "trace", "comparison"])
    assert.equal(why({ entry: { [kind]: "x" } }), null, kind);
  assert.equal(why({ pair: { address: {} } }), null);
  const own = {};
  assert.equal(why({ document: own, options: { replay: own } }), null, "a page with its own run");
  const cannot = {
    "There is no run on screen.": [{ run: null }, { run: { length: 0 }, entry: { name: "x" } }],
    "This run is still going. Once it is done a link can run it again.": [
      { run: { ...run, goesOn: true } },
    ],
    "A policy that you wrote made this run. In Write, Copy link gives its code.": [
      { entry: { written: "refill" } },
    ],
    "This run leaks on purpose. Share the run as it was: the leak is one click from there.": [
      { run: { length: 3, header: { leak: "x" } } },
    ],
    "This run was opened from a file: it is on your machine alone.": [
      { run: { length: 3, header: { source: "uploaded" } } },
    ],
    "This run was measured here, for you: nobody else can open it.": [
      { entry: { racer: "static" } },
    ],
    "What this run was asked is too long for an address.": [{}],
    "This run did not come to its end, and is kept nowhere.": [
      { entry: null },
      { entry: null, document: {}, options: { replay: {} } },
    ],
  };
  for (const [sentence, cases] of Object.entries(cannot))
    for (const one of cases) assert.equal(why(one), sentence);
});

/** An address that is read, and what the app was told meanwhile. */
function reading(/** @type {string} */ hash, search = "", presenter = false) {
  /** @type {unknown[][]} */
  const told = [];
  const tell =
    (/** @type {string} */ name) =>
    (/** @type {unknown[]} */ ...how) =>
      told.push([name, ...how]);
  const names = ["setTheme", "setClock", "present"];
  const app = Object.fromEntries(names.map((name) => [name, tell(name)]));
  Object.assign(app, { presenter, detail: { follow() {} } });
  globalThis.location = /** @type {any} */ ({ hash: `#${hash}`, search });
  return { wanted: Address.prototype.read.call({ app }), told };
}

test("an address is read name by name; what is no number or half of a pair says nothing", () => {
  const read = (/** @type {string} */ hash, search = "") => {
    const { wanted } = reading(hash, search);
    return Object.fromEntries(
      Object.entries(wanted).filter(([, value]) => value !== null && String(value) !== ""),
    );
  };
  for (const [hash, said] of /** @type {[string, object][]} */ ([
    ["run=six&part=learn&tab=text", { run: "six", part: "learn", tab: "text" }],
    ["step=7&pass=0&layer=12", { step: 7, pass: 0, layer: 12 }],
    ["step=-1&pass=1.5&layer=1234567890", {}],
    ["rank=all&at=2.5", { rank: "all", at: 2.5 }],
    ["rank=1&at=2.", { rank: 1 }],
    ["rank=first&at=-2", {}],
    ["pin=C&request=req-7&view=row&side=b", { pin: "C", request: "req-7", view: "row", side: "b" }],
    ["comparison=c&beside=b", {}],
    ["racer=static", { racer: "static" }],
    ["comparison=c&racer=r&beside=b", { comparison: "c", racer: "r", beside: "b" }],
    ["what=w", {}],
    ["spec=s&what=w", { spec: "s", what: "w" }],
    ["trace=a&trace=b", { trace: ["a", "b"] }],
  ]))
    assert.deepEqual(read(hash), said, hash);
  const search = "?trace=q"; // of the page itself, unless its address names a run
  assert.deepEqual(read("step=1", search), { step: 1, trace: ["q"] });
  assert.deepEqual(read("run=six", search), { run: "six" });
  assert.deepEqual(read("spec=s", search), { spec: "s" });
  assert.deepEqual(read("trace=a", search), { trace: ["a"] });
  const told = (/** @type {string} */ hash, presenter = false) => reading(hash, "", presenter).told;
  assert.deepEqual(told("theme=dark&axis=time&present=1"), [
    ["setTheme", "dark"],
    ["setClock", true],
    ["present", true, true],
  ]);
  assert.deepEqual(told("theme=light&axis=steps&present=1", true), [
    ["setTheme", "light"],
    ["setClock", false],
  ]);
  assert.deepEqual(told("theme=blue&axis=tokens&present=0"), []);
});

test("what an address names is opened unless it is on screen, where its step is looked for", () => {
  const six = { name: "six" };
  /** @type {string[]} */
  const did = [];
  const act =
    (/** @type {string} */ name, of = (/** @type {any} */ _) => "") =>
    (/** @type {any} */ what) =>
      did.push(`${name} ${of(what)}`.trim());
  const followed = (/** @type {object} */ wanted, /** @type {object} */ more = {}) => {
    const app = {
      ...{ entry: null, run: {}, engines: {}, pair: { address: null }, ranks: {} },
      ...{
        options: { catalogue: [six] },
        open: act("open", (e) => e.name),
        missing: act("missing", String),
      },
      ...{
        look: act("look"),
        toast() {},
        fetching: null,
        editor: { restore: act("restore", (w) => w.spec) },
      },
      ...{ store: { set: act("cleared") }, mask: { reset() {} }, ...more },
    };
    const read = () => ({ trace: [], beside: null, ...wanted });
    Address.prototype.follow.call({ app, read });
    return [...did.splice(0), ...(app.fetching ? ["fetch"] : [])];
  };
  globalThis.location = /** @type {any} */ ({ hash: "#other" });
  const [looks, clears] = [["look"], ["cleared", "look"]];
  const pair = { address: { what: "w", beside: "b" } };
  for (const [wanted, more, expected] of /** @type {[object, object, string[]][]} */ ([
    [{ run: "six" }, {}, ["open six"]],
    [{ run: "six" }, { entry: six }, clears],
    [{ run: "ten" }, { entry: six }, ["missing ten"]],
    [{ step: 3 }, { entry: six }, looks],
    [{ step: 3 }, { run: null }, []],
    [{ step: 3, spec: null }, { entry: { spec: "s" } }, looks],
    [{ rank: 1 }, { ranks: { current: {}, look: act("rank") } }, ["rank"]],
    [{ trace: ["/t"] }, { entry: { trace: "/t" } }, clears],
    [{ trace: ["/t", "/u"] }, { entry: { trace: ["/t", "/u"] } }, clears],
    [{ spec: "s" }, { entry: { spec: "s" } }, clears],
    [{ spec: "s" }, { entry: { spec: "other" } }, ["restore s"]],
    [{ spec: "s" }, { entry: { spec: "other" }, engines: null }, clears],
    [{ trace: ["/t"] }, { entry: { trace: "/u" } }, ["fetch"]],
    [{ trace: ["/t"] }, { entry: { trace: ["/t", "/u"] } }, ["fetch"]],
    [{ comparison: "c", racer: "r" }, { entry: { comparison: "c", racer: "s" } }, ["fetch"]],
    [{ comparison: "c", racer: "r" }, { entry: { comparison: "d", racer: "r" } }, ["fetch"]],
    [{ comparison: "c", racer: "r" }, { entry: { comparison: "c", racer: "r" }, pair }, ["fetch"]],
    // a pair of runs is on screen if its own change is named
    [{ spec: "s", what: "w" }, { entry: { spec: "other" }, pair }, clears],
    [{ spec: "s", what: "v" }, { entry: { spec: "s" }, pair }, ["restore s"]],
    [{ spec: "s", what: "w" }, { entry: { spec: "s" } }, ["restore s"]],
    [{ comparison: "c", racer: "r" }, { entry: { comparison: "c", racer: "r" } }, clears],
    [
      { comparison: "c", racer: "r", beside: "b" },
      { entry: { comparison: "c", racer: "r" }, pair },
      clears,
    ],
  ]))
    assert.deepEqual(followed(wanted, more), expected, JSON.stringify([wanted, more]));
});

test("what no link can show is said with a way to save it, in the page's language", async () => {
  Object.assign(globalThis, {
    ...{ document: documentOf(), location: { hash: "" }, window: {}, HTMLElement: El },
  });
  const { Compare } = await import("../../assets/player/compare/compare.js");
  /** @type {string[]} */
  const saved = [];
  const dialog = Object.assign(new El("dialog"), { showModal() {} });
  const root = { querySelector: () => dialog };
  const card = (/** @type {() => unknown} */ share) => {
    share();
    const [title, says, button] = dialog.children;
    button.click();
    const words = [title, says, button].map((el) => el.textContent);
    return [...words, ...saved.splice(0)];
  };
  const watch = (/** @type {object} */ more = {}) => {
    const app = {
      ...{ root, run: { length: 3, header: {} }, entry: null, pair: {}, options: {} },
      ...{ engines: {}, runId: "r", isKept: true, take: (kind) => saved.push(kind), ...more },
    };
    return () => of(Address, { app }).share();
  };
  const [close, none, gone] = [
    "Close",
    "No link can show this",
    "This run did not come to its end, and is kept nowhere.",
  ];
  assert.deepEqual(card(watch()), [none, gone, "Save it as one page (HTML)", "html"]);
  for (const more of [{ runId: null }, { engines: null }])
    assert.deepEqual(card(watch(more)), [none, gone, "Save its replay (JSON)", "replay"]);
  assert.deepEqual(card(watch({ runId: null, isKept: false })), [none, gone, close]);
  const empty = watch({ run: { length: 0 } });
  assert.deepEqual(card(empty), [none, "There is no run on screen.", close]);
  const compare =
    (/** @type {object} */ doc, entry = { doc: {} }) =>
    () =>
      of(Compare, { root, doc, entry, _save: (kind) => saved.push(kind) })._share();
  assert.deepEqual(card(compare({})), [
    ...[none, "This comparison was measured here, for you: nobody else can open it."],
    ...["Save what was measured (JSON)", "json"],
  ]);
  const plan = "This plan was simulated here, for you: nobody else can open it.";
  assert.deepEqual(card(compare({ kind: "plan" })), [none, plan, "Save it (JSON)", "json"]);
  const german = JSON.parse(
    readFileSync(new URL("../../assets/words/de.json", import.meta.url), "utf8"),
  );
  speak(/** @type {any} */ ({ name: "de", words: german }));
  for (const share of [watch(), compare({}), empty])
    for (const words of card(share).slice(0, 2)) assert.doesNotMatch(words, /This|There|No /);
  assert.equal(card(watch())[2], "Als eine Seite speichern (HTML)");
  speak(null);
});

test("the code that embeds a run names its step and what is chosen, and there is none for a run of no address", () => {
  const createElement = (tag) => {
    const el = new El(tag);
    return Object.defineProperty(el, "outerHTML", { get: () => [...el.attributes] });
  };
  globalThis.document = documentOf({ createElement, baseURI: "http://page.test/in/" });
  const code = (given = {}, chosenTheme = null) => {
    const app = {
      ...{ entry: { name: "kv", title: "Small" }, options: { embed: "embed.html" } },
      ...{
        ranks: {},
        pair: {},
        alone: null,
        clock: false,
        index: 2,
        store: { state: { chosenTheme } },
      },
      run: { length: 9, stepOf: (index) => index + 10 },
      ...given,
    };
    return of(Address, { app }).embedCode;
  };
  const src = (...given) => Object.fromEntries(code(...given)).src;
  const page = "http://page.test/in/embed.html#run=kv";
  assert.deepEqual(code(), [
    ["src", `${page}&view=lanes,row,mask&step=12`],
    ["title", "Inflight: Small"],
    ["width", "720"],
    ["height", "560"],
    ["style", "border: 0"],
    ["loading", "lazy"],
  ]);
  assert.equal(src({ alone: "kv" }), `${page}&view=kv&step=12`);
  assert.equal(src({ alone: "queue" }), src(), "no figure can show it");
  const chosen = src({ clock: true }, "dark");
  assert.equal(chosen, `${page}&view=lanes,row,mask&step=12&axis=time&theme=dark`);
  for (const given of [
    { options: {} },
    { entry: { spec: {} } },
    { ranks: { current: {} } },
    { pair: { address: {} } },
    { run: { length: 0 } },
  ])
    assert.equal(code(given), null);
});
