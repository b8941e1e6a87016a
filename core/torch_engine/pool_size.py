"""How much memory a KV pool can take. On a GPU this is measured with a pass of the largest size
before the pool is created, so that memory does not run out later.
"""

import os
from dataclasses import dataclass, replace

import torch

from core.config import EngineConfig
from core.errors import InvalidConfig
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable
from core.torch_engine.attention.batch import PackedBatch, pack
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.attention.spec import Backend
from core.torch_engine.gpu.paged_layout import paged_layout
from core.torch_engine.models.adapter import ModelAdapter

_GIB = 2**30
_BLOCK = 16
# the most bytes of a pool on a CPU if the number of blocks is not configured
MOST_ON_CPU = 2**30


@dataclass(frozen=True)
class MemoryBudget:
    """Bytes of a device before the KV pool is created.

    total: all memory. used: by the weights and other processes. peak: what the largest pass took in
    addition. tokens: in that pass. utilization: share of the total that may be used.
    """

    total: int
    used: int
    peak: int
    tokens: int
    utilization: float

    @property
    def for_pool(self) -> int:
        """The bytes left for the pool; graphs keep a second copy of a pass's memory."""
        return max(0, int(self.total * self.utilization) - self.used - 2 * self.peak)

    @property
    def sentence(self) -> str:
        """How the memory is divided, as part of a sentence."""
        return (
            f"{self.for_pool / _GIB:.2f} GiB are left for it: of {self.total / _GIB:.2f} GiB on the"
            f" device {self.utilization:.0%} may be used, {self.used / _GIB:.2f} GiB are taken, and"
            f" a pass of {self.tokens:,} tokens needs {self.peak / _GIB:.2f} GiB, twice with its"
            " graph"
        )


def measure_memory(
    adapter: ModelAdapter, tokens: int, lanes: int, utilization: float, backend: Backend
) -> MemoryBudget:
    """Measure the memory of a pass of this many tokens, in prompts as long as the model allows.
    Raises InvalidConfig if not even that pass can be computed.
    """
    device = adapter.device
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        longest = min(tokens, adapter.max_model_len or tokens)
        pool = KVPool(adapter.shapes, -(-longest // _BLOCK), _BLOCK, adapter.dtype, device)
        held = torch.cuda.memory_allocated(device)
        logits = adapter.forward(_largest_pass(adapter, tokens, longest, pool), pool, backend)
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        raise InvalidConfig(
            f"A pass of {tokens:,} tokens does not fit into the GPU: {free / _GIB:.2f} of"
            f" {total / _GIB:.2f} GiB are free beside the model."
        ) from None
    # logits, and float32 copies to sample from
    row = logits.shape[-1] * (logits.element_size() + 4 * 4)
    peak = torch.cuda.max_memory_allocated(device) - held + min(lanes, tokens) * row
    del pool, logits
    torch.cuda.empty_cache()
    return MemoryBudget(total, total - free, peak, tokens, utilization)


def _largest_pass(adapter: ModelAdapter, tokens: int, longest: int, pool: KVPool) -> PackedBatch:
    """`tokens` in prompts of up to `longest`, all in the same blocks, with one row of logits."""
    table = BlockTable(tuple(range(pool.num_blocks)))
    prompts = tuple(
        ScheduledRequest(
            request="probe",
            lane=lane,
            phase="prefill",
            tokens=(0,) * min(longest, tokens - first),
            start=0,
            block_table=table,
            samples=first == 0,
        )
        for lane, first in enumerate(range(0, tokens, longest))
    )
    output = SchedulerOutput("packed", prompts)
    kv_heads = min(shape.num_kv_heads for shape in adapter.shapes.values())
    layout = paged_layout(output, pool.block_size, adapter.num_heads, kv_heads, adapter.device)
    return replace(pack(output, pool.block_size, pool.trash_slot, adapter.device), paged=layout)


def check_pool(config: EngineConfig, adapter: ModelAdapter) -> None:
    """Raises InvalidConfig for a pool that is larger than all memory of the model's device."""
    total = None if config.num_blocks is None else _memory_of(adapter.device)
    pool = (config.num_blocks or 0) * config.block_size * adapter.kv_bytes_per_token
    if total is not None and pool > total:
        raise InvalidConfig(
            f"A KV pool of {config.num_blocks:,} blocks of {config.block_size} tokens takes"
            f" {pool / _GIB:,.1f} GiB, and {adapter.device} has {total / _GIB:,.1f} GiB in all."
        )


def foreseen_pool(device: str, free: int | None, weights: int) -> int:
    """The most bytes that a pool will take next to a model that is not loaded yet; on a GPU, passes
    will need some of them.

    free: bytes on the device now, None if unknown. weights: bytes of the model.
    """
    most = MOST_ON_CPU if device == "cpu" else 2**63
    return max(0, min(most, 2**63 if free is None else free - weights))


def _memory_of(device: torch.device) -> int | None:
    """Total bytes of memory; None if that cannot be determined."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_used(adapter: ModelAdapter, pool: KVPool) -> dict[str, int] | None:
    """Bytes of the weights (over all processes that share the model), of the KV pool, and the peak
    that torch has held since the run began; None except on a GPU.
    """
    if adapter.device.type != "cuda":
        return None
    return {
        "weights": sum(p.numel() * p.element_size() for p in adapter.model.parameters()),
        "kv_pool": pool.num_blocks * pool.block_size * adapter.kv_bytes_per_token,
        "peak": torch.cuda.max_memory_allocated(adapter.device),
    }
