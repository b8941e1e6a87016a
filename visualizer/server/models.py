"""Facts about a model before it is loaded, the model of a recorded run, and attention weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from core.config import BUILTIN_MODELS
from core.torch_engine.models.libraries import load_libraries
from visualizer.jobs.attention import Weigh, no_head
from visualizer.jobs.limits import Limits, Refused, checked_model
from visualizer.server.lent_gpu import is_lent

if TYPE_CHECKING:
    import torch

    from core.torch_engine.models.adapter import ModelAdapter
    from core.torch_engine.models.cache import ModelCache
    from core.trace.header import Header


def foreseen(asked: Mapping[str, Any], limits: Limits, models: ModelCache) -> dict[str, Any]:
    """The facts and needs of a model before it is loaded: see `core.torch_engine.models.forecast`.
    Also `free`, bytes on its device; `pool`, bytes for KV blocks beside the model; and whether it
    is `loaded`.
    """
    # a borrowed GPU must not be touched in this process
    device = "cpu" if is_lent() else asked.get("device", "auto")
    if not isinstance(device, str):
        raise Refused("The device must be a name.")
    name, dtype = checked_model(asked.get("model"), asked.get("dtype", "auto"), limits)
    load_libraries()
    from core.torch_engine.models.forecast import forecast
    from core.torch_engine.models.load import resolve_device
    from core.torch_engine.models.memory import free_memory
    from core.torch_engine.pool_size import foreseen_pool

    where = resolve_device(device)
    found = forecast(name, device, dtype)
    free, loaded = free_memory(where), models.has(name, found.device, found.dtype)
    pool = foreseen_pool(found.device, free, 0 if loaded else found.weights)
    return {**asdict(found), "free": free, "pool": pool, "loaded": loaded}


def model_of(header: Header, limits: Limits, models: ModelCache) -> tuple[str, str, str]:
    """Name, device and number format of the model of a recorded run, if it may be loaded here, or
    is loaded already; raises Refused.
    """
    name = header.model.name or ""
    if name in BUILTIN_MODELS:
        return name, "cpu", "auto"
    if not limits.any_model and name not in limits.offered:
        raise Refused("Attention weights are shown for this page's own models only.")
    if models.has(name, header.device, header.dtype):
        return name, header.device, header.dtype
    if name in limits.offered:
        return name, "cpu", "auto"
    raise Refused(
        "The model of this run is not loaded now: run its requests again to see its attention"
        " weights."
    )


def weigh_by(adapter: ModelAdapter) -> Weigh:
    """A function that computes attention weights with this model."""
    import torch

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
    """The weights of a layer's heads, taken by a hook: a model that returns its weights would keep
    those of all layers, which are gigabytes for a text of thousands of tokens.
    """
    import torch

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
        # models that compute attention themselves return weights only if asked
        asked = {"output_attentions": True} if adapter.plug == "cache" else {}
        adapter.model(input_ids=ids, use_cache=False, **asked)
    finally:
        for hook in hooks:
            hook.remove()
    return found
