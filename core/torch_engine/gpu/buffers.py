"""Lays out a scheduled pass as NumPy arrays on the host, and copies it to static tensors on the
device.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from core.scheduler.output import SchedulerOutput
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.gpu.paged_layout import PagedLayout, Tiles


class LaneTables:
    """The block table of the request in each lane: int32 `[lanes, blocks]`, kept from pass to pass.

    A lane's row is never cleared: entries after a request's last block are never read.
    """

    def __init__(self, num_lanes: int, blocks: int) -> None:
        self.blocks = np.zeros((num_lanes, blocks), np.int32)
        self._held: list[tuple[int, ...]] = [()] * num_lanes

    def forget(self) -> None:
        """A run begins: what the device has of the last one is unknown if a pass of it failed."""
        self._held = [()] * len(self._held)

    def update(self, output: SchedulerOutput) -> tuple[np.ndarray, np.ndarray]:
        """Store a pass's tables; returns the flat indices that changed and their new values."""
        indices: list[int] = []
        values: list[int] = []
        width = self.blocks.shape[1]
        for scheduled in output.scheduled:
            lane, now = scheduled.lane, scheduled.block_table.blocks
            before = self._held[lane]
            if now is before:
                continue
            same = len(before) if now[: len(before)] == before else 0
            self._held[lane] = now
            indices += range(lane * width + same, lane * width + len(now))
            values += now[same:]
        changed, blocks = np.array(indices, np.int64), np.array(values, np.int32)
        self.blocks.reshape(-1)[changed] = blocks
        return changed, blocks


@dataclass(frozen=True)
class HostPass:
    """The inputs of a pass of `rows` x `width` positions; pads have id and position 0 and write to
    the trash slot.

    ids, lanes, positions, slots: int64 `[rows * width]`; the id UNREAD stands for the last token of
    its lane. sample_rows, sample_lanes: int64 `[n]`, flat positions whose logits are sampled, and
    their lanes. query_rows, query_lens, kv_lens: int32 `[lanes]`, see `PagedLayout`; a lane is a
    sequence.
    """

    layout: str
    rows: int
    width: int
    ids: np.ndarray
    lanes: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    sample_rows: np.ndarray
    sample_lanes: np.ndarray
    query_rows: np.ndarray
    query_lens: np.ndarray
    kv_lens: np.ndarray


