// Sentences with numbers, in any language; core/trace/messages.py does the same for Python. The
// English text is the key: every number, or sum of numbers, becomes #, and every quoted text “…”.
// Where a word depends on a number, its forms are listed side by side, one for each plural category
// of the language, in the order of `CATEGORIES`: "3 [token|tokens]". They agree with the number
// before them (or the first number, if none comes before), or with a number of their own, which is
// not shown: "[=3 waits|wait]".

const PARTS = /“[^”]*”|\d+(?:[.,]\d+)*(?: \+ \d+(?:[.,]\d+)*)*/g;
const HOLES = /\[(=# )?([^[\]|]*(?:\|[^[\]|]*)+)\]|#|“…”/g;
const CATEGORIES = ["zero", "one", "two", "few", "many", "other"];

/** @type {Map<string, (n: number) => number>} by language: the index of a number's plural form */
const places = new Map();

/** @param {string} language @param {number} n */
function placeOf(language, n) {
  let place = places.get(language);
  if (!place) {
    const rules = new Intl.PluralRules(language);
    const used = CATEGORIES.filter((category) =>
      /** @type {string[]} */ (rules.resolvedOptions().pluralCategories).includes(category),
    );
    places.set(language, (place = (number) => used.indexOf(rules.select(number))));
  }
  return place(n);
}

/** A text's key and its placeholders' values. @type {(text: string) => [string, string[]]} */
export const keyOf = (text) => [
  text.replace(PARTS, (part) => (part.startsWith("“") ? "“…”" : "#")),
  text.match(PARTS) || [],
];

/**
 * Fill a template's placeholders in order; those without a value stay.
 * @param {string} template @param {string[]} given @param {string} language
 * @param {(part: string) => string} written how a number or a quote is written
 */
export function fill(template, given, language, written = (part) => part) {
  let at = 0;
  let number = given[0] || "0";
  return template.replace(HOLES, (hole, own, forms) => {
    const part = own || forms === undefined ? given[at++] : number;
    if (part === undefined) return hole;
    if (hole !== "“…”") number = part;
    return forms === undefined ? written(part) : forms.split("|")[placeOf(language, valueOf(part))];
  });
}

/** An English text with the plural forms that its numbers require. @param {string} text */
export function english(text) {
  if (!text.includes("[")) return text;
  const [key, given] = keyOf(text);
  return fill(key, given, "en");
}

/** "1,234 + 2" is 1236. @type {(number: string) => number} */
const valueOf = (number) =>
  number.split(" + ").reduce((sum, part) => sum + Number(part.replaceAll(",", "")), 0);
