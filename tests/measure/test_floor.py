"""The floor of a run: the products and the cache's bytes that it counts are those of the run.
Nothing is timed here.
"""

from __future__ import annotations

import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM
from transformers.pytorch_utils import Conv1D

from core.config import EngineConfig
from core.measure.compare import engine_contender
from core.torch_engine.attention import cpu
from core.torch_engine.attention.dense import dense_mask
from core.torch_engine.attention.spec import Backend
from core.torch_engine.engine import Engine
from measure.bench.floor import FLOOR, Floor, cache_bytes, rows_of_passes
from measure.bench.printed import print_report
from measure.bench.report import Options, SpeedBar, race
from measure.bench.synthetic import gpt2, mixed


def _windowed():
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        sliding_window=7,
        max_position_embeddings=128,
        bos_token_id=0,
        eos_token_id=0,
    )
    return MistralForCausalLM(config).eval()


@pytest.mark.parametrize("policy", ["continuous", "static"])
@pytest.mark.parametrize(
    "make", [lambda: gpt2(2, 64, 4, 97), _windowed, lambda: _windowed().to(torch.bfloat16)]
)
def test_what_is_counted_is_what_was_computed_and_read(make, policy):
    model, read = make(), [0]

    def attend(query, keys, values, batch, spec):
        seen = dense_mask(batch, spec.window).any(0).sum()
        read[0] += int(seen) * (keys[0].nbytes + values[0].nbytes)
        return cpu.attend(query, keys, values, batch, spec)

    engine = Engine(
        model,
        None,
        EngineConfig(policy=policy, max_num_seqs=3, max_num_batched_tokens=16),
        backend=Backend(attend),
    )
    head = model.get_output_embeddings()
    layers = [
        m for m in model.modules() if isinstance(m, (torch.nn.Linear, Conv1D)) and m is not head
    ]
    rows: dict[torch.nn.Module, list[int]] = {layer: [] for layer in (*layers, head)}
    for layer, given in rows.items():
        layer.register_forward_pre_hook(
            lambda _, x, given=given: given.append(x[0].shape[:-1].numel())
        )
    read[0] = 0
    trace = engine.run(mixed(5, 97, (5, 40), (3, 9)))
    passes = list(rows_of_passes(trace.events))
    assert len(passes) > 15 and max(rows for rows, _ in passes) > 8
    assert all(rows[layer] == [computed for computed, _ in passes] for layer in layers)
    # a model cannot be asked for no logits
    assert policy == "static" or rows[head] == [sampled or 1 for _, sampled in passes]
    assert cache_bytes(trace.events, engine.adapter) == read[0] > 0


@pytest.mark.slow
def test_a_floor_takes_turns_and_its_ratio_is_the_share(capsys):
    engine = Engine(gpt2(2, 64, 4, 97).to(torch.bfloat16))
    floor = Floor(engine, (options := Options(repeats=2)).clock)
    contenders = [
        engine_contender(engine, mixed(3, 97, (5, 9), (3, 4)), name="inflight"),
        floor.contender,
    ]
    report = race("x", "X", contenders, [SpeedBar("inflight", FLOOR, None)], options)
    (share,) = report.ratios
    assert share.runs == tuple(
        f / run for f, run in zip(report.times[FLOOR], report.times["inflight"], strict=True)
    )
    about = report.about[FLOOR] = floor.about()
    # which docs/command-line.md lists
    assert list(about) == ["products_s", "cache_s", "cache_bytes", "bytes_per_s"]
    assert (
        about["cache_bytes"] == cache_bytes(engine.trace.events, engine.adapter)
        and about["products_s"] > 0
    )
    assert about["cache_s"] < min(report.times[FLOOR]) and report.outputs_identical
    print_report(report.to_json())
    printed = capsys.readouterr().out
    assert (
        f"inflight share of the floor: {share.median:.2f} (" in printed
        and "floor: matrix products " in printed
    )
