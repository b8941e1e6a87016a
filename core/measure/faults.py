"""Checks whether a record of a comparison contradicts itself: rounds, runs and statements."""

import json
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from core.measure.baselines import NAMES
from core.measure.baselines.records import BaselineRun
from core.measure.compare import Comparison, environment, first_differences, nearest_to_median
from core.simulate.fitted import NOT_KNOWN
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.request import is_number

_OF_A_RUN = ("device", "threads", "dtype", "model", "versions")  # also in the header of a run
# the same in all runs of this engine
_OF_ALL = ("model", "device_name", "tensor_parallel", "leak", "execution")
# seconds, and share of the run, by which a stopwatch may stop later than the last step
_AROUND = 0.05, 0.1
_ROUNDED = 1e-5  # seconds
_SPREADS = ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s")
_PERCENTILES = ("p50", "p90", "p99", "max")
_WRITTEN = ("requests", "finished", "prompt_tokens", "output_tokens")
# the metrics of a contender without a trace, and those of them that may be unknown
_OUTSIDE = BaselineRun({"r": [0, 0]}, 1.0, {"r": 1}, {"r": [0.5, 1.0]}, 1).metrics()
_MAYBE_SEEN = ("steps", "ttft_s", "itl_s", "tpot_s", "e2e_s")
_RATES = {
    "output_tok_s": ("output_tokens",),
    "total_tok_s": ("prompt_tokens", "output_tokens"),
    "requests_per_s": ("finished",),
}
_TIMED = ("wall_s", *_RATES, *_SPREADS, "time_s", "goodput")


def fault_of(comparison: Comparison, recorded: Mapping[str, Any]) -> str | None:
    """What is wrong, as a sentence without its subject and full stop; None if nothing is. recorded:
    what the record claims, in the form of `Comparison.to_json`.
    """
    if len({len(walls) for walls in comparison.walls.values()}) > 1:
        return "has more rounds of one contender than of another"
    if not all(is_number(t) and t > 0 for walls in comparison.walls.values() for t in walls):
        return "has a round that took no time"
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
    told = comparison.differences
    if len({*map(as_text, told)}) < len(told) or not all(_may_differ(comparison, d) for d in told):
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
        for key in () if comparison.is_cut else (*_WRITTEN, *_SPREADS):
            if _count(comparison.medians[name][key]) not in (None, _count(traced[0].metrics[key])):
                return f"has {key} of {name} otherwise than who wrote the same"
    return None


def _may_differ(comparison: Comparison, told: Mapping[str, Any]) -> bool:
    """Whether `first_differences` can have returned this; the round is not on record."""
    most = tokens = math.inf
    for trace in comparison.traces.values():
        asked = trace.asked.get(told["request"])
        most = asked.request.sampling.max_new_tokens if asked else 0
        tokens = trace.header.model.vocab_size or math.inf
    return (
        told["policy"] in comparison.runs
        and set(told) == {"policy", "request", "position", "expected", "got", "margin"}
        and _is_count(told["position"], most)
        and told["expected"] != told["got"]
        and (told["margin"] is None or (is_number(told["margin"]) and told["margin"] >= 0))
        and all(t is None or _is_count(t, tokens) for t in (told["expected"], told["got"]))
    )


def _is_count(value: object, most: float) -> bool:
    """Whether this is a whole number from 0 to below `most`."""
    return type(value) is int and 0 <= value < most


def _fault_of_turns(comparison: Comparison, name: str) -> str | None:
    """What is wrong with the turns of a contender, with or without a trace."""
    shown = nearest_to_median(comparison.walls[name]) + 1
    if as_text(comparison.shown.get(name)) != as_text(shown):
        return "does not show the round nearest to the median"
    apart = comparison.apart.get(name, {})
    if shape(apart) != {"setup_s": float, "teardown_s": float} or min(apart.values()) < 0:
        return "has a setup or a teardown that cannot be"
    told, run = comparison.medians[name], comparison.runs[name]
    if run.trace is None and name not in NAMES:
        return "has no run"
    seen = _OUTSIDE if run.trace is None else run.metrics
    for key in {**seen, **told}:
        is_hidden = run.trace is None and key in _MAYBE_SEEN and told.get(key, ...) is None
        if not is_hidden and shape(told.get(key, ...)) != shape(seen.get(key, ...)):
            return f"has {key} in another form than its run"
    return None


def shape(value: Any) -> Any:
    """The structure of a value, without its numbers."""
    if isinstance(value, Mapping):
        return {key: shape(part) for key, part in value.items()}
    return float if type(value) is int else type(value)


