// What the Live tab says of the batch, in a line. Knows no DOM.

import { count, plural } from "../parts/format.js";

/** Limits and policy in words, as an engine has them. */
function limitsWords({ policy, max_num_seqs: lanes, max_num_batched_tokens: budget }) {
  return [policy, plural(lanes, "lane"), budget && `budget ${count(budget)}`].filter(Boolean).join(" · ");
}

export function paceWords(pace) {
  return pace === null || pace === undefined ? "full speed" : pace === 0 ? "single steps" : `${plural(pace, "step")} a second`;
}

/** How the engine is set now. */
export function nowWords(state) {
  return state.class ? `${limitsWords(state.class)} · ${paceWords(state.pace)}` : "";
}

/** How many hold a lane after the newest step and go on. */
export function inLanes(run) {
  return run.stays.filter((stay) => stay.to === Infinity && !stay.request.finished).length;
}

/** The one sentence that matters most now; empty where the batch speaks for itself. */
export function says({ run, state, broken }, { skipped, teaches }) {
  const set = state.class || {};
  if (broken) return `${broken} Trying again.`;
  if (!state.class) return "The engine is being made ready, which takes some seconds.";
  if (set.changing) {
    const running = run ? inLanes(run) : 0;
    const held = set.held ? ` ${plural(set.held, "request")} ${set.held === 1 ? "waits" : "wait"} for it.` : "";
    return `${running ? `At the barrier: ${running} still running. ` : ""}Then comes ${limitsWords(set.next || set)}.${held}`;
  }
  if (state.late) return "The engine was at work before anybody watched: it is shown from its next run on.";
  if (skipped) return "Your connection fell behind: some steps were skipped.";
  if (set.accepting === false) return "The teacher takes no requests just now.";
  if (set.hide_texts) return "The teacher hides texts: you alone read your own, here.";
  if (set.record_is_full) return "The record is full: saving gives this run from its beginning, without its latest steps. A new run begins once the batch is empty.";
  if (!run) return `Nobody has asked yet: add a prompt, and it joins the batch in the next step.${teaches ? " Or send a wave." : ""}`;
  const last = run.length - 1;
  if (!inLanes(run) && !run.waitingAt(last).length) return "Nobody is in the batch now. Add a prompt: it joins in the next step.";
  if (state.pace === 0) return "The batch stands still: the teacher takes single steps.";
  return "";
}
