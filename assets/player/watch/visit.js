// Runs of this visit: what was run since the page was opened, to be found again, shared, compared or removed. They are lost when the page is closed.

import { lanePieces } from "../run/lane_layout.js";
import { OVERRUN, WASTED } from "../run/run.js";

/** A run's lanes as the catalogue has them: lane by lane [first step, end, hue], hue -1 where it was for nobody. */
function lanesOf(run) {
  const lanes = Array.from({ length: run.numLanes }, () => []);
  for (const { lane, from, end, status, stay } of lanePieces(run)) {
    if (stay >= 0) lanes[lane].push([from, end, status & (WASTED | OVERRUN) ? -1 : run.stays[stay].request.hue]);
  }
  return lanes;
}

export class Visit {
  /** @param {App} app */
  constructor(app) {
    this.app = app;
    this.visitor = Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, "0")).join(""); // tells the server who asks
    this.runs = []; // {title, policy, seconds, at, run, entry, spec, lanes, steps}
  }

  /** Keep a run that has ended. */
  add(run, entry, spec, title) {
    const { config } = run.header;
    this.runs.unshift({
      title, run, entry, spec, lanes: lanesOf(run), steps: run.length, at: new Date(), seconds: run.events.at(-1).tEnd - run.events[0].tStart,
      says: [config.policy, `${run.numLanes} lane${run.numLanes === 1 ? "" : "s"}`, config.max_num_batched_tokens && `budget ${config.max_num_batched_tokens}`].filter(Boolean).join(", "),
    });
  }

  open(kept) {
    const { app } = this;
    app.transport.toggle(false);
    app.following = false;
    Object.assign(app, { run: kept.run, entry: kept.entry, replay: null });
    app.entered();
  }

  remove(kept) {
    this.runs = this.runs.filter((other) => other !== kept);
  }

  share(kept) {
    this.open(kept);
    this.app.address.share();
  }

  async compare(kept) {
    this.open(kept);
    await this.app.editor.take(kept.spec);
    this.app.root.dispatchEvent(new CustomEvent("inflight-tab", { detail: { name: "compare", wish: "watched" }, bubbles: true }));
  }
}
