"""The recorded runs that ship with the page, as the player lists them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

from core.assets import ASSETS
from core.trace.trace import Trace
from core.workload.presets import PRESETS, Preset

TRACES = ASSETS / "traces"


def recorded_runs(folder: Path = TRACES) -> Iterator[tuple[dict, Trace]]:
    """Each recorded run with its entry, in the order of the presets."""
    for preset in PRESETS.values():
        path = folder / f"{preset.name}.jsonl"
        if path.exists():
            trace = Trace.load(path)
            yield entry(preset, trace), trace


def entry(preset: Preset, trace: Trace) -> dict:
    """What the player's list says of a recorded run, but for where it is."""
    return {
        "name": preset.name,
        "title": preset.title,
        "shows": preset.shows,
        "policy": trace.header["policy"],
        "steps": len(trace.events),
        "recorded": _day(trace.header.get("created", "")),
    }


def _day(created: str) -> str:
    try:
        return datetime.datetime.fromisoformat(created).date().isoformat()
    except ValueError:
        return ""
