"""The same requests under several contenders, timed in rounds and compared token by token; where
that was measured, and what contradicts the record of a comparison. An engine is anything that
streams steps.
"""

from __future__ import annotations

import json
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
from core.errors import InflightError
from core.measure.baselines.records import BaselineRun
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
"""A verdict is decided if a fair coin would split the rounds at least as one-sidedly in at most
this share of tries (two-sided sign test).
"""


@dataclass(frozen=True)
class Verdict:
    """A contender against the baseline, round by round. ratios: the baseline's seconds ÷ its own;
    above 1, the contender was faster.
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
        """The probability of so one-sided a split by a fair coin; ties are left out."""
        decided, most = self.faster + self.slower, max(self.faster, self.slower)
        return min(
            1.0, 2 * sum(math.comb(decided, k) for k in range(most, decided + 1)) / 2**decided
        )

    @property
    def agrees(self) -> bool:
        """Whether all rounds agree."""
        return self.rounds in (self.faster, self.slower)

    @property
    def decided(self) -> bool:
        """Whether chance would split the rounds so in at most a tenth of tries (`SURE`)."""
        return self.chance <= SURE

    def to_json(self) -> dict[str, Any]:
        """Plain data, without the ratios."""
        return {
            name: getattr(self, name)
            for name in ("faster", "slower", "rounds", "chance", "decided")
        }


@dataclass(repr=False)
class Comparison(OnPage):
    """The same requests under several contenders, in rounds, with every output compared with the
    first one written.

    walls: seconds of the run by contender, one per round. runs: by contender, the run whose time is
    nearest to the median. medians: of each metric, by contender. differences: where an output
    departs from the first, see `first_differences`. about: what each contender is. shown: the
    round, from 1, of each of `runs`. apart: seconds of setup and teardown by contender, medians.
    load: the machine's load average before the first run, None if it is not known.
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
        """Whether times follow from cost models: then each round would be the same."""
        return any(
            run.trace is not None and run.trace.header.is_simulated for run in self.runs.values()
        )

    @property
    def outputs_identical(self) -> bool:
        """Whether every contender wrote the same tokens in every round."""
        return not self.differences

    @property
    def requests(self) -> dict[str, dict[str, RequestTimes]]:
        """Each request's times in runs that left a trace: by request, then by contender."""
        times = {
            name: request_times(run.trace)
            for name, run in self.runs.items()
            if run.trace is not None
        }
        asked = dict.fromkeys(request for found in times.values() for request in found)
        return {r: {name: found[r] for name, found in times.items() if r in found} for r in asked}

    def verdict(self, name: str, against: str | None = None) -> Verdict:
        """How a contender did against another, by default the baseline."""
        than = self.walls[self.baseline if against is None else against]
        return Verdict(
            tuple(base / mine for base, mine in zip(than, self.walls[name], strict=True))
        )

    @property
    def warnings(self) -> list[str]:
        """A sentence for each contender whose rounds do not decide between it and the baseline."""
        sentences = []
        for name in self.names[1:]:
            found = self.verdict(name)
            if self.is_simulated:
                continue
            if found.rounds < 2:
                sentences.append(
                    f"{name}: a single run says nothing about spread; use more repeats."
                )
            elif not found.agrees and not found.decided:
                sentences.append(
                    f"{name} against {self.baseline}: faster in {found.faster} of {found.rounds}"
                    f" rounds ({min(found.ratios):.2f} to {max(found.ratios):.2f} times as fast),"
                    " so this comparison is inconclusive."
                )
        return sentences

    def plot(self, view: str = "race") -> Any:
        """A Plotly figure, see `Trace.plot`. view: "race", the lanes of every contender over
        seconds, or a chart of the page, such as "throughput". Raises InflightError for another
        view, with the names of all, and for one that there is nothing to draw of.
        """
        return page.brought(page.plot)(self, view, None)

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
    until_interrupted: bool = False,
) -> Comparison:
    """Time every contender `repeats` times in rotated order, and compare every output with the
    first one written.

    until_interrupted: a KeyboardInterrupt ends it, with the rounds that are whole by then, if there
    are any. Raises InflightError for no contenders, two of the same name, fewer than one repeat, or
    a run that took no time on its clock.
    """
    timed = _Timed([c.name for c in contenders])
    try:
        for progress in _turns(timed, contenders, repeats, warmup, clock):
            on_run(progress)
    except KeyboardInterrupt:
        if not (until_interrupted and timed.rounds):
            raise
    return timed.comparison(contenders)


