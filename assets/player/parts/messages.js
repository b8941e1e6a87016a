// Sentences with numbers, in any language; core/trace/messages.py does the same for Python. English is the key: in it every number, and every sum of
// numbers, stands as #, and quoted text as “…”. Where a form depends on a number, the forms stand side by side, one for each plural category of
// the language, in the order of `CATEGORIES`: "3 [token|tokens]". They go with the number before them (the first where none is before), or with one of their own, which is not
// shown: "[=3 waits|wait]". Knows no DOM and no word.

const PARTS = /“[^”]*”|\d+(?:[.,]\d+)*(?: \+ \d+(?:[.,]\d+)*)*/g;
const HOLES = /\[(=# )?([^[\]|]*(?:\|[^[\]|]*)+)\]|#|“…”/g;
const CATEGORIES = ["zero", "one", "two", "few", "many", "other"];

/** By language: the place of a number's form among the forms. @type {Map<string, (n: number) => number>} */
const places = new Map();

/** @param {string} language @param {number} n */
function placeOf(language, n) {
  let place = places.get(language);
  if (!place) {
    const rules = new Intl.PluralRules(language);
    const used = CATEGORIES.filter((category) => /** @type {string[]} */ (rules.resolvedOptions().pluralCategories).includes(category));
    places.set(language, place = (number) => used.indexOf(rules.select(number)));
  }
  return place(n);
}

/** A text as a key, and what stands in its holes. @type {(text: string) => [string, string[]]} */
export const keyOf = (text) => [text.replace(PARTS, (part) => (part.startsWith("“") ? "“…”" : "#")), text.match(PARTS) || []];

/**
 * A template with its holes filled, in order. written: how a number or a quote is written.
 * @param {string} template
 * @param {string[]} given
 * @param {string} language
 * @param {(part: string) => string} written
 */
export function fill(template, given, language, written = (part) => part) {
  let at = 0;
  let number = given[0] || "0";
  return template.replace(HOLES, (hole, own, forms) => {
    const part = own || forms === undefined ? given[at++] : number;
    if (hole !== "“…”") number = part;
    return forms === undefined ? written(part) : forms.split("|")[placeOf(language, valueOf(part))];
  });
}

/** An English text with the forms that its numbers ask for. @param {string} text */
export function english(text) {
  if (!text.includes("[")) return text;
  const [key, given] = keyOf(text);
  return fill(key, given, "en");
}

/** "1,234 + 2" is 1236. @type {(number: string) => number} */
const valueOf = (number) => number.split(" + ").reduce((sum, part) => sum + Number(part.replaceAll(",", "")), 0);
