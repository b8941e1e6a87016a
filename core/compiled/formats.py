"""The number formats in which compiled kernels read and write, and the exponential in which they compute: always float32."""

from __future__ import annotations

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

numba.config.THREADING_LAYER = "omp"  # torch's own threads: others would compete with them for the cores
MATH = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order; NaN and infinity stay what they are
_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_BITS = {torch.bfloat16: torch.uint16, torch.float16: torch.int16}


def is_known(dtype: torch.dtype) -> bool:
    """Whether the kernels read and write a format."""
    return dtype == torch.float32 or dtype in _BITS


def shown(tensor: torch.Tensor) -> np.ndarray:
    """A tensor as the kernels take it, without a copy. numpy has no bfloat16 and numba no float16: these are passed as their bits."""
    bits = _BITS.get(tensor.dtype)
    return (tensor if bits is None else tensor.view(bits)).numpy()


def use_torch_threads() -> int:
    """Has the kernels that this thread calls use as many threads as torch's operations; returns how many."""
    threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS)
    numba.set_num_threads(threads)
    return threads


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
def exp(x):
    """e^x for x up to 0, to the last bit or two, in operations of which the compiler does sixteen at a time (Cephes' `expf`); NaN of NaN."""
    low = max(x, np.float32(-87.0))
    power = np.floor(low * np.float32(1.44269504) + np.float32(0.5))
    rest = low - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    for factor in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = series * rest + np.float32(factor)
    series = series * rest * rest + rest + np.float32(1.0)
    return series * _float_of_bits((np.int32(power) + np.int32(127)) << np.int32(23))
