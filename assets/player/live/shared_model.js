// The teacher's choice of the model that everyone shares. The model is loaded first and then put in
// place of the old one, which ends all requests in progress.

import { h, setText } from "../parts/dom.js";
import { ModelField } from "../parts/model_field.js";
import { t } from "../parts/speech.js";

/**
 * A form for the teacher's panel. headers: see `Teacher.headers`.
 * @param {import("../parts/server.js").Server} server @param {() => object} headers
 */
export function sharedModel(server, headers) {
  const says = h("p", { class: "shared-says", role: "status" });
  const button = h("button", { class: "button" }, t("Share this model"));
  const form = h(
    "form",
    { class: "model-field grid spaced", autocomplete: "off" },
    h(
      "label",
      { class: "field", hidden: true },
      h("span", {}, t("Number format")),
      h("select", { name: "dtype" }),
    ),
    button,
    says,
  );
  // folded away, so that what the class sees stays beside the fields that set it
  const summary = h("summary", {}, t("Another model"));
  const folded = h("details", { class: "shared-model" }, summary, form);
  const model = new ModelField(form, {
    call: (name, ...args) => server.call(name, ...args),
    device: () => "cpu",
  });
  server.get("inflight/state").then(
    (state) => {
      model.fill(state);
      if (state.model) model.choose({ model: state.model });
    },
    () => folded.remove(),
  );
  form.addEventListener("submit", async (e) => {
    e.preventDefault();
    if (model.fault) return setText(says, t(model.fault));
    button.disabled = true;
    setText(says, t("Loading the model."));
    try {
      await server.post("inflight/shared-model", model.spec, headers());
      setText(says, t("Shared from now on."));
    } catch (/** @type {Foreign} */ error) {
      setText(says, t(error.message));
    }
    button.disabled = false;
  });
  return folded;
}
