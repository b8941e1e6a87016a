"""Replaces a model's linear layers and GELUs while passes are computed on a CPU: the same results
up to rounding, in a fraction of the time.

Linear layers multiply with a second copy of their weights, in oneDNN's layout: torch's own float32
product reads the weights again for each of few rows, and reaches less than half the rate for many.
bfloat16 stays bfloat16 if the CPU can multiply it; otherwise, and for float16, the copy is float32
and only inputs and outputs are converted. The copies take once or twice the memory of the weights,
so their size is bounded. GELU by tanh, six operations in transformers' GPT-2, becomes one.
"""

import platform
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

import torch
from transformers.activations import GELUTanh, NewGELUActivation
from transformers.pytorch_utils import Conv1D

from core.torch_engine.models.memory import free_memory
from core.torch_engine.stand_ins import Forwards, are_close

_LEAST_BYTES = 2**30  # for the copies of one model, whatever is free
_SHARE_OF_FREE = 4  # otherwise a quarter of the free memory
_LEAST_WEIGHTS = 2**16  # for fewer, torch's own kernel is as fast
# the same for float32 on Intel's processors, where that kernel is MKL's
_LEAST_ON_INTEL, _LEAST_INPUTS_ON_INTEL = 2**19, 512
_ROWS = 32  # the number of rows the layout is optimised for; any number works
# layers that many models call with the same rows
_SAME_ROWS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
_TYPES = (torch.float32, torch.bfloat16, torch.float16)

Operation = Callable[[torch.Tensor], torch.Tensor]


