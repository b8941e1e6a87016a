import assert from "node:assert/strict";
import test from "node:test";

import { maskPointers } from "../../assets/player/views/mask/pointers.js";
import { neighbour, pointCanvas, pointElements } from "../../assets/player/watch/pointing.js";
import { El, Event } from "./elements.js";

// Two rows as a packed row has them: widths differ, the second is shorter.
const places = [
  [0, 0, 20],
  [22, 0, 60],
  [84, 0, 10],
  [0, 30, 40],
  [42, 30, 15],
].map(([x, y, w]) => ({ x, y, w, h: 22 }));

test("left and right go in reading order and stop at the ends", () => {
  assert.deepEqual(
    [0, 2, 4].map((at) => neighbour(places, at, "ArrowRight")),
    [1, 3, 4],
  );
  assert.deepEqual(
    [0, 3].map((at) => neighbour(places, at, "ArrowLeft")),
    [0, 2],
  );
  assert.deepEqual(
    ["Home", "End"].map((key) => neighbour(places, 2, key)),
    [0, 4],
  );
});

test("up and down go to what lies nearest in the next row, and laneSpan where there is none", () => {
  assert.deepEqual(
    [0, 1, 2].map((at) => neighbour(places, at, "ArrowDown")),
    [3, 4, 4],
  );
  assert.deepEqual(
    [3, 4].map((at) => neighbour(places, at, "ArrowUp")),
    [0, 1],
  );
  assert.equal(neighbour(places, 4, "ArrowDown"), 4);
});

test("a press that moves more than five pixels is a drag and selects nobody; a finger also shows what it found", () => {
  const canvas = new El("canvas");
  canvas.getBoundingClientRect = () => ({ left: 0, top: 0 });
  let found = { request: "A" };
  const done = [];
  const app = {
    run: {},
    pin: (request) => done.push(`selects ${request}`),
    hover: ({ request }) => done.push(`shows ${request}`),
  };
  pointCanvas(/** @type {any} */ (app), { surface: { canvas }, hit: () => found });
  const pressed = (clientX, clientY, more = {}) => {
    const happens = (type, at) =>
      canvas.dispatchEvent(Object.assign(new Event(type), { ...at, ...more }));
    happens("pointerdown", { clientX: 0, clientY: 0 });
    happens("click", { clientX, clientY });
    return done.splice(0).join();
  };
  assert.equal(pressed(3, 4), "selects A");
  assert.equal(pressed(6, 0), "");
  assert.equal(pressed(0, 0, { pointerType: "touch" }), "shows A,selects A");
  found = { request: "B", keepsPin: true };
  assert.equal(pressed(0, 0), "");
  found = null;
  assert.equal(pressed(0, 0), "selects null");
});

/** A mask of 10 × 10 cells, a pixel each, whose canvas hears pointers. */
function pointed(/** @type {object | null} */ zoom = null) {
  /** @type {Record<string, (e: object) => void>} */
  const on = {};
  const captured = new Set();
  const canvas = {
    addEventListener: (/** @type {string} */ name, /** @type {(e: object) => void} */ act) => {
      on[name] = act;
    },
    getBoundingClientRect: () => ({ left: 0, top: 0 }),
    setPointerCapture: (/** @type {number} */ id) => captured.add(id),
    hasPointerCapture: (/** @type {number} */ id) => captured.has(id),
  };
  const at = { view: [2, 6, 2, 6], top: 0, gutter: 0, ch: 1, cw: 1, rows: 4, cols: 4 };
  const mask = /** @type {any} */ ({
    ...{ surface: { canvas }, zoom, drawn: { at, pass: { nq: 10, nk: 10 } } },
    actions: { redraw() {}, changed() {} },
  });
  maskPointers(mask);
  const act = (/** @type {string} */ type, pointerId, clientX, clientY, button = 0) =>
    on[type]({ pointerId, clientX, clientY, button, preventDefault() {} });
  return { mask, act };
}

test("a finger drags a mask that is zoomed, also after two have zoomed it", () => {
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) {
    const { mask, act } = pointed({ view: [2, 6, 2, 6] });
    act("pointerdown", 1, 3, 3);
    act("pointermove", 1, 2, 4);
    assert.deepEqual(mask.zoom, { view: [1, 5, 3, 7] });
    act(end, 1, 2, 4);
    mask.zoom = { view: [2, 6, 2, 6] };
    act("pointermove", 1, 0, 0);
    assert.deepEqual(mask.zoom, { view: [2, 6, 2, 6] }, "it was let go");
    act("pointerdown", 2, 3, 3);
    act("pointermove", 2, 3, 2);
    assert.deepEqual(mask.zoom, { view: [3, 7, 2, 6] }, "the next is the only one");
    act("pointermove", 2, 3, -20);
    assert.deepEqual(mask.zoom, { view: [6, 10, 2, 6] }, "to the last row and no further");
  }
});

