"""Arrivals, lengths and the sweep, on a simulated engine: no test here waits or times anything."""

from __future__ import annotations

import functools
import itertools
import json
import math
import statistics
from typing import Any

import numpy as np
import pytest

from core import EngineConfig, InflightError, Workload
from core.account.request_times import SLOs
from core.measure.load import Sweep, _run, adds_up, capacity, sweep_load, workload
from core.simulate.cost import Load
from core.simulate.engine import SimulatedEngine
from core.simulate.fitted import Linear
from core.workload.arrivals import Lengths, RequestSize, arrivals, request, sizes_in
from worlds.small import requests

COST = Linear(0.010, 0.0001, 0.0, 100, Load(1000, 10**9))


def _engine(policy: str = "continuous", **limits: Any) -> SimulatedEngine:
    config = EngineConfig(policy=policy, max_num_seqs=4, **limits)
    return SimulatedEngine(COST, config, vocab_size=100, max_model_len=200)


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_and_spread_of_a_gamma_process(burstiness):
    times = list(itertools.islice(arrivals(5.0, seed=3, burstiness=burstiness), 20_000))
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert times[0] == 0 and statistics.mean(gaps) == pytest.approx(0.2, rel=0.05)
    assert statistics.pstdev(gaps) / statistics.mean(gaps) == pytest.approx(
        1 / math.sqrt(burstiness), rel=0.06
    )
    assert times == list(itertools.islice(arrivals(5.0, seed=3, burstiness=burstiness), 20_000))


def test_an_infinite_rate_and_refusals():
    assert list(itertools.islice(arrivals(math.inf), 3)) == [0, 0, 0]
    for rate, burstiness in ((0, 1), (-1, 1), (math.nan, 1), (1, 0), (1, math.inf)):
        with pytest.raises(InflightError):
            arrivals(rate, burstiness=burstiness)
    for bad in (
        {"rates": (0.0,)},
        {"seconds": math.inf},
        {"seconds": 0.0},
        {"fractions": (math.nan,)},
        {"fractions": None},
        {"rates": iter((1.0,))},  # could be read only once
        {"rates": np.array([1.0, 2.0])},
    ):
        with pytest.raises(InflightError):
            Sweep(**bad)


def test_lengths():
    sizes = list(itertools.islice(Lengths("7", "3-5").sizes(1), 200))
    assert {s.prompt_tokens for s in sizes} == {7} and {s.output_tokens for s in sizes} == {3, 4, 5}
    long_tail = [s.output_tokens for s in itertools.islice(Lengths("1", "~32").sizes(1), 20_000)]
    assert min(long_tail) >= 1 and statistics.mean(long_tail) == pytest.approx(32, rel=0.05)
    short = [s.output_tokens for s in itertools.islice(Lengths("1", "~3").sizes(1), 20_000)]
    assert statistics.mean(short) == pytest.approx(3, rel=0.03)
    ones = itertools.islice(Lengths("~1", "1").sizes(1), 200)
    assert {s.prompt_tokens for s in ones} == {1}
    for text in ("", "0", "5-2", "~0", "x", "1-2-3", "-4"):
        with pytest.raises(InflightError, match="is no length"):
            Lengths(text)


def test_lines_of_lengths():
    lines = [
        "[10, 5, 100.5]\n",
        "\n",
        '{"prompt_tokens": 20, "output_tokens": 6, "arrival": 100.0}\n',
    ]
    assert sizes_in(lines, "trace.jsonl") == [RequestSize(20, 6, 0.0), RequestSize(10, 5, 0.5)]
    assert sizes_in(["[10, 5]\n", "[3, 4]\n"], "trace.jsonl") == [
        RequestSize(10, 5),
        RequestSize(3, 4),
    ]


@pytest.mark.parametrize(
    "text, fault",
    [
        ("", "holds no requests"),
        ("x", "line 1"),
        ("[1, 2]\n[0, 2]", "line 2"),
        ("[1, 2]\n[1, 2, 3]", "arrival"),
        ('[1, "2"]', "line 1"),
        ("[1, 2, -1]", "line 1"),
        ("5", "line 1"),
        ("null", "line 1"),
        ("[" * 100_000, "line 1: this is no request"),
    ],
    ids=lambda given: given[:20],
)
def test_lines_of_something_else(text, fault):
    with pytest.raises(InflightError, match=fault):
        sizes_in(text.splitlines(), "bad.jsonl")


