"""Connects a transformers model's attention to the paged pool, in one of two ways.

`attention`: the model calls our function, registered under a name of its own, with queries and new
keys and values `[R, H, W, D]`. No mask is registered under that name, so transformers builds none.

`cache`: a model that never calls a registered function gets a `Cache` whose `update` stores the new
keys and values and returns those of the whole row, together with a 4-D mask. Such a model computes
attention itself, so only full causal attention is possible.

The metadata of the pass is in a `StepContext`, which is set around the forward call.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache

from core.torch_engine.attention.batch import PackedBatch, slots_of
from core.torch_engine.attention.dense import dense_mask
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.attention.spec import AttentionSpec, Backend

ATTENTION_NAME = "inflight"


@dataclass
class StepContext:
    """What attention needs to know about the current pass.

    windows: sliding window by layer, as the probe found them in the model's own masks.
    """

    batch: PackedBatch
    pool: KVPool
    backend: Backend
    windows: dict[int, int | None]


_context: ContextVar[StepContext] = ContextVar("inflight_step")


@contextmanager
def step_context(context: StepContext) -> Iterator[StepContext]:
    """Make `context` the current one inside the block."""
    token = _context.set(context)
    try:
        yield context
    finally:
        _context.reset(token)


def current_context() -> StepContext:
    """The context of the current pass."""
    return _context.get()


def paged_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls: query `[R, H, W, Dk]`, key `[R, Hkv, W, Dk]`, value
    `[R, Hkv, W, Dv]`; out `[R, W, H, Dv]`.
    """
    context = current_context()
    layer = module.layer_idx
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    spec = AttentionSpec(scaling, context.windows[layer], softcap, s_aux)
    keys, values = store(context, layer, key, value)
    return context.backend.attend(query, keys, values, context.batch, spec), None


AttentionInterface.register(ATTENTION_NAME, paged_attention)


def store(
    context: StepContext, layer: int, key: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Write the pass's K and V into their slots; returns the layer's pool."""
    keys, values = context.pool.layers[layer]
    context.backend.store(key, value, keys, values, context.batch.slot_mapping)
    return keys, values


def given_cache(model: Any, cache: Cache) -> dict[str, Cache]:
    """A cache as keyword argument of a model's forward: `cache` in most models from transformers
    5.24 on, where `past_key_values` warns.
    """
    knows = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in knows else "past_key_values": cache}


class CacheOfNoLength(Cache):
    """A cache that claims to be empty, so that transformers uses positions and masks as given."""

    def __init__(self) -> None:
        super().__init__(layers=[])

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Always 0: transformers then leaves positions as they are given."""
        return 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Always 0, for the same reason."""
        return 0

    def get_mask_sizes(self, query_length, layer_idx: int = 0) -> tuple[int, int]:
        """As many keys as queries, with none before them."""
        return query_length, 0


class PagedCache(CacheOfNoLength):
    """The cache of the second way. A packed row sees the keys of all its segments, a padded row
    only its own; `additive_mask` keeps requests apart.

    broken: bool `[R, K]`, whether a key or value was not finite in any layer.
    """

    def __init__(self, context: StepContext) -> None:
        super().__init__()
        self._context = context
        self._slots = _key_slots(context.batch, context.pool.trash_slot)
        self.broken = torch.zeros_like(self._slots, dtype=torch.bool)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes new K and V `[R, Hkv, W, D]`; returns those to attend to, `[R, Hkv, K, D]`."""
        keys, values = store(self._context, layer_idx, key_states, value_states)
        return self._gather(keys), self._gather(values)

    def _gather(self, pool: torch.Tensor) -> torch.Tensor:
        """A copy with non-finite values replaced by 0: otherwise they would reach every query of
        the row, even with a weight of zero.
        """
        gathered = pool[self._slots]  # [R, K, Hkv, D]
        finite = gathered.isfinite()
        self.broken |= ~finite.all(-1).all(-1)
        return gathered.masked_fill_(~finite, 0.0).transpose(1, 2).contiguous()

    def sees_broken(self, mask: torch.Tensor) -> torch.Tensor:
        """Which queries may attend to a broken key or value, see `additive_mask`: `[R * W]`."""
        return ((mask[:, 0] == 0) & self.broken[:, None]).any(-1).view(-1)


def _key_slots(batch: PackedBatch, trash_slot: int) -> torch.Tensor:
    """Slots of the keys of each row: int64 `[R, K]`, padded with the trash slot."""
    device = batch.input_ids.device
    slots = [slots_of(segment, device=device) for segment in batch.segments]
    if batch.layout == "packed":
        return torch.cat(slots)[None]
    return torch.nn.utils.rnn.pad_sequence(slots, batch_first=True, padding_value=trash_slot)


def additive_mask(batch: PackedBatch, dtype: torch.dtype) -> torch.Tensor:
    """`[R, 1, W, K]`: 0 where a query may attend, elsewhere the dtype's minimum."""
    device = batch.input_ids.device
    if batch.layout == "packed":
        allowed = dense_mask(batch, None).to(device)[None]
    else:
        pads = torch.tensor([s.num_pads for s in batch.segments], device=device)[:, None, None]
        columns = torch.arange(batch.input_ids.shape[1], device=device)[:, None]
        keys = torch.arange(max(s.kv_len for s in batch.segments), device=device)
        allowed = (keys <= batch.position_ids[:, :, None]) & (columns >= pads)
    blocked = torch.full(allowed.shape, torch.finfo(dtype).min, dtype=dtype, device=device)
    return blocked.masked_fill_(allowed, 0.0)[:, None]
