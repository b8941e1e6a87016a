"""Attention as slow and as obvious as can be, which every kernel is held against."""

from __future__ import annotations

import torch

from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.dense import attend_under, dense_mask
from core.torch_engine.attention.spec import AttentionSpec, Backend


def attend(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """See `Attend`."""
    return attend_under(dense_mask(batch, spec.window), query, keys, values, batch, spec)


BACKEND = Backend(attend)