test("two fingers that come apart show fewer cells, a whole mask is not dragged, nor by another button", () => {
  const { mask, act } = pointed();
  act("pointerdown", 1, 2, 2);
  act("pointermove", 1, 0, 0);
  act("pointerup", 1, 0, 0);
  assert.equal(mask.zoom, null);
  act("pointerdown", 1, 1, 1);
  act("pointerdown", 2, 2, 1);
  act("pointermove", 2, 3, 1);
  act("pointermove", 1, 0, 1);
  assert.equal(mask.zoom.view[1] - mask.zoom.view[0], 4, "not fewer than four");
  const other = pointed({ view: [2, 6, 2, 6] });
  other.act("pointerdown", 1, 3, 3, 2);
  other.act("pointermove", 1, 0, 0);
  assert.deepEqual(other.mask.zoom, { view: [2, 6, 2, 6] });
});

test("the small mask is dragged past its edge, and a third finger holds the view still", () => {
  const { mask, act } = pointed({ view: [2, 6, 2, 6] });
  mask.minimap = { x: 100, y: 20, w: 100, h: 50 };
  const view = () => mask.zoom.view.join();
  act("pointerdown", 1, 99, 45); // beside it
  act("pointerup", 1, 99, 45);
  assert.equal(view(), "2,6,2,6");
  act("pointerdown", 1, 140, 55); // row 7 and column 4 of 10
  assert.equal(view(), "5,9,2,6");
  act("pointerleave", 1, 210, 20);
  act("pointermove", 1, 210, 20);
  assert.equal(view(), "0,4,6,10");
  act("pointerup", 1, 210, 20);
  act("pointermove", 1, 100, 70);
  assert.equal(view(), "0,4,6,10", "it was let go");
  act("pointerdown", 1, 1, 1);
  act("pointerdown", 2, 2, 1);
  act("pointerdown", 3, 3, 1);
  act("pointermove", 2, 9, 9);
  assert.equal(view(), "0,4,6,10");
});

test("a double click zooms to the request under it and back, but not on what a click acts on itself", () => {
  const { mask, act } = pointed();
  /** @type {unknown[]} */
  const zoomed = [];
  mask.zoomTo = (/** @type {unknown} */ to) => zoomed.push(to);
  const click = (/** @type {object | null} */ found, zoom = null) => {
    Object.assign(mask, { zoom, hit: () => found });
    act("dblclick", 1, 3, 3);
    return zoomed.splice(0);
  };
  const request = {};
  assert.deepEqual(click({ request }), [request]);
  assert.deepEqual(click({ request }, /** @type {any} */ ({ request })), [null]);
  assert.deepEqual(click(null, /** @type {any} */ ({ request })), [null]);
  assert.deepEqual(click(null), []);
  assert.deepEqual(click({ request, keepsPin: true }), []);
});

test("the address is told of the part that the wheel shows", () => {
  /** @type {Record<string, (e: object) => void>} */
  const on = {};
  /** @type {string[]} */
  const told = [];
  const canvas = {
    addEventListener: (/** @type {string} */ name, /** @type {(e: object) => void} */ act) => {
      on[name] = act;
    },
    getBoundingClientRect: () => ({ left: 0, top: 0 }),
  };
  const at = { view: [0, 10, 0, 10], top: 0, gutter: 0, ch: 1, cw: 1, rows: 10, cols: 10 };
  const mask = /** @type {any} */ ({
    surface: { canvas },
    drawn: { at, pass: { nq: 10, nk: 10 } },
    actions: { redraw: () => told.push("redraw"), changed: () => told.push("changed") },
  });
  maskPointers(mask);
  on.wheel({ deltaY: -1, clientX: 5, clientY: 5, preventDefault() {} });
  assert.deepEqual([mask.zoom, told], [{ view: [1, 9, 1, 9] }, ["redraw", "changed"]]);
});

test("a name of a request that is pointed at or pressed means that request", () => {
  const [acts, did] = [/** @type {Record<string, Function>} */ ({}), []];
  const requests = ["a", "b", "c"];
  const app = {
    ...{ options: {}, run: { requests }, store: { state: { hovered: null } } },
    root: { addEventListener: (kind, act) => (acts[kind] = act) },
    hover: (to) => did.push(["hover", to]) && (app.store.state.hovered = to?.request ?? null),
    pin: (to) => did.push(["pin", to]),
  };
  pointElements(/** @type {any} */ (app));
  let x = 0;
  const at = (kind, request, more = {}) => {
    const named = request === null ? null : { dataset: { request } };
    const target = { tagName: "SPAN", closest: () => named, ...more.target };
    acts[kind]({ clientX: (x += 1), clientY: 0, pointerType: "mouse", ...more, target });
    return did.splice(0);
  };
  assert.deepEqual(at("pointerover", "1"), [["hover", { request: "b" }]]);
  assert.deepEqual(at("pointerover", "1"), [], "it is lit");
  assert.deepEqual(at("pointerover", "2", { pointerType: "touch" }), []);
  assert.deepEqual(at("pointerover", "2", { target: { tagName: "CANVAS" } }), []);
  assert.deepEqual(at("pointerover", null), [["hover", null]]);
  assert.deepEqual(at("click", "2"), [["pin", "c"]]);
  assert.deepEqual(at("click", null), []);
  app.run = /** @type {any} */ (null);
  assert.deepEqual(at("click", "2"), []);
});
