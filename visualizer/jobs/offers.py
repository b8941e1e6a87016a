"""What a page can choose from: presets, policies and models, within its limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from core.browser.executor import MOST_POOL
from core.config import BUILTIN_MODELS, POLICIES
from core.workload.presets import PRESETS, Preset
from visualizer.jobs.limits import DTYPES, Limits

_NONE: Mapping[str, Any] = MappingProxyType({})

Facts = Mapping[str, Mapping[str, Any]]
"""What is known of models by their names, where nobody can be asked: see `EngineFiles.facts`."""


def for_runs(limits: Limits, model: str = "", facts: Facts = _NONE) -> dict[str, Any]:
    """What the editor of requests needs to know. model: the one that the page opens with."""
    return {
        **models(limits, model, facts),
        "presets": presets(limits),
        "policies": [
            {"name": p.name, "shows": p.shows, "knobs": p.knobs, "order_by": p.order_by}
            for p in POLICIES.values()
        ],
        "limits": asdict(limits),
    }


def for_comparisons(limits: Limits, model: str = "", facts: Facts = _NONE) -> dict[str, Any]:
    """What the form of a new comparison needs to know. model: see `for_runs`."""
    return {
        "policies": [{"name": p.name, "shows": p.shows} for p in POLICIES.values()],
        "presets": presets(limits),
        "most_repeats": limits.repeats,
        "offered": models(limits, model, facts),
    }


def models(limits: Limits, first: str = "", facts: Facts = _NONE) -> dict[str, Any]:
    """What a form's choice of a model needs to know. first: the model that the page opens with."""
    return {
        "models": list(limits.offered),
        "builtin": list(BUILTIN_MODELS),
        "any_model": limits.any_model,
        "dtypes": list(DTYPES) if limits.any_model else ["auto"],
        "model": first,
        "facts": dict(facts),
    }


def packed_facts(header: Mapping[str, Any], size: int) -> dict[str, Any]:
    """What a form says of a model by the header of its packed file, as
    `core.torch_engine.models.forecast` does of a server's; `size` bytes of numbers.
    """
    kinds = {place[3].upper() for place in header["tensors"].values() if len(place) > 3} or {"F32"}
    return {
        **header["model"],
        "architecture": header["model"]["type"],
        "stored": sorted(kinds),
        "dtype": min(kinds),
        "weights": size,
        "free": None,
        "pool": MOST_POOL,
        "loaded": False,
        "has_tokenizer": True,
        "download": 0,
    }


def presets(limits: Limits) -> list[dict[str, Any]]:
    """The presets whose model runs here, see `preset_entry`."""
    return [
        preset_entry(preset)
        for preset in PRESETS.values()
        if limits.any_model or preset.model in limits.offered
    ]


def preset_entry(preset: Preset) -> dict[str, Any]:
    """A preset as the page describes it, and the spec that runs it."""
    spec = {
        "workload": preset.workload.to_json(),
        "config": preset.config.to_json(),
        "model": preset.model,
        "device": "auto",
    }
    return {"name": preset.name, "title": preset.title, "shows": preset.shows, "spec": spec}
