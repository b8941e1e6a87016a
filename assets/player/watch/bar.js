// The bar at the top: parts of the page, recorded runs, edit, share, export, more, and labels for
// the run on screen; below it, one introductory line.

import { h, newButton, put, setText } from "../parts/dom.js";
import { joined } from "../parts/format.js";
import { keep } from "../parts/kept.js";
import { fillTabs, goToPart } from "../parts/look.js";
import { showKeys } from "../parts/floating.js";
import { t } from "../parts/speech.js";
import { exportMenu, item } from "./export.js";
import { deviceOf, factsOf, limitsOf, notesOf, showFacts, showPolicy, sourceOf } from "./facts.js";
import { showRuns } from "./runs_card.js";
import { showSlow } from "./slow.js";
import { aboutWhatIf, showWhatIf } from "./what_if.js";

const TITLE = document.title;

/** The width of an element when nothing of it is shortened. */
const widthOf = (/** @type {HTMLElement} */ el) =>
  el.matches(".policy-chip") && el.offsetWidth
    ? [.../** @type {Foreign} */ (el.firstChild).children].reduce(
        (n, limit) => n + limit.offsetWidth,
        22,
      )
    : el.offsetWidth;

export class Bar {
  constructor(/** @type {App} */ app) {
    this.app = app;
    this.tight = 0; // how little room there is, 0 to 4: see `_fitButtons`
    const { options, root, $ } = app;
    this.chips = options.catalogue.map((entry) =>
      newButton({ class: "button", onclick: () => app.open(entry) }),
    );
    this.named();
    $(".presets").replaceChildren(...this.chips);
    $(".runs-button").hidden = options.catalogue.length < 2 && !app.engines;
    $(".race-button").hidden = !options.tabs.some((tab) => tab.name === "compare");
    $(".what-button").hidden = $(".edit-button").hidden = !app.engines;
    const clicked = {
      ".runs-button": () => showRuns(app),
      ".leave-button": () => app.present(false),
      ".export-button": (/** @type {HTMLButtonElement} */ button) =>
        app.menu.toggle(button, exportMenu(app)),
      ".more-button": (/** @type {HTMLButtonElement} */ button) =>
        app.menu.toggle(button, this._more()),
      ".policy-chip": () => app.run && showPolicy(app),
      ".source": () => app.run && showFacts(root, app.run),
      ".race-button": () =>
        goToPart(root, "compare", { race: app.entry && (app.entry.comparison || app.entry.name) }),
      ".what-button": () => showWhatIf(app),
      ".slow-button": () => showSlow(app),
      ".share-button": () => app.address.share(),
      ".edit-button": () => app.editor.toggle(),
    };
    for (const [selector, act] of Object.entries(clicked))
      for (const button of root.querySelectorAll(selector))
        button.addEventListener("click", () => act(button));
  }

  named() {
    const { options, root } = this.app;
    fillTabs(root, options.tabs, "watch");
    this.chips.forEach((chip, i) => {
      setText(chip, t(options.catalogue[i].title || ""));
      chip.title = t(options.catalogue[i].shows || "");
    });
    if (this.app.run) this.marks();
  }

