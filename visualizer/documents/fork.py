"""A fork as the page shows it: two runs of the same requests, one limit apart, that race step by step, and where they part."""

from __future__ import annotations

from typing import Any

from core.measure.divergence import divergence
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.charts.contenders import hues
from visualizer.documents.comparison import race_replay
from visualizer.words import findings


def fork_document(before: Trace, after: Trace) -> dict[str, Any]:
    """The document of a fork; see `visualizer.documents.comparison` for that of a comparison."""
    found = divergence(before, after)
    names_of = letters(before)
    knob = found.knobs[0] if found and found.knobs else None
    names = [knob.of(knob.before), knob.of(knob.after)] if knob else ["as it was", "changed"]
    says = findings.fork(found, (len(before.events), len(after.events)))
    if found is not None:
        says[0] = found.sentence(lambda r: names_of.get(r, r))
    return {
        "schema": 1,
        "kind": "fork",
        "name": before.header["workload"]["name"],
        "title": before.header["workload"]["name"],
        "source": "live",
        "names": names,
        "hues": hues(names),
        "about": {names[0]: "as it was", names[1]: "one limit changed"},
        "fork": found.to_json() if found else None,
        "says": {"fork": says},
        "runs": {name: race_replay(trace) for name, trace in zip(names, (before, after), strict=True)},
    }