def comparing(
    contenders: Sequence[Contender], repeats: int = 5
) -> Generator[Progress, None, Comparison]:
    """The same turn by turn: yields before each, for a caller who has more to do than to compare,
    and returns the comparison.
    """
    timed = _Timed([c.name for c in contenders])
    yield from _turns(timed, contenders, repeats)
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
        """How many are whole."""
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
        """Of the rounds that are whole, of which there must be one."""
        names, whole = list(self._turns), self.rounds
        turns = {name: all_of[:whole] for name, all_of in self._turns.items()}
        walls = {name: [round(turn.seconds, 6) for turn in turns[name]] for name in names}
        nearest = {name: turns[name][nearest_to_median(walls[name])] for name in names}
        return Comparison(
            names,
            walls,
            {name: turn.run for name, turn in nearest.items()},
            {name: median_of([dict(turn.run.metrics) for turn in turns[name]]) for name in names},
            sorted(self._differences, key=lambda difference: names.index(difference["policy"])),
            {c.name: c.about for c in contenders},
            {name: turn.round for name, turn in nearest.items()},
            {
                name: {
                    part: round(statistics.median(getattr(turn, part) for turn in turns[name]), 6)
                    for part in ("setup_s", "teardown_s")
                }
                for name in names
            },
            self._load,
        )


def engine_contender(
    engine: Any,
    workload: Workload,
    stream: Callable[[Workload], Iterator[StepEvent]] | None = None,
    name: str | None = None,
) -> Contender:
    """An engine on a workload, by default named after its policy: its setup checks the requests and
    prepares pool and passes.

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
    """The same requests without sampling or stop strings: every contender can run these."""
    plain = [
        replace(
            r, sampling=SamplingParams(r.sampling.max_new_tokens, ignore_eos=r.sampling.ignore_eos)
        )
        for r in workload
    ]
    return Workload(plain, workload.name, workload.arrival_unit)


def median_of(values: Sequence[Any]) -> Any:
    """The median of each number in a list of equally shaped dicts; None if any of them has none."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: median_of([value.get(key) for value in values]) for key in first}
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in values):
        return first if all(v == first for v in values) else None
    return statistics.median(values)


def first_differences(reference: RunResult, run: RunResult, name: str) -> list[dict[str, Any]]:
    """Where each output first departs from the reference: position, tokens, its margin."""
    found = []
    for request, expected in reference.outputs.items():
        got = run.outputs.get(request, ())
        at = first_parting(expected, got)
        if at is None:
            continue
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


def first_parting(one: Sequence[int], other: Sequence[int]) -> int | None:
    """The first position at which two sequences differ or one ends; None for equal ones."""
    return next((at for at, (a, b) in enumerate(zip_longest(one, other)) if a != b), None)


def nearest_to_median(values: Sequence[float]) -> int:
    """The index of the value nearest to the median; the first of several that are equally near."""
    middle = statistics.median(values)
    return min(range(len(values)), key=lambda i: abs(values[i] - middle))


# -- what a recorded comparison contradicts --------------------------------------------------------


_TIMED = (
    "wall_s",
    "output_tok_s",
    "total_tok_s",
    "requests_per_s",
    "ttft_s",
    "itl_s",
    "tpot_s",
    "e2e_s",
    "queue_s",
    "time_s",
    "goodput",
)
# seconds, and share of the run, by which a stopwatch may stop later than the last step
_AROUND = 0.05, 0.1
_ROUNDED = 1e-5  # seconds
_SPREADS = ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s")
_PERCENTILES = ("p50", "p90", "p99", "max")
_WRITTEN = ("requests", "finished", "prompt_tokens", "output_tokens")
# of a contender that left no trace: what is known of it, and what of that may not be
_OUTSIDE = BaselineRun({"r": [0, 0]}, 1.0, {"r": 1}, {"r": [0.5, 1.0]}, 1).metrics()
_MAYBE_SEEN = ("steps", "ttft_s", "itl_s", "tpot_s", "e2e_s")
_RATES = {
    "output_tok_s": ("output_tokens",),
    "total_tok_s": ("prompt_tokens", "output_tokens"),
    "requests_per_s": ("finished",),
}


