"""The same requests under several contenders, timed in rounds and compared token by token; and a
description of the machine. Any engine that streams steps can be a contender.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from core import page
from core.account.request_times import RequestTimes, request_times
from core.errors import InflightError, shown
from core.measure.rounds import (
    Contender,
    Progress,
    RunResult,
    Turn,
    load_average,
    planned,
    summary,
    turn_of,
)
from core.page import OnPage
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.request import SamplingParams
from core.workload.workload import Workload

SURE = 0.1
"""A verdict is decided if a fair coin would split the rounds at least as one-sidedly with at most
this probability (two-sided sign test).
"""


@dataclass(frozen=True)
class Verdict:
    """A contender compared with the baseline, round by round. ratios: the baseline's seconds ÷ the
    contender's; above 1, the contender was faster.
    """

    ratios: tuple[float, ...]

    @property
    def rounds(self) -> int:
        """Rounds in which both were timed."""
        return len(self.ratios)

    @property
    def faster(self) -> int:
        """Rounds in which it was faster."""
        return sum(ratio > 1 for ratio in self.ratios)

    @property
    def slower(self) -> int:
        """Rounds in which it was slower."""
        return sum(ratio < 1 for ratio in self.ratios)

    @property
    def median(self) -> float:
        """The median of the rounds' ratios, which is not the ratio of the median times."""
        return statistics.median(self.ratios)

    @property
    def chance(self) -> float:
        """The probability that a fair coin would give such a one-sided split; ties are left out."""
        decided, most = self.faster + self.slower, max(self.faster, self.slower)
        return min(
            1.0, 2 * sum(math.comb(decided, k) for k in range(most, decided + 1)) / 2**decided
        )

    @property
    def agrees(self) -> bool:
        """Whether the contender was faster in all rounds, or slower in all."""
        return self.rounds in (self.faster, self.slower)

    @property
    def decided(self) -> bool:
        """Whether so one-sided a split is improbable enough by chance (`SURE`)."""
        return self.chance <= SURE

    @property
    def is_open(self) -> bool:
        """Whether the rounds neither agree nor give a verdict."""
        return self.rounds > 1 and not self.agrees and not self.decided

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the ratios."""
        return {
            name: getattr(self, name)
            for name in ("faster", "slower", "rounds", "chance", "decided")
        }


@dataclass(repr=False)
class Comparison(OnPage):
    """The same requests under several contenders, in rounds; outputs are compared with the first.

    walls: seconds of the run by contender, one per round. runs: by contender, the run whose time is
    nearest to the median. medians: of each metric, by contender. differences: where an output
    differs from the first one, see `first_differences`. about: the settings of each contender.
    shown: the round, from 1, of each of `runs`. apart: seconds of setup and teardown by contender,
    medians. load: the machine's load average before the first run, None if unknown. is_of_traces:
    whether the runs were made before, each for itself and on any machine.
    """

    names: list[str]
    walls: dict[str, list[float]]
    runs: dict[str, RunResult]
    medians: dict[str, dict[str, Any]]
    differences: list[dict[str, Any]]
    about: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    shown: dict[str, int] = field(default_factory=dict)
    apart: dict[str, dict[str, float]] = field(default_factory=dict)
    load: float | None = None
    is_of_traces: bool = False

    def __repr__(self) -> str:
        medians = ", ".join(
            f"{name} {statistics.median(self.walls[name]):.3g} s" for name in self.names
        )
        if self.is_simulated:
            return f"<Comparison: simulated, {medians}>"
        same = "outputs identical" if self.outputs_identical else "outputs differ"
        return f"<Comparison: {medians}; medians of {len(self.walls[self.baseline])}, {same}>"

    @property
    def baseline(self) -> str:
        """The contender named first; ratios are its wall time divided by another's."""
        return self.names[0]

    @property
    def fastest(self) -> str:
        """The contender with the lowest median time."""
        return min(self.names, key=lambda name: statistics.median(self.walls[name]))

    @property
    def is_simulated(self) -> bool:
        """Whether times come from cost models, so that every round would be the same."""
        return any(trace.header.is_simulated for trace in self.traces.values())

    @property
    def is_cut(self) -> bool:
        """Whether something outside ended a request, so that it may have more tokens in one run."""
        return any(run.cut for run in self.runs.values())

    @property
    def outputs_identical(self) -> bool:
        """Whether every contender gave the same tokens in every round."""
        return not self.differences

    @property
    def traces(self) -> dict[str, Trace]:
        """The traces of the runs that have one, by contender."""
        return {name: run.trace for name, run in self.runs.items() if run.trace is not None}

    @property
    def requests(self) -> dict[str, dict[str, RequestTimes]]:
        """Each request's times in runs that have a trace: by request, then by contender."""
        times = {name: request_times(trace) for name, trace in self.traces.items()}
        asked = dict.fromkeys(request for found in times.values() for request in found)
        return {r: {name: found[r] for name, found in times.items() if r in found} for r in asked}

    def verdict(self, name: str, against: str | None = None) -> Verdict:
        """One contender against another or the baseline. Raises InflightError if unknown."""
        for one in (name, against or name):
            if not isinstance(one, str) or one not in self.names:
                raise InflightError(f"{shown(one)} was not compared; {', '.join(self.names)} were.")
        than = self.walls[self.baseline if against is None else against]
        return Verdict(
            tuple(base / mine for base, mine in zip(than, self.walls[name], strict=True))
        )

    @property
    def warnings(self) -> list[str]:
        """A sentence for each contender whose rounds do not decide between it and the baseline."""
        sentences = []
        for name in () if self.is_simulated else self.names[1:]:
            found = self.verdict(name)
            if found.rounds < 2:
                sentences.append(
                    f"{name}: a single run says nothing about spread; use more repeats."
                )
            elif found.is_open:
                sentences.append(
                    f"{name} against {self.baseline}: faster in {found.faster} of {found.rounds}"
                    f" rounds ({min(found.ratios):.2f} to {max(found.ratios):.2f} times as fast),"
                    " so this comparison is inconclusive."
                )
        return sentences

    def plot(self, view: str = "race") -> Any:
        """A Plotly figure, see `Trace.plot`. view: "race", the lanes of every contender over
        seconds, or a chart of the page such as "throughput". Raises InflightError, with the names
        of all views, for an unknown one, and for one without data.
        """
        return page.provided(page.plot)(self, view, None)

    def to_json(self) -> dict[str, Any]:
        """Plain data: wall times, medians of every metric, ratios to the baseline, outputs."""
        return {
            "baseline": self.baseline,
            "fastest": self.fastest,
            "repeats": len(self.walls[self.baseline]),
            "policies": {
                name: {
                    "wall_s": summary(self.walls[name]),
                    "ratio_to_baseline": summary(self.verdict(name).ratios),
                    "verdict": self.verdict(name).to_json(),
                    "metrics": self.medians[name],
                    **({"apart": self.apart[name]} if name in self.apart else {}),
                    **({"shown_round": self.shown[name]} if name in self.shown else {}),
                    **({"about": dict(self.about[name])} if self.about.get(name) else {}),
                }
                for name in self.names
            },
            "outputs_identical": self.outputs_identical,
            "differences": self.differences,
            "warnings": self.warnings,
        }


