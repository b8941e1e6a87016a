// Which language is wanted: what the address says, else what was chosen in this browser, else English. Knows no words.

import { keep, kept } from "./kept.js";
import { addressed } from "./link.js";
import { isSpoken, speaking } from "./speech.js";

const KEY = "inflight-language";

/** A language by its code. */
export const wantedLanguage = () => addressed().get("lang") || kept("good", KEY) || "en";

/** Keep a choice in this browser. */
export const keepLanguage = (language) => keep("good", KEY, language);

/** The language into what an address will say; English needs no word. */
export function putLanguage(/** @type {URLSearchParams} */ address) {
  const code = isSpoken() ? speaking() : addressed().get("lang") || "en";
  if (code !== "en") address.set("lang", code);
}
