"""How long the passes of a run took, by their size, computed from the events alone."""

from collections.abc import Iterable
from typing import NamedTuple

from core.trace.events import Pass, StepEvent

_LIKE = 2  # passes are of similar size if neither has more than this many times the other's rows


class PassTime(NamedTuple):
    """The time of one pass. start, end: in microseconds. prompts: how many requests' prompts it
    computes. like: how long its decodes alone take in this run; None if the pass does not have both
    prompts and decodes, or if the run has no comparable pass of decodes alone.
    """

    start: int
    end: int
    prompts: int
    like: int | None


def microseconds(seconds: float) -> int:
    """A time in seconds as a whole number of microseconds."""
    return round(seconds * 1e6)


def median_low(ordered: list[int]) -> int:
    """The median of sorted numbers; of two in the middle, the smaller."""
    return ordered[(len(ordered) - 1) // 2]


class PassSizes:
    """Durations of passes by size, which is the number of rows for a pass of decodes alone, and of
    tokens for a pass with a prompt.
    """

    def __init__(self, events: Iterable[StepEvent]) -> None:
        taken: dict[tuple[bool, int], list[int]] = {}
        for event in events:
            for j, forward in enumerate(event.passes):
                size = _size(j, event)
                if size[1]:
                    taken.setdefault(size, []).append(_duration(forward))
        self._taken = {size: sorted(found) for size, found in taken.items()}
        self._rows = sorted(rows for mixed, rows in taken if not mixed)
        self._like: dict[int, int | None] = {}

    def time_of(self, forward: Pass, j: int, event: StepEvent) -> PassTime:
        """The times of pass j of an event."""
        phases = [s.phase for s in event.segments if s.pass_index == j]
        prompts = phases.count("prefill")
        decodes = len(phases) - prompts
        like = self.like(decodes + len(forward.finished_rows)) if prompts and decodes else None
        return PassTime(microseconds(forward.t_start), microseconds(forward.t_end), prompts, like)

    def like(self, rows: int) -> int | None:
        """How long this run's passes of as many decodes without a prompt took: their median.
        Without such passes, the median for the nearest number of decodes (the larger of two)
        between half and twice as many; else None.
        """
        if rows not in self._like:
            near = [n for n in self._rows if rows <= n * _LIKE and n <= rows * _LIKE]
            nearest = min(near, key=lambda n: (abs(n - rows), -n), default=None)
            self._like[rows] = None if nearest is None else median_low(self._taken[False, nearest])
        return self._like[rows]

    def times(self, j: int, event: StepEvent) -> float | None:
        """How many times as long pass j took as others of its size; None without others."""
        others = self._others(j, event)
        return _duration(event.passes[j]) / others if others else None

    def _others(self, j: int, event: StepEvent) -> int | None:
        """The median duration of the other passes of pass j's size; None without others."""
        mixed, size = _size(j, event)
        others = [
            t
            for (m, n), found in self._taken.items()
            if m == mixed and size <= n * _LIKE and n <= size * _LIKE
            for t in found
        ]
        if size:
            others.remove(_duration(event.passes[j]))
        return median_low(sorted(others)) if others else None


def _duration(forward: Pass) -> int:
    return microseconds(forward.t_end) - microseconds(forward.t_start)


def _size(j: int, event: StepEvent) -> tuple[bool, int]:
    """Whether pass j computes a prompt, and its size: tokens if it does, otherwise rows."""
    own = [s for s in event.segments if s.pass_index == j]
    mixed = any(s.phase == "prefill" for s in own)
    return mixed, (
        sum(s.length for s in own) if mixed else len(own) + len(event.passes[j].finished_rows)
    )
