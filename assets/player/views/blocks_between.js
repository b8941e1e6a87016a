// The owners of each block on the way from one step to the next: first, blocks that are given back
// drain; then, requests that join find the blocks they share; last, newly taken blocks fill. Pure,
// without a canvas.

import { easeOut, lerp, phase } from "./phases.js";

/** The same owner among others. @param {BlockOwner[] | undefined} owners @param {BlockOwner} o */
const same = (owners, o) =>
  owners?.find(
    ({ request, at, group }) => request === o.request && at === o.at && group === o.group,
  );

/**
 * The owners of each block when a share of the motion has happened.
 * @param {Map<number, BlockOwner[]>} before @param {Map<number, BlockOwner[]>} now block → owners
 * @param {Happenings} happened @param {number | undefined} share
 * @returns {{shown: Map<number, BlockOwner[]>, forgotten: Map<number, {request: RunRequest, left:
 * number}>}} forgotten: block → whose cached prefix is evicted, and the share of it left
 */
export function blocksBetween(before, now, { shared, evicted }, share) {
  const [leave, join, fill] = /** @type {const} */ (["leave", "lane", "block"]).map((name) =>
    easeOut(phase(share, name)),
  );
  const found = new Set(shared.map(({ request, block }) => `${request.index} ${block}`));
  /** @type {Map<number, BlockOwner[]>} */
  const shown = new Map();
  for (const [block, owners] of now) {
    const was = before.get(block);
    const there = owners.flatMap((o) => {
      const old = same(was, o);
      if (old) return [{ ...o, fill: lerp(old.fill, o.fill, fill) }];
      const isFound = found.has(`${o.request.index} ${block}`);
      const come = isFound ? join : fill;
      return come
        ? [{ ...o, fill: isFound ? o.fill : o.fill * fill, strength: Math.min(1, come * 2) }]
        : [];
    });
    if (there.length) shown.set(block, there);
  }
  for (const [block, was] of leave < 1 ? before : []) {
    const owners = now.get(block);
    if (was.every((o) => same(owners, o))) continue;
    const left = 1 - leave;
    const going = was.map((o) =>
      same(owners, o) ? o : { ...o, fill: o.fill * left, strength: left },
    );
    shown.set(block, going);
  }
  const left = leave * (1 - fill);
  const forgotten = new Map(evicted.map(({ block, request }) => [block, { request, left }]));
  return { shown, forgotten };
}
