"""Named workloads, each with the model, policy and limits it is best seen with. Data; everything runs offline on built-in models."""

from __future__ import annotations

from core.errors import InvalidWorkload
from core.workload.presets.articles import ARTICLES
from core.workload.presets.lessons import LESSONS
from core.workload.presets.preset import Preset
from core.workload.presets.showcase import SHOWCASE

__all__ = ["PRESETS", "Preset", "preset"]

PRESETS = {preset.name: preset for preset in (*SHOWCASE, *ARTICLES, *LESSONS)}  # in the order in which the page lists them


def preset(name: str) -> Preset:
    """A preset by name; raises InvalidWorkload for an unknown one."""
    if name not in PRESETS:
        raise InvalidWorkload(f"There is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    return PRESETS[name]
