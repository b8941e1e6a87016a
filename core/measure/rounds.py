"""How everything is timed: contenders take turns in rounds, in an order that rotates every round.

Each contender runs once to warm up; then each round runs all of them, so that none always runs
first or after the same one. Ratios are taken within a round, where the machine was in the same
state. Setup and teardown are timed separately.
"""

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from core.account.metrics import metrics, wall_s
from core.errors import InflightError, shown
from core.trace.trace import Trace


@dataclass(frozen=True)
class RunResult:
    """The result of one timed run.

    outputs: generated ids by request. metrics: the numbers of `core.account.metrics`, None for
    those that cannot be observed. margins: for each token, the best logit minus the second best,
    None if unknown. trace: of an engine's run. seconds: used instead of the measured time, for
    example if only a step of the turn is measured. cut: requests that something outside ended, such
    as a client that left.
    """

    outputs: Mapping[str, Sequence[int]]
    metrics: Mapping[str, Any] = field(default_factory=dict)
    margins: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    trace: Trace | None = None
    seconds: float | None = None
    cut: frozenset[str] = frozenset()

    @classmethod
    def of(cls, trace: Trace) -> Self:
        """The result of a finished run; for a simulated run, the time is that of its own clock."""
        margins: dict[str, list[float | None]] = {request: [] for request in trace.asked}
        for event in trace.events:
            for carried in event.resumed.carried if event.resumed else ():
                margins[carried.request] += [None] * len(carried.tokens)
            for sampled in event.sampled:
                margins[sampled.request].append(sampled.margin)
        seconds = wall_s(trace) if trace.header.is_simulated else None
        ended = (end for event in trace.events for end in event.ends)
        cut = frozenset(e.request for e in ended if e.finish_reason not in ("length", "stop"))
        return cls(trace.outputs, metrics(trace), margins, trace, seconds, cut)


Read = Callable[[Any], RunResult]


@dataclass(frozen=True)
class Contender:
    """Entering `ready` is the setup, calling what it yields is the run, leaving it is the teardown.

    read: turns what the run returned into a `RunResult`, off the clock. about: settings to print.
    """

    name: str
    ready: Callable[[], AbstractContextManager[Callable[[], Any]]]
    read: Read = RunResult.of
    about: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        start: Callable[[], Any],
        read: Read = RunResult.of,
        about: Mapping[str, Any] | None = None,
    ):
        """A contender that needs no setup."""
        return cls(name, lambda: nullcontext(start), read, about or {})


@dataclass(frozen=True)
class Progress:
    """A turn that begins: its index of total, the contender, and the round (0: warm-up)."""

    index: int
    total: int
    contender: str
    round: int

    @property
    def turn(self) -> str:
        """The turn in words: `round 2`, or `warm-up`."""
        return f"round {self.round}" if self.round else "warm-up"


class Turn(NamedTuple):
    """A contender's turn in a round (0 is the warm-up), in seconds."""

    contender: str
    round: int
    run: RunResult
    seconds: float
    setup_s: float
    teardown_s: float


def planned(contenders: Sequence[Contender], repeats: int, warmup: int = 1) -> list[Progress]:
    """All turns in order. Raises InflightError for no contenders, equal names, or no repeat."""
    names = list(dict.fromkeys(c.name for c in contenders))
    if not names or len(names) < len(contenders):
        raise InflightError("A comparison needs at least one contender, each of a different name.")
    if not isinstance(repeats, int) or repeats < 1:
        raise InflightError(f"A comparison needs at least one repeat, not {shown(repeats)}.")
    numbers = range(warmup + repeats)
    turns = [
        (name, max(0, number - warmup + 1)) for number in numbers for name in rotated(names, number)
    ]
    return [Progress(index, len(turns), name, number) for index, (name, number) in enumerate(turns)]


def turn_of(
    contender: Contender, round_number: int, clock: Callable[[], float] = time.perf_counter
) -> Turn:
    """Take a contender's turn and time it."""
    gc.collect()
    before = clock()
    with contender.ready() as start:
        started = clock()
        result = start()
        ended = clock()
        run = contender.read(result)
        leaving = clock()
    left = clock()
    seconds = ended - started if run.seconds is None else run.seconds
    return Turn(
        contender=contender.name,
        round=round_number,
        run=run,
        seconds=seconds,
        setup_s=started - before,
        teardown_s=left - leaving,
    )


def rotated(names: Sequence[str], by: int) -> list[str]:
    """The same names, beginning with the one at index `by`, modulo their number."""
    by %= len(names)
    return [*names[by:], *names[:by]]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """median, min, max, spread (max − min), and the values run by run."""
    low, high = min(values), max(values)
    numbers = {"median": statistics.median(values), "min": low, "max": high, "spread": high - low}
    return {
        **{name: round(value, 6) for name, value in numbers.items()},
        "runs": [round(v, 6) for v in values],
    }


def load_average() -> float | None:
    """The load average of the last minute, over all CPUs; None where it is not reported."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
