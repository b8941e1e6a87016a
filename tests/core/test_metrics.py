"""Metrics: cases computed by hand, and every number again from the raw JSON by other means."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.account.delays import delays
from core.account.metrics import (
    DEFINITIONS,
    distribution,
    goodput,
    metrics,
    percentile,
    preemption_s,
    wall_s,
)
from core.account.request_times import SLOs, request_times
from core.config import POLICIES, EngineConfig
from core.errors import InflightError
from core.recorders.convert import import_recording
from core.torch_engine.eager import ModelRunner
from core.trace.events import Carried, Draft, Finished, Overrun, Resumed
from core.trace.header import ExecutionFacts
from core.trace.trace import Trace
from core.workload.request import SamplingParams
from worlds.examples import examples
from worlds.small import MemoryModel, SchedulerWorld, memory_trace
from worlds.small import request as small_request
from worlds.visual import record, request

SIX = [(5, 6), (5, 50), (7, 300), (10, 30), (8, 180), (7, 45)]


DATA = Path(__file__).parents[1] / "data"


def six(policy: str, **limits) -> Trace:
    """The GPT-2 article's six requests at 3 lanes."""
    requests = [request(f"r{i}", prompt, new) for i, (prompt, new) in enumerate(SIX)]
    return record(EngineConfig(policy=policy, max_num_seqs=3, **limits), *requests, num_blocks=100)


def test_static_on_the_six_prompts():
    numbers = metrics(six("static"))
    assert numbers["steps"] == 480
    assert numbers["lane_steps"] == {
        "useful": 611,
        "padding": 829,
        "barrier": 0,
        "stalled": 0,
        "empty": 0,
        "total": 1440,
    }
    assert numbers["lane_occupancy"] == 611 / 1440
    assert numbers["budget_tokens"] == {"used": 0, "limit": 0} and numbers["budget_use"] is None
    # Two waves of 3 rows: their prompts are padded to 7 and to 10, then every step computes 3
    # positions.
    assert numbers["positions"] == {
        "tokens": 42 + 605,
        "padding": 4 + 5 + 829,
        "computed": 3 * (7 + 299 + 10 + 179),
    }


def test_continuous_on_the_six_prompts():
    numbers = metrics(six("continuous"))
    assert (
        numbers["steps"],
        numbers["passes"],
        numbers["output_tokens"],
        numbers["prompt_tokens"],
    ) == (300, 300, 611, 42)
    assert numbers["lane_steps"] == {
        "useful": 611,
        "padding": 0,
        "barrier": 0,
        "stalled": 0,
        "empty": 289,
        "total": 900,
    }
    assert numbers["padding_waste"] == 0
    assert numbers["budget_tokens"] == {"used": 42 + 605, "limit": 300 * 256}
    assert numbers["budget_use"] == (42 + 605) / (300 * 256)
    assert numbers["preemptions"] == numbers["tokens_recomputed"] == 0


def test_times_by_hand():
    """Steps start every 10 ms, last 9 ms, and their only pass ends after 1 ms."""
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 4), request("b", 3, 2, arrival=1))
    a, b = request_times(trace).values()
    assert a.token_times == pytest.approx([0.001, 0.011, 0.021, 0.031])
    assert b.token_times == pytest.approx([0.041, 0.051])
    assert (a.arrival, b.arrival) == (0, 0.01)
    assert (a.first_step, a.finish_step, b.first_step, b.finish_step) == (0, 3, 4, 5)
    assert (a.arrival_step, a.first_token_step) == (0, 0)
    assert (b.arrival_step, b.first_token_step) == (1, 4)
    assert (a.ttft_s, b.ttft_s) == pytest.approx((0.001, 0.031))
    assert (a.queue_s, b.queue_s) == pytest.approx((0, 0.03))
    assert (a.e2e_s, b.e2e_s) == pytest.approx((0.031, 0.041))
    assert (a.tpot_s, b.tpot_s) == pytest.approx((0.01, 0.01))
    numbers = metrics(trace)
    assert numbers["wall_s"] == pytest.approx(0.059)
    assert numbers["itl_s"] == {
        "count": 4,
        "left_out": 0,
        "mean": 0.01,
        "p50": 0.01,
        "p90": 0.01,
        "p99": 0.01,
        "max": 0.01,
    }
    assert numbers["output_tok_s"] == pytest.approx(6 / 0.059)
    assert numbers["total_tok_s"] == pytest.approx(12 / 0.059)
    assert numbers["requests_per_s"] == pytest.approx(2 / 0.059)
    expected = {
        "schedule": 0.006,
        "prepare": 0.0012,
        "forward": 0.003,
        "sample": 0.0018,
        "other": 0.042,
        "between": 0.005,
    }
    assert numbers["time_s"] == pytest.approx(expected)


