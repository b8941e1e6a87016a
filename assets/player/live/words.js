// What the Live tab says of the batch, in a line. Knows no DOM.

import { count } from "../parts/format.js";
import { t } from "../parts/speech.js";

/** Limits and policy in words, as an engine has them. */
function limitsWords({ policy, max_num_seqs: lanes, max_num_batched_tokens: budget }) {
  return [policy, t(`${count(lanes)} [lane|lanes]`), budget && t(`budget ${count(budget)}`)].filter(Boolean).join(" · ");
}

export function paceWords(pace) {
  return t(pace === null || pace === undefined ? "full speed" : pace === 0 ? "single steps" : `${count(pace)} [step|steps] a second`);
}

/** How the engine is set now. */
export function nowWords(state) {
  return state.class ? `${limitsWords(state.class)} · ${paceWords(state.pace)}` : "";
}

/** How many hold a lane after the newest step and go on. */
export function inLanes(run) {
  return run.laneSpans.filter((laneSpan) => laneSpan.to === Infinity && !laneSpan.request.finished).length;
}

/** The one sentence that matters most now; empty where the batch speaks for itself. */
export function says({ run, state, broken }, { skipped, teaches }) {
  const set = state.class || {};
  if (broken) return `${t(broken)} ${t("Trying again.")}`;
  if (!state.class) return t("The engine is starting, which takes a few seconds.");
  if (set.changing) {
    const running = run ? inLanes(run) : 0;
    const held = set.held ? t(` ${count(set.held)} [request|requests] [waits|wait] for it.`) : "";
    return `${running ? t(`At the barrier: ${running} still running. `) : ""}${t("Then comes {limits}.", { limits: limitsWords(set.next || set) })}${held}`;
  }
  if (state.late) return t("The engine was running before anybody watched: it is shown from its next run on.");
  if (skipped) return t("Your connection fell behind: some steps were skipped.");
  if (set.accepting === false) return t("The teacher is not accepting requests right now.");
  if (set.hide_texts) return t("The teacher has hidden the texts: only you can read yours, here.");
  if (set.record_is_full) return t("The record is full: saving gives this run from its beginning, without its latest steps. A new run begins once the batch is empty.");
  if (!run) return `${t("Nobody has asked yet: add a prompt, and it joins the batch in the next step.")}${teaches ? t(" Or send a wave.") : ""}`;
  const last = run.length - 1;
  if (!inLanes(run) && !run.waitingAt(last).length) return t("Nobody is in the batch now. Add a prompt: it joins in the next step.");
  if (state.pace === 0) return t("The batch is paused: the teacher takes single steps.");
  return "";
}
