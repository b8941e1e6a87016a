"""A fork as the page shows it: two runs of the same requests, one limit apart, and where they part.

{"schema", "kind": "fork", "names": [as it was, changed], "step": the first that differs or None, "says": sentences, "runs": two replays}
"""

from __future__ import annotations

from typing import Any

from core.measure.divergence import divergence, knobs
from core.trace.trace import Trace
from visualizer.documents.replay import replay
from visualizer.words import findings


def fork_document(before: Trace, after: Trace) -> dict[str, Any]:
    """The document; raises InflightError for runs of different requests. says: where they part, as spans, then what came of it."""
    found = divergence(before, after)
    changed = knobs(before, after)
    return {
        "schema": 2,
        "kind": "fork",
        "names": [
            ", ".join(k.of(value) for k, value in zip(changed, values, strict=True))
            for values in zip(*((k.before, k.after) for k in changed), strict=True)
        ],
        "step": found.step if found else None,
        "says": findings.fork(found, (len(before.events), len(after.events))),
        "runs": [replay(before), replay(after)],
    }
