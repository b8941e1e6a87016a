"""The attention mask of a pass, from its segments: labels and rows of booleans, without tensors.

A query at position p of a request may attend to the keys at positions p - window + 1 … p of the
same request, cached or new. Pads attend to nothing and nothing attends to them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from core.errors import InflightError, shown
from core.trace.events import FinishedRow, Pass, Segment

PAD = "<pad>"
Order = Literal["request", "cached-new"]
_WRITTEN = 60  # the most keys or queries with which a mask is written out


class Position(NamedTuple):
    """A query or key: its request, its position there (None for a pad) and its token's text."""

    request: str
    position: int | None
    text: str


@dataclass(frozen=True, repr=False)
class Mask:
    """Who may attend to whom in a pass.

    allowed: a row of booleans, one for each key, for each query. queries: in packed order, a padded
    pass row by row, pads included.
    """

    queries: tuple[Position, ...]
    keys: tuple[Position, ...]
    allowed: tuple[tuple[bool, ...], ...]

    def __repr__(self) -> str:
        """Its size, and below that a small mask as a picture."""
        held = (
            f"<Mask of {len(self.queries):,} queries by {len(self.keys):,} keys:"
            f" {self.num_allowed:,} of {self.num_cells:,} pairs may attend>"
        )
        is_small = max(len(self.queries), len(self.keys)) <= _WRITTEN
        rows = self.allowed if is_small else ()
        return "\n".join([held, *("".join(".#"[cell] for cell in row) for row in rows)])

    @property
    def num_cells(self) -> int:
        """Queries × keys."""
        return len(self.queries) * len(self.keys)

    @property
    def num_allowed(self) -> int:
        """Pairs that may attend."""
        return sum(sum(row) for row in self.allowed)


def rows_of(forward: Pass, segments: Sequence[Segment]) -> list[Segment | FinishedRow]:
    """The segments of a packed pass in its own order, or the rows of a padded one by lane."""
    if not forward.finished_rows:
        return [*segments]
    return sorted([*segments, *forward.finished_rows], key=lambda row: row.lane)


def mask_of(
    forward: Pass,
    segments: Sequence[Segment],
    text: Callable[[str, int], str],
    window: int | None = None,
    order: Order = "request",
    leak: bool = False,
) -> Mask:
    """The mask of one pass.

    segments: those of this pass. text: a token's text by request and position. window: the sliding
    window, if the layer has one. order: keys grouped by request ("request": cached, then new), or
    all cached keys and then all new ones ("cached-new"). leak: a query may also attend to all keys
    of the next request in the pass; after the last one comes the first. Raises InflightError for
    another order.
    """
    if not isinstance(order, str) or order not in get_args(Order):
        raise InflightError(
            f"Keys have no order {shown(order)}; they are ordered by"
            f" {' or '.join(map(repr, get_args(Order)))}."
        )
    queries: list[Position] = []
    for row in rows_of(forward, segments):
        length = row.length if isinstance(row, Segment) else 0
        if forward.layout == "padded":
            queries += [Position(row.request, None, PAD)] * (forward.width - length)
        if isinstance(row, Segment):
            queries += [
                Position(row.request, p, text(row.request, p)) for p in range(row.start, row.kv_len)
            ]
    numbers = {s.request: i for i, s in enumerate(segments)}
    if order == "request":
        stretches = [(n, 0, s.kv_len) for n, s in enumerate(segments)]
    else:
        stretches = [(n, 0, s.start) for n, s in enumerate(segments)]
        stretches += [(n, s.start, s.kv_len) for n, s in enumerate(segments)]
    keys = [
        Position(segments[n].request, p, text(segments[n].request, p))
        for n, first, end in stretches
        for p in range(first, end)
    ]

    def cells_of(query: Position) -> tuple[bool, ...]:
        if query.position is None:
            return (False,) * len(keys)
        own, last, cells = numbers[query.request], query.position, []
        lowest = 0 if window is None else last - window + 1
        for owner, first, end in stretches:
            start, stop = (lowest, last + 1) if owner == own else (0, 0)
            if leak and len(segments) > 1 and owner == (own + 1) % len(segments):
                start, stop = first, end
            start = min(max(start, first), end)
            stop = max(start, min(stop, end))
            cells += [False] * (start - first) + [True] * (stop - start) + [False] * (end - stop)
        return tuple(cells)

    return Mask(tuple(queries), tuple(keys), tuple(map(cells_of, queries)))
