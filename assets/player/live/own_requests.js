// The visitor's own requests: sent by a form, followed, cancelled, shown in a list. They are kept
// in the session's storage, so that a reloaded page finds them; the visitor's name is kept only in
// this browser. Prompts and texts are data: always text nodes.

import { chip } from "../parts/chips.js";
import { find, h, isRedrawn, newButton, pause, put, randomHex, setText } from "../parts/dom.js";
import { keep, kept, keptList } from "../parts/kept.js";
import { Refusal } from "../parts/server.js";
import { speaking, t, tell } from "../parts/speech.js";
import { numWritten, whereabouts } from "./whereabouts.js";

const KEPT = "inflight-live-requests"; // key in the session's storage
const MOST = 20;
const AGAIN = 1000; // ms before a broken stream is resumed
const NAME = "inflight-nickname"; // key in the browser's storage
// the code of a key that belongs to a composition; in Safari `isComposing` is false for its Enter
const COMPOSING = 229;

/**
 * @typedef {{key: string, id: string, prompt: string, text: string, ends: number[],
 * next: number, ended: Json, seed?: number, lost?: string, went?: import("./whereabouts.js").Ended,
 * letter?: string, isChat?: boolean}} Own ends: where each token ends in the text; letter, isChat:
 * copied from the run, which drops old requests
 */

/** A request of which nothing has arrived yet. @param {Partial<Own>} own @returns {Own} */
const begun = (own) => /** @type {Own} */ ({ ...own, text: "", ends: [], next: 0, ended: null });

/** Whether an entry of the storage is a request. @param {Json} own @returns {own is Own} */
const isOwn = (own) => typeof own?.key === "string" && typeof own.prompt === "string";

/** The requests themselves, without DOM. */
export class OwnRequests {
  /** @param {import("../parts/server.js").Server} server @param {() => void} changed */
  constructor(server, changed) {
    this.server = server;
    this.changed = changed;
    /** @type {AbortController | null} */
    this._stop = null;
    /** @type {Set<Own>} requests that the server has not answered yet */
    this.asking = new Set();
    /** @type {Own[]} newest first */
    this.requests = keptList("visit", KEPT, isOwn).map(begun);
    this._follow();
  }

  has(/** @type {string} */ id) {
    return this.requests.some((own) => own.id === id);
  }

  /** List a request and send it; throws the server's sentence. */
  async ask(/** @type {Json} */ { prompt, tokens: max_new_tokens, nickname, temperature }) {
    const key = randomHex(16);
    const seed = crypto.getRandomValues(new Uint32Array(1))[0] % 2 ** 31;
    const asked = { key, prompt, nickname: nickname || null, max_new_tokens, temperature, seed };
    const own = begun({ key, id: "", prompt, seed });
    this.requests = [own, ...this.requests];
    this.asking.add(own);
    this._remember(); // for a page that is reloaded before the answer
    this.changed();
    try {
      own.id = (await this.server.post("inflight/live/requests", asked)).id;
    } catch (error) {
      this.requests = this.requests.filter((other) => other !== own);
      // without an answer it stays in the storage: a reload breaks off the sending, too
      if (error instanceof Refusal) this._remember();
      this.changed();
      throw error;
    } finally {
      this.asking.delete(own);
    }
    this.requests = this.requests.slice(0, MOST);
    this._remember();
    this._follow();
  }

  cancel(/** @type {Json} */ own) {
    return this.server.post(`inflight/live/requests/${own.key}/cancel`, {});
  }

  forget(/** @type {Json} */ own) {
    this.requests = this.requests.filter((other) => other !== own);
    this._remember();
  }

  /** Follow all unfinished requests in one stream, because browsers limit connections. */
  async _follow() {
    this.changed();
    this._stop?.abort();
    const stop = (this._stop = new AbortController());
    for (;;) {
      const open = this.open.filter((own) => !this.asking.has(own));
      if (!open.length) return;
      try {
        const places = open.map((own) => `${own.key}:${own.next}`).join(",");
        for await (const delta of this.server.once(
          `inflight/live/requests?places=${places}`,
          stop.signal,
        ))
          this._take(delta);
      } catch (/** @type {Foreign} */ error) {
        if (error.name === "AbortError") return;
      }
      await pause(AGAIN);
      if (stop.signal.aborted) return;
    }
  }

  _take(/** @type {Json} */ { of, last, messages = [], gone }) {
    const own = this.requests.find(({ key }) => key === of);
    if (!own) return;
    if (gone)
      own.lost = own.id
        ? "It is no longer on the server, which may have been restarted."
        : "It did not reach the server.";
    else own.next = last + 1;
    for (const { id, text, ended } of messages) {
      own.id ||= id;
      own.text += text || "";
      own.ends.push(own.text.length);
      own.ended = ended || own.ended;
    }
    this.changed();
  }

  get open() {
    return this.requests.filter((own) => !own.ended && !own.lost);
  }

  /** Note how the visitor's own requests ended. how: by id, other visitors' requests included. */
  went(/** @type {Json} */ how) {
    for (const own of this.requests) own.went = how[own.id] || own.went;
    this._remember();
  }

  /** Keep what the run says about a request for when the run no longer has it. */
  seen(/** @type {Json} */ own, /** @type {string} */ letter, /** @type {boolean} */ isChat) {
    if (own.letter === letter) return;
    Object.assign(own, { letter, isChat });
    this._remember();
  }

  _remember() {
    const lasting = this.requests.map(({ text, ends, next, ended, lost, ...own }) => own);
    keep("visit", KEPT, JSON.stringify(lasting));
  }
}

