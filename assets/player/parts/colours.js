// The one colour table for text and graphics: hues, and fills on which text is legible.

export const HUES = [
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#B5548A",
  "#C28A00",
  "#2E9CCB",
  "#7A5CD6",
  "#6B7A1F",
];
const DARK_HUES = [
  "#3D9BDB",
  "#F0803C",
  "#22B88C",
  "#D67AAD",
  "#DBA52B",
  "#62BDE6",
  "#A08BEE",
  "#9DAE45",
];

/**
 * Whether a request is dimmed because others are highlighted.
 * @type {(lit: RunRequest[] | null, request: RunRequest | null) => boolean}
 */
export const dims = (lit, request) => lit !== null && !(request && lit.includes(request));

/**
 * The hue that the fewest live requests have; among equals the first after `last`, so that
 * neighbours in time differ, too. @param {number[]} live @param {number} last
 */
export function dealHue(live, last) {
  const used = HUES.map(() => 0);
  for (const hue of live) used[hue] += 1;
  const fewest = Math.min(...used);
  for (let i = 1; i <= HUES.length; i += 1) {
    const hue = (last + i) % HUES.length;
    if (used[hue] === fewest) return hue;
  }
  return 0;
}

/** @type {(hex: string) => number[]} */
export const rgbOf = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
/** @type {(rgb: number[]) => string} */
const format = (rgb) => `#${rgb.map((c) => Math.round(c).toString(16).padStart(2, "0")).join("")}`;
/** @type {(a: string, b: string, t: number) => string} */
export const mix = (a, b, t) => format(rgbOf(a).map((c, i) => c + (rgbOf(b)[i] - c) * t));

/** @param {string} hex */
function luminance(hex) {
  const [r, g, b] = rgbOf(hex).map((c) =>
    c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** @param {string} a @param {string} b */
export function contrast(a, b) {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p);
  return (x + 0.05) / (y + 0.05);
}

/**
 * The fill nearest to `hue` on which white or `ink` reaches a contrast of 4.5 : 1, and that text
 * colour. @param {string} hue @param {string} ink
 */
function readable(hue, ink) {
  for (let t = 0; ; t += 0.04) {
    const fill = mix(hue, "#000000", t);
    if (contrast(fill, "#ffffff") >= 4.5) return [fill, "#ffffff"];
    if (t === 0 && contrast(fill, ink) >= 4.8) return [fill, ink];
  }
}

/** The colours of one theme, read once from the style sheet's variables. */
export class Palette {
  /** @param {HTMLElement} root */
  constructor(root) {
    const style = getComputedStyle(root);
    const read = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    this.dark = read("--scheme") === "dark";
    this.ground = read("--ground");
    this.panel = read("--panel");
    this.ink = read("--ink");
    this.soft = read("--soft");
    this.rule = read("--rule");
    this.empty = read("--empty");
    this.pad = read("--pad");
    this.warn = read("--warn");
    this.sans = read("--sans");
    this.mono = read("--mono");
    this.hues = (this.dark ? DARK_HUES : HUES).map((hue) => {
      const [fill, text] = readable(hue, "#1b1b1f");
      return {
        solid: hue, // decode cells and new keys
        fill, // `solid` where text is on it
        text, // text on `fill`
        tint: mix(hue, this.panel, this.dark ? 0.74 : 0.84), // prefill cells, chips; carries ink
        cached: mix(hue, this.panel, 0.5), // cached keys
        faint: mix(hue, this.empty, this.dark ? 0.88 : 0.9), // own block where attention is blocked
      };
    });
    this.none = {
      solid: this.soft,
      fill: this.soft,
      text: this.panel,
      tint: this.empty,
      cached: this.rule,
      faint: this.empty,
    };
    const grey = mix(this.pad, this.ink, 0.25); // of wasted positions
    this.waste = { ...this.none, solid: grey, fill: grey, cached: mix(grey, this.panel, 0.5) };
    this._hatches = new Map();
  }

  /** A request's colours. @param {RunRequest | null} request */
  of(request) {
    return request && request.hue >= 0 ? this.hues[request.hue] : this.none;
  }

  /** The colours of an item of a pass; grey if it was wasted. @param {PassItem} item */
  ofItem(item) {
    return item.overrun ? this.waste : this.of(item.request);
  }

  /** A pattern of diagonal hatching, for padding. @param {Ink} g @returns {CanvasPattern} */
  hatch(g, colour = this.pad, ground = this.empty) {
    const key = `${colour}${ground}`;
    let tile = this._hatches.get(key);
    if (!tile) {
      tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const t = /** @type {Ink} */ (tile.getContext("2d"));
      t.fillStyle = ground;
      t.fillRect(0, 0, 6, 6);
      t.strokeStyle = colour;
      t.lineWidth = 1.3;
      t.beginPath();
      for (const x of [-6, 0, 6]) {
        t.moveTo(x - 1, 7);
        t.lineTo(x + 7, -1);
      }
      t.stroke();
      this._hatches.set(key, tile);
    }
    return /** @type {CanvasPattern} */ (g.createPattern(tile, "repeat"));
  }
}
