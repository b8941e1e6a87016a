// The page's address in large type, for others to join.

import { bareCard, closing } from "../parts/floating.js";
import { h } from "../parts/dom.js";
import { t } from "../parts/speech.js";

/** The page's address and its QR code, which is null on a page that only this machine can open. */
export async function addressOf(/** @type {Live} */ live) {
  const { address, qr } = await live.server.get("inflight/class");
  return {
    page: h("p", { class: "qr-address" }, h("bdi", {}, address.replace(/^http:\/\/|\/?#.*/g, ""))),
    code: qr
      ? h("img", {
          src: `data:image/svg+xml,${encodeURIComponent(qr.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"'))}`,
          alt: t("QR code of the address below"),
        })
      : null,
  };
}

/** Show both; without a code, show how to open the page to others in the room. */
export async function showAddress(/** @type {Live} */ live) {
  const { page, code } = await addressOf(live);
  const dialog = bareCard(live.root, "Join this batch", "qr-card");
  const said = code
    ? [code, page, h("p", {}, t("Open it, choose Live, add a prompt."))]
    : [
        page,
        h(
          "p",
          {},
          t("Only this machine can open this address. To let the room in, start the page with:"),
        ),
        h("p", {}, h("code", {}, "python app.py --host 0.0.0.0")),
      ];
  dialog.replaceChildren(...said, closing());
  dialog.showModal();
}
