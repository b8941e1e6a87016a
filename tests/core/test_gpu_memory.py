"""How much of a device is left for the KV pool: arithmetic, the pass that is measured, and the
sentence that tells of it.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from core.config import EngineConfig, Execution
from core.errors import InvalidConfig
from core.torch_engine.attention import cpu
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.choose import choose_attention
from core.torch_engine.engine import ModelExecutor
from core.torch_engine.models.probe import probe
from core.torch_engine.pool_size import (
    MOST_ON_CPU,
    MemoryBudget,
    _largest_pass,
    foreseen_pool,
    measure_memory,
    memory_used,
)
from worlds.families import world

GIB = 2**30


def test_the_pool_gets_what_weights_passes_and_the_reserve_leave():
    room = MemoryBudget(total=80 * GIB, used=20 * GIB, peak=3 * GIB, tokens=8192, utilization=0.9)
    assert room.for_pool == (72 - 20 - 2 * 3) * GIB
    assert (
        room.sentence
        == "46.00 GiB are left for it: of 80.00 GiB on the device 90% may be used, 20.00 GiB are"
        " taken, and a pass of 8,192 tokens needs 3.00 GiB, twice with its graph"
    )


@pytest.mark.parametrize(("used", "peak"), [(72, 0), (60, 6), (80, 40)])
def test_never_less_than_nothing(used, peak):
    assert MemoryBudget(80 * GIB, used * GIB, peak * GIB, 1, 0.9).for_pool == 0


def test_a_gpu_is_measured_again_only_for_a_larger_pass(monkeypatch):
    """And whoever is refused for the size of the pool is told how it came about."""
    measured, dropped = [], []

    def measure(adapter, tokens, lanes, utilization, backend):
        measured.append((tokens, lanes, utilization))
        return MemoryBudget(100 * GIB, 20 * GIB, 5 * GIB, tokens, utilization)

    monkeypatch.setattr("core.torch_engine.engine.measure_memory", measure)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # nor is Triton asked
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    gpu = SimpleNamespace(
        device=torch.device("cuda"),
        dtype=torch.float16,
        plug="attention",
        kv_bytes_per_token=2**20,
        tensor_parallel=1,
    )
    executor = ModelExecutor(gpu, Execution("sdpa", gpu_memory_utilization=0.5))
    assert executor.memory_sentence == ""
    for policy, budget, longest in (
        ("continuous", 2000, 10),
        ("continuous", 1000, 10),
        ("static", 1000, 500),
        ("static", 1000, 501),
    ):
        limits = EngineConfig(policy, 4, budget, 16)
        # 50 - 20 - 2 x 5 GiB in blocks of 16 MiB
        assert executor.most_blocks(limits, longest, lambda: dropped.append(None)) == 20 * 64
    assert measured == [(2000, 4, 0.5), (2004, 4, 0.5)] and len(dropped) == 2
    assert executor.memory_sentence == measure(gpu, 2004, 4, 0.5, None).sentence


def test_the_pass_that_is_measured_has_prompts_that_the_model_can_hold():
    """GPT-2's positions are learned: one beyond its table is a fault of the device."""
    adapter = probe(world("gpt2").model, "gpt2")
    longest, tokens = adapter.max_model_len, 5 * adapter.max_model_len + 3
    pool = KVPool(adapter.shapes, -(-longest // 16), 16, adapter.dtype, adapter.device)
    batch = _largest_pass(adapter, tokens, longest, pool)
    assert batch.position_ids.numel() == tokens
    assert batch.position_ids.max() == longest - 1


def test_a_pass_is_measured_beside_the_weights_and_its_pool(monkeypatch):
    answers = {
        "mem_get_info": (70 * GIB, 80 * GIB),
        "memory_allocated": 5 * GIB,
        "max_memory_allocated": 7 * GIB,
        **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "synchronize")),
    }
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)
    adapter = probe(world("gpt2").model, "gpt2")
    for tokens, rows in ((40, 3), (2, 2)):
        # of each number of the logits that are sampled 4 bytes, and in float32 four copies
        peak = 2 * GIB + rows * adapter.vocab_size * 20
        found = measure_memory(adapter, tokens, 3, 0.9, cpu.BACKEND)
        assert found == MemoryBudget(80 * GIB, 10 * GIB, peak, tokens, 0.9)

    def too_large(*_: object):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(adapter, "forward", too_large)
    with pytest.raises(
        InvalidConfig,
        match=r"^A pass of 1,000 tokens does not fit into the GPU: 70\.00 of 80\.00 GiB are free",
    ):
        measure_memory(adapter, 1000, 3, 0.9, cpu.BACKEND)


