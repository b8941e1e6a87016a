// The messages of a request, shown when its row is opened: each has a role and a text, and can be
// changed, added and removed.

import { find, h, iconButton, newButton, setText } from "../parts/dom.js";
import { count } from "../parts/format.js";
import { t } from "../parts/speech.js";

/** @typedef {{role: string, content: string}} Message */

const ROLES = ["system", "user", "assistant"];

export class Conversation {
  /**
   * changed: called with the messages after each change made here. @param {Message[]} messages
   * @param {(messages: Message[]) => void} changed
   */
  constructor(messages, changed) {
    this.messages = messages;
    this.changed = changed;
    this.summary = h("summary", {});
    this.list = h("ol", {});
    const onclick = () => this._insert(this.messages.length);
    const add = newButton({ class: "link", onclick }, t("Add a message"));
    const kind = { class: "conversation soft fine", ontoggle: () => this._fill() };
    this.el = h("details", kind, this.summary, this.list, add);
    this.show(messages);
  }

  /** @param {Message[]} messages */
  show(messages) {
    this.messages = messages;
    setText(this.summary, t(`${count(messages.length)} [message|messages]`));
    this._fill();
  }

  /** The text field of a message that is empty, or null if none is. */
  get empty() {
    if (this.messages.every(({ content }) => content)) return null;
    this.el.open = true;
    this._fill();
    return [...this.list.querySelectorAll("textarea")].find(({ value }) => !value);
  }

  _fill() {
    if (this.el.open) this.list.replaceChildren(...this.messages.map((_, n) => this._message(n)));
  }

  /** @param {number} n */
  _message(n) {
    const roles = ROLES.map((name) => h("option", { value: name }, name));
    const role = h("select", { "aria-label": t(`Role of message ${n + 1}`) }, ...roles);
    const text = h("textarea", { "aria-label": t(`Message ${n + 1}`), spellcheck: "false" });
    [role.value, text.value] = [this.messages[n].role, this.messages[n].content];
    const say = () => this._say(this.messages.with(n, { role: role.value, content: text.value }));
    role.addEventListener("change", say);
    text.addEventListener("input", say);
    const remove = iconButton("trash", t("Remove this message"), () => this._remove(n));
    remove.disabled = this.messages.length === 1;
    const above = iconButton("plus", t("Add a message above"), () => this._insert(n));
    return h("li", {}, role, above, remove, text);
  }

  /** Insert an empty message: the system's before all others, else of the role whose turn it is. */
  _insert(/** @type {number} */ n) {
    const before = this.messages[n - 1];
    const isFirst = !before && this.messages[0].role !== "system";
    const role = isFirst ? "system" : before?.role === "user" ? "assistant" : "user";
    this._say(this.messages.toSpliced(n, 0, { role, content: "" }));
    this.show(this.messages);
    this._enter(n);
  }

  /** @param {number} n */
  _remove(n) {
    this._say(this.messages.toSpliced(n, 1));
    this.show(this.messages);
    this._enter(Math.min(n, this.messages.length - 1));
  }

  /** @param {number} n */
  _enter(n) {
    find(this.list.children[n], "textarea").focus();
  }

  /** @param {Message[]} messages */
  _say(messages) {
    this.messages = messages;
    this.changed(messages);
  }
}
