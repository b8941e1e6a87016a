"""The data-parallel ranks of one engine: a trace for each, placed on a common clock.

Each rank's file is a trace like any other; its header says which rank it is, and what the clocks
showed at its time 0. That is enough to combine files, so no file format holds several ranks:
whatever is sent, checked or kept is a single trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from core.errors import InvalidTrace
from core.trace.header import ClockFacts, EngineFacts, Header
from core.trace.messages import english
from core.trace.trace import Trace

_MOST = 2**16  # ranks
_SHARED = ("dtype", "tensor_parallel", "kv_groups")  # besides limits, model and engine
_SET = 0.5  # seconds by which two clocks of a machine may come apart while an engine starts
Alignment = Literal["machine", "wall", "second", "first step"]
"""How ranks are aligned, by the best clock that all of them recorded: the monotonic clock of their
machine, the wall clock, the wall clock to the second, or none.
"""


@dataclass(frozen=True)
class Rank:
    """One of several ranks. offset: its trace's time 0 on the common clock, in seconds."""

    number: int
    trace: Trace
    offset: float

    @property
    def span(self) -> tuple[float, float]:
        """Its first step's start and its last one's end on the common clock, in seconds."""
        if not (events := self.trace.events):
            return self.offset, self.offset
        return self.offset + events[0].t_start, self.offset + events[-1].t_end


@dataclass(frozen=True)
class Ranks:
    """The ranks that were opened, by number, out of `count`. The common clock begins with the
    earliest of them.

    faults: a sentence for each fault in spite of which they can be shown.
    """

    ranks: tuple[Rank, ...]
    count: int
    alignment: Alignment
    faults: tuple[str, ...]

    @classmethod
    def of(cls, traces: Iterable[tuple[str, Trace]], refused: Iterable[str] = ()) -> Ranks:
        """traces: with the names of their files. refused: a sentence for each file that could not
        be opened. Raises InvalidTrace for files that are not of one engine.
        """
        named = [
            (RankPlace(name, t.header, t.events[0].t_start if t.events else 0.0), t)
            for name, t in traces
        ]
        placement = Placement.of(place for place, _ in named)
        by_rank = {place.rank: trace for place, trace in named}
        ranks = tuple(
            Rank(place.rank, by_rank[place.rank], offset)
            for place, offset in zip(placement.places, placement.offsets, strict=True)
        )
        faults = (
            *refused,
            *placement.faults,
            *_strangers(ranks, placement.alignment),
            *(f"Rank {r.number}: {note}" for r in ranks for note in r.trace.header.notes),
        )
        return cls(ranks, placement.count, placement.alignment, faults)


@dataclass(frozen=True)
class RankPlace:
    """What a recording says of its place among the ranks. name: of its file. begin: when its first
    step starts, in seconds of its own time.

    Raises InvalidTrace if it cannot be one of several ranks.
    """

    name: str
    header: Header
    begin: float

    def __post_init__(self) -> None:
        if self.header.engine is None:
            raise InvalidTrace(
                f"{self.name} is a run of this engine, not one of another engine's ranks: open it"
                " alone."
            )
        if not (0 <= self.rank < _MOST and 0 < (self.engine.ranks or 1) <= _MOST):
            raise InvalidTrace(f"{self.name} does not say which rank it is of.")
        if not all(
            0 <= ns < 2**63 for ns in (self.clock.monotonic_ns or 0, self.clock.wall_ns or 0)
        ):
            raise InvalidTrace(f"{self.name} names a time that no clock shows.")

    @property
    def engine(self) -> EngineFacts:
        """The engine that was recorded."""
        assert self.header.engine is not None
        return self.header.engine

    @property
    def rank(self) -> int:
        """Its number, from 0."""
        return self.engine.rank or 0

    @property
    def clock(self) -> ClockFacts:
        """The recorded readings of its clocks."""
        return self.engine.clock or ClockFacts()