def test_what_a_run_has_used_of_a_gpu_is_on_record(monkeypatch):
    """512 weights of two bytes; ten blocks of four tokens of eight bytes; and the peak."""
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 5 * GIB)
    here = SimpleNamespace(
        device=torch.device("cuda"),
        model=torch.nn.Linear(32, 16, bias=False, dtype=torch.float16),
        kv_bytes_per_token=8,
    )
    pool = SimpleNamespace(num_blocks=10, block_size=4)
    assert memory_used(here, pool) == {"weights": 1024, "kv_pool": 320, "peak": 5 * GIB}
    here.device = torch.device("cpu")
    assert memory_used(here, pool) is None


def test_a_pool_is_foreseen_beside_the_weights():
    assert [foreseen_pool("cuda", free, 60) for free in (100, 50)] == [40, 0]
    assert foreseen_pool("cuda", 2**40, 60) == 2**40 - 60
    assert foreseen_pool("cpu", 2**40, 60) == foreseen_pool("cpu", None, 60) == MOST_ON_CPU


@pytest.mark.parametrize(
    ("capability", "dtype", "notes"),
    [
        ((8, 0), torch.bfloat16, []),
        ((8, 0), torch.float16, []),
        (
            (7, 5),
            torch.float16,
            ["float16: bfloat16 needs compute capability 8.0, and this GPU has 7.5"],
        ),
    ],
)
def test_what_a_gpu_lacks_is_noted_with_the_reason(monkeypatch, capability, dtype, notes):
    """Of a model on a GPU without the package triton; whoever asks for another way is told nothing
    of this one.
    """
    here = SimpleNamespace(device=torch.device("cuda"), dtype=dtype, plug="attention")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    slower = "Without the paged kernel, so slower: the package triton is not installed."
    for attention, first in (("auto", [slower]), ("sdpa", [])):
        chosen = choose_attention(here, EngineConfig(), Execution(attention), None)
        assert not chosen.paged and not chosen.asynchronous
        told = [*first, *notes]
        assert len(chosen.notes) == len(told)
        assert all(part in note for part, note in zip(told, chosen.notes, strict=True))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)  # and with it
    if notes:
        with pytest.raises(InvalidConfig, match=r"8\.0 and later, and this GPU has 7\.5"):
            choose_attention(here, EngineConfig(), Execution("triton"), None)


@pytest.mark.parametrize(
    ("policy", "processes", "asked", "overlaps", "graphless"),
    [
        ("continuous", 1, {}, True, False),
        ("split", 1, {}, False, False),
        ("continuous", 1, {"asynchronous": False}, False, False),
        ("continuous", 2, {}, True, True),
        ("continuous", 2, {"cuda_graphs": False}, True, False),
    ],
)
def test_on_a_gpu_steps_overlap_and_processes_that_share_a_model_have_no_graphs(
    monkeypatch, policy, processes, asked, overlaps, graphless
):
    pytest.importorskip("triton")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    here = SimpleNamespace(device=torch.device("cuda"), plug="attention", tensor_parallel=processes)
    chosen = choose_attention(here, EngineConfig(policy), Execution(**asked), None)
    assert (chosen.paged, chosen.asynchronous) == (True, overlaps)
    told = "Without CUDA graphs: no pass with collectives in it has been tried in one."
    assert chosen.notes == ((told,) if graphless else ())
