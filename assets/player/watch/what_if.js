// What if: the run on screen once more with one setting changed, shown where the two part. Both stay among the runs of this visit.

import { plural } from "../parts/format.js";

/** Whether two events of two runs did the same: the same requests with the same positions, in the same passes. */
function alike(a, b) {
  const work = (e) => JSON.stringify([e.step, e.passes.map((p) => [p.layout, p.rows, p.width]), e.segments.map((s) => [s.passIndex, s.request, s.start, s.length]), e.preempted.map((p) => p.request)]);
  return work(a) === work(b);
}

/**
 * The index of the first step that differs; null where one run is the beginning of the other, or they are equal.
 * @param {Run} before
 * @param {Run} after
 */
export function partingStep(before, after) {
  const most = Math.min(before.length, after.length);
  for (let i = 0; i < most; i += 1) if (!alike(before.events[i], after.events[i])) return i;
  return before.length === after.length ? null : most - 1;
}

/**
 * One change each, as {says, config}. knobs: those that the policy has.
 * @param {{config: any, knobs: string[]}} spec
 * @param {string[]} policies
 */
export function changesOf({ config, knobs }, policies) {
  /** @type {[string, (n: number) => number[], (n: number) => string][]} */
  const numbers = [
    ["max_num_seqs", (n) => [Math.max(1, Math.floor(n / 2)), n * 2], (n) => plural(n, "lane")],
    ["max_num_batched_tokens", (n) => [Math.max(config.max_num_seqs, Math.floor(n / 2)), n * 4], (n) => `a token budget of ${n}`],
    ["num_blocks", (n) => [Math.ceil(n / 2)], (n) => plural(n, "KV block")],
  ];
  const switches = [
    ["chunked_prefill", "prompts in chunks", "whole prompts"], ["prefill_first", "prefill before decode", "decode before prefill"],
    ["prefix_caching", "a prefix cache", "no prefix cache"],
  ];
  const has = (name) => !["max_num_batched_tokens", "chunked_prefill", "prefill_first", "prefix_caching"].includes(name) || knobs.includes(name);
  return [
    ...numbers.filter(([name]) => has(name) && config[name]).flatMap(([name, others, words]) => others(config[name]).filter((n) => n !== config[name])
      .map((n) => ({ says: `${words(n)} instead of ${config[name]}`, config: { [name]: n } }))),
    ...switches.filter(([name]) => has(name)).map(([name, on, off]) => (config[name] ? { says: `${off} instead of ${on}`, config: { [name]: false } } : { says: `${on} instead of ${off}`, config: { [name]: true } })),
    ...policies.filter((p) => p !== config.policy).map((policy) => ({ says: `the policy ${policy} instead of ${config.policy}`, config: { policy, prefill_first: false, prefix_caching: false } })),
  ];
}

/** The menu of changes to the run on screen. */
export async function whatIf(app) {
  const { editor } = app;
  const spec = await editor.specOnScreen();
  if (!spec) return [];
  const { policies } = editor.state;
  const { knobs } = policies.find((p) => p.name === spec.config.policy);
  return changesOf({ config: spec.config, knobs }, policies.map((p) => p.name)).map(({ says, config }) => ({
    text: says, act: () => runWith(app, { ...spec, config: { ...spec.config, ...config } }, says),
  }));
}

async function runWith(app, spec, says) {
  const { editor } = app;
  const before = { run: app.run, entry: app.entry, replay: app.replay, index: app.index };
  const { edited } = editor;
  if (!(await editor.runSpec(spec, `${before.entry?.title || "A run"}: ${says}`)) || app.run !== app.live.run) return;
  if (!edited) await editor.follow();
  const parting = partingStep(before.run, app.run);
  if (parting !== null) app.seek(parting);
  const step = parting === null ? null : app.run.stepOf(parting);
  const told = parting === null ? `With ${says}, nothing changes: every step is the same.`
    : `With ${says}, ${step ? `step ${step} is the first that differs` : "the very first step differs"}; the run takes ${plural(app.run.length, "step")} instead of ${before.run.length}.`;
  app.toast(told, 20000, { text: "Back to the run before", act: () => app.live.show(before) });
}