def test_a_run_begins_with_its_first_arrival_and_not_with_its_first_step():
    trace = record(EngineConfig(), request("r0", 3, 2))
    first = trace.events[0]
    later = [e._replace(t_start=e.t_start + 1, t_end=e.t_end + 1) for e in trace.events]
    trace = replace(trace, events=[later[0]._replace(arrived=first.arrived), *later[1:]])
    assert wall_s(trace) == pytest.approx(trace.events[-1].t_end - first.arrived[0].t)
    assert wall_s(trace) > 1


def test_beside_a_device_the_hosts_parts_are_no_part_of_the_whole():
    """Six steps of 9 ms: the device's parts alone leave 49.2, of which the host's take nothing."""
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 4), request("b", 3, 2, arrival=1))
    execution = ExecutionFacts(asynchronous=True)
    beside = replace(trace, header=replace(trace.header, execution=execution))
    assert metrics(beside)["time_s"]["other"] == pytest.approx(0.0492)


def test_whoever_still_waits_in_a_run_that_was_cut_has_waited_until_its_end():
    """One lane, cut after six steps: A is done, B has its first token, C waits, D has not come."""
    trace = record(
        EngineConfig(max_num_seqs=1),
        request("a", 3, 4),
        request("b", 3, 9, arrival=1),
        request("c", 3, 2, arrival=2),
        request("d", 3, 2, arrival=8),
    )
    numbers = metrics(replace(trace, events=trace.events[:6], complete=False))
    assert (numbers["requests"], numbers["finished"], numbers["prompt_tokens"]) == (3, 1, 6)
    # the last step ends at 59 ms; b came at 10 and c at 20, b's first token at 41
    for name, seen, waits in (
        ("ttft_s", [0.001, 0.031], [0.039]),
        ("queue_s", [0, 0.03], [0.039]),
        ("e2e_s", [0.031], [0.049, 0.039]),
    ):
        assert numbers[name] == distribution(seen, waits), name


def test_overruns_are_computed_for_nobody():
    """A row of B's in a step is declared to be one that ran on: a pad, and no useful lane."""
    trace = record(EngineConfig(max_num_seqs=2), request("a", 3, 4), request("b", 3, 4))
    before = metrics(trace)
    late = trace.events[2]._replace(overrun=(Overrun("b", 1),))
    after = metrics(replace(trace, events=[*trace.events[:2], late, *trace.events[3:]]))
    assert before["positions"] == {"tokens": 12, "padding": 0, "computed": 12}
    assert after["positions"] == {"tokens": 11, "padding": 1, "computed": 12}
    assert (after["overrun_rows"], after["lane_steps"]["useful"]) == (1, 7)
    assert after["lane_steps"]["padding"] == 1


def test_an_accepted_draft_that_is_thrown_away_is_computed_again():
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=16, block_size=2, num_blocks=10)
    trace = record(config, *(request(f"r{i}", 3, 9) for i in range(4)))
    lost = metrics(trace)["tokens_recomputed"]
    first = next(i for i, event in enumerate(trace.events) if event.preempted)
    gone = trace.events[first].preempted[0].request
    last = trace.events[first - 1]
    assert any(s.request == gone for s in last.segments)
    for accepted, fewer in ((1, 0), (0, 1)):
        drafted = last._replace(drafts=(Draft(gone, 1, accepted),))
        told = replace(trace, events=[*trace.events[: first - 1], drafted, *trace.events[first:]])
        assert metrics(told)["tokens_recomputed"] == lost - fewer


