"""Converts a scheduled pass, a `SchedulerOutput`, to the tensors of its forward pass."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import torch

from core.scheduler.output import SchedulerOutput
from core.torch_engine.gpu.paged_layout import PagedLayout


class AttentionSegment(NamedTuple):
    """One request's queries in the batch and its cache in the pool.

    row, first, end: queries `[row, first:end]` of the batch are real; in a padded row, `num_pads`
    pads stand before them. start: position of the first real query. slots: the cache's slots in
    order of position, a slice if they are consecutive.
    """

    row: int
    first: int
    end: int
    start: int
    kv_len: int
    num_pads: int
    slots: slice | torch.Tensor


class SegmentTable(NamedTuple):
    """The segments of a pass, for a compiled kernel.

    places: int64 `[n, 5]`, for each segment its row in the batch, the column of its first query,
    its number of queries, the index of the first query among the keys, and its number of pads.
    slots: int64, the slots of all keys that any query may attend to, segment after segment. ends:
    int64 `[n]`, where the slots of each segment end. longest: the most keys of a segment.
    """

    places: torch.Tensor
    slots: torch.Tensor
    ends: torch.Tensor
    longest: int


@dataclass(frozen=True)
class PackedBatch:
    """One forward pass: R rows of W positions (R = 1 in the packed layout).

    input_ids, position_ids: int64 `[R, W]`. slot_mapping: int64 `[R * W]`, the slot for the K and V
    of each position (pads: the trash slot). sample_rows: int64 `[n]`, flat positions whose logits
    are sampled, in order of the segments that sample. segments: what may attend to what. paged: the
    only part that the paged kernel reads.
    """

    layout: str
    input_ids: torch.Tensor
    position_ids: torch.Tensor
    slot_mapping: torch.Tensor
    sample_rows: torch.Tensor
    segments: tuple[AttentionSegment, ...] = ()
    paged: PagedLayout | None = None
    _masks: dict[tuple[int, int | None, int], torch.Tensor | None] = field(
        default_factory=dict, repr=False
    )
    _buffers: dict[tuple[int, torch.dtype], torch.Tensor] = field(default_factory=dict, repr=False)
    _tables: dict[int | None, tuple[SegmentTable, SegmentTable]] = field(
        default_factory=dict, repr=False
    )

    def mask(self, index: int, window: int | None, repeats: int = 1) -> torch.Tensor | None:
        """The keys that the queries of segment `index` may attend to: bool `[queries * repeats,
        keys]`, or None for all keys.

        Queries are the pads of a padded row (which attend to nothing), then the real ones. Keys are
        those that any query can see: all, or with a window the last `window + queries - 1`. The
        mask is built once per pass for all layers.
        """
        key = (index, window, repeats)
        if key not in self._masks:
            segment = self.segments[index]
            length = segment.end - segment.first
            lowest = first_visible_key(segment, window)
            if length == 1 and not segment.num_pads:
                mask = None
            else:
                device = self.input_ids.device
                queries = torch.arange(
                    segment.start - segment.num_pads, segment.kv_len, device=device
                )[:, None]
                keys = torch.arange(lowest, segment.kv_len, device=device)[None]
                mask = (keys <= queries) & (queries >= segment.start)
                if window is not None:
                    mask &= queries - keys < window
                mask = mask.repeat(repeats, 1)
            self._masks[key] = mask
        return self._masks[key]

    def tables(self, window: int | None) -> tuple[SegmentTable, SegmentTable]:
        """The tables of decodes (with one query) and of chunks, built once per window."""
        if window not in self._tables:
            decodes: list[AttentionSegment] = []
            chunks: list[AttentionSegment] = []
            for s in self.segments:
                (chunks if s.num_pads or s.end - s.first > 1 else decodes).append(s)
            self._tables[window] = _table(decodes, window), _table(chunks, window)
        return self._tables[window]

    def buffer(self, index: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Scratch memory of undefined content for use within a layer. All layers of the pass share
        it, since memory fresh from the system is several times as slow. index: of the buffer.
        """
        size = math.prod(shape)
        room = self._buffers.get((index, dtype))
        if room is None or room.numel() < size:
            room = self._buffers[index, dtype] = torch.empty(
                size, dtype=dtype, device=self.input_ids.device
            )
        return room[:size].view(shape)


def _table(segments: Sequence[AttentionSegment], window: int | None) -> SegmentTable:
    slots, places = [], []
    for s in segments:
        lowest, first = first_visible_key(s, window), s.first - s.num_pads
        slots.append(slots_of(s, lowest))
        places.append((s.row, first, s.end - first, s.start - s.num_pads - lowest, s.num_pads))
    return SegmentTable(
        torch.tensor(places),
        torch.cat(slots) if slots else torch.empty(0),
        torch.tensor(list(accumulate(map(len, slots)))),
        max(map(len, slots), default=0),
    )


def slots_of(
    segment: AttentionSegment, lowest: int = 0, device: torch.device | None = None
) -> torch.Tensor:
    """The slots of a segment's cache from position `lowest` on, int64 `[K]`."""
    slots = segment.slots
    if isinstance(slots, slice):
        return torch.arange(slots.start + lowest, slots.stop, device=device)
    return slots[lowest:]


def first_visible_key(segment: AttentionSegment, window: int | None) -> int:
    """The lowest position that the segment's first real query may attend to."""
    return 0 if window is None else max(0, segment.start - window + 1)


def pack(
    output: SchedulerOutput, block_size: int, trash_slot: int, device: torch.device
) -> PackedBatch:
    """Lay out a pass. In a padded row the real positions come last; pads have id and position 0."""
    padded = output.layout == "padded"
    ids: list[int] = []
    positions: list[int] = []
    mapping: list[int] = []
    samples: list[int] = []
    segments: list[AttentionSegment] = []
    for index, scheduled in enumerate(output.scheduled):
        tokens, start, table = scheduled.tokens, scheduled.start, scheduled.block_table
        length = len(tokens)
        pads = output.width - length if padded else 0
        if padded:
            ids += [0] * pads
            positions += [0] * pads
            mapping += [trash_slot] * pads
            first, row = pads, index
        else:
            first, row = len(ids), 0
        kv_len = start + length
        ids += tokens
        positions += range(start, kv_len)
        blocks = table.blocks
        if length == 1:
            mapping.append(blocks[start // block_size] * block_size + start % block_size)
        else:
            mapping += [
                blocks[p // block_size] * block_size + p % block_size for p in range(start, kv_len)
            ]
        if table.consecutive:
            base = blocks[0] * block_size
            slots: slice | torch.Tensor = slice(base, base + kv_len)
        else:
            starts = torch.tensor(blocks, device=device) * block_size
            slots = (starts[:, None] + torch.arange(block_size, device=device)).view(-1)[:kv_len]
        segments.append(AttentionSegment(row, first, first + length, start, kv_len, pads, slots))
        if scheduled.samples:
            samples.append(len(ids) - 1)
    shape = (output.rows, output.width)
    tensors = torch.tensor([ids, positions, mapping], device=device)
    return PackedBatch(
        layout=output.layout,
        input_ids=tensors[0].view(shape),
        position_ids=tensors[1].view(shape),
        slot_mapping=tensors[2],
        sample_rows=torch.tensor(samples, device=device, dtype=torch.long),
        segments=tuple(segments),
    )
