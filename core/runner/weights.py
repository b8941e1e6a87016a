"""A second copy of the linear weights, in the order in which few rows are multiplied fastest on a CPU.

For a float32 product of few rows torch uses a kernel that reads the weights again for every row, so a decode step of four requests
costs nearly as much as four steps of one. oneDNN, given its own layout, reads them once. The results are the same sums in a different
order, as they already are between a batch and a single row. The copies take as much memory as the weights themselves, so there is a bound.

Only an engine's passes use the copy: outside `in_use()` the model is unchanged.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from core.models.adapter import model_lock

MOST_BYTES = 2**30  # for the copies of one model
_LEAST_WEIGHTS = 2**18  # below that torch's own kernel is as fast
_ROWS = 32  # the number of rows the layout is optimised for; any number works
_MOST_ROWS = 64  # beyond this the gain is small, and oneDNN spends half a millisecond on setup for every new number of rows


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


class _Layer:
    """One linear layer and the copy of its weight, renewed when the weight has changed."""

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = weakref.ref(module)
        self.names = module.__dict__
        self._parameters = module._parameters
        self._own = type(module).forward
        self._transposed = isinstance(module, Conv1D)
        self.refresh()

    def refresh(self) -> None:
        weight = self._parameters["weight"]
        assert weight is not None
        state = (weight.data_ptr(), weight._version)
        if state == getattr(self, "_state", None):
            return
        self._state = state
        plain = (weight.detach().t() if self._transposed else weight.detach()).contiguous()
        self.forward = _forward(self._own, self._module, torch.ops.mkldnn._reorder_linear_weight(plain, _ROWS), self._parameters)

    def agrees(self) -> bool:
        """Whether the copy gives the same product as the layer."""
        module, weight = self._module(), self._parameters["weight"]
        assert module is not None and weight is not None
        rows = torch.randn(3, weight.shape[0 if self._transposed else 1], generator=torch.Generator().manual_seed(0))
        return torch.allclose(self.forward(rows), self._own(module, rows), rtol=1e-3, atol=1e-3 * float(weight.abs().max()))


def _forward(
    own: Callable[..., Any], module: weakref.ref[Any], packed: torch.Tensor, parameters: dict[str, Any]
) -> Callable[[torch.Tensor], torch.Tensor]:
    multiply = torch.ops.mkldnn._linear_pointwise

    def forward(rows: torch.Tensor) -> torch.Tensor:
        if 1 < rows.numel() // rows.shape[-1] <= _MOST_ROWS:  # for a single row torch's own kernel reads the weights once too
            return multiply(rows, packed, parameters["bias"], "none", [], "")
        return own(module(), rows)

    return forward


class PackedWeights:
    """The copies for one model: float32 layers of plain type on a CPU, smallest first, up to `most_bytes`."""

    def __init__(self, model: Any, most_bytes: int = MOST_BYTES) -> None:
        self._layers: list[_Layer] = []
        self._lock = model_lock(model)
        if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
            return
        with torch.inference_mode(False), torch.no_grad():
            left = most_bytes
            for module in sorted(filter(_fits, model.modules()), key=lambda m: m.weight.numel()):
                left -= module.weight.numel() * module.weight.element_size()
                if left < 0:
                    break
                layer = _Layer(module)
                if not layer.agrees():
                    break
                self._layers.append(layer)

    def __len__(self) -> int:
        return len(self._layers)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Linear layers use their copies; other passes of the model wait for their turn."""
        if not self._layers:
            yield
            return
        with self._lock:
            for layer in self._layers:
                layer.refresh()
            with forwards_replaced((layer.names, layer.forward) for layer in self._layers):
                yield


def _fits(module: torch.nn.Module) -> bool:
    if type(module) not in (torch.nn.Linear, Conv1D) or "forward" in module.__dict__:
        return False
    weight = module.weight
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and weight.numel() >= _LEAST_WEIGHTS
        and not weight.is_inference()
    )


_copies: weakref.WeakKeyDictionary[Any, PackedWeights] = weakref.WeakKeyDictionary()


def packed_weights(model: Any) -> PackedWeights:
    """The copies for a model, made once; empty for a stand-in that is not a module."""
    if not isinstance(model, torch.nn.Module):
        return PackedWeights(torch.nn.Module())
    if model not in _copies:
        _copies[model] = PackedWeights(model)
    return _copies[model]
