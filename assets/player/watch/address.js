// The address: run, step, selection and view in the hash, so that a link shows the same. In a frame the parent is told.

const PARENT = "https://huggingface.co"; // a Space shows the page in a frame there

export class Address {
  constructor(app) {
    this.app = app;
    window.addEventListener("hashchange", () => this._follow());
  }

  read() {
    const p = new URLSearchParams(location.hash.slice(1));
    const step = p.has("step") ? Number(p.get("step")) : null;
    const theme = p.get("theme");
    if (theme === "dark" || theme === "light") this.app.setTheme(theme);
    if (p.get("axis") === "time") this.app.lanes.clock || this.app.setClock(true);
    if (p.get("present") === "1" && !this.app.presenter) this.app.present(true, true);
    return {
      run: p.get("run"),
      step: Number.isInteger(step) && step >= 0 ? step : null,
      pin: p.get("pin"),
      zoom: p.get("zoom") === "1",
      tab: p.get("tab"),
      spec: p.get("spec"),
    };
  }

  write() {
    const { app } = this;
    if (!app.run || !app.run.length || (document.documentElement.dataset.part || "watch") !== "watch") return; // another part has the address
    const p = new URLSearchParams();
    if (app.entry && app.entry.name) p.set("run", app.entry.name);
    const spec = app.editor && app.editor.spoken;
    if (spec) p.set("spec", spec);
    p.set("step", String(app.run.stepOf(Math.min(app.index, app.run.length - 1))));
    if (app.pinned) p.set("pin", app.pinned.letter);
    if (app.mask.zoom && app.mask.zoom.request) p.set("zoom", "1");
    if (app.layout !== "desk" && app.tab !== "mask") p.set("tab", app.tab);
    if (app.lanes.clock) p.set("axis", "time");
    if (app.presenter) p.set("present", "1");
    if (app._chosenTheme) p.set("theme", app._chosenTheme);
    const hash = `#${p}`;
    if (hash === location.hash) return;
    this._written = hash;
    try {
      history.replaceState(history.state, "", hash);
    } catch {
      return; // a page without an address of its own (srcdoc)
    }
    if (window.parent !== window) window.parent.postMessage({ hash }, PARENT);
  }

  /** Browsers limit how often the address may change. */
  soon() {
    if (this._timer) return;
    this._timer = setTimeout(() => {
      this._timer = 0;
      this.write();
    }, 300);
  }

  _follow() {
    if (location.hash === this._written || new URLSearchParams(location.hash.slice(1)).has("part")) return;
    const wanted = this.read();
    const { app } = this;
    const entry = app.options.catalogue.find((e) => e.name === wanted.run);
    if (entry && entry !== app.entry) app.open(entry, wanted);
    else if (app.run && wanted.step !== null) app.seekStep(wanted.step);
  }

  /** The link that works elsewhere: inside a Space's frame that is the Space's own page. */
  link() {
    this.write();
    const inSpace = window.parent !== window && document.referrer.startsWith(PARENT) && new URL(document.referrer).pathname.startsWith("/spaces/");
    return (inSpace ? document.referrer.split("#")[0] : location.href.split("#")[0]) + location.hash;
  }

  async copy() {
    const link = this.link();
    try {
      await navigator.clipboard.writeText(link);
      this.app.toast("Link copied: it opens this run at this step.");
    } catch {
      window.prompt("Copy this link", link);
    }
  }
}
