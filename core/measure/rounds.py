"""How a benchmark measures: contenders in rotated order, medians, and ratios pair by pair held against a bar. Knows no model.

Machines are noisy and shared: only what ran within the same round is divided.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from core.measure.compare import rotated, summary


@dataclass(frozen=True)
class Options:
    """repeats: timed rounds, after one to warm up. quick: small shapes, which prove that a benchmark runs and nothing else.
    on_run: told what runs next; clock: seconds, for tests.
    """

    repeats: int = 5
    quick: bool = False
    on_run: Callable[[str], None] = lambda what: None
    clock: Callable[[], float] = time.perf_counter


class Measured(NamedTuple):
    """What a turn of a contender gave: seconds (None: take the stopwatch's), tokens by request where they can be compared."""

    seconds: float | None = None
    outputs: Mapping[str, Sequence[int]] | None = None


@dataclass(frozen=True)
class Contender:
    name: str
    turn: Callable[[], Measured]
    about: Mapping[str, Any] = field(default_factory=dict)


class Bar(NamedTuple):
    """`faster` must take at most 1 / `at_least` of the time of `than`."""

    faster: str
    than: str
    at_least: float | None


@dataclass(frozen=True)
class Ratio:
    """than's time ÷ faster's, round by round, and the bar it is held against (None: for information)."""

    faster: str
    than: str
    runs: tuple[float, ...]
    at_least: float | None

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def met(self) -> bool | None:
        return None if self.at_least is None else self.median >= self.at_least

    def to_json(self) -> dict[str, Any]:
        return {"faster": self.faster, "than": self.than, "at_least": self.at_least, "met": self.met, **summary(self.runs)}


class Limit(NamedTuple):
    """A number that must not exceed `at_most`, or must reach `at_least` (neither: for information)."""

    what: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def met(self) -> bool | None:
        if self.at_most is None and self.at_least is None:
            return None
        return (self.at_most is None or self.value <= self.at_most) and (self.at_least is None or self.value >= self.at_least)

    def to_json(self) -> dict[str, Any]:
        return {**self._asdict(), "met": self.met}


@dataclass
class Report:
    """What a benchmark found. times: seconds by contender, one a round. load: the machine's load average before and after."""

    name: str
    title: str
    times: dict[str, list[float]] = field(default_factory=dict)
    ratios: list[Ratio] = field(default_factory=list)
    limits: list[Limit] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    outputs_identical: bool | None = None
    load: tuple[float, float] | None = None

    @property
    def met(self) -> bool:
        """Whether every bar was met."""
        return all(met is not False for met in [r.met for r in self.ratios] + [limit.met for limit in self.limits])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "met": self.met,
            "seconds": {name: summary(times) for name, times in self.times.items()},
            "ratios": [r.to_json() for r in self.ratios],
            "limits": [limit.to_json() for limit in self.limits],
            "outputs_identical": self.outputs_identical,
            "load_average": self.load,
            "about": self.about,
        }


def measure(contenders: Sequence[Contender], options: Options, warmup: int = 1) -> tuple[dict[str, list[float]], bool | None]:
    """Seconds by contender, one a round, and whether all wrote the same (None: nothing to compare)."""
    by_name = {c.name: c for c in contenders}
    times: dict[str, list[float]] = {name: [] for name in by_name}
    first: dict[str, list[int]] | None = None
    identical: bool | None = None
    for number in range(warmup + options.repeats):
        for name in rotated(list(by_name), number):
            options.on_run(f"{name}, {f'round {number - warmup + 1}' if number >= warmup else 'warm-up'}")
            gc.collect()
            started = options.clock()
            measured = by_name[name].turn()
            wall = options.clock() - started
            if measured.outputs is not None:
                outputs = {request: list(ids) for request, ids in measured.outputs.items()}
                identical = (identical is not False) and (first is None or outputs == first)
                first = first or outputs
            if number >= warmup:
                times[name].append(wall if measured.seconds is None else measured.seconds)
    return times, identical


def ratios(times: Mapping[str, Sequence[float]], bars: Sequence[Bar]) -> list[Ratio]:
    """Each bar's ratio, round by round."""
    return [
        Ratio(bar.faster, bar.than, tuple(b / a for a, b in zip(times[bar.faster], times[bar.than], strict=True)), bar.at_least)
        for bar in bars
    ]


def race(name: str, title: str, contenders: Sequence[Contender], bars: Sequence[Bar], options: Options) -> Report:
    """A whole benchmark: measure, divide, report. Pairs without a bar are reported against the first contender."""
    before = load_average()
    times, identical = measure(contenders, options)
    found = ratios(times, [bar._replace(at_least=None) for bar in bars] if options.quick else bars)
    mine = contenders[0].name
    held = {(bar.faster, bar.than) for bar in bars}
    for other in contenders[1:]:
        if (mine, other.name) not in held:
            runs = tuple(b / a for a, b in zip(times[mine], times[other.name], strict=True))
            found.append(Ratio(mine, other.name, runs, None))
    about = {c.name: dict(c.about) for c in contenders if c.about}
    return Report(name, title, times, found, about=about, outputs_identical=identical, load=(before, load_average()))


def load_average() -> float:
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else 0.0