def test_of_steps_that_are_not_shown_no_time_is_known():
    """The first five steps are missing: A holds the lane and has five tokens, B has only waited."""
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 8), request("b", 3, 2, arrival=1))
    came = tuple(arrived for event in trace.events[:5] for arrived in event.arrived)
    a, b = Carried("a", 0, 7, (7,) * 5, ((),)), Carried("b", None, 0, (), ((),))
    back = trace.events[5]._replace(resumed=Resumed(0, 4, 5, came, (), (a,), (b,)))
    whole = request_times(trace)
    cut = request_times(replace(trace, events=[back, *trace.events[6:]]))
    a, b = cut["a"], cut["b"]
    assert a.is_unseen and a.first_pass is a.first_step is a.queue_s is None
    assert a.token_times == [None] * 5 + whole["a"].token_times[5:]
    assert (a.first_token_step, a.ttft_s, a.tpot_s) == (5, None, None)
    assert a.itl_s == whole["a"].itl_s[5:] and a.e2e_s == whole["a"].e2e_s
    assert not b.is_unseen and b.token_times == whole["b"].token_times
    assert (b.first_step, b.first_token_step) == (8, 8) and b.queue_s == whole["b"].queue_s


def test_of_who_ended_in_steps_that_are_not_shown_the_last_token_is_not_known():
    trace = record(EngineConfig(max_num_seqs=2), request("a", 3, 4), request("b", 3, 9))
    b = Carried("b", 0, 8, (7, 7), ((),))
    gap = Resumed(3, 4, 2, (), (Finished("a", "length"),), (b,), ())
    back = trace.events[5]._replace(resumed=gap)
    told = replace(trace, events=[*trace.events[:3], back, *trace.events[6:]])
    a = request_times(told)["a"]
    assert a.is_done and a.e2e_s is a.tpot_s is None and a.ttft_s is not None
    assert not a.meets(SLOs(e2e_s=1e9))
    found = goodput(told, SLOs(e2e_s=1e9))  # of which A is neither met nor missed
    assert (found["met"], found["share"]) == (1, 1.0)


def test_where_no_tokens_are_on_record_an_end_has_no_time():
    """As of a model that writes none."""
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 1))
    a = request_times(replace(trace, events=[trace.events[0]._replace(sampled=())]))["a"]
    assert a.is_done and a.ttft_s is a.e2e_s is a.tpot_s is None and a.queue_s is not None


def test_a_refused_draft_is_not_computed_again():
    trace = import_recording(DATA / "vllm-0.32-speculation.raw.jsonl.gz")
    refused = sum(
        draft.drafted - draft.accepted for event in trace.events for draft in event.drafts
    )
    assert refused == 276 and metrics(trace)["tokens_recomputed"] == 0


def test_a_step_of_two_passes_gives_tokens_at_the_end_of_each():
    trace = record(EngineConfig(policy="split", max_num_seqs=2), request("a", 3, 3))
    assert request_times(trace)["a"].token_times == pytest.approx([0.001, 0.002, 0.011])


def test_lanes_behind_the_barrier_are_not_empty():
    """One of two lanes runs while a late request waits for the wave to end."""
    trace = record(
        EngineConfig(policy="static", max_num_seqs=2),
        request("a", 2, 4),
        request("b", 2, 1, arrival=1),
    )
    assert metrics(trace)["lane_steps"] == {
        "useful": 5,
        "padding": 0,
        "barrier": 3,
        "stalled": 0,
        "empty": 2,
        "total": 10,
    }


def test_recomputed_tokens_are_those_lost_to_preemption():
    config = EngineConfig(max_num_seqs=4, max_num_batched_tokens=16, block_size=2, num_blocks=10)
    trace = record(config, *(request(f"r{i}", 3, 9) for i in range(4)))
    numbers = metrics(trace)
    lost = sum(p.tokens_lost for event in trace.events for p in event.preempted)
    assert numbers["preemptions"] > 0
    assert numbers["tokens_recomputed"] == lost > 0
    assert numbers["kv_blocks"] == {"peak": 10, "total": 10}
    cost, reached = 0.0, dict.fromkeys((f"r{i}" for i in range(4)), 0)
    for k, event in enumerate(trace.events):
        for gone in event.preempted:
            back = next(
                e for e in trace.events[k:] if gone.request in {s.request for s in e.segments}
            )
            cost += back.passes[0].t_start - event.t_start
        for segment in event.segments:
            computed = event.passes[segment.pass_index]
            cost += (computed.t_end - computed.t_start) * (segment.start < reached[segment.request])
            reached[segment.request] = max(reached[segment.request], segment.kv_len)
    assert preemption_s(trace) == pytest.approx(cost)