def product_type(dtype: torch.dtype) -> torch.dtype:
    """The number format in which this CPU multiplies weights of a format."""
    native = (
        dtype == torch.bfloat16
        and torch.cpu._is_avx512_bf16_supported()
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
    return dtype if native else torch.float32


class _PackedLinear:
    """Linear layers that are called with the same rows (mostly just one layer), and a copy of their
    weights, which is renewed when a weight has changed.

    forwards: see `Forwards`.
    """

    def __init__(self, modules: Sequence[torch.nn.Module]) -> None:
        self._names = [module.__dict__ for module in modules]
        self._parameters = [module._parameters for module in modules]
        self._transposed = isinstance(modules[0], Conv1D)
        self._state: list[tuple[int, int]] = []
        self.refresh()

    def refresh(self) -> None:
        state = [
            (t.data_ptr(), t._version)
            for each in self._parameters
            for t in each.values()
            if t is not None
        ]
        if state == self._state:
            return
        self._state = state
        weights, biases = (
            [p for each in self._parameters if (p := each[name]) is not None]
            for name in ("weight", "bias")
        )
        dtype, outside = product_type(weights[0].dtype), weights[0].dtype
        plain = (
            torch.cat([(weight.t() if self._transposed else weight).detach() for weight in weights])
            .to(dtype)
            .contiguous()
        )
        packed = torch.ops.mkldnn._reorder_linear_weight(plain, _ROWS)
        bias = torch.cat([bias.detach() for bias in biases]).to(dtype) if biases else None
        self.product = _product(packed, bias, dtype, outside)
        sizes = [weight.shape[1 if self._transposed else 0] for weight in weights]
        forwards = _parts(self.product, sizes) if len(sizes) > 1 else [self.product]
        self.forwards = list(zip(self._names, forwards, strict=True))

    def is_of(self, modules: Sequence[torch.nn.Module]) -> bool:
        """Whether this replaces exactly these layers."""
        return len(modules) == len(self._names) and all(
            m.__dict__ is own for m, own in zip(modules, self._names, strict=True)
        )

    def agrees(self, modules: Sequence[torch.nn.Module]) -> bool:
        """Whether the copy gives the same products as the layers."""
        _, dtype, inputs, _ = _kind(modules[0])
        rows = torch.randn(3, inputs, generator=torch.Generator().manual_seed(0)).to(dtype)
        return all(
            are_close(forward(rows), module.forward(rows), 2)
            for module, (_, forward) in zip(modules, self.forwards, strict=True)
        )


def _product(
    packed: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype, outside: torch.dtype
) -> Operation:
    multiply = torch.ops.mkldnn._linear_pointwise
    if dtype == outside:
        return lambda rows: multiply(rows, packed, bias, "none", [], "")
    return lambda rows: multiply(rows.to(dtype), packed, bias, "none", [], "").to(outside)


def _parts(product: Operation, sizes: Sequence[int]) -> Iterator[Operation]:
    """The parts of one product that belong to each of several layers. The product is computed once
    for the same rows and kept until the last part has been read.
    """
    kept: list[tuple[torch.Tensor, torch.Tensor]] = []
    ends = list(accumulate(sizes))

    def part(begin: int, end: int) -> Operation:
        def forward(rows: torch.Tensor) -> torch.Tensor:
            if not kept or kept[0][0] is not rows:
                kept[:] = [(rows, product(rows))]
            found = kept[0][1][..., begin:end]
            if end == ends[-1]:
                kept.clear()
            return found

        return forward

    return (part(end - size, end) for size, end in zip(sizes, ends, strict=True))


class CPUModules:
    """The replacements for one model's plain linear layers, the smallest first, as far as there is
    memory for copies, and for its tanh-GELUs.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._linear: list[_PackedLinear] = []
        self._gelus = [
            module.__dict__
            for module in model.modules()
            if type(module) in (NewGELUActivation, GELUTanh) and "forward" not in module.__dict__
        ]
        if not torch.backends.mkldnn.is_available() or not hasattr(
            torch.ops.mkldnn, "_reorder_linear_weight"
        ):
            return
        left = max(_LEAST_BYTES, (free_memory(torch.device("cpu")) or 0) // _SHARE_OF_FREE)
        with torch.inference_mode(False), torch.no_grad():
            for modules in sorted(_layers(model), key=_numel):
                left -= _numel(modules) * product_type(_weight(modules[0]).dtype).itemsize
                if left < 0:
                    break
                layer = _PackedLinear(modules)
                if not layer.agrees(modules):
                    break
                self._linear.append(layer)

    def product_of(self, modules: Sequence[torch.nn.Module]) -> Operation | None:
        """The joint product of several linear layers, side by side, as of the last call of
        `forwards`; None if they have no joint copy.
        """
        found = next((layer for layer in self._linear if layer.is_of(modules)), None)
        return None if found is None else lambda rows: found.product(rows)

    def forwards(self, gelu: Operation | None = None) -> Forwards:
        """All replacements for the next pass; renews copies of weights that have changed. gelu: a
        kernel for it. Hold the model's lock until the pass has ended.
        """
        for layer in self._linear:
            layer.refresh()
        gelus = ((names, gelu or _gelu) for names in self._gelus)
        return [*gelus, *(one for layer in self._linear for one in layer.forwards)]


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


def _numel(modules: Sequence[torch.nn.Module]) -> int:
    return sum(_weight(module).numel() for module in modules)


def _layers(model: torch.nn.Module) -> Iterator[Sequence[torch.nn.Module]]:
    """The linear layers worth a copy, each alone or together with layers that get the same rows."""
    taken: set[torch.nn.Module] = set()
    for parent in model.modules():
        for names in _SAME_ROWS:
            modules = [module for name in names if _is_plain(module := getattr(parent, name, None))]
            if (
                len(modules) == len(names)
                and len({_kind(module) for module in modules}) == 1
                and _is_worth(modules)
            ):
                taken |= set(modules)
                yield modules
    yield from (
        [module]
        for module in model.modules()
        if module not in taken and _is_plain(module) and _is_worth([module])
    )


def _is_plain(module: Any) -> TypeGuard[torch.nn.Module]:
    if type(module) not in (torch.nn.Linear, Conv1D) or "forward" in module.__dict__:
        return False
    weight = _weight(module)
    return weight.device.type == "cpu" and weight.dtype in _TYPES and not weight.is_inference()


def _kind(module: Any) -> tuple[Any, ...]:
    weight = _weight(module)
    return (
        type(module),
        weight.dtype,
        weight.shape[0 if isinstance(module, Conv1D) else 1],
        module.bias is None,
    )


def _is_worth(modules: Sequence[torch.nn.Module]) -> bool:
    _, dtype, inputs, _ = _kind(modules[0])
    if dtype == torch.float32 and _is_intel():
        return inputs >= _LEAST_INPUTS_ON_INTEL and _numel(modules) >= _LEAST_ON_INTEL
    return _numel(modules) >= _LEAST_WEIGHTS


_modules: weakref.WeakKeyDictionary[torch.nn.Module, CPUModules] = weakref.WeakKeyDictionary()


def cpu_modules(model: torch.nn.Module | None) -> CPUModules:
    """The replacements for a model, made once; empty without a model, or on another device."""
    if model is None or any(one.device.type != "cpu" for one in model.parameters()):
        return CPUModules(torch.nn.Module())
    if model not in _modules:
        _modules[model] = CPUModules(model)
    return _modules[model]
