"""Named workloads, each with the model, policy and limits it is best seen with, in groups by the question they answer. Data; everything
runs offline on built-in models.

The numbers in `padding-693`, `one-joins-two`, `chunk-7-by-4`, `budget-512`, `three-lengths` and `chunk-7-7-6` are those of the articles'
own examples.
"""

from __future__ import annotations

from core.errors import InvalidWorkload
from core.workload.presets.articles import ARTICLES
from core.workload.presets.in_company import IN_COMPANY
from core.workload.presets.long_prompts import LONG_PROMPTS
from core.workload.presets.memory import MEMORY
from core.workload.presets.no_help import NO_HELP
from core.workload.presets.one_by_one import ONE_BY_ONE
from core.workload.presets.preset import Preset
from core.workload.presets.waiting import WAITING

__all__ = ["GROUPS", "PRESETS", "Preset", "preset"]

GROUPS: dict[str, tuple[Preset, ...]] = {
    "waiting": WAITING,
    "long-prompts": LONG_PROMPTS,
    "memory": MEMORY,
    "no-help": NO_HELP,
    "one-by-one": ONE_BY_ONE,
    "in-company": IN_COMPANY,
    "articles": ARTICLES,
}

PRESETS: dict[str, Preset] = {preset.name: preset for group in GROUPS.values() for preset in group}


def preset(name: str) -> Preset:
    """A preset by name; raises InvalidWorkload for an unknown one."""
    if name not in PRESETS:
        raise InvalidWorkload(f"There is no preset {name!r}; the presets are {', '.join(PRESETS)}.")
    return PRESETS[name]
