"""A fork as the page shows it: two runs of the same requests, one limit apart, and where they part.

{"schema", "kind": "fork", "names": [as it was, changed], "step": the first that differs or None, "says": sentences, "runs": two replays,
 "translations": {language: what stands for "names" and "says", and in each of "runs"}}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.measure.divergence import Knob, divergence, knobs
from core.trace.trace import Trace
from visualizer.documents.replay import replay, spoken
from visualizer.words import findings
from visualizer.words.language import elsewhere


def fork_document(before: Trace, after: Trace) -> dict[str, Any]:
    """The document; raises InflightError for runs of different requests. says: where they part, as spans, then what came of it."""
    found = divergence(before, after)
    changed, steps = knobs(before, after), (len(before.events), len(after.events))

    def said() -> dict[str, Any]:
        names = [[findings.limit(k.name, value) for k, value in zip(changed, values, strict=True)] for values in _sides(changed)]
        return {"names": [", ".join(side) for side in names], "says": findings.fork(found, steps)}

    return {
        "schema": 2,
        "kind": "fork",
        **said(),
        "step": found.step if found else None,
        "runs": [replay(before), replay(after)],
        "translations": elsewhere(lambda: {**said(), "runs": [spoken(before), spoken(after)]}),
    }


def _sides(changed: Sequence[Knob]) -> list[list[Any]]:
    """The values of the limits before, and after."""
    return [[k.before for k in changed], [k.after for k in changed]]
