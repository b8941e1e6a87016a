// The window of a page without a browser: its address, what it stores and fetches, and a clock that
// stands until it is set on. Imported before what is drawn in it.

import { Buffer } from "node:buffer";
import { readFileSync } from "node:fs";
import process from "node:process";
import { deflateRawSync, gunzipSync, inflateRawSync } from "node:zlib";

import { happen, Hearing, Page, page } from "./page_elements.js";
import { digest } from "./seen.js";
import { Sheets } from "./sheets.js";

export { happen, page, parse } from "./page_elements.js";

const { setImmediate } = globalThis; // not the page's own clock
const ASSETS = new URL("../../assets/", import.meta.url).href;
const timers = [];

const html = new Page("html");
const head = new Page("head");
const body = new Page("body");
const noted = (store) => ({
  getItem: (key) => store.get(key) ?? null,
  setItem: (key, value) => store.set(key, String(value)),
  removeItem: (key) => store.delete(key),
});
const never = class {
  observe() {}

  disconnect() {}

  unobserve() {}
};
/** A connection that stays after what it brings, until the page leaves it. */
const staying = (text, signal) =>
  new globalThis.ReadableStream({
    start(control) {
      control.enqueue(Buffer.from(text));
      signal.addEventListener("abort", () => control.error(signal.reason));
    },
  });

/** A frame in which an engine runs a visitor's code; it does what the script says. */
class Frame extends Page {
  constructor() {
    super("iframe");
    page.frames.push(() => happen(this, "load", { bubbles: false }));
    this.contentWindow = {
      postMessage: (_, origin, [port]) => {
        const say = (answer) => port.postMessage(JSON.stringify(answer));
        port.onmessage = ({ data }) => scripted(data, say);
        say({ kind: "started" });
      },
    };
  }
}

/** A stream that packs or unpacks within a turn; Node's own takes a thread, which may be late. */
const atOnce = (acts) =>
  class extends globalThis.TransformStream {
    constructor(format) {
      const act = acts[format];
      const parts = [];
      super({
        transform: (part) => void parts.push(part),
        flush(out) {
          try {
            out.enqueue(act(Buffer.concat(parts)));
          } catch {
            throw new TypeError("The stream is broken.");
          }
        },
      });
    }
  };
const stop = (n) => {
  if (timers[n - 1]) timers[n - 1].act = null;
};
const fitted = new Set();
/** The window has another size. */
export function resize(width, height) {
  Object.assign(page, { width, height });
  Object.assign(window, { innerWidth: width, innerHeight: height });
  for (const act of fitted) act();
}
class Address {
  constructor() {
    this.url = new URL("http://page/");
  }

  get hash() {
    return this.url.hash;
  }

  set hash(hash) {
    this.url.hash = hash;
    happen(window, "hashchange", { bubbles: false });
  }

  get search() {
    return this.url.search;
  }

  get href() {
    return this.url.href;
  }

  get origin() {
    return this.url.origin;
  }

