"""What numba compiles for a CPU: the same numbers as torch's, in every format, and the same tokens
as `generate`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from worlds import dense_attention

pytest.importorskip(
    "numba", reason="these kernels need the package numba, which this platform does not have"
)

import numpy as np
import torch
from numba.core import event

from core.config import EngineConfig, Execution
from core.engine.runner import SamplingRow
from core.torch_engine import choose, sampling
from core.torch_engine.attention import cpu, spec
from core.torch_engine.attention.batch import AttentionSegment, PackedBatch
from core.torch_engine.choose import choose_attention
from core.torch_engine.cpu import attention, heads, kernel, kernels, rows
from core.torch_engine.cpu.formats import narrow, wide
from core.torch_engine.cpu.kernel import Kernel
from core.torch_engine.cpu.kernels import obstacle
from core.torch_engine.cpu.vectors import floats, pointer
from core.torch_engine.engine import Engine
from core.torch_engine.models.probe import probe
from core.torch_engine.sampling import sample
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from measure.bench.gpu import TINY
from measure.bench.gpu.parts import logits_error
from measure.bench.synthetic import mixed
from worlds.families import BY_NAME, RUNS, VOCAB, world

ROOT = Path(__file__).resolve().parents[2]
FORMATS = (torch.float32, torch.bfloat16, torch.float16)


_FAR = 2**31 + 4  # numbers: more than 32 bits count


def _round_trip(like, numbers, factor, thread, threads):
    exact, short = floats(numbers[0], 0), pointer(numbers[1], like)
    back = floats(numbers[2] - 4 * _FAR, _FAR)
    for i in range(numbers[3]):
        short[i] = narrow(exact[i], like)
        back[i] = wide(short[i])


def test_compiled_code_is_removed_if_a_source_is_newer_even_by_two_processes_at_once(
    tmp_path, monkeypatch
):
    source, compiled = tmp_path / "kernel.py", tmp_path / "__pycache__"
    compiled.mkdir()
    for at, file in enumerate((compiled / "old.nbi", source, compiled / "new.nbi")):
        file.touch()
        os.utime(file, (at, at))
    # listed, and gone when it is looked at: another process has removed it
    (compiled / "gone.nbi").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(kernel, "__file__", str(source))
    kernel._forget_older()
    assert {file.name for file in compiled.iterdir()} == {"new.nbi", "gone.nbi"}


@pytest.mark.parametrize("dtype", FORMATS)
def test_formats_are_converted_as_torch_does(dtype):
    """Ties go to even; infinities, zeros of both signs, the smallest numbers and NaN of any bits
    stay what they are.
    """
    bits = np.random.default_rng(0).integers(0, 2**32, 20_000, dtype=np.uint32)
    special = [
        0,
        2**31,
        0x7F800000,
        0xFF800000,
        0x7FFFFFFF,
        0xFFFFFFFF,
        0x7F800001,
        1,
        0x3F808000,
        0x3F818000,
        0x7F7FFFFF,
    ]
    numbers = torch.from_numpy(
        np.concatenate([bits, np.array(special, np.uint32)]).view(np.float32)
    )
    mine, back = torch.zeros(len(numbers), dtype=dtype), torch.zeros(len(numbers))
    Kernel(_round_trip)(
        dtype, [tensor.data_ptr() for tensor in (numbers, mine, back)] + [len(numbers)]
    )
    torch.testing.assert_close(mine, numbers.to(dtype), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(back, mine.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FORMATS)
def test_what_is_stored(dtype):
    """Rows of a padded batch, K and V of different sizes, not in one piece; what is not written
    stays.
    """
    key, value = (
        torch.randn(2, 3, 4, 6).to(dtype).transpose(1, 2),
        torch.randn(2, 4, 3, 10).to(dtype)[..., ::2],
    )
    slots = torch.tensor([7, 0, 3, 11, 9, 1])
    mine, own = ([torch.ones(12, 4, size, dtype=dtype) for size in (6, 5)] for _ in range(2))
    attention.store(key, value, *mine, slots)
    spec.store(key, value, *own, slots)
    assert all(torch.equal(a, b) for a, b in zip(mine, own, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_nothing_is_compiled_within_a_run(name, monkeypatch):
    """A step would be on record with the seconds that it takes."""
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    for dtype in FORMATS[:2]:
        engine = Engine(
            BY_NAME[name].build().to(dtype), None, EngineConfig(max_num_batched_tokens=24)
        )
        with event.install_recorder("numba:compile") as compiling:
            engine.run(mixed(6, VOCAB, (5, 40), (2, 12)))
            sampling = SamplingParams(max_new_tokens=3, temperature=1.0, repetition_penalty=1.2)
            engine.run(Workload([Request("alone", prompt_token_ids=(1, 2, 3), sampling=sampling)]))
            Engine(engine.adapter, None, EngineConfig(policy="static", max_num_seqs=3)).run(
                mixed(4, VOCAB, (5, 20), (2, 5))
            )
        assert not compiling.buffer


NOTHING = torch.empty(1, 3, dtype=torch.long)


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_not_finite_stays_in_its_request(count):
    """And does not vanish in it: a broken key or value must be seen in the logits. count: queries
    of each, so decodes or chunks.
    """
    query, keys, values = (
        torch.randn(1, 4, 3 * count, 16),
        torch.randn(12, 2, 16),
        torch.randn(12, 2, 16),
    )
    keys[1, 0, 3], values[10, 1, 2] = torch.nan, torch.inf
    segments = tuple(
        AttentionSegment(0, count * n, count * n + count, 4 - count, 4, 0, slice(4 * n, 4 * n + 4))
        for n in range(3)
    )
    batch = PackedBatch("packed", NOTHING, NOTHING, NOTHING, NOTHING, segments)
    out = attention.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    own = cpu.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    assert torch.equal(out.isfinite(), own.isfinite())
    assert [bool(row.isfinite().all()) for row in out[0, ::count]] == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("window", [None, 1, 3, 20])
def test_every_query_is_computed_by_one_thread(dtype, threads, window, monkeypatch):
    """However many heads, queries, keys and threads there are: decodes and chunks whose slots do
    not follow each other.
    """
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    draw = np.random.default_rng(threads)
    for kv_heads, groups, lengths in (
        (3, 2, ((1, 1),)),
        (1, 4, ((1, 5), (1, 40), (1, 1))),
        (4, 1, ((40, 40), (1, 9))),
        (2, 3, ((3, 3), (1, 2), (15, 31), (16, 16), (17, 50), (1, 4), (2, 40))),
    ):
        keys, values = (
            torch.from_numpy(draw.normal(size=(300, kv_heads, 32))).to(dtype) for _ in range(2)
        )
        width = sum(count for count, _ in lengths)
        query = torch.from_numpy(draw.normal(size=(1, kv_heads * groups, width, 32))).to(dtype)
        segments, first = [], 0
        for count, length in lengths:
            slots = torch.from_numpy(draw.permutation(300)[:length])
            segments.append(
                AttentionSegment(0, first, first + count, length - count, length, 0, slots)
            )
            first += count
        batch = PackedBatch(
            "packed", torch.empty(1, width), NOTHING, NOTHING, NOTHING, tuple(segments)
        )
        asked = spec.AttentionSpec(0.25, window)
        mine = attention.attend(query, keys, values, batch, asked)
        own = dense_attention.attend(query.double(), keys.double(), values.double(), batch, asked)
        torch.testing.assert_close(mine.double(), own, rtol=torch.finfo(dtype).eps, atol=1e-5)


_ON_OTHER_PROCESSORS = """
import sys, llvmlite.binding, pytest
features = llvmlite.binding.get_host_cpu_features()
features["avx512f"] = False
llvmlite.binding.get_host_cpu_features = lambda: features
from core.torch_engine.cpu import vectors
assert vectors.LANES == 8
sys.exit(pytest.main(["-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_vectors_of_other_processors(tmp_path):
    """Those with half as many lanes; with 16 only where this one has them. In one format: all have
    to be compiled anew.
    """
    tests = [
        f"{__file__}::{test.__name__}"
        for test in (test_every_query_is_computed_by_one_thread, test_what_is_stored)
    ]
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", _ON_OTHER_PROCESSORS, "-k", "dtype1", *tests],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_pads_attend_to_nothing_and_spoil_nothing():
    """A padded row is one chunk from its first column on."""
    query, keys, values = torch.randn(2, 2, 40, 16), torch.randn(80, 1, 16), torch.randn(80, 1, 16)
    segments = (
        AttentionSegment(0, 0, 40, 0, 40, 0, slice(0, 40)),
        AttentionSegment(1, 37, 40, 2, 5, 37, slice(40, 45)),
    )
    batch = PackedBatch("padded", NOTHING, NOTHING, NOTHING, NOTHING, segments)
    mine = attention.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    own = cpu.attend(query, keys, values, batch, spec.AttentionSpec(0.3))
    torch.testing.assert_close(mine[0], own[0])
    torch.testing.assert_close(mine[1, 37:], own[1, 37:])
    assert torch.equal(mine[1, :37], torch.zeros(37, 2, 16))


@pytest.mark.parametrize("dtype", FORMATS)
def test_gelu(dtype):
    edges = torch.tensor(
        [0.0, -0.0, 1e-30, -1e-30, 30.0, -30.0, 6e4, -6e4, torch.inf, -torch.inf, torch.nan]
    )
    x = torch.cat([torch.linspace(-12, 12, 4000), edges]).to(dtype).view(1, -1, 1)
    own = torch.nn.functional.gelu(x.float(), approximate="tanh").to(dtype)
    torch.testing.assert_close(
        rows.gelu(x), own, rtol=2 * torch.finfo(dtype).eps, atol=1e-6, equal_nan=True
    )
    apart = torch.randn(2, 3, 24).to(dtype)[..., 5:17]
    torch.testing.assert_close(rows.gelu(apart), rows.gelu(apart.contiguous()), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("size", [1, 2, 63, 1024, 1025, 5000])
def test_what_is_asked_of_logits(dtype, size):
    """Blocks of -inf, equal logits, the best first or last: as torch finds it; the first of equals
    is the best.
    """
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
        SamplingRow(SamplingParams(temperature=t, repetition_penalty=p, seed=1), 5, (), (7,))
        for t in (0, 1)
        for p in (1, 1.5)
    ]
    assert sample(logits, asked, rows.logit_stats) == [
        s._replace(logprob=pytest.approx(s.logprob, abs=2e-5)) for s in sample(logits, asked)
    ]
    logits[1] = torch.nan
    assert [s.token_id is None for s in sample(logits, asked, rows.logit_stats)] == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "mistral", "gemma2", "gpt_oss"])
@pytest.mark.parametrize("run", RUNS)
def test_tokens_are_those_of_generate(name, run, monkeypatch):
    """With windows, with prompts in chunks beside decodes, padded, in scattered blocks and after
    preemption; and where a softcap or sinks leave attention to SDPA.
    """
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    family = world(name, **({"n_embd": 64} if name == "gpt2" else {"head_dim": 16}))
    trace = family.run(None, **RUNS[run])
    assert trace.outputs == family.expected
    assert kernels.NOTE in trace.header.notes


def test_where_they_are_used(monkeypatch):
    def chosen(execution=Execution("auto"), backend=None):  # noqa: B008
        return choose_attention(adapter, EngineConfig(), execution, backend)

    adapter = probe(world("llama").model, "llama")
    assert chosen().backend is cpu.BACKEND
    assert chosen().kernels is None  # small: importing numba would take longer than the run
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    assert chosen().backend is attention.BACKEND and chosen().kernels == (
        rows.gelu,
        rows.gated,
        heads.place,
        rows.rms_norm,
        rows.logit_stats,
    )
    assert chosen(Execution(fused_norms=False)).kernels.norm is None
    assert chosen(Execution(fused_sampling=False)).kernels.stats is None
    assert chosen(Execution(attention="sdpa")).backend is cpu.BACKEND
    other = replace(cpu.BACKEND, leaks=True)
    assert chosen(backend=other) == (False, other, False, (), None)
    monkeypatch.setattr(kernels, "obstacle", lambda dtype: "what they compute here is wrong")
    assert chosen().backend is cpu.BACKEND
    monkeypatch.undo()
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert chosen().backend is cpu.BACKEND


@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_where_numba_breaks_when_it_is_imported_attention_is_torchs(error, monkeypatch):
    class Breaks:
        def find_spec(self, name, path, target=None):
            if name == kernels.__name__:
                raise error("numba needs NumPy 2.5 or less")

    adapter = probe(world("llama").model, "llama")
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    assert choose_attention(adapter, EngineConfig(), Execution("auto"), None).kernels is not None
    monkeypatch.setattr(sys, "meta_path", [Breaks(), *sys.meta_path])
    monkeypatch.delattr("core.torch_engine.cpu.kernels")
    monkeypatch.delitem(sys.modules, kernels.__name__)
    assert choose_attention(adapter, EngineConfig(), Execution("auto"), None).kernels is None


@pytest.mark.slow
def test_they_are_tried_before_they_are_used(monkeypatch):
    assert [obstacle(dtype) for dtype in FORMATS] == [None] * 3
    assert obstacle(torch.float64) == "they are not for torch.float64"
    monkeypatch.setattr(kernels, "BACKEND", replace(attention.BACKEND, store=lambda *given: None))
    assert obstacle.__wrapped__(torch.float32) == "what they compute here is wrong"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_logits_in_short_formats_err_no_more_than_the_models_own(dtype, monkeypatch):
    monkeypatch.setattr(choose, "_WORTH_COMPILING", 1)
    short, exact = (BY_NAME["llama"].build(head_dim=16).to(dtype) for _ in range(2))
    found = logits_error(short, exact.float(), mixed(8, VOCAB, (5, 40), (5, 20)), TINY)
    assert found["tokens"] == 100 and 0 < found["packed_rms"] <= 1.2 * found["alone_rms"]
