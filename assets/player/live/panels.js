// The other panels of the card: the engine that is followed, and requests that have just finished.
// Names are data: always text nodes.

import { chip } from "../parts/chips.js";
import { find, h, isRedrawn, newButton, renew, setAttr, setText, tableOf } from "../parts/dom.js";
import { count, duration, joined, unbroken } from "../parts/format.js";
import { callsItself } from "../views/texts.js";
import { howItWent } from "./whereabouts.js";
import { speaking, t, tell } from "../parts/speech.js";
import { timesOf } from "../views/request_card.js";

const MOST = 6; // finished requests that are listed
const LOADS = ["Running", "Waiting", "KV", "tok/s"];
const KV = LOADS.indexOf("KV");
const SILENT = 10; // seconds without a step, while requests run, after which the page says so

/** The engine that is followed through its recording, and the choice between several recordings. */
export class FollowedView {
  /**
   * @param {HTMLElement} section @param {(of: string) => void} choose
   * @param {(scope: "ranks" | "all") => void} all
   */
  constructor(section, choose, all) {
    this.section = section;
    this.choose = choose;
    this.all = all;
    this.title = h("h2", {});
    this.file = h("p", { class: "followed-file" });
    this.note = h("p", { class: "followed-note soft fine" });
    this.streams = h("nav", { class: "followed-streams spaced wrap flex" });
    this.engines = new EngineList(choose);
    this.clock = h("p", { class: "followed-note soft fine" });
    section.append(this.title, this.file, this.streams, this.engines.table, this.clock, this.note);
  }

  /**
   * followed: the latest state of what is on screen, {of, file, texts, streams} and
   * `Followed._together`. all: whether all ranks are on screen, those of the engine ("ranks") or of
   * every engine ("all"), or not. loads: see `Followed.loads`. @param {Json} followed
   * @param {Run | null} run @param {Json} all @param {Json} loads
   */
  draw(followed, run, all, loads) {
    this.section.hidden = !followed;
    if (!followed) return;
    const engine = run?.header.engine;
    const several = followed.engines.length > 1;
    const one = engine
      ? `${engine.name} ${engine.version}${whose(followed, all)}`
      : t("Another engine");
    const every = t(`${count(followed.engines.length)} [engine|engines]`);
    setText(this.title, all === "all" ? every : one);
    const files = all
      ? `Recorded in a file for each of ${count(followed.ranks.length)} [rank|ranks]`
      : "Recorded in {file}";
    const own = "Each recorded in files of its own";
    setText(this.file, t(all === "all" ? own : files, { file: followed.file }));
    const notes = [
      ...(all ? [] : (run?.header.notes || []).map((/** @type {string} */ note) => t(note))),
      t("This engine belongs to someone else: you can watch it, but not control it."),
      notRecorded(run),
      followed.texts ? "" : t("Its texts are hidden, as others reach this page."),
    ];
    setText(this.note, joined(notes, " "));
    const clock = all === "all" ? followed.all_says : followed.says;
    const apart = "These are not ranks of one engine: each recording is followed separately.";
    const isApart = followed.streams.length > 1 && !several;
    setText(
      this.clock,
      clock.map((/** @type {string} */ says) => t(says)).join(" ") || (isApart ? t(apart) : ""),
    );
    setAttr(this.streams, "aria-label", t("Recordings"));
    this.engines.draw(several ? followed : null, all, loads || followed.engines);
    this.streams.hidden = followed.streams.length < 2;
    const key = JSON.stringify([
      speaking(),
      followed.streams,
      several,
      followed.ranks.map((/** @type {Json} */ rank) => rank.of),
      followed.all.length,
      all,
      followed.of,
    ]);
    if (key === this._key) return;
    /** @type {string | undefined} */
    this._key = key;
    /** @param {string} text @param {boolean} on @param {() => void} act */
    const button = (text, on, act) =>
      newButton({ class: "button", "aria-pressed": String(on), onclick: act }, text);
    const streams = several ? [] : followed.streams;
    renew(
      this.streams,
      followed.all.length > 1 && button(t("All engines"), all === "all", () => this.all("all")),
      followed.ranks.length > 1 && button(t("All ranks"), all === "ranks", () => this.all("ranks")),
      ...streams.map((/** @type {string} */ of) =>
        button(nameOf(followed, of), !all && of === followed.of, () => this.choose(of)),
      ),
    );
  }
}

/** The table of several engines: a row for each rank, with its current load. */
class EngineList {
  /** @param {(of: string) => void} choose */
  constructor(choose) {
    this.choose = choose;
    this.heads = LOADS.map(() => h("th", { scope: "col" }));
    this.table = tableOf([h("td"), ...this.heads], []);
    this.table.className = "engines";
    this.body = find(this.table, "tbody");
    this.rows = new Map();
  }

