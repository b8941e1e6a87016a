// Small helpers around the DOM. Knows nothing of runs. Everything shown goes through textContent.

export function h(tag, props = {}, ...children) {
  const el = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "class") el.className = value;
    else if (key.startsWith("on")) el.addEventListener(key.slice(2), value);
    else el.setAttribute(key, value === true ? "" : value);
  }
  el.append(...children.filter((c) => c !== null && c !== undefined));
  return el;
}

/** An icon from the sprite in player.html. */
export function icon(name) {
  const ns = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(ns, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(ns, "use");
  use.setAttribute("href", `#inflight-${name}`);
  svg.append(use);
  return svg;
}

/** Set text only where it changes: an unchanged node costs no layout. */
export function setText(el, text) {
  if (el._text !== text) {
    el._text = text;
    el.textContent = text;
  }
}

export function setAttr(el, name, value) {
  const key = `_attr_${name}`;
  if (el[key] !== value) {
    el[key] = value;
    el.setAttribute(name, value);
  }
}

export const clamp = (x, low, high) => Math.max(low, Math.min(high, x));
export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

/** Give the visitor a file. */
export function download(name, blob) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(blob);
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}
