"""Replaces modules of a model by functions while a pass runs; the model itself stays as it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

Forwards = Sequence[tuple[dict[str, Any], Callable[..., Any]]]
"""For each module its `__dict__`, and the function that replaces its forward."""


@contextmanager
def forwards_replaced(forwards: Forwards) -> Iterator[None]:
    """Replace the forwards of modules inside the block, except where somebody else has replaced one
    meanwhile. Hold the model's lock around it.
    """
    replaced = []
    try:
        for names, forward in forwards:
            if "forward" not in names:
                names["forward"] = forward
                replaced.append(names)
        yield
    finally:
        for names in replaced:
            del names["forward"]


def are_close(mine: torch.Tensor, own: torch.Tensor, ulps: int) -> bool:
    """Whether a result equals the module's own up to rounding. ulps: tolerance in units of the
    largest number, for formats shorter than float32.
    """
    error = 1e-3 if own.dtype == torch.float32 else ulps * torch.finfo(own.dtype).eps
    return mine.shape == own.shape and torch.allclose(
        mine, own, rtol=error, atol=error * float(own.abs().max())
    )


RMSNorm = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""`x [..., D]` divided by the root of its mean square plus epsilon, rounded to its own type, then
multiplied by `weight [D]` of the same type: Zhang and Sennrich (2019), as transformers computes it.
"""

_MOST_SIZE = 16384  # of a row, which one program of the GPU's kernel holds in registers


def fused_norms(model: Any, kernel: RMSNorm) -> Iterator[tuple[dict[str, Any], Callable[..., Any]]]:
    """The RMS norms of a model that a kernel can replace, and replacements: see `Forwards`."""
    with torch.inference_mode():
        for module in model.modules():
            eps = epsilon(module)
            if eps is not None and _agrees(module, eps, kernel):
                yield module.__dict__, _forward(module, eps, kernel)


def epsilon(module: Any) -> float | None:
    """The epsilon of a module if it looks like a plain RMS norm, else None."""
    weight = getattr(module, "weight", None)
    if (
        not type(module).__name__.endswith("RMSNorm")
        or not isinstance(weight, torch.Tensor)
        or "forward" in module.__dict__
    ):
        return None
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    plain = weight.ndim == 1 and len(weight) <= _MOST_SIZE and len(list(module.parameters())) == 1
    return eps if isinstance(eps, float) and plain else None


def _forward(module: Any, eps: float, kernel: RMSNorm) -> Callable[[torch.Tensor], torch.Tensor]:
    parameters = module._parameters
    return lambda x: kernel(x, parameters["weight"], eps)


def _agrees(module: Any, eps: float, kernel: RMSNorm) -> bool:
    """Whether the kernel's results equal the module's up to the last bit."""
    weight = module.weight
    x = torch.randn(3, len(weight), generator=torch.Generator().manual_seed(0)).to(
        weight.device, weight.dtype
    )
    own = module(x)
    if own.dtype != x.dtype:
        return False
    return torch.allclose(
        kernel(x, weight, eps).float(), own.float(), rtol=2 * torch.finfo(x.dtype).eps, atol=1e-7
    )
