"""Who may attend to whom, derived from the segments of a pass: labels and a boolean matrix. Knows numbers, not tensors or text.

A query at position p of a request may attend to the keys at positions p - window + 1 … p of the same request, cached or new. Pads
attend to nothing and nothing attends to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from core.trace.events import FinishedRow, Pass, Segment

PAD = "<pad>"
Order = Literal["request", "cached-new"]


class Position(NamedTuple):
    """A query or key: position in its request (None for a pad) and its token's text."""

    request: str
    position: int | None
    text: str


@dataclass(frozen=True)
class Mask:
    """allowed: bool `[len(queries), len(keys)]`; queries in packed order, a padded pass row by row, pads included."""

    queries: tuple[Position, ...]
    keys: tuple[Position, ...]
    allowed: np.ndarray


def rows_of(forward: Pass, segments: Sequence[Segment]) -> list[Segment | FinishedRow]:
    """The segments of a packed pass in its own order (lane order here; other engines have theirs), the rows of a padded one by lane."""
    return sorted([*segments, *forward.finished_rows], key=lambda row: row.lane) if forward.finished_rows else [*segments]


def mask_of(
    forward: Pass,
    segments: Sequence[Segment],
    text: Callable[[str, int], str],
    window: int | None = None,
    order: Order = "request",
    leak: bool = False,
) -> Mask:
    """The mask of one pass.

    segments: those of this pass. text: a token's text by request and position. window: the sliding window, if the layer has one.
    order: keys grouped by request ("request": cached, then new), or all cached keys and then all new ones ("cached-new").
    leak: a query may also attend to all keys of the next request in the pass; after the last one comes the first.
    """
    queries: list[Position] = []
    for row in rows_of(forward, segments):
        length = row.length if isinstance(row, Segment) else 0
        if forward.layout == "padded":
            queries += [Position(row.request, None, PAD)] * (forward.width - length)
        if isinstance(row, Segment):
            queries += [Position(row.request, p, text(row.request, p)) for p in range(row.start, row.kv_len)]
    if order == "request":
        spans = [(s, 0, s.kv_len) for s in segments]
    else:
        spans = [(s, 0, s.start) for s in segments] + [(s, s.start, s.kv_len) for s in segments]
    keys = [Position(s.request, p, text(s.request, p)) for s, first, end in spans for p in range(first, end)]

    numbers = {s.request: i for i, s in enumerate(segments)}
    q = np.array([(-1, 0) if p.position is None else (numbers[p.request], p.position) for p in queries]).reshape(-1, 2)
    k = np.array([(numbers[p.request], p.position) for p in keys]).reshape(-1, 2)
    allowed = (q[:, None, 0] == k[None, :, 0]) & (k[None, :, 1] <= q[:, None, 1])
    if window is not None:
        allowed &= q[:, None, 1] - k[None, :, 1] < window
    if leak and len(segments) > 1:
        allowed |= (q[:, None, 0] >= 0) & ((q[:, None, 0] + 1) % len(segments) == k[None, :, 0])
    return Mask(tuple(queries), tuple(keys), allowed)
