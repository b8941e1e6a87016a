// Translates the page's texts; messages.js makes the keys. A text without an entry stays English,
// and its key is noted for tests. All parts of the page use the same language; each has a `Speech`.

import { setText } from "./dom.js";
import { english, fill, keyOf } from "./messages.js";

/**
 * @type {Json} {name, words: translations by English key, terms: see glossary.js, asked: see
 * runs_card.js, captions: gives the sentences of a recorded run's entry}; null for English.
 */
let spoken = null;
let isChosen = false; // false while the language of the address is loading
/** @type {Promise<void> | null} */
let coming = null; // ends when a language that the page waits for is here
/** @type {(() => void) | null} */
let arrived = null; // ends it
/** @type {Set<Speech>} */
const speeches = new Set();

/** The code of the current language. */
export const speaking = () => (spoken ? spoken.name : "en");

export const isSpoken = () => isChosen;

/** Hide the page until its language is set. */
export function awaitLanguage() {
  document.documentElement.toggleAttribute("data-unspoken", true);
  coming = new Promise((resolve) => {
    arrived = resolve;
  });
}

/** Whether the page is hidden until its language is set. */
export const isUnspoken = () => Boolean(arrived);

/** Wait until the page can be read. */
export const whenSpoken = () => coming;

/**
 * A document with its sentences in the current language.
 * @template {{translations?: Record<string, object>}} T @param {T} doc
 */
export const inLanguage = (doc) => ({ ...doc, ...doc.translations?.[speaking()] });

/** One run of a document, with its sentences in every language. @param {Json} doc @param {string} name */
export const runOf = ({ runs, translations }, name) => ({
  ...runs[name],
  others: Object.fromEntries(
    Object.entries(translations || {}).map(([language, said]) => [language, said.runs?.[name]]),
  ),
});

/** Switch all parts to a language: labels now, sentences with a new run. @param {Json} language */
export function speak(language) {
  if (isChosen && spoken === language) return;
  spoken = language;
  isChosen = true;
  for (const speech of speeches) speech.say();
  if (!arrived) return;
  arrived();
  arrived = null;
  document.documentElement.removeAttribute("data-unspoken");
}

/** The keys of texts without a translation. */
export const missingKeys = new Set();

/**
 * A text in the current language. holes: what replaces each {name}: names, and texts that are
 * already in that language.
 * @param {string} text @param {Record<string, string> | null} holes
 */
export function t(text, holes = null) {
  const said = translated(text);
  return holes ? said.replace(/\{(\w+)\}/g, (_, /** @type {string} */ name) => holes[name]) : said;
}

/** @param {string} text */
function translated(text) {
  if (!spoken) return english(text);
  if (!/[A-Za-z]/.test(text)) return asWritten(text);
  const [key, given] = keyOf(text);
  if (Object.hasOwn(spoken.words, key))
    return fill(spoken.words[key], given, spoken.name, asWritten);
  missingKeys.add(key);
  return english(text);
}

/**
 * A number or quote in German: 12,345.6 becomes 12.345,6 and “a” becomes „a“. Quoted text and
 * versions such as 0.68.1 stay as they are.
 * @type {(part: string) => string}
 */
const asWritten = (part) =>
  part.startsWith("“")
    ? `„${part.slice(1, -1)}“`
    : /^\d+(\.\d+){2,}$/.test(part)
      ? part
      : part.replace(/[.,]/g, (c) => (c === "." ? "," : "."));

/** A line with its texts translated. @type {(line: Span[]) => Span[]} */
export const translateLine = (line) =>
  line.map((span) => (typeof span === "string" ? t(span) : span));

/**
 * Write a text into an element, in the current language.
 * @type {(el: Element, ...text: Parameters<typeof t>) => void}
 */
export const tell = (el, text, holes = null) => setText(el, t(text, holes));

/** Translates the texts in a part's markup. */
export class Speech {
  /**
   * root: the element whose texts and titles are translated. changed: called when the language has
   * changed. @param {HTMLElement} root @param {() => void} changed
   */
  constructor(root, changed) {
    this.changed = changed;
    this.root = root;
    this.missingKeys = missingKeys;
    this.texts = [];
    const walker = document.createTreeWalker(root, 4 /* texts */);
    while (walker.nextNode()) {
      const node = /** @type {Text} */ (walker.currentNode);
      const english = node.data.trim().replace(/\s+/g, " ");
      if (/[A-Za-z]/.test(english) && !node.parentElement?.closest("code, kbd"))
        this.texts.push({ node, english, shown: node.data });
    }
    this.attributes = ["title", "aria-label", "placeholder"].flatMap((name) =>
      [...root.querySelectorAll(`[${name}]`)].map((el) => {
        const english = el.getAttribute(name) || "";
        return { el, name, english, shown: english };
      }),
    );
    speeches.add(this);
    if (spoken) this._say();
  }

  get language() {
    return spoken;
  }

  get name() {
    return speaking();
  }

  /** Write all texts in the language that was just set. */
  say() {
    this._say();
    this.changed();
  }

  /**
   * A recorded run, or the runs of all ranks, with sentences in the current language.
   * @param {Json} entry @param {Json} replay
   */
  async withCaptions(entry, { translations, ...replay }) {
    await coming;
    const language = spoken;
    const said = language && (translations?.[language.name] || (await language.captions(entry)));
    this.opened = language;
    if (!said) return replay;
    if (!replay.ranks) return { ...replay, ...said };
    const ranks = replay.ranks.map((/** @type {Rank} */ rank, /** @type {number} */ n) => ({
      ...rank,
      replay: { ...rank.replay, ...said.ranks[n] },
    }));
    return { ...replay, ranks };
  }

  /** Translate the texts and titles of the markup, except those that were overwritten since. */
  _say() {
    this.root.lang = this.name;
    for (const label of this.texts) {
      if (label.node.data !== label.shown) continue;
      label.shown = label.node.data = label.node.data.replace(label.node.data.trim(), () =>
        t(label.english),
      );
    }
    for (const label of this.attributes) {
      if (label.el.getAttribute(label.name) !== label.shown) continue;
      label.shown = t(label.english);
      label.el.setAttribute(label.name, label.shown);
    }
  }
}
