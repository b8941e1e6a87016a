"""What a model is before it is loaded, and which of the loaded ones belongs to a recorded run.
Which may be loaded at all: `limits.checked_model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from core.config import BUILTIN_MODELS
from core.torch_engine.models.libraries import load_libraries
from visualizer.jobs.limits import Limits, Refused, checked_model
from visualizer.server.lent_gpu import is_lent

if TYPE_CHECKING:
    from core.torch_engine.models.cache import ModelCache
    from core.trace.header import Header


def foreseen(asked: Mapping[str, Any], limits: Limits, models: ModelCache) -> dict[str, Any]:
    """What a model is and will take, before it is loaded: see `core.torch_engine.models.forecast`.
    Also `free`, bytes on its device; `pool`, bytes for KV blocks beside it; and whether it is
    `loaded`.
    """
    # a lent GPU is not to be touched from here
    device = "cpu" if is_lent() else asked.get("device", "auto")
    if not isinstance(device, str):
        raise Refused("The device must be a name.")
    name, dtype = checked_model(asked.get("model"), asked.get("dtype", "auto"), limits)
    load_libraries()
    from core.torch_engine.models.load import resolve_device

    where = resolve_device(device)
    from core.torch_engine.models.forecast import forecast
    from core.torch_engine.models.memory import free_memory
    from core.torch_engine.pool_size import foreseen_pool

    found = forecast(name, device, dtype)
    free, loaded = free_memory(where), models.has(name, found.device, found.dtype)
    pool = foreseen_pool(found.device, free, 0 if loaded else found.weights)
    return {**asdict(found), "free": free, "pool": pool, "loaded": loaded}


def model_of(header: Header, limits: Limits, models: ModelCache) -> tuple[str, str, str]:
    """Name, device and number format by which the model of a recorded run can be had again without
    loading anything that only the recording names; raises Refused.
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
