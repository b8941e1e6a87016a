// What a visitor can send without a prompt of their own: three prompts, each sent at a press, and
// three bots that ask for a while. Bots are programs, and the page says so.

import { h, newButton } from "../parts/dom.js";
import { t, tell } from "../parts/speech.js";

export class House {
  /**
   * @param {HTMLElement} section @param {string[]} prompts
   * @param {{ask: (prompt: string) => Promise<void>, letBotsAsk: () => Promise<void>}} acts
   */
  constructor(section, prompts, { ask, letBotsAsk }) {
    this.section = section;
    this.title = h("h2", {});
    this.prompts = prompts.map((prompt) =>
      newButton(
        {
          class: "button prompt-button reading",
          onclick: (e) => this._press(e.currentTarget, () => ask(prompt)),
        },
        h("bdi", {}, /[.?!]$/.test(prompt) ? prompt : `${prompt} …`),
      ),
    );
    this.bots = newButton({
      class: "button bots-button",
      onclick: (e) => this._press(e.currentTarget, letBotsAsk),
    });
    this.says = h("p", { class: "house-says soft" });
    this.nature = h("p", { class: "house-says soft", hidden: true });
    section.append(
      this.nature,
      this.title,
      h("div", { class: "house-prompts wrap flex spaced" }, ...this.prompts),
      this.bots,
      this.says,
    );
  }

  /** Disable a button while it sends. @param {Json} button @param {() => Promise<void>} act */
  async _press(button, act) {
    button.disabled = this.isPressing = true;
    try {
      await act();
    } finally {
      button.disabled = this.isPressing = false;
    }
  }

  /** run: the batch's run, or null. @param {Run | null} run */
  draw(run) {
    this.nature.hidden = run?.header.model?.name !== "smollm2";
    tell(this.nature, "The model, SmolLM2, is small and often wrong: watch the scheduling.");
    const asking = Boolean(run?.requests.some((request) => request.isBot && !request.finished));
    tell(this.title, "No prompt in mind? Press one of ours:");
    for (const button of this.prompts)
      button.title = t("Add this prompt to the batch, under your name");
    tell(this.bots, asking ? "Three bots are asking …" : "Let three bots ask");
    if (!this.isPressing) this.bots.disabled = asking;
    const bots = "Bots are programs of this page, called Bot 1 to Bot 3. They stop by themselves.";
    tell(this.says, bots);
  }
}
