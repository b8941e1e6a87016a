// Prompts as messages, for a model with a chat template: each request holds a conversation, which the template turns into tokens on the server.

import { h, icon } from "../parts/dom.js";
import { t } from "../parts/speech.js";

const ROLES = ["system", "user", "assistant"];

/** A row of the editor's form: its text field, its request, and its conversation, if it has one. @typedef {{prompt: HTMLTextAreaElement, request: any, messages?: Conversation | null}} Row */

export class Messages {
  /** form: with the switch that turns all prompts into messages. touched: called when something changed. @param {HTMLFormElement} form @param {() => void} touched */
  constructor(form, touched) {
    /** @type {HTMLInputElement} */
    this.switch = form.querySelector("[name=as_messages]");
    this.label = this.switch.closest("label");
    this.touched = touched;
    /** @type {Row[]} */
    this.rows = [];
    this.switch.addEventListener("change", () => this._turn(this.switch.checked));
  }

  /** Whether the chosen model takes messages; those that a request came with are shown in any case. @param {boolean} takes @param {Row[]} rows */
  offer(takes, rows) {
    this.rows = rows;
    this.label.hidden = !takes && !rows.some((row) => row.messages);
    this.switch.checked = rows.some((row) => row.messages);
  }

  /** A row was added to the form. @param {Row} row */
  added(row) {
    const { messages } = row.request;
    if (messages) this._write(row, messages);
    else if (this.switch.checked && !row.request.prompt_token_ids)
      this._write(row, [{ role: "user", content: row.prompt.value }]);
    if (!row.messages) return;
    this.label.hidden = false;
    this.switch.checked = true;
  }

  /** @param {boolean} on */
  _turn(on) {
    for (const row of this.rows) {
      if (on && !row.messages && !row.request.prompt_token_ids)
        this._write(row, [{ role: "user", content: row.prompt.value }]);
      else if (!on && row.messages) {
        row.prompt.value = row.messages.value.map(({ content }) => content).join("\n");
        row.messages.el.replaceWith(row.prompt);
        row.messages = null;
      }
    }
    this.touched();
  }

  /** @param {Row} row @param {Message[]} messages */
  _write(row, messages) {
    row.messages = new Conversation(
      messages,
      this.touched,
      row.prompt.getAttribute("aria-label") || "",
    );
    row.prompt.replaceWith(row.messages.el);
  }
}

/** @typedef {{role: string, content: string}} Message */

class Conversation {
  /** @param {Message[]} messages @param {() => void} touched @param {string} name */
  constructor(messages, touched, name) {
    this.touched = touched;
    this.list = h("div", { class: "message-list" });
    this.el = h(
      "div",
      { class: "messages", role: "group", "aria-label": name },
      this.list,
      h(
        "button",
        {
          type: "button",
          class: "link add-message",
          onclick: () => this._add({ role: this._next, content: "" }, true),
        },
        t("Add a message"),
      ),
    );
    for (const message of messages) this._add(message);
  }

  /** Who would speak next. */
  get _next() {
    return this.value.at(-1)?.role === "user" ? "assistant" : "user";
  }

  /** @param {Message} message */
  _add({ role, content }, focus = false) {
    const roles = h(
      "select",
      { "aria-label": t("Role") },
      ...ROLES.map((name) => h("option", { value: name, selected: name === role }, name)),
    );
    const text = h("textarea", { rows: "1", "aria-label": t("Message"), spellcheck: "false" });
    text.value = content;
    const remove = h(
      "button",
      {
        type: "button",
        class: "icon-button",
        "aria-label": t("Remove this message"),
        onclick: () => {
          line.remove();
          this._count();
          this.touched();
        },
      },
      icon("close"),
    );
    const line = h("div", { class: "message" }, roles, remove, text);
    this.list.append(line);
    this._count();
    if (!focus) return;
    text.focus();
    this.touched();
  }

  /** The last one cannot be removed. */
  _count() {
    this.list.classList.toggle("one", this.list.children.length === 1);
  }

  /** @returns {Message[]} */
  get value() {
    return [...this.list.children].map((line) => ({
      role: line.querySelector("select")?.value || "user",
      content: line.querySelector("textarea")?.value || "",
    }));
  }

  /** The first message without a text, if any. */
  get empty() {
    return [...this.list.querySelectorAll("textarea")].find((text) => !text.value) || null;
  }
}
