"""Explicit float32 vectors: loading from numbers of any format, multiplying and adding. Also
pointers to numbers.

Numba vectorises long loops by itself. But a head has only about 64 numbers; there, the code that
numba makes of a loop spends as much time on finding out whether arrays overlap as on computing.
"""

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

from core.torch_engine.cpu.formats import widened

LANES = 16 if llvmlite.binding.get_host_cpu_features().get("avx512f") else 8
"""Numbers in a vector. Eight such sums, and what is added to them, fit into the registers."""

_INT = ir.IntType(32)
_BYTE = ir.IntType(8).as_pointer()
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_CACHE_LINE = 64  # bytes
_IN_ANY_ORDER = ("reassoc", "contract", "nsz")


class _Vector(types.Type):
    def __init__(self) -> None:
        super().__init__("Vector")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager, kind) -> None:
        super().__init__(manager, kind, _FLOATS)


_vector = _Vector()


@intrinsic
def pointer(typing, address, like):
    """A pointer to the number at an address. like: a pointer of the same type."""

    def generate(context, builder, signature, arguments):
        return builder.inttoptr(arguments[0], context.get_value_type(like))

    return like(types.int64, like), generate


@intrinsic
def floats(typing, address, offset):
    """A pointer to the float32 that is `offset` numbers after an address."""

    def generate(context, builder, signature, arguments):
        first = builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))
        return builder.gep(first, [arguments[1]])

    return types.CPointer(types.float32)(types.int64, types.int64), generate


@intrinsic
def at(typing, pointer, offset):
    """A pointer to the number `offset` further on."""
    return pointer(pointer, offset), lambda context, builder, signature, arguments: builder.gep(
        arguments[0], [arguments[1]]
    )


@intrinsic
def load(typing, pointer, offset):
    """A float32 vector of the numbers from `offset` on."""
    number = pointer.dtype

    def generate(context, builder, signature, arguments):
        place = builder.gep(arguments[0], [arguments[1]])
        several = ir.VectorType(place.type.pointee, LANES)
        bits = builder.load(builder.bitcast(place, several.as_pointer()))
        bits.align = number.bitwidth // 8
        return widened(builder, number, bits, LANES)

    return _vector(pointer, offset), generate


@intrinsic
def store(typing, pointer, offset, vector):
    """Write a vector to float32 numbers."""

    def generate(context, builder, signature, arguments):
        _write(builder, arguments[2], builder.gep(arguments[0], [arguments[1]]))
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), offset, vector), generate


def _write(builder, value, place):
    builder.store(value, builder.bitcast(place, value.type.as_pointer())).align = 4


@intrinsic
def spread(typing, number):
    """A vector that repeats one number."""

    def generate(context, builder, signature, arguments):
        first = builder.insert_element(ir.Constant(_FLOATS, ir.Undefined), arguments[0], _INT(0))
        return builder.shuffle_vector(first, first, _places([0] * LANES))

    return _vector(types.float32), generate


@intrinsic
def fma(typing, a, b, c):
    """The vector a * b + c."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(_FLOATS, [_FLOATS] * 3)
        return builder.call(
            cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), arguments
        )

    return _vector(_vector, _vector, _vector), generate


@intrinsic
def store_sums(typing, pointer, offset, a, b, c, d):
    """Write the sum of each of four vectors, as four numbers side by side.

    Halves of two vectors are combined into one, again and again, so four take the time of two.
    """

    def generate(context, builder, signature, arguments):
        pointer, offset, *vectors = arguments
        width = LANES
        while width > 1:
            half, places = width // 2, range(0, LANES, width)
            low = [place + i for place in places for i in range(half)]
            if len(vectors) > 1:
                low += [LANES + place for place in low]
                pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
            else:
                low = [place + i % half for place in places for i in range(width)]
                pairs = [(vectors[0], vectors[0])]
            high = [place + half for place in low]
            vectors = [
                builder.fadd(
                    builder.shuffle_vector(one, other, _places(low)),
                    builder.shuffle_vector(one, other, _places(high)),
                    flags=_IN_ANY_ORDER,
                )
                for one, other in pairs
            ]
            width = half
        sums = builder.shuffle_vector(vectors[0], vectors[0], _places(range(0, LANES, LANES // 4)))
        _write(builder, sums, builder.gep(pointer, [offset]))
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), offset, a, b, c, d), generate


def _places(lanes):
    return ir.Constant(ir.VectorType(_INT, len(lanes)), list(lanes))


@intrinsic
def fetch(typing, pointer, count):
    """Prefetch `count` numbers from a pointer on."""

    def generate(context, builder, signature, arguments):
        kind = ir.FunctionType(ir.VoidType(), [_BYTE, _INT, _INT, _INT])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [_BYTE], kind)
        first, size = arguments
        line = ir.Constant(size.type, _CACHE_LINE // (signature.args[0].dtype.bitwidth // 8))
        with cgutils.for_range_slice(builder, ir.Constant(size.type, 0), size, line) as (offset, _):
            address = builder.bitcast(builder.gep(first, [offset]), _BYTE)
            # to read; into all caches; data
            builder.call(prefetch, [address, _INT(0), _INT(3), _INT(1)])
        return context.get_dummy_value()

    return types.void(pointer, types.intp), generate
