"""Functions that numba compiles for each number format, and that torch's threads run together.

Their arguments are integers: addresses of tensors, sizes, strides. A parallel loop of numba's own
that takes arrays would be compiled three times, and converting a tensor takes as long as computing
one of its rows.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock, local
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from core.torch_engine.cpu.formats import MATH, number_type

within = numba.njit(
    fastmath=MATH, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
)
"""Decorator for functions that kernels call."""

# share torch's threads: others would compete with them for the cores
numba.config.THREADING_LAYER = "omp"
_compiling = Lock()
_asked_for = local()  # threads: the number that this thread last set in numba


@intrinsic
def _call(typing, function, numbers, factor, thread, threads):
    def generate(context, builder, signature, arguments):
        function, numbers, *rest = arguments
        numbers = context.make_array(signature.args[1])(context, builder, numbers).data
        kinds = [ir.IntType(8).as_pointer(), numbers.type, *(argument.type for argument in rest)]
        address = builder.inttoptr(function, ir.FunctionType(ir.VoidType(), kinds).as_pointer())
        builder.call(address, [ir.Constant(kinds[0], None), numbers, *rest])
        return context.get_dummy_value()

    return types.void(types.int64, numbers, types.float64, types.int64, types.int64), generate


def _forget_older() -> None:
    """Remove compiled code that is older than any file of this folder: numba looks only at the file
    in which a kernel stands, not at the functions it calls. If the folder is read-only, numba keeps
    its code elsewhere.
    """
    folder = Path(__file__).parent
    newest = max(file.stat().st_mtime for file in folder.glob("*.py"))
    for index in folder.glob("__pycache__/*.nbi"):
        with suppress(OSError):  # read-only, or removed by another process that starts
            if index.stat().st_mtime < newest:
                index.unlink()


_forget_older()


@numba.njit("void(int64, int64[::1], float64, int64)", parallel=True, nogil=True, cache=True)
def _on_threads(function, numbers, factor, threads):
    for thread in prange(threads):
        _call(function, numbers, factor, thread, threads)


class Kernel:
    """`body(like, numbers, factor, thread, threads)` does one thread's share of the work. like: a
    pointer whose type gives the number format; numbers: a pointer to int64; factor: a float64;
    threads: how many share the work.
    """

    def __init__(self, body: Callable[..., None]) -> None:
        self._body = body
        self._compiled: dict[torch.dtype, Any] = {}

    def prepare(self, dtype: torch.dtype) -> int:
        """Compile the kernel for a number format, or read it from disk; returns its address."""
        with _compiling:
            if dtype not in self._compiled:
                kind = types.void(
                    types.CPointer(number_type(dtype)),
                    types.CPointer(types.int64),
                    types.float64,
                    types.int64,
                    types.int64,
                )
                self._compiled[dtype] = numba.cfunc(
                    kind, cache=True, fastmath=MATH, error_model="numpy"
                )(self._body)
        return self._compiled[dtype].address

    def __call__(self, dtype: torch.dtype, numbers: Sequence[int], factor: float = 0.0) -> None:
        """Run the kernel on a number format. Tensors must live until it returns."""
        address = (
            compiled.address if (compiled := self._compiled.get(dtype)) else self.prepare(dtype)
        )
        threads = torch.get_num_threads()
        if getattr(_asked_for, "threads", None) != threads:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            _asked_for.threads = threads
        _on_threads(address, np.array(numbers, dtype=np.int64), factor, threads)
