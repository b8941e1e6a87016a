// A mask in words: which tokens meet in a cell, and why it is allowed or blocked.

import { count } from "../../parts/format.js";
import { onMinimap } from "./pointers.js";
import { itemAt, overrunWords, visible } from "../../run/passes.js";

/** Why a cell is allowed or blocked, in words. */
export function explainCell(mask, q, k) {
  const { run, weights } = mask.state;
  const { pass, window } = mask.drawn;
  const query = itemAt(pass, q, "q");
  const key = itemAt(pass, k, "k");
  const offset = q - query.q0 - query.pads;
  const keyPosition = k - key.k0;
  const keyWords = [{ request: key.request }, ` token ${keyPosition} “${visible(run.tokenText(key.request, keyPosition), 24)}”, ${keyPosition < key.start ? "cached" : "new"}`];
  if (offset < 0) {
    const why = query.finished ? " has finished; its row is computed as padding until the wave ends" : " is shorter than this pass is wide";
    return { request: query.request, allowed: false, reason: "padding", lines: [["Pad: ", { request: query.request }, why], ["Blocked: a pad looks at nothing and nothing looks at it"]] };
  }
  const position = query.start + offset;
  const lines = [
    ["Query ", { request: query.request }, ` token ${position} “${visible(run.tokenText(query.request, position), 24)}”, ${query.phase}`],
    ["Key ", ...keyWords],
  ];
  let reason;
  if (query.leak === key) {
    lines.push([{ request: query.request }, " may read it by the leak alone: it belongs to another request"]);
    return { request: query.request, allowed: true, reason: "leak", lines, position, keyPosition };
  }
  if (query.request !== key.request) reason = "another request";
  else if (keyPosition > position) reason = "the future";
  else if (window !== null && position - keyPosition >= window) reason = "outside the window";
  const words = {
    "another request": "Blocked: the key belongs to another request",
    "the future": `Blocked: the key is ${count(keyPosition - position)} [token|tokens] in the future`,
    "outside the window": `Blocked: ${position - keyPosition} tokens back, outside the window of ${window}`,
  };
  const allowed = reason === undefined;
  const how = keyPosition === position ? "itself" : `${count(position - keyPosition)} [token|tokens] back`;
  if (query.overrun) lines.push(overrunWords(query));
  lines.push([allowed ? `Allowed: ${how}, ${keyPosition < query.start ? "read from the cache" : "computed in this pass"}` : words[reason]]);
  const weighed = allowed && mask.drawn.weights && mask.drawn.weights.get(query.request.id);
  if (weighed) lines.push([`Weight ${weighed.weights[offset][keyPosition]} in layer ${weights.layer}, head ${weights.head}`]);
  return { request: query.request, allowed, reason: reason || "allowed", lines, position, keyPosition };
}

/** What lies under the pointer: a key, a query or a cell, and what to say of it. */
export function maskHit(mask, x, y) {
  const cell = mask.cellAt(x, y);
  if (!cell) return null;
  if (onMinimap(mask, x, y)) return { request: null, stays: true, lines: [["The whole mask: drag to move the view"]] };
  if (cell.band && cell.inCols) {
    const item = itemAt(cell.pass, cell.k, "k");
    return { request: item.request, lines: [[{ request: item.request }, ` ${count(item.kvLen)} [key|keys]: ${item.start} cached, ${item.length} new`]] };
  }
  if (!cell.inRows) return null;
  if (cell.side) {
    const item = itemAt(cell.pass, cell.q, "q");
    return { request: item.request, hot: { request: item.request, row: cell.q }, lines: [[{ request: item.request }, ` ${count(item.length)} [query|queries], ${item.phase}`], ...(item.overrun ? [overrunWords(item)] : [])] };
  }
  if (!cell.inCols) return null;
  const said = explainCell(mask, cell.q, cell.k);
  const hot = { request: said.request, row: cell.q, column: cell.k, q: said.position };
  if (said.reason === "allowed") hot.keys = [said.keyPosition, said.keyPosition + 1];
  return { request: said.request, hot, lines: said.lines };
}
