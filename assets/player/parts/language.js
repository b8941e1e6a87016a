// Which language to show: that of the address, else the one chosen in this browser, else English.

import { keep, kept } from "./kept.js";
import { addressed } from "./link.js";
import { isSpoken, speaking } from "./speech.js";

const KEY = "inflight-language";

/** The code of the language to show. */
export const wantedLanguage = () => addressed().get("lang") || kept("good", KEY) || "en";

/** Store a chosen language in this browser. */
export const keepLanguage = (/** @type {string} */ language) => keep("good", KEY, language);

/** Add the current language to an address, except for English, the default. */
export function putLanguage(/** @type {URLSearchParams} */ address) {
  const code = isSpoken() ? speaking() : addressed().get("lang") || "en";
  if (code !== "en") address.set("lang", code);
}
