// The Live tab: one engine's batch, shared by all visitors. It follows the newest step in the page's own player; scrubbing back
// affects only the visitor who does it.
//
//   Batch (sent to all visitors) ─→ the page's player        OwnRequests ─→ the card beside it ←─ Teacher
//
// A page that accepts no requests shows another engine's batch, followed through the recording that this engine writes: FollowedView names it. Of several
// ranks one is shown, or all: a Fleet, in the same picture as on Watch.

import { download, h, setText } from "../parts/dom.js";
import { putLanguage } from "../parts/language.js";
import { addressed, setAddress } from "../parts/link.js";
import {
  besidePlayer,
  drawSoon,
  fillPart,
  fillTabs,
  goToPart,
  pageWatch,
  showToast,
} from "../parts/look.js";
import { Server } from "../parts/server.js";
import { Speech, inLanguage, t } from "../parts/speech.js";
import { Batch, Fleet } from "./batch.js";
import { AskForm, OwnList, OwnRequests } from "./own_requests.js";
import { FindRequest } from "./find.js";
import { House } from "./house.js";
import { FollowedView, JustFinished } from "./panels.js";
import { Room } from "./room.js";
import { Teacher } from "./teacher.js";
import { stepAt } from "../run/moments.js";
import { allSay, followedSays, followedWords, nowWords, says } from "./words.js";
import { showAddress } from "./join.js";

const SOON = 8000; // ms for which a notice about skipped steps stays
const ON_A_PHONE = 3; // chapters: as many steps as fit a narrow axis

export class Live {
  /**
   * root: the element of live.html. options: {tabs, base, policies: [{name, shows}], prompts: of
   * house.js, asks: whether visitors can send requests}.
   */
  constructor(/** @type {Root} */ root, /** @type {Json} */ options = {}) {
    this.root = root;
    this.options = { tabs: [], policies: [], prompts: [], asks: true, ...options };
    this.page = document.documentElement;
    this.below = h("div", { class: "inflight inflight-live live" });
    /** @type {Finder} */ this.$ = (s) => root.querySelector(s) || this.below.querySelector(s);
    this.server = new Server(this.options.base);
    /** @type {import("../watch/page_actions.js").Held | null} */
    this.before = null; // what Watch showed before
    /** @type {Fleet | null} */
    this.fleet = null; // all ranks, if they are on screen
    document.querySelector("#watch")?.after(this.below); // in the page before its theme is read
    const themes = [besidePlayer(root), besidePlayer(this.below)];
    this._theme = () => {
      for (const theme of themes) theme();
    };
    this.speech = new Speech(root, () => this._named());
    fillTabs(root, this.options.tabs, "live");
    this.mine = new OwnRequests(this.server, () => this.redraw());
    this.batch = new Batch(this.server, (id) => this.mine.has(id), {
      begins: (run, same) => this._begins(run, same),
      steps: () => this._steps(),
      state: () => this._state(),
      ended: (how) => this.mine.went(how),
    });
    if (this.root.dataset.layout === "phone") this.batch.most = ON_A_PHONE;
    const { batch } = this;
    const live = this;
    this.edge = {
      going: true,
      get run() {
        return live.fleet ? live.watch.state.run : batch.run;
      },
      back: () => this._onScreen(),
      find: this.options.asks ? undefined : () => this.find.field.focus(),
    };
    this.teacher = new Teacher(this);
    this.form = new AskForm(this.$(".ask-form"), this.mine, () => {
      this.$(".live-scroll").scrollTop = 0; // the new request is at the top
      this.batch.relabel();
    });
    this.house = new House(this.$(".house"), this.options.prompts, {
      ask: (prompt) => this.form.send(prompt),
      letBotsAsk: () => this.letBotsAsk(),
    });
    if (this.options.suited) this.form.suggest(this.options.suited);
    this.own = new OwnList(this.$(".own"), this.mine, () => ({
      shown: this.watch.state,
      run: this.batch.run,
    }));
    this.finished = new JustFinished(this.$(".just-finished"), () => ({
      shown: this.watch.state,
      run: this.fleet ? null : this.batch.run,
      ended: this.batch.ended,
    }));
    this.followed = new FollowedView(
      this.$(".followed"),
      (of) => this._choose(of),
      (scope) => this._all(scope),
    );
    this.find = new FindRequest(
      this.$(".find"),
      (run, request) => this._select(run, request),
      () => {
        this.address();
        this.redraw();
      },
    );
    window.addEventListener("hashchange", () => this._wanted());
    this.$(".ask-form").hidden = this.$(".house").hidden = !this.options.asks;
    for (const el of [root, this.below]) el.classList.toggle("asks", this.options.asks);
    placeCard(this);
    this.$(".presenter-button").addEventListener("click", () => this.watch.present(true));
    const take = (/** @type {string} */ button, /** @type {Json} */ act) =>
      this.$(button).addEventListener("click", () =>
        act(this).catch((/** @type {Json} */ error) => showToast(root, error.message, 6000)),
      );
    take(".qr-button", showAddress);
    take(".save-button", saveSession);
    take(".compare-button", compareSession);
    // keys in the dialog are not for the player
    this.$("dialog").addEventListener("keydown", (/** @type {Happened} */ e) =>
      e.stopPropagation(),
    );
    this.room = new Room(this);
    this.ready = pageWatch().then((watch) => {
      /** @type {Watch} */
      this.watch = watch;
    });
  }

