// The teacher's panel: limits and policy, pace, bursts, what is hidden. It needs the token, which
// is kept in this tab's session only.

import { h, newButton, setText } from "../parts/dom.js";
import { bareCard } from "../parts/floating.js";
import { count } from "../parts/format.js";
import { keep, kept } from "../parts/kept.js";
import { t, tell } from "../parts/speech.js";
import { sharedModel } from "./shared_model.js";
import { paceWords } from "./words.js";

const TOKEN = "inflight-teacher"; // in the session's storage
const WRONG = 403; // the server's answer to another token
const AGAIN = 2000; // ms before one is tried again that it has not answered
const FASTEST = 20; // steps a second, on the slider

export class Teacher {
  /** @param {import("./live.js").Live} live */
  constructor(live) {
    this.live = live;
    /** @type {HTMLElement} */
    this.panel = live.$(".teacher");
    this.button = live.$(".teacher-button");
    this.token = kept("visit", TOKEN) || "";
    this.isOn = false; // the server accepted the token
    this._asking = 0; // how often the server has not answered yet
    this.button.addEventListener("click", () => (this.isOn ? this._toggle() : this._ask()));
  }

  /** The token of a printed link. */
  read(address) {
    const token = address.get("teacher");
    if (token) {
      this.token = token;
      this.live.address(); // remove it from the address, where others could read it
    }
    this._resume();
  }

  _resume() {
    if (this.token && !this.isOn && !this._asking) this._begin(this.token);
  }

