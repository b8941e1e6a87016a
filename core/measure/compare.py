"""Contenders on the same requests, timed so that the times can be believed. Knows no engine: a contender is a name and a call.

Every contender runs once to warm up; then each round runs all of them in turn, in an order that rotates from round to round, so that
none always runs first or after the same neighbour. Ratios are taken within a round, where the machine's mood was the same.
"""

from __future__ import annotations

import gc
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.config import POLICIES, EngineConfig
from core.errors import InflightError
from core.measure.metrics import metrics
from core.trace.trace import Trace
from core.workload.request import SamplingParams
from core.workload.workload import Workload


@dataclass(frozen=True)
class Run:
    """What one timed run left behind.

    outputs: generated ids by request. metrics: the numbers of `core.measure.metrics`, None for what cannot be observed. margins: for each
    token, how far the best logit was ahead of the runner-up, where known. trace: of an engine's run.
    """

    outputs: Mapping[str, Sequence[int]]
    metrics: Mapping[str, Any]
    margins: Mapping[str, Sequence[float]] = field(default_factory=dict)
    trace: Trace | None = None

    @classmethod
    def of(cls, trace: Trace) -> Run:
        margins: dict[str, list[float]] = {request: [] for request in trace.prompts}
        for event in trace.events:
            for sampled in event.sampled:
                if sampled.margin is not None:
                    margins[sampled.request].append(sampled.margin)
        return cls(trace.outputs, metrics(trace), margins, trace)


@dataclass(frozen=True)
class Contender:
    """`start()` does the work under the stopwatch; `read` turns what it returned into a `Run`, off the clock.

    about: settings worth printing.
    """

    name: str
    start: Callable[[], Any]
    read: Callable[[Any], Run] = Run.of
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Progress:
    """Before each run: which one of how many, whose, and in which round (0 is the warm-up)."""

    index: int
    total: int
    contender: str
    round: int


