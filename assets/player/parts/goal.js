// A goal of a task, with what a run shows of it: in Learn and in Write.

import { h } from "./dom.js";

/**
 * met, says: whether the run meets it, and what it shows, null before one; heard: the same said to
 * who does not see the mark.
 * @param {{met: boolean, asks: (string | Node)[], says: (string | Node)[] | null, heard: string}} goal
 */
export const goalItem = ({ met, asks, says, heard }) =>
  h(
    "li",
    { class: met ? "goal met" : "goal" },
    h("span", { class: "goal-mark", "aria-hidden": "true" }, met ? "✓" : ""),
    h(
      "span",
      {},
      says ? h("span", { class: "hidden-text" }, heard) : null,
      h("b", {}, ...asks),
      says ? h("span", { class: "goal-says" }, ...says) : null,
    ),
  );