def _count(value: Any) -> Any:
    return (value["count"], value["left_out"]) if isinstance(value, Mapping) else value


def _fault_of_run(
    comparison: Comparison, name: str, trace: Trace, recorded: Mapping[str, Any]
) -> str | None:
    run, walls, header = comparison.runs[name], comparison.walls[name], trace.header
    if trace.asked != next(iter(comparison.traces.values())).asked:
        return "was asked for other requests in the run"
    if unknown := header.unknown:
        return f"has a field {unknown[0]!r}, which no recording has, in the run"
    config, about = header.config.to_json(), comparison.about[name]
    if header.engine is not None:  # which has a policy of its own
        own = {"version": header.engine.version}
        config = config | own
        about = own | {**about, **{of: config[of] for of in ("policy", "chunked_prefill")}}
    where = environment(header)
    on_record = where if header.engine is not None else recorded.get("environment", where)
    if wrong := [
        *(fact for fact in _OF_A_RUN if as_text(on_record.get(fact)) != as_text(where[fact])),
        *(where.keys() ^ on_record.keys()),
        *(k for k in about.keys() ^ config.keys()),
        *(k for k in about.keys() & config.keys() if as_text(about[k]) != as_text(config[k])),
        *_unlike_first(comparison, name, header),
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
            *(k for k in _SPREADS if _count(medians[k]) != _count(run.metrics[k])),
        ]:
            return f"has {wrong[0]} otherwise than the run"
    return None


def _unlike_first(comparison: Comparison, name: str, header: Header) -> Iterator[str]:
    """The facts of a run that are not those of its name, or of the first run of this engine. A name
    begins with the policy or the other engine; after a comma it may say more, as titles do.
    """
    first = next((t.header for t in comparison.traces.values() if t.header.engine is None), header)
    of_all: tuple[str, ...] = _OF_ALL
    if name.partition(",")[0] != (header.engine or header.policy).name:
        yield "engine" if header.engine else "policy"
    if header.engine is not None:
        of_all = () if header.device in ("", NOT_KNOWN) else ("device",)
        of_all += ("dtype",) if header.dtype else ()
    yield from (fact for fact in of_all if getattr(header, fact) != getattr(first, fact))


def as_text(plain: Any) -> str:
    """The data as JSON in one order, in which `true` is not 1."""
    return json.dumps(plain, sort_keys=True)


def _wrong_time(comparison: Comparison, name: str) -> str | None:
    """The name of the first time or rate of a contender that does not fit the others."""
    found, walls = comparison.medians[name], comparison.walls[name]
    seconds = found.get("wall_s")
    if seconds is None:
        return None
    if not _stopped_by(seconds, statistics.median(walls)):
        return "wall_s"
    return wrong_time(found, walls, comparison.outputs_identical and not comparison.is_cut)


def wrong_time(found: Mapping[str, Any], walls: Sequence[float], is_same: bool) -> str | None:
    """The name of the first time or rate in a run's metrics, or in their medians over rounds of
    `walls` seconds, that does not fit the others. is_same: every round has the same counts.
    """
    seconds = found["wall_s"]
    # The median of an odd number of rates is that of the median round; of an even number it is the
    # mean of two, whose times are `apart` from their own mean.
    apart = max(0.0, sorted(walls)[len(walls) // 2] / seconds - 1) if len(walls) % 2 == 0 else 0.0
    rounded = _ROUNDED / seconds
    for rate, counts in _RATES.items() if is_same else ():
        if found.get(rate) is not None:
            follows = sum(found[count] for count in counts) / seconds
            most = follows / (1 - apart**2) if apart < 1 else math.inf
            if not follows * (1 - rounded) <= found[rate] <= most * (1 + rounded):
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
    # holds for every request, so for their sorted times too, and for medians over rounds
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
    if min(parts.values(), default=0) < 0:
        return "time_s"
    # in at least half of the rounds each part takes its median or longer; the host's may overlap
    device = sum(parts.get(name, 0) for name in ("forward", "sample", "other", "between"))
    most = sum(walls) / (len(walls) // 2 + 1)
    is_more = device > most + _ROUNDED or max(parts.values(), default=0) > seconds + _ROUNDED
    return "time_s" if is_more else None


def _stopped_by(seconds: float, late: float) -> bool:
    """Whether a stopwatch may have measured `late` seconds for a run of `seconds`."""
    return seconds - _ROUNDED <= late <= seconds + max(_AROUND[0], _AROUND[1] * seconds)


def _same(one: Any, other: Any) -> bool:
    """Whether two metrics are equal except for the last digit: Python 3.12 sums more exactly."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other
