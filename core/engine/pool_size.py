"""How many blocks the KV pool has: as configured, else as many as the requests can need and the device has memory for. Makes no pool."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch

from core.attention.spec import Backend
from core.config import EngineConfig, Execution
from core.errors import InvalidConfig, InvalidRequest
from core.models import tensor_parallel
from core.models.adapter import ModelAdapter
from core.runner.gpu.memory import Room, measure_room
from core.workload.request import Request

_GIB = 2**30
_MOST_ON_CPU = 2**30  # bytes that a pool takes at most where no number of blocks is configured


class PoolSize:
    """Sizes the KV pools of one engine, whose limits may change between runs.

    release: drops the pool that the engine has, whose memory counts as free when a GPU is measured.
    """

    def __init__(self, adapter: ModelAdapter, execution: Execution, release: Callable[[], None]) -> None:
        self._adapter, self._execution, self._release = adapter, execution, release
        self._room: Room | None = None  # of the GPU, measured once for the largest pass

    def num_blocks(self, config: EngineConfig, longest: int, backend: Backend) -> int:
        """Blocks for these limits: as configured, or room for a request of `longest` tokens in every lane, as far as memory goes.

        backend: the attention with which a GPU is measured. Raises InvalidConfig for a configured pool larger than the device's memory.
        """
        if config.num_blocks is not None:
            self.check_config(config)
            return config.num_blocks
        wanted = -(-longest // config.block_size) * config.num_lanes
        device = self._adapter.device
        if device.type == "meta":  # nothing is stored there
            return wanted
        bytes_per_block = self._adapter.kv_bytes_per_token * config.block_size
        if device.type == "cuda":
            affordable = self._measured(config, longest, backend).blocks(bytes_per_block)
            if self._adapter.tensor_parallel > 1:
                affordable = tensor_parallel.least(affordable, device)
        else:
            affordable = _MOST_ON_CPU // bytes_per_block
        return max(1, min(wanted, affordable))

    def check_config(self, config: EngineConfig) -> None:
        """Raises InvalidConfig for a configured pool that is larger than all memory of the device."""
        device = self._adapter.device
        if config.num_blocks is None or device.type == "meta":
            return
        pool = config.num_blocks * config.block_size * self._adapter.kv_bytes_per_token
        total = _memory_of(device)
        if total is not None and pool > total:
            raise InvalidConfig(
                f"A KV pool of {config.num_blocks:,} blocks of {config.block_size} tokens takes {pool / _GIB:,.1f} GiB, "
                f"and {device} has {total / _GIB:,.1f} GiB in all."
            )

    def check_request(self, request: Request, prompt: Sequence[int], config: EngineConfig, num_blocks: int) -> None:
        """Raises InvalidRequest for a request that needs more than the whole pool. prompt: its token ids."""
        new = request.sampling.max_new_tokens
        if len(prompt) + new > num_blocks * config.block_size:
            sized = f"; {self._room.sentence}" if self._room is not None and config.num_blocks is None else ""
            raise InvalidRequest(
                f"{len(prompt)} prompt tokens and {new} new ones exceed the whole "
                f"KV pool of {num_blocks} blocks of {config.block_size} tokens{sized}.",
                request.id,
            )

    def _measured(self, config: EngineConfig, longest: int, backend: Backend) -> Room:
        """What the GPU has for the pool, measured by a pass as large as these limits allow."""
        tokens = config.max_num_batched_tokens if config.policy.token_budget else longest * config.num_lanes
        if self._room is None or self._room.tokens < tokens:
            self._release()
            utilization = self._execution.gpu_memory_utilization
            self._room = measure_room(self._adapter, tokens, config.num_lanes, utilization, backend)
        return self._room


def _memory_of(device: torch.device) -> int | None:
    """Bytes of memory, taken or not; None where that cannot be asked."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    if not hasattr(os, "sysconf"):  # Windows
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
