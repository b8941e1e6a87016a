"""The data-parallel ranks of one engine: a trace each, and where each lies on one clock. Knows traces, and no recorder and no page.

Each rank's file is a trace like any other; it says in its header which rank it is and what the clocks showed at its time 0. That is all it
takes to put files together, so no format holds several of them: what is sent, checked and kept is a trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from core.errors import InvalidTrace
from core.trace.header import ClockFacts, EngineFacts
from core.trace.trace import Trace

_MOST = 2**16  # ranks
Alignment = Literal["machine", "wall", "second", "first step"]
"""What puts ranks on one clock, the best that all have: the monotonic clock of their machine, the wall's, the wall's to the second, nothing."""


@dataclass(frozen=True)
class Rank:
    """One of several. offset: seconds on the common clock at which its trace's time 0 lies."""

    number: int
    trace: Trace
    offset: float

    @property
    def span(self) -> tuple[float, float]:
        """Its first step's start and its last one's end on the common clock, in seconds."""
        events = self.trace.events
        return (self.offset + events[0].t_start, self.offset + events[-1].t_end) if events else (self.offset, self.offset)


@dataclass(frozen=True)
class Ranks:
    """The ranks at hand, by number, out of `count`. The common clock begins with the earliest of them.

    faults: a sentence for each fault that does not keep them from being shown.
    """

    ranks: tuple[Rank, ...]
    count: int
    alignment: Alignment
    faults: tuple[str, ...]

    @classmethod
    def of(cls, traces: Iterable[tuple[str, Trace]], refused: Iterable[str] = ()) -> Ranks:
        """traces: with the names of their files. refused: a sentence for each file that could not be opened. Raises InvalidTrace for files that
        are not of one engine.
        """
        places = sorted((_Place.of(name, trace) for name, trace in traces), key=lambda place: place.rank)
        if not places:
            raise InvalidTrace("there is no recording to open.")
        _refuse_strangers(places)
        alignment, offsets = _aligned(places)
        ranks = tuple(Rank(p.rank, p.trace, offset) for p, offset in zip(places, offsets, strict=True))
        count = max(max(p.ranks, p.rank + 1) for p in places)  # of a dense model's ranks none knows how many there are
        return cls(ranks, count, alignment, (*refused, *_faults(ranks, places, count, alignment)))


@dataclass(frozen=True)
class _Place:
    """What a trace says of its place among others."""

    name: str
    trace: Trace
    engine: EngineFacts
    rank: int
    ranks: int
    clock: ClockFacts

    @classmethod
    def of(cls, name: str, trace: Trace) -> _Place:
        engine = trace.header.engine
        if engine is None:
            raise InvalidTrace(f"{name} is a run of this engine, not one of another engine's ranks: open it alone.")
        rank, ranks, clock = engine.rank or 0, engine.ranks or 1, engine.clock or ClockFacts()
        if not (0 <= rank < _MOST and 0 < ranks <= _MOST):
            raise InvalidTrace(f"{name} does not say which rank it is of.")
        if not all(0 <= ns < 2**63 for ns in (clock.monotonic_ns or 0, clock.wall_ns or 0)):
            raise InvalidTrace(f"{name} names a time that no clock shows.")
        return cls(name, trace, engine, rank, ranks, clock)


def _refuse_strangers(places: list[_Place]) -> None:
    first = places[0]
    for before, place in pairwise(places):
        if before.rank == place.rank:
            raise InvalidTrace(f"{before.name} and {place.name} are two recordings of rank {place.rank}; open one at a time.")
        for fact, differs in (
            ("name", first.engine.name != place.engine.name),
            ("model", first.trace.header.model.name != place.trace.header.model.name),
        ):
            if differs:
                raise InvalidTrace(f"{first.name} and {place.name} are recordings of two engines: their {fact} differs.")


def _aligned(places: list[_Place]) -> tuple[Alignment, list[float]]:
    """How, and the offset of each: the first clock that all of them have."""
    clocks = [place.clock for place in places]
    monotonic = [clock.monotonic_ns for clock in clocks if clock.monotonic_ns is not None and clock.boot]
    if len(monotonic) == len(clocks) and len({clock.boot for clock in clocks}) == 1:
        return "machine", _after_the_first(monotonic)
    wall = [clock.wall_ns for clock in clocks if clock.wall_ns is not None]
    if len(wall) == len(clocks):
        return "second" if any(clock.whole_seconds for clock in clocks) else "wall", _after_the_first(wall)
    begins = [place.trace.events[0].t_start if place.trace.events else 0.0 for place in places]
    return "first step", [max(begins) - begin for begin in begins]


def _after_the_first(times: list[int]) -> list[float]:
    return [(t - min(times)) / 1e9 for t in times]


def _faults(ranks: tuple[Rank, ...], places: list[_Place], count: int, alignment: Alignment) -> list[str]:
    absent = sorted(set(range(count)) - {rank.number for rank in ranks})
    faults = [f"Of {count} ranks, {_named(absent)} not among these files."] if absent else []
    first = places[0]
    faults += [
        f"Rank {place.rank} is of {place.engine}, rank {first.rank} of {first.engine.version}."
        for place in places[1:]
        if place.engine.version != first.engine.version
    ]
    if alignment != "first step":
        begins = max(ranks, key=lambda rank: rank.span[0])
        ends = min(ranks, key=lambda rank: rank.span[1])
        if ends.span[1] < begins.span[0]:
            faults.append(
                f"Rank {ends.number} had ended {begins.span[0] - ends.span[1]:.1f} s before rank {begins.number} began: "
                "these may be two runs."
            )
    return faults + [f"Rank {place.rank}: {note}" for place in places for note in place.trace.header.notes]


def _named(ranks: list[int]) -> str:
    if len(ranks) > 8:
        return f"{len(ranks):,} are"
    return f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"
