"""Alone and in a batch: the same tokens in float32 on CPU; other tokens once neighbours can be
read.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from core import Engine, EngineConfig, Request, SamplingParams, Workload
from core.engine.runner import observing
from core.errors import InflightError
from core.proof.equivalence import _compared, differing, equivalence
from core.proof.mistakes import leaky_mask
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable
from core.torch_engine.attention.batch import pack
from core.torch_engine.attention.dense import dense_mask
from core.torch_engine.attention.spec import AttentionSpec
from worlds.dense_attention import attend
from worlds.small import (
    VOCAB_SIZE,
    MemoryModel,
    generate,
    memory_engine,
    memory_trace,
    requests,
)
from worlds.unmasked import unmasked_pads

TEXTS = (("Hark", 8, 0), ("O Romeo, ", 6, 0), ("Now is the winter", 8, 2))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine.from_pretrained("shakespeare-char", device="cpu")


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload(
        Request(
            f"r{i}",
            prompt=text,
            arrival=arrival,
            sampling=SamplingParams(new, temperature=0.7, seed=i, ignore_eos=True),
        )
        for i, (text, new, arrival) in enumerate(TEXTS)
    )


CONFIG = EngineConfig(max_num_seqs=3, max_num_batched_tokens=16, block_size=4)


@pytest.mark.parametrize("policy", ["continuous", "static", "split"])
def test_in_float32_no_token_differs(engine, workload, policy):
    found = equivalence(
        engine.adapter,
        engine.tokenizer,
        workload,
        EngineConfig(policy=policy, max_num_seqs=3, block_size=4),
    )
    assert found["differing_tokens"] == 0 and found["tokens"] == 22
    assert 0 <= found["max_logit_difference"] < 1e-3
    assert all(
        r["compared"] == len(r["solo"])
        and r["parting"] is None
        and r["solo_text"] == r["batched_text"]
        for r in found["requests"]
    )


def test_generate_itself_says_the_same_tokens(engine, workload):
    greedy = Workload(
        [
            replace(r, sampling=replace(r.sampling, temperature=0.0, ignore_eos=False))
            for r in workload
        ]
    )
    found = equivalence(engine.adapter, engine.tokenizer, greedy, CONFIG)
    assert (
        found["generated_tokens"] == found["tokens"] > 0 and found["differing_from_generate"] == 0
    )
    leaking = equivalence(engine.adapter, engine.tokenizer, greedy, CONFIG, leak=True)
    assert leaking["differing_from_generate"] > 0


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": 0.8},
        {"logit_bias": {45: 9.0}},
        {"repetition_penalty": 1.5},
        {"stop": ("e",)},
    ],
)
def test_generate_is_not_asked_for_what_it_decides_otherwise(engine, workload, change):
    asked = [
        replace(r, sampling=SamplingParams(r.sampling.max_new_tokens, **change)) for r in workload
    ]
    found = equivalence(engine.adapter, engine.tokenizer, Workload(asked), CONFIG)
    assert found["generated_tokens"] == found["differing_from_generate"] == 0
    assert found["differing_tokens"] == 0 and found["tokens"] > 0


def test_with_a_leak_logits_and_texts_differ(engine, workload):
    found = equivalence(engine.adapter, engine.tokenizer, workload, CONFIG, leak=True)
    again = Engine(engine.adapter, engine.tokenizer, CONFIG).run(workload).outputs
    assert {r["request"]: list(r["solo"]) for r in found["requests"]} == again, (
        "the leak stayed behind"
    )
    assert found["leak"] and found["differing_tokens"] > 0 and found["max_logit_difference"] > 0.05
    parted = [r for r in found["requests"] if r["parting"]]
    assert parted
    for r in parted:
        at = r["parting"]["position"]
        assert (
            r["solo"][:at] == r["batched"][:at]
            and r["solo"][at] == r["parting"]["solo"] != r["parting"]["batched"] == r["batched"][at]
        )
        assert r["compared"] == at + 1  # the same prefix, the parting token's own logits included
        assert r["parting"]["margin"] >= 0
        assert r["differing_tokens"] >= 1
    assert found["differing_tokens"] == sum(r["differing_tokens"] for r in found["requests"])


@pytest.mark.parametrize(("room", "kept"), [(2**28, 3), (2 * 2 * 4 * VOCAB_SIZE, 2), (1, 1)])
def test_token_requests_need_no_tokenizer(room, kept, monkeypatch):
    """room: for the logits of so many tokens of each of two requests, four bytes a number."""
    monkeypatch.setattr("core.proof.equivalence._LOGITS_BYTES", room)
    asked, steps = requests((5, 3), (3, 2)), list[int]()
    found = equivalence(
        MemoryModel(), None, Workload(asked), CONFIG, on_step=lambda event: steps.append(event.step)
    )
    assert steps == [0, 1, 2, 0, 1, 0, 1, 2]  # of each alone, and of both
    none = {"differing_tokens": 0, "max_logit_difference": 0.0}
    assert found == none | {
        "config": CONFIG.to_json(),
        "leak": False,
        "dtype": "float32",
        "device": "cpu",
        "tokens": 5,
        "generated_tokens": 0,
        "differing_from_generate": 0,
        "requests": [
            none
            | {
                "request": one.id,
                "solo": generate(one),
                "batched": generate(one),
                "solo_text": "",
                "batched_text": "",
                "compared": min(kept, one.sampling.max_new_tokens),
                "parting": None,
                "generated": None,
                "differing_from_generate": None,
            }
            for one in asked
        ],
    }


def test_a_model_with_masks_of_its_own_cannot_leak():
    model = MemoryModel()
    model.plug = "cache"
    with pytest.raises(InflightError, match="none to take away"):
        equivalence(model, None, Workload(requests((2, 2))), CONFIG, leak=True)


def part(lane: int, tokens: int, start: int, blocks: tuple[int, ...]) -> ScheduledRequest:
    return ScheduledRequest(
        f"r{lane}", lane, "prefill", (1,) * tokens, start, BlockTable(blocks), True
    )


def test_without_its_mask_a_row_reads_the_pads_before_it_and_nothing_else():
    """By hand: one head of size 1, values that count, and no score that prefers any of them."""
    table = BlockTable((0,))
    rows = [
        ScheduledRequest("a", 0, "prefill", (7,), 0, table, True),
        ScheduledRequest("b", 1, "prefill", (7, 8, 9), 0, BlockTable((1,)), True),
    ]
    batch = pack(SchedulerOutput("padded", tuple(rows)), 4, 8, torch.device("cpu"))
    keys, values = (
        torch.zeros(9, 1, 1),
        torch.tensor([2.0, 0, 0, 0, 1.0, 4.0, 7.0, 0, 100.0]).view(9, 1, 1),
    )
    out = unmasked_pads(torch.zeros(2, 1, 3, 1), keys, values, batch, AttentionSpec(1.0))
    assert out.flatten().tolist() == pytest.approx(
        [0, 0, (100 + 100 + 2) / 3, 1, (1 + 4) / 2, (1 + 4 + 7) / 3]
    )
    right = attend(torch.zeros(2, 1, 3, 1), keys, values, batch, AttentionSpec(1.0))
    assert right.flatten().tolist() == pytest.approx([0, 0, 2, 1, (1 + 4) / 2, (1 + 4 + 7) / 3])


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_the_leaky_mask_adds_the_neighbour_and_nothing_else(layout):
    batch = pack(
        SchedulerOutput(layout, (part(0, 2, 1, (0,)), part(1, 3, 0, (1,)), part(2, 1, 2, (2,)))),
        4,
        12,
        torch.device("cpu"),
    )
    honest, leaky = dense_mask(batch, None), leaky_mask(batch, None)
    assert not (honest & ~leaky).any()
    added = leaky & ~honest
    keys = {0: range(3), 1: range(3, 6), 2: range(6, 9)}
    width = batch.input_ids.shape[1]
    for index, segment in enumerate(batch.segments):
        for row in range(segment.row * width + segment.first, segment.row * width + segment.end):
            assert added[row].nonzero().flatten().tolist() == list(keys[(index + 1) % 3])
    pads = [
        r
        for r in range(leaky.shape[0])
        if not any(s.row * width + s.first <= r < s.row * width + s.end for s in batch.segments)
    ]
    assert not leaky[pads].any()


def test_alone_there_is_nobody_to_leak_from():
    batch = pack(SchedulerOutput("packed", (part(0, 3, 0, (0,)),)), 4, 4, torch.device("cpu"))
    assert torch.equal(leaky_mask(batch, None), dense_mask(batch, None))


def test_an_observer_sees_every_token_chosen_and_only_inside():
    seen: list[tuple[str, int]] = []
    engine = memory_engine(max_num_seqs=2, max_num_batched_tokens=8, block_size=4)
    with observing(
        lambda rows, logits: seen.extend(
            (row.request, int(own.argmax())) for row, own in zip(rows, logits, strict=True)
        )
    ):
        trace = engine.run(Workload(requests((9, 3), (2, 4))))
    assert {r: [t for q, t in seen if q == r] for r in trace.outputs} == trace.outputs
    count = len(seen)
    engine.run(Workload(requests((2, 2))))
    assert len(seen) == count


def test_where_one_of_two_answers_has_ended_they_part():
    """The same four tokens, and then two more, in the batch or alone, each with its logits."""
    short, long = memory_trace((5, 4)), memory_trace((5, 6))
    token = long.outputs["r0"][4]
    mine, theirs = torch.tensor([1.0, 3.5, 2.0]), torch.tensor([1.25, 3.5, 1.5])
    for alone, batched, parting in (
        (short, long, {"solo": None, "batched": token, "margin": None}),
        (long, short, {"solo": token, "batched": None, "margin": 1.5}),
    ):
        logits = [
            {"r0": [one] * len(run.outputs["r0"])}
            for one, run in ((mine, alone), (theirs, batched))
        ]
        found = _compared("r0", alone, logits[0], batched, logits[1], None)
        assert found["parting"] == {"position": 4} | parting
        assert (found["differing_tokens"], found["compared"]) == (2, 4)
        assert found["max_logit_difference"] == 0.5


def test_a_token_that_only_one_of_two_answers_has_differs():
    assert (differing((1, 2, 3), (1, 2)), differing((1, 4, 5, 6), (1, 2))) == (1, 3)
