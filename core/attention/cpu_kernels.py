"""Kernels for a CPU, compiled by numba: attention of decodes, writing new keys and values into the pool, RMS norms.

A decode reads all keys and values of its request once and computes little with them. SDPA is called for one request after another and wants
them contiguous and in float32; here one call per layer reads those of all requests where they are, in the format they have. What torch does in two
operations for K and V and transformers in eight for a norm is one here: with few rows an operation takes its time before it computes.
"""

from __future__ import annotations

from functools import cache

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from core.attention import cpu
from core.attention.batch import AttentionSegment, PackedBatch
from core.attention.spec import AttentionSpec, Backend

numba.config.THREADING_LAYER = "omp"  # torch's own threads: others would compete with them for the cores
_MATH = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order; NaN and infinity stay what they are
_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_BITS = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}


def _is_known(dtype: torch.dtype) -> bool:
    return dtype == torch.float32 or dtype in _BITS


def shown(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as the kernels take it, without a copy. numpy has no bfloat16 and numba no float16: these are passed as their bits."""
    bits = _BITS.get(tensor.dtype)
    return (tensor if bits is None else tensor.view(bits)).numpy()


@intrinsic
def wide(typing, number):
    """float32 of a float32, of bfloat16's bits as uint16, or of float16's as int16."""

    def generate(context, builder, signature, arguments):
        bits = arguments[0]
        if number == types.float32:
            return bits
        if number == types.uint16:
            return builder.bitcast(builder.shl(builder.zext(bits, _INT), _INT(16)), _FLOAT)
        return builder.fpext(builder.bitcast(bits, ir.HalfType()), _FLOAT)

    return types.float32(number), generate


@intrinsic
def narrow(typing, number, like):
    """The inverse: a float32 rounded to the format of `like`, to even where it lies in the middle."""

    def generate(context, builder, signature, arguments):
        exact = arguments[0]
        if like == types.float32:
            return exact
        if like == types.int16:
            return builder.bitcast(builder.fptrunc(exact, ir.HalfType()), ir.IntType(16))
        bits = builder.bitcast(exact, _INT)
        odd = builder.and_(builder.lshr(bits, _INT(16)), _INT(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, _INT(0x7FFF))), _INT(16))
        finite = builder.select(builder.fcmp_unordered("uno", exact, exact), _INT(0x7FC0), rounded)
        return builder.trunc(finite, ir.IntType(16))

    return like(types.float32, like), generate


@intrinsic
def _float_of_bits(typing, bits):
    return types.float32(types.int32), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], _FLOAT)


@numba.njit(inline="always")
def _exp(x):
    """e^x for x up to 0, to the last bit or two, in operations of which the compiler does sixteen at a time (Cephes' `expf`); NaN of NaN."""
    low = max(x, np.float32(-87.0))
    power = np.floor(low * np.float32(1.44269504) + np.float32(0.5))
    rest = low - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = series * rest + np.float32(factor)
    series = series * rest * rest + rest + np.float32(1.0)
    return series * _float_of_bits((np.int32(power) + np.int32(127)) << np.int32(23))


@numba.njit(parallel=True, fastmath=_MATH, cache=True, error_model="numpy")
def _decode(query, keys, values, rows, slots, ends, scaling, out, threads):
    """Each of these queries over its own keys. query: `[R, H, W, Dk]`; keys, values: a layer's pool; rows, slots, ends: see `Decodes`; out:
    `[R, W, H, Dv]`, of which only what belongs to these queries is written.

    A thread takes the same heads of all requests: those of one slot are read in one stretch, and the threads have equally much to do.
    """
    num_kv_heads, key_size, value_size = keys.shape[1], keys.shape[2], values.shape[2]
    groups = query.shape[1] // num_kv_heads
    parts = min(num_kv_heads, threads)
    for job in prange(parts * len(rows)):
        part, index = job // len(rows), job % len(rows)
        lowest, count = num_kv_heads * part // parts, num_kv_heads * (part + 1) // parts - num_kv_heads * part // parts
        row, column, offset = rows[index, 0], rows[index, 1], lowest * groups
        begin = ends[index - 1] if index else 0
        length = ends[index] - begin
        asked = np.empty((count * groups, key_size), np.float32)
        for head in range(count * groups):
            for i in range(key_size):
                asked[head, i] = wide(query[row, offset + head, column, i]) * scaling
        weights = np.empty((count * groups, length), np.float32)
        for position in range(length):
            slot = slots[begin + position]
            for head in range(count * groups):
                score = np.float32(0.0)
                for i in range(key_size):
                    score += asked[head, i] * wide(keys[slot, lowest + head // groups, i])
                weights[head, position] = score
        for head in range(count * groups):
            highest, total = np.float32(-np.inf), np.float32(0.0)
            for position in range(length):
                highest = max(highest, weights[head, position])
            for position in range(length):
                weight = _exp(weights[head, position] - highest)
                weights[head, position] = weight
                total += weight
            share = np.float32(1.0) / total
            for position in range(length):
                weights[head, position] *= share
        sums = np.zeros((count * groups, value_size), np.float32)
        for position in range(length):
            slot = slots[begin + position]
            for head in range(count * groups):
                weight = weights[head, position]
                for i in range(value_size):
                    sums[head, i] += weight * wide(values[slot, lowest + head // groups, i])
        for head in range(count * groups):
            for i in range(value_size):
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


@numba.njit(parallel=True, fastmath=_MATH, cache=True, error_model="numpy")
def _rms_norm(x, weight, eps, out):
    size = x.shape[1]
    for row in prange(len(x)):
        squares = np.float32(0.0)
        for i in range(size):
            squares += wide(x[row, i]) * wide(x[row, i])
        scale = np.float32(1.0) / np.sqrt(squares / np.float32(size) + eps)
        for i in range(size):
            normed = wide(narrow(wide(x[row, i]) * scale, out[0, 0]))
            out[row, i] = narrow(normed * wide(weight[i]), out[0, 0])


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """See `RMSNorm` in `core.runner.fused_norms`."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    size = x.shape[-1]
    _rms_norm(shown(x.reshape(-1, size)), shown(weight.detach()), np.float32(eps), shown(out.view(-1, size)))
    return out


def attend(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: PackedBatch, spec: AttentionSpec
) -> torch.Tensor:
    """See `Attend`."""
    decodes = batch.decodes(spec.window)
    plain = spec.softcap is None and spec.sinks is None and query.dtype == keys.dtype and _is_known(keys.dtype)
    if not plain or not len(decodes.ends):
        return cpu.attend(query, keys, values, batch, spec)
    rows, heads, width, _ = query.shape
    out = query.new_empty(rows, width, heads, values.shape[2])
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    numba.set_num_threads(threads)  # of all kernels that this thread calls
    _decode(
        shown(query),
        shown(keys),
        shown(values),
        decodes.rows,
        decodes.slots,
        decodes.ends,
        np.float32(spec.scaling),
        shown(out),
        threads,
    )
    packed = batch.layout == "packed"
    for index, output in zip(decodes.others, cpu.attend_to(decodes.others, query, keys, values, batch, spec), strict=True):
        segment = batch.segments[index]
        out[segment.row, segment.first if packed else 0 : segment.end] = output[0]
    return out


def store(key: torch.Tensor, value: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, slots: torch.Tensor) -> None:
    """See `Store`."""
    _store(shown(key), shown(value), shown(keys), shown(values), slots.numpy())


BACKEND = Backend(attend, store)
NOTE = f"Attention of decodes and RMS norms by kernels that numba {numba.__version__} compiled for this CPU."


@cache
def obstacle(dtype: torch.dtype) -> str | None:
    """Why the kernels cannot be used for a number format, as the end of a sentence. They are compiled, or read from the disk, and tried."""
    if not _is_known(dtype):
        return f"they are not for {dtype}"
    draw = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, heads, 2, 16, generator=draw).to(dtype) for heads in (4, 2, 2))
    keys, values = (torch.randn(9, 2, 16, generator=draw).to(dtype) for _ in range(2))
    slots = torch.tensor([2, 8])
    segments = (AttentionSegment(0, 0, 1, 2, 3, 0, slice(0, 3)), AttentionSegment(0, 1, 2, 4, 5, 0, slice(4, 9)))
    batch, spec = PackedBatch("packed", slots[None], slots[None], slots, slots, segments), AttentionSpec(0.25)
    try:
        store(key, value, keys, values, slots)
        out = attend(query, keys, values, batch, spec)
        rms_norm(query, keys[0, 0], 1e-6)  # each norm is tried beside its own module
    except (numba.core.errors.NumbaError, ValueError, RuntimeError) as error:
        return f"numba says: {error}"
    stored = torch.equal(keys[slots], key[0].transpose(0, 1)) and torch.equal(values[slots], value[0].transpose(0, 1))
    tolerance = 4 * torch.finfo(dtype).eps
    agrees = torch.allclose(out, cpu.attend(query, keys, values, batch, spec), tolerance, tolerance)
    return None if stored and agrees else "what they compute here is wrong"
