// Reads a workload from a file: one that the page saved, or one that a service published.

import { setText } from "../parts/dom.js";
import { savedIn } from "./address.js";
import { takes } from "./what_if.js";

/**
 * Fill the form with the chosen file. @param {import("./editor.js").Editor} editor @param
 * {HTMLInputElement} input
 */
export async function loadWorkload(editor, input) {
  const [file] = input.files || [];
  input.value = "";
  if (!file) return;
  const most = editor.limits.upload_bytes;
  const limit = `${Math.round(most / 2 ** 20)} MiB`;
  if (file.size > most)
    return editor.frame.say(
      `${file.name} has more than ${limit}, and this page opens no larger one.`,
      true,
    );
  const text = await file.text();
  const data = savedIn(text);
  if (!data) return published(editor, text, file.name);
  const now = editor.spec();
  edit(editor, {
    workload: data.workload || data,
    config: { ...now.config, ...(data.config || {}) },
    model: data.model || now.model,
    device: data.device || now.device,
    dtype: data.dtype || now.dtype,
  });
}

/**
 * Read a service's published workload, scaled to the form's model, with a sentence about the
 * scaling. @param {import("./editor.js").Editor} editor @param {string} text @param {string} name
 */
async function published(editor, text, name) {
  editor.frame.busy(true);
  editor.frame.say(`Reading ${name}.`);
  const answer = await editor.app.engines
    .send(`inflight/datasets?${new URLSearchParams({ name, model: editor.model.value })}`, text)
    .catch((error) => ({ error: `The engine cannot be reached: ${error.message}.` }));
  editor.frame.busy(false);
  if (!answer || answer.error)
    return editor.frame.say(answer ? answer.error : "Nothing came back.", true);
  const { workload, block_size: shared, says } = answer;
  const now = editor.spec();
  const config =
    shared && takes(editor.state.policies, now.config.policy, "prefix_caching")
      ? { ...now.config, prefix_caching: true, block_size: shared }
      : now.config;
  edit(editor, { ...now, workload, config }, `${workload.name}: ${says.join(" ")}`);
}

/** @param {import("./editor.js").Editor} editor @param {Json} spec */
function edit(editor, spec, says = "") {
  editor.setAside(() => editor.edit(spec));
  editor.field("preset").selectedIndex = -1; // neither a preset nor the run on screen
  setText(editor.$(".preset-shows"), says);
}
