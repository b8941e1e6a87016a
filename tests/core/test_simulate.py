"""Simulated runs: the arithmetic of costs and fits, the same events as a real run, memory that does not grow."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from core import Engine, EngineConfig, InflightError, Request, SamplingParams, Trace, Workload
from core.measure.metrics import metrics
from core.simulate.cost import Linear, Load, Roofline, cost_named, fit, fit_loads, measured
from core.simulate.engine import SimulatedEngine
from core.simulate.totals import LogHistogram, run_stream
from worlds.small import MemoryModel

COST = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))


def _requests(count: int, prompt: int = 4, new: int = 3, gap: float = 0.0):
    for index in range(count):
        sampling = SamplingParams(max_new_tokens=new, ignore_eos=True)
        yield Request(f"r{index}", prompt_token_ids=(1,) * prompt, sampling=sampling, arrival=index * gap)


def test_a_pass_takes_what_it_costs():
    engine = SimulatedEngine(COST, EngineConfig(max_num_seqs=2))
    trace = engine.run(Workload(list(_requests(2))))
    first, second, third = trace.events
    assert first.t_end - first.t_start == pytest.approx(0.010 + 8 * 0.001 + 8 * 100e-6)  # 8 positions, which read each other
    assert second.t_end - second.t_start == pytest.approx(0.010 + 2 * 0.001 + 10 * 100e-6)
    assert third.t_start == second.t_end
    assert trace.header.is_simulated and trace.header.cost["kind"] == "fitted"
    assert trace.complete and [len(ids) for ids in trace.outputs.values()] == [3, 3]


def test_padding_costs_too():
    workload = Workload(
        [*_requests(1, prompt=10), Request("long", prompt_token_ids=(1,) * 30, sampling=SamplingParams(3, ignore_eos=True))]
    )
    packed, padded = (
        SimulatedEngine(COST, EngineConfig(policy=policy, max_num_seqs=2)).run(workload).events[0]
        for policy in ("continuous", "static")
    )
    assert (padded.t_end - padded.t_start) - (packed.t_end - packed.t_start) == pytest.approx(20 * 0.001)


def test_time_is_simulated_and_jumps_to_the_next_arrival():
    trace = SimulatedEngine(COST, EngineConfig(max_num_seqs=2)).run(Workload(list(_requests(2, gap=40.0)), arrival_unit="s"))
    numbers = metrics(trace)
    assert 40 < numbers["wall_s"] < 41 and numbers["time_s"]["between"] > 39
    assert numbers["ttft_s"]["max"] == pytest.approx(0.010 + 4 * 0.001 + 4 * 100e-6)


@pytest.mark.parametrize("policy", ["continuous", "static", "dynamic", "split-chunked"])
def test_the_same_decisions_as_the_real_engine_and_a_trace_that_holds(policy, tmp_path):
    workload = Workload(
        [
            *_requests(7, prompt=9, new=5),
            Request("late", prompt_token_ids=(1,) * 5, sampling=SamplingParams(4, ignore_eos=True), arrival=6),
        ]
    )
    config = EngineConfig(policy=policy, max_num_seqs=3, max_num_batched_tokens=12, num_blocks=12, block_size=4)
    real, simulated = Engine(MemoryModel(), None, config).run(workload), SimulatedEngine(COST, config).run(workload)
    facts = ("step", "admitted", "waiting", "preempted", "stalled", "segments", "finished", "kv", "budget")
    assert [[getattr(e, name) for name in facts] for e in simulated.events] == [
        [getattr(e, name) for name in facts] for e in real.events
    ]
    simulated.recorded_texts = None
    simulated.save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl").header.is_simulated


def test_a_fit_finds_the_cost_it_was_made_from():
    loads = [Load(tokens, kv) for tokens, kv in itertools.product((1, 2, 8, 32, 100), (1000, 5000, 40_000, 90_000))]
    found = fit_loads(loads, [COST.seconds(load) for load in loads], 100)
    assert (found.base_s, found.per_token_s, found.per_kv_byte_s) == pytest.approx((0.010, 0.001, 1e-6))
    assert found.error["held_out_passes"] == 5 and found.error["p90"] == pytest.approx(0, abs=1e-6)
    assert found.most == Load(100, 90_000) and not found.beyond(Load(100, 1)) and found.beyond(Load(101, 1))


def test_no_cost_is_negative_and_the_error_is_that_of_held_out_passes():
    loads = [Load(n, 10 * n) for n in range(1, 41)]
    times = [0.01 + 0.001 * n for n in range(1, 41)]
    times[3::4] = [2 * t for t in times[3::4]]  # the passes that are held out
    found = fit_loads(loads, times, 1)
    assert min(found.base_s, found.per_token_s, found.per_kv_byte_s) >= 0
    assert found.error["median"] == pytest.approx(0.5, abs=0.01) and found.error["total"] == pytest.approx(-0.5, abs=0.01)


def test_a_measured_trace_can_be_fitted_and_a_simulated_one_cannot():
    config = EngineConfig(max_num_seqs=2)
    trace = SimulatedEngine(COST, config).run(Workload(list(_requests(6, new=8))))
    with pytest.raises(InflightError, match="measured nothing"):
        fit(trace)
    trace.header = replace(trace.header, source="live")
    found = fit(trace)
    assert found.kv_bytes_per_token == 100
    assert found.seconds(Load(2, 2000)) == pytest.approx(COST.seconds(Load(2, 2000)), rel=0.01)
    with pytest.raises(InflightError, match="too few"):
        fit_loads([Load(1, 1)] * 7, [1.0] * 7, 1)
    with pytest.raises(InflightError, match="too coarse"):  # whole milliseconds, in some browsers
        fit_loads([Load(n, n) for n in range(8)], [0.001] * 7 + [0.0], 1)


def test_the_rest_of_a_step_is_shared_by_its_passes():
    trace = SimulatedEngine(COST, EngineConfig(policy="split", max_num_seqs=2)).run(Workload(list(_requests(1))))
    event = trace.events[0]
    loads, seconds = measured([event], 100)
    assert loads == [Load(4, 400), Load(1, 500)]
    assert sum(seconds) == pytest.approx(event.t_end - event.t_start)


def test_by_hand():
    cost = Roofline.named("h100", "8b")
    decode, prefill = cost.seconds(Load(1, 0)), cost.seconds(Load(8192, 0))
    assert decode == pytest.approx(200e-6 + 16e9 / (3.35e12 * 0.6))  # reading the weights
    assert prefill == pytest.approx(200e-6 + 8192 * 16e9 / (989e12 * 0.6))  # computing the tokens
    assert cost.kv_bytes_per_token == 131_072
    engine = SimulatedEngine(cost, EngineConfig(max_num_seqs=2))
    assert engine.beyond is None
    engine.run(Workload(list(_requests(2))))
    assert "data sheets" in engine.beyond
    for spec in ("h900:8b", "h100:9b", "nothing"):
        with pytest.raises(InflightError):
            cost_named(spec)


def test_beyond_what_was_measured_is_said():
    engine = SimulatedEngine(COST, EngineConfig(max_num_seqs=2))
    engine.run(Workload(list(_requests(2, prompt=6))))  # 12 positions in the first pass of three; 8 were measured
    assert engine.beyond.startswith("33 % of the simulated passes lie beyond")


def test_a_flow_equals_the_run_and_forgets():
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=16, num_blocks=64)
    requests = list(_requests(60, gap=0.02))
    trace = SimulatedEngine(COST, config).run(Workload(requests, arrival_unit="s"))
    engine = SimulatedEngine(COST, config, window=10)
    totals = run_stream(engine, iter(requests))
    numbers = metrics(trace)
    told = totals.to_json()
    for name in ("steps", "finished", "output_tokens", "preemptions"):
        assert told[name] == numbers[name]
    assert told["wall_s"] == pytest.approx(numbers["wall_s"])
    for name in ("ttft_s", "itl_s", "e2e_s"):
        assert told[name]["count"] == numbers[name]["count"]
        assert told[name]["mean"] == pytest.approx(numbers[name]["mean"], rel=1e-3)
        assert told[name]["p50"] == pytest.approx(numbers[name]["p50"], rel=0.05)  # not interpolated between neighbours
    kept = engine.trace.events
    assert set(engine.trace.asked) <= {f"r{i}" for i in range(40, 60)}
    assert sum(len(e.sampled) for e in kept) >= 10 > sum(len(e.sampled) for e in kept[1:])
    assert kept[-1].step == trace.events[-1].step and kept[-1].segments == trace.events[-1].segments
    assert (
        not engine._params
        and not engine._requests
        and not engine._scheduler.requests
        and not totals._latest
        and not totals._arrival
    )


def test_percentiles_of_a_histogram():
    histogram = LogHistogram()
    for value in range(1, 1001):
        histogram.add(value / 1000)
    assert histogram.percentile(50) == pytest.approx(0.5, rel=0.015) and histogram.percentile(99) == pytest.approx(
        0.99, rel=0.015
    )
    histogram.add(0.0, 5000)
    assert histogram.percentile(50) == 0.0 and histogram.to_json()["max"] == 1.0
    assert LogHistogram().to_json()["p50"] is None
