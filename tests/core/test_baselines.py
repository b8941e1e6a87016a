"""Outside baselines answer as our engine does, and report only what can be seen."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from core import Engine, EngineConfig, InflightError, Request, SamplingParams, Workload
from core.measure.baselines import baseline_requests, contender
from core.measure.baselines.article import article
from core.measure.baselines.generate import generate_serial, generate_waves
from core.measure.baselines.records import BaselineRequest, BaselineRun
from core.measure.baselines.transformers_continuous import (
    TransformersContinuous,
    Variant,
    continuous_settings,
    paged_name,
    ready,
)
from core.measure.compare import compare, engine_contender

LENGTHS = ((5, 6), (9, 20), (3, 12), (14, 9), (7, 15))


def _gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            n_layer=2,
            n_head=4,
            n_embd=64,
            vocab_size=211,
            n_positions=128,
            initializer_range=0.3,
            bos_token_id=0,
            eos_token_id=0,
        )
    ).eval()


def _llama():
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=211,
        max_position_embeddings=128,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).eval()


def in_turns(model, work, lanes: int, budget: int) -> BaselineRun:
    """transformers' continuous batching, from setup to teardown."""
    with ready(model, work, lanes, budget) as run:
        return run()


@contextmanager
def passes_of(model):
    """The shape of every forward pass that a model makes inside."""
    shapes = []
    hook = model.register_forward_pre_hook(
        lambda _, args, given: shapes.append(tuple(given["input_ids"].shape)), with_kwargs=True
    )
    try:
        yield shapes
    finally:
        hook.remove()


