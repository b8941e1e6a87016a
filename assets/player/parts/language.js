// Which language to show: that of the address, else the one chosen in this browser, else English.

import { keep, kept } from "./kept.js";
import { addressed } from "./link.js";
import { isSpoken, speaking } from "./speech.js";

const KEY = "inflight-language";

/** The code in the address: two letters, since a name such as "constructor" is in every object. */
const named = () => /^[a-z]{2}$/.exec(addressed().get("lang") || "")?.[0];

/** The code of the language to show. */
export const wantedLanguage = () => named() || kept("good", KEY) || "en";

/** Store a chosen language in this browser. */
export const keepLanguage = (/** @type {string} */ language) => keep("good", KEY, language);

/** Add the current language to an address, except for English, the default. */
export function putLanguage(/** @type {URLSearchParams} */ address) {
  const code = isSpoken() ? speaking() : named() || "en";
  if (code !== "en") address.set("lang", code);
}