  get protocol() {
    return this.url.protocol;
  }
}
const place = new Address();
const turned = (how) => (_state, _title, url) => {
  place.url = new URL(url, place.url);
  page.done.push([how, place.url.href]);
};
const told = new Hearing();
const preferred = new Set();
const preferring = [];
/** The visitor prefers something, by the words of a media query, or no longer. */
export function prefer(query) {
  preferred[preferred.has(query) ? "delete" : "add"](query);
  for (const [asked, act] of preferring) if (asked === query) act();
}
const { getComputedStyle } = globalThis;
const DARK = { "--scheme": "dark", "--panel": "#16181d", "--empty": "#22252b", "--ink": "#eeeeee" };
Object.assign(globalThis, {
  getComputedStyle: (el) => ({
    getPropertyValue: (name) =>
      (el.dataset.theme === "dark" && DARK[name]) || getComputedStyle(el).getPropertyValue(name),
  }),
  CompressionStream: atOnce({ "deflate-raw": deflateRawSync }),
  DecompressionStream: atOnce({ "deflate-raw": inflateRawSync, gzip: gunzipSync }),
  addEventListener: told.addEventListener.bind(told),
  removeEventListener: told.removeEventListener.bind(told),
  dispatchEvent: told.dispatchEvent.bind(told),
  hear: told.hear.bind(told),
  HTMLElement: Page,
  Node: Page,
  document: Object.assign(new Hearing(), {
    documentElement: html,
    head,
    body,
    hidden: false,
    referrer: "",
    baseURI: "http://page/",
    title: "",
    querySelector: (selector) => (html.matches(selector) ? html : html.querySelector(selector)),
    querySelectorAll: (selector) => html.querySelectorAll(selector),
    getElementById: (id) => html.querySelector(`#${id}`),
    createElement: (tag) => (tag === "iframe" ? new Frame() : new Page(tag)),
    createElementNS: (_, tag) => new Page(tag),
    createTextNode: (data) => Object.assign(new Page("text"), { data: String(data) }),
    createTreeWalker: (root) => {
      const texts = (el) =>
        el.children.flatMap((child) => (child.tagName === "TEXT" ? child : texts(child)));
      const left = texts(root);
      return {
        nextNode() {
          this.currentNode = left.shift();
          return this.currentNode;
        },
      };
    },
  }),
  location: place,
  history: { state: null, replaceState: turned("replaces"), pushState: turned("goes to") },
  localStorage: noted(page.stored.good),
  sessionStorage: noted(page.stored.visit),
  innerWidth: page.width,
  innerHeight: page.height,
  parent: globalThis,
  ResizeObserver: class extends never {
    constructor(act) {
      super();
      this.act = act;
    }

    observe() {
      fitted.add(this.act);
      page.frames.push(() => this.act());
    }
  },
  MutationObserver: never,
  IntersectionObserver: class extends never {
    constructor(act) {
      super();
      this.observe = (target) => page.frames.push(() => act([{ isIntersecting: true, target }]));
    }
  },
  Plotly: { newPlot: async (el, ...given) => (el.dataset.figure = digest(given)) },
  CSS: { escape: (text) => text },
  matchMedia: (query) => ({
    get matches() {
      return preferred.has(query);
    },
    addEventListener: (_, act) => preferring.push([query, act]),
  }),
  scrollTo({ top }) {
    page.scrolled = window.scrollY = top;
    happen(window, "scroll");
    setTimeout(() => happen(window, "scrollend"), 150);
  },
  scrollY: 0,
  fetch: async (url, { method = "GET", headers: given = {}, body = null, signal } = {}) => {
    page.done.push([
      method,
      String(url).replace(ASSETS, "assets/"),
      given,
      body && (await new Response(body).text()),
    ]);
    const path = String(url).split("?")[0];
    const name = String(url).replace(ASSETS, "");
    if (name !== String(url) && name.endsWith(".js"))
      return new globalThis.Response(readFileSync(new URL(url)));
    const next = page.streams[method === "GET" ? path : `${method} ${path}`]?.shift();
    const [status, told, wait] = Array.isArray(next) ? next : [200, next, null];
    const headers = wait ? { "retry-after": wait } : {};
    if (next?.stays) return new globalThis.Response(staying(next.stays, signal));
    if (next !== undefined) return new globalThis.Response(told, { status, headers });
    const answer = page.answers[name];
    return answer === undefined
      ? new globalThis.Response("", { status: 404 })
      : globalThis.Response.json(answer);
  },
  /** Of the page's own engine, which does what the script says. */
  Worker: class {
    postMessage(message) {
      scripted(message, (data) =>
        data.broke ? this.onerror(new globalThis.Event("error")) : this.onmessage({ data }),
      );
    }

    terminate() {
      page.done.push(["ends the engine"]);
      this.onmessage = this.onerror = () => {};
    }
  },
  MessageChannel: class {
    constructor() {
      const ports = [{}, {}];
      for (const [n, port] of ports.entries())
        Object.assign(port, {
          postMessage: (data) => setTimeout(() => ports[1 - n].onmessage?.({ data })),
          close: () => delete port.onmessage,
        });
      [this.port1, this.port2] = ports;
    }
  },
  setInterval: (act, ms) => timers.push({ act, at: page.now + ms, each: ms }),
  requestAnimationFrame: (act) => page.frames.push(act),
  cancelAnimationFrame: (n) => {
    page.frames[n - 1] = null;
  },
  setTimeout: (act, ms = 0) => timers.push({ act, at: page.now + ms }),
  clearTimeout: stop,
  clearInterval: stop,
});
Object.defineProperty(document, "activeElement", { get: () => page.focus ?? body });
Object.defineProperty(globalThis, "navigator", {
  value: { language: "en", clipboard: { writeText: async (text) => (page.copied = text) } },
  configurable: true,
});
performance.now = () => page.now;
Date.prototype.toLocaleTimeString = () => "12:00";
crypto.getRandomValues = (values) => values.fill(7);
performance.mark = () => {};
html.append(head, body);
process.on("unhandledRejection", (error) => {
  throw error;
});

/** What is due, by its order; what it asks for is not. */
async function turn() {
  for (let n = 0; n < 6; n += 1) await new Promise((done) => setImmediate(done));
  const [drawn, due] = [page.frames, timers.filter(({ act, at }) => act && at <= page.now)];
  page.frames = [];
  for (const act of drawn) act?.(page.now);
  for (const timer of due) {
    const { act } = timer;
    if (timer.each) timer.at += timer.each;
    else timer.act = null;
    act?.();
  }
}

