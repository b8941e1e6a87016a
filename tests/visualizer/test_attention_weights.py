"""The weights shown over the mask: a distribution over the keys that the mask permits, and over
nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from core.config import SMOLLM2, EngineConfig
from core.errors import InflightError
from core.torch_engine.engine import Engine
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from visualizer.jobs import attention
from visualizer.jobs.attention import attention_weights
from visualizer.jobs.limits import Limits
from visualizer.server.models import foreseen, model_of, weigh_by
from worlds import families


@pytest.fixture(scope="module")
def ran():
    engine = Engine.from_pretrained(
        "shakespeare-char",
        EngineConfig(max_num_seqs=3, max_num_batched_tokens=8, block_size=4),
        device="cpu",
    )
    sampling = SamplingParams(max_new_tokens=5, ignore_eos=True)
    trace = engine.run(
        Workload(
            [
                Request(f"r{i}", prompt=p, sampling=sampling)
                for i, p in enumerate(("To be", "O Romeo, Romeo", "What"))
            ]
        )
    )
    return trace, engine.adapter


def weights_of(trace, adapter, *place):
    return attention_weights(trace, weigh_by(adapter), len(adapter.shapes), *place)


def test_weights_lie_where_the_mask_permits_and_add_up_to_one(ran):
    trace, adapter = ran
    for event in trace.events[:5]:
        mask = np.array(trace.mask(event.step).allowed)
        rows, columns = 0, 0
        for part in weights_of(trace, adapter, event.step, 0, 1, 2):
            weights = np.array(part["weights"])
            allowed = mask[rows : rows + weights.shape[0], columns : columns + weights.shape[1]]
            assert (weights[~allowed] == 0).all() and np.allclose(weights.sum(1), 1, atol=0.01)
            rows, columns = rows + weights.shape[0], columns + weights.shape[1]
        assert (rows, columns) == mask.shape


@pytest.mark.slow  # models are made
@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma3_text", "gpt_oss", "falcon"])
def test_they_are_those_that_the_model_itself_tells(family):
    """Of every layer and head, without keeping those of other layers."""
    world = families.world(family)
    ids = list(world.requests[0].prompt_token_ids)
    model = world.adapter.model
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    told = model(input_ids=torch.tensor([ids]), output_attentions=True).attentions
    model.set_attn_implementation(before)

    def hooks() -> int:
        return sum(len(module._forward_hooks) for module in model.modules())

    weigh, hooked = weigh_by(world.adapter), hooks()
    for layer, heads in enumerate(told):
        for head, rows in enumerate(heads[0].detach().numpy()):
            np.testing.assert_allclose(weigh(ids, layer, head), rows, atol=1e-6)
    assert hooks() == hooked


def test_the_model_runs_as_before_afterwards(ran):
    trace, adapter = ran
    before = adapter.model.config._attn_implementation
    weights_of(trace, adapter, trace.events[0].step, 0, 0, 0)
    assert adapter.model.config._attn_implementation == before


def test_what_the_page_offers_is_loaded_for_a_recorded_run_and_nothing_else(ran):
    trace, _ = ran
    header = replace(trace.header, model=replace(trace.header.model, name=SMOLLM2))
    loaded, none = SimpleNamespace(has=lambda *_: True), SimpleNamespace(has=lambda *_: False)
    at_home = Limits()
    offering = replace(at_home, offered=(SMOLLM2,), any_model=False)
    assert model_of(header, offering, none) == (SMOLLM2, "cpu", "auto")
    recorded = (SMOLLM2, header.device, header.dtype)
    assert model_of(header, offering, loaded) == model_of(header, at_home, loaded) == recorded
    with pytest.raises(InflightError, match="not loaded now"):
        model_of(header, at_home, none)
    with pytest.raises(InflightError, match="own models only"):
        model_of(header, replace(at_home, any_model=False), loaded)


def test_as_many_weights_as_a_page_holds_are_shown_and_no_more(ran, monkeypatch):
    """A query has one for each position of its cache."""
    trace, adapter = ran
    last = trace.events[-1]
    cells = sum(s.length * s.kv_len for s in last.segments)
    assert cells > sum(s.length for s in last.segments)
    monkeypatch.setattr(attention, "MAX_CELLS", cells)
    shown = weights_of(trace, adapter, last.step, 0, 0, 0)
    assert sum(len(row) for part in shown for row in part["weights"]) == cells
    monkeypatch.setattr(attention, "MAX_CELLS", cells - 1)
    with pytest.raises(InflightError, match=f"has {cells} weights in one head; .* {cells - 1}"):
        weights_of(trace, adapter, last.step, 0, 0, 0)


def test_weights_that_are_loaded_take_no_more_memory(monkeypatch):
    """What is foreseen of a pool is what is free beside the weights, unless these are there."""
    asked = {"model": "shakespeare-char", "device": "cpu"}
    loaded, none = SimpleNamespace(has=lambda *_: True), SimpleNamespace(has=lambda *_: False)
    weights = foreseen(asked, Limits(), none)["weights"]
    monkeypatch.setattr("core.torch_engine.models.memory.free_memory", lambda _: weights + 1000)
    found = [foreseen(asked, Limits(), models) for models in (none, loaded)]
    assert [(one["pool"], one["loaded"]) for one in found] == [
        (1000, False),
        (weights + 1000, True),
    ]


@pytest.mark.parametrize(
    ("step", "index", "layer", "head"),
    [(999, 0, 0, 0), (0, 7, 0, 0), (0, 0, 99, 0), (0, 0, 0, 99), (0, 0, 0, -1)],
)
def test_what_is_not_there_is_refused_in_words(ran, step, index, layer, head):
    with pytest.raises(InflightError):
        weights_of(*ran, step, index, layer, head)