def fault_of(comparison: Comparison, recorded: Mapping[str, Any]) -> str | None:
    """What is wrong, as a sentence without its subject and full stop. recorded: what the record
    claims, in the form of `Comparison.to_json`.
    """
    follows = json.loads(json.dumps(comparison.to_json()))
    for name in ("baseline", "fastest", "repeats", "outputs_identical", "warnings"):
        if recorded.get(name) != follows[name]:
            return f"says {name} otherwise than its rounds do"
    for name, entry in follows["policies"].items():
        if wrong := [
            fact
            for fact in ("wall_s", "ratio_to_baseline", "verdict")
            if recorded["policies"][name].get(fact) != entry[fact]
        ]:
            return f"says {wrong[0]} of {name} otherwise than its rounds do"
    if len(set(comparison.names)) < len(comparison.names):
        return "names a contender twice"
    if not all(_may_differ(comparison, difference) for difference in comparison.differences):
        return "has a difference that none of its runs can have"
    for name, run in comparison.runs.items():
        if fault := _fault_of_turns(comparison, name) or (
            _fault_of_run(comparison, name, run.trace, recorded) if run.trace else None
        ):
            return f"{fault} of {name}"
        if wrong_time := _wrong_time(comparison, name):
            return f"has {wrong_time} of {name} that cannot be"
    traced = [run for run in comparison.runs.values() if run.trace is not None]
    for name, run in comparison.runs.items() if traced and comparison.outputs_identical else ():
        if run.trace is not None and first_differences(traced[0], run, name):
            return f"says that outputs are identical, and those of {name} differ"
        for key in (*_WRITTEN, *_SPREADS):
            if _count(comparison.medians[name][key]) not in (None, _count(traced[0].metrics[key])):
                return f"has {key} of {name} otherwise than who wrote the same"
    return None


def _may_differ(comparison: Comparison, told: Mapping[str, Any]) -> bool:
    """Whether `first_differences` can have said this; of which round is not on record."""
    run, at = comparison.runs.get(told["policy"]), told["position"]
    return (
        run is not None
        and (run.trace is None or told["request"] in run.trace.asked)
        and set(told) == {"policy", "request", "position", "expected", "got", "margin"}
        and type(at) is int
        and at >= 0
        and told["expected"] != told["got"]
        and (told["margin"] or 0) >= 0
        and all(token is None or type(token) is int for token in (told["expected"], told["got"]))
    )


def _fault_of_turns(comparison: Comparison, name: str) -> str | None:
    """What is wrong with the turns of a contender, whether it left a trace or not."""
    if comparison.shown.get(name) != nearest_to_median(comparison.walls[name]) + 1:
        return "does not show the round nearest to the median"
    apart = comparison.apart.get(name, {})
    if shape(apart) != {"setup_s": float, "teardown_s": float} or min(apart.values()) < 0:
        return "has a setup or a teardown that cannot be"
    told, run = comparison.medians[name], comparison.runs[name]
    seen = _OUTSIDE if run.trace is None else run.metrics
    for key in {**seen, **told}:
        is_hidden = run.trace is None and key in _MAYBE_SEEN and told.get(key, ...) is None
        if not is_hidden and shape(told.get(key, ...)) != shape(seen.get(key, ...)):
            return f"has {key} in another form than its run"
    return None


def shape(value: Any) -> Any:
    """What is there, without its numbers."""
    if isinstance(value, Mapping):
        return {key: shape(part) for key, part in value.items()}
    return float if type(value) is int else type(value)


def _count(value: Any) -> Any:
    return (value["count"], value["left_out"]) if isinstance(value, Mapping) else value


def _fault_of_run(
    comparison: Comparison, name: str, trace: Trace, recorded: Mapping[str, Any]
) -> str | None:
    run, walls, header = comparison.runs[name], comparison.walls[name], trace.header
    config, about = header.config.to_json(), comparison.about[name]
    if header.engine is not None:  # which has a policy of its own
        own = {"version": header.engine.version}
        config = config | own
        about = own | {**about, **{of: config[of] for of in ("policy", "chunked_prefill")}}
    where = environment(header)
    on_record = where if header.engine is not None else recorded.get("environment", where)
    if wrong := [
        *(fact for fact in _OF_A_RUN if on_record.get(fact) != where[fact]),
        *(where.keys() ^ on_record.keys()),
        *(k for k in {**config, **about} if about.get(k, ...) != config.get(k, ...)),
    ]:
        return f"has {wrong[0]} otherwise than the run"
    seconds, late = run.metrics["wall_s"], walls[nearest_to_median(walls)]
    if not _stopped_by(seconds, late):
        return f"has a round of {late:g} s and a run of {seconds:g} s"
    if header.counts_steps and not header.is_asynchronous:
        medians, is_timed = comparison.medians[name], len(walls) > 1  # else it is its own median
        own = {k: value for k, value in run.metrics.items() if not (is_timed and k in _TIMED)}
        if wrong := [
            *(key for key, value in own.items() if not _same(medians.get(key), value)),
            *(
                key
                for key in _SPREADS
                for counted in ("count", "left_out")
                if medians[key][counted] != run.metrics[key][counted]
            ),
        ]:
            return f"has {wrong[0]} otherwise than the run"
    return None


