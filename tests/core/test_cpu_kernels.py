"""What numba compiles for a CPU: the same numbers as torch's, in every format, and the same tokens as `generate`."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("numba", reason="these kernels need the package numba, which this platform does not have")

import numba
import numpy as np
import torch

from core.attention import cpu, spec
from core.attention.batch import AttentionSegment, PackedBatch
from core.bench.gpu import TINY
from core.bench.gpu.parts import logits_error
from core.bench.synthetic import mixed
from core.compiled import attention, kernels, rows
from core.compiled.formats import narrow, shown, wide
from core.compiled.kernels import obstacle
from core.config import EngineConfig, Execution
from core.models.probe import probe
from core.runner import choose
from core.runner.choose import choose_attention
from core.runner.eager import CPUKernels
from worlds.families import BY_NAME, RUNS, VOCAB, world

FORMATS = (torch.float32, torch.bfloat16, torch.float16)


@numba.njit
def _round_trip(numbers, out):
    for i in range(len(numbers)):
        out[i] = narrow(numbers[i], out[0])


@numba.njit
def _widened(numbers, out):
    for i in range(len(numbers)):
        out[i] = wide(numbers[i])


@pytest.mark.parametrize("dtype", FORMATS)
def test_formats_are_converted_as_torch_does(dtype):
    """Ties go to even; infinities, zeros of both signs, the smallest numbers and NaN of any bits stay what they are."""
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    special = [0, 2**31, 0x7F800000, 0xFF800000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 1, 0x3F808000, 0x3F818000, 0x7F7FFFFF]
    numbers = torch.from_numpy(np.concatenate([bits, np.array(special, np.uint32)]).view(np.float32))
    mine = torch.zeros(len(numbers), dtype=dtype)
    _round_trip(numbers.numpy(), shown(mine))
    torch.testing.assert_close(mine, numbers.to(dtype), rtol=0, atol=0, equal_nan=True)
    back = torch.zeros(len(numbers))
    _widened(shown(mine), back.numpy())
    torch.testing.assert_close(back, mine.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FORMATS)
def test_what_is_stored(dtype):
    """Rows of a padded batch, K and V of different sizes, not in one piece; what is not written stays."""
    key, value = torch.randn(2, 3, 4, 6).to(dtype).transpose(1, 2), torch.randn(2, 4, 3, 5).to(dtype)
    slots = torch.tensor([7, 0, 3, 11, 9, 1])
    mine, own = ([torch.ones(12, 4, size, dtype=dtype) for size in (6, 5)] for _ in range(2))
    attention.store(key, value, *mine, slots)
    spec.store(key, value, *own, slots)
    assert all(torch.equal(a, b) for a, b in zip(mine, own, strict=True))


def test_what_is_not_finite_stays_in_its_request():
    """And does not vanish in it: a broken key or value must be seen in the logits."""
    query, keys, values = torch.randn(1, 4, 3, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    keys[1, 0, 3], values[10, 1, 2] = torch.nan, torch.inf
    segments = tuple(AttentionSegment(0, n, n + 1, 3, 4, 0, slice(4 * n, 4 * n + 4)) for n in range(3))
    nothing = torch.empty(1, 3, dtype=torch.long)
    batch = PackedBatch("packed", nothing, nothing, nothing, nothing, segments)
    out = attention.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    own = cpu.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    assert torch.equal(out.isfinite(), own.isfinite())
    assert [bool(row.isfinite().all()) for row in out[0]] == [False, True, False]


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "mistral", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("run", RUNS)
def test_tokens_are_those_of_generate(name, run, monkeypatch):
    """With windows, softcap and sinks, with prompts in chunks beside decodes, padded, in scattered blocks and after preemption."""
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    family = world(name)
    trace = family.run(None, **RUNS[run])
    assert trace.outputs == family.expected
    assert kernels.NOTE in trace.header.notes


def test_where_they_are_used(monkeypatch):
    def chosen(execution=Execution("auto"), backend=None):  # noqa: B008
        return choose_attention(adapter, EngineConfig(), execution, backend)

    adapter = probe(world("llama").model, "llama")
    assert chosen().backend is cpu.BACKEND and chosen().kernels == (
        None,
        None,
        None,
    )  # small: importing numba would take longer than the run
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    assert chosen().backend is attention.BACKEND and chosen().kernels == (rows.rms_norm, rows.gelu, rows.logit_stats)
    assert chosen(Execution(fused_norms=False)).kernels.norm is None
    assert chosen(Execution(fused_sampling=False)).kernels.stats is None
    assert chosen(Execution(attention="sdpa")).backend is cpu.BACKEND
    other = replace(cpu.BACKEND, leaks=True)
    assert chosen(backend=other) == (False, other, False, (), CPUKernels())
    monkeypatch.setattr(kernels, "obstacle", lambda dtype: "what they compute here is wrong")
    assert chosen().backend is cpu.BACKEND
    monkeypatch.undo()
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert chosen().backend is cpu.BACKEND


def test_they_are_tried_before_they_are_used(monkeypatch):
    assert [obstacle(dtype) for dtype in FORMATS] == [None] * 3
    assert obstacle(torch.float64) == "they are not for torch.float64"
    monkeypatch.setattr(attention, "_store", lambda *given: None)
    assert obstacle.__wrapped__(torch.float32) == "what they compute here is wrong"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_in_short_formats_err_no_more_than_the_models_own(dtype, monkeypatch):
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    short, exact = (BY_NAME["llama"].build().to(dtype) for _ in range(2))
    found = logits_error(short, exact.float(), mixed(8, VOCAB, (5, 40), (5, 20)), TINY)
    assert found["tokens"] == 100 and 0 < found["packed_rms"] <= 1.2 * found["alone_rms"]
