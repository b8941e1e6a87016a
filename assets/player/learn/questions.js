// The questions of a stop. Their answers and reasons come with the lesson, computed from the trace.

import { clamp, h, newButton, onDrag, reducedMotion } from "../parts/dom.js";
import { t } from "../parts/speech.js";
import { sentence, sentenceText } from "./sentences.js";

const MOST_REASONS = 3;

class Question {
  /** ask: {text, why} and what its kind needs. answered(right, own); own: found, not shown. */
  constructor(/** @type {Ask} */ ask, /** @type {Json} */ { watch, terms, words, say, answered }) {
    this.ask = ask;
    this.watch = watch;
    this.words = words;
    this.tell = { say, answered };
    this.show = (/** @type {LessonSpan[]} */ spans) => sentence(spans, watch.state, terms);
    this.answer = h("div", { class: "answer", hidden: true });
  }

  /** Choose an option by its digit, from 1; returns whether there is such an option. */
  key(/** @type {number} */ _digit) {
    return false;
  }

  put(/** @type {Root} */ holder, /** @type {(Node | string)[]} */ ...content) {
    holder.replaceChildren(
      h("p", { class: "asked-text strong large" }, ...this.show(this.ask.text)),
      ...content,
      this.answer,
    );
  }

  /**
   * Show the verdict, the comment on the answer and a list of reasons, scrolled into sight. own:
   * the learner found the answer and was not shown it. @param {boolean} right
   * @param {string} verdict @param {LessonSpan[][]} said @param {Json} reasons
   */
  judge(right, verdict, said, reasons = [], own = true) {
    this.answer.hidden = false;
    this.answer.className = `answer ${right ? "right" : "wrong"}`;
    this.answer.replaceChildren(
      h("p", {}, h("b", {}, verdict), ...said.flatMap((spans) => [" ", ...this.show(spans)])),
    );
    const why = reasons.map((/** @type {Json} */ reason) => h("li", {}, ...this.show(reason)));
    if (why.length) this.answer.append(h("ul", {}, ...why));
    this.tell.say([verdict, ...[...said, ...reasons].map(sentenceText)].join(" ").trim());
    this.tell.answered(right, own);
    this.answer.scrollIntoView({ block: "nearest", behavior: reducedMotion() ? "auto" : "smooth" });
  }
}

/** A question with options: [{text, right, why}]. */
export class Choose extends Question {
  constructor(/** @type {Root} */ holder, /** @type {Ask} */ ask, /** @type {Json} */ on) {
    super(ask, on);
    this.buttons = ask.options.map((option, i) =>
      newButton(
        { class: "option surface flex spaced", onclick: () => this.choose(i) },
        h("kbd", { "aria-hidden": "true" }, String(i + 1)),
        h("span", {}, ...this.show(option.text)),
      ),
    );
    this.put(holder, h("div", { class: "options grid spaced", role: "group" }, ...this.buttons));
  }

  key(/** @type {number} */ digit) {
    const button = this.buttons[digit - 1];
    button?.click(); // which does nothing once the question is answered
    return Boolean(button);
  }

  choose(/** @type {number} */ i) {
    const { right, why } = this.ask.options[i];
    this.buttons[i].classList.add(right ? "right" : "wrong");
    this.buttons[i].setAttribute("aria-pressed", "true");
    if (right) for (const button of this.buttons) button.disabled = true;
    this.buttons[i].after(this.answer); // below the option that was chosen
    this.judge(right, right ? this.words.right : this.words.wrong, [right ? this.ask.why : why]);
  }
}

/**
 * A question in which the learner paints the mask of a step, {queries, keys: [{r, at, text, new}],
 * allowed: ["0110", …]}. Rows are queries, columns are keys; the answer is the trace's mask.
 */
export class Paint extends Question {
  constructor(/** @type {Root} */ holder, /** @type {Ask} */ ask, /** @type {Json} */ on) {
    super(ask, on);
    const { words } = this;
    this.cells = ask.queries.map((query, q) => ask.keys.map((key, k) => this._cell(q, k)));
    this.at = [0, 0];
    this.shown = false; // by "Show me", until cleared
    this.cells[0][0].tabIndex = 0;
    const label = (/** @type {MaskLabel} */ p, /** @type {string} */ axis) =>
      h(
        "span",
        {
          class: `axis ${axis} flex fine mono`,
          role: axis === "of-key" ? "columnheader" : "rowheader",
        },
        ...this.show([{ r: p.r }]),
        h("i", { class: "clip" }, p.text.replaceAll("\n", "↵").trim() || "␣"),
      );
    this.grid = h(
      "div",
      {
        class: "paint",
        role: "grid",
        "aria-label": words.mask,
        style: `--columns:${ask.keys.length}`,
        onkeydown: (e) => this._key(e),
      },
      h(
        "div",
        { class: "line grid", role: "row" },
        h("span", {
          class: "axis corner flex fine mono",
          role: "columnheader",
          "aria-label": `${words.query} / ${words.key}`,
        }),
        ...ask.keys.map((key) => label(key, "of-key")),
      ),
      ...ask.queries.map((query, q) =>
        h("div", { class: "line grid", role: "row" }, label(query, "of-query"), ...this.cells[q]),
      ),
    );
    this._drag();
    this.put(
      holder,
      h("p", { class: "quiet soft" }, words.how_to_paint),
      h("div", { class: "paint-holder" }, this.grid),
      h(
        "div",
        { class: "paint-tools spaced flex" },
        newButton(
          { class: "button primary check-button", onclick: () => this.check() },
          words.check,
        ),
        newButton({ class: "button", onclick: () => this.clear() }, words.clear),
        newButton({ class: "button show-button", onclick: () => this.reveal() }, words.show),
      ),
    );
  }

