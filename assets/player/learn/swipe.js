// Swipes of a finger: to the left for the next stop, to the right for the one before.

const FAR = 56; // pixels
const LEVEL = 0.6; // the most vertical movement, as a share of the horizontal
const OWN = ".paint, .names"; // elements that need a finger's movement themselves

/**
 * Call act(1) for a swipe to the left over `el`, and act(-1) for one to the right.
 * @param {HTMLElement} el @param {(direction: number) => void} act
 */
export function onSwipe(el, act) {
  /** @type {number[] | null} */
  let from = null;
  el.addEventListener("pointerdown", (e) => {
    from =
      e.pointerType !== "mouse" && e.isPrimary && !(/** @type {Element} */ (e.target).closest(OWN))
        ? [e.clientX, e.clientY]
        : null;
  });
  el.addEventListener("pointercancel", () => {
    from = null;
  });
  el.addEventListener("pointerup", (e) => {
    if (!from) return;
    const [dx, dy] = [e.clientX - from[0], e.clientY - from[1]];
    from = null;
    if (Math.abs(dx) >= FAR && Math.abs(dy) <= Math.abs(dx) * LEVEL) act(dx < 0 ? 1 : -1);
  });
}
