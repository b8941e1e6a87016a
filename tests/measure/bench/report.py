"""What a benchmark reports: times round by round, ratios of pairs against a required minimum,
numbers against a limit.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from core.measure.compare import compare
from core.measure.rounds import Contender, Progress, load_average, summary


@dataclass(frozen=True)
class Options:
    """repeats: timed rounds, after one to warm up. quick: small shapes, which only prove that a
    benchmark runs. on_run: called with what runs next; clock: seconds, for tests.
    """

    repeats: int = 5
    quick: bool = False
    on_run: Callable[[str], None] = lambda what: None
    clock: Callable[[], float] = time.perf_counter


class SpeedBar(NamedTuple):
    """`faster` must take at most 1 / `at_least` of the time of `than`."""

    faster: str
    than: str
    at_least: float | None


@dataclass(frozen=True)
class Ratio:
    """than's time ÷ faster's, round by round, and the bar it must reach (None: for information).

    Its median is the median of the rounds' ratios, which is not the ratio of the two median times.
    """

    faster: str
    than: str
    runs: tuple[float, ...]
    at_least: float | None

    @property
    def median(self) -> float:
        """The median over the rounds."""
        return statistics.median(self.runs)

    @property
    def met(self) -> bool | None:
        """Whether the median reaches `at_least`; None where nothing was asked."""
        return None if self.at_least is None else self.median >= self.at_least

    def to_json(self) -> dict[str, Any]:
        """Plain data, with the spread over the rounds."""
        return {
            "faster": self.faster,
            "than": self.than,
            "at_least": self.at_least,
            "met": self.met,
            **summary(self.runs),
        }


class Limit(NamedTuple):
    """A number that must not exceed `at_most`, or must reach `at_least` (neither: for
    information).
    """

    what: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the value lies within its limits; None where there are none."""
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, and whether it is met."""
        return {**self._asdict(), "met": self.met}


@dataclass
class Report:
    """The results of a benchmark. times: seconds by contender, one per round. apart: seconds of
    setup and teardown, medians by contender. outputs_same: by contender with an output that
    differs, how many are as the first contender wrote them, and of how many. load: the machine's
    load average before and after.
    """

    name: str
    title: str
    times: dict[str, list[float]] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    outputs_identical: bool | None = None
    outputs_same: dict[str, tuple[int, int]] = field(default_factory=dict)
    load: tuple[float | None, float | None] | None = None
    apart: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def met(self) -> bool:
        """Whether every bar was met."""
        return all(
            met is not False
            for met in [r.met for r in self.ratios] + [limit.met for limit in self.limits]
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data, seconds of every round included."""
        return {
            "name": self.name,
            "title": self.title,
            "met": self.met,
            "seconds": {
                name: {**summary(times), **self.apart.get(name, {})}
                for name, times in self.times.items()
            },
            "ratios": [r.to_json() for r in self.ratios],
            "limits": [limit.to_json() for limit in self.limits],
            "outputs_identical": self.outputs_identical,
            "outputs_same": self.outputs_same,
            "load_average": self.load,
            "about": self.about,
        }


def race(
    name: str,
    title: str,
    contenders: Sequence[Contender],
    bars: Sequence[SpeedBar],
    options: Options,
) -> Report:
    """A whole benchmark: measure, divide, report. Pairs without a bar are reported against the
    first contender.

    All outputs are compared, in every round and in the warm-up; contenders without outputs are left
    out.
    """
    before = load_average()

    def on_run(progress: Progress) -> None:
        options.on_run(f"{progress.contender}, {progress.turn}")

    found = compare(contenders, options.repeats, clock=options.clock, on_run=on_run)
    held = {(bar.faster, bar.than) for bar in bars}
    pairs = [bar._replace(at_least=None) if options.quick else bar for bar in bars]
    pairs += [
        SpeedBar(found.baseline, other, None)
        for other in found.names[1:]
        if (found.baseline, other) not in held
    ]
    writes = {contender for contender, run in found.runs.items() if run.outputs}
    apart = {
        contender: {d["request"] for d in found.differences if d["policy"] == contender}
        for contender in writes
    }
    requests = len(found.runs[found.baseline].outputs)
    return Report(
        name,
        title,
        found.walls,
        [
            Ratio(bar.faster, bar.than, found.verdict(bar.faster, bar.than).ratios, bar.at_least)
            for bar in pairs
        ],
        about={contender: dict(about) for contender, about in found.about.items() if about},
        outputs_identical=not any(apart.values()) if writes else None,
        outputs_same={
            contender: (requests - len(differ), requests)
            for contender, differ in sorted(apart.items())
            if differ
        },
        load=(before, load_average()),
        apart=found.apart,
    )
