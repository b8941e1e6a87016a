"""An attention mask that leaks on purpose, to measure and show the effects of that mistake."""

import time
from collections.abc import Callable
from typing import Any

import torch

from core.config import EngineConfig
from core.errors import InflightError
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.dense import attend_under, dense_mask
from core.torch_engine.attention.spec import AttentionSpec, Backend
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
    """`dense_mask` plus the keys of the next request in the pass; for the last, of the first."""
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
