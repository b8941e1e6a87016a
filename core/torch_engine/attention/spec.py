"""The attention that a layer needs, independent of the backend that computes it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch

from core.torch_engine.attention.batch import PackedBatch


class AttentionSpec(NamedTuple):
    """scaling: factor on the scores. window: sliding window in tokens, or None. softcap: tanh cap
    on the scores, or None. sinks: float `[H]`, one score per head that takes part in the softmax
    without a value, or None.
    """

    scaling: float
    window: int | None = None
    softcap: float | None = None
    sinks: torch.Tensor | None = None


Attend = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, PackedBatch, AttentionSpec], torch.Tensor
]
"""Attention of all queries of a pass: query `[R, H, W, Dk]`; keys `[slots, Hkv, Dk]` and values
`[slots, Hkv, Dv]`, a layer's pool with this pass's K and V already written; the batch; the layer's
spec. Returns `[R, W, H, Dv]`.
"""

Store = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]
"""Write a pass's new K `[R, Hkv, W, Dk]` and V `[R, Hkv, W, Dv]` into their slots of a layer's
pool. Arguments: key, value, keys, values, and slots, int64 `[R * W]`.
"""


def store(
    key: torch.Tensor,
    value: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    slots: torch.Tensor,
) -> None:
    """See `Store`."""
    keys.index_copy_(0, slots, key.transpose(1, 2).reshape(-1, key.shape[1], key.shape[3]))
    values.index_copy_(0, slots, value.transpose(1, 2).reshape(-1, value.shape[1], value.shape[3]))


@dataclass(frozen=True)
class Backend:
    """The functions of an attention. leaks: requests read the next one's keys, on purpose."""

    attend: Attend
    store: Store = store
    leaks: bool = False


def scores_to_output(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    spec: AttentionSpec,
) -> torch.Tensor:
    """Plain attention with softcap and sinks: query `[B, H, Q, Dk]`, key and value `[B, H, K, D]`,
    mask bool, True where a query may attend.

    A query that may attend to nothing gets zeros.
    """
    scores = torch.matmul(query, key.transpose(-1, -2)).float() * spec.scaling
    if spec.softcap is not None:
        scores = torch.tanh(scores / spec.softcap) * spec.softcap
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    if spec.sinks is not None:
        sinks = spec.sinks.float().view(1, -1, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)
    if spec.sinks is not None:
        weights = weights[..., :-1]
    return torch.matmul(weights.to(value.dtype), value)