def test_requests_are_cut_to_the_context():
    cut = request(0, RequestSize(500, 500), 1.5, 100, 200)
    assert (
        len(cut.prompt_token_ids) == 199 and cut.sampling.max_new_tokens == 1 and cut.arrival == 1.5
    )
    made = [
        request(n, RequestSize(5, 5), 0, 100, 200, seed) for n, seed in ((3, 1), (4, 1), (3, 2))
    ]
    assert made[0] == request(3, RequestSize(5, 5), 0, 100, 200, seed=1)
    assert len({one.prompt_token_ids for one in made}) == 3


def test_the_requests_of_a_point_arrive_within_three_quarters_of_its_time():
    requests = workload(Sweep(seconds=8.0, lengths=Lengths("5", "5")), 10.0, _engine().model)
    assert (
        requests.arrival_unit == "s"
        and 30 < len(requests) < 95
        and max(r.arrival for r in requests) <= 6
    )
    assert len(workload(Sweep(seconds=0.1), 0.001, _engine().model)) == 1


def test_a_seed_is_that_of_arrivals_lengths_and_prompts():
    """And the same seed gives the same requests. The capacity is of requests of that seed too."""
    sweep = Sweep(seconds=8.0, lengths=Lengths("2-40", "2-40"), seed=3)
    sizes = list(itertools.islice(sweep.lengths.sizes(3), 200))
    due = itertools.takewhile(lambda at: at <= 6, arrivals(10.0, 3, 1.0))
    expected = [
        request(i, size, at, 100, 200, 3)
        for i, (at, size) in enumerate(zip(due, sizes, strict=False))
    ]
    assert list(workload(sweep, 10.0, _engine().model)) == expected
    engine = _engine(max_num_batched_tokens=4096)
    assert capacity(sweep, engine, requests=9) > 0
    ran = engine.trace.workload
    assert list(ran) == [request(i, size, 0.0, 100, 200, 3) for i, size in enumerate(sizes[:9])]


def test_a_trace_of_arrivals_is_replayed_at_the_rate():
    sizes = tuple(RequestSize(5, 5, at) for at in (0.0, 1.0, 1.5, 10.0))  # 0.3 a second
    requests = workload(Sweep(sizes=sizes), 0.6, _engine().model)
    assert [r.arrival for r in requests] == pytest.approx([0.0, 0.5, 0.75, 5.0])
    assert len(workload(Sweep(sizes=sizes, seconds=4.0), 0.6, _engine().model)) == 3


def test_capacity_is_what_the_lanes_can_do():
    # four lanes, ten tokens each: a wave of four takes one pass of 20 tokens and nine of 4
    sweep = Sweep(lengths=Lengths("5", "10"))
    assert capacity(sweep, _engine(), requests=4) == pytest.approx(
        4 / (10 * 0.010 + (20 + 9 * 4) * 0.0001), rel=1e-6
    )
    with pytest.raises(InflightError, match="capacity is unknown"):
        capacity(
            Sweep(seconds=1e-9, lengths=Lengths("150", "10")),
            SimulatedEngine(COST, EngineConfig(max_num_batched_tokens=16), max_model_len=200),
        )


def test_a_sweep_of_no_engine_is_refused():
    for rates in ((1.0,), None):
        with pytest.raises(InflightError, match="A sweep needs an engine"):
            sweep_load({}, Sweep(rates, seconds=1.0))