  /** followed: null unless there are several engines. */
  draw(/** @type {Json} */ followed, /** @type {Json} */ all, /** @type {Json} */ loads) {
    this.table.hidden = !followed;
    if (!followed) return;
    setAttr(this.table, "aria-label", t("Engines"));
    for (const [n, head] of this.heads.entries()) tell(head, LOADS[n]);
    const shown = loads.flatMap((/** @type {Json} */ engine) =>
      engine.ranks.map((/** @type {Json} */ rank) => ({ engine, ...rank })),
    );
    if (
      shown.map((/** @type {Json} */ { of }) => of).join("\n") !== [...this.rows.keys()].join("\n")
    ) {
      this.rows = new Map(shown.map((/** @type {Json} */ { of }) => [of, this._row(of)]));
      this.body.replaceChildren(...[...this.rows.values()].map(({ row }) => row));
    }
    for (const {
      engine,
      of,
      rank,
      running,
      waiting,
      kv_used: used,
      kv_total: total,
      tokens_s: speed,
      silent_s: silent,
      is_over: over,
    } of shown) {
      const { button, model, cells } = this.rows.get(of);
      const which = engine.ranks.length > 1 && t(`rank ${rank}`);
      setText(button, joined([engine.name, which], ", "));
      setAttr(button, "aria-pressed", String(!all && of === followed.of));
      const stands = over
        ? t("ended")
        : running && silent > SILENT
          ? t(`no step for ${count(Math.round(silent))} s`)
          : "";
      setText(model, joined([engine.model, stands]));
      const numbers = [
        running,
        waiting,
        total && Math.round((100 * used) / total),
        speed ?? null,
      ].map((x) => (typeof x === "number" ? count(Math.round(x)) : "–"));
      for (const [n, cell] of cells.entries())
        setText(cell, n === KV && total ? `${numbers[n]} %` : numbers[n]);
    }
  }

  _row(/** @type {string} */ of) {
    const button = newButton({ class: "button mini", onclick: () => this.choose(of) });
    const model = h("span", { class: "followed-note soft fine" });
    const cells = LOADS.map(() => h("td", {}));
    const row = h("tr", {}, h("th", { scope: "row" }, button, model), ...cells);
    return { button, model, cells, row };
  }
}

/** The rank on screen and the number of ranks, as far as known, as an ending of the title. */
function whose(/** @type {Json} */ { ranks, count: numRanks, of }, /** @type {Json} */ all) {
  if (all) return t(`, ${count(ranks.length)} [rank|ranks]`);
  const mine = ranks.find((/** @type {Json} */ rank) => rank.of === of);
  return mine && numRanks > 1 ? t(`, rank ${mine.rank} of ${numRanks}`) : "";
}

/** A recording's name: its rank, unless ranks of other engines may have the same. */
function nameOf(/** @type {Json} */ { ranks, streams }, /** @type {string} */ of) {
  const mine = ranks.find((/** @type {Json} */ rank) => rank.of === of);
  return mine && ranks.length === streams.length ? t(`Rank ${mine.rank}`) : of;
}

function notRecorded(/** @type {Run | null} */ run) {
  const absent = run?.header.absent || [];
  return absent.length
    ? t("Not recorded by {engine}, and absent here: {absent}.", {
        engine: run?.header.engine.name,
        absent: absent.map((/** @type {string} */ what) => t(what)).join(", "),
      })
    : "";
}

/** What a run shows of a finished request. @type {(run: Json, request: RunRequest) => string} */
function counted(run, request) {
  const { ttft } = timesOf(run, request, run.length - 1);
  const tokens = t(`${count(run.numGenerated(request, run.length - 1))} [token|tokens]`);
  return joined([tokens, ttft !== null && `TTFT ${t(duration(ttft))}`]);
}

/** The requests that have just finished, and how long each waited for its first token. */
export class JustFinished {
  /**
   * @param {HTMLElement} section @param {() => {shown: SentenceContext, run: Run | null, ended:
   * Map<string, import("./whereabouts.js").Ended>}} shown ended: how requests ended
   */
  constructor(section, shown) {
    this.section = section;
    this.list = find(section, "ul");
    this.shown = shown;
  }

  draw() {
    const { shown, run, ended } = this.shown();
    const over = (run?.requests || [])
      .filter((r) => r.finished && r.finished.reason !== "cancelled")
      .sort((a, b) => (b.finished?.step ?? 0) - (a.finished?.step ?? 0))
      .slice(0, MOST);
    this.section.hidden = !over.length;
    const key = [speaking(), ...over.map((r) => r.id + r.letter)].join();
    if (!isRedrawn(this, { _key: key, _run: run })) return;
    const line = (/** @type {RunRequest} */ request) => {
      const how = ended?.get(request.id);
      const words = joined([callsItself(request), how ? howItWent(how) : counted(run, request)]);
      return h(
        "li",
        {},
        chip(shown, request, false),
        h("span", { class: "finished-words soft" }, unbroken(words)),
      );
    };
    this.list.replaceChildren(...over.map(line));
  }
}