  /** Ask for the token. */
  _ask(sentence = "") {
    const dialog = bareCard(this.live.root, "Teacher", "teacher-card");
    const field = h("input", {
      type: "password",
      class: "link-field",
      autocomplete: "off",
      "aria-label": t("Token"),
    });
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", {}, t("Teacher")),
      h("p", {}, t(sentence || "The token was printed where the page was started.")),
      field,
      h(
        "div",
        { class: "card-buttons" },
        h("button", { class: "button primary" }, t("Continue")),
        h("button", { class: "button", value: "no", formnovalidate: true }, t("Cancel")),
      ),
    );
    form.addEventListener("submit", (/** @type {SubmitEvent} */ e) => {
      if (e.submitter?.getAttribute("value") !== "no" && field.value)
        this._begin(field.value.trim(), true);
    });
    dialog.replaceChildren(form);
    dialog.showModal();
  }

  async _begin(token, byHand = false) {
    this._hold(token);
    this._asking += 1;
    try {
      const set = await this.live.server.get("serve/control", { "X-Teacher-Token": token });
      this._hold(token); // another may have been typed meanwhile
      this.isOn = true;
      this._build(set);
      this._toggle(true);
    } catch (error) {
      if (this.token === token && (byHand || error.status === WRONG)) this._hold("");
      else setTimeout(() => this._resume(), AGAIN); // a server that starts, or is away for a while
      if (byHand) this._ask(error.message);
    }
    this._asking -= 1;
    this.live.redraw();
  }

  _hold(token) {
    this.token = token;
    keep("visit", TOKEN, token || null);
  }

  _toggle(on = this.panel.hidden) {
    this.panel.hidden = !on;
    this.live.$(".live-card").classList.toggle("teaches", on);
    this.button.setAttribute("aria-expanded", String(on));
  }

  async _set(what) {
    const { batch, server } = this.live;
    setText(this.error, "");
    this._asking += 1;
    try {
      const {
        steps_per_s: pace,
        hide_texts,
        hide_nicknames,
        accepting,
        system,
      } = await server.post("serve/control", what, { "X-Teacher-Token": this.token });
      // these apply at once; the engine reports when it has the limits
      const set = { hide_texts, hide_nicknames, accepting, system };
      batch.state = { ...batch.state, pace, class: { ...batch.state.class, ...set } };
    } catch (error) {
      tell(this.error, error.message);
    }
    this._asking -= 1;
    this.live.redraw();
  }

  /** Three bots ask, as they do for anybody. */
  async _bots() {
    setText(this.error, "");
    await this.live.letBotsAsk();
  }

  /** In another language. */
  named() {
    if (this.isOn) this._build(this._given);
  }

  _build(set) {
    this._given = set;
    this._touched = false; // its fields are new
    const { bursts = [] } = set;
    const { policies } = this.live.options;
    const number = (name, label, most) =>
      h(
        "label",
        { class: "field" },
        h("span", {}, t(label)),
        h("input", {
          name,
          type: "number",
          inputmode: "numeric",
          min: "1",
          max: String(most),
          step: "1",
          required: true,
        }),
      );
    const act = (text, what, /** @type {string | null} */ title = null) =>
      newButton(
        { class: "button", title: title && t(title), onclick: () => this._set(what()) },
        t(text),
      );
    const check = (name, label, what) =>
      h(
        "label",
        { class: "check" },
        h("input", { name, type: "checkbox", onchange: (e) => this._set(what(e.target.checked)) }),
        h("span", {}, t(label)),
      );
    /** @type {HTMLFormElement} */
    this.limits = h(
      "form",
      { class: "limits" },
      h(
        "label",
        { class: "field" },
        h("span", {}, t("Policy")),
        h(
          "select",
          { name: "policy" },
          ...policies.map((p) => h("option", { value: p.name, title: t(p.shows) }, p.name)),
        ),
      ),
      number("max_num_seqs", "Lanes", 64),
      number("max_num_batched_tokens", "Budget", 16384),
      h("button", { class: "button primary" }, t("Set")),
    );
    this.limits.addEventListener("submit", (e) => {
      e.preventDefault();
      this._touched = false;
      const [policy, lanes, budget] = this._fields();
      this._set({
        policy: policy.value,
        max_num_seqs: Number(lanes.value),
        max_num_batched_tokens: Number(budget.value),
      });
    });
    this.limits.addEventListener("input", () => {
      this._touched = true;
    });
    /** @type {HTMLInputElement} */
    this.pace = h("input", {
      type: "range",
      min: "0",
      max: String(FASTEST),
      step: "1",
      "aria-label": t("Steps a second"),
      onchange: (e) => this._set({ steps_per_s: Number(e.target.value) }),
    });
    /** @type {HTMLElement} */
    this.paceSays = h("span", { class: "pace-says" });
    /** @type {HTMLElement} */
    this.error = h("p", { class: "ask-error", role: "alert" });
    /** @type {HTMLElement} */
    this.checks = h(
      "div",
      { class: "checks" },
      check("hide_texts", "Hide texts", (on) => ({ hide_texts: on })),
      check("hide_nicknames", "Hide names", (on) => ({ hide_nicknames: on })),
      check("accepting", "Accept requests", (on) => ({ accepting: on })),
    );
    /** @type {HTMLTextAreaElement} */
    this.system = h("textarea", {
      name: "system",
      rows: "2",
      maxlength: "1000",
      onchange: (e) => this._set({ system: e.target.value }),
    });
    /** @type {HTMLElement} */
    this.told = h("label", { class: "field" }, h("span", {}, t("System prompt")), this.system);
    this.panel.replaceChildren(
      h("h2", {}, t("Teacher")),
      this.error,
      this.limits,
      h(
        "div",
        { class: "pace" },
        h("span", { class: "label" }, t("Pace")),
        this.pace,
        this.paceSays,
      ),
      h(
        "div",
        { class: "acts" },
        act("One step", () => ({ steps: 1, ...(this._pace === 0 ? {} : { steps_per_s: 0 }) })),
        act("Full speed", () => ({ steps_per_s: null })),
        act("Clear the batch", () => ({ clear: true }), "Cancels whatever is in progress"),
      ),
      h(
        "div",
        { class: "acts" },
        h("span", { class: "label" }, t("Bursts")),
        ...bursts.map((w) =>
          newButton(
            {
              class: "button burst",
              title: `${t(w.shows)} ${t(`${count(w.requests)} [request|requests]`)}.`,
              onclick: () => this._set({ burst: w.name }),
            },
            t(w.name),
          ),
        ),
        newButton(
          {
            class: "button",
            title: t("Bot 1 to Bot 3 ask one request after another, and stop by themselves"),
            onclick: () => this._bots(),
          },
          t("three bots"),
        ),
      ),
      this.told,
      this.checks,
      sharedModel(this.live.server, () => this.token),
    );
  }

  _fields() {
    return ["policy", "max_num_seqs", "max_num_batched_tokens"].map(
      (name) => /** @type {HTMLInputElement} */ (this.limits.elements.namedItem(name)),
    );
  }

  get _pace() {
    return this.live.batch.state.pace;
  }

  draw() {
    tell(this.button, this.isOn ? "Teacher" : "Teacher …");
    if (!this.isOn) return;
    const set = this.live.batch.state.class;
    setText(this.paceSays, paceWords(this._pace));
    if (document.activeElement !== this.pace) this.pace.value = String(this._pace ?? FASTEST);
    if (!set) return;
    this.told.hidden = (set.system ?? null) === null;
    if (document.activeElement !== this.system && !this._asking)
      this.system.value = set.system || "";
    const shown = set.next || set;
    if (!this._touched && !this.limits.contains(document.activeElement))
      for (const field of this._fields()) field.value = String(shown[field.name] ?? "");
    if (!this._asking)
      for (const box of this.checks.querySelectorAll("input")) box.checked = Boolean(set[box.name]);
  }
}
