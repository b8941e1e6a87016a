"""The number formats that compiled kernels read and write, and exp in float32."""

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

# sums may be reordered; NaN and infinity are respected
MATH = {"reassoc", "contract", "nsz", "arcp"}
_INT, _FLOAT = ir.IntType(32), ir.FloatType()
_TYPES = {torch.float32: types.float32, torch.bfloat16: types.uint16, torch.float16: types.int16}


def number_type(dtype: torch.dtype) -> types.Type | None:
    """The numba type for a number format, None if there is none. numba has no bfloat16 and does not
    compute in float16, so both are passed as their bits.
    """
    return _TYPES.get(dtype)


def widened(builder, number, bits, lanes=1):
    """The instructions of `wide`, for several numbers at once."""
    integers, floats, halves = (_several(kind, lanes) for kind in (_INT, _FLOAT, ir.HalfType()))
    if number == types.float32:
        return bits
    if number == types.uint16:
        sixteen = ir.Constant(integers, 16 if lanes == 1 else [16] * lanes)
        return builder.bitcast(builder.shl(builder.zext(bits, integers), sixteen), floats)
    return builder.fpext(builder.bitcast(bits, halves), floats)


def _several(kind: ir.Type, lanes: int) -> ir.Type:
    return kind if lanes == 1 else ir.VectorType(kind, lanes)


@intrinsic
def wide(typing, number):
    """The float32 of a float32, of a bfloat16 given as uint16, or of a float16 given as int16."""
    return types.float32(number), lambda context, builder, signature, arguments: widened(
        builder, number, arguments[0]
    )


@intrinsic
def narrow(typing, number, like):
    """The inverse of `wide`: a float32 rounded to the format of pointer `like`, ties to even."""

    def generate(context, builder, signature, arguments):
        exact = arguments[0]
        if to == types.float32:
            return exact
        if to == types.int16:
            return builder.bitcast(builder.fptrunc(exact, ir.HalfType()), ir.IntType(16))
        bits = builder.bitcast(exact, _INT)
        odd = builder.and_(builder.lshr(bits, _INT(16)), _INT(1))
        rounded = builder.lshr(builder.add(bits, builder.add(odd, _INT(0x7FFF))), _INT(16))
        finite = builder.select(builder.fcmp_unordered("uno", exact, exact), _INT(0x7FC0), rounded)
        return builder.trunc(finite, ir.IntType(16))

    to = like.dtype
    return to(types.float32, like), generate


@intrinsic
def _float_of_bits(typing, bits):
    return types.float32(
        types.int32
    ), lambda context, builder, signature, arguments: builder.bitcast(arguments[0], _FLOAT)


@numba.njit(inline="always")
def exp(x):
    """e^x for x up to 0, exact to the last bit or two, in operations that the compiler vectorises
    (Cephes' `expf`). It is 0 below -87, and NaN for NaN.
    """
    low = max(x, np.float32(-87.0))
    power = np.floor(low * np.float32(1.44269504) + np.float32(0.5))
    rest = low - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    series = np.float32(1.9875691500e-4)
    for factor in (
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    ):
        series = series * rest + np.float32(factor)
    series = series * rest * rest + rest + np.float32(1.0)
    return (
        np.float32(0.0)
        if x < np.float32(-87.0)
        else series * _float_of_bits((np.int32(power) + np.int32(127)) << np.int32(23))
    )
