// The bar on top: parts, recorded runs, edit, share, export, more, and labels for the run on
// screen; below it one introductory line.

import { h, newButton, setText } from "../parts/dom.js";
import { keep } from "../parts/kept.js";
import { fillTabs, goToPart } from "../parts/look.js";
import { showKeys } from "../parts/floating.js";
import { t } from "../parts/speech.js";
import { exportMenu } from "./export.js";
import { factsOf, limitsOf, notesOf, showFacts, showPolicy, sourceOf } from "./facts.js";
import { showRuns } from "./runs_card.js";
import { showSlow } from "./slow.js";
import { aboutWhatIf, showWhatIf } from "./what_if.js";

const TITLE = document.title;

/** The width of an element when nothing of it is left out. */
const widthOf = (el) =>
  el.matches(".policy-chip") && el.offsetWidth
    ? [...el.firstChild.children].reduce((n, limit) => n + limit.offsetWidth, 22)
    : el.offsetWidth;

export class Bar {
  constructor(app) {
    this.app = app;
    this.tight = 0; // how little room there is: see `_fitButtons`
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
      ".export-button": (button) => app.menu.toggle(button, exportMenu(app)),
      ".more-button": (button) => app.menu.toggle(button, this._more()),
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

  /** What depends on the language and not on the run. */
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
    const items = [];
    if (app.opening.offer)
      items.push({
        text: "Play the opening",
        note: "Twenty seconds: what all this is about",
        act: () => app.opening.play(),
      });
    const small = app.layout === "phone" || app.store.state.narrow;
    const runs = app.$(".runs-button");
    if (!runs.hidden && !runs.offsetWidth)
      items.push({ text: "All runs", act: () => showRuns(app) });
    if (small || this.tight >= 2) {
      if (small && app.engines)
        items.push({ text: "Edit requests", act: () => app.editor.toggle() });
      const race = app.$(".race-button");
      if (!race.hidden)
        items.push({
          text: "Race",
          note: "These requests under several policies",
          act: () => race.click(),
        });
      if (app.engines && !app.entry?.written)
        items.push({
          text: "What if …",
          note: app.run?.header.engine
            ? "What other settings would have made of it"
            : "The same requests with one setting changed",
          act: () => showWhatIf(app),
        });
      if (app.run?.delays)
        items.push({
          text: "What was slow?",
          note: "The longest gaps and waits, and why",
          act: () => showSlow(app),
        });
      items.push(
        { text: "Copy link", act: () => app.address.share() },
        "-",
        ...exportMenu(app),
        "-",
        {
          text: `Axis: ${app.clock ? "measured time" : "steps"}`,
          act: () => app.setClock(!app.clock),
        },
        { text: "Next event", act: () => app.transport.jump(1, "any") },
        { text: "Previous event", act: () => app.transport.jump(-1, "any") },
      );
    }
    if (small || this.tight >= 3) {
      items.push(
        app.detail.simple
          ? {
              text: "Full",
              note: "Also the token budget, caches, latencies and events",
              act: () => app.detail.turn(),
            }
          : {
              text: "Simple",
              note: "Lanes, one pass, the mask, memory and texts",
              act: () => app.detail.turn(),
            },
      );
    }
    if (app.layout !== "phone") {
      items.push({
        text: "Presenter",
        note: "Larger type, fewer panels; Esc leaves",
        act: () => app.present(true),
      });
    }
    items.push(
      {
        text: app.palette.dark ? "Light" : "Dark",
        act: () => app.setTheme(app.palette.dark ? "light" : "dark"),
      },
      {
        text: app.tables.on ? "Pictures" : "Tables",
        note: "Every picture as a table of this step",
        act: () => app.tables.toggle(),
      },
      {
        text: "Keys",
        note: "What the keyboard does",
        act: () => showKeys(app.root, app.intro.words),
      },
    );
    if (app.options.tabs.some((tab) => tab.name === "learn")) {
      const learn = (section) => () => {
        location.hash = `part=learn&at=${section}`;
      };
      items.push(
        { text: "Glossary", note: "What the words mean, and vLLM's names", act: learn("glossary") },
        {
          text: "Questions people ask",
          note: "Each answered at a step of a run",
          act: learn("questions"),
        },
      );
    }
    const languages = app.options.tabs.find((tab) => tab.speaks)?.speaks || {};
    for (const [language, text] of Object.entries(languages).filter(
      ([name]) => name !== app.speech.name,
    )) {
      items.push({
        text,
        act: () =>
          app.root.dispatchEvent(
            new CustomEvent("inflight-language", { detail: { language }, bubbles: true }),
          ),
      });
    }
    const story = app.options.tabs.find((tab) => tab.href);
    if (story)
      items.push({
        text: "Story",
        note: "Continuous batching, told on recorded runs",
        act: () =>
          location.assign(
            story.href + (app.speech.name === "en" ? "" : `?lang=${app.speech.name}`),
          ),
      });
    const { docs } = app.options;
    if (docs)
      items.push({
        text: "Documents",
        note: "Tutorials, reference, what was measured",
        act: () => location.assign(docs),
      });
    if (app.run)
      items.push({
        text: "About this run",
        note: "Model, device, limits, memory",
        act: () => showFacts(app.root, app.run),
      });
    return items;
  }

