"""The recorded runs that ship with the page: made from the presets by the engine, kept as traces, shown at once. And runs with a mistake made on
purpose, kept apart: lessons count what the mistake did to the texts, and no view draws them, since its mask is not the one that ran.

`record` makes them all; `differences` says where a rerun is not what was recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from core.attention.spec import Attend, Backend
from core.config import EngineConfig
from core.engine.engine import Engine
from core.measure.mistakes import leaky_engine, unmasked_pads
from core.models.cache import Models
from core.trace.events import StepEvent
from core.trace.trace import Trace
from core.workload.presets import PRESETS, Preset
from visualizer.documents.catalogue import LEAKS, TRACES


class Mistake(NamedTuple):
    """note: the mistake, as the trace describes it."""

    preset: Preset
    attend: Attend
    note: str


MISTAKES = {
    "mistakes/greedy-unmasked": Mistake(
        replace(PRESETS["greedy-together"], config=EngineConfig("static", max_num_seqs=4)),
        unmasked_pads,
        "Computed with a wrong mask on purpose: every token of a padded row also read the pads before it.",
    )
}


def run_preset(preset: Preset, models: Models, device: str = "cpu") -> Trace:
    """Run a preset by the engine, from an empty pool."""
    return _run(Engine(*models.get(preset.model, device, preset.dtype), preset.config), preset)


def run_mistake(mistake: Mistake, models: Models) -> Trace:
    """Run a preset under a wrong mask; the trace says so."""
    preset = mistake.preset
    model, tokenizer = models.get(preset.model, "cpu", preset.dtype)
    trace = _run(Engine(model, tokenizer, preset.config, backend=Backend(mistake.attend)), preset)
    trace.header = replace(trace.header, notes=(mistake.note,))
    return trace


def run_leak(preset: Preset, models: Models) -> Trace:
    """Run a preset under a mask with a hole in it; the trace says so, and the page draws the mask that ran."""
    return _run(leaky_engine(*models.get(preset.model, "cpu", preset.dtype), preset.config), preset)


def _run(engine: Engine, preset: Preset) -> Trace:
    trace = engine.run(preset.workload)
    trace.header = replace(trace.header, source="recorded")
    return trace


def record(folder: Path = TRACES, device: str = "cpu", names: tuple[str, ...] = ()) -> Iterator[tuple[str, Path]]:
    """Record all presets, leaks and mistakes, or those named, yielding each as it is written."""
    models = Models()
    runs: dict[str, Callable[[], Trace]] = {name: partial(run_preset, preset, models, device) for name, preset in PRESETS.items()}
    runs |= {leak: partial(run_leak, PRESETS[name], models) for name, leak in LEAKS.items()}
    runs |= {name: partial(run_mistake, mistake, models) for name, mistake in MISTAKES.items()}
    for name, run in runs.items():
        if not names or name in names:
            path = folder / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            run().save(path)
            yield name, path


def differences(recorded: Trace, again: Trace) -> list[str]:
    """Where two runs of a preset differ in anything but times, dates, machine and rounding of logits, which in 16 bits may choose a token."""
    exact = recorded.header.dtype == "float32"
    found = [f"header: {name}" for name in _LIMITS if getattr(recorded.header, name) != getattr(again.header, name)]
    if recorded.asked != again.asked:
        found.append("what was asked")
    if len(recorded.events) != len(again.events):
        found.append(f"{len(recorded.events)} steps recorded, {len(again.events)} run")
    for old, new in zip(recorded.events, again.events, strict=False):
        found += [f"step {old.step}: {name}" for name in _FACTS if _facts(old, name, exact) != _facts(new, name, exact)]
    return found


_LIMITS = ("config", "num_blocks", "workload", "arrival_unit", "dtype")
_FACTS = tuple(name for name in StepEvent._fields if name not in ("t_start", "t_end", "timings"))


def _facts(event: StepEvent, name: str, exact: bool) -> Any:
    """A field of an event without its times and measured floats. exact: with which tokens were chosen."""
    value = getattr(event, name)
    if name == "arrived":
        return [a.request for a in value]
    if name == "passes":
        return [p._replace(t_start=0.0, t_end=0.0) for p in value]
    if name == "sampled":
        return [(s.pass_index, s.request, s.token_id if exact else None) for s in value]
    return value
