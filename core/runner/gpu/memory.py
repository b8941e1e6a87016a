"""How large a KV pool a GPU has room for: measured by a pass of the largest size before the pool is made, so that nothing runs out later."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from core.attention.batch import PackedBatch, pack
from core.attention.kv_pool import KVPool
from core.attention.paged_layout import paged_layout
from core.attention.spec import Backend
from core.errors import InvalidConfig
from core.models.adapter import ModelAdapter
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable

_GIB = 2**30
_BLOCK = 16


@dataclass(frozen=True)
class Room:
    """Bytes of a device before the KV pool is made.

    total: all of it. used: by the weights and other processes. peak: what the largest pass took on top. tokens: of that pass.
    utilization: share of the total that may be used.
    """

    total: int
    used: int
    peak: int
    tokens: int
    utilization: float

    @property
    def for_pool(self) -> int:
        """What is left for the pool; graphs keep a second copy of a pass's memory."""
        return max(0, int(self.total * self.utilization) - self.used - 2 * self.peak)

    def blocks(self, bytes_per_block: int) -> int:
        return self.for_pool // bytes_per_block

    @property
    def sentence(self) -> str:
        """Where the memory went."""
        return (
            f"{self.for_pool / _GIB:.2f} GiB are left for it: of {self.total / _GIB:.2f} GiB on the device {self.utilization:.0%} may be "
            f"used, {self.used / _GIB:.2f} GiB are taken, and a pass of {self.tokens:,} tokens needs {self.peak / _GIB:.2f} GiB, twice "
            "with its graph"
        )


def measure_room(adapter: ModelAdapter, tokens: int, lanes: int, utilization: float, backend: Backend) -> Room:
    """Compute a pass of so many tokens, all in one request, and see what it takes.

    Raises InvalidConfig if not even that pass can be computed.
    """
    device = adapter.device
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    torch.cuda.reset_peak_memory_stats(device)
    try:
        pool = KVPool(adapter.shapes, -(-tokens // _BLOCK), _BLOCK, adapter.dtype, device)
        held = torch.cuda.memory_allocated(device)
        logits = adapter.forward(_longest_pass(adapter, tokens, pool), pool, backend)
        torch.cuda.synchronize(device)
    except torch.OutOfMemoryError:
        raise InvalidConfig(
            f"A pass of {tokens:,} tokens does not fit into the GPU: {free / _GIB:.2f} of {total / _GIB:.2f} GiB are free beside the model."
        ) from None
    row = logits.shape[-1] * (logits.element_size() + 4 * 4)  # logits, and float32 copies to sample from
    peak = torch.cuda.max_memory_allocated(device) - held + min(lanes, tokens) * row
    del pool, logits
    torch.cuda.empty_cache()
    return Room(total, total - free, peak, tokens, utilization)


def _longest_pass(adapter: ModelAdapter, tokens: int, pool: KVPool) -> PackedBatch:
    """One prompt as long as a pass can be."""
    request = ScheduledRequest("probe", 0, "prefill", (0,) * tokens, 0, BlockTable(tuple(range(pool.num_blocks))), samples=True)
    output = SchedulerOutput("packed", (request,))
    kv_heads = min(shape.num_kv_heads for shape in adapter.shapes.values())
    layout = paged_layout(output, pool.block_size, adapter.num_heads, kv_heads, adapter.device)
    return replace(pack(output, pool.block_size, pool.trash_slot, adapter.device), paged=layout)


def memory_used(adapter: ModelAdapter, pool_bytes: int) -> dict[str, int]:
    """Bytes of the weights (of all processes that share the model), of the KV pool, and the most that torch has held since the run began."""
    weights = sum(p.numel() * p.element_size() for p in adapter.model.parameters())
    return {"weights": weights, "kv_pool": pool_bytes, "peak": torch.cuda.max_memory_allocated(adapter.device)}