def _wrong_time(comparison: Comparison, name: str) -> str | None:
    """The first time or rate of a contender that does not fit its others, by name. Its rounds are
    not on record, so no more can be said.
    """
    found, walls = comparison.medians[name], comparison.walls[name]
    seconds = found.get("wall_s")
    if seconds is None:
        return None
    if not _stopped_by(seconds, statistics.median(walls)):
        return "wall_s"
    # the median of an odd number is that of the median round
    is_one = len(walls) % 2 == 1 and comparison.outputs_identical
    return wrong_time(found, walls, is_one)


def wrong_time(found: Mapping[str, Any], walls: Sequence[float], is_one: bool) -> str | None:
    """The first time or rate in a run's metrics, or in their medians over rounds of `walls`
    seconds, that does not fit its others, by name. is_one: rates are those of the median round.
    """
    seconds = found["wall_s"]
    for rate, counts in _RATES.items() if is_one else ():
        if found.get(rate) is not None:
            follows = sum(found[count] for count in counts) / seconds
            if not math.isclose(found[rate], follows, rel_tol=_ROUNDED / seconds):
                return rate
    for spread in _SPREADS:
        numbers = found.get(spread) or {}
        if None in (rising := [0, *(numbers.get(p) for p in _PERCENTILES)]):
            continue
        if [*rising, seconds + _ROUNDED] != sorted([*rising, seconds + _ROUNDED]):
            return spread
        if (
            not (rising[1] or 0) / 2
            <= (mean := numbers["mean"])
            <= rising[-1]
            <= (numbers["count"] + numbers["left_out"]) * mean + _ROUNDED
        ):
            return spread
    # of every request, and so of their order, and of the medians over rounds
    for less, more in (("queue_s", "ttft_s"), ("ttft_s", "e2e_s")):
        one, other = found.get(less), found.get(more)
        if (
            one
            and other
            and _count(one) == _count(other)
            and any((one[p] or 0) > (other[p] or 0) + _ROUNDED for p in ("mean", *_PERCENTILES))
        ):
            return less
    parts = {k: v for k, v in (found.get("time_s") or {}).items() if v is not None}
    # in more than half of the rounds each takes its median or longer; the host may work beside them
    device = sum(parts.get(name, 0) for name in ("forward", "sample", "other", "between"))
    most = sum(walls) / (len(walls) // 2 + 1)
    is_more = device > most + _ROUNDED or max(parts.values(), default=0) > seconds + _ROUNDED
    return "time_s" if is_more else None


def _stopped_by(seconds: float, late: float) -> bool:
    """Whether a stopwatch may have measured `late` for a run of so many seconds."""
    return seconds - _ROUNDED <= late <= seconds + max(_AROUND[0], _AROUND[1] * seconds)


def _same(one: Any, other: Any) -> bool:
    """Whether two metrics are equal, but for the last digit: Python 3.12 sums more exactly."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other


# -- where it was measured -------------------------------------------------------------------------


QUIET = 0.3
"""The load per CPU, over the last minute, above which nothing is measured for publication."""


_OF_A_RUN = ("device", "threads", "dtype", "model", "versions")  # what its header says, too


def environment(header: Header) -> dict[str, Any]:
    """From a trace's header and the machine; the load average is the current one, so call this
    before measuring. In a visitor's tab the machine is the browser, and neither its CPUs nor their
    load are known.
    """
    model = {"name": header.model.name, "parameters": header.model.parameters}
    return machine(
        header.device, header.device_name, header.threads, header.dtype, model, header.versions
    )


def machine(
    device: str,
    device_name: str,
    threads: int | None,
    dtype: str,
    model: Mapping[str, Any],
    versions: Mapping[str, str | None],
) -> dict[str, Any]:
    """The same for a run that left no trace."""
    in_browser = "pyodide" in versions  # which tells neither the CPU nor its load
    return {
        "device": device,
        "hardware": _cpu_name() if device == "cpu" and not in_browser else device_name,
        "cpus": None if in_browser else os.cpu_count(),
        "threads": threads,
        "load_average": None if in_browser else load_average(),
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