@dataclass
class Comparison:
    """walls: seconds by contender, one a round. runs: the run of median wall time by contender."""

    names: list[str]
    walls: dict[str, list[float]]
    runs: dict[str, Run]
    medians: dict[str, dict]
    differences: list[dict]
    about: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        """The contender named first; ratios are its wall time divided by another's."""
        return self.names[0]

    @property
    def outputs_identical(self) -> bool:
        return not self.differences

    def ratios(self, name: str) -> list[float]:
        """How many times faster than the baseline, round by round."""
        return [base / mine for base, mine in zip(self.walls[self.baseline], self.walls[name], strict=True)]

    @property
    def warnings(self) -> list[str]:
        """A sentence for each contender whose distance from the baseline is within the spread of the runs."""
        sentences = []
        for name in self.names[1:]:
            spread = max(max(walls) - min(walls) for walls in (self.walls[self.baseline], self.walls[name]))
            distance = abs(statistics.median(self.walls[self.baseline]) - statistics.median(self.walls[name]))
            if len(self.walls[name]) < 2:
                sentences.append(f"{name}: a single run says nothing about spread; use more repeats.")
            elif spread >= distance:
                sentences.append(
                    f"{name} against {self.baseline}: the runs spread over {spread:.3g} s, more than the {distance:.3g} s between "
                    "their medians, so this comparison decides nothing."
                )
        return sentences

    def to_json(self) -> dict:
        """Plain data: wall times run by run, medians of every metric, ratios to the baseline, outputs compared."""
        return {
            "baseline": self.baseline,
            "repeats": len(self.walls[self.baseline]),
            "policies": {
                name: {
                    "wall_s": summary(self.walls[name]),
                    "ratio_to_baseline": summary(self.ratios(name)),
                    "metrics": self.medians[name],
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
) -> Comparison:
    """Time every contender `repeats` times in rotated order, and compare what they wrote with what the first one wrote.

    Raises InflightError for no contenders, two of the same name, or fewer than one repeat.
    """
    names = [c.name for c in contenders]
    if not names or len(set(names)) < len(names):
        raise InflightError("A comparison needs at least one contender, each of a different name.")
    if repeats < 1:
        raise InflightError(f"A comparison needs at least one repeat, not {repeats}.")
    by_name = {c.name: c for c in contenders}
    total, index = (warmup + repeats) * len(names), 0
    walls: dict[str, list[float]] = {name: [] for name in names}
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number in range(warmup + repeats):
        for name in rotated(names, number):
            on_run(Progress(index, total, name, max(0, number - warmup + 1)))
            index += 1
            gc.collect()
            started = clock()
            result = by_name[name].start()
            wall = clock() - started
            if number < warmup:
                continue
            walls[name].append(round(wall, 6))
            runs[name].append(by_name[name].read(result))
    reference = runs[names[0]][0]
    differences = [d for name in names for d in _distinct(first_differences(reference, run, name) for run in runs[name])]
    median_runs = {name: runs[name][_index_of_median(walls[name])] for name in names}
    medians = {name: median_of([dict(run.metrics) for run in runs[name]]) for name in names}
    return Comparison(names, walls, median_runs, medians, differences, {c.name: c.about for c in contenders})


def engine_contender(engine: Any, workload: Workload, name: str | None = None) -> Contender:
    """An engine on a workload, named after its policy."""
    return Contender(name or engine.config.policy, lambda: engine.run(workload), Run.of, engine.config.to_json())


def config_for(policy: str, limits: EngineConfig, given: Mapping[str, Any] | None = None) -> EngineConfig:
    """The limits of a preset under another policy; `given` are limits asked for by name, which override and are never dropped.

    Raises InvalidConfig for limits that contradict each other.
    """
    changes: dict[str, Any] = {"policy": policy}
    if policy in POLICIES and not POLICIES[policy].prefix_caching:
        changes["prefix_caching"] = False
    return replace(limits, **{**changes, **(given or {})})


def greedily(workload: Workload) -> Workload:
    """The same requests without sampling, stops or an end of sequence: what every contender can be asked for."""
    plain = [replace(r, sampling=SamplingParams(r.sampling.max_new_tokens, ignore_eos=True)) for r in workload]
    return Workload(plain, workload.name, workload.arrival_unit)


def rotated(names: Sequence[str], by: int) -> list[str]:
    by %= len(names)
    return [*names[by:], *names[:by]]


def summary(values: Sequence[float]) -> dict[str, Any]:
    """median, min, max, spread (max − min), and the values run by run."""
    low, high = min(values), max(values)
    numbers = {"median": statistics.median(values), "min": low, "max": high, "spread": high - low}
    return {**{name: round(value, 6) for name, value in numbers.items()}, "runs": [round(v, 6) for v in values]}


def median_of(values: Sequence[Any]) -> Any:
    """The median of each number in a list of equally shaped dicts; None where any of them has none."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: median_of([value.get(key) for value in values]) for key in first}
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in values):
        return first if all(v == first for v in values) else None
    return statistics.median(values)


def first_differences(reference: Run, run: Run, name: str) -> list[dict]:
    """Where each request's output first departs from the reference: position, both tokens, and the reference's margin there."""
    found = []
    for request, expected in reference.outputs.items():
        got = run.outputs.get(request, ())
        if list(got) == list(expected):
            continue
        at = next((i for i, (a, b) in enumerate(zip(expected, got, strict=False)) if a != b), min(len(expected), len(got)))
        margins = reference.margins.get(request, ())
        found.append(
            {
                "policy": name,
                "request": request,
                "position": at,
                "expected": expected[at] if at < len(expected) else None,
                "got": got[at] if at < len(got) else None,
                "margin": margins[at] if at < len(margins) else None,
            }
        )
    return found


def environment(header: Mapping[str, Any]) -> dict[str, Any]:
    """Where and on what it was measured, from a trace's header and the machine: what a number needs beside it."""
    model = header["model"]
    return {
        "device": header["device"],
        "hardware": _cpu_name() if header["device"] == "cpu" else header["device_name"],
        "cpus": os.cpu_count(),
        "threads": header["threads"],
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "dtype": header["dtype"],
        "model": {"name": model["name"], "parameters": model["parameters"]},
        "versions": dict(header["versions"]),
        "system": platform.system(),
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _index_of_median(values: Sequence[float]) -> int:
    """The run nearest to the median from below."""
    return sorted(range(len(values)), key=lambda i: values[i])[(len(values) - 1) // 2]


def _distinct(groups: Any) -> list[dict]:
    found: list[dict] = []
    for group in groups:
        found += [difference for difference in group if difference not in found]
    return found
