// What a lane does in a step, in words: for tables.

import { t } from "../parts/speech.js";
import { DECODE, OVERRUN, PREEMPTED, PREFILL, STALLED, WASTED } from "../run/run.js";

/** @type {[number, string][]} */
const WORDS = [[PREEMPTED, "preempted"], [PREFILL, "prefill"], [DECODE, "decode"], [WASTED, "wasted"], [OVERRUN, "overrun"], [STALLED, "stalled"]];

/** @param {number} status bits of run/run.js */
export const doingOf = (status) => WORDS.filter(([bit]) => status & bit).map(([, word]) => t(word)).join(", ") || t("idle");