def _workload() -> Workload:
    draw = torch.Generator().manual_seed(1)
    return Workload(
        [
            Request(
                f"r{i}",
                prompt_token_ids=torch.randint(0, 211, (n,), generator=draw).tolist(),
                sampling=SamplingParams(new, ignore_eos=True),
            )
            for i, (n, new) in enumerate(LENGTHS)
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("build", [_gpt2, _llama])
def test_every_baseline_writes_what_our_engine_writes(build):
    model, workload = build(), _workload()
    expected = (
        Engine(model, None, EngineConfig(max_num_seqs=3, max_num_batched_tokens=16))
        .run(workload)
        .outputs
    )
    work = baseline_requests(workload, None)
    runs = [
        generate_serial(model, work),
        generate_waves(model, work, 3),
        in_turns(model, work, 3, 16),
        article(model, work, 3),
    ]
    for run in runs:
        assert run.outputs == expected
    # the model says something
    assert len({len(set(ids)) for ids in expected.values()}) > 1 or len(set(expected["r1"])) > 4


@pytest.mark.parametrize("build", [_gpt2, _llama])
def test_every_baseline_ends_an_answer_where_our_engine_does(build):
    """The token that ends an answer is one that some have in their midst and others do not."""
    model = build()
    limits = EngineConfig(max_num_seqs=3, max_num_batched_tokens=16)
    whole = Engine(model, None, limits).run(_workload()).outputs
    end = next(t for t in whole["r1"] if 0 < sum(t in ids[:-1] for ids in whole.values()) < 5)
    model.generation_config.eos_token_id = end
    workload = Workload(
        [replace(r, sampling=SamplingParams(r.sampling.max_new_tokens)) for r in _workload()]
    )
    expected = {
        request: ids[: ids.index(end) + 1] if end in ids else ids for request, ids in whole.items()
    }
    assert Engine(model, None, limits).run(workload).outputs == expected != whole
    lengths = {request: len(ids) for request, ids in expected.items()}
    work = baseline_requests(workload, None, {end})
    with passes_of(model) as waves:
        found = generate_waves(model, work, 3)
    first, second = (max(list(lengths.values())[a:b]) for a, b in ((0, 3), (3, 5)))
    assert len(waves) == found.steps == first + second  # each wave as long as its longest answer
    for run in (
        found,
        generate_serial(model, work),
        in_turns(model, work, 3, 16),
        article(model, work, 3),
    ):
        assert run.outputs == expected
        assert not run.cut and all(
            len(times) == lengths[request] for request, times in (run.token_times or {}).items()
        )


def test_generate_ends_all_requests_alike():
    work = baseline_requests(_workload(), None)
    with pytest.raises(InflightError, match="ends all requests alike"):
        generate_waves(_gpt2(), [work[0]._replace(ends=frozenset({3})), *work[1:]], 3)


@pytest.mark.parametrize("build", [_gpt2, _llama])
def test_generate_costs_a_prompt_pass_and_one_position_a_row_for_each_token_after_it(build):
    """With its cache, that is: without it, every pass would compute all that came before again."""
    model, work = build(), baseline_requests(_workload(), None)
    with passes_of(model) as waves:
        generate_waves(model, work, 3)
    assert waves == [(3, 9)] + [(3, 1)] * 19 + [(2, 14)] + [(2, 1)] * 14
    with passes_of(model) as alone:
        generate_serial(model, work)
    assert alone == [
        shape for prompt, new in LENGTHS for shape in [(1, prompt)] + [(1, 1)] * (new - 1)
    ]


@pytest.mark.parametrize("build", [_gpt2, _llama])
def test_transformers_continuous_computes_each_token_once_and_never_sleeps(build, monkeypatch):
    model, work = build(), baseline_requests(_workload(), None)
    with ready(model, work, 3, 16) as run:
        monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail(f"it slept {seconds} s"))
        with passes_of(model) as shapes:
            found = run()
        monkeypatch.undo()
    assert len(shapes) == found.steps
    assert sum(rows * width for rows, width in shapes) == sum(
        prompt + new - 1 for prompt, new in LENGTHS
    )


@pytest.mark.parametrize("policy", ["static", "dynamic", "continuous"])
def test_our_policies_pay_one_pass_a_step(policy):
    """What a baseline is held to, we are: nobody is slow to make another look fast."""
    model = _gpt2()
    engine = Engine(
        model, None, EngineConfig(policy=policy, max_num_seqs=3, max_num_batched_tokens=64)
    )
    with passes_of(model) as shapes:
        trace = engine.run(_workload())
    assert shapes == [(p.rows, p.width) for event in trace.events for p in event.passes]
    assert (
        len(shapes)
        == len(trace.events)
        == {"static": 20 + 15, "dynamic": 27, "continuous": 27}[policy]
    )


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_transformers_continuous_with_an_attention_of_choice(attention):
    model, workload = _llama(), _workload()
    expected = Engine(model, None, EngineConfig(max_num_seqs=5)).run(workload).outputs
    before = model.config._attn_implementation
    with ready(model, baseline_requests(workload, None), 5, 64, variant=Variant(attention)) as run:
        assert model.config._attn_implementation == paged_name(attention)
        found = run()
    # all prompts fit one step
    assert found.outputs == expected and found.steps == 20 and not found.cut
    assert model.config._attn_implementation == before


def test_transformers_continuous_is_cut_when_its_time_is_up():
    ticks = iter(range(1000))
    with ready(
        _gpt2(),
        baseline_requests(_workload(), None),
        5,
        64,
        clock=lambda: float(next(ticks)),
        limit_s=8,
    ) as run:
        found = run()
    assert found.cut and 8 < found.steps < 20 and found.token_times is None
    assert all(0 < len(found.outputs[f"r{index}"]) <= new for index, (_, new) in enumerate(LENGTHS))


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU all of these run")
def test_a_variant_that_cannot_run_leaves_the_model_as_it_was():
    model = _llama()
    before, work = model.config._attn_implementation, baseline_requests(_workload(), None)
    with pytest.raises(Exception, match=r"(?i)flash"):
        TransformersContinuous(model, work, 5, 64, Variant("flash_attention_2"))
    with pytest.raises(RuntimeError, match="(?i)async"):
        TransformersContinuous(model, work, 5, 64, Variant("eager", use_async_batching=True))
    with pytest.raises(InflightError, match="graphs off"):
        TransformersContinuous(model, work, 5, 64, Variant("eager", use_cuda_graph=True))
    assert model.config._attn_implementation == before


def test_waves_are_cut_when_their_time_is_up():
    ticks = iter(range(1000))
    run = generate_waves(
        _gpt2(),
        baseline_requests(_workload(), None),
        3,
        clock=lambda: float(next(ticks)),
        limit_s=8,
    )
    assert run.cut and run.steps == 8
    assert {request: len(ids) for request, ids in run.outputs.items()} == {
        "r0": 6,
        "r1": 8,
        "r2": 8,
    }


def test_steps_and_times_are_those_of_the_waves():
    ticks = iter(range(1000))
    run = generate_waves(
        _gpt2(), baseline_requests(_workload(), None), 3, clock=lambda: float(next(ticks))
    )
    assert run.steps == 20 + 15  # each wave as long as its longest
    assert run.token_times["r0"] == [1, 2, 3, 4, 5, 6]
    assert run.token_times["r3"] == [float(t) for t in range(21, 30)]
    assert run.wall_s == 36


def test_the_article_refills_a_lane_at_once():
    run = article(_gpt2(), baseline_requests(_workload(), None), 3)
    assert run.steps == 27  # r2 ends after 12, r4 takes its lane for 15; waves would take 35
    assert {request: len(times) for request, times in run.token_times.items()} == {
        f"r{i}": n for i, (_, n) in enumerate(LENGTHS)
    }


def test_metrics_leave_out_what_cannot_be_seen():
    run = BaselineRun(
        {"a": [1, 2, 3], "b": [4]},
        2.0,
        {"a": 5, "b": 3},
        {"a": [0.5, 1.0, 2.0], "b": [0.75]},
        steps=3,
    )
    numbers = run.metrics()
    assert (
        numbers["output_tok_s"] == 2.0
        and numbers["total_tok_s"] == 6.0
        and numbers["requests_per_s"] == 1.0
    )
    assert (
        numbers["ttft_s"]["mean"] == 0.625
        and numbers["itl_s"]["max"] == 1.0
        and numbers["e2e_s"]["max"] == 2.0
    )
    assert numbers["tpot_s"] == {
        "count": 1,
        "left_out": 0,
        "mean": 0.75,
        "p50": 0.75,
        "p90": 0.75,
        "p99": 0.75,
        "max": 0.75,
    }
    assert numbers["padding_waste"] is None and numbers["queue_s"] is None
    unseen = BaselineRun({"a": [1]}, 1.0, {"a": 1}).metrics()
    assert unseen["ttft_s"] is None and unseen["steps"] is None and unseen["output_tok_s"] == 1.0


def test_a_baseline_stands_beside_a_policy():
    model, workload = _gpt2(), _workload()
    engine = Engine(model, None, EngineConfig(max_num_seqs=3))
    work = baseline_requests(workload, None)
    result = compare(
        [engine_contender(engine, workload), contender("generate-waves", model, work, 3)],
        repeats=1,
        warmup=0,
    )
    assert result.outputs_identical
    assert result.medians["generate-waves"]["padding_waste"] is None
    assert (
        result.medians["generate-waves"]["output_tokens"]
        == result.medians["continuous"]["output_tokens"]
    )


def test_the_models_own_settings_survive():
    model = _gpt2()
    generation, attention = model.generation_config, model.config._attn_implementation
    work = baseline_requests(_workload(), None)
    generate_waves(model, work, 3)
    in_turns(model, work, 3, 16)
    assert model.generation_config is generation and model.config._attn_implementation == attention


@pytest.mark.parametrize(
    "sampling, arrival",
    [
        (SamplingParams(4, temperature=0.5, ignore_eos=True), 0),
        (SamplingParams(4, stop=("a",)), 0),
        (SamplingParams(4, ignore_eos=True), 2),
    ],
)
def test_requests_that_a_baseline_cannot_serve_are_refused(sampling, arrival):
    with pytest.raises(InflightError, match="outside baselines run greedily"):
        baseline_requests(
            Workload([Request("r0", prompt_token_ids=[1], sampling=sampling, arrival=arrival)]),
            None,
        )


def test_unknown_baseline_and_pool_that_just_fits():
    work = [BaselineRequest("a", (1,) * 40, 30)]
    with pytest.raises(InflightError, match="no baseline 'magic'"):
        contender("magic", None, work, 2)
    # three pages of 32 and one spare, and one more
    assert continuous_settings(work, 4, 16)["num_blocks"] == 5
