// The facts of the run on screen as a list: model, device, limits, memory, and its engine's notes
// on them. They come from the run's header and the warnings about its steps.

import { showCard } from "../parts/floating.js";
import { h, newButton } from "../parts/dom.js";
import { bytes, count, joined, milliseconds } from "../parts/format.js";
import { t } from "../parts/speech.js";
import { warningsOf } from "../run/events.js";

/** @type {Record<string, string>} */
const SOURCES = {
  recorded: "Recorded",
  live: "Run by the server",
  uploaded: "From a file",
  simulated: "Simulated",
};
const EXECUTION = {
  asynchronous: "asynchronous",
  cuda_graphs: "CUDA graphs",
  fused_sampling: "fused sampling",
  fused_norms: "fused norms",
  fused_rotary: "fused rotary embedding",
};
const MEMORY = { weights: "{size} weights", kv_pool: "{size} KV pool", peak: "{size} at the peak" };

/** Where the run on screen comes from, in a word or two. */
export function sourceOf(/** @type {Json} */ { goesOn, header }) {
  if (goesOn) return "Live run";
  if (header.source === "live" && header.versions?.pyodide) return "Run in a browser tab";
  return SOURCES[header.source] || SOURCES.recorded;
}

/** Where a run ran; empty if its engine did not record it. @param {Json} header */
export const deviceOf = ({ device = "" }) =>
  device === "not recorded" ? "" : device.toUpperCase();

/** The header as [name, words] rows, one for each fact that it has. */
export function factsOf(/** @type {Run} */ run) {
  const { header } = run;
  const { model = {}, config = {}, execution, memory, versions = {}, engine } = header;
  const [unit, letter] = model.parameters >= 1e9 ? [1e9, "B"] : [1e6, "M"];
  const size =
    model.parameters >= 1e6
      ? t(`${(model.parameters / unit).toPrecision(3)} ${letter} parameters`)
      : model.parameters && t(`${count(model.parameters)} parameters`);
  const device = deviceOf(header);
  const hasThreads = header.threads && !/cuda/i.test(header.device);
  const threads = hasThreads && t(`${count(header.threads)} [thread|threads]`);
  const ran = [
    String(header.created || "").slice(0, 10),
    run.goesOn ? t("still running") : run.complete ? "" : t("stopped before its end"),
  ];
  const other = engine && [
    `${engine.name} ${engine.version}`,
    engine.scheduler,
    engine.async && t("asynchronous"),
    engine.ranks > 1 && t(`rank ${engine.rank} of ${engine.ranks}`),
  ];
  const layers = model.layers && t(`${count(model.layers)} [layer|layers]`);
  const leaks = "on purpose, every request also read the keys of the next one in the pass";
  const blocks = `${count(run.numBlocks)} KV [block|blocks] of ${count(run.blockSize)} [token|tokens]`;
  const limits = [
    header.policy,
    config.max_num_seqs && t(`${count(run.numLanes)} [lane|lanes]`),
    run.numBlocks && t(blocks),
  ];
  const how = execution && [
    execution.attention && t("attention: {how}", { how: String(execution.attention) }),
    ...Object.entries(EXECUTION).map(([key, word]) => execution[key] && t(word)),
  ];
  const held = Object.entries(MEMORY).map(
    ([key, words]) => Number.isFinite(memory?.[key]) && t(words, { size: bytes(memory[key], t) }),
  );
  const libraries = Object.entries(versions).map(([name, version]) => `${name} ${version}`);
  const rules = Object.entries(header.inferred || {}).map(([fact, rule]) => `${fact}: ${rule}`);
  const list = (/** @type {Json} */ parts) => joined(parts || [], ", ");
  // an engine that is followed writes a file, too, or sends it to whoever collects
  const isBrought = [header.source, header.brought].includes("uploaded") || (run.goesOn && engine);
  return [
    [sourceOf(run), list(ran)],
    ["Taken on trust", isBrought && t(INVENTED)],
    ["Engine", list(other)],
    ["Model", list([model.name, size, layers, header.dtype])],
    ["Device", device ? list([device, header.device_name, threads]) : t(header.device || "")],
    ["Cost model", costOf(header)],
    ["Leak", header.leak && leaks],
    ["Policy", list(limits)],
    ["Execution", list(how)],
    ["Memory", list(held)],
    ["Versions", list(libraries)],
    ["Not recorded by the engine", list(header.absent)],
    ...rules.map((rule) => ["Inferred", rule]),
    ["Warnings", oddSteps(run)],
    ...notesOf(header).map((note) => ["Note", note]),
  ].filter(([, words]) => words);
}

