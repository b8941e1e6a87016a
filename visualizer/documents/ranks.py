"""Ranks of one engine as the player opens them: one document with the replay of each, where each lies on the common clock, and what is to be said.

    {"ranks": [{"rank", "offset": seconds, "id", "replay"}], "count", "says": [sentence, …]}

A letter stands for one request of all ranks; in its rank's own replay it may be another. id: of the rank's own run, where that is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.trace.phrases import ALIGNMENTS, letter
from core.trace.ranks import Ranks
from visualizer.documents.replay import captions_in, replay


def document(ranks: Ranks, ids: Sequence[str] = (), source: str | None = None) -> dict[str, Any]:
    """The document. ids: of the ranks' own runs, in their order. source: see `replay`."""
    letters = _letters(ranks)
    return {
        "ranks": [
            {
                "rank": rank.number,
                "offset": rank.offset,
                "id": ids[n] if ids else None,
                "replay": replay(rank.trace, source) | {"letters": letters[rank.number]},
            }
            for n, rank in enumerate(ranks.ranks)
        ],
        "count": ranks.count,
        "says": [ALIGNMENTS[ranks.alignment], *ranks.faults],
    }


def ranks_captions_in(ranks: Ranks, language: str) -> dict[str, Any]:
    """The sentences about each in another language, which replace the replays' own: {"ranks": [see `told`]}."""
    return {"ranks": [captions_in(rank.trace, language) for rank in ranks.ranks]}


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
