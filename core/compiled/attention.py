"""Attention of decodes, and writing new keys and values into the pool.

A decode reads all keys and values of its request once and computes little with them. SDPA is called for one request after another and wants
them contiguous and in float32; here one call per layer reads those of all requests where they are, in the format they have.
"""

from __future__ import annotations

from threading import Lock

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from core.attention import cpu
from core.attention.batch import PackedBatch
from core.attention.spec import AttentionSpec, Backend
from core.compiled.formats import MATH, exp, is_known, narrow, shown, use_torch_threads, wide

_CACHE_LINE = 64  # bytes
_AHEAD = 8  # positions, of which keys and values are asked for before they are needed
_INT = ir.IntType(32)
_compiling = Lock()


@intrinsic
def _fetch(typing, pool, slot, first, count):
    """Ask for what `count` heads from the first have in a slot, without waiting for it: pools are larger than caches, and processors do not foresee
    which slots come next.
    """

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        of_slot, of_head = cgutils.unpack_tuple(builder, array.strides)[:2]
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        begin = builder.add(builder.mul(arguments[1], of_slot), builder.mul(arguments[2], of_head))
        size, line = builder.mul(arguments[3], of_head), ir.Constant(begin.type, _CACHE_LINE)
        with cgutils.for_range_slice(builder, ir.Constant(size.type, 0), size, line) as (offset, _):
            address = builder.gep(builder.bitcast(array.data, byte), [builder.add(begin, offset)])
            builder.call(prefetch, [address, _INT(0), _INT(3), _INT(1)])  # to read; into all caches; data
        return context.get_dummy_value()

    return types.void(pool, types.intp, types.intp, types.intp), generate


@numba.njit(fastmath=MATH, cache=True, error_model="numpy")
def _scores(asked, keys, values, slots, begin, end, lowest, count, weights):
    """Products of queries `[count * groups, Dk]` with the keys of slots begin to end, into `weights [count * groups, keys]`."""
    groups = len(asked) // count
    for place in range(begin, end, 4):
        for later in range(place + _AHEAD, place + _AHEAD + 4):
            if later < end:
                _fetch(keys, slots[later], lowest, count)
            elif later - end < end - begin:
                _fetch(values, slots[begin + later - end], lowest, count)
        a, b, c, d = _four(slots, place, end)
        for kv_head in range(count):
            key_a, key_b = keys[a, lowest + kv_head], keys[b, lowest + kv_head]
            key_c, key_d = keys[c, lowest + kv_head], keys[d, lowest + kv_head]
            for head in range(kv_head * groups, (kv_head + 1) * groups):
                score_a = score_b = score_c = score_d = np.float32(0.0)
                for i in range(asked.shape[1]):
                    score_a += asked[head, i] * wide(key_a[i])
                    score_b += asked[head, i] * wide(key_b[i])
                    score_c += asked[head, i] * wide(key_c[i])
                    score_d += asked[head, i] * wide(key_d[i])
                weights[head, place - begin] = score_a
                weights[head, place - begin + 1] = score_b
                weights[head, place - begin + 2] = score_c
                weights[head, place - begin + 3] = score_d


@numba.njit(fastmath=MATH, cache=True, error_model="numpy")
def _softmax(weights, length):
    """Of the first `length` scores of each row, in their place; the others become 0."""
    for head in range(len(weights)):
        highest, total = np.float32(-np.inf), np.float32(0.0)
        for position in range(length):
            highest = max(highest, weights[head, position])
        for position in range(length):
            weight = exp(weights[head, position] - highest)
            weights[head, position] = weight
            total += weight
        share = np.float32(1.0) / total
        for position in range(length):
            weights[head, position] *= share
        weights[head, length:] = 0


@numba.njit(fastmath=MATH, cache=True, error_model="numpy")
def _sums(weights, keys, values, slots, begin, end, lowest, count):
    """Of the values of slots begin to end, weighted: `[count * groups, Dv]`. Ends with the first keys of the next request on their way."""
    groups = len(weights) // count
    sums = np.zeros((len(weights), values.shape[2]), np.float32)
    for place in range(begin, end, 4):
        for later in range(place + _AHEAD, place + _AHEAD + 4):
            if later < end:
                _fetch(values, slots[later], lowest, count)
            elif later < len(slots):
                _fetch(keys, slots[later], 0, keys.shape[1])
        a, b, c, d = _four(slots, place, end)
        for kv_head in range(count):
            value_a, value_b = values[a, lowest + kv_head], values[b, lowest + kv_head]
            value_c, value_d = values[c, lowest + kv_head], values[d, lowest + kv_head]
            for head in range(kv_head * groups, (kv_head + 1) * groups):
                weight_a, weight_b = weights[head, place - begin], weights[head, place - begin + 1]
                weight_c, weight_d = weights[head, place - begin + 2], weights[head, place - begin + 3]
                for i in range(values.shape[2]):
                    sums[head, i] += weight_a * wide(value_a[i]) + weight_b * wide(value_b[i])
                    sums[head, i] += weight_c * wide(value_c[i]) + weight_d * wide(value_d[i])
    return sums