def compare(
    contenders: Sequence[Contender],
    repeats: int = 5,
    *,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    on_run: Callable[[Progress], None] = lambda progress: None,
    until: type[BaseException] | tuple[()] = (),
) -> Comparison:
    """Time every contender `repeats` times in rotated order, and compare outputs with the first.

    until: exceptions that end the comparison early; it then has the complete rounds, if there are
    any. Raises InflightError for no contenders, two of the same name, fewer than one repeat, or a
    run that took no time on its clock.
    """
    timed = _Timed([c.name for c in contenders])
    try:
        for progress in _turns(timed, contenders, repeats, warmup, clock):
            on_run(progress)
    except until:
        if not timed.rounds:
            raise
    return timed.comparison(contenders)


def comparing(
    contenders: Sequence[Contender],
    repeats: int = 5,
    until: type[BaseException] | tuple[()] = (),
) -> Generator[Progress, None, Comparison]:
    """`compare` as a generator, which yields before each turn and returns the comparison."""
    timed = _Timed([c.name for c in contenders])
    try:
        yield from _turns(timed, contenders, repeats)
    except until:
        if not timed.rounds:
            raise
    return timed.comparison(contenders)


def _turns(
    timed: _Timed,
    contenders: Sequence[Contender],
    repeats: int,
    warmup: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Progress]:
    by_name = {c.name: c for c in contenders}
    for progress in planned(contenders, repeats, warmup):
        yield progress
        timed.add(turn_of(by_name[progress.contender], progress.round, clock))


class _Timed:
    """The turns so far, and where their outputs differ."""

    def __init__(self, names: list[str]) -> None:
        self._turns: dict[str, list[Turn]] = {name: [] for name in names}
        self._differences: list[dict[str, Any]] = []
        self._reference: RunResult | None = None
        self._load = load_average()  # before the first

    @property
    def rounds(self) -> int:
        """How many rounds are complete."""
        return min(map(len, self._turns.values()))

    def add(self, turn: Turn) -> None:
        self._reference = self._reference or turn.run
        found = first_differences(self._reference, turn.run, turn.contender)
        self._differences += [d for d in found if d not in self._differences]
        if turn.round:
            if turn.seconds <= 0:
                raise InflightError(
                    "A run took less time than this clock can measure: compare longer ones."
                )
            self._turns[turn.contender].append(turn)

    def comparison(self, contenders: Sequence[Contender]) -> Comparison:
        """The comparison of the complete rounds, of which there must be at least one."""
        names, whole = list(self._turns), self.rounds
        turns = {name: all_of[:whole] for name, all_of in self._turns.items()}
        walls = {name: [round(turn.seconds, 6) for turn in turns[name]] for name in names}
        nearest = {name: turns[name][nearest_to_median(walls[name])] for name in names}
        return Comparison(
            names=names,
            walls=walls,
            runs={name: turn.run for name, turn in nearest.items()},
            medians={
                name: median_of([dict(turn.run.metrics) for turn in turns[name]]) for name in names
            },
            differences=sorted(
                self._differences, key=lambda difference: names.index(difference["policy"])
            ),
            about={c.name: c.about for c in contenders},
            shown={name: turn.round for name, turn in nearest.items()},
            apart={
                name: {
                    part: round(statistics.median(getattr(turn, part) for turn in turns[name]), 6)
                    for part in ("setup_s", "teardown_s")
                }
                for name in names
            },
            load=self._load,
        )