@pytest.mark.slow
def test_a_sweep_draws_throughput_against_latency():
    engines = {"static": _engine("static"), "continuous": _engine()}
    asked = []
    sweep = Sweep(seconds=10.0, lengths=Lengths("5", "2-20"), slos=SLOs(ttft_s=0.2))
    data = sweep_load(engines, sweep, lambda policy, rate: asked.append((policy, rate)))
    points = data["points"]
    assert (
        data["source"] == "simulated"
        and len(points) == 12
        and len(asked) == 14
        and math.isinf(asked[0][1])
    )
    # they take turns
    assert [p["policy"] for p in asked_order(asked)[:4]] == [
        "static",
        "continuous",
        "continuous",
        "static",
    ]
    assert [round(p["rate"] / data["capacity_requests_per_s"], 2) for p in points[:6]] == [
        0.25,
        0.5,
        0.75,
        0.9,
        1.0,
        1.2,
    ]
    assert data["capacities"]["continuous"] == data["capacity_requests_per_s"]
    assert data["capacities"]["static"] < data["capacities"]["continuous"]
    static, continuous = points[:6], points[6:]
    assert all(p["offered"] == q["offered"] for p, q in zip(static, continuous, strict=True))
    # a queue builds up
    assert static[-1]["numbers"]["ttft_s"]["p50"] > static[0]["numbers"]["ttft_s"]["p50"]
    assert all(
        c["numbers"]["ttft_s"]["p50"] < s["numbers"]["ttft_s"]["p50"]
        for s, c in zip(static[3:], continuous[3:], strict=True)
    )
    assert continuous[-1]["numbers"]["goodput"]["share"] > static[-1]["numbers"]["goodput"]["share"]
    json.dumps(data, allow_nan=False)


@pytest.fixture(scope="module")
def swept():
    engines = {"static": _engine("static"), "continuous": _engine()}
    sweep = Sweep(seconds=10.0, lengths=Lengths("5", "2-20"), slos=SLOs(ttft_s=0.2))
    return json.dumps(sweep_load(engines, sweep))


@pytest.mark.parametrize(
    ("way", "by"),
    [
        *((("points", 3, name), by) for name, by in (("rate", 1.0), ("offered", 1))),
        (("points", 0, "cut"), 1),
        *((("points", 3, "numbers", name), 1) for name in ("wall_s", "finished", "output_tokens")),
        *((("points", 3, "numbers", name), 0.1) for name in ("output_tok_s", "requests_per_s")),
        *((("points", 9, "numbers", name), 0.01) for name in ("padding_waste", "lane_occupancy")),
        (("points", 9, "numbers", "budget_use"), 0.01),
        (("points", 9, "numbers", "kv_use"), 1.0),
        *((("points", 9, "numbers", "ttft_s", name), 1.0) for name in ("p50", "p90", "mean")),
        (("points", 9, "numbers", "time_s", "forward"), 20.0),
        (("points", 9, "numbers", "time_s", "between"), -5.0),
        (("points", 9, "numbers", "lane_steps", "empty"), 1),
        (("points", 9, "numbers", "positions", "tokens"), 1),
        (("points", 9, "numbers", "goodput", "met"), 1),
        *(
            (("points", 9, "numbers", name), 1)
            for name in ("steps", "cached_tokens", "preemptions")
        ),
        *((("points", 9, "numbers", name), 0.5) for name in ("passes", "prompt_tokens")),
        (("points", 9, "numbers", "passes"), -1),
        (("points", 9, "numbers", "overrun_rows"), 10**6),
        (("points", 0, "numbers", "budget_tokens", "used"), 1),
        (("points", 9, "numbers", "goodput", "slos", "ttft_s"), 0.1),
        (("points", 9, "numbers", "goodput", "requests_per_s"), 0.1),
        *(
            (("points", at, "numbers", name, of), 1)
            for at in (0, 9)
            for name in ("ttft_s", "itl_s", "tpot_s", "e2e_s", "queue_s")
            for of in ("count", "left_out")
        ),
        *(((name,), 1) for name in ("seed", "burstiness", "seconds_a_point")),
        (("capacity_requests_per_s",), 1),
    ],
)
def test_a_sweep_that_was_altered_does_not_add_up(swept, way, by):
    data, model = json.loads(swept), _engine().model
    assert adds_up(data, model)
    *inside, last = way
    functools.reduce(lambda inner, key: inner[key], inside, data)[last] += by
    assert not adds_up(data, model)


@pytest.mark.parametrize(
    "more",
    [{"source": "live"}, {"hardware": "H100"}, {"capacities": {"nobody": 1.0}}],
    ids=str,
)
def test_a_sweep_says_nothing_that_nobody_writes_there(swept, more):
    data, model = json.loads(swept), _engine().model
    assert adds_up(data, model, is_simulated=True)
    if "capacities" in more:
        more = {"capacities": data["capacities"] | more["capacities"]}
    assert not adds_up(data | more, model, is_simulated=True)


