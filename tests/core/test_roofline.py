"""Costs by data sheet: passes computed by hand, what fits the memory, what several cards change,
and that every number has a source.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from core import EngineConfig, InflightError, InvalidTrace, Request, SamplingParams, Trace, Workload
from core.account.metrics import wall_s
from core.config import ASSETS
from core.errors import InvalidConfig, TooLong
from core.simulate.cost import Load
from core.simulate.datasheets import ACCELERATORS, ALL_REDUCE_S, MODELS, NCCL, StatedSource
from core.simulate.engine import SimulatedEngine
from core.simulate.named import cost_named
from core.simulate.roofline import Roofline

H100_8B = Roofline.named("h100", "8b")


def _seconds(cost: Roofline, *requests: tuple[int, int]) -> float:
    """Of one pass. requests: of each, tokens computed and the length of its cache afterwards."""
    return cost.seconds(
        Load(
            sum(length for length, _ in requests),
            cost.kv_bytes_per_token * sum(kv for _, kv in requests),
            sum(Load.pairs_of(length, kv) for length, kv in requests),
        )
    )


def _request(prompt: int, new: int = 1, name: str = "r") -> Request:
    return Request(
        name, prompt_token_ids=(1,) * prompt, sampling=SamplingParams(new, ignore_eos=True)
    )


@pytest.mark.parametrize(
    ("requests", "milliseconds"),
    [
        ([(1, 1)], 8.19),  # 16.06 GB of weights at 2.01 TB/s: 7.99, and 0.2 besides
        ([(1, 8000)] * 64, 41.58),  # the same weights, and 67.1 GB of KV: 33.39
        ([(1000, 1000)], 27.71),  # 16.06 TFLOP at 593.4 TFLOP/s: 27.07; pairs 0.44
        ([(100_000, 100_000)], 7124.4),  # tokens 2706.5, pairs 4417.7
        # the last chunk of such a prompt: tokens 13.86, pairs 45.12; the KV, 6.52, is read
        # meanwhile
        ([(512, 100_000)], 59.18),
    ],
)
def test_passes_of_8b_on_an_h100_by_hand(requests, milliseconds):
    assert 1000 * _seconds(H100_8B, *requests) == pytest.approx(milliseconds, rel=7e-4)


def test_what_a_pass_is_made_of():
    assert H100_8B.weight_bytes == 16_060_522_496 and H100_8B.flops_per_token == 16_060_522_496
    assert H100_8B.kv_bytes_per_token == 2 * 2 * 32 * 8 * 128 == 131_072
    assert H100_8B.flops_per_pair == 4 * 32 * 32 * 128
    assert [Load.pairs_of(3, 3), Load.pairs_of(1, 10), Load.pairs_of(2, 5)] == [
        1 + 2 + 3,
        10,
        4 + 5,
    ]


def test_the_parameters_follow_from_the_configs():
    def llama(name: str, mlp: int, tied: bool) -> int:
        model = MODELS[name]
        hidden, kv = model.hidden_size, model.kv_heads * model.head_size
        layer = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * mlp + 2 * hidden
        return model.vocab_size * hidden * (1 if tied else 2) + model.layers * layer + hidden

    assert llama("8b", 14336, False) == MODELS["8b"].parameters
    assert llama("70b", 28672, False) == MODELS["70b"].parameters
    assert llama("1b", 8192, True) == MODELS["1b"].parameters
    gpt2, hidden = MODELS["124m"], 768
    layer = 12 * hidden * hidden + 13 * hidden  # with biases and two norms
    assert (
        gpt2.vocab_size + gpt2.context
    ) * hidden + gpt2.layers * layer + 2 * hidden == gpt2.parameters


def test_cards_that_share_a_model_divide_the_work_and_add_all_reduces():
    one, four = replace(H100_8B, overhead_s=0.0), replace(H100_8B, cards=4, overhead_s=0.0)
    # two all-reduces a layer of 4096 numbers, of which a card sends 6/4
    token = 2 * 32 * (2 * 3 / 4 * 2 * 4096) / (0.6 * 450e9)
    hops = 2 * 32 * (6.6e-6 + 6 * 0.6e-6)
    for requests in ([(1, 1)], [(1, 8000)] * 64, [(4000, 4000)]):
        tokens = sum(length for length, _ in requests)
        expected = _seconds(one, *requests) / 4 + hops + tokens * token
        assert _seconds(four, *requests) == pytest.approx(expected, rel=1e-9)
    assert _seconds(replace(one, cards=1), (1, 1)) == _seconds(one, (1, 1))


def test_what_does_not_fit_is_refused_with_what_would():
    with pytest.raises(
        InflightError,
        match=(
            r"take 141\.1 GB, and 90 % of its memory is 72\.0 GB; h100x2:70b has room, with 2\.9 GB"
            r" for the KV pool"
        ),
    ):
        cost_named("h100:70b")
    for spec, why in (
        ("h100x3:8b", "write h100:8b, h100x2:8b, h100x4:8b, h100x8:8b"),
        ("h100x16:8b", "cannot be shared by 16"),
        ("h100x0:8b", "cannot be shared by 0"),
        ("m2-ultrax2:8b", "write m2-ultra:8b"),
        (
            "h900:8b",
            "^There is no accelerator 'h900' on record; there are a100, h100, h200, l4, m2-ultra.$",
        ),
        ("h100:9b", "^There is no model size '9b' on record; there are 124m, 1b, 8b, 70b.$"),
        ("h100", "is no cost model"),
        ("", "is no cost model"),
    ):
        with pytest.raises(InflightError, match=why):
            cost_named(spec)
    assert cost_named("H100x2:70B") == Roofline("h100", "70b", 2)


def test_the_pool_is_what_the_weights_leave():
    engine = SimulatedEngine(H100_8B, EngineConfig(max_num_seqs=2, block_size=16))
    assert engine.run(Workload([_request(10)])).header.num_blocks == (
        0.9 * 80e9 - 16_060_522_496
    ) // (16 * 131_072)
    assert (
        SimulatedEngine(H100_8B, EngineConfig(num_blocks=7))
        .run(Workload([_request(10)]))
        .header.num_blocks
        == 7
    )
    with pytest.raises(InvalidConfig, match=r"62\.9 GB; beside its weights h100 has 55\.9 GB"):
        SimulatedEngine(H100_8B, EngineConfig(num_blocks=30_000, block_size=16))
    most = int(0.9 * 80e9 - 16_060_522_496) // (16 * 131_072)
    exactly = EngineConfig(num_blocks=most, block_size=16)
    assert SimulatedEngine(H100_8B, exactly).config.num_blocks == most
    ten_tokens = replace(H100_8B, memory_share=(16_060_522_496 + 10 * 131_072) / 80e9)
    with pytest.raises(InvalidConfig, match=r"^Not even one KV block of 16 tokens fits: beside"):
        SimulatedEngine(ten_tokens, EngineConfig(block_size=16)).run(Workload([_request(1)]))
    engine = SimulatedEngine(H100_8B, EngineConfig(num_blocks=7))
    with pytest.raises(InvalidConfig, match=r"beside its weights h100 has 55\.9 GB"):
        engine.begin(config=EngineConfig(num_blocks=30_000, block_size=16))
    assert engine.config.num_blocks == 7
    with pytest.raises(
        TooLong,
        match=r"exceed the whole KV pool of 551 blocks.* beside its weights h100x2 has 2\.9 GB",
    ):
        SimulatedEngine(Roofline.named("h100x2", "70b"), EngineConfig(block_size=16)).run(
            Workload([_request(10_000)])
        )


def test_a_trace_whose_pool_is_larger_than_its_memory_is_refused(tmp_path):
    trace = SimulatedEngine(H100_8B, EngineConfig(max_num_seqs=2, block_size=16)).run(
        Workload([_request(10)])
    )
    trace.save(tmp_path / "t.jsonl")
    assert (
        Trace.load(tmp_path / "t.jsonl").header.num_blocks
        == trace.header.num_blocks
        == H100_8B.kv_bytes // (16 * 131_072)
    )
    trace.header = replace(
        trace.header, cost=trace.header.cost | {"kv_bytes": H100_8B.kv_bytes - 16 * 131_072}
    )
    trace.save(tmp_path / "t.jsonl")
    with pytest.raises(InvalidTrace, match="more than its memory has room for"):
        Trace.load(tmp_path / "t.jsonl")


def test_the_simulated_model_has_its_own_context_and_name():
    engine = SimulatedEngine(H100_8B, EngineConfig(max_num_seqs=2))
    trace = engine.run(Workload([_request(100_000)]))
    chunks = [p.t_end - p.t_start for event in trace.events for p in event.passes]
    # of 256 tokens, which read all weights in the time in which they could compute 295
    assert len(chunks) == 391
    assert sum(chunks) == pytest.approx(391 * 0.00819 + 4.4177, rel=1e-3)
    model = trace.header.model
    assert (model.name, model.context, model.vocab_size, model.parameters) == (
        "Llama 3.1 8B",
        131_072,
        128_256,
        8_030_261_248,
    )
    assert trace.header.device == "simulated h100" and not trace.header.notes
    with pytest.raises(TooLong, match="131072"):
        engine.run(Workload([_request(131_072)]))
    asked = SimulatedEngine(H100_8B, name="mine", vocab_size=99, max_model_len=500).model
    assert (asked.name, asked.vocab_size, asked.context) == ("mine", 99, 500)
    assert asked.parameters == model.parameters


def test_a_trace_says_what_was_assumed_and_where_each_number_is_from():
    cost = json.loads(json.dumps(Roofline.named("h100x4", "70b").to_json()))
    assert cost["kind"] == "data sheet" and cost["name"] == "h100x4:70b" and cost["cards"] == 4
    nothing, assumed = cost["assumptions"]
    assert (
        "Nothing was measured" in nothing
        and "NVIDIA H100 SXM 80 GB" in nothing
        and "shared by 4 cards" in nothing
    )
    assert "60 % of each peak" in assumed and "200 µs" in assumed and "90 % of memory" in assumed
    assert cost["accelerator"]["source"]["url"].startswith("https://www.nvidia.com/")
    assert (
        "huggingface.co" in cost["model"]["source"]["url"]
        and "nccl" in cost["all_reduce_source"]["url"]
    )
    card, link, model = cost["accelerator"], ACCELERATORS["h100"].link, cost["model"]
    assert (card["flops"], card["link"]) == (ACCELERATORS["h100"].flops, link._asdict())
    assert model["layers"] == MODELS["70b"].layers
    one = H100_8B.to_json()
    assert "all_reduce_s" not in one and "shared" not in one["assumptions"][0]
    assert Roofline.named("m2-ultra", "8b").to_json()["accelerator"]["link"] is None
    assert not H100_8B.beyond(Load(10**9, 10**15, 10**15))
    for known in (*ACCELERATORS.values(), *MODELS.values()):
        assert known.source.title and known.source.url.startswith("https://")


def test_other_assumptions_are_stated_as_such():
    cost = replace(H100_8B, reached=0.75, overhead_s=0.0, memory_share=0.8)
    assert _seconds(cost, (1, 1)) == pytest.approx(16_060_522_496 / (0.75 * 3.35e12), rel=1e-3)
    assert "75 % of each peak" in cost.assumptions[1] and "80 % of memory" in cost.assumptions[1]
    for bad in (
        {"reached": 0.0},
        {"reached": 1.1},
        {"memory_share": -0.5},
        {"memory_share": 0.0},
        {"memory_share": 1.01},
        {"overhead_s": float("nan")},
        {"overhead_s": float("inf")},
    ):
        with pytest.raises(InflightError, match="are shares"):
            replace(H100_8B, **bad)
    with pytest.raises(InflightError, match="is a number"):
        replace(H100_8B, overhead_s="0")
    assert replace(H100_8B, reached=1.0, memory_share=1.0).memory_bytes == 80e9
    for room, fits in ((131_072, True), (131_071, False)):  # of a token
        share = (16_060_522_496 + room + 0.5) / 80e9
        with nullcontext() if fits else pytest.raises(InflightError, match="take 16.1 GB"):
            assert replace(H100_8B, memory_share=share).kv_bytes == room
    with pytest.raises(InflightError, match="h100x8:70b has room, with 114.9 GB"):
        replace(Roofline.named("h100x4", "70b"), cards=2, memory_share=0.4)
    with pytest.raises(InflightError, match="no number of cards has room"):
        replace(Roofline.named("l4", "8b"), memory_share=0.01)


@pytest.mark.parametrize(
    ("altered", "why"),
    [
        ({}, None),
        ({"reached": "fast"}, "no cost by data sheet"),
        ({"overhead_s": None}, "no cost by data sheet"),
        ({"weight_bytes": 1}, "other data sheets"),
        ({"name": "h100x8:70b"}, "other data sheets"),
        ({"name": "h900:70b"}, "no accelerator"),
    ],
)
def test_a_cost_is_read_from_a_trace_as_it_was_written(altered, why):
    cost = replace(Roofline.named("h100x4", "70b"), reached=0.5, overhead_s=0.0, memory_share=0.8)
    told = json.loads(json.dumps(cost.to_json())) | altered
    if why is None:
        assert Roofline.from_json(told) == cost
    else:
        with pytest.raises(InflightError, match=why):
            Roofline.from_json(told)


def test_what_stands_in_for_a_card_is_named_with_how_many_there_are():
    assert H100_8B.deployment[1:3] == ("h100", "NVIDIA H100 SXM 80 GB")
    several = Roofline.named("h100x4", "70b").deployment
    assert several[1:3] == ("h100x4", "4 × NVIDIA H100 SXM 80 GB")


def _tables() -> str:
    """As docs/simulation.md has them."""
    cards = [
        "| name | card | 16-bit, dense | memory | | link, one way | source |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, card in ACCELERATORS.items():
        link = (
            f"{card.link.title}, {card.link.bytes_per_s / 1e9:g} GB/s, {card.link.hop_s * 1e6:g} µs"
            " a hop"
            if card.link
            else "–"
        )
        cells = (
            f"{card.flops / 1e12:g} TFLOP/s",
            f"{card.memory_bytes / 1e9:g} GB",
            f"{card.bytes_per_s / 1e12:g} TB/s",
            link,
            _source(card.source),
        )
        cards.append(f"| `{name}` | {card.title} | {' | '.join(cells)} |")
    models = [
        (
            "| name | model | parameters | layers | heads, of KV | head size | vocabulary | context"
            " | source |"
        ),
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, model in MODELS.items():
        numbers = (
            f"{model.parameters:,}",
            model.layers,
            f"{model.heads}, {model.kv_heads}",
            model.head_size,
            f"{model.vocab_size:,}",
            f"{model.context:,}",
        )
        models.append(
            f"| `{name}` | {model.title} | {' | '.join(map(str, numbers))} |"
            f" {_source(model.source)} |"
        )
    start = f"An all-reduce starts in {ALL_REDUCE_S * 1e6:g} µs: {_source(NCCL)}, as are the hops."
    return "\n\n".join(("\n".join(cards), start, "\n".join(models)))


def _source(source: StatedSource) -> str:
    return f"[{source.title}]({source.url})" + (f"; {source.note}" if source.note else "")


def test_the_documentation_has_these_numbers_and_sources():
    text = (ASSETS.parent / "docs" / "simulation.md").read_text(encoding="utf-8")
    assert _tables() in text, _tables()


# by vLLM: milliseconds of 8 requests of 32 tokens, 128 new ones each; the build that measured them
PUBLISHED = {
    "a100:8b": (1579.27, 9523),
    "a100x4:70b": (3990.59, 9523),
    "h100:8b": (997.542, 9555),
    "h100x4:70b": (2444.47, 9555),
    "h200:8b": (833.421, 9515),
    "h200x4:70b": (2077.53, 9515),
}


def _compared() -> str:
    """As docs/simulation.md has it."""
    rows = ["| | measured | simulated | off by |", "|---|---|---|---|"]
    requests = Workload([_request(32, 128, f"r{i}") for i in range(8)])
    for name, (measured, build) in PUBLISHED.items():
        trace = SimulatedEngine(cost_named(name), EngineConfig(max_num_batched_tokens=2048)).run(
            requests
        )
        simulated, at = (
            1000 * wall_s(trace),
            f"https://buildkite.com/vllm/performance-benchmark/builds/{build}",
        )
        rows.append(
            f"| `{name}` | [{measured:,.0f} ms]({at}) | {simulated:,.0f} ms |"
            f" {100 * (simulated / measured - 1):+.1f} % |"
        )
    return "\n".join(rows).replace("| -", "| −")


def test_the_documentation_says_how_far_published_measurements_are_off():
    text = (ASSETS.parent / "docs" / "simulation.md").read_text(encoding="utf-8")
    assert _compared() in text, _compared()


def test_a_name_may_be_in_capitals():
    assert Roofline.named("H100X4", "70B") == Roofline.named("h100x4", "70b")