  // -- opening and leaving the tab ---------------------------------------------------------------

  async shown() {
    if (this.options.asks) this.teacher.read(addressed());
    this._wanted();
    this.address();
    this._theme();
    await this.ready;
    if (this.page.dataset.part !== "live" || this.following) return;
    this._enter();
    this._follow();
    this.redraw();
  }

  address() {
    const p = new URLSearchParams({ part: "live" });
    if (!this.options.asks && this.find?.wanted) p.set("request", this.find.wanted);
    putLanguage(p);
    setAddress(`#${p}`);
  }

  /** Look for the request that the address names. */
  _wanted() {
    const p = addressed();
    if (this.page.dataset.part !== "live" || p.get("part") !== "live" || !p.get("request")) return;
    this.find.seek(p.get("request") || "");
    this.redraw();
  }

  /** Select a request of one of the runs on screen; a rank among all is then shown alone. */
  _select(/** @type {Run} */ run, /** @type {RunRequest} */ request) {
    const member = this.fleet?.members.find((one) => one.run === run);
    if (member) this._alone(member);
    if (this.watch.state.pinned !== request) this.watch.pin(request);
  }

  _named() {
    fillTabs(this.root, this.options.tabs, "live");
    this.teacher?.named();
    if (this.page.dataset.part === "live") this.address();
    this.redraw();
  }

  _follow() {
    this.following = new AbortController();
    const { signal } = this.following;
    (this.fleet || this.batch).follow(signal);
    if (!this.options.asks) this._wait(signal);
  }

  /** Show every second how long no step has come, because no message triggers that. */
  _wait(/** @type {AbortSignal | undefined} */ signal) {
    this._measure();
    this.redraw();
    setTimeout(() => signal?.aborted || this._wait(signal), 1000);
  }

  /** Fetch the current load of each of several engines. */
  async _measure() {
    if (this.measuring || !(this.fleet?.followed || this.batch.state.followed)?.engines.length)
      return;
    this.measuring = true;
    try {
      this.loads = (await this.server.get("inflight/live/engines")).engines;
      this.redraw();
    } catch {
      /* the stream reports that the server is away */
    }
    this.measuring = false;
  }

