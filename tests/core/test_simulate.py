"""Simulated runs: the arithmetic of costs and fits, the same events as a real run, memory that does
not grow.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core import Engine, EngineConfig, InflightError, Request, SamplingParams, Trace, Workload
from core.account.metrics import goodput, metrics
from core.account.request_times import SLOs
from core.cli import main
from core.proof.verify import check
from core.recorders.convert import open_run
from core.simulate.cost import Load
from core.simulate.engine import TOKEN, SimulatedEngine
from core.simulate.fitted import Linear
from core.simulate.roofline import Roofline
from core.simulate.totals import LogHistogram, RunTotals, run_stream
from core.torch_engine.models.tokenizer import describe_model
from core.trace.events import KV, Arrived, Finished, Pass, Preempted, Sampled
from visualizer.documents.catalogue import TRACES
from worlds.by_hand import event
from worlds.small import MemoryModel, memory_engine, request, requests

ROOT = Path(__file__).resolve().parents[2]
COST = Linear(0.010, 0.001, 1e-6, 100, Load(8, 10_000))


def _requests(count: int, prompt: int = 4, new: int = 3, gap: float = 0.0):
    for index in range(count):
        sampling = SamplingParams(max_new_tokens=new, ignore_eos=True)
        yield Request(
            f"r{index}", prompt_token_ids=(1,) * prompt, sampling=sampling, arrival=index * gap
        )


def test_a_pass_takes_what_it_costs():
    engine = SimulatedEngine(COST, EngineConfig(max_num_seqs=2))
    trace = engine.run(Workload(list(_requests(2))))
    first, second, third = trace.events
    # 8 positions, which read each other
    assert first.t_end - first.t_start == pytest.approx(0.010 + 8 * 0.001 + 8 * 100e-6)
    assert second.t_end - second.t_start == pytest.approx(0.010 + 2 * 0.001 + 10 * 100e-6)
    assert third.t_start == second.t_end
    assert trace.header.is_simulated and trace.header.cost["kind"] == "fitted"
    assert trace.complete and [len(ids) for ids in trace.outputs.values()] == [3, 3]


def test_padding_costs_too():
    workload = Workload(
        [
            *_requests(1, prompt=10),
            Request(
                "long", prompt_token_ids=(1,) * 30, sampling=SamplingParams(3, ignore_eos=True)
            ),
        ]
    )
    packed, padded = (
        SimulatedEngine(COST, EngineConfig(policy=policy, max_num_seqs=2)).run(workload).events[0]
        for policy in ("continuous", "static")
    )
    assert (padded.t_end - padded.t_start) - (packed.t_end - packed.t_start) == pytest.approx(
        20 * 0.001
    )


def test_time_is_simulated_and_jumps_to_the_next_arrival():
    trace = SimulatedEngine(COST, EngineConfig(max_num_seqs=2)).run(
        Workload(list(_requests(2, gap=40.0)), arrival_unit="s")
    )
    numbers = metrics(trace)
    assert 40 < numbers["wall_s"] < 41 and numbers["time_s"]["between"] > 39
    assert numbers["ttft_s"]["max"] == pytest.approx(0.010 + 4 * 0.001 + 4 * 100e-6)


@pytest.mark.parametrize("late", [1.7e9, 1e10])
def test_a_request_that_comes_by_the_calendar_is_reached_in_a_few_turns(late):
    engine = SimulatedEngine(COST, EngineConfig(max_num_seqs=2))
    trace = engine.run(Workload(list(_requests(2, gap=late)), arrival_unit="s"))
    assert trace[-1].t_end > late and engine.num_steps < 30
    assert check(trace).num_steps == len(trace)


@pytest.mark.parametrize("policy", ["continuous", "static", "dynamic", "split-chunked"])
def test_the_same_decisions_as_the_real_engine_and_a_trace_that_holds(policy, tmp_path):
    workload = Workload(
        [
            *_requests(7, prompt=9, new=5),
            Request(
                "late",
                prompt_token_ids=(1,) * 5,
                sampling=SamplingParams(4, ignore_eos=True),
                arrival=6,
            ),
        ]
    )
    config = EngineConfig(
        policy=policy, max_num_seqs=3, max_num_batched_tokens=12, num_blocks=12, block_size=4
    )
    real, simulated = (
        Engine(MemoryModel(), None, config).run(workload),
        SimulatedEngine(COST, config).run(workload),
    )
    facts = (
        "step",
        "admitted",
        "waiting",
        "preempted",
        "stalled",
        "segments",
        "finished",
        "kv",
        "budget",
    )
    assert [[getattr(e, name) for name in facts] for e in simulated.events] == [
        [getattr(e, name) for name in facts] for e in real.events
    ]
    simulated.recorded_texts = None
    simulated.save(tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl").header.is_simulated


def test_made_up_tokens_have_no_text(tmp_path, capsys):
    """Prompts are real. A file that was written before this rule shows none either."""
    tokenizer = describe_model("shakespeare-bpe").tokenizer
    engine = SimulatedEngine(
        replace(COST, about={"model": {"name": "shakespeare-bpe", "vocab_size": 2048}}),
        None,
        tokenizer,
    )
    # "#" is in what stands for tokens without a tokenizer
    sampling = SamplingParams(3, stop=(tokenizer.decode([TOKEN.token_id]), "#"))
    trace = engine.run(Workload([Request("r", prompt="What is thy name?", sampling=sampling)]))
    assert not trace.header.notes  # it is the tokenizer of the model that was measured
    # as the tokenizer would have it
    assert trace.decoded(tokenizer).output["r"] == ["<|endoftext|>"] * 3
    trace.recorded_texts = trace.decoded(tokenizer)
    trace.save(path := tmp_path / "t.jsonl")
    for one in (trace, Trace.load(path)):
        assert (
            one.text("r") == ""
            and one.texts.output == {"r": ["", "", ""]}
            and "".join(one.texts.prompt["r"]) == "What is thy name?"
        )
        assert [one.token_text("r", at) for at in (0, 7)] == ["What", "—"] and one.mask(1).keys[
            -1
        ].text == "—"
    for command, said in (
        ("show", "simulated: no text"),
        ("check", "made-up tokens have none"),
        ("show --step 1", "decode(1)    —"),
    ):
        name, *options = command.split()
        with pytest.raises(SystemExit):
            main([name, str(path), *options])
        assert said in (out := capsys.readouterr().out) and "endoftext" not in out


def test_beyond_what_was_measured_is_said():
    engine = SimulatedEngine(COST, EngineConfig(max_num_seqs=2))
    # 12 positions in the first pass of three; 8 were measured
    engine.run(Workload(list(_requests(2, prompt=6))))
    assert engine.beyond.startswith("33 % of the simulated passes lie beyond")
    engine.run(Workload(list(_requests(2))))
    assert engine.beyond is None  # of the latest run


def test_no_share_is_said_to_be_nothing():
    """Of 200 passes the first lies beyond, a half percent."""
    engine = SimulatedEngine(replace(COST, most=Load(8, 10**6)))
    engine.run(Workload(list(_requests(1, prompt=9, new=200))))
    assert engine.beyond.startswith("0.5 % of the simulated passes lie beyond")
    assert "at most 8 positions and 10,000 tokens of KV cache in a pass" in engine.beyond
    assert SimulatedEngine(COST).beyond is None  # nothing has run


def test_who_has_ended_is_computed_as_a_pad_that_reads_nothing():
    """In the second step of a wave: a position for each, and the cache of one alone."""
    workload = Workload([*_requests(1, new=1), *(replace(r, id="b") for r in _requests(1, new=2))])
    config = EngineConfig(policy="static", max_num_seqs=2)
    first, second = SimulatedEngine(COST, config).run(workload).events
    assert first.t_end == pytest.approx(0.010 + 8 * 0.001 + 8 * 100e-6)
    assert second.t_end - second.t_start == pytest.approx(0.010 + 2 * 0.001 + 5 * 100e-6)


def test_another_engine_on_the_same_cost_stands_for_the_same_model():
    named = replace(COST, about={"model": {"name": "n", "vocab_size": 65, "context": 512}})
    engine = SimulatedEngine(named, name="a/n", vocab_size=65, max_model_len=99)
    other = engine.under(EngineConfig(max_num_seqs=3))
    assert other.config.max_num_seqs == 3 and other.model == engine.model
    assert (other.model.name, other.model.vocab_size, other.model.context) == ("a/n", 65, 99)
    # of a model of which nothing is known
    known = SimulatedEngine(COST, name="m", vocab_size=77)
    assert known.under(EngineConfig()).model.vocab_size == 77


def test_another_engine_on_the_same_cost_forgets_steps_as_the_first():
    engine = SimulatedEngine(COST, window=4).under(EngineConfig())
    assert len(engine.run(Workload(requests((3, 40)))).events) < 10


def test_a_model_that_was_not_measured_is_refused_and_another_tokenizer_is_noted():
    named = replace(COST, about={"model": {"name": "n"}})
    with pytest.raises(InflightError, match="fitted on n, and what is asked for is m"):
        SimulatedEngine(named, name="m")
    splits = object()  # is asked nothing before a text comes
    by_sheet = SimulatedEngine(Roofline.named("h100", "8b"), tokenizer=splits)
    (note,) = by_sheet.executor.header["notes"]
    assert "another tokenizer than that of Llama 3.1 8B" in note
    for engine in (SimulatedEngine(COST, tokenizer=splits), SimulatedEngine(by_sheet.cost)):
        assert engine.executor.header["notes"] == ()


@pytest.mark.parametrize("given", [{"on_step": None}, {"totals": {}}, {"totals": []}])
def test_what_a_flow_is_given_is_checked_before_it_runs(given):
    engine = SimulatedEngine(COST, EngineConfig(num_blocks=64))
    with pytest.raises(InflightError, match="not (NoneType|None|dict|list)"):
        run_stream(engine, iter(_requests(2, gap=0.02)), **given)
    assert engine.num_steps == 0 and not engine.has_work


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
        # not interpolated between neighbours
        assert told[name]["p50"] == pytest.approx(numbers[name]["p50"], rel=0.05)
    kept = engine.trace.events
    assert set(engine.trace.asked) <= {f"r{i}" for i in range(40, 60)}
    assert sum(len(e.sampled) for e in kept) >= 10 > sum(len(e.sampled) for e in kept[1:])
    assert kept[-1].step == trace.events[-1].step and kept[-1].segments == trace.events[-1].segments
    assert (
        not engine._loop.sampling
        and not engine._arrivals
        and not engine._loop.scheduler.requests
        and not totals._latest
        and not totals._arrival
    )


def test_a_flow_draws_one_request_ahead_and_no_more():
    """Each of five has three steps to itself before the next arrives."""
    drawn, had = [], []
    coming = (drawn.append(r) or r for r in _requests(5, gap=100.0))
    engine = SimulatedEngine(COST, EngineConfig(num_blocks=64))
    run_stream(engine, coming, on_step=lambda _: had.append(len(drawn)))
    assert had == [2] * 3 + [3] * 3 + [4] * 3 + [5] * 6


def test_totals_count_whoever_ends_by_itself_and_nobody_who_is_sent_away():
    engine, totals = memory_engine(max_num_seqs=3), RunTotals(SLOs(e2e_s=1e6))
    for i in range(12):
        engine.add_request(request(f"r{i}", (4 + i, 5), 20, ignore_eos=False))
    engine.cancel("r11")
    while engine.has_work:
        totals.add(engine.step())
        if totals.steps == 4:
            engine.cancel("r0")  # who has some tokens already
    engine.trace.complete = True
    reasons = [f.finish_reason for event in engine.trace.events for f in event.finished]
    assert min(map(reasons.count, ("length", "stop"))) > 1 and reasons.count("cancelled") == 2
    told, numbers = totals.to_json(), metrics(engine.trace)
    assert (
        told["finished"]
        == told["e2e_s"]["count"]
        == numbers["finished"]
        == numbers["e2e_s"]["count"]
        == 10
    )
    assert told["e2e_s"]["mean"] == pytest.approx(numbers["e2e_s"]["mean"], abs=2e-6)
    assert told["goodput"]["share"] == goodput(engine.trace, SLOs(e2e_s=1e6))["share"] == 10 / 12


@pytest.mark.parametrize(
    ("slos", "met"),
    [
        (SLOs(ttft_s=1.25, tpot_s=1.125, e2e_s=3.5), 1),
        (SLOs(ttft_s=1.0), 0),
        (SLOs(tpot_s=1.1), 0),
        (SLOs(e2e_s=3.4), 0),
    ],
)
def test_totals_of_two_steps_by_hand(slos, met):
    """a comes at 0.5 s and gets tokens at 1.75, 3 and 4 s; b waits, and gives way at last."""

    def forward(start: float, end: float, rows: int = 1, width: int = 1, padding: int = 0) -> Pass:
        return Pass("padded", rows, width, rows * width - padding, padding, start, end)

    def sampled(*in_passes: int) -> tuple[Sampled, ...]:
        return tuple(Sampled(index, "a", 7, None, None) for index in in_passes)

    totals = RunTotals(slos)
    came = (Arrived("a", 0.5), Arrived("b", 1.0))
    first = {"arrived": came, "passes": (forward(1.25, 1.75, 2, 3, 1),), "sampled": sampled(0)}
    totals.add(event(0, t_start=1.0, t_end=2.0, kv=KV(3, 9), **first))
    second = {
        "preempted": (Preempted("b", 3, 1),),
        "passes": (forward(2.0, 3.0), forward(3.0, 4.0)),
        "sampled": sampled(0, 1),
        "finished": (Finished("a", "length"),),
    }
    totals.add(event(1, t_start=2.0, t_end=5.0, kv=KV(6, 9), **second))
    told = totals.to_json()
    assert [told[name]["mean"] for name in ("ttft_s", "itl_s", "e2e_s")] == [1.25, 1.125, 3.5]
    assert told["itl_s"]["count"] == 2 and told["itl_s"]["max"] == 1.25
    assert told["goodput"].pop("slos")
    assert {name: n for name, n in told.items() if name[-2:] != "_s" or name == "wall_s"} == {
        "wall_s": 4.5,  # from the first arrival
        "steps": 2,
        "passes": 3,
        "finished": 1,
        "output_tokens": 3,
        "padding_waste": 1 / 8,
        "kv_use": pytest.approx(1 / 2),
        "preemptions": 1,
        "goodput": {"met": met, "share": met / 2, "requests_per_s": met / 4.5},
    }
    assert (told["output_tok_s"], told["requests_per_s"]) == (3 / 4.5, 1 / 4.5)


def test_totals_are_metrics_of_passes_in_graphs_and_of_overruns_too():
    for path in (TRACES / "scheduler-zoo.jsonl", ROOT / "tests/data/vllm-http/async.raw.jsonl.gz"):
        trace, totals = open_run(path), RunTotals()
        for one in trace.events:
            totals.add(one)
        told, numbers = totals.to_json(), metrics(trace)
        assert told["padding_waste"] == pytest.approx(numbers["padding_waste"], abs=1e-6)
        assert told["wall_s"] == numbers["wall_s"]


def test_totals_of_nothing_are_none():
    told = RunTotals(SLOs(e2e_s=1.0)).to_json()
    rates = ("output_tok_s", "requests_per_s", "padding_waste", "kv_use")
    assert not any(told[rate] for rate in rates) and told["goodput"]["share"] is None
    assert told["ttft_s"] == {"count": 0, **dict.fromkeys(("mean", "max", "p50", "p90", "p99"))}
    assert "goodput" not in RunTotals().to_json()


def test_percentiles_of_a_histogram():
    histogram = LogHistogram()
    for value in range(1, 1001):
        histogram.add(value / 1000)
    assert histogram.percentile(50) == pytest.approx(0.5, rel=0.015) and histogram.percentile(
        99
    ) == pytest.approx(0.99, rel=0.015)
    histogram.add(0.0, 5000)
    assert histogram.percentile(50) == 0.0 and histogram.to_json()["max"] == 1.0
    assert LogHistogram().to_json()["p50"] is None
    once = LogHistogram()
    once.add(1.0)
    assert once.percentile(99) == 1.0  # not the middle of its bin, which lies beyond
    once.add(2.0)
    shares = [once.percentile(share) for share in (0, 50, 90, 100)]
    assert shares == pytest.approx([1.0, 1.5, 1.9, 2.0], rel=0.01)