def test_distribution():
    assert distribution([4, 1, 3, 2]) == {
        "count": 4,
        "left_out": 0,
        "mean": 2.5,
        "p50": 2.5,
        "p90": 3.7,
        "p99": 3.97,
        "max": 4,
    }
    nothing = dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    assert distribution([]) == {"count": 0, "left_out": 0, **nothing}
    assert distribution([], [3.0]) == {"count": 0, "left_out": 1, **nothing}
    assert distribution([1, 2], [10]) == {
        "count": 2,
        "left_out": 1,
        "mean": 4.333333,
        "p50": 2,
        "p90": 8.4,
        "p99": 9.84,
        "max": 10,
    }


@given(times=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=2, max_size=30))
def test_the_numbers_of_a_cut_run_are_lower_bounds(times):
    """Whatever those still waiting came to, no number would have been smaller."""
    seen, waited = [t for t, _ in times[::2]], times[1::2]
    cut = distribution(seen, [so_far for so_far, _ in waited])
    whole = distribution([*seen, *(so_far + more for so_far, more in waited)])
    assert all(cut[name] <= whole[name] + 1e-5 for name in ("mean", "p50", "p90", "p99", "max"))


def test_padding_waste_divides_by_positions_not_by_tokens():
    numbers = metrics(six("static"))
    computed = 3 * (7 + 299 + 10 + 179)
    assert numbers["padding_waste"] == (4 + 5 + 829) / computed


def test_a_token_is_there_once_it_is_sampled():
    """The end of a pass is read after sampling: a runner on a clock that every reading moves."""
    reading = iter(range(1000))
    runner = ModelRunner(MemoryModel(), 4, 4, clock=lambda: float(next(reading)))
    world = SchedulerWorld(EngineConfig(), [small_request("a", 3)], num_blocks=4)
    result = runner.launch(world.step().outputs[0], {"a": SamplingParams()})
    assert (
        result.t_end == 3
        and result.t_end - result.t_start == result.prepare + result.forward + result.sample == 3
    )


def test_goodput_counts_who_meets_every_limit():
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 4), request("b", 3, 2, arrival=1))
    assert goodput(trace, SLOs(ttft_s=0.02)) == {
        "slos": {"ttft_s": 0.02, "tpot_s": None, "e2e_s": None},
        "met": 1,
        "share": 0.5,
        "requests_per_s": pytest.approx(1 / 0.059),
    }
    assert goodput(trace, SLOs(ttft_s=0.04, tpot_s=0.02))["met"] == 2
    assert goodput(trace, SLOs(e2e_s=0.035))["met"] == 1
    assert goodput(trace, SLOs(tpot_s=0.005))["met"] == 0
    assert metrics(trace, SLOs(ttft_s=0.02))["goodput"]["met"] == 1
    with pytest.raises(InflightError, match="above 0"):
        SLOs(ttft_s=0)


def test_a_run_cut_short_leaves_out_who_still_waits_and_says_so():
    """After two steps of one lane: a has two of its four tokens, b waits since 0; nothing of b is
    counted that did not run.
    """
    trace = record(EngineConfig(max_num_seqs=1), request("a", 3, 4), request("b", 30, 2))
    cut = replace(trace, events=trace.events[:2], complete=False)
    numbers, end = metrics(cut), cut.events[-1].t_end
    assert (
        numbers["requests"],
        numbers["finished"],
        numbers["output_tokens"],
        numbers["prompt_tokens"],
    ) == (2, 0, 2, 3)
    assert numbers["total_tok_s"] == pytest.approx((2 + 3) / numbers["wall_s"])
    assert (
        numbers["ttft_s"]["count"] == numbers["ttft_s"]["left_out"] == 1
        and numbers["ttft_s"]["max"] == end
    )
    assert (numbers["e2e_s"]["count"], numbers["e2e_s"]["left_out"], numbers["e2e_s"]["p99"]) == (
        0,
        2,
        None,
    )
    assert numbers["queue_s"]["left_out"] == 1 and numbers["tpot_s"]["count"] == 0
    assert goodput(cut, SLOs(ttft_s=9))["met"] == 0
    whole = metrics(trace)
    assert whole["ttft_s"]["left_out"] == whole["e2e_s"]["left_out"] == 0


def test_an_empty_trace_divides_by_nothing():
    trace = record(EngineConfig(), request("a", 3, 4))
    numbers = metrics(replace(trace, events=[]))
    assert (
        numbers["wall_s"] == 0
        and numbers["output_tok_s"] is None
        and numbers["lane_occupancy"] is None
    )
    assert delays(replace(trace, events=[])) == ((), (), ())