  /** Switch to another of the followed recordings. */
  _choose(/** @type {string} */ of) {
    const member = this.fleet?.members.find((m) => m.of === of);
    if (member) return this._alone(member);
    this._leaveFleet();
    this.batch.choose(of);
    this.watch.empty("Nothing has run here yet.");
    this._follow();
    this.redraw();
  }

  /** Show all ranks of the engine, or of all engines, on one clock. */
  _all(/** @type {"ranks" | "all"} */ scope) {
    const { watch, batch } = this;
    this._leaveFleet();
    this.fleet = new Fleet(
      this.server,
      scope,
      batch.state.followed[scope].map((/** @type {Json} */ rank) => rank.of),
      batch.most,
      () => this._renewAll(),
    );
    watch.empty("Nothing has run here yet.");
    this._follow();
    this.redraw();
  }

  /** Show the new steps of all ranks, or begin again if there is another rank. */
  _renewAll() {
    const { watch, fleet } = this;
    this.steppedAt = performance.now();
    const { followed, scope } = /** @type {Fleet} */ (fleet);
    if (followed?.[scope].some((/** @type {Json} */ rank) => !fleet?.names.includes(rank.of))) {
      this.batch.state.followed = followed;
      return this._all(scope);
    }
    const { picture } = /** @type {Fleet} */ (fleet);
    if (picture && this.before) {
      watch.empty(null);
      watch.showRanks(picture, (member, index) => this._alone(member, index));
    }
    this.redraw();
  }

  /** Show one rank alone, at the same moment or a given step, and go on from the steps it has. */
  _alone(/** @type {Json} */ { of, run }, /** @type {number | null} */ index = null) {
    const { watch, fleet, batch } = this;
    const going = watch.state.following && index === null;
    const offset = fleet?.members.find((m) => m.of === of)?.offset ?? 0;
    const step = run.stepOf(index ?? Math.max(0, stepAt({ run, offset }, watch.moment).i));
    batch.choose(of, fleet?.batches.get(of));
    this._leaveFleet();
    this._onScreen();
    if (!going) {
      watch.stay();
      watch.seekStep(step);
    }
    this._follow();
    this.redraw();
  }

  _leaveFleet() {
    this.following?.abort();
    if (!this.fleet) return;
    this.fleet = null;
    this.watch.leaveRanks();
  }

  left() {
    this.following?.abort();
    this.following = null;
    if (!this.before) return;
    const { watch, before } = this;
    this._leaveFleet();
    this.before = null;
    this.room.leave();
    watch.lead(null);
    if (watch.state.presenter) watch.present(false);
    watch.empty(null);
    if (before.shown.run) watch.restore(before);
    else watch.start();
  }

  /** Take over the player; `left` restores what the player showed. */
  _enter() {
    const { watch } = this;
    this.before = watch.held();
    watch.pause();
    watch.edit(false);
    watch.lead(this.edge);
    if (watch.state.layout === "phone") watch.chooseTab("text");
    this.room.enter();
    if (this.batch.run) this._onScreen();
    else watch.empty("Nothing has run here yet.");
  }

  // -- what all visitors are sent ----------------------------------------------------------------

  _begins(/** @type {Run} */ run, /** @type {boolean} */ same) {
    if (!this.before) return;
    if (same && this._drawn && this.watch.state.run === this._drawn) this.watch.renew(run);
    else this._onScreen();
    this._drawn = run;
    this.redraw();
  }

  _onScreen() {
    const { run } = this.batch;
    if (!run || this.watch.state.run === run || this.fleet) return;
    this._drawn = run;
    this.watch.enter(run);
  }

  _steps() {
    this.steppedAt = performance.now();
    if (!this.before) return;
    if (this.watch.state.run === this.batch.run) this.watch.extended();
    this.redraw();
  }

  _state() {
    if (this.batch.missed) {
      this.missedAt = performance.now();
      this.batch.missed = false;
      setTimeout(() => this.redraw(), SOON);
    }
    this.redraw();
  }