  _cell(/** @type {number} */ q, /** @type {number} */ k) {
    const key = this.ask.keys[k];
    const hue =
      this.watch.state.run?.requests.find(
        (/** @type {RunRequest} */ r) => r.letter === this.ask.queries[q].r,
      )?.hue ?? 0;
    // in the colours of the mask on screen
    const on = `--on: var(--${key.new ? "hue" : "cached"}-${Math.max(0, hue)})`;
    const el = h("span", {
      class: "cell",
      role: "gridcell",
      tabindex: "-1",
      "aria-selected": "false",
      "data-q": q,
      "data-k": k,
      style: on,
    });
    this._name(el, q, k, false);
    return el;
  }

  /** @param {HTMLElement} el @param {number} q @param {number} k @param {Json} on */
  _name(el, q, k, on) {
    const [query, key] = [this.ask.queries[q], this.ask.keys[k]];
    const [from, to] = [query, key].map(({ r, text }) => `${r} ${text.trim()}`);
    const may = on ? this.words.cell_allowed : this.words.cell_blocked;
    el.setAttribute("aria-label", `${from}, ${to}: ${may}`);
  }

  _set(/** @type {number} */ q, /** @type {number} */ k, /** @type {boolean} */ on) {
    const el = this.cells[q][k];
    el.classList.toggle("on", on);
    el.classList.remove("wrong");
    el.setAttribute("aria-selected", String(on));
    this._name(el, q, k, on);
  }

  _isOn(/** @type {number} */ q, /** @type {number} */ k) {
    return this.cells[q][k].classList.contains("on");
  }

  _fill(/** @type {(q: number, k: number) => boolean} */ wanted) {
    this.cells.forEach((row, q) => row.forEach((_, k) => this._set(q, k, wanted(q, k))));
  }

  _drag() {
    /** @type {(e: PointerEvent) => HTMLElement | null} */
    const under = (e) =>
      document.elementFromPoint(e.clientX, e.clientY)?.closest?.(".paint .cell") || null;
    /** @type {(cell: HTMLElement) => [number, number]} */
    const of = ({ dataset: { q, k } }) => [Number(q), Number(k)];
    onDrag(this.grid, (e) => {
      const first = under(e);
      if (!first) return null;
      const on = !first.classList.contains("on");
      this._set(...of(first), on);
      this._focus(...of(first));
      e.preventDefault();
      return (now) => {
        const cell = under(now);
        if (cell) this._set(...of(cell), on);
      };
    });
  }

  _focus(/** @type {number} */ q, /** @type {number} */ k) {
    this.cells[this.at[0]][this.at[1]].tabIndex = -1;
    this.at = [q, k];
    this.cells[q][k].tabIndex = 0;
    this.cells[q][k].focus();
  }

  _key(/** @type {KeyboardEvent} */ e) {
    const [q, k] = this.at;
    /** @type {Record<string, number[]>} */
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (moves[e.key])
      this._focus(
        clamp(q + moves[e.key][0], 0, this.cells.length - 1),
        clamp(k + moves[e.key][1], 0, this.cells[0].length - 1),
      );
    else if (e.key === " ") this._set(q, k, !this._isOn(q, k));
    else if (e.key === "Enter") this.check();
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** Why it was wrong to paint a cell, or to leave it out. */
  _mistake(/** @type {number} */ q, /** @type {number} */ k) {
    const [query, key] = [this.ask.queries[q], this.ask.keys[k]];
    const { mistake_missing: missing, mistake_other: other, mistake_future: future } = this.words;
    const reason = !this._isOn(q, k) ? missing : query.r !== key.r ? other : future;
    const [from, to] = [query, key].map(({ text }) => `“${text.trim()}”`);
    return [{ r: query.r }, ` ${from} → `, { r: key.r }, ` ${to}: ${reason}`];
  }

  check() {
    const { words } = this;
    const wrong = /** @type {number[][]} */ ([]);
    this.ask.allowed.forEach((row, q) =>
      [...row].forEach((cell, k) => {
        const mistaken = this._isOn(q, k) !== (cell === "1");
        this.cells[q][k].classList.toggle("wrong", mistaken);
        if (mistaken) wrong.push([q, k]);
      }),
    );
    // wrongly painted cells first
    wrong.sort(([q1, k1], [q2, k2]) => Number(this._isOn(q2, k2)) - Number(this._isOn(q1, k1)));
    if (!wrong.length)
      return this.judge(true, words.right, [[words.painted], this.ask.why], [], !this.shown);
    const reasons = wrong.slice(0, MOST_REASONS).map(([q, k]) => this._mistake(q, k));
    const said = t(`${wrong.length} [cell|cells] in red [differs|differ].`);
    this.judge(false, words.wrong, [[said]], reasons);
  }

  reveal() {
    this.shown = true;
    this._fill((q, k) => this.ask.allowed[q][k] === "1");
    this.judge(true, "", [this.ask.why], [], false);
  }

  clear() {
    this.shown = false;
    this.answer.hidden = true; // it was about what is cleared now
    this._fill(() => false);
  }
}
