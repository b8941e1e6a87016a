// What one takes away from the Live tab: its address as a QR code for the projector, and the session as a trace.

import { bareCard } from "../parts/floating.js";
import { download, h } from "../parts/dom.js";
import { t } from "../parts/speech.js";

/** The address in large type, for everybody to come. */
export async function showAddress(live) {
  const { address, qr } = await live.server.get("inflight/class");
  const dialog = bareCard(live.root, "Join this batch", "qr-card");
  dialog.replaceChildren(
    h("img", { src: `data:image/svg+xml,${encodeURIComponent(qr.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"'))}`, alt: t("QR code of the address below") }),
    h("p", { class: "qr-address" }, h("bdi", {}, address.replace(/#.*/, ""))), h("p", {}, t("Open it, choose Live, add a prompt.")),
    h("form", { method: "dialog" }, h("button", { class: "button primary" }, t("Close"))));
  dialog.showModal();
}

/** The run so far as a trace: it opens in the Watch tab, and `check` decides it again. */
export async function saveSession(live) {
  const answer = await live.server.fetched("serve/session", live.teacher.isOn ? { "X-Teacher-Token": live.teacher.token } : {});
  download("inflight-session.jsonl", await answer.blob());
}
