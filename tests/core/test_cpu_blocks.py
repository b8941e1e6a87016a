"""What stands in for whole layers, attention modules and MLPs on a CPU: for those alone that say
the same, tried beside each.
"""

from __future__ import annotations

import weakref
from collections import Counter

import pytest
import torch

pytest.importorskip(
    "numba", reason="the kernels need the package numba, which this platform does not have"
)

from transformers.models.llama.modeling_llama import LlamaAttention

from core.config import EngineConfig
from core.torch_engine import choose
from core.torch_engine.attention import cpu
from core.torch_engine.cpu import blocks, heads, rows
from core.torch_engine.cpu import modules as cpu_modules
from core.torch_engine.cpu.attention import BACKEND
from core.torch_engine.cpu.blocks import Blocks, CPUKernels, cpu_blocks
from core.torch_engine.engine import Engine
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.probe import probe
from core.workload.workload import Workload
from measure.bench.gpu import TINY
from measure.bench.gpu.parts import logits_error
from measure.bench.synthetic import mixed
from worlds.families import BY_NAME, RUNS, VOCAB, requests, world

KERNELS = CPUKernels(rows.gelu, rows.gated, heads.place, rows.rms_norm, rows.logit_stats)
SIXTEEN = {"head_dim": 16}


@pytest.fixture(autouse=True)
def every_layer_is_worth_it(monkeypatch):
    """However small; and stand-ins are made anew."""
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    monkeypatch.setattr(cpu_modules, "_LEAST_WEIGHTS", 1)
    monkeypatch.setattr(cpu_modules, "_is_intel", lambda: False)
    monkeypatch.setattr(cpu_modules, "_modules", weakref.WeakKeyDictionary())


def _found(adapter: ModelAdapter, norms: bool = True) -> Counter[str]:
    """How many layers, attention modules and MLPs something stands in for."""
    modules = cpu_modules.cpu_modules(adapter.model)
    kernels = KERNELS if norms else KERNELS._replace(norm=None)
    found = cpu_blocks(adapter, modules, kernels, BACKEND)
    assert not any(module._forward_hooks for module in adapter.model.modules())
    return _kinds(found)


def _kinds(found: Blocks) -> Counter[str]:
    return Counter(type(block).__name__ for _, block in found.forwards)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("name", "layers", "attentions", "mlps"),
    [
        ("llama", 2, 2, 2),
        ("qwen2", 2, 2, 2),
        ("qwen3", 2, 2, 2),
        ("mistral", 2, 2, 2),
        ("phi3", 0, 2, 0),  # its MLP is in one piece, and a layer has more parts
        ("gemma", 2, 2, 2),
        ("gemma2", 0, 0, 2),  # softcaps
        ("gemma3_text", 0, 0, 2),  # other norms
        ("granite", 0, 2, 2),  # adds a fraction
        ("cohere", 0, 0, 2),  # turns neighbours
        ("smollm3", 2, 1, 2),  # one layer has no positions
        ("gpt_oss", 0, 0, 0),  # sinks
        ("gpt2", 0, 0, 0),
    ],
)
def test_for_whom_there_is_a_stand_in(name, layers, attentions, mlps, dtype):
    options = {
        "phi3": {"hidden_size": 64},
        "granite": SIXTEEN | {"residual_multiplier": 0.5},
        "gpt2": {},
    }.get(name, SIXTEEN)
    found = _found(probe(BY_NAME[name].build(**options).to(dtype)))
    assert (found["_Layer"], found["_Attention"], found["_GatedMLP"]) == (layers, attentions, mlps)


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral", "gemma", "granite", "qwen2_moe"])
@pytest.mark.parametrize("run", RUNS)
def test_tokens_are_those_of_generate(name, run):
    family = world(name, **SIXTEEN)
    assert _found(family.adapter)["_Attention"] == 2
    assert family.run(None, **RUNS[run]).outputs == family.expected


def test_each_attention_keeps_the_window_of_its_layer():
    windows = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    family = world("qwen2", **SIXTEEN, **windows)
    assert _found(family.adapter)["_Attention"] == 2
    assert family.run(None).outputs == family.expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma"])
def test_logits_in_short_formats_err_no_more_than_the_models_own(name, dtype):
    short, exact = (BY_NAME[name].build(**SIXTEEN).to(dtype) for _ in range(2))
    found = logits_error(short, exact.float(), mixed(8, VOCAB, (5, 40), (5, 20)), TINY)
    assert found["tokens"] == 100 and 0 < found["packed_rms"] <= 1.2 * found["alone_rms"]


class _Tempered(LlamaAttention):
    """Queries of distant positions are longer, as in Llama 4."""

    def forward(self, hidden_states, position_embeddings, position_ids, **kwargs):
        scale = torch.where(position_ids > 50, 1.1, 1.0)[..., None]
        return super().forward(hidden_states * scale, position_embeddings, **kwargs)


class _Twice(LlamaAttention):
    def forward(self, hidden_states, **kwargs):
        out, weights = super().forward(hidden_states, **kwargs)
        return 2 * out, weights


