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
from core.engine.runner import SamplingRow
from core.models.probe import probe
from core.runner import choose, sampling
from core.runner.choose import choose_attention
from core.runner.eager import CPUKernels
from core.runner.engine import Engine
from core.runner.sampling import sample
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
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
    attention.prepare(dtype)
    key, value = torch.randn(2, 3, 4, 6).to(dtype).transpose(1, 2), torch.randn(2, 4, 3, 5).to(dtype)
    slots = torch.tensor([7, 0, 3, 11, 9, 1])
    mine, own = ([torch.ones(12, 4, size, dtype=dtype) for size in (6, 5)] for _ in range(2))
    attention.store(key, value, *mine, slots)
    spec.store(key, value, *own, slots)
    assert all(torch.equal(a, b) for a, b in zip(mine, own, strict=True))


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_nothing_is_compiled_within_a_run(name, monkeypatch):
    """A step would be on record with the seconds that it takes."""
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    everything = (attention._decode, attention._store, rows._rms_norm, rows._gelu, rows._logit_stats)
    for dtype in FORMATS[:2]:
        engine = Engine(BY_NAME[name].build().to(dtype), None, EngineConfig(max_num_batched_tokens=24))
        before = [len(kernel.signatures) for kernel in everything]
        engine.run(mixed(6, VOCAB, (5, 40), (2, 12)))
        sampling = SamplingParams(max_new_tokens=3, temperature=1.0, repetition_penalty=1.2)
        engine.run(Workload([Request("alone", prompt_token_ids=(1, 2, 3), sampling=sampling)]))
        Engine(engine.adapter, None, EngineConfig(policy="static", max_num_seqs=3)).run(mixed(4, VOCAB, (5, 20), (2, 5)))
        assert [len(kernel.signatures) for kernel in everything] == before


def test_what_is_not_finite_stays_in_its_request():
    """And does not vanish in it: a broken key or value must be seen in the logits."""
    attention.prepare(torch.float32)
    query, keys, values = torch.randn(1, 4, 3, 8), torch.randn(12, 2, 8), torch.randn(12, 2, 8)
    keys[1, 0, 3], values[10, 1, 2] = torch.nan, torch.inf
    segments = tuple(AttentionSegment(0, n, n + 1, 3, 4, 0, slice(4 * n, 4 * n + 4)) for n in range(3))
    nothing = torch.empty(1, 3, dtype=torch.long)
    batch = PackedBatch("packed", nothing, nothing, nothing, nothing, segments)
    out = attention.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    own = cpu.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    assert torch.equal(out.isfinite(), own.isfinite())
    assert [bool(row.isfinite().all()) for row in out[0]] == [False, True, False]


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_head_is_computed_by_one_thread(dtype, threads):
    """However many heads, keys and threads there are: requests of 1 to 40 keys, in slots that do not follow each other."""
    attention.prepare(dtype)
    draw = np.random.default_rng(threads)
    for kv_heads, groups, lengths in ((3, 2, (1,)), (1, 4, (5, 40, 1)), (4, 1, (40,)), (2, 3, (3, 2, 1, 1, 17, 4))):
        keys, values = (torch.from_numpy(draw.normal(size=(80, kv_heads, 16))).to(dtype) for _ in range(2))
        query = torch.from_numpy(draw.normal(size=(1, kv_heads * groups, len(lengths), 16))).to(dtype)
        slots = [draw.permutation(80)[:length] for length in lengths]
        places = np.array([(0, column) for column in range(len(lengths))])
        out = torch.full((1, len(lengths), kv_heads * groups, 16), torch.nan).to(dtype)
        given = (places, np.concatenate(slots), np.cumsum(lengths), np.float32(0.25))
        attention._decode(shown(query), shown(keys), shown(values), *given, shown(out), threads)
        for column, mine in enumerate(slots):
            k, v = (pool[mine].float().repeat_interleave(groups, 1) for pool in (keys, values))
            weights = (0.25 * torch.einsum("hd,khd->hk", query[0, :, column].float(), k)).softmax(-1)
            own = torch.einsum("hk,khd->hd", weights, v)
            torch.testing.assert_close(out[0, column].float(), own, rtol=torch.finfo(dtype).eps, atol=1e-5)


@pytest.mark.parametrize("dtype", FORMATS)
def test_gelu(dtype):
    edges = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 30.0, -30.0, 6e4, -6e4, torch.inf, -torch.inf, torch.nan])
    x = torch.cat([torch.linspace(-12, 12, 4000), edges]).to(dtype).view(1, -1, 1)
    own = torch.nn.functional.gelu(x.float(), approximate="tanh").to(dtype)
    torch.testing.assert_close(rows.gelu(x), own, rtol=2 * torch.finfo(dtype).eps, atol=1e-6, equal_nan=True)
    apart = torch.randn(2, 3, 24).to(dtype)[..., 5:17]
    torch.testing.assert_close(rows.gelu(apart), rows.gelu(apart.contiguous()), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", [1, 2, 63, 1024, 1025, 5000])
def test_what_is_asked_of_logits(dtype, size):
    """Blocks of -inf, equal logits, the best first or last: as torch finds it; the first of equals is the best."""
    logits = (4 * torch.randn(7, size)).to(dtype)
    logits[1] = 2
    logits[2, : size - 1] = -torch.inf
    logits[3, 1:] = -torch.inf
    logits[4, 0] = logits[4, -1] = 60
    logits[5] = -1e4
    mine, own = rows.logit_stats(logits), sampling.logit_stats(logits)
    assert torch.equal(mine[0], own[0]) and torch.equal(mine[1], own[1])
    torch.testing.assert_close(mine[2], own[2], rtol=1e-6, atol=2e-6)
    for broken in (torch.nan, torch.inf):
        logits[0, size // 2] = broken
        assert not rows.logit_stats(logits)[2][0].isfinite()


def test_sampling_is_the_same():
    logits = torch.randn(4, 3000).bfloat16()
    asked = [
        SamplingRow(SamplingParams(temperature=t, repetition_penalty=p, seed=1), 5, (), (7,)) for t in (0, 1) for p in (1, 1.5)
    ]
    assert sample(logits, asked, rows.logit_stats) == [
        s._replace(logprob=pytest.approx(s.logprob, abs=2e-5)) for s in sample(logits, asked)
    ]
    logits[1] = torch.nan
    assert [s.token_id is None for s in sample(logits, asked, rows.logit_stats)] == [False, True, False, False]


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
    monkeypatch.setattr(kernels, "BACKEND", replace(attention.BACKEND, store=lambda *given: None))
    assert obstacle.__wrapped__(torch.float32) == "what they compute here is wrong"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_in_short_formats_err_no_more_than_the_models_own(dtype, monkeypatch):
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    short, exact = (BY_NAME["llama"].build().to(dtype) for _ in range(2))
    found = logits_error(short, exact.float(), mixed(8, VOCAB, (5, 40), (5, 20)), TINY)
    assert found["tokens"] == 100 and 0 < found["packed_rms"] <= 1.2 * found["alone_rms"]
