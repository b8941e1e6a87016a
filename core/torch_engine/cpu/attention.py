"""Attention by compiled kernels, which read keys and values in place and in their own format: one
call for all decodes and one for all chunks.

SDPA instead is called for one request after another and needs keys and values contiguous and in
float32. For a chunk it computes all pairs of a query and a key, even those that the mask excludes.
"""

import torch

from core.torch_engine.attention import cpu
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.spec import AttentionSpec, Backend
from core.torch_engine.cpu.chunks import attend_chunks, room_of_chunks
from core.torch_engine.cpu.decodes import attend_decodes, room_of_decodes
from core.torch_engine.cpu.formats import number_type
from core.torch_engine.cpu.kernel import Kernel, within
from core.torch_engine.cpu.segments import numbers_of
from core.torch_engine.cpu.vectors import LANES, at, pointer

_NO_WINDOW = 2**40


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """See `Attend`."""
    heads, key_size, value_size = query.shape[1], keys.shape[2], values.shape[2]
    plain = spec.softcap is None and spec.sinks is None and query.dtype == keys.dtype
    if not plain or key_size % LANES or value_size % LANES or number_type(keys.dtype) is None:
        return cpu.attend(query, keys, values, batch, spec)
    query = query if query.stride(3) == 1 else query.contiguous()
    out = query.new_empty(query.shape[0], query.shape[2], heads, value_size)
    window = _NO_WINDOW if spec.window is None else spec.window
    decodes, chunks = batch.tables(spec.window)
    for kernel, table, size in (
        (attend_decodes, decodes, room_of_decodes(heads, key_size, value_size, decodes.longest)),
        (attend_chunks, chunks, room_of_chunks(key_size, value_size, chunks.longest)),
    ):
        if table.longest:
            room = batch.buffer(0, (torch.get_num_threads(), size), torch.float32)
            kernel(
                keys.dtype, numbers_of(query, keys, values, out, table, window, room), spec.scaling
            )
    return out


@within
def _copy(source, heads, head, size, pool, slot):
    """Copy a position's keys or values into a slot. head: distance from one head to the next."""
    for index in range(heads):
        there = at(source, index * head)
        here = at(pool, (slot * heads + index) * size)
        for i in range(size):
            here[i] = there[i]


def _store_share(like, numbers, factor, thread, threads):
    slots, count, width, heads = pointer(numbers[0], numbers), numbers[1], numbers[2], numbers[3]
    for first in range(4, 16, 6):
        source = pointer(numbers[first], like)
        row = numbers[first + 1]
        head = numbers[first + 2]
        column = numbers[first + 3]
        size, pool = numbers[first + 4], pointer(numbers[first + 5], like)
        for place in range(count * thread // threads, count * (thread + 1) // threads):
            position = at(source, place // width * row + place % width * column)
            _copy(position, heads, head, size, pool, slots[place])


_store = Kernel(_store_share)


def store(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """See `Store`."""
    key, value = (new if new.stride(3) == 1 else new.contiguous() for new in (key, value))
    numbers = [slots.data_ptr(), len(slots), key.shape[2], key.shape[1]]
    for new, pool in ((key, keys), (value, values)):
        numbers += (new.data_ptr(), *new.stride()[:3], new.shape[3], pool.data_ptr())
    _store(key.dtype, numbers)


KERNELS = (attend_decodes, attend_chunks, _store)
BACKEND = Backend(attend, store)