def lay_out(
    output: SchedulerOutput, tables: LaneTables, block_size: int, trash_slot: int
) -> HostPass:
    """Lay out a pass by `tables`, its block tables. A row's real positions are its last."""
    scheduled = output.scheduled
    ids = np.array([i for s in scheduled for i in s.tokens], np.int64)
    lane = np.array([s.lane for s in scheduled], np.int64)
    start = np.array([s.start for s in scheduled], np.int64)
    length = np.array([len(s.tokens) for s in scheduled], np.int64)
    samples = np.array([s.samples for s in scheduled], bool)
    ends = length.cumsum()
    lanes = lane.repeat(length)
    positions = np.arange(ids.size) + (start - (ends - length)).repeat(length)
    slots = (
        tables.blocks[lanes, positions // block_size].astype(np.int64) * block_size
        + positions % block_size
    )
    last = ends - 1
    rows, width = output.rows, output.width
    first = ends - length
    if output.layout == "padded":
        last = np.arange(1, rows + 1) * width - 1
        first = last + 1 - length
        flat = np.arange(ids.size) + (first - (ends - length)).repeat(length)
        ids, lanes, positions = (
            _scattered(values, flat, rows * width, 0) for values in (ids, lanes, positions)
        )
        slots = _scattered(slots, flat, rows * width, trash_slot)
    sampled = last[samples], lane[samples]
    sequences = np.zeros((3, len(tables.blocks)), np.int32)
    for values, found in zip(sequences, (first, length, start + length), strict=True):
        values[lane] = found
    return HostPass(output.layout, rows, width, ids, lanes, positions, slots, *sampled, *sequences)


def _scattered(values: np.ndarray, at: np.ndarray, size: int, pad: int) -> np.ndarray:
    """An array of `size` with `values` at `at` and `pad` elsewhere."""
    filled = np.full(size, pad, np.int64)
    filled[at] = values
    return filled


# -- on the device ---------------------------------------------------------------------------------


class PassShape(NamedTuple):
    """The sizes of a pass's tensors: positions in `rows` of `width`, rows of logits, tiles of
    either kind.

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
        """Rows × width, padding included."""
        return self.rows * self.width


Staged = tuple[torch.Tensor, torch.Tensor]
"""Pinned host memory, from which the device copies asynchronously."""


class Buffers:
    """Device tensors of one shape. tables: int32 `[lanes, blocks]`, shared by all shapes.

    Until the first `load`, and beyond what a pass fills, everything is a pad: it writes to the
    trash slot and attends to nothing.
    """

    def __init__(
        self,
        shape: PassShape,
        tables: torch.Tensor,
        block_size: int,
        queries_per_tile: int,
        trash_slot: int,
    ) -> None:
        self.shape, self._trash_slot = shape, trash_slot
        self._parts = [shape.positions] * 4 + [shape.samples] * 2
        lanes, prefill, decode = [len(tables)], [shape.prefill_tiles], [shape.decode_tiles]
        small_parts = lanes * 3 + prefill * 2 + decode * 3 + lanes * 2
        self._data = torch.zeros(sum(self._parts), dtype=torch.int64, device=tables.device)
        self._small = torch.zeros(sum(small_parts), dtype=torch.int32, device=tables.device)
        self.ids, self.lanes, self.positions, self.slots, self.sample_rows, self.sample_lanes = (
            self._data.split(self._parts)
        )
        self.slots.fill_(trash_slot)
        parts = self._small.split(small_parts)
        self.paged = PagedLayout(block_size, queries_per_tile, tables, *parts)
        self.paged.prefill_sequences.fill_(-1)
        self.paged.decode_sequences.fill_(-1)

    def stage(self, host: HostPass, tiles: Tiles) -> Staged:
        """Copy a pass into pinned host memory in this layout."""
        data, small = _pinned(self._data), _pinned(self._small)
        array = data.numpy()
        parts = np.split(array, np.cumsum(self._parts)[:-1])
        ids, lanes, positions, slots, sample_rows, sample_lanes = parts
        array[:] = 0
        slots[:] = self._trash_slot
        real = host.ids.size
        ids[:real] = host.ids
        lanes[:real] = host.lanes
        positions[:real] = host.positions
        slots[:real] = host.slots
        sample_rows[: host.sample_rows.size] = host.sample_rows
        sample_lanes[: host.sample_lanes.size] = host.sample_lanes
        np.concatenate((host.query_rows, host.query_lens, host.kv_lens, *tiles), out=small.numpy())
        return data, small

    def load(self, staged: Staged) -> None:
        """Overwrite the previous pass."""
        for own, given in zip((self._data, self._small), staged, strict=True):
            own.copy_(given, non_blocking=True)

    def batch(self, last_tokens: torch.Tensor) -> PackedBatch:
        """last_tokens: int64 `[lanes]`, used in place of ids that the host has not read."""
        shape = (self.shape.rows, self.shape.width)
        ids = torch.where(self.ids < 0, last_tokens[self.lanes], self.ids)
        return PackedBatch(
            self.shape.layout,
            ids.view(shape),
            self.positions.view(shape),
            self.slots,
            self.sample_rows,
            paged=self.paged,
        )


def _pinned(like: torch.Tensor) -> torch.Tensor:
    """Pinned host memory, for asynchronous copies; torch's allocator keeps it until then."""
    return torch.empty(like.shape, dtype=like.dtype, pin_memory=like.device.type == "cuda")
