// Selectors and style sheets without a browser, as much of CSS as the page has: which elements a
// selector means, and what the sheets say of one.

const SIMPLE =
  /([#.])([\w-]+)|\[([\w-]+)(?:([\^*~]?)=["']?(.*?)["']?)?\]|(::?)([\w-]+)(\()?|([\w-]+|\*)/y;
/** How the value of an attribute is compared, by the sign before "=". */
const IS = {
  "": (is, asked) => is === asked,
  "^": (is, asked) => Boolean(is?.startsWith(asked)),
  "*": (is, asked) => Boolean(is?.includes(asked)),
  "~": (is, asked) => Boolean(is?.split(" ").includes(asked)),
};

/** Parts of a text between marks that stand outside of brackets. */
function parted(text, mark) {
  const parts = [""];
  let depth = 0;
  for (const c of text) {
    if ("([".includes(c)) depth += 1;
    if (")]".includes(c)) depth -= 1;
    if (!depth && mark.test(c)) parts.push("");
    else parts[parts.length - 1] += c;
  }
  return parts.map((part) => part.trim()).filter(Boolean);
}

const read = new Map();
/** Every selector of a list, read once. */
export function selectorsOf(list) {
  if (!read.has(list)) read.set(list, parted(list, /,/).map(selectorOf));
  return read.get(list);
}

/** Compounds from left to right, each with the combinator before it, and how much the whole weighs. */
function selectorOf(text) {
  const selector = { steps: [], weight: 0, pseudo: "" };
  let by = " ";
  for (const part of parted(text, /\s/)) {
    if (/^[>+~]$/.test(part)) {
      by = part;
      continue;
    }
    const step = { by, tests: [], keys: null };
    SIMPLE.lastIndex = 0;
    while (SIMPLE.lastIndex < part.length) {
      const found = SIMPLE.exec(part);
      if (!found) throw new Error(`no test can read ${part}`);
      simple(found, part, step, selector);
    }
    selector.steps.push(step);
    by = " ";
  }
  return selector;
}

/** Adds what one simple selector asks of an element. */
function simple([, sign, name, key, kind, value, colons, state, opens, tag], part, step, selector) {
  const grow = (weight, test, one) => {
    selector.weight += weight;
    step.tests.push(test);
    if (one) step.keys = [one];
  };
  if (sign === "#") grow(1e6, (el) => el.id === name, `#${name}`);
  else if (sign) grow(1e3, (el) => el.classes.has(name), `.${name}`);
  else if (key) {
    const is = IS[kind ?? ""];
    grow(1e3, (el) =>
      value === undefined ? el.hasAttribute(key) : is(el.getAttribute(key), value),
    );
  } else if (tag)
    grow(
      tag === "*" ? 0 : 1,
      (el) => tag === "*" || el.tagName === tag.toUpperCase(),
      step.keys ? null : tag !== "*" && tag.toUpperCase(),
    );
  else if (colons === "::") selector.pseudo = state;
  else {
    let list = "";
    if (opens) {
      const from = SIMPLE.lastIndex;
      for (let depth = 1; depth; SIMPLE.lastIndex += 1)
        depth += { "(": 1, ")": -1 }[part[SIMPLE.lastIndex]] ?? 0;
      list = part.slice(from, SIMPLE.lastIndex - 1);
    }
    const at = SIMPLE.lastIndex;
    const all = ["is", "where", "not", "has"].includes(state) ? selectorsOf(list) : [];
    SIMPLE.lastIndex = at;
    const most = Math.max(0, ...all.map(({ weight }) => weight));
    const weight = state === "where" ? 0 : all.length ? most : 1e3;
    if (state === "has") grow(weight, (el) => all.some((one) => hasOne(el, one)));
    else if (state === "not") grow(weight, (el) => !all.some((one) => fits(el, one)));
    else if (all.length) {
      grow(weight, (el) => all.some((one) => fits(el, one)));
      step.keys ??= all.flatMap(({ steps }) => steps.at(-1).keys ?? ["*"]);
    } else grow(weight, (el) => el.isIn(state, list));
  }
}

const elements = (el) => el?.children.filter(({ tagName }) => tagName && tagName !== "TEXT") ?? [];

/** Whether an element has one of these in or after it. */
function hasOne(el, { steps }) {
  const near = steps[0].by === ">" ? elements(el) : el.querySelectorAll("*");
  return near.some((other) => fits(other, { steps }));
}

/** Whether a selector means an element. */
export function fits(el, { steps }, at = steps.length - 1) {
  const { by, tests } = steps[at];
  if (el.tagName === "TEXT" || !tests.every((test) => test(el))) return false;
  if (at === 0) return true;
  const up = el.parentElement;
  if (by === ">") return Boolean(up && fits(up, { steps }, at - 1));
  if (by !== " ") {
    const before = elements(up).slice(0, elements(up).indexOf(el));
    return (by === "+" ? before.slice(-1) : before).some((one) => fits(one, { steps }, at - 1));
  }
  for (let one = up; one; one = one.parentElement) if (fits(one, { steps }, at - 1)) return true;
  return false;
}

/** The rules of a sheet in order: [conditions of @media around it, selectors, declarations]. */
function rulesOf(text, media = [], around = "") {
  const rules = [];
  let rest = text;
  let own = "";
  for (;;) {
    const brace = rest.indexOf("{");
    if (brace < 0) break;
    const begins = rest.lastIndexOf(";", brace) + 1;
    own += rest.slice(0, begins);
    const head = rest.slice(begins, brace).trim();
    let end = brace + 1;
    for (let depth = 1; depth; end += 1) depth += { "{": 1, "}": -1 }[rest[end]] ?? 0;
    const body = rest.slice(brace + 1, end - 1);
    rest = rest.slice(end);
    if (head.startsWith("@media")) rules.push(...rulesOf(body, [...media, head.slice(6)], around));
    else if (!head.startsWith("@"))
      rules.push(...rulesOf(body, media, head.replaceAll("&", `:is(${around})`)));
  }
  const said = parted(own + rest, /;/).map((line) => line.split(/:\s*([^]*)/, 2));
  if (around && said.length) rules.unshift({ media, selectors: selectorsOf(around), said });
  return rules;
}

/** What style sheets say of an element: [property, value], those that hold. asks: of @media. */
export class Sheets {
  constructor(texts, asks) {
    this.asks = asks;
    this.rules = new Map();
    const all = texts.flatMap((text) => rulesOf(text.replace(/\/\*[^]*?\*\//g, "")));
    for (const [order, { media, selectors, said }] of all.entries())
      for (const selector of selectors)
        for (const key of new Set(selector.steps.at(-1).keys ?? ["*"])) {
          if (!this.rules.has(key)) this.rules.set(key, []);
          this.rules.get(key).push({ media, selector, said, order });
        }
  }

  of(el) {
    const keys = [`#${el.id}`, ...[...el.classes].map((name) => `.${name}`), el.tagName, "*"];
    const found = new Set(
      keys
        .flatMap((key) => this.rules.get(key) ?? [])
        .filter(({ media, selector }) => media.every(this.asks) && fits(el, selector)),
    );
    const rules = [...found].sort(
      (a, b) => a.selector.weight - b.selector.weight || a.order - b.order,
    );
    const holds = new Map();
    for (const { selector, said } of rules)
      for (const [name, value] of said) {
        const key = selector.pseudo ? `${selector.pseudo} ${name}` : name;
        const is = value.endsWith("!important");
        if (is || !holds.get(key)?.endsWith("!important")) holds.set(key, value);
      }
    return holds;
  }
}
