// The teacher's panel: limits and policy, pace, bursts, what is hidden. It needs the teacher's
// token, which is kept only in this tab's session.

import { h, newButton, setText } from "../parts/dom.js";
import { bareCard } from "../parts/floating.js";
import { count } from "../parts/format.js";
import { keep, kept } from "../parts/kept.js";
import { t, tell } from "../parts/speech.js";
import { sharedModel } from "./shared_model.js";
import { paceWords } from "./words.js";

const TOKEN = "inflight-teacher"; // key in the session's storage
const WRONG = 403; // HTTP status for a wrong token
const AGAIN = 2000; // ms before a token that the server did not answer is sent again
const FASTEST = 20; // steps per second at the slider's end

export class Teacher {
  /** @param {import("./live.js").Live} live */
  constructor(live) {
    this.live = live;
    /** @type {HTMLElement} */
    this.panel = live.$(".teacher");
    this.button = live.$(".teacher-button");
    this.token = kept("visit", TOKEN) || "";
    this.isOn = false; // whether the server accepted the token
    this._asking = 0; // how many requests the server has not answered yet
    this.button.addEventListener("click", () => (this.isOn ? this._toggle() : this._ask()));
  }

  get headers() {
    return this.isOn ? { "X-Teacher-Token": this.token } : {};
  }

  read(/** @type {URLSearchParams} */ address) {
    const token = address.get("teacher");
    if (token) {
      this.token = token;
      this.live.address(); // this removes the token from the address, where others could read it
    }
    this._resume();
  }

  _resume() {
    if (this.token && !this.isOn && !this._asking) this._begin(this.token);
  }

  /** Show a dialog that asks for the token. */
  _ask(sentence = "") {
    const dialog = bareCard(this.live.root, "Teacher", "teacher-card");
    const field = h("input", {
      type: "password",
      class: "link-field box",
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
        { class: "card-buttons spaced flex" },
        h("button", { class: "button primary" }, t("Continue")),
        h("button", { class: "button", value: "no", formnovalidate: true }, t("Cancel")),
      ),
    );
    form.addEventListener("submit", (e) => {
      if (e.submitter?.getAttribute("value") !== "no" && field.value)
        this._begin(field.value.trim(), true);
    });
    dialog.replaceChildren(form);
    dialog.showModal();
  }

  async _begin(/** @type {string} */ token, byHand = false) {
    this._hold(token);
    this._asking += 1;
    try {
      const set = await this.live.server.get("serve/control", { "X-Teacher-Token": token });
      this._hold(token); // another token may have been entered meanwhile
      this.isOn = true;
      this._build(set);
      this._toggle(true);
    } catch (/** @type {Foreign} */ error) {
      if (this.token === token && (byHand || error.status === WRONG)) this._hold("");
      else setTimeout(() => this._resume(), AGAIN); // the server may be starting, or away
      if (byHand) this._ask(error.message);
    }
    this._asking -= 1;
    this.live.redraw();
  }

  _hold(/** @type {string} */ token) {
    this.token = token;
    keep("visit", TOKEN, token || null);
  }

  _toggle(on = this.panel.hidden) {
    this.panel.hidden = !on;
    this.live.$(".live-card").classList.toggle("teaches", on);
    this.button.setAttribute("aria-expanded", String(on));
  }

  async _set(/** @type {Json} */ what) {
    const { batch, server } = this.live;
    setText(this.error, "");
    this._asking += 1;
    try {
      const said = await server.post("serve/control", what, this.headers);
      const { steps_per_s: pace, hide_texts, hide_nicknames, accepting, system } = said;
      // these apply at once; new limits apply when the engine reports them
      const set = { hide_texts, hide_nicknames, accepting, system };
      batch.state = { ...batch.state, pace, class: { ...batch.state.class, ...set } };
    } catch (/** @type {Foreign} */ error) {
      tell(this.error, error.message);
    }
    this._asking -= 1;
    this.live.redraw();
  }

  named() {
    if (this.isOn) this._build(this._given);
  }

  _build(/** @type {Json} */ set) {
    this._given = set;
    this._touched = false; // the fields are new
    const { bursts = [] } = set;
    const { policies } = this.live.options;
    const field = (/** @type {string} */ label, /** @type {HTMLElement} */ control) =>
      h("label", { class: "field" }, h("span", {}, t(label)), control);
    const whole = { type: "number", inputmode: "numeric", min: "1", step: "1", required: true };
    const label = (/** @type {string} */ text) => h("span", { class: "label" }, t(text));
    /** @param {string} text @param {() => unknown} onclick */
    const act = (text, onclick, title = "", more = "") =>
      newButton({ class: `button ${more}`, title: title || null, onclick }, t(text));
    const check = (/** @type {string} */ name, /** @type {string} */ label) => {
      const onchange = (/** @type {Json} */ e) => this._set({ [name]: e.target.checked });
      const box = h("input", { name, type: "checkbox", onchange });
      return h("label", { class: "check" }, box, h("span", {}, t(label)));
    };
    const options = policies.map((/** @type {Json} */ p) =>
      h("option", { value: p.name, title: t(p.shows) }, p.name),
    );
    /** @type {HTMLFormElement} */
    this.limits = h(
      "form",
      { class: "limits grid spaced" },
      field("Policy", h("select", { name: "policy" }, ...options)),
      field("Lanes", h("input", { ...whole, name: "max_num_seqs", max: "64" })),
      field("Budget", h("input", { ...whole, name: "max_num_batched_tokens", max: "16384" })),
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
    this.paceSays = h("span", { class: "pace-says soft fine" });
    /** @type {HTMLElement} */
    this.error = h("p", { class: "ask-error plain strong", role: "alert" });
    /** @type {HTMLElement} */
    this.checks = h(
      "div",
      { class: "checks wrap flex" },
      check("hide_texts", "Hide texts"),
      check("hide_nicknames", "Hide names"),
      check("accepting", "Accept requests"),
    );
    /** @type {HTMLTextAreaElement} */
    this.system = h("textarea", {
      name: "system",
      rows: "2",
      maxlength: "1000",
      onchange: (e) => this._set({ system: e.target.value }),
    });
    /** @type {HTMLElement} */
    this.told = field("System prompt", this.system);
    const step = () => ({ steps: 1, ...(this._pace === 0 ? {} : { steps_per_s: 0 }) });
    const askBots = () => {
      setText(this.error, "");
      this.live.letBotsAsk(); // the same as the button that every visitor has
    };
    this.panel.replaceChildren(
      h("h2", {}, t("Teacher")),
      this.error,
      this.limits,
      h("div", { class: "pace grid" }, label("Pace"), this.pace, this.paceSays),
      h(
        "div",
        { class: "acts flex spaced fixed" },
        act("One step", () => this._set(step())),
        act("Full speed", () => this._set({ steps_per_s: null })),
        act(
          "Clear the batch",
          () => this._set({ clear: true }),
          t("Cancels whatever is in progress"),
        ),
      ),
      h(
        "div",
        { class: "acts flex spaced fixed" },
        label("Bursts"),
        ...bursts.map((/** @type {Json} */ { name, shows, requests }) =>
          act(
            name,
            () => this._set({ burst: name }),
            `${t(shows)} ${t(`${count(requests)} [request|requests]`)}.`,
            "burst",
          ),
        ),
        act(
          "three bots",
          askBots,
          t("Bot 1 to Bot 3 ask one request after another, and stop by themselves"),
        ),
      ),
      this.told,
      this.checks,
      sharedModel(this.live.server, () => this.headers),
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