  _more() {
    const { app } = this;
    const { options, detail, palette, tables } = app;
    /** @type {("-" | ReturnType<typeof item>)[]} */
    const items = [];
    const add = (/** @type {Parameters<typeof item>} */ ...one) => items.push(item(...one));
    const small = app.layout === "phone" || app.store.state.narrow;
    const [runs, race] = [app.$(".runs-button"), app.$(".race-button")];
    const has = (/** @type {string} */ name) => options.tabs.some((tab) => tab.name === name);
    const learn = (/** @type {string} */ section) => () => {
      location.hash = `part=learn&at=${section}`;
    };
    if (app.opening.offer)
      add("Play the opening", () => app.opening.play(), "Twenty seconds: what all this is about");
    if (!runs.hidden && !runs.offsetWidth) add("All runs", () => showRuns(app));
    if (small || this.tight >= 2) {
      if (small && app.engines) add("Edit requests", () => app.editor.toggle());
      if (!race.hidden) add("Race", () => race.click(), "These requests under several policies");
      const forked = "The same requests with one setting changed";
      const planned = "What other settings would have made of it";
      if (app.engines && !app.entry?.written)
        add("What if …", () => showWhatIf(app), app.run?.header.engine ? planned : forked);
      if (app.run?.delays)
        add("What was slow?", () => showSlow(app), "The longest gaps and waits, and why");
      add("Copy link", () => app.address.share());
      items.push("-", ...exportMenu(app), "-");
      add(`Axis: ${app.clock ? "measured time" : "steps"}`, () => app.setClock(!app.clock));
      add("Next event", () => app.transport.jump(1, "any"));
      add("Previous event", () => app.transport.jump(-1, "any"));
    }
    const [other, shows] = detail.simple
      ? ["Full", "Also the token budget, caches, latencies and events"]
      : ["Simple", "Lanes, one pass, the mask, memory and texts"];
    if (small || this.tight >= 3) add(other, () => detail.turn(), shows);
    if (app.layout !== "phone")
      add("Presenter", () => app.present(true), "Larger type, fewer panels; Esc leaves");
    const theme = palette.dark ? "light" : "dark";
    add(palette.dark ? "Light" : "Dark", () => app.setTheme(theme));
    const tabled = "Every picture as a table of this step";
    add(tables.on ? "Pictures" : "Tables", () => tables.toggle(), tabled);
    add("Keys", () => showKeys(app.root, app.intro.words), "What the keyboard does");
    if (has("learn")) {
      add("Glossary", learn("glossary"), "What the words mean, and vLLM's names");
      add("Questions people ask", learn("questions"), "Each answered at a step of a run");
    }
    const languages = options.tabs.find((tab) => tab.speaks)?.speaks || {};
    for (const [language, text] of Object.entries(languages)) {
      const detail = { language };
      if (language !== app.speech.name)
        add(text, () =>
          app.root.dispatchEvent(new CustomEvent("inflight-language", { detail, bubbles: true })),
        );
    }
    const documents = () => location.assign(options.docs);
    if (options.docs) add("Documents", documents, "Tutorials, reference, what was measured");
    const about = "Model, device, limits, memory";
    if (app.run) add("About this run", () => showFacts(app.root, app.run), about);
    return items;
  }

  /** Show the labels of the run: where it came from, which preset it is. */
  marks() {
    const { app } = this;
    const { root } = app;
    const { header } = app.run;
    const model = (header.model && header.model.name) || "";
    const mark = app.$(".source");
    setText(mark.querySelector(".word"), t(sourceOf(app.run)));
    const more = [model.split("/").at(-1), deviceOf(header)];
    const rest = more.map((word) => word && ` · ${word}`);
    setText(mark.querySelector(".rest"), rest.join(""));
    mark.title = factsOf(app.run)
      .map(([name, words]) => `${t(name)}: ${words}`)
      .join("\n");
    mark.classList.toggle("noted", notesOf(header).length > 0);
    mark.dataset.source = header.source || "recorded";
    document.title = joined([app.run.isSimulated && t("Simulated"), TITLE]);
    const limits = limitsOf(app.run);
    const { policy = header.config?.policy } = header;
    // facts that the other engine did not record: show the rule by which each was inferred
    for (const mark of root.querySelectorAll(".inferred")) {
      mark.title = t((header.inferred || {})[mark.dataset.fact] || "");
      mark.hidden = !mark.title;
    }
    for (const chip of root.querySelectorAll(".policy-chip")) {
      const words = limits.map(([one], i) =>
        h("span", {}, `${i ? " · " : ""}${i && one !== policy ? t(one) : one}`),
      );
      chip.replaceChildren(h("span", {}, ...words));
      chip.title = `${limits.map(([, name]) => name).join("\n")}\n${t("The names are vLLM's.")}`;
    }
    const totals = app.run.totals.map(({ name, value, means }) =>
      h("span", { title: means }, `${name} `, h("b", {}, value)),
    );
    put(app.$(".totals"), app.run.isSimulated && h("b", {}, t("Simulated")), ...totals);
    app.$(".slow-button").hidden = !app.run.delays;
    app.$(".what-button").title = aboutWhatIf(app);
    // no engine outside the sandbox can run a visitor's policy again
    root.toggleAttribute("data-own-policy", Boolean(app.entry?.written));
    this.chips.forEach((chip, i) =>
      chip.classList.toggle("on", app.options.catalogue[i] === app.entry),
    );
    app.$(".legend-pad").hidden = header.batching?.layout === "packed";
    app.$(".mask .legend-overrun").hidden =
      !app.run.asynchronous && !app.run.events.some((e) => e.overrun.length);
    this.fitChips();
  }

