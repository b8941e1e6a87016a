"""Attention weights on a server: from the transformers model itself."""

from __future__ import annotations

import torch

from core.torch_engine.models.adapter import ModelAdapter
from visualizer.jobs.attention import Weigh, no_head


def weigh_by(adapter: ModelAdapter) -> Weigh:
    """The weights that a model gives."""

    def weigh(token_ids: list[int], layer: int, head: int) -> list[list[float]]:
        ids = torch.tensor([token_ids], device=adapter.device)
        with adapter.lock, torch.inference_mode():
            before = adapter.model.config._attn_implementation
            adapter.model.set_attn_implementation("eager")  # the only one that returns its weights
            try:
                attentions = adapter.model(
                    input_ids=ids, use_cache=False, output_attentions=True
                ).attentions
            finally:
                adapter.model.set_attn_implementation(before)
        heads = attentions[layer][0] if attentions else torch.empty(0)
        if not 0 <= head < len(heads):
            raise no_head(layer, len(heads), head)
        return heads[head].float().tolist()

    return weigh