@pytest.mark.parametrize("kind", [_Tempered, _Twice])
def test_what_says_something_else_is_left_alone(kind):
    model = BY_NAME["llama"].build(**SIXTEEN)
    assert _found(probe(model))["_Attention"] == 2
    model.model.layers[1].self_attn.__class__ = kind
    assert _found(probe(model))["_Attention"] == 1
    # somebody else has replaced it
    model.model.layers[0].self_attn.forward = model.model.layers[0].self_attn.forward
    assert _found(probe(model)) == {"_Layer": 2, "_GatedMLP": 2}


def test_norms_of_queries_and_keys_are_left_alone_where_fused_norms_are_off():
    adapter = probe(BY_NAME["qwen3"].build(**SIXTEEN))
    assert _found(adapter, norms=False) == {"_Layer": 2, "_GatedMLP": 2}


def test_whoever_watches_a_module_sees_what_it_is_called_with_and_changes_what_it_gives():
    model = BY_NAME["llama"].build(**SIXTEEN)
    workload, engine = Workload(requests()), Engine(model, None, EngineConfig())
    before, seen = engine.run(workload).outputs, []
    layer = model.model.layers[0]
    for watched in (layer.mlp.down_proj, layer.self_attn.q_proj, layer.mlp, layer.self_attn):
        seen.clear()
        handle = watched.register_forward_pre_hook(lambda _, given: seen.append(given))
        assert engine.run(workload).outputs == before and seen
        handle.remove()
        handle = watched.register_forward_hook(
            lambda _, __, out: (-out[0], *out[1:]) if isinstance(out, tuple) else -out
        )
        assert engine.run(workload).outputs != before
        handle.remove()
    seen.clear()
    with torch.nn.modules.module.register_module_forward_hook(
        lambda module, *_: seen.append(module)
    ):
        engine.run(workload)
    assert {*layer.modules()} <= {*seen}
    assert engine.run(workload).outputs == before


class _Louder(torch.nn.Module):
    """An adapter around a linear layer."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, rows):
        return 1.5 * self.inner(rows)


@pytest.mark.parametrize("where", ["self_attn.q_proj", "mlp.up_proj", "mlp.down_proj", "mlp"])
def test_a_module_that_is_exchanged_or_given_another_forward_is_in_use(where):
    model, other = (BY_NAME["llama"].build(**SIXTEEN) for _ in range(2))
    workload, engine = Workload(requests()), Engine(model, None, EngineConfig())
    before = engine.run(workload).outputs
    for one in (model, other):
        layer = one.model.layers[0]
        layer.set_submodule(where, _Louder(layer.get_submodule(where)))
    own = Engine(other, None, EngineConfig(), backend=cpu.BACKEND).run(workload).outputs
    assert engine.run(workload).outputs == own != before
    if where == "mlp":
        inner = model.model.layers[1].mlp
        inner.forward = quiet = lambda rows: 0 * rows
        assert engine.run(workload).outputs != own and inner.forward is quiet


def test_what_is_no_projection_of_heads_is_refused_before_it_is_read():
    keys, values, rows = torch.zeros(8, 2, 16), torch.zeros(8, 2, 16), torch.zeros(1, 3, 8 * 16)
    slots, cosines = torch.arange(3), torch.ones(1, 3, 16)
    given = {"norms": (), "eps": 0.0, "keys": keys, "values": values, "slots": slots}
    assert heads.place(rows, (cosines, cosines), **given).shape == (1, 4, 3, 16)
    for rotation in (
        (cosines[:, :2], cosines[:, :2]),
        (torch.ones(1, 3, 32), torch.ones(1, 3, 32)),
        (cosines, cosines[..., :8]),
    ):
        with pytest.raises(TypeError, match="not rotations"):
            heads.place(rows, rotation, **given)
    with pytest.raises(TypeError, match="not projections"):
        heads.place(rows[..., :120].contiguous(), None, **given)


def test_what_breaks_in_its_trial_is_left_alone_and_a_run_says_so(monkeypatch):
    class Breaks(blocks._GatedMLP):
        def __call__(self, *given, **named):
            raise ValueError("no such rows. And more.")

    monkeypatch.setattr(blocks, "_GatedMLP", Breaks)
    family = world("llama", **SIXTEEN)
    trace = family.run(None)
    assert trace.outputs == family.expected
    told = [note for note in trace.header.notes if note.startswith("Nothing")]
    assert told == ["Nothing stands in for LlamaMLP: no such rows."]
    assert _found(family.adapter)["_Attention"] == 2 and not _found(family.adapter)["Breaks"]


def test_changed_weights_are_in_use():
    """In an engine that has run before: those of products, and those of norms."""
    model, other = (BY_NAME["qwen3"].build(seed, **SIXTEEN) for seed in (0, 1))
    workload = Workload(requests())
    engine = Engine(model, None, EngineConfig())
    before = engine.run(workload).outputs
    model.load_state_dict(other.state_dict())
    own = Engine(other, None, EngineConfig(), backend=cpu.BACKEND).run(workload).outputs
    assert engine.run(workload).outputs == own != before