  /** Labels that belong to the run: where it came from, which preset is on. */
  marks() {
    const { app } = this;
    const { root } = app;
    const { header } = app.run;
    const source = header.source || "recorded";
    const model = (header.model && header.model.name) || "";
    const mark = app.$(".source");
    setText(mark.querySelector(".word"), t(sourceOf(app.run)));
    setText(
      mark.querySelector(".rest"),
      [model.split("/").at(-1), String(header.device || "").toUpperCase()]
        .filter(Boolean)
        .map((word) => ` · ${word}`)
        .join(""),
    );
    mark.title = factsOf(app.run)
      .map(([name, words]) => `${t(name)}: ${words}`)
      .join("\n");
    mark.classList.toggle("noted", notesOf(header).length > 0);
    mark.dataset.source = source;
    document.title = [app.run.isSimulated && t("Simulated"), TITLE].filter(Boolean).join(" · ");
    const limits = limitsOf(app.run);
    const { policy = header.config?.policy } = header;
    // not recorded by the other engine: show the rule by which it was inferred
    for (const mark of root.querySelectorAll(".inferred")) {
      mark.title = t((header.inferred || {})[mark.dataset.fact] || "");
      mark.hidden = !mark.title;
    }
    for (const chip of root.querySelectorAll(".policy-chip")) {
      chip.replaceChildren(
        h(
          "span",
          {},
          ...limits.map(([words], i) =>
            h("span", {}, `${i ? " · " : ""}${i && words !== policy ? t(words) : words}`),
          ),
        ),
      );
      chip.title = `${limits.map(([, name]) => name).join("\n")}\n${t("The names are vLLM's.")}`;
    }
    root
      .querySelector(".totals")
      .replaceChildren(
        ...(app.run.isSimulated ? [h("b", {}, t("Simulated"))] : []),
        ...(app.run.totals || []).map(({ name, value, means }) =>
          h("span", { title: means }, `${name} `, h("b", {}, value)),
        ),
      );
    app.$(".slow-button").hidden = !app.run.delays;
    app.$(".what-button").title = aboutWhatIf(app);
    // no engine outside the sandbox can run it again
    root.toggleAttribute("data-own-policy", Boolean(app.entry?.written));
    this.chips.forEach((chip, i) =>
      chip.classList.toggle("on", app.options.catalogue[i] === app.entry),
    );
    app.root.querySelector(".legend-pad").hidden = (header.batching || {}).layout === "packed";
    app.root.querySelector(".mask .legend-overrun").hidden = !app.run.asynchronous;
    this.fitChips();
  }

  /**
   * Leave to the menu what does not fit: first what is said elsewhere too, then buttons; in the end
   * the tabs scroll.
   */
  _fitButtons() {
    const { root, $ } = this.app;
    const [top, box] = [$(".top"), $(".presets")];
    box.style.display = "none"; // chips take what is left
    const right =
      top.getBoundingClientRect().right - parseFloat(getComputedStyle(top).paddingRight);
    for (this.tight = 0; this.tight <= 4; this.tight += 1) {
      root.dataset.tight = "1 2 3 4".slice(0, 2 * this.tight);
      if ($(".more-button").getBoundingClientRect().right <= right + 1) break;
    }
    box.style.display = "";
  }

  /** Show as many preset chips as fit, the open one first; all are under "All runs". */
  fitChips() {
    const { app, chips } = this;
    this._fitButtons();
    if (!chips.length || app.layout === "phone" || app.presenter) return;
    const box = app.$(".presets");
    for (const chip of chips) chip.hidden = false;
    const room =
      app.$(".top").clientWidth -
      48 -
      24 -
      [...app.$(".top").children].reduce(
        (n, el) => n + (el === box || el.matches(".spring") || el.hidden ? 0 : widthOf(el) + 8),
        8,
      );
    const open = chips[app.options.catalogue.indexOf(app.entry)];
    let used = open ? open.offsetWidth + 8 : 0;
    let full = false;
    for (const chip of chips) {
      const width = chip.offsetWidth + 8;
      if (chip === open) continue;
      full ||= used + width > room;
      if (full) chip.hidden = true;
      else used += width;
    }
    // half a title says nothing; "All runs" has it
    if (open && open.offsetWidth > room) open.hidden = true;
  }
}

export const SEEN = "inflight-seen";

export class Intro {
  constructor(el, app) {
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
      el.hidden = true; // without storage it would be shown on every visit
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