/** What an engine in this tab answers by the script, a message in each picture of the screen. */
function scripted(message, hear) {
  const { id, do: does, kind, name, args, spec, model } = message;
  const what = [does, kind ?? name ?? model, spec?.task, spec?.code].filter(Boolean).join(" ");
  page.done.push(["tells the engine", message]);
  const said = page.engine[what]?.shift() ?? [];
  if (name === "document")
    said.push({ kind: "answer", value: JSON.stringify(page.answers[args[0]]) });
  said.forEach((answer, n) => setTimeout(() => hear({ ...answer, id }), 100 * n));
}

/** So many milliseconds later, ten pictures of the screen a second; two of the first are kept. */
export async function later(ms = 0) {
  for (
    const from = page.now;
    page.now < from + ms;
    page.now = Math.min(from + ms, page.now + 100)
  ) {
    await turn();
    if ([0, 300].includes(page.now - from)) page.done.push(digest(html.seen));
  }
  for (let n = 0; n < 3; n += 1) await turn();
}

/** Whether the window is what a media query asks for. */
const asks = (query) =>
  query.split(",").some((one) =>
    one.split(" and ").every((part) => {
      const [, name, value] = /\(([\w-]+): ([\w-]+)\)/.exec(part) ?? [];
      const [, most, side] = /(max|min)-(width|height)/.exec(name) ?? [];
      if (most === "max") return page[side] <= parseInt(value);
      if (most === "min") return page[side] >= parseInt(value);
      if (name === "orientation") return page.height > page.width === (value === "portrait");
      if (value === "no-preference") return !preferred.has(`(${name}: reduce)`);
      return name ? preferred.has(part.trim()) : part.trim() === "screen";
    }),
  );
/** What decides whether and in which colours an element is seen. */
const LOOKS =
  /^(\w+ )?(--.*|display|visibility|opacity|content|white-space|pointer-events|animation.*|fill|stroke|text-decoration.*|.*color|background.*|border(-\w+)?|box-shadow|outline.*)$/;
/** Style sheets of the page. @type {Sheets | null} */
let sheets = null;
export function dress(texts) {
  sheets = new Sheets(texts, asks);
}

/** Each element that the style sheets show, with its looks. */
function looks(el, all = new Map()) {
  if (!sheets || el.tagName === "TEXT" || el.hidden || el.isShut) return all;
  const of = sheets.of(el);
  if (/^none/.test(of.get("display"))) return all;
  all.set(
    el,
    [...of].filter(([name]) => LOOKS.test(name)),
  );
  for (const child of el.children) looks(child, all);
  return all;
}

/** What the page says: each text, name and title that is on screen, and what is on its canvases. */
function said(shown) {
  return html.querySelectorAll("*").flatMap((el) => {
    if (!el.getClientRects().length || el.tagName === "STYLE" || !shown.has(el)) return [];
    const own = el.children.flatMap(({ tagName, data }) => (tagName === "TEXT" ? data : []));
    const drawn = el.g?.done.flatMap(([name, text]) => (name === "fillText" ? text : [])) ?? [];
    return [...own, drawn.join(" "), el.title, el.getAttribute("aria-label") ?? ""].flatMap(
      (text) => text.replace(/\s+/g, " ").trim().slice(0, 90) || [],
    );
  });
}

/** What stays of the page besides what is seen: what is stored, who listens, what is due and when. */
const left = () => [
  ...[page.stored.good, page.stored.visit].map((store) => [...store]),
  ...[told, document, html, body].map(({ heard }) =>
    [...heard].map(([type, { length }]) => [type, length]),
  ),
  timers.flatMap(({ act, at }) => (act ? at - page.now : [])),
  document.title,
];

/**
 * Tells what the page says now and did not the time before, its address, what it asked for; by
 * digests all that is seen, and all that it did and left besides.
 */
export function teller() {
  let before = new Set();
  return () => {
    const shown = looks(html);
    const now = new Set(said(shown));
    const news = [...now].filter((text) => !before.has(text));
    before = now;
    const { copied } = page;
    page.copied = "";
    const taken = copied && `, taken: ${copied}`;
    const asked = page.done.flatMap(([what, url]) =>
      /^[A-Z]+$/.test(what) ? `, ${what} ${url}` : [],
    );
    const besides = digest([page.done, left()]);
    page.done = [];
    return `${digest(html.seen)} ${besides} ${digest([...shown.values()])} ${place.hash}${taken}${asked.join("")} ${news.join(" | ")}`;
  };
}