@dataclass(frozen=True)
class Placement:
    """The places of recordings of one engine's ranks on a common clock, which begins with the
    earliest of them.

    places: by rank. offsets: the time on that clock, in seconds, of each one's time 0.
    """

    places: tuple[RankPlace, ...]
    offsets: tuple[float, ...]
    alignment: Alignment

    @classmethod
    def of(cls, places: Iterable[RankPlace]) -> Placement:
        """Raises InvalidTrace for recordings that are not of one engine."""
        by_rank = sorted(places, key=lambda place: place.rank)
        _refuse_strangers(by_rank)
        return cls.across(by_rank)

    @classmethod
    def across(cls, places: Iterable[RankPlace]) -> Placement:
        """The placement of recordings of several engines, which have nothing but the time in
        common, in the order given. Raises InvalidTrace if there are none.
        """
        given = tuple(places)
        if not given:
            raise InvalidTrace("there is no recording to open.")
        alignment, offsets = _aligned(given)
        return cls(given, tuple(offsets), alignment)

    @property
    def count(self) -> int:
        """The number of ranks as far as known, including those that are not opened."""
        # ranks of a dense model do not know how many there are
        return max(max(p.engine.ranks or 1, p.rank + 1) for p in self.places)

    @property
    def faults(self) -> Iterator[str]:
        """A sentence for each fault: ranks that are missing, and what two of them disagree on."""
        if absent := sorted(set(range(self.count)) - {place.rank for place in self.places}):
            yield f"Of {self.count} ranks, {_named(absent)} not among these files."
        first, shared = self.places[0], _of_engine(self.places[0].header)
        for place, offset in zip(self.places, self.offsets, strict=True):
            n, said = place.rank, place.engine.ranks or 0
            if place.engine.version != first.engine.version:
                yield f"Rank {n} is of {place.engine}, rank {first.rank} of {first.engine}."
            if place.rank + 1 < said < self.count:
                yield f"Rank {n} is said to be one of {said}, and there are {self.count}."
            mine = _of_engine(place.header)
            if unlike := [name for name in shared | mine if shared.get(name) != mine.get(name)]:
                other = f"another “{unlike[0]}” than rank {first.rank}"
                yield f"Rank {n} has {other}: these may be ranks of two engines."
            wall, base = place.clock.wall_ns or 0, first.clock.wall_ns or 0
            apart = abs((wall - base) / 1e9 - offset + self.offsets[0])
            if self.alignment == "machine" and wall and base and apart > _SET:
                clocks = f"The clocks of rank {n} and rank {first.rank} differ by {apart:.1f} s"
                yield f"{clocks}: they were set, or are not of one machine."


def _of_engine(header: Header) -> dict[str, Any]:
    """The facts of a header that all ranks of one engine share; they may run with other pools."""
    assert header.engine is not None
    facts: dict[str, Any] = {of: getattr(header, of) for of in _SHARED}
    facts |= {**header.config.to_json(), **header.model.to_json(), **header.engine.to_json()}
    own = ("num_blocks", "version", "rank", "ranks", "clock")
    return {name: value for name, value in facts.items() if name not in own}


def _refuse_strangers(places: Sequence[RankPlace]) -> None:
    for before, place in pairwise(places):
        if before.rank == place.rank:
            raise InvalidTrace(
                f"{before.name} and {place.name} are two recordings of rank {place.rank}; open one"
                " at a time."
            )
        for fact, differs in (
            ("name", places[0].engine.name != place.engine.name),
            ("model", places[0].header.model.name != place.header.model.name),
        ):
            if differs:
                raise InvalidTrace(
                    f"{places[0].name} and {place.name} are recordings of two engines: their {fact}"
                    " differs."
                )


def _aligned(places: Sequence[RankPlace]) -> tuple[Alignment, list[float]]:
    """The alignment and the offset of each, by the best clock that all of them have."""
    clocks = [place.clock for place in places]
    monotonic = [
        clock.monotonic_ns for clock in clocks if clock.monotonic_ns is not None and clock.boot
    ]
    if len(monotonic) == len(clocks) and len({clock.boot for clock in clocks}) == 1:
        return "machine", _after_the_first(monotonic)
    wall = [clock.wall_ns for clock in clocks if clock.wall_ns is not None]
    if len(wall) == len(clocks):
        is_rough = any(clock.whole_seconds for clock in clocks)
        return "second" if is_rough else "wall", _after_the_first(wall)
    begins = [place.begin for place in places]
    return "first step", [max(begins) - begin for begin in begins]


def _after_the_first(times: list[int]) -> list[float]:
    return [(t - min(times)) / 1e9 for t in times]


def _strangers(ranks: Sequence[Rank], alignment: Alignment) -> Iterator[str]:
    """A sentence if a request is in two of the ranks, and one if, by a shared clock, two of them
    never ran at the same time.
    """
    times = Counter(request for rank in ranks for request in rank.trace.asked)
    if twice := sum(count > 1 for count in times.values()):
        yield english(
            f"{twice:,} [request is|requests are] in more than one rank: these may be copies of"
            " one recording."
        )
    begins = max(ranks, key=lambda rank: rank.span[0])
    ends = min(ranks, key=lambda rank: rank.span[1])
    if alignment != "first step" and (gap := begins.span[0] - ends.span[1]) > 0:
        yield (
            f"Rank {ends.number} had ended {gap:.1f} s before rank {begins.number} began: these may"
            " be two runs."
        )


def _named(ranks: list[int]) -> str:
    if len(ranks) > 8:
        return f"{len(ranks):,} are"
    return f"rank {ranks[0]} is" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} are"
