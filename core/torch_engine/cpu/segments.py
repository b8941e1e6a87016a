"""The arguments of both attention kernels: addresses and sizes, passed as plain integers."""

from typing import Any, NamedTuple

import numba
import torch

from core.torch_engine.attention.batch import SegmentTable
from core.torch_engine.cpu.vectors import floats, pointer


class Segments(NamedTuple):
    """query: `[R, H, W, Dk]`; row, head, column: its strides. keys, values: a layer's pool,
    `[slots, Hkv, Dk or Dv]`. out: `[R, W, H, Dv]`, of which only the rows of these segments are
    written. width: W. places, slots, ends: see `SegmentTable`. window: in positions. room: float32
    scratch memory of this thread.
    """

    query: Any
    row: int
    head: int
    column: int
    keys: Any
    values: Any
    out: Any
    heads: int
    kv_heads: int
    key_size: int
    value_size: int
    width: int
    places: Any
    slots: Any
    ends: Any
    num_segments: int
    window: int
    room: Any


def numbers_of(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    table: SegmentTable,
    window: int,
    room: torch.Tensor,
) -> tuple[int, ...]:
    """The integers that `read` expects. room: float32 `[threads, numbers]`."""
    return (
        query.data_ptr(),
        *query.stride()[:3],
        keys.data_ptr(),
        values.data_ptr(),
        out.data_ptr(),
        query.shape[1],
        *keys.shape[1:],
        values.shape[2],
        query.shape[2],
        table.places.data_ptr(),
        table.slots.data_ptr(),
        table.ends.data_ptr(),
        len(table.ends),
        window,
        room.data_ptr(),
        room.shape[1],
    )


@numba.njit(inline="always")
def read(like, numbers, thread):
    """The arguments from these integers, inside a kernel."""
    return Segments(
        pointer(numbers[0], like),
        numbers[1],
        numbers[2],
        numbers[3],
        pointer(numbers[4], like),
        pointer(numbers[5], like),
        pointer(numbers[6], like),
        numbers[7],
        numbers[8],
        numbers[9],
        numbers[10],
        numbers[11],
        pointer(numbers[12], numbers),
        pointer(numbers[13], numbers),
        pointer(numbers[14], numbers),
        numbers[15],
        numbers[16],
        floats(numbers[17], thread * numbers[18]),
    )
