"""The choices that a page offers: presets, policies and models, within its limits."""

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
"""Facts about models by name, for pages without a server: see `EngineFiles.facts`."""


def for_runs(limits: Limits, model: str = "", facts: Facts = _NONE) -> dict[str, Any]:
    """The data for the editor of requests. model: the one that is selected at first."""
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
    """The data for the form of a new comparison. model: see `for_runs`."""
    return {
        "policies": [{"name": p.name, "shows": p.shows} for p in POLICIES.values()],
        "presets": presets(limits),
        "most_repeats": limits.repeats,
        "offered": models(limits, model, facts),
    }


def models(limits: Limits, first: str = "", facts: Facts = _NONE) -> dict[str, Any]:
    """The data for a choice of models. first: the one that is selected at first."""
    return {
        "models": list(limits.offered),
        "builtin": list(BUILTIN_MODELS),
        "any_model": limits.any_model,
        "dtypes": list(DTYPES) if limits.any_model else ["auto"],
        "model": first,
        "facts": dict(facts),
    }


def packed_facts(header: Mapping[str, Any], size: int) -> dict[str, Any]:
    """Facts about a model from the header of its packed file, in the form of
    `core.torch_engine.models.forecast`. size: bytes of its weights.
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
    """The presets whose model runs here; see `preset_entry`."""
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
