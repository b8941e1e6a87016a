"""The recorded runs that ship with the page: made from the presets by the engine, kept as traces, shown at once.

`record` makes them; `differences` says where a rerun is not what was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from core.engine.engine import Engine
from core.models.cache import Models
from core.trace.trace import Trace
from core.workload.presets import PRESETS, Preset
from visualizer.documents.catalogue import TRACES


def run_preset(preset: Preset, models: Models, device: str = "cpu") -> Trace:
    """Run a preset by the engine, from an empty pool."""
    trace = Engine(*models.get(preset.model, device), preset.config).run(preset.workload)
    trace.header = {**trace.header, "source": "recorded"}
    return trace


def record(folder: Path = TRACES, device: str = "cpu", names: tuple[str, ...] = ()) -> Iterator[tuple[str, Path]]:
    """Record all presets, or those named, yielding each as it is written."""
    folder.mkdir(parents=True, exist_ok=True)
    models = Models()
    for preset in PRESETS.values():
        if not names or preset.name in names:
            path = folder / f"{preset.name}.jsonl"
            run_preset(preset, models, device).save(path)
            yield preset.name, path


def differences(recorded: Trace, again: Trace) -> list[str]:
    """Where two runs of a preset differ in anything but times, dates, machine and rounding of logits."""
    found = []
    for name in ("policy", "config", "num_blocks", "workload", "prompts", "dtype"):
        if recorded.header.get(name) != again.header.get(name):
            found.append(f"header: {name}")
    if len(recorded.events) != len(again.events):
        found.append(f"{len(recorded.events)} steps recorded, {len(again.events)} run")
    for old, new in zip(recorded.events, again.events, strict=False):
        found += [f"step {old.step}: {name}" for name in _FACTS if _facts(old, name) != _facts(new, name)]
    return found


_FACTS = (
    "step",
    "arrived",
    "admitted",
    "waiting",
    "preempted",
    "stalled",
    "passes",
    "segments",
    "sampled",
    "finished",
    "kv",
    "budget",
    "overrun",
)


def _facts(event, name: str):
    """A field of an event without its times and measured floats."""
    value = getattr(event, name)
    if name == "arrived":
        return [a.request for a in value]
    if name == "passes":
        return [p._replace(t_start=0.0, t_end=0.0) for p in value]
    if name == "sampled":
        return [(s.pass_index, s.request, s.token_id) for s in value]
    return value