const INVENTED =
  "everything said of it, such as its decisions, tokens, texts, times and machine: whoever wrote the file may have invented it; the command check says what a trace proves";
const SHEETS =
  "nothing was measured: times follow from the data sheet of {card} and the config of {model}; assumed: {reached} of each peak number is reached, each pass takes {besides} besides, {memory} of memory may be used";
const FIT =
  "fitted to {steps} measured steps of {engine}; on steps left out of the fit it is off by {median} (median), by {most} for one in ten, and in total by {total}";

const percent = (/** @type {number} */ share) => t(`${Number((100 * share).toPrecision(3))} %`);

/** The cost model of a simulated run: data sheets with assumptions, or a fit with its error. */
function costOf(/** @type {Json} */ { cost }) {
  const { accelerator, model, reached, error, about } = cost || {};
  const { overhead_s: besides, memory_share: memory } = cost || {};
  if (accelerator && model && [reached, besides, memory].every(Number.isFinite))
    return t(SHEETS, {
      card: String(accelerator.title),
      model: String(model.title),
      reached: percent(reached),
      besides: t(milliseconds(besides)),
      memory: percent(memory),
    });
  const numbers = [about?.steps, error?.median, error?.p90, error?.total];
  if (!numbers.every(Number.isFinite)) return null;
  return t(FIT, {
    steps: t(count(about.steps)),
    engine: about.engine || t("this engine"),
    median: percent(error.median),
    most: percent(error.p90),
    total: percent(error.total),
  });
}

/** How many steps break a rule that every run must obey, and the first of them. */
function oddSteps(/** @type {Run} */ run) {
  const odd = run.events.filter((event) => warningsOf(event).length);
  const many = `${count(odd.length)} [step is|steps are] against a rule that every run obeys`;
  return odd.length && t(`${many}, first step ${odd[0].step}`);
}

/** The policy and its limits, each in our words, in vLLM's, and as a term of the glossary. */
export function limitsOf(/** @type {Run} */ run) {
  const { config = {}, policy = config.policy, batching = {}, engine } = run.header;
  const { max_num_batched_tokens: budget, chunked_prefill: chunked } = config;
  const limited = budget && batching.token_budget !== false;
  return [
    engine && [`${engine.name} ${engine.version}`, `recorded inside ${engine.name}`],
    [policy, `policy: ${policy}`],
    [`${count(run.numLanes)} [lane|lanes]`, `max_num_seqs = ${run.numLanes}`, "lane"],
    limited && [`budget ${count(budget)}`, `max_num_batched_tokens = ${budget}`, "token budget"],
    limited && [
      chunked ? "chunked" : "whole prompts",
      `enable_chunked_prefill = ${chunked ? "True" : "False"}`,
      "chunk",
    ],
    run.numBlocks && [
      `${count(run.numBlocks)} blocks of ${run.blockSize}`,
      `num_gpu_blocks = ${run.numBlocks}, block_size = ${run.blockSize}`,
      "block",
    ],
    config.prefix_caching && ["prefix cache", "enable_prefix_caching = True", "prefix caching"],
  ].filter(Boolean);
}

/**
 * Explain the policy's chip word by word: what the policy does, and each limit with the glossary's
 * meaning and vLLM's name.
 */
export function showPolicy(/** @type {App} */ app) {
  const { header } = app.run;
  const policy = header.policy || header.config?.policy;
  const terms = app.speech.language?.terms || app.options.terms || {};
  const rows = limitsOf(app.run).map(([words, theirs, term]) => {
    const shows = t(app.options.policies?.[policy] || header.shows || "");
    const means = words === policy ? shows : terms[term]?.means || "";
    return [
      h("dt", {}, h("bdi", {}, words === policy ? words : t(words))),
      h("dd", {}, means, means && " ", words === policy ? "" : h("code", {}, theirs)),
    ];
  });
  const about = () => {
    card.close();
    showFacts(app.root, app.run);
  };
  const card = showCard(
    app.root,
    "What was decided, and within which limits",
    h("dl", { class: "policy-words" }, ...rows.flat()),
    h("p", {}, h("small", {}, t("The names are vLLM's."))),
    newButton({ class: "button", onclick: about }, t("About this run")),
  );
}

export const notesOf = (/** @type {Json} */ { notes }) =>
  Array.isArray(notes) ? notes.filter((note) => typeof note === "string" && note) : [];

export function showFacts(/** @type {Root} */ root, /** @type {Run} */ run) {
  const rows = factsOf(run).flatMap(([name, words]) => [
    h("dt", {}, t(name)),
    h("dd", { class: name === "Note" ? "remark" : null }, h("bdi", {}, words)),
  ]);
  showCard(root, "About this run", h("dl", {}, ...rows));
}