def engine_contender(
    engine: Any,
    workload: Workload,
    stream: Callable[[Workload], Iterator[StepEvent]] | None = None,
    name: str | None = None,
) -> Contender:
    """An engine on a workload as a contender, by default named after its policy. Its setup checks
    the requests and prepares the pool and the passes.

    stream: yields the steps, if not the engine's own.
    """

    @contextmanager
    def ready() -> Iterator[Callable[[], Trace]]:
        steps = (stream or engine.stream)(workload)

        def start() -> Trace:
            for _ in steps:
                pass
            return engine.trace

        yield start

    return Contender(
        name or engine.config.policy.name, ready, RunResult.of, engine.config.to_json()
    )


def greedily(workload: Workload) -> Workload:
    """The same requests without sampling and stop strings, which every contender can run."""
    plain = []
    for request in workload:
        asked = request.sampling
        greedy = SamplingParams(asked.max_new_tokens, ignore_eos=asked.ignore_eos)
        plain.append(replace(request, sampling=greedy))
    return Workload(plain, workload.name, workload.arrival_unit)


def median_of(values: Sequence[Any]) -> Any:
    """The median of each number in dicts of one shape; None where a number is missing."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: median_of([value.get(key) for value in values]) for key in first}
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in values):
        return first if all(v == first for v in values) else None
    return statistics.median(values)


def first_differences(reference: RunResult, run: RunResult, name: str) -> list[dict[str, Any]]:
    """Where each output first differs from the reference: position, tokens and margin. Of a request
    that was cut in one of them, what both wrote is compared.
    """
    found = []
    for request, expected in reference.outputs.items():
        got = run.outputs.get(request, ())
        if request in reference.cut | run.cut:
            both = min(len(expected), len(got))
            expected, got = expected[:both], got[:both]
        at = first_parting(expected, got)
        if at is None:
            continue
        margins = reference.margins.get(request, ())
        one, other, margin = (s[at] if at < len(s) else None for s in (expected, got, margins))
        place = {"policy": name, "request": request, "position": at}
        found.append({**place, "expected": one, "got": other, "margin": margin})
    return found


def first_parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first position at which two sequences differ or one ends; None for equal ones."""
    return next((at for at, (a, b) in enumerate(zip_longest(one, other)) if a != b), None)


def nearest_to_median(values: Sequence[float]) -> int:
    """The index of the value nearest to the median; the first of several that are equally near."""
    middle = statistics.median(values)
    return min(range(len(values)), key=lambda i: abs(values[i] - middle))


# -- where it was measured -------------------------------------------------------------------------


QUIET = 0.3
"""The load per CPU, over the last minute, above which nothing is measured for publication."""


def environment(header: Header, is_here: bool = True) -> dict[str, Any]:
    """The machine, from a trace's header and the system. The load average is the current one, so
    call this before measuring. In a visitor's tab the CPUs and their load are unknown, as they are
    of a run that was not made here.
    """
    model = {"name": header.model.name, "parameters": header.model.parameters}
    of_run = (header.device, header.device_name, header.threads, header.dtype, model)
    return machine(*of_run, header.versions, is_here)


def machine(
    device: str,
    device_name: str,
    threads: int | None,
    dtype: str,
    model: Mapping[str, Any],
    versions: Mapping[str, str | None],
    is_here: bool = True,
) -> dict[str, Any]:
    """The same as `environment`, for a run without a trace."""
    is_known = is_here and "pyodide" not in versions  # a browser tells neither the CPU nor its load
    return {
        "device": device,
        "hardware": _cpu_name() if device == "cpu" and is_known else device_name,
        "cpus": os.cpu_count() if is_known else None,
        "threads": threads,
        "load_average": load_average() if is_known else None,
        "dtype": dtype,
        "model": dict(model),
        "versions": dict(versions),
        "system": platform.system(),
    }


def too_busy(load: float | None, cpus: int | None) -> bool:
    """Whether a machine was too busy with other work; one that reports no load counts as quiet."""
    return load is not None and bool(cpus) and load > QUIET * (cpus or 1)


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(
                line.split(":", 1)[1].strip() for line in file if line.startswith("model name")
            )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
