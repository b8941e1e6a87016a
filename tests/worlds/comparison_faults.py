"""Checks whether a record of a comparison, or of a sweep of rates, contradicts itself: rounds, runs
and statements.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from core.account.request_times import SLOs
from core.config import POLICIES
from core.measure.baselines.records import BaselineRun
from core.measure.compare import Comparison, environment, first_differences, nearest_to_median
from core.measure.load import Sweep, workload
from core.trace.header import SIMULATED, ModelFacts
from core.trace.trace import Trace
from core.workload.arrivals import Lengths
from core.workload.workload import Workload

_OF_A_RUN = ("device", "threads", "dtype", "model", "versions")  # also in the header of a run
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
        for key in () if comparison.is_cut else (*_WRITTEN, *_SPREADS):
            if _count(comparison.medians[name][key]) not in (None, _count(traced[0].metrics[key])):
                return f"has {key} of {name} otherwise than who wrote the same"
    return None


def _may_differ(comparison: Comparison, told: Mapping[str, Any]) -> bool:
    """Whether `first_differences` can have returned this; the round is not on record."""
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
    """What is wrong with the turns of a contender, with or without a trace."""
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
            *(k for k in _SPREADS if _count(medians[k]) != _count(run.metrics[k])),
        ]:
            return f"has {wrong[0]} otherwise than the run"
    return None


def _wrong_time(comparison: Comparison, name: str) -> str | None:
    """The name of the first time or rate of a contender that does not fit the others."""
    found, walls = comparison.medians[name], comparison.walls[name]
    seconds = found.get("wall_s")
    if seconds is None:
        return None
    if not _stopped_by(seconds, statistics.median(walls)):
        return "wall_s"
    # the median of an odd number is that of the median round
    is_one = len(walls) % 2 == 1 and comparison.outputs_identical and not comparison.is_cut
    return wrong_time(found, walls, is_one)


def wrong_time(found: Mapping[str, Any], walls: Sequence[float], is_one: bool) -> str | None:
    """The name of the first time or rate in a run's metrics, or in their medians over rounds of
    `walls` seconds, that does not fit the others. is_one: rates are of the median round.
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


# -- a sweep of rates ------------------------------------------------------------------------------


def adds_up(load: Mapping[str, Any], model: ModelFacts, is_simulated: bool | None = None) -> bool:
    """Whether a recorded sweep, as from `sweep_load`, agrees with itself and with the requests made
    up for its rates, and has no other fields. model: the one that was measured. is_simulated:
    whether the run was simulated; None if unknown.
    """
    if not _KEYS <= set(load) <= _KEYS | _LATER_KEYS or (
        is_simulated is not None and load["source"] != (SIMULATED if is_simulated else "live")
    ):
        return False
    points, capacities = load["points"], load.get("capacities")
    rates: dict[str, list[float]] = {}
    for point in points:
        rates.setdefault(point["policy"], []).append(point["rate"])
    is_made_up = isinstance(load["lengths"], Mapping)  # not from a file
    sweep = Sweep(
        None,
        seconds=load["seconds_a_point"],
        burstiness=load["burstiness"] or 1.0,
        seed=load["seed"],
        lengths=Lengths(**load["lengths"]) if is_made_up else Lengths(),
        slos=SLOs(**load["slos"]),
    )
    return (
        all(of == sorted(set(of)) for of in rates.values())
        and (not load.get("complete", True) or len(set(map(tuple, rates.values()))) == 1)
        and (not capacities or load["capacity_requests_per_s"] == max(capacities.values()))
        and (not load.get("complete", True) or (capacities or {}).keys() <= rates.keys())
        and all(
            _fits(point, load, workload(sweep, point["rate"], model) if is_made_up else None)
            for point in points
        )
    )


_KEYS = {
    "source",
    "capacity_requests_per_s",
    "seconds_a_point",
    "burstiness",
    "seed",
    "lengths",
    "slos",
    "points",
}
_LATER_KEYS = {"complete", "capacities"}  # not in the first recordings
_COUNTS = (
    "steps",
    "passes",
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
    "preemptions",
    "tokens_recomputed",
    "overrun_rows",
)


