// The embeddable page: one figure, chosen by the address:
// #run=gpt2-six&view=lanes,mask&step=6&axis=time&theme=dark&lang=de. In the frame of another site
// it shows only this; a click on its source opens the whole player in a new tab.

import { find, h, jsonIn } from "../parts/dom.js";
import { prefersDark } from "../parts/look.js";
import { addressed } from "../parts/link.js";
import { fetchOnce } from "../parts/server.js";
import { speak, t } from "../parts/speech.js";
import { Figure } from "./figure.js";

const VIEWS = "lanes,row,mask";

/**
 * @typedef {{runs: Record<string, {title: Record<string, string>, urls: Record<string, string>}>,
 * words: Record<string, Record<string, string>>, player: string}} EmbedPage
 */

class Embed {
  /** @param {EmbedPage} page see visualizer/page/figure.py */
  constructor(page) {
    this.page = page;
    /** @type {Figure | null} */
    this.figure = null;
    window.addEventListener("hashchange", () => this.open());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.paint());
    this.open();
  }

  get dark() {
    const theme = addressed().get("theme");
    return theme ? theme === "dark" : prefersDark();
  }

  paint() {
    document.documentElement.dataset.theme = this.dark ? "dark" : "light";
    this.figure?.theme(this.dark);
  }

  async open() {
    const p = addressed();
    const { runs, words, player } = this.page;
    const wanted = p.get("lang") || "";
    const language = Object.hasOwn(words, wanted) ? wanted : "en";
    speak(language === "en" ? null : { name: language, words: words[language] });
    document.documentElement.lang = language;
    const name = p.get("run") || "";
    const entry = Object.hasOwn(runs, name) ? runs[name] : null;
    if (!entry)
      return this.say(
        name ? t("There is no recorded run of this name here.") : t("The address names no run."),
      );
    const hash = location.hash;
    let replay;
    try {
      replay = await fetchOnce(entry.urls[language]);
    } catch {
      replay = null;
    }
    if (hash !== location.hash) return; // another one is asked for meanwhile
    if (!replay) return this.say(t("The run could not be fetched."));
    const card = h("div", {});
    find(document, "main").replaceChildren(card);
    const views = (p.get("view") || VIEWS).split(",");
    const clock = p.get("axis") === "time";
    const link = new URLSearchParams({ run: name });
    for (const key of ["step", "axis", "lang", "theme"]) {
      const value = p.get(key);
      if (value) link.set(key, value);
    }
    this.figure = new Figure(card, replay, {
      views,
      clock,
      claim: entry.title[language],
      source: "Inflight",
      link: `${player}#${link}`,
      play: true,
    });
    card.dataset.views = this.figure.views.length ? views.join(" ") : "";
    for (const a of card.querySelectorAll("a")) a.target = "_blank";
    this.paint();
    const { run } = this.figure;
    const step = /^\d{1,9}$/.test(p.get("step") || "") ? Number(p.get("step")) : run.stepOf(0);
    this.figure.take({ at: run.indexOf(step) + 1 });
  }

  /** @param {string} sentence */
  say(sentence) {
    this.figure = null;
    const says = h("p", { class: "embed-says", role: "status" }, sentence);
    find(document, "main").replaceChildren(says);
    this.paint();
  }
}

window.inflightEmbed = new Embed(jsonIn(find(document, "#inflight-embed").textContent));
