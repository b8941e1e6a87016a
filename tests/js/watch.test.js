// What Watch does with an address and with what arrives late, without a page.

import assert from "node:assert/strict";
import test from "node:test";

/** @type {Record<string, () => void>} */
const heard = {};
globalThis.window = /** @type {any} */ ({
  addEventListener: (/** @type {string} */ name, /** @type {() => void} */ act) => {
    heard[name] = act;
  },
});
globalThis.document = /** @type {any} */ ({ documentElement: { dataset: {} } });
const at = (hash) => {
  globalThis.location = /** @type {any} */ ({ hash, search: "" });
};
at("");

const { Address, pack } = await import("../../assets/player/watch/address.js");
const { Beside } = await import("../../assets/player/watch/beside.js");
const { Editor } = await import("../../assets/player/watch/editor.js");
const { exportMenu } = await import("../../assets/player/watch/export.js");
const { openRacer } = await import("../../assets/player/watch/open_file.js");
const { Player } = await import("../../assets/player/watch/player.js");
const { Store } = await import("../../assets/player/watch/store.js");
const { restoreFork } = await import("../../assets/player/watch/what_if.js");

const none = () => {};
/** A player with this state, that has so much more. */
const playerOf = (state, more = {}) => {
  const store = new Store(/** @type {any} */ ({}));
  store.set(state);
  return Object.assign(Object.create(Player.prototype), {
    store,
    redraw: none,
    changed: none,
    ...more,
  });
};

test("what is on its way is not shown once another run was asked for", async () => {
  const shown = [];
  const doc = { title: "", runs: { static: {} } };
  const app = {
    options: { comparisons: [{ name: "c", url: "u" }] },
    fetch: async () => doc,
    openReplay: (_replay, _wanted, { racer }) => shown.push(racer),
  };
  const opens = () => openRacer(app, { comparison: "c", racer: "static" });
  assert.deepEqual([await opens(), shown], [true, ["static"]]);
  const late = opens();
  app.fetching = null; // as `Player.enter` does
  assert.deepEqual([await late, shown.length], [true, 1]);

  const address = new Address(app);
  address.follow = none;
  for (const [hash, left] of [
    ["#part=compare", {}],
    ["#run=r", null],
  ]) {
    app.fetching = {};
    at(hash);
    heard.hashchange();
    assert.deepEqual(app.fetching, left);
  }
});

test("a link to the run on screen clears what it does not name, and an empty address nothing", () => {
  const entry = { name: "r" };
  const app = playerOf(
    { run: {}, entry, pinned: { id: "a" }, pass: 0 },
    {
      options: { catalogue: [entry] },
      ranks: {},
      look: none,
      mask: { reset: () => (resets += 1) },
    },
  );
  let resets = 0;
  const follow = (run) => {
    at("#other");
    Address.prototype.follow.call({ app, read: () => ({ run, trace: [] }) });
    return [app.pinned, app.pass, resets];
  };
  assert.deepEqual(follow(null), [{ id: "a" }, 0, 0]);
  assert.deepEqual(follow("r"), [null, Infinity, 1]);
});

test("the view that stands alone stays where an address names it again", () => {
  const root = { dataset: { focusView: "mask" } };
  const run = { requests: [], windows: [] };
  const app = playerOf({ run, presenter: true }, { root, mask: {} });
  const after = (view) => {
    app.look({ view });
    return root.dataset.focusView;
  };
  assert.deepEqual(["mask", "row", "row"].map(after), ["mask", "row", "row"]);
});

test("the last step of another run is not the newest of the one in progress", () => {
  const [recorded, going] = [{ length: 3 }, { length: 3 }];
  const seek = (run, index) => {
    const app = playerOf(
      { run, edge: { going: true, run: going } },
      {
        transport: { track: run },
        ranks: {},
        mask: {},
        motion: { settle: none },
        intro: { used: none },
      },
    );
    app.seek(index, true);
    return app.following;
  };
  assert.deepEqual([seek(going, 1), seek(going, 2), seek(recorded, 2)], [false, true, false]);
});

test("a replay is offered of what is here or can be fetched, not of a run that nobody kept", () => {
  const offered = (state) => {
    const app = playerOf({ run: {}, ...state }, { ranks: {}, address: {} });
    return exportMenu(app).some((item) => item.text === "Replay");
  };
  const states = [{ replay: {} }, { entry: { url: "u" } }, { entry: null }];
  assert.deepEqual(states.map(offered), [true, true, false]);
});

test("without the other policy below, a run is on its own axis or the chosen one", () => {
  const axisAfter = (chosenAxis) => {
    const app = playerOf({ entry: { axis: "time" }, chosenAxis, clock: false });
    app.$ = () => ({ setAttribute: none });
    Beside.prototype._end.call({ on: true, axis: false, app });
    return app.clock;
  };
  assert.deepEqual([undefined, false, true].map(axisAfter), [true, false, true]);
});

test("a link's run that ends moves no other, and its address stays till it begins", async () => {
  const address = {};
  const owed = () => assert.equal(address.owes, true);
  const app = { address };
  await Editor.prototype.restore.call({ app, ready: async () => true, _restore: owed });
  assert.equal(address.owes, false);

  let looks = 0;
  const config = { policy: "p", max_num_seqs: 2 };
  const spec = { config, workload: { requests: [] } };
  const wanted = { spec: await pack(spec), what: "max_num_seqs:4" };
  const other = {};
  const run = {};
  Object.assign(app, { toast: none, look: () => (looks += 1), run, live: { run } });
  const editor = { app, model: { knows: () => true }, edited: true, runSpec: async () => true };
  const restored = () => Editor.prototype._restore.call(editor, { spec: wanted.spec });
  await restored();
  app.run = other;
  await restored();
  assert.equal(looks, 1);

  const ask = async () => {
    app.run = {}; // it was opened meanwhile
    return {};
  };
  Object.assign(app, {
    engines: { ask },
    fetch: async () => ({}),
    visit: {},
    pair: { members: [] },
    editor: { state: { policies: [] }, titleOf: none },
  });
  assert.equal(await restoreFork(app, spec, wanted), true);
  assert.equal(looks, 1);
});