def _fits(point: Mapping[str, Any], load: Mapping[str, Any], asked: Workload | None) -> bool:
    numbers, offered, cut = point["numbers"], point["offered"], point["cut"]
    wall, lanes, positions = numbers["wall_s"], numbers["lane_steps"], numbers["positions"]
    budget, blocks, goodput = numbers["budget_tokens"], numbers["kv_blocks"], numbers.get("goodput")
    policy = POLICIES.get(point["policy"])
    counts = [numbers["finished"], numbers["requests"], offered]
    # each token but a request's last is computed once, and again after a preemption
    computed = numbers["prompt_tokens"] + numbers["output_tokens"] - offered
    computed += numbers["tokens_recomputed"] - numbers["cached_tokens"]
    shares = [
        (numbers["padding_waste"], positions["padding"], positions["computed"]),
        (numbers["lane_occupancy"], lanes["useful"], lanes["total"]),
        (numbers["budget_use"], budget["used"], budget["limit"]),
        *([(goodput["share"], goodput["met"], numbers["requests"])] if goodput else ()),
    ]
    if asked is not None and not cut:
        tokens = [len(r.prompt_token_ids or ()) + r.sampling.max_new_tokens for r in asked]
        several = sum(r.sampling.max_new_tokens > 1 for r in asked)
        if (
            numbers["prompt_tokens"] + numbers["output_tokens"] != sum(tokens)
            or numbers["tpot_s"]["count"] != several
        ):
            return False
    return (
        set(point) == {"policy", "rate", "offered", "cut", "numbers"}
        and all(type(numbers[name]) is int and numbers[name] >= 0 for name in _COUNTS)
        and numbers["steps"] <= numbers["passes"]
        and (lanes["total"] % numbers["steps"] == 0 if numbers["steps"] else not lanes["total"])
        and (cut or positions["tokens"] == computed)
        and bool(numbers["tokens_recomputed"]) <= bool(numbers["preemptions"])
        and bool(numbers["preemptions"])
        <= (cut or bool(numbers["tokens_recomputed"] + numbers["cached_tokens"]))
        and numbers["overrun_rows"] <= positions["padding"]
        and 0 <= budget["used"] <= budget["limit"]
        and (policy is None or bool(budget["limit"]) == policy.token_budget)
        and counts == sorted(counts)
        and (wall > 0.9 * load["seconds_a_point"] if cut else len(set(counts)) == 1)
        and (asked is None or offered == len(asked))
        and all(share == (part / whole if whole else None) for share, part, whole in shares)
        and positions["computed"] == positions["tokens"] + positions["padding"]
        and 2 * lanes["total"] == sum(lanes.values())
        and 0 <= numbers["kv_use"] * blocks["total"] <= blocks["peak"] * (1 + 1e-9)
        and blocks["peak"] <= blocks["total"]
        and _are_of_all(numbers)
        and (goodput is None or _is_of_met(goodput, load["slos"], numbers))
        and sum(part or 0.0 for part in numbers["time_s"].values()) > 0.99 * wall
        and wrong_time(numbers, [wall], True) is None
    )


def _are_of_all(numbers: Mapping[str, Any]) -> bool:
    """Whether each distribution has one value per request, or per gap between tokens."""
    first, gap, per_token, end, queue = (
        (numbers[of]["count"], numbers[of]["left_out"])
        for of in ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s")
    )
    return (
        all(sum(of) == numbers["requests"] for of in (first, end, queue))
        and per_token[0] <= end[0] == numbers["finished"] <= first[0] <= queue[0]
        and gap == (numbers["output_tokens"] - first[0], 0)
        and not per_token[1]
    )


def _is_of_met(
    goodput: Mapping[str, Any], slos: Mapping[str, Any], numbers: Mapping[str, Any]
) -> bool:
    """Whether a goodput has these limits and follows from the requests that met them."""
    met, wall = goodput["met"], numbers["wall_s"]
    return (
        goodput["slos"] == slos
        and (met == numbers["finished"] or (met < numbers["finished"] and any(slos.values())))
        and math.isclose(goodput["requests_per_s"], met / wall, rel_tol=1e-6 / wall)
    )
