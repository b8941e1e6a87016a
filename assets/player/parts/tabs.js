// The parts of the page, of which one is shown at a time: Watch, which is loaded from the start, and others whose code is fetched when they are first opened.
//
//   the DOM event "inflight-tab" {name, wish} (or #part=… in the address) ─→ html[data-part] ─→ the part's script, once ─→ window[part.mounts](holder, options)
//
// One part may provide other languages, for Watch too: if one is wanted, that part is fetched in the background and gets "inflight-language" {language}.

import { findAll, runScript } from "./dom.js";
import { wantedLanguage } from "./language.js";
import { addressed, setAddress, turnPage } from "./link.js";
import { isUnspoken, speak as speakIn, speaking } from "./speech.js";

/**
 * holder: where each part gets an element of its own if there is no player to put it before. parts:
 * {name: {script, mounts, options}}; a script may be on the page already.
 */
function pageParts(/** @type {Root} */ holder, /** @type {Json} */ parts) {
  const page = document.documentElement;
  const opened = new Map();
  const mounted = new Map();
  let watching = "";

  const mountOf = (/** @type {Json} */ part) =>
    /** @type {Record<string, Function>} */ (/** @type {unknown} */ (window))[part.mounts];
  const mount = (/** @type {string} */ name, /** @type {Json} */ part) => {
    const place = document.createElement("div");
    const player = document.querySelector("#watch");
    // tab order follows the screen: the part's bar and card come before the player
    if (player) player.before(place);
    else holder.append(place);
    const watched = window.inflightWatch?.engines ? () => window.inflightWatch.edited() : null;
    mounted.set(name, mountOf(part)(place, { ...part.options, watched }));
    return mounted.get(name);
  };

  const begun = async (/** @type {string} */ name) => {
    const part = parts[name];
    if (!mountOf(part)) await runScript(part.script, "the script could not be fetched");
    return mount(name, part);
  };
  const fetched = (/** @type {string} */ name) => {
    if (!opened.has(name)) {
      opened.set(name, begun(name));
      opened.get(name).catch(() => opened.delete(name)); // so that it can be tried again
    }
    return opened.get(name);
  };

  /**
   * turned: whether the visitor did it, so that Back returns to the previous part.
   * @param {string} name @param {Json} wish
   */
  const open = async (name, wish = null, turned = false) => {
    const part = parts[name];
    if (page.dataset.part !== name) mounted.get(page.dataset.part)?.left?.();
    if (turned && (page.dataset.part || "watch") !== name) turnPage();
    if (!part) {
      if (page.dataset.part && page.dataset.part !== "watch") setAddress(watching);
      page.dataset.part = "watch";
      if (wish)
        window.inflightWatch?.openReplay(wish.replay, { step: wish.step ?? null }, wish.entry);
      // the part that was left has just restored the run that was on screen before it
      else window.inflightWatch?.follow();
      window.inflightWatch?.redraw();
      if (name !== "watch") window.inflightWatch?.absent(name);
      return;
    }
    if (page.dataset.part !== name) {
      if ((page.dataset.part || "watch") === "watch" && !location.hash.includes("part="))
        watching = location.hash;
      window.inflightWatch?.pause();
      page.dataset.part = name;
    }
    try {
      const made = await fetched(name);
      if (page.dataset.part === name) made.shown(wish);
    } catch (/** @type {Foreign} */ error) {
      if (page.dataset.part !== name) return; // another part was opened while this one loaded
      page.dataset.part = "watch";
      window.inflightWatch?.toast(`This part could not be opened: ${error.message}.`);
    }
  };

  document.addEventListener("inflight-tab", async (/** @type {CustomEventInit} */ e) => {
    await open(e.detail.name, e.detail.wish, true);
    if (!e.detail.byKey) return;
    const tabs = findAll(document, '.tabs [aria-current="page"]');
    // the pressed button disappeared with its part
    tabs.find((tab) => tab.getClientRects().length)?.focus();
  });
  // a teacher's short link names no part
  const wanted = () =>
    addressed().get("part") || (parts.live && addressed().has("teacher") ? "live" : null);
  window.addEventListener("hashchange", () => {
    const part = wanted() || "watch";
    if (part !== (page.dataset.part || "watch")) {
      if (part === "watch") watching = location.hash;
      open(part);
    }
    if (speaker && addressed().has("lang") && wantedLanguage() !== speaking())
      speak(wantedLanguage());
  });
  const first = wanted();
  if (first && parts[first]) open(first);

  const speaker = Object.keys(parts).find((name) =>
    parts[name].options.tabs?.some((/** @type {Json} */ tab) => tab.name === name && tab.speaks),
  );
  const speak = async (/** @type {string} */ language) => {
    try {
      await (await fetched(/** @type {string} */ (speaker))).speak(language);
    } catch (/** @type {Foreign} */ error) {
      window.inflightWatch?.toast(`This language could not be fetched: ${error.message}.`);
    }
  };
  if (speaker) {
    document.addEventListener("inflight-language", (/** @type {CustomEventInit} */ e) =>
      speak(e.detail.language),
    );
    if (isUnspoken())
      fetched(speaker)
        .then((/** @type {Json} */ part) => part.ready)
        .catch(() => speakIn(null)); // in English, then
  }
  return open;
}

window.inflightParts = pageParts;
