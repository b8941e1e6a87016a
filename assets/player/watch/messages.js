// Prompts as messages, for models with a chat template, which turns messages into tokens. A row's
// text is the last message of the user; opening the row shows all messages.

import { find } from "../parts/dom.js";
import { Conversation } from "./conversation.js";

/**
 * A row of the editor's form. messages: its messages, in which the last text may be out of date;
 * null if the row is a plain prompt. raw: the text and the messages it had when it became a plain
 * prompt.
 * @typedef {import("./conversation.js").Message} Message
 * @typedef {{el: HTMLElement, prompt: HTMLTextAreaElement, request: Json, messages?: Message[] |
 * null, raw?: {text: string, messages: Message[]}, conversation?: Conversation | null}} Row
 */

/** The index of the user's last message. @param {Message[]} messages */
function placeOfLast(messages) {
  const at = messages.findLastIndex(({ role }) => role === "user");
  return at < 0 ? messages.length - 1 : at;
}

/** Messages with this text in the user's last. @param {Message[]} messages @param {string} text */
export const withLast = (messages, text) =>
  messages.with(placeOfLast(messages), { ...messages[placeOfLast(messages)], content: text });

export class Messages {
  /**
   * form: has the switch that turns all prompts into messages. touched: called after a change.
   * @param {HTMLFormElement} form @param {() => Row[]} rows @param {() => void} touched
   */
  constructor(form, rows, touched) {
    this.switch = /** @type {HTMLInputElement} */ (find(form, "[name=as_messages]"));
    this.label = /** @type {HTMLElement} */ (this.switch.closest("label"));
    this.rows = rows;
    this.touched = touched;
    /** @type {boolean | null} */
    this.takes = false; // null: not known
    this.switch.addEventListener("change", () => this.turn(this.switch.checked));
  }

  /** Whether requests can be messages. */
  get isOffered() {
    return !this.label.hidden;
  }

  get isOn() {
    return this.switch.checked;
  }

  /**
   * Note whether the chosen model takes messages, null if that is not known. Requests that came
   * with messages keep them in any case. @param {boolean | null} takes
   */
  offer(takes) {
    this.takes = takes;
    const rows = this.rows();
    this.switch.checked = rows.some((row) => row.messages);
    this.label.hidden =
      !takes && !this.switch.checked && !(takes === null && rows.some((row) => row.raw));
  }

  /** Set up a row that was added to the form. @param {Row} row */
  added(row) {
    const { messages } = row.request;
    if (messages) this._write(row, messages);
    row.prompt.addEventListener("input", () => {
      if (row.messages) row.conversation?.show(withLast(row.messages, row.prompt.value));
    });
    this.offer(this.takes);
  }

  /** Turn all prompts into messages, or into texts. @param {boolean} on */
  turn(on) {
    const rows = this.rows().filter(
      (row) => Boolean(row.messages) !== on && !row.request.prompt_token_ids,
    );
    for (const row of rows) {
      const text = row.prompt.value;
      if (row.messages) {
        const messages = withLast(row.messages, text);
        row.prompt.value = messages.map(({ content }) => content).join("\n");
        row.raw = { text: row.prompt.value, messages };
        this._write(row, null);
      } else if (text === row.raw?.text) this._write(row, row.raw.messages);
      else this._write(row, [{ role: "user", content: text }]);
    }
    this.offer(this.takes);
    if (rows.length) this.touched();
  }

  /** @param {Row} row @param {Message[] | null} messages */
  _write(row, messages) {
    row.messages = messages;
    row.conversation?.el.remove();
    row.conversation = null;
    if (!messages) return;
    row.prompt.value = messages[placeOfLast(messages)].content;
    row.conversation = new Conversation(messages, (said) => {
      row.messages = said;
      row.prompt.value = said[placeOfLast(said)].content;
      this.touched();
    });
    row.el.append(row.conversation.el);
  }
}