@numba.njit(inline="always")
def _four(slots, place, end):
    """Four slots from a place on; where there are fewer, the last again."""
    last = end - 1
    return slots[place], slots[min(place + 1, last)], slots[min(place + 2, last)], slots[min(place + 3, last)]


@numba.njit(inline="always")
def _heads_before(work, length, heads):
    """How many of a request's heads are begun within this much work, of which each takes as much as the request has keys."""
    return min(max(-(-work // length), 0), heads)


@numba.njit(parallel=True, fastmath=MATH, cache=True, error_model="numpy")
def _decode(query, keys, values, rows, slots, ends, scaling, out, threads):
    """Each of these queries over its own keys. query: `[R, H, W, Dk]`; keys, values: a layer's pool; rows, slots, ends: see `Decodes`; out:
    `[R, W, H, Dv]`, of which only what belongs to these queries is written.

    The heads of the first request, then those of the second, and so on are one list, and every thread takes an equal stretch of it. So it mostly
    has all heads of a request, which lie side by side in a slot. Four positions are computed together: they share a head's query and sums.
    """
    num_kv_heads, key_size = keys.shape[1], keys.shape[2]
    groups = query.shape[1] // num_kv_heads
    work = len(slots) * num_kv_heads
    for thread in prange(threads):
        for index in range(len(rows)):
            begin, end = ends[index - 1] if index else 0, ends[index]
            length = end - begin
            lowest = _heads_before(work * thread // threads - begin * num_kv_heads, length, num_kv_heads)
            count = _heads_before(work * (thread + 1) // threads - begin * num_kv_heads, length, num_kv_heads) - lowest
            if count == 0:
                continue
            row, column, offset = rows[index, 0], rows[index, 1], lowest * groups
            asked = np.empty((count * groups, key_size), np.float32)
            for head in range(len(asked)):
                for i in range(key_size):
                    asked[head, i] = wide(query[row, offset + head, column, i]) * scaling
            weights = np.empty((len(asked), (length + 3) // 4 * 4), np.float32)
            _scores(asked, keys, values, slots, begin, end, lowest, count, weights)
            _softmax(weights, length)
            sums = _sums(weights, keys, values, slots, begin, end, lowest, count)
            for head in range(len(asked)):
                for i in range(values.shape[2]):
                    out[row, column, offset + head, i] = narrow(sums[head, i], out[0, 0, 0, 0])


@numba.njit(parallel=True, cache=True)
def _store(key, value, keys, values, slots):
    width = key.shape[2]
    for place in prange(len(slots)):
        for head in range(key.shape[1]):
            for i in range(key.shape[3]):
                keys[slots[place], head, i] = key[place // width, head, place % width, i]
            for i in range(value.shape[3]):
                values[slots[place], head, i] = value[place // width, head, place % width, i]


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: PackedBatch, spec: AttentionSpec
) -> torch.Tensor:
    """See `Attend`."""
    decodes = batch.decodes(spec.window)
    plain = spec.softcap is None and spec.sinks is None and query.dtype == keys.dtype and is_known(keys.dtype)
    if not plain or not len(decodes.ends):
        return cpu.attend(query, keys, values, batch, spec)
    rows, heads, width, _ = query.shape
    out = query.new_empty(rows, width, heads, values.shape[2])
    _decode(
        shown(query),
        shown(keys),
        shown(values),
        decodes.rows,
        decodes.slots,
        decodes.ends,
        np.float32(spec.scaling),
        shown(out),
        use_torch_threads(),
    )
    if not decodes.others:
        return out
    packed = batch.layout == "packed"
    for index, output in zip(decodes.others, cpu.attend_to(decodes.others, query, keys, values, batch, spec), strict=True):
        segment = batch.segments[index]
        out[segment.row, segment.first if packed else 0 : segment.end] = output[0]
    return out


def store(key: torch.Tensor, value: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
    """See `Store`."""
    _store(shown(key), shown(value), shown(keys), shown(values), slots.numpy())


def prepare(dtype: torch.dtype) -> None:
    """Compile the kernels for a number format, or read them from the disk, for tensors in any order; no pass waits for that later."""
    number = numba.typeof(shown(torch.empty(0, dtype=dtype))).dtype
    batch, pool, out = types.Array(number, 4, "A"), types.Array(number, 3, "C"), types.Array(number, 4, "C")
    rows, slots = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
    for kernel, given in (
        (_decode, (batch, pool, pool, rows, slots, slots, types.float32, out, types.int64)),
        (_store, (batch, batch, pool, pool, slots)),
    ):
        with _compiling:
            kernel.disable_compile(False)
            kernel.compile(given)
            kernel.disable_compile()


BACKEND = Backend(attend, store)
