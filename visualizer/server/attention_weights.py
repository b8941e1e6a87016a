"""Attention weights on a server: from the transformers model itself."""

from __future__ import annotations

from typing import Any

import torch

from core.torch_engine.models.adapter import ModelAdapter
from visualizer.jobs.attention import Weigh, no_head


def weigh_by(adapter: ModelAdapter) -> Weigh:
    """The weights that a model gives."""

    def weigh(token_ids: list[int], layer: int, head: int) -> Any:
        ids = torch.tensor([token_ids], device=adapter.device)
        with adapter.lock, torch.inference_mode():
            before = adapter.model.config._attn_implementation
            adapter.model.set_attn_implementation("eager")  # the only one that returns its weights
            try:
                heads = _heads(adapter, ids, layer)
            finally:
                adapter.model.set_attn_implementation(before)
        if not 0 <= head < len(heads):
            raise no_head(layer, len(heads), head)
        return heads[head].float().cpu().numpy()

    return weigh


def _heads(adapter: ModelAdapter, ids: torch.Tensor, layer: int) -> torch.Tensor:
    """The weights of a layer's heads, taken where they are made: a model that is asked for its
    weights keeps those of all layers, of a text of thousands of tokens gigabytes.
    """
    square, found = (ids.shape[1],) * 2, torch.empty(0)

    def take(module: Any, given: Any, made: Any) -> None:
        nonlocal found
        for part in made if isinstance(made, tuple) else ():
            if isinstance(part, torch.Tensor) and part.ndim == 4 and part.shape[2:] == square:
                found = part[0]

    hooks = [
        module.register_forward_hook(take)
        for module in adapter.model.modules()
        if getattr(module, "layer_idx", None) == layer
    ]
    try:
        # models that attend by code of their own make weights only where they are asked
        asked = {"output_attentions": True} if adapter.plug == "cache" else {}
        adapter.model(input_ids=ids, use_cache=False, **asked)
    finally:
        for hook in hooks:
            hook.remove()
    return found
