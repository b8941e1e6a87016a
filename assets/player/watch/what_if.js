// What if: the requests on screen are run twice again, the second time with one setting changed.
// The two runs are a pair, shown where they diverge.

import { showCard } from "../parts/floating.js";
import { h, newButton, setText } from "../parts/dom.js";
import { goToPart } from "../parts/look.js";
import { count } from "../parts/format.js";
import { loadingWords } from "../parts/model_field.js";
import { inLanguage, t } from "../parts/speech.js";
import { Run } from "../run/run.js";
import { viewState } from "./view_state.js";

// the setting behind each limit
/** @type {Record<string, string>} */
const KNOB_OF = { lanes: "max_num_seqs", budget: "max_num_batched_tokens", blocks: "num_blocks" };
/**
 * @type {[knob: string, name: string, others: (n: number, config: Json) => number[], words: (n:
 * number) => string][]}
 */
const NUMBERS = [
  [
    "max_num_seqs",
    "Lanes",
    (n) => [n * 2, Math.max(1, Math.floor(n / 2))],
    (n) => `${count(n)} [lane|lanes]`,
  ],
  [
    "max_num_batched_tokens",
    "Token budget",
    (n, config) => [n * 4, Math.max(config.max_num_seqs, Math.floor(n / 2))],
    (n) => `a token budget of ${n}`,
  ],
  [
    "num_blocks",
    "KV blocks",
    (n) => [n * 2, Math.ceil(n / 2)],
    (n) => `${count(n)} KV [block|blocks]`,
  ],
];
const SWITCHES = [
  ["chunked_prefill", "Prompts in chunks"],
  ["prefill_first", "Prefill before decode"],
  ["prefix_caching", "Prefix cache"],
];

/** @param {string} policy @param {Json} config */
const insteadOf = (policy, config) => `the policy “${policy}” instead of “${config.policy}”`;

/**
 * The settings that can be changed, each with name, current value and others to try. The setting
 * that limited the step comes first.
 * @param {Json} config @param {Policy[]} policies @param {string} binding
 */
export function changesOf(config, policies, binding = "none") {
  const has = (/** @type {Json} */ knob) => takes(policies, config.policy, knob);
  const elsewhere = policies.map((p) => p.name).filter((p) => p !== config.policy);
  /**
   * @type {{knob: string, name: string, now: string, others: {text: string, value: string | number | boolean, says:
   * string}[]}[]}
   */
  const settings = [
    ...NUMBERS.filter(([knob]) => has(knob) && config[knob]).map(([knob, name, others, words]) => ({
      knob,
      name,
      now: String(config[knob]),
      others: others(config[knob], config)
        .filter((n) => n !== config[knob])
        .map((n) => ({
          text: String(n),
          value: n,
          says: `${words(n)} instead of ${config[knob]}`,
        })),
    })),
    ...SWITCHES.filter(([knob]) => has(knob)).map(([knob, name]) => {
      const [now, other] = config[knob] ? ["on", "off"] : ["off", "on"];
      return {
        knob,
        name,
        now,
        others: [{ text: other, value: !config[knob], says: `${name.toLowerCase()}: ${other}` }],
      };
    }),
    {
      knob: "policy",
      name: "Policy",
      now: config.policy,
      others: elsewhere.map((p) => ({ text: p, value: p, says: insteadOf(p, config) })),
    },
  ].filter(({ others }) => others.length);
  const first = KNOB_OF[binding];
  return [...settings.filter((s) => s.knob === first), ...settings.filter((s) => s.knob !== first)];
}

/** What the button's title says; another engine's run cannot be run again, but may be planned. */
export function aboutWhatIf(/** @type {App} */ app) {
  const { engine } = app.run.header;
  if (!engine) return t("The same requests with one setting changed: where do the runs diverge?");
  const says = canPlan(app)
    ? "There is no {engine} here, so this run is not run again: its settings are planned."
    : "There is no {engine} here. Open its recording, and its settings can be planned.";
  return t(says, { engine: engine.name });
}

