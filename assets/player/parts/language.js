// Which language is wanted: from the address, otherwise as chosen in this browser, otherwise
// English.

import { keep, kept } from "./kept.js";
import { addressed } from "./link.js";
import { isSpoken, speaking } from "./speech.js";

const KEY = "inflight-language";

/** A language by its code. */
export const wantedLanguage = () => addressed().get("lang") || kept("good", KEY) || "en";

/** Keep a choice in this browser. */
export const keepLanguage = (language) => keep("good", KEY, language);

/** Add the language to an address; English is the default. */
export function putLanguage(/** @type {URLSearchParams} */ address) {
  const code = isSpoken() ? speaking() : addressed().get("lang") || "en";
  if (code !== "en") address.set("lang", code);
}