def test_every_number_has_a_definition():
    assert set(metrics(six("static"), SLOs(ttft_s=1))) == set(DEFINITIONS)
    assert all(text.endswith(".") for text in DEFINITIONS.values())


rows = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 8), st.integers(0, 6)), min_size=1, max_size=6
)


@examples(60)
@given(
    policy=st.sampled_from(list(POLICIES)),
    plan=rows,
    blocks=st.integers(10, 30),
    lanes=st.integers(1, 4),
)
def test_an_independent_computation_agrees(policy, plan, blocks, lanes):
    """From the JSON lines, by lane and by position, with none of the module's helpers."""
    config = EngineConfig(policy=policy, max_num_seqs=lanes, max_num_batched_tokens=8, block_size=2)
    order = sorted(plan, key=lambda row: row[2])
    trace = record(
        config, *(request(f"r{i}", *row) for i, row in enumerate(order)), num_blocks=blocks
    )
    numbers = metrics(trace)
    events = [data for line in trace.lines() if "kind" not in (data := json.loads(line))]

    arrivals = {name: t for e in events for name, t in e["arrived"]}
    times = {
        name: [e["passes"][s[0]][6] for e in events for s in e["sampled"] if s[1] == name]
        for name in arrivals
    }
    done = {name for e in events for name, _ in e["finished"]}
    assert done == set(arrivals) == set(times)
    assert numbers["ttft_s"]["mean"] == pytest.approx(
        statistics.fmean(t[0] - arrivals[r] for r, t in times.items()), abs=1e-6
    )
    assert numbers["e2e_s"]["max"] == pytest.approx(
        max(t[-1] - arrivals[r] for r, t in times.items()), abs=1e-6
    )
    gaps = [t[i + 1] - t[i] for t in times.values() for i in range(len(t) - 1)]
    assert numbers["itl_s"]["count"] == len(gaps)
    if gaps:
        assert numbers["itl_s"]["p50"] == pytest.approx(statistics.median(gaps), abs=1e-6)
    starts = {}
    for e in events:
        for index, name, *_ in e["segments"]:
            starts.setdefault(name, e["passes"][index][5])
    assert numbers["queue_s"]["mean"] == pytest.approx(
        statistics.fmean(starts[r] - arrivals[r] for r in starts), abs=1e-6
    )

    computed = [
        (name, p)
        for e in events
        for _, name, _, _, start, length, _ in e["segments"]
        for p in range(start, start + length)
    ]
    assert numbers["positions"]["tokens"] == len(computed)
    assert numbers["tokens_recomputed"] == len(computed) - len(set(computed))
    assert numbers["positions"]["computed"] == sum(
        rows * width for e in events for _, rows, width, *_ in e["passes"]
    )
    useful = {(e["step"], lane) for e in events for _, _, lane, *_ in e["segments"]}
    num_lanes = 1 if policy == "sequential" else lanes
    assert numbers["lane_steps"]["useful"] == len(useful)
    assert (
        numbers["lane_steps"]["total"]
        == len(events) * num_lanes
        == sum(numbers["lane_steps"].values()) / 2
    )
    assert min(numbers["lane_steps"].values()) >= 0
    assert numbers["kv_use"] == pytest.approx(
        statistics.fmean(e["kv"][0] / e["kv"][1] for e in events)
    )
    assert sum(numbers["time_s"].values()) == pytest.approx(numbers["wall_s"], abs=1e-5)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_percentiles_are_numpys(values: list[float]) -> None:
    expected = np.percentile(values, (50, 90, 99))
    assert [percentile(sorted(values), share) for share in (50, 90, 99)] == list(expected)


def test_positions_of_a_graph_and_those_that_are_read_are_counted():
    """A prompt of 5 tokens and three new ones: passes of 5, 1 and 1 positions that read 5, 6 and 7;
    a graph of 8 was replayed for the first.
    """
    trace = memory_trace((5, 3))
    first = trace.events[0]
    graph = first._replace(passes=(first.passes[0]._replace(bucket=8),))
    trace = replace(trace, events=[graph, *trace.events[1:]])
    assert metrics(trace)["positions"] == {"tokens": 7, "padding": 3, "computed": 10}
    assert request_times(trace)["r0"].num_read == 5 + 6 + 7


def test_a_limit_that_is_just_kept_is_kept():
    assert SLOs(ttft_s=0.5, e2e_s=2).met(0.5, None, 2.0)
    assert not SLOs(ttft_s=0.5).met(0.500001, None, 2.0)