  /** Have three bots ask for a while; a teacher can do so even while no requests are accepted. */
  async letBotsAsk() {
    this.form.say("");
    try {
      await this.server.post("inflight/live/bots", {}, this.teacher.headers);
    } catch (error) {
      this.form.refuse(error);
    }
  }

  // -- the card ----------------------------------------------------------------------------------

  redraw() {
    drawSoon(this);
  }

  draw() {
    if (!this.watch || !this.followed) return;
    const { $, fleet } = this;
    const batch = fleet
      ? { run: this.watch.state.run, state: { followed: fleet.followed }, broken: fleet.broken }
      : this.batch;
    const { asks } = this.options;
    const skipped = this.missedAt !== undefined && performance.now() - this.missedAt < SOON;
    const silent = performance.now() - (this.steppedAt ?? performance.now());
    const said = asks
      ? says(batch, { skipped, teaches: this.teacher.isOn, asked: this.mine.open.length > 0 })
      : fleet
        ? allSay(fleet, silent)
        : followedSays(batch, { skipped, silent });
    setText($(".live-says"), said);
    $(".live-says").hidden = !said || (this.room.isOn && !batch.state.class); // the lanes say it
    const text = batch.state.class?.system;
    const told = text ? t("Before each question the model is told: {text}", { text }) : "";
    setText($(".told-first"), told);
    $(".told-first").hidden = !told;
    setText($(".now"), asks ? nowWords(batch.state, batch.run) : followedWords(batch.run));
    $(".save-button").hidden = $(".compare-button").hidden =
      !asks || !batch.run || (batch.state.class?.hide_texts && !this.teacher.isOn);
    $(".qr-button").hidden = !asks;
    this.teacher.button.hidden = !asks;
    this.own.draw();
    this.house.draw(batch.run);
    this.room.draw(said);
    this.finished.draw();
    this.followed.draw(batch.state.followed, batch.run, fleet?.scope || "", this.loads);
    const runs = fleet ? fleet.members.map(({ run }) => run) : batch.run ? [batch.run] : [];
    this.find.draw(!asks && Boolean(batch.state.followed), this.before ? runs : []);
    this.teacher.draw();
  }
}

/** On a phone, put the card below the player, also in the order of Tab and screen readers. */
function placeCard(/** @type {Json} */ { root, below, $ }) {
  // the same width as in live.css; not the height, which an on-screen keyboard changes
  const isLow = matchMedia("(max-width: 700px)");
  const place = () => {
    const [card, holder] = [$(".live-card"), isLow.matches && below.isConnected ? below : root];
    if (card.parentElement !== holder)
      holder === root ? root.querySelector(".top").after(card) : below.append(card);
  };
  isLow.addEventListener("change", place);
  place();
}

/** Download the run so far as a trace, which the Watch tab opens and `check` verifies. */
async function saveSession(/** @type {Live} */ live) {
  download(SESSION, await (await session(live)).blob());
}

/** Open the run so far in the Watch tab, and its requests in the form of a new comparison. */
async function compareSession(/** @type {Live} */ live) {
  const trace = await (await session(live)).text();
  const kept = await live.server.send(`inflight/uploads?name=${SESSION}`, trace);
  if (kept.error) throw new Error(kept.error);
  const replay = await live.server.get(kept.url);
  const entry = { name: null, title: SESSION, ...kept };
  goToPart(live.root, "watch", { replay: inLanguage(replay), entry });
  goToPart(live.root, "compare", "watched");
}

const SESSION = "inflight-session.jsonl";

/** The server's answer with the run so far; a teacher gets all of it. */
const session = (/** @type {Live} */ live) =>
  live.server.fetched("serve/session", live.teacher.headers);

window.inflightLiveMount = (/** @type {Root} */ holder, /** @type {Json} */ options) =>
  (window.inflightLive = new Live(
    fillPart(holder, window.inflightLiveFiles, ".inflight-live"),
    options,
  ));
