"""How a transformers model is made to attend over the pool: two plugs, one step context.

`attention`: the model calls our function, registered under a name of its own, with `[R, H, W, D]` queries and new keys and values. No
mask is registered under that name, so transformers builds none. `cache`: models that never call a registered function get a `Cache`
whose `update` stores the new keys and values and returns everybody's, with a 4-D mask.

The metadata of the pass travels in one `StepContext`, set around the forward call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from core.attention.dense import dense_mask
from core.attention.spec import AttentionSpec, Backend
from core.kv_pool import KVPool, KVShape
from core.packing import PackedBatch

ATTENTION_NAME = "inflight"


@dataclass
class StepContext:
    """What attention needs to know of the pass in flight.

    windows: sliding window by layer, for models that do not pass it. observed: the cache shape and spec of each layer that called.
    """

    batch: PackedBatch
    pool: KVPool | None
    backend: Backend
    windows: dict[int, int | None]
    observed: dict[int, tuple[KVShape, AttentionSpec]] = field(default_factory=dict)


_context: ContextVar[StepContext] = ContextVar("inflight_step")


@contextmanager
def step_context(context: StepContext) -> Iterator[StepContext]:
    """Make `context` the one that attention sees."""
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls: query `[R, H, W, Dk]`, key `[R, Hkv, W, Dk]`, value `[R, Hkv, W, Dv]`; out `[R, W, H, Dv]`."""
    context = _context.get()
    layer = module.layer_idx
    window = context.windows.get(layer) if sliding_window is None else sliding_window
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    spec = AttentionSpec(scaling, window, softcap, s_aux)
    if context.pool is None:
        return _observe(context, layer, query, key, value, spec), None
    keys, values = store(context, layer, key, value)
    return context.backend(query, keys, values, context.batch, spec), None


AttentionInterface.register(ATTENTION_NAME, paged_attention)


def _observe(context, layer, query, key, value, spec) -> torch.Tensor:
    """A probe's answer: note the shapes, return anything of the right shape."""
    context.observed[layer] = (KVShape(key.shape[1], key.shape[3], value.shape[3]), spec)
    rows, heads, width, _ = query.shape
    return value.new_zeros(rows, width, heads, value.shape[3])


def store(context: StepContext, layer: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the pass's K and V into their slots; the layer's pool."""
    keys, values = context.pool.layers[layer]
    slots = context.batch.slot_mapping
    keys.index_copy_(0, slots, key.transpose(1, 2).reshape(-1, key.shape[1], key.shape[3]))
    values.index_copy_(0, slots, value.transpose(1, 2).reshape(-1, value.shape[1], value.shape[3]))
    return keys, values


class PagedCache(Cache):
    """The second plug. Queries of all rows see the keys of all rows; the mask keeps them apart."""

    def __init__(self, context: StepContext) -> None:
        super().__init__(layers=[])
        self._context = context

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """New K and V `[R, Hkv, W, D]` in, those of every segment out: `[R, Hkv, K, D]`, the same for all rows."""
        context = self._context
        if context.pool is None:
            spec = AttentionSpec(0.0, context.windows.get(layer_idx))
            context.observed[layer_idx] = (
                KVShape(key_states.shape[1], key_states.shape[3], value_states.shape[3]),
                spec,
            )
            return key_states, value_states
        keys, values = store(context, layer_idx, key_states, value_states)
        slots = [s.slots for s in context.batch.segments if s.end > s.first]
        rows = context.batch.input_ids.shape[0]
        return _gather(keys, slots, rows), _gather(values, slots, rows)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return 0

    def get_mask_sizes(self, query_length, layer_idx: int = 0) -> tuple[int, int]:
        return query_length, 0


def _gather(pool: torch.Tensor, slots: list, rows: int) -> torch.Tensor:
    gathered = torch.cat([pool[s] for s in slots])  # [K, Hkv, D]
    return gathered.transpose(0, 1)[None].expand(rows, -1, -1, -1)


def additive_mask(batch: PackedBatch, window: int | None, dtype: torch.dtype) -> torch.Tensor:
    """`[R, 1, W, K]`: 0 where a query may attend, the dtype's minimum elsewhere."""
    rows, width = batch.input_ids.shape
    allowed = dense_mask(batch, window).to(batch.input_ids.device).view(rows, 1, width, -1)
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(~allowed, torch.finfo(dtype).min)
