"""RMS norms in one kernel each, where transformers takes eight: in a decode step of a small model most launches belong to norms.

Only an engine's passes use them: outside `in_use()` the model is unchanged. Whether the kernel computes what a module computes is tested on
that module, not inferred from its name. Importing this module needs Triton.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl

from core.models.adapter import model_lock
from core.runner.cpu_modules import forwards_replaced

_MOST_SIZE = 16384  # of a row: one program holds it in registers


@triton.jit
def _rms_norm(x, weight, out, rows, size, eps, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Rows `[ROWS, size]` divided by the root of their mean square, rounded to their own type and then scaled, as modules do."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, SIZE)
    there = (row < rows)[:, None] & (column < size)[None]
    place = row.to(tl.int64)[:, None] * size + column[None]
    given = tl.load(x + place, mask=there, other=0.0)
    wide = given.to(tl.float32)
    normed = wide * tl.rsqrt(tl.sum(wide * wide, 1) / size + eps)[:, None]
    scale = tl.load(weight + column, mask=column < size, other=0.0)
    scaled = normed.to(given.dtype).to(tl.float32) * scale.to(tl.float32)[None]
    tl.store(out + place, scaled, mask=there)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x [..., D]` normed and scaled by `weight [D]`, which has its type; Zhang and Sennrich (2019)."""
    x = x.contiguous()
    size = x.shape[-1]
    rows, padded = x.numel() // size, triton.next_power_of_2(size)
    at_once = max(1, 1024 // padded)
    out = torch.empty_like(x)
    _rms_norm[(triton.cdiv(rows, at_once),)](
        x, weight, out, rows, size, eps, ROWS=at_once, SIZE=padded, num_warps=max(1, min(8, padded * at_once // 256))
    )
    return out


class FusedNorms:
    """The RMS norms of one model that the kernel can stand in for."""

    def __init__(self, model: Any) -> None:
        self._lock = model_lock(model)
        self._forwards: list[tuple[dict[str, Any], Callable[..., Any]]] = []
        with torch.inference_mode():
            for module in model.modules():
                eps = _epsilon(module)
                if eps is not None and _agrees(module, eps):
                    self._forwards.append((module.__dict__, _forward(module, eps)))

    def __len__(self) -> int:
        return len(self._forwards)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside, the model's norms use the kernel; other passes of the model wait for their turn."""
        with self._lock, forwards_replaced(self._forwards):
            yield


def _epsilon(module: Any) -> float | None:
    """The epsilon of a module that may be a plain RMS norm."""
    weight = getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(weight, torch.Tensor) or "forward" in module.__dict__:
        return None
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    return (
        eps
        if isinstance(eps, float) and weight.ndim == 1 and len(weight) <= _MOST_SIZE and len(list(module.parameters())) == 1
        else None
    )


def _forward(module: Any, eps: float) -> Callable[[torch.Tensor], torch.Tensor]:
    weight = module.weight
    return lambda x: rms_norm(x, weight, eps)


def _agrees(module: Any, eps: float) -> bool:
    """Whether the kernel's results equal the module's bit for bit."""
    weight = module.weight
    x = torch.randn(3, len(weight), generator=torch.Generator().manual_seed(0)).to(weight.device, weight.dtype)
    own = module(x)
    if own.dtype != x.dtype:
        return False
    return torch.allclose(rms_norm(x, weight, eps).float(), own.float(), rtol=2 * torch.finfo(x.dtype).eps, atol=1e-7)