@pytest.mark.parametrize("policy", ["sequential", "static", "continuous"])
@pytest.mark.parametrize(
    "limits", [{}, {"num_blocks": 30}, {"max_num_batched_tokens": 32}], ids=str
)
def test_a_sweep_adds_up_as_it_was_made(policy, limits):
    """One request at a time holds one block of 30 throughout: the share is rounded up."""
    sweep = Sweep(rates=(1.0, 8.0), seconds=4.0, lengths=Lengths("5", "9"), burstiness=0.3)
    engine = _engine(policy, **limits)
    assert adds_up(json.loads(json.dumps(sweep_load({policy: engine}, sweep))), engine.model)


@pytest.mark.parametrize("output", ["70", "150"])
def test_a_point_that_was_cut_around_its_first_answer_adds_up(output):
    """Who had no answer yet is among the times, but not in their count."""
    engine, sweep = _engine("sequential"), Sweep((30.0,), seconds=1.0, lengths=Lengths("5", output))
    data = json.loads(json.dumps(sweep_load({"sequential": engine}, sweep)))
    numbers = data["points"][0]["numbers"]
    assert numbers["finished"] == (output == "70") and numbers["e2e_s"]["left_out"] > 10
    assert adds_up(data, engine.model)
    numbers["preemptions"] = 1  # and whoever it was has computed nothing again
    assert adds_up(data, engine.model)


def test_a_part_of_the_time_that_was_not_recorded_is_none_of_a_sweeps_faults(swept):
    data, model = json.loads(swept), _engine().model
    for point in data["points"]:
        time_s = point["numbers"]["time_s"]
        time_s |= {"schedule": None, "other": time_s["other"] + time_s["schedule"]}
    assert adds_up(data, model)


def test_who_has_no_limit_to_keep_is_among_the_good(swept):
    data, model = json.loads(swept), _engine().model
    data["slos"] = dict.fromkeys(data["slos"])
    for point in data["points"]:
        goodput, numbers = point["numbers"]["goodput"], point["numbers"]
        goodput |= {"slos": data["slos"], "met": numbers["finished"]}
        goodput |= {"share": 1.0 if not point["cut"] else numbers["finished"] / numbers["requests"]}
        goodput |= {"requests_per_s": numbers["requests_per_s"]}
    assert adds_up(data, model)
    goodput = data["points"][0]["numbers"]["goodput"]
    goodput |= {"met": 0, "share": 0.0, "requests_per_s": 0.0}
    assert not adds_up(data, model)


def test_each_policy_of_a_sweep_has_every_rate_and_its_own_numbers():
    engines = {"static": _engine("static"), "continuous": _engine()}
    data = sweep_load(engines, Sweep(rates=(1.0, 2.0), seconds=5.0, lengths=Lengths("5", "9")))
    model = engines["static"].model
    assert adds_up(data, model)
    assert not adds_up(data | {"points": data["points"][1:]}, model)
    others = {"static": "continuous", "continuous": "static"}
    swapped = [{**point, "policy": others[point["policy"]]} for point in data["points"]]
    assert not adds_up(data | {"points": swapped}, model)


def asked_order(asked):
    return [{"policy": policy} for policy, rate in asked if not math.isinf(rate)]


def test_a_point_that_is_done_as_its_time_is_up_is_not_cut():
    asked = Workload(requests((5, 8), (5, 8), (5, 9)), arrival_unit="s")
    trace, cut = _run(_engine(), asked, math.inf)
    assert not cut
    before, last = trace.events[-2:]
    assert not _run(_engine(), asked, last.t_end)[1] and _run(_engine(), asked, before.t_end)[1]


def test_a_point_whose_time_is_up_is_cut_and_the_engine_is_free_again():
    engines = {"continuous": _engine()}
    data = sweep_load(engines, Sweep(rates=(1000.0,), seconds=1.0, lengths=Lengths("5", "50")))
    point = data["points"][0]
    assert (
        point["cut"]
        and point["numbers"]["finished"] < point["offered"]
        and point["numbers"]["wall_s"] < 1.2
    )
    assert not engines["continuous"].has_work
