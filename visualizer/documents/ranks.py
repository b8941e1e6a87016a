"""Ranks of one engine as the player opens them: which there are, where each lies on the common clock, what is to be said. Each is a run
of its own, by its address.

    {"ranks": [{"rank", "offset": seconds, "letters": {request: letter}, "id", "url"}], "count", "says": [sentence, …]}

A letter stands for one request of all ranks; in its rank's own file it may be another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from core.trace.phrases import ALIGNMENTS, letter
from core.trace.ranks import Ranks
from core.trace.trace import Trace


def opened(traces: Sequence[tuple[str, Trace]], put: Callable[[Trace], dict[str, Any]]) -> dict[str, Any]:
    """The document of files that were opened together, by name; a run that is no rank is the only one of one. put: keeps a run, `{"id", "url"}`.

    Raises InvalidTrace where they are not of one engine.
    """
    if len(traces) == 1 and traces[0][1].header.engine is None:
        return {"ranks": [put(traces[0][1])], "count": 1, "says": []}
    ranks = Ranks.of(traces)
    letters = _letters(ranks)
    return {
        "ranks": [
            {"rank": rank.number, "offset": rank.offset, "letters": letters[rank.number], **put(rank.trace)}
            for rank in ranks.ranks
        ],
        "count": ranks.count,
        "says": [ALIGNMENTS[ranks.alignment], *ranks.faults],
    }


def _letters(ranks: Ranks) -> dict[int, dict[str, str]]:
    """By rank: requests have letters in the order in which they arrived on the common clock."""
    arrived = [
        (rank.offset + arrived.t, rank.number, arrived.request)
        for rank in ranks.ranks
        for event in rank.trace.events
        for arrived in event.arrived
    ]
    letters: dict[int, dict[str, str]] = {rank.number: {} for rank in ranks.ranks}
    for n, (_, number, request) in enumerate(sorted(arrived)):
        letters[number][request] = letter(n)
    return letters
