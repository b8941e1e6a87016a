// A goal of a task, with what a run shows about it; used by Learn and Write.

import { h } from "./dom.js";

/**
 * met: whether the run meets the goal. says: what the run shows, null before there is one. heard: the
 * mark in words, for screen readers.
 * @param {{met: boolean, asks: (string | Node)[], says: (string | Node)[] | null, heard: string}} goal
 */
export const goalItem = ({ met, asks, says, heard }) =>
  h(
    "li",
    { class: met ? "goal met" : "goal" },
    h("span", { class: "goal-mark grid plain strong", "aria-hidden": "true" }, met ? "✓" : ""),
    h(
      "span",
      {},
      says ? h("span", { class: "hidden-text" }, heard) : null,
      h("b", {}, ...asks),
      says ? h("span", { class: "goal-says soft" }, ...says) : null,
    ),
  );
