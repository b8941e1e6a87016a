"""The mistakes that a mask prevents, made on purpose, to measure and show their effects. Each is an
`Attend` to run an engine with; no engine uses one by default.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from core.config import EngineConfig
from core.errors import InflightError
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.dense import attend_under, dense_mask
from core.torch_engine.attention.spec import AttentionSpec, Backend, scores_to_output
from core.torch_engine.engine import Engine
from core.torch_engine.models.adapter import ModelAdapter


def leaky_engine(
    model: ModelAdapter,
    tokenizer: Any | None,
    config: EngineConfig,
    sleep: Callable[[float], None] = time.sleep,
) -> Engine:
    """An engine in which every request also reads its neighbour's keys. Its traces say so.

    Raises InflightError for a model that makes its own attention masks.
    """
    if getattr(model, "plug", "attention") == "cache":
        raise InflightError(
            f"{model.name} makes its own attention masks, so there is none to take away."
        )
    return Engine(model, tokenizer, config, backend=Backend(leaky, leaks=True), sleep=sleep)


def leaky(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """An `Attend` with a gap in its mask: every request also reads the next one's keys."""
    return attend_under(leaky_mask(batch, spec.window), query, keys, values, batch, spec)


def leaky_mask(batch: PackedBatch, window: int | None) -> torch.Tensor:
    """`dense_mask`, and the keys of the next request in the pass, the first after the last."""
    allowed = dense_mask(batch, window)
    present = [s for s in batch.segments if s.end > s.first]
    if len(present) < 2:
        return allowed
    width = batch.input_ids.shape[1]
    first_key, spans = 0, []
    for segment in present:
        spans.append(slice(first_key, first_key + segment.kv_len))
        first_key += segment.kv_len
    for index, segment in enumerate(present):
        rows = slice(segment.row * width + segment.first, segment.row * width + segment.end)
        allowed[rows, spans[(index + 1) % len(present)]] = True
    return allowed


def unmasked_pads(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    batch: PackedBatch,
    spec: AttentionSpec,
) -> torch.Tensor:
    """An `Attend` that forgets the padding: every token of a padded row also reads the pads before
    it.

    All pads of a pass are alike: the same token at the same position, attending to nothing. So the
    slot that they all write to represents each of them.
    """
    rows, heads, width, _ = query.shape
    groups = heads // keys.shape[1]
    out = query.new_zeros(rows, width, heads, values.shape[2])
    for segment in batch.segments:
        if segment.end == segment.first:
            continue
        pads = batch.slot_mapping[segment.row * width :][: segment.num_pads]
        slots = segment.slots
        own = torch.arange(slots.start, slots.stop) if isinstance(slots, slice) else slots
        read = torch.cat([pads, own])
        k, v = (
            pool[read].transpose(0, 1)[None].repeat_interleave(groups, 1) for pool in (keys, values)
        )
        q = query[segment.row, :, segment.first : segment.end][None]
        positions = torch.arange(segment.start, segment.kv_len)[:, None]
        seen = torch.arange(segment.kv_len)[None] <= positions
        if spec.window is not None:
            seen &= positions - torch.arange(segment.kv_len)[None] < spec.window
        mask = torch.cat([torch.ones(len(seen), len(pads), dtype=torch.bool), seen], dim=1)
        out[segment.row, segment.first : segment.end] = scores_to_output(q, k, v, mask, spec)[
            0
        ].transpose(0, 1)
    return out