/** Open Compare's form for a plan of the run on screen, with its settings and others to try. */
function showPlan(/** @type {App} */ app) {
  const { config, num_blocks: blocks } = app.run.header;
  const own = { ...config, num_blocks: blocks };
  const [lanes, budgets, pools] = NUMBERS.map(([knob, , others]) =>
    [own[knob], ...others(own[knob], own)].join(", "),
  );
  const tried = { lanes, budgets, blocks: pools, policies: "" };
  goToPart(app.root, "compare", { plan: { run: app.runId, tried } });
}

/** Whether an engine here has the run on screen and can plan it; a saved page has no engines. */
const canPlan = (/** @type {Json} */ { run, runId, engines }) =>
  Boolean(!run.isSimulated && runId && engines?.can("plan", runId));

/** Show the card with changes to the run on screen. */
export async function showWhatIf(/** @type {App} */ app) {
  if (app.run?.header.engine) return canPlan(app) ? showPlan(app) : app.toast(aboutWhatIf(app));
  if (app.running) return app.toast("A run is in progress: wait for it to end, or cancel it.");
  const { editor } = app;
  const spec = await editor.specOnScreen();
  if (!spec) return;
  const { event } = viewState(app).frame;
  const { binding } = event.budget;
  const message = h("p", { class: "what-message", role: "status" });
  /** @type {HTMLButtonElement[]} */
  const buttons = [];
  const act = async (/** @type {Json} */ change, /** @type {HTMLButtonElement} */ button) => {
    for (const other of buttons) other.disabled = true;
    button.classList.add("on");
    const failed = await fork(app, spec, change, (/** @type {Json} */ words) =>
      setText(message, t(words)),
    );
    if (failed === null) return card.close();
    setText(message, failed);
    for (const other of buttons) other.disabled = false;
    button.classList.remove("on");
  };
  const choice = (/** @type {Json} */ knob, /** @type {Json} */ { text, value, says }) => {
    const policy = knob === "policy" && editor.state.policies.find((p) => p.name === value);
    const words = policy ? [h("b", {}, text), h("small", {}, t(policy.shows))] : [t(text)];
    const kind = `button what-choice${policy ? " what-policy" : ""}`;
    const onclick = () => act({ knob, value, says }, button);
    const named = { class: kind, title: t(says), "aria-label": t(says), onclick };
    const button = newButton(named, ...words);
    buttons.push(button);
    return button;
  };
  const rows = changesOf(spec.config, editor.state.policies, binding).map(
    ({ knob, name, now, others }) => {
      const limited = knob === KNOB_OF[binding] && `: ${t(`it limited step ${event.step}`)}`;
      const is = `${t("now")} ${knob === "policy" ? now : t(now)}${limited || ""}`;
      return [
        h("dt", {}, t(name), h("small", {}, is)),
        h("dd", { class: "flex spaced wrap" }, ...others.map((other) => choice(knob, other))),
      ];
    },
  );
  const about =
    "Choose a change. The engine then runs these requests again from their first step, once as they are and once with the change, and shows the first step at which the two runs differ.";
  const plan = () => {
    card.close();
    showPlan(app);
  };
  const many = "Many settings at once, simulated …";
  const card = showCard(
    app.root,
    "What if …",
    h("p", {}, t(about)),
    h("dl", { class: "what-settings" }, ...rows.flat()),
    message,
    canPlan(app) && newButton({ class: "button", onclick: plan }, t(many)),
  );
}

/**
 * Run what a link describes again: its spec with the change that it names (`knob:value`). Resolves
 * to whether that is one of the changes offered. @param {App} app @param {Json} spec
 * @param {Wanted} wanted
 */
export async function restoreFork(app, spec, wanted) {
  const [knob, text] = (wanted.what || "").split(":");
  const setting = changesOf(spec.config, app.editor.state.policies).find((s) => s.knob === knob);
  const change = setting?.others.find(({ value }) => String(value) === text);
  if (!change) return false;
  const failed = await fork(app, spec, { knob, ...change }, (/** @type {Json} */ words) =>
    app.toast(t(words), 8000),
  );
  if (failed) app.toast(failed, 8000);
  else if (app.pair.members.length) {
    // otherwise another run was opened meanwhile
    if (wanted.side === "before") app.pair.flip();
    app.look(wanted);
  }
  return true;
}

