"""A scheduled pass as NumPy arrays, ready to be copied to the device. Pure book-keeping: knows no model, no request and no device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.scheduler.output import SchedulerOutput


class LaneTables:
    """The block table of the request in each lane: int32 `[lanes, blocks]`, kept from pass to pass.

    A lane's row is never cleared: what stands after a request's last block is never read.
    """

    def __init__(self, num_lanes: int, blocks: int) -> None:
        self.blocks = np.zeros((num_lanes, blocks), np.int32)
        self._held: list[tuple[int, ...]] = [()] * num_lanes

    def update(self, output: SchedulerOutput) -> tuple[np.ndarray, np.ndarray]:
        """Enter a pass's tables; the flat indices that changed and what stands there now."""
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
    """What a pass of `rows` x `width` positions computes; pads have id and position 0 and write to the trash slot.

    ids, lanes, positions, slots: int64 `[rows * width]`; an id of UNREAD is the last token of its lane. sample_rows, sample_lanes:
    int64 `[n]`, flat positions whose logits are sampled, and for whom. query_rows, query_lens, kv_lens: int32 `[lanes]`, see
    `PagedLayout`; a lane is a sequence.
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


def lay_out(output: SchedulerOutput, tables: LaneTables, block_size: int, trash_slot: int) -> HostPass:
    """Lay out a pass whose block tables are in `tables`. Left padding: a row's real positions are its last ones."""
    scheduled = output.scheduled
    ids = np.array([i for s in scheduled for i in s.tokens], np.int64)
    lane = np.array([s.lane for s in scheduled], np.int64)
    start = np.array([s.start for s in scheduled], np.int64)
    length = np.array([len(s.tokens) for s in scheduled], np.int64)
    samples = np.array([s.samples for s in scheduled], bool)
    ends = length.cumsum()
    lanes = lane.repeat(length)
    positions = np.arange(ids.size) + (start - (ends - length)).repeat(length)
    slots = tables.blocks[lanes, positions // block_size].astype(np.int64) * block_size + positions % block_size
    last = ends - 1
    rows, width = output.rows, output.width
    first = ends - length
    if output.layout == "padded":
        last = np.arange(1, rows + 1) * width - 1
        first = last + 1 - length
        flat = np.arange(ids.size) + (first - (ends - length)).repeat(length)
        ids, lanes, positions = (_scattered(values, flat, rows * width, 0) for values in (ids, lanes, positions))
        slots = _scattered(slots, flat, rows * width, trash_slot)
    query_rows, query_lens, kv_lens = np.zeros((3, len(tables.blocks)), np.int32)
    query_rows[lane], query_lens[lane], kv_lens[lane] = first, length, start + length
    return HostPass(
        output.layout, rows, width, ids, lanes, positions, slots, last[samples], lane[samples], query_rows, query_lens, kv_lens
    )


def _scattered(values: np.ndarray, at: np.ndarray, size: int, pad: int) -> np.ndarray:
    """`values` at their places among `size`, `pad` elsewhere."""
    filled = np.full(size, pad, np.int64)
    filled[at] = values
    return filled
