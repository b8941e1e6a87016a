"""The tensors that a pass reads on the device, at addresses that stay: filled anew for every pass, by copies that nobody waits for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from core.attention.batch import PackedBatch
from core.attention.paged_layout import PagedLayout, Tiles
from core.runner.gpu.host_pass import HostPass


class Shape(NamedTuple):
    """What a pass's tensors measure: positions in `rows` of `width`, rows of logits, tiles of either kind.

    Passes of one shape run through the same buffers and, captured once, the same CUDA graph.
    """

    layout: str
    rows: int
    width: int
    samples: int
    prefill_tiles: int
    decode_tiles: int

    @property
    def positions(self) -> int:
        return self.rows * self.width


class Staged(NamedTuple):
    """Host memory from which the device copies by itself."""

    data: torch.Tensor
    small: torch.Tensor


class Buffers:
    """Device tensors of one shape. tables: int32 `[lanes, blocks]`, shared by all shapes.

    Until the first `load`, and beyond what a pass fills, everything is a pad: it writes to the trash slot and attends to nothing.
    """

    def __init__(self, shape: Shape, tables: torch.Tensor, block_size: int, queries_per_tile: int, trash_slot: int) -> None:
        self.shape, self._trash_slot, self._device = shape, trash_slot, tables.device
        self._parts = (shape.positions, shape.positions, shape.positions, shape.positions, shape.samples, shape.samples)
        lanes, prefill, decode = len(tables), shape.prefill_tiles, shape.decode_tiles
        self._small_parts = (lanes, lanes, lanes, prefill, prefill, decode, decode, decode, lanes, lanes)
        self._data = torch.zeros(sum(self._parts), dtype=torch.int64, device=self._device)
        self._small = torch.zeros(sum(self._small_parts), dtype=torch.int32, device=self._device)
        self.ids, self.lanes, self.positions, self.slots, self.sample_rows, self.sample_lanes = self._data.split(self._parts)
        self.slots.fill_(trash_slot)
        query_rows, query_lens, kv_lens, *tiles = self._small.split(self._small_parts)
        self.paged = PagedLayout(block_size, queries_per_tile, tables, query_rows, query_lens, kv_lens, *tiles)
        for name in ("prefill_sequences", "decode_sequences"):
            getattr(self.paged, name).fill_(-1)

    def stage(self, host: HostPass, tiles: Tiles) -> Staged:
        """A pass in host memory, laid out as here."""
        data, small = _pinned(self._data), _pinned(self._small)
        array = data.numpy()
        ids, lanes, positions, slots, sample_rows, sample_lanes = _split(array, self._parts)
        array[:] = 0
        slots[:] = self._trash_slot
        real = host.ids.size
        ids[:real], lanes[:real], positions[:real], slots[:real] = host.ids, host.lanes, host.positions, host.slots
        sample_rows[: host.sample_rows.size], sample_lanes[: host.sample_lanes.size] = host.sample_rows, host.sample_lanes
        np.concatenate((host.query_rows, host.query_lens, host.kv_lens, *tiles), out=small.numpy())
        return Staged(data, small)

    def load(self, staged: Staged) -> None:
        """Write a pass over the last one."""
        self._data.copy_(staged.data, non_blocking=True)
        self._small.copy_(staged.small, non_blocking=True)

    def batch(self, last_tokens: torch.Tensor) -> PackedBatch:
        """last_tokens: int64 `[lanes]`, which stand for ids that the host has not read."""
        shape = (self.shape.rows, self.shape.width)
        ids = torch.where(self.ids < 0, last_tokens[self.lanes], self.ids)
        return PackedBatch(
            self.shape.layout, ids.view(shape), self.positions.view(shape), self.slots, self.sample_rows, paged=self.paged
        )


def _split(array: np.ndarray, parts: tuple[int, ...]) -> list[np.ndarray]:
    return np.split(array, np.cumsum(parts)[:-1])


def _pinned(like: torch.Tensor) -> torch.Tensor:
    """Host memory from which the device copies by itself; torch's allocator keeps it until the copy is done."""
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=like.device.type == "cuda")
