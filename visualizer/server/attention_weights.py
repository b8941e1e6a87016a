"""The real attention weights of one layer and head in a pass, computed again on demand: how the model uses what the mask permits.

Each request is run by itself through the model's own attention; a packed pass gives the same up to rounding, which tests of the engine prove.
"""

from __future__ import annotations

from typing import Any

import torch

from core.errors import InflightError
from core.models.adapter import ModelAdapter
from core.trace.trace import Trace

MAX_CELLS = 60_000


def attention_weights(
    trace: Trace, adapter: ModelAdapter, step: int, pass_index: int, layer: int, head: int
) -> list[dict[str, Any]]:
    """For each segment of a pass `{"request", "start", "weights"}`: rows are its queries, columns its keys from position 0.

    Raises InflightError for a step, pass, layer or head that does not exist, or for more cells than a page can hold.
    """
    event = trace.event(step)
    if not 0 <= pass_index < len(event.passes):
        raise InflightError(f"Step {step} has no pass {pass_index}.")
    if not 0 <= layer < len(adapter.shapes):
        raise InflightError(f"The model has layers 0 to {len(adapter.shapes) - 1}, so there is no layer {layer}.")
    segments = [s for s in event.segments if s.pass_index == pass_index]
    cells = sum(s.length * s.kv_len for s in segments)
    if cells > MAX_CELLS:
        raise InflightError(f"This pass has {cells:,} weights in one head; the page shows at most {MAX_CELLS:,}.")
    outputs = trace.outputs
    return [
        {
            "request": s.request,
            "start": s.start,
            "weights": _weights(adapter, (trace.prompts[s.request] + outputs[s.request])[: s.kv_len], s.start, layer, head),
        }
        for s in segments
    ]


def _weights(adapter: ModelAdapter, token_ids: list[int], start: int, layer: int, head: int) -> list[list[float]]:
    ids = torch.tensor([token_ids], device=adapter.device)
    with adapter.lock, torch.inference_mode():
        before = adapter.model.config._attn_implementation
        adapter.model.set_attn_implementation("eager")  # the only one that returns its weights
        try:
            attentions = adapter.model(input_ids=ids, use_cache=False, output_attentions=True).attentions
        finally:
            adapter.model.set_attn_implementation(before)
    heads = attentions[layer][0] if attentions else torch.empty(0)
    if not 0 <= head < len(heads):
        raise InflightError(f"Layer {layer} hands out {len(heads)} heads, so there is no head {head}.")
    return [[round(weight, 4) for weight in row] for row in heads[head, start:].float().tolist()]
