// A moment of the race in words: a row for each run, for those who read rather than look.

import { t } from "../parts/speech.js";
import { countUpTo, DECODE, OVERRUN, PREFILL, STALLED, WASTED } from "../run/run.js";

/** @type {[number, string][]} */
const DOING = [[OVERRUN, "overrun"], [PREFILL, "prefill"], [DECODE, "decode"], [WASTED, "padding"], [STALLED, "stalled"]];

/** race: at its `now`. Before its first step and after its last a run holds no lane. */
export function raceTable(race) {
  return {
    caption: t("The race at {moment}", { moment: race.readout() }),
    columns: ["Run", "Step", "Lanes", "Waiting", "Tokens", "Requests done", "In all"],
    rows: race.racers.map((racer) => {
      const { run } = racer;
      const done = race.now >= racer.length - 1e-9;
      const begun = racer.begins[race.clock ? 0 : 1];
      const i = Math.max(0, countUpTo(begun, race.now + 1e-9) - 1);
      const lanes = run.holders[i].map((laneSpan, lane) => {
        const doing = DOING.filter(([bit]) => run.statuses[i][lane] & bit).map(([, word]) => t(word)).join(t(", then "));
        return `${lane}: ${laneSpan < 0 ? t("free") : `${run.laneSpans[laneSpan].request.letter} ${doing || t("idle")}`}`;
      });
      return [
        racer.name, done ? t("done") : String(run.stepOf(i)), done ? "" : lanes.join("; "), done ? "0" : String(run.numWaiting[i]),
        String(racer.tokensAt(race.now)), t(`${racer.landedAt(race.now).length} of ${racer.landings.length}`), racer.inAll(),
      ];
    }),
  };
}