  /** Put in the menu what does not fit: what is shown elsewhere, then buttons; then tabs scroll. */
  _fitButtons() {
    const { root, $ } = this.app;
    const [top, box] = [$(".top"), $(".presets")];
    box.style.display = "none"; // preset chips get the room that is left
    const right =
      top.getBoundingClientRect().right - parseFloat(getComputedStyle(top).paddingRight);
    for (this.tight = 0; this.tight <= 4; this.tight += 1) {
      root.dataset.tight = "1 2 3 4".slice(0, 2 * this.tight);
      if ($(".more-button").getBoundingClientRect().right <= right + 1) break;
    }
    box.style.display = "";
  }

  /** Show as many preset chips as fit, the open one first; "All runs" lists all of them. */
  fitChips() {
    const { app, chips } = this;
    this._fitButtons();
    if (!chips.length || app.layout === "phone" || app.presenter) return;
    const box = app.$(".presets");
    for (const chip of chips) chip.hidden = false;
    const top = app.$(".top");
    const others = [...top.children].filter(
      (el) => el !== box && !el.matches(".spring") && !el.hidden,
    );
    const room = top.clientWidth - 80 - others.reduce((n, el) => n + widthOf(el) + 8, 0);
    const open = chips[app.options.catalogue.findIndex((e) => e === app.entry)];
    let used = open ? open.offsetWidth + 8 : 0;
    let full = false;
    for (const chip of chips) {
      const width = chip.offsetWidth + 8;
      if (chip === open) continue;
      full ||= used + width > room;
      if (full) chip.hidden = true;
      else used += width;
    }
    // half a title helps nobody; "All runs" has the whole one
    if (open && open.offsetWidth > room) open.hidden = true;
  }
}

export const SEEN = "inflight-seen";

export class Intro {
  constructor(/** @type {Root} */ el, /** @type {App} */ app) {
    this.el = el;
    this.app = app;
    const [play, opening] = [".intro-play", ".intro-opening"].map((s) => el.querySelector(s));
    [play.hidden, opening.hidden] = [Boolean(app.opening.offer), !app.opening.offer];
    play.addEventListener("click", () => app.transport.toggle(true));
    opening.addEventListener("click", () => app.opening.play());
    app.root.addEventListener("click", (e) => {
      const button = /** @type {HTMLElement} */ (e.target).closest("button");
      if (button && !button.matches(".policy-chip, .source")) this.used();
    });
    try {
      el.hidden = Boolean(localStorage.getItem(SEEN)) || app.options.embedded;
    } catch {
      el.hidden = true; // without storage, it would be shown on every visit
    }
  }

  get words() {
    return this.el.querySelector("span").textContent;
  }

  used() {
    if (this.el.hidden) return;
    this.el.hidden = true;
    keep("good", SEEN, "1");
  }
}
