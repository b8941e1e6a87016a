// Pointing at requests: hover lights one everywhere, a click or tap pins it. On a canvas its view says what lies under the pointer, elsewhere data-request does.

import { Glossary } from "../parts/glossary.js";

/** view: with `surface` and `hit(x, y)` → {request, lines, stays} or null. seeks: a click on it is not for pinning. */
export function pointCanvas(app, view, seeks = false) {
  const { canvas } = view.surface;
  const find = (e) => {
    const r = canvas.getBoundingClientRect();
    return app.run ? view.hit(e.clientX - r.left, e.clientY - r.top) : null;
  };
  canvas.addEventListener("pointermove", (e) => {
    if (e.pointerType === "touch" || view.dragging) return;
    app.hover(find(e), e.clientX, e.clientY);
  });
  canvas.addEventListener("pointerleave", () => app.hover(null));
  let down = null;
  canvas.addEventListener("pointerdown", (e) => { down = [e.clientX, e.clientY]; });
  canvas.addEventListener("click", (e) => {
    if (seeks || (down && Math.hypot(e.clientX - down[0], e.clientY - down[1]) > 5)) return; // a drag
    const found = find(e);
    if (found && found.stays) return;
    if (e.pointerType === "touch" || e.pointerType === "pen") app.hover(found, e.clientX, e.clientY);
    app.pin(found ? found.request : null);
  });
}

export function pointElements(app) {
  if (app.options.terms) new Glossary(() => app.speech.language?.terms || app.options.terms);
  const of = (e) => {
    const el = e.target.closest && e.target.closest("[data-request]");
    return el && app.run ? app.run.requests[Number(el.dataset.request)] : null;
  };
  app.root.addEventListener("pointerover", (e) => {
    if (e.pointerType === "touch" || e.target.tagName === "CANVAS") return;
    const request = of(e);
    if (request !== app.hovered) app.hover(request && { request });
  });
  app.root.addEventListener("click", (e) => {
    const request = of(e);
    if (request) app.pin(request);
  });
}
