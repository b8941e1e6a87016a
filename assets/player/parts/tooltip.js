// The words beside the pointer. Never takes the focus, never leaves the view.

import { clamp, h } from "./dom.js";
import { spans } from "./chips.js";
import { told } from "./speech.js";

export class Tooltip {
  constructor(el, app) {
    this.el = el;
    this.app = app;
  }

  show(lines, x, y) {
    const { el } = this;
    el.replaceChildren(...lines.map((line) => h("div", {}, ...spans(this.app, told(line)))));
    el.hidden = false;
    const box = this.app.root.getBoundingClientRect();
    const [w, hh] = [el.offsetWidth, el.offsetHeight];
    const left = clamp(x - box.left + 14, 4, Math.max(4, box.width - w - 4));
    let top = y - box.top + 16;
    if (top + hh > box.height - 4) top = y - box.top - hh - 12;
    el.style.transform = `translate(${left}px, ${Math.max(4, top)}px)`;
  }

  hide() {
    this.el.hidden = true;
  }
}
