"""What an engine's passes compute on a CPU in place of a model's own modules: the same results up to rounding, in a fraction of the time.

Linear layers multiply with a second copy of their weights, in oneDNN's layout: torch's own float32 product reads the weights again for every
one of few rows, and for many rows it runs at less than half the rate. bfloat16 stays bfloat16 where the CPU multiplies it; otherwise, and
for float16, the copy is float32 and only what goes in and out is converted. The copies take as much memory as the weights or twice that,
so there is a bound. GELU by tanh, six operations in transformers' GPT-2, is one.

Only an engine's passes use them: outside `in_use()` the model is unchanged.
"""

from __future__ import annotations

import platform
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import torch
from transformers.activations import GELUTanh, NewGELUActivation
from transformers.pytorch_utils import Conv1D

from core.models.adapter import model_lock
from core.models.memory import free_memory

_LEAST_BYTES = 2**30  # for the copies of one model, whatever is free
_SHARE_OF_FREE = 4  # otherwise a quarter of the free memory
_LEAST_WEIGHTS = 2**16  # below that torch's own kernel is as fast
_LEAST_FOR_MKL = 2**19  # the same for float32 on Intel's processors, where that kernel is MKL's at its best
_ROWS = 32  # the number of rows the layout is optimised for; any number works
_TYPES = (torch.float32, torch.bfloat16, torch.float16)

Operation = Callable[[torch.Tensor], torch.Tensor]


@contextmanager
def forwards_replaced(forwards: Iterable[tuple[dict[str, Any], Callable[..., Any]]]) -> Iterator[None]:
    """Inside, modules compute with other functions. forwards: a module's `__dict__` and its function. Hold the model's lock around it."""
    replaced = []
    try:
        for names, forward in forwards:
            names["forward"] = forward
            replaced.append(names)
        yield
    finally:
        for names in replaced:
            del names["forward"]


def product_type(dtype: torch.dtype) -> torch.dtype:
    """The number format in which this CPU multiplies weights of a format."""
    native = dtype == torch.bfloat16 and torch.cpu._is_avx512_bf16_supported() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return dtype if native else torch.float32


class _Linear:
    """One linear layer and the copy of its weight, renewed when the weight has changed."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = weakref.ref(module)
        self.names = module.__dict__
        self._parameters = module._parameters
        self._transposed = isinstance(module, Conv1D)
        self.refresh()

    def refresh(self) -> None:
        weight, bias = self._parameters["weight"], self._parameters["bias"]
        assert weight is not None
        state = tuple((t.data_ptr(), t._version) for t in (weight, bias) if t is not None)
        if state == getattr(self, "_state", None):
            return
        self._state = state
        dtype = product_type(weight.dtype)
        plain = (weight.detach().t() if self._transposed else weight.detach()).to(dtype).contiguous()
        packed = torch.ops.mkldnn._reorder_linear_weight(plain, _ROWS)
        self.forward = _product(packed, None if bias is None else bias.detach().to(dtype), dtype, weight.dtype)

    def agrees(self) -> bool:
        """Whether the copy gives the same product as the layer."""
        module, weight = self._module(), self._parameters["weight"]
        assert module is not None and weight is not None
        rows = torch.randn(3, weight.shape[0 if self._transposed else 1], generator=torch.Generator().manual_seed(0))
        rows = rows.to(weight.dtype)
        own = type(module).forward(module, rows)
        error = 1e-3 if weight.dtype == torch.float32 else 2 * torch.finfo(weight.dtype).eps
        return torch.allclose(self.forward(rows), own, rtol=error, atol=error * float(own.abs().max()))


def _product(
    packed: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype, outside: torch.dtype
) -> Callable[[torch.Tensor], torch.Tensor]:
    multiply = torch.ops.mkldnn._linear_pointwise
    if dtype == outside:
        return lambda rows: multiply(rows, packed, bias, "none", [], "")
    return lambda rows: multiply(rows.to(dtype), packed, bias, "none", [], "").to(outside)


class CPUModules:
    """The stand-ins for one model's modules: its linear layers of plain type, smallest first, up to `most_bytes` of copies, and its tanh-GELUs.

    most_bytes: by default a quarter of the free memory, and at least 1 GiB.
    """

    def __init__(self, model: torch.nn.Module, most_bytes: int | None = None) -> None:
        self._linear: list[_Linear] = []
        self._gelus = [
            module.__dict__
            for module in model.modules()
            if type(module) in (NewGELUActivation, GELUTanh) and "forward" not in module.__dict__
        ]
        self._lock = model_lock(model)
        if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
            return
        left = max(_LEAST_BYTES, (free_memory(torch.device("cpu")) or 0) // _SHARE_OF_FREE) if most_bytes is None else most_bytes
        with torch.inference_mode(False), torch.no_grad():
            for module in sorted(filter(_fits, model.modules()), key=lambda m: _weight(m).numel()):
                left -= _weight(module).numel() * product_type(_weight(module).dtype).itemsize
                if left < 0:
                    break
                layer = _Linear(module)
                if not layer.agrees():
                    break
                self._linear.append(layer)

    def __len__(self) -> int:
        return len(self._linear) + len(self._gelus)

    @contextmanager
    def in_use(self, gelu: Operation | None = None) -> Iterator[None]:
        """Inside, the model's modules compute with their stand-ins; other passes of the model wait for their turn. gelu: a kernel for it."""
        if not len(self):
            yield
            return
        with self._lock:
            for layer in self._linear:
                layer.refresh()
            gelus = ((names, gelu or _gelu) for names in self._gelus)
            with forwards_replaced([*gelus, *((layer.names, layer.forward) for layer in self._linear)]):
                yield


def _gelu(rows: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.gelu(rows, approximate="tanh")


def _weight(module: torch.nn.Module) -> torch.Tensor:
    weight = module._parameters["weight"]
    assert weight is not None
    return weight


@cache
def _is_intel() -> bool:
    with suppress(OSError):
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    return "GenuineIntel" in platform.processor()


def _least_weights(dtype: torch.dtype) -> int:
    return _LEAST_FOR_MKL if dtype == torch.float32 and _is_intel() else _LEAST_WEIGHTS


def _fits(module: torch.nn.Module) -> bool:
    if type(module) not in (torch.nn.Linear, Conv1D) or "forward" in module.__dict__:
        return False
    weight = _weight(module)
    if weight.device.type != "cpu" or weight.dtype not in _TYPES or weight.is_inference():
        return False
    return weight.numel() >= _least_weights(weight.dtype)


_modules: weakref.WeakKeyDictionary[Any, CPUModules] = weakref.WeakKeyDictionary()


def cpu_modules(model: Any) -> CPUModules:
    """The stand-ins for a model, made once; none for what is not a module, nor on another device."""
    if not isinstance(model, torch.nn.Module) or any(one.device.type != "cpu" for one in model.parameters()):
        return CPUModules(torch.nn.Module())
    if model not in _modules:
        _modules[model] = CPUModules(model)
    return _modules[model]
