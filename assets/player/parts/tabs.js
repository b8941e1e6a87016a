// The parts of the page, one at a time: Watch, which is there from the start, and parts whose code is fetched when first opened.
//
//   the DOM event "inflight-tab" {name, wish} (or #part=… in the address) ─→ html[data-part] ─→ the part's script, once ─→ window[part.mounts](holder, options)

import { addressed, setAddress } from "./link.js";

/** holder: where a part goes. parts: {name: {script, mounts, options}}. */
export function pageParts(holder, parts) {
  const page = document.documentElement;
  const opened = new Map();
  let watching = "";

  const open = async (name, wish) => {
    const part = parts[name];
    if (!part) {
      if (page.dataset.part && page.dataset.part !== "watch") setAddress(watching);
      page.dataset.part = "watch";
      window.inflight?.redraw();
      return;
    }
    if (page.dataset.part !== name) {
      if ((page.dataset.part || "watch") === "watch" && !location.hash.includes("part=")) watching = location.hash;
      window.inflight?.transport.toggle(false);
      page.dataset.part = name;
    }
    if (!opened.has(name)) {
      opened.set(name, new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = part.script;
        script.onload = () => resolve(/** @type {any} */ (window)[part.mounts](holder, { ...part.options, watched: window.inflight?.server ? () => window.inflight.editor.said() : null }));
        script.onerror = () => reject(new Error("the script could not be fetched"));
        document.head.append(script);
      }));
    }
    try {
      (await opened.get(name)).shown(wish);
    } catch (error) {
      opened.delete(name);
      page.dataset.part = "watch";
      window.inflight?.toast(`This part could not be opened: ${error.message}.`);
    }
  };

  document.addEventListener("inflight-tab", (/** @type {CustomEvent} */ e) => open(e.detail.name, e.detail.wish));
  const wanted = () => addressed().get("part");
  window.addEventListener("hashchange", () => {
    const part = wanted() || "watch";
    if (part === (page.dataset.part || "watch")) return;
    if (part === "watch") watching = location.hash;
    open(part);
  });
  if (parts[wanted()]) open(wanted());
  return open;
}

window.inflightParts = pageParts;
