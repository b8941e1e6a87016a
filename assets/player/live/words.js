// What the Live tab says, in one line, about the batch or the followed engine. No DOM.

import { count, joined } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { limitsOf } from "../watch/facts.js";

// ms without a step, while requests hold lanes, after which the page says so
const SILENT = 10000;

/** An engine's limits and policy in words. */
function limitsWords(
  /** @type {Json} */ { policy, max_num_seqs: lanes, max_num_batched_tokens: budget },
) {
  return joined([
    policy,
    t(`${count(lanes)} [lane|lanes]`),
    budget && t(`budget ${count(budget)}`),
  ]);
}

export function paceWords(/** @type {Json} */ pace) {
  if (pace === 0) return t("single steps");
  return t(pace ? `at most ${count(pace)} [step|steps] a second` : "full speed");
}

/** The engine's settings, without a budget if its policy has none; each stays on one line. */
export function nowWords(/** @type {Json} */ state, /** @type {Run | null} */ run) {
  const { class: set, pace } = state;
  const limits = run?.header.batching?.token_budget === false ? { max_num_batched_tokens: 0 } : {};
  const words = set ? `${limitsWords({ ...set, ...limits })} · ${paceWords(pace)}` : "";
  return words.replace(/(?! ·) /g, "\u00a0");
}

/** How many unfinished requests hold a lane after the newest step. */
const inLanes = (/** @type {Run} */ run) =>
  run.laneSpans.filter(({ to, request }) => to === Infinity && !request.finished).length;

/** Whether no request is running or waiting after the newest step. */
const isIdle = (/** @type {Run} */ run) => !inLanes(run) && !run.waitingAt(run.length - 1).length;

/**
 * The one sentence that matters most now; empty if there is nothing to say. asked: whether a request
 * of the visitor's own is unfinished, even if the drawn batch does not have it yet.
 */
export function says(
  /** @type {Json} */ { run, state, broken },
  /** @type {Json} */ { skipped, teaches, asked },
) {
  const set = state.class || {};
  if (broken) return `${t(broken)} ${t("Trying again.")}`;
  if (!state.class) return t("The engine is starting.");
  if (set.changing) {
    const running = run ? inLanes(run) : 0;
    const held = set.held ? t(` ${count(set.held)} [request|requests] [waits|wait] for it.`) : "";
    return `${running ? t(`At the barrier: ${running} still running. `) : ""}${t("Then comes {limits}.", { limits: limitsWords(set.next || set) })}${held}`;
  }
  if (state.late)
    return t("The engine was running before anyone watched: it is shown from its next run on.");
  if (skipped) return t("Your connection fell behind: some steps were skipped.");
  if (set.accepting === false) return t("The teacher is not accepting requests right now.");
  if (set.hide_texts) return t("The teacher has hidden the texts: only you can read yours, here.");
  if (set.record_is_full)
    return t(
      "The record is full: saving gives this run from its beginning, without its latest steps. A new run begins once the batch is empty.",
    );
  if (!run && !asked)
    return `${t("No requests yet: add a prompt, and it joins the batch in the next step.")}${teaches ? t(" Or send a burst.") : ""}`;
  if (run && !asked && isIdle(run))
    return t("The batch is empty. Add a prompt: it joins in the next step.");
  if (state.pace === 0) return t("The batch is paused: the teacher takes single steps.");
  return "";
}

/** The settings that the engine reports. */
export const followedWords = (/** @type {Run | null} */ run) =>
  joined(run ? limitsOf(run).map(([words], i) => (i ? t(words) : words)) : []);

/** What matters most now about all ranks: the states that their steps do not show. */
export function allSay(/** @type {Json} */ fleet, /** @type {number} */ silent) {
  if (fleet.broken) return `${t(fleet.broken)} ${t("Trying again.")}`;
  if (!fleet.members.length) return t("The recordings are being opened.");
  if (fleet.sentences.length)
    return fleet.sentences
      .map(
        (/** @type {Json} */ [{ name, rank }, sentence]) =>
          `${name || t(`Rank ${rank}`)}: ${t(sentence)}`,
      )
      .join(" ");
  if (fleet.members.every((/** @type {Json} */ { run }) => isIdle(run)))
    return t("The batches of all ranks are empty.");
  return silent > SILENT
    ? t(`No step of any rank has come for ${Math.round(silent / 1000)} s.`)
    : "";
}

/** The same about a followed engine. silent: ms since its last step. */
export function followedSays(
  /** @type {Json} */ { run, state, broken },
  /** @type {Json} */ { skipped, silent },
) {
  if (broken) return `${t(broken)} ${t("Trying again.")}`;
  if (!state.followed) return t("The recording is being opened.");
  if (state.followed.sentence) return t(state.followed.sentence);
  if (skipped) return t("Your connection fell behind: some steps were skipped.");
  if (!run) return t("Its engine has computed nothing yet.");
  if (isIdle(run)) return t("Its batch is empty.");
  if (silent > SILENT)
    return t(
      `No step has come for ${Math.round(silent / 1000)} s: the engine is busy with a long one, or has stopped.`,
    );
  return "";
}