/**
 * Run the requests on screen under their policy and another one, and show both; returns a sentence
 * if that failed. @param {App} app @param {string} policy @param {Json} tell
 */
export async function runBeside(app, policy, tell) {
  if (app.running) return t("A run is in progress: wait for it to end, or cancel it.");
  const spec = await app.editor.specOnScreen();
  if (!spec) return null;
  const says = insteadOf(policy, spec.config);
  return fork(app, spec, { knob: "policy", value: policy, says }, tell, true);
}

/** Run both; show where they diverge, or the step on screen if `beside`; a sentence on failure. */
async function fork(
  /** @type {App} */ app,
  /** @type {Json} */ spec,
  /** @type {Json} */ { says, knob, value },
  /** @type {Json} */ tell,
  beside = false,
) {
  const { editor } = app;
  const before = app.run;
  const title = editor.titleOf(spec);
  try {
    tell("Starting the engine.");
    const progress = (/** @type {Json} */ { ahead, total, index, loading }) => {
      const runs = total ? `Run ${index + 1} of ${total}.` : "Loading the model.";
      tell(loading ? loadingWords(loading)[1] : ahead ? `${ahead} ahead of yours.` : runs);
    };
    const asks = { ...spec, knob, value };
    const answer = await app.engines.ask("fork", asks, app.visit.visitor, progress);
    const { runs, ...doc } = await app.fetch(answer.url);
    if (app.run !== before) return null; // another run was opened meanwhile
    const said = inLanguage(doc);
    const members = runs.map((/** @type {Json} */ one, /** @type {number} */ n) => {
      const replay = { ...one, ...said.runs?.[n] };
      const entry = { name: null, ...answer.runs[n] };
      return { run: new Run(replay), entry, replay, name: () => inLanguage(doc).names[n] };
    });
    const [, changed] = members;
    const asked = { ...spec, config: changed.run.header.config };
    await editor.keep(changed.run, changed.entry, asked, `${title}: ${t(says)}`);
    const packed = (members[0].entry.spec = await editor.packed(spec));
    const apart = {
      step: doc.step,
      caption: () => inLanguage(doc).says[0],
      says: () => {
        const [same, after] = inLanguage(doc).says;
        return doc.step === null ? same[0] : after;
      },
    };
    app.pair.open({
      members,
      link: !packed ? null : { spec: packed, what: `${knob}:${value}` },
      ...(beside ? whole(members, app.run.stepOf(app.index)) : apart),
    });
    return null;
  } catch (/** @type {Foreign} */ error) {
    return error.message;
  }
}

/**
 * The words and places of a pair that shows both runs as wholes: their numbers of steps, which do
 * not depend on the machine's speed. at: the step to show.
 * @param {import("./pair.js").Member[]} members @param {number} at
 */
function whole(members, at) {
  const says = () => {
    const [mine, theirs] = members.map(({ run }) => t(`${count(run.length)} [step|steps]`));
    const [front, below] = members.map(({ run }) => run.header.policy);
    const holes = { mine, front, theirs, below };
    return t("The same requests, run again: {mine} with {front}, {theirs} with {below}.", holes);
  };
  return { front: members[0], at, step: null, says };
}

/** The settings that only some policies take; all take the others. @param {Policy[]} policies */
export const optional = (policies) => [...new Set(policies.flatMap((p) => p.knobs))];

/**
 * Whether a setting has a meaning under a policy. @param {Policy[]} policies @param {string} name
 * @param {string} knob
 */
export function takes(policies, name, knob) {
  const policy = policies.find((p) => p.name === name);
  return Boolean(policy && policy.knobs.includes(knob)) || !optional(policies).includes(knob);
}