/** The form that adds a prompt to the batch. */
export class AskForm {
  /** @param {HTMLFormElement} form @param {OwnRequests} mine @param {() => void} asked */
  constructor(form, mine, asked) {
    this.form = form;
    this.mine = mine;
    this.asked = asked;
    this.temperature = 0.8;
    /** @type {(name: string) => HTMLInputElement} */
    this.field = (name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
    this.error = find(form, ".ask-error");
    this.button = /** @type {HTMLButtonElement} */ (find(form, ".ask-button"));
    this.field("nickname").value = kept("good", NAME) || "";
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      if (this.button.disabled) return; // a prompt is being sent
      const prompt = this.field("prompt");
      const { value } = prompt;
      if (!value.trim()) {
        prompt.value = ""; // the browser then says that something is missing
        form.reportValidity();
        return;
      }
      this.send(value, () => {
        if (prompt.value === value) prompt.value = ""; // else another is being typed
      });
    });
    this.field("prompt").addEventListener("keydown", (e) => {
      if (e.key === "Enter" && !e.shiftKey && e.keyCode !== COMPOSING) {
        e.preventDefault();
        form.requestSubmit();
      }
    });
  }

  /**
   * Set what suits the model: an example prompt, a number of tokens, a temperature.
   * @param {{prompt?: string, tokens: number, temperature: number}} suited
   */
  suggest({ prompt, tokens, temperature }) {
    if (prompt) this.field("prompt").placeholder = prompt;
    this.field("tokens").value = String(tokens);
    this.temperature = temperature;
  }

  /** Add a prompt to the batch, with the name and number of tokens of the form. */
  async send(/** @type {string} */ prompt, sent = () => {}) {
    const nickname = this.field("nickname").value.trim();
    keep("good", NAME, nickname);
    this.button.disabled = true;
    this.say("");
    try {
      const { temperature } = this;
      const tokens = Number(this.field("tokens").value);
      await this.mine.ask({ prompt, tokens, nickname, temperature });
      sent();
      this.asked();
    } catch (/** @type {Foreign} */ error) {
      this.refuse(error);
    }
    this.button.disabled = false;
  }

  refuse(/** @type {Json} */ error) {
    const again = error.retryAfter ? t(` Try again in ${error.retryAfter} s.`) : "";
    this.say(t(error.message) + again);
  }

  say(/** @type {string} */ sentence) {
    setText(this.error, sentence);
    this.error.hidden = !sentence;
  }
}

/** The list of own requests: letter and colour, place in the queue, text as it comes, times. */
export class OwnList {
  /**
   * @param {HTMLElement} section
   * @param {OwnRequests} mine
   * @param {() => {shown: SentenceContext, run: Run | null}} shown
   */
  constructor(section, mine, shown) {
    this.section = section;
    this.list = find(section, "ul");
    this.heard = find(section, ".own-heard"); // how the last one ended, and its answer
    this.mine = mine;
    this.shown = shown;
    this.rows = new Map();
  }

  draw() {
    const { mine, list } = this;
    this.section.hidden = !mine.requests.length;
    for (const [own, row] of this.rows) {
      if (mine.requests.includes(own)) continue;
      row.el.remove();
      this.rows.delete(own);
    }
    mine.requests.forEach((own, n) => {
      const row = this.rows.get(own) || this._row(own);
      if (list.children[n] !== row.el) list.insertBefore(row.el, list.children[n] || null);
      this._fill(own, row);
    });
  }

  _row(/** @type {Json} */ own) {
    /** @type {Json} */
    const row = {
      chip: h("span", { class: "own-chip fixed strong" }),
      state: h("span", { class: "own-state reading strong" }),
      prompt: h("span", { class: "prompt" }, own.prompt),
      text: h("span", { class: "output" }),
      button: newButton({ class: "button own-cancel end" }),
    };
    row.button.addEventListener("click", () => {
      if (!own.ended && !own.lost) this.mine.cancel(own).catch(() => {});
      else {
        this.mine.forget(own);
        this.draw();
      }
    });
    row.el = h(
      "li",
      { class: "own-row box grid" },
      h("div", { class: "own-head flex spaced wrap plain" }, row.chip, row.state, row.button),
      h("p", { class: "own-words scrolls" }, h("bdi", { dir: "auto" }, row.prompt, row.text)),
    );
    this.rows.set(own, row);
    return row;
  }

  _fill(/** @type {Json} */ own, /** @type {Json} */ row) {
    const { shown, run } = this.shown();
    const request = run && run.request(own.id);
    if (request) this.mine.seen(own, request.letter, run.isTemplate(request, 0));
    if (isRedrawn(row, { request, hue: request?.hue, language: speaking() })) {
      put(
        row.chip,
        request ? chip(shown, request, request.hue >= 0) : h("bdi", {}, own.letter || ""),
      );
      row.el.style.setProperty(
        "--hue",
        request && request.hue >= 0 ? `var(--hue-${request.hue})` : "var(--rule)",
      );
    }
    setText(row.state, whereabouts(run, own));
    // an answer does not continue the prompt, so a space is put between them
    if (own.isChat) setText(row.prompt, `${own.prompt} `);
    setText(row.text, own.text.slice(0, own.ends[numWritten(run, own) - 1] || 0));
    const over = Boolean(own.ended || own.lost);
    if (over && row.isOpen) setText(this.heard, `${row.state.textContent} ${row.text.textContent}`);
    row.isOpen = !over;
    row.button.hidden = this.mine.asking.has(own);
    tell(row.button, over ? "Remove" : "Cancel");
    row.button.setAttribute(
      "aria-label",
      `${t(over ? "Remove from this list" : "Cancel")}: ${own.prompt.slice(0, 40)}`,
    );
    row.el.classList.toggle("over", over);
  }
}
