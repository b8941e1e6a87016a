"""How large a KV pool a GPU has room for: measured by a pass of the largest size before the pool is made, so that nothing runs out later."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.attention.spec import Backend
from core.kv_pool import KVPool
from core.models import ModelAdapter
from core.packing import pack
from core.request import BlockTable
from core.scheduler_output import ScheduledRequest, SchedulerOutput

_GIB = 2**30


@dataclass(frozen=True)
class Room:
    """Bytes of a device before the KV pool is made.

    total: all of it. used: by the weights and whoever else is there. peak: what the largest pass took on top. tokens: of that pass.
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
    """Compute a pass of so many tokens, all in one request, and see what it takes. Raises torch.OutOfMemoryError if it cannot be."""
    device = adapter.device
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    block = 16
    pool = KVPool(adapter.shapes, -(-tokens // block), block, adapter.dtype, device)
    held = torch.cuda.memory_allocated(device)
    table = BlockTable(tuple(range(pool.num_blocks)))
    request = ScheduledRequest("probe", 0, "prefill", (0,) * tokens, 0, table, samples=True)
    logits = adapter.forward(pack(SchedulerOutput("packed", (request,)), block, pool.trash_slot, device), pool, backend)
    rows = min(lanes, tokens)
    sampling = (
        rows * logits.shape[-1] * (logits.element_size() + 4 * 4)
    )  # logits of every lane, and float32 copies to sample from
    torch.cuda.synchronize(device)
    peak = torch.cuda.max_memory_allocated(device) - held + sampling
    del pool, logits
    torch.cuda.empty_cache()
    return Room(total, total - free + (torch.cuda.memory_allocated(device) - before), peak, tokens, utilization)


def memory_used(adapter: ModelAdapter, pool_bytes: int) -> dict[str, int]:
    """Bytes of the weights, of the KV pool, and the most that torch has held since the run began."""
    weights = sum(p.numel() * p.element_size() for p in adapter.model.parameters())
    return {"weights": weights, "kv_pool": pool_bytes, "peak": torch.cuda.max_memory_allocated(adapter.device)}
