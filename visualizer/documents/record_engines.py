"""The comparisons with other engines that ship with the page: the same requests on vLLM, on our `continuous` and on transformers, step by step.

vLLM runs in an environment of its own. Refuses a machine that has other work to do.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from core.engine.engine import Engine
from core.errors import InflightError
from core.measure.baselines.recorded import transformers_batching, vllm
from core.measure.compare import compare, engine_contender
from core.measure.environment import environment
from core.measure.rounds import load_average
from core.models.cache import Models
from core.recorders.asked import Asked
from core.recorders.vllm.record import Vllm, needed_python
from core.workload.presets import Preset, preset
from visualizer.documents.catalogue import OTHER_ENGINES, TRACES
from visualizer.documents.comparison import Shown
from visualizer.documents.comparison_files import RECORDED, save
from visualizer.documents.record_comparisons import checked_quiet
from visualizer.words.engines import GROUP

PRESETS = ("short-and-long", "long-prompt-arrives", "long-prompt-chunked", "kv-pressure", "shared-prefix", "poisson-32")


def record_engines(
    names: Sequence[str] = (),
    folder: Path = RECORDED,
    traces: Path = TRACES,
    *,
    python: str | None = None,
    repeats: int = 5,
    load: Callable[[], float | None] = load_average,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[str, Path]]:
    """Measure and write the comparison of each of these presets, by default all, yielding each as it is written, and the runs of vLLM that
    the page shows by themselves.

    python: of an environment with vLLM. Raises InflightError, before anything is measured, where none is named, for an unknown name and
    for a machine that is not quiet.
    """
    python = needed_python(python)
    if unknown := [name for name in names if name not in PRESETS]:
        raise InflightError(f"There is no comparison of engines on {unknown[0]!r}; there are {', '.join(PRESETS)}.")
    found = checked_quiet(load)
    return _record_all(names or PRESETS, folder, traces, python, repeats, found, say)


def _record_all(
    names: Sequence[str],
    folder: Path,
    traces: Path,
    python: str,
    repeats: int,
    found: float | None,
    say: Callable[[str], None],
) -> Iterator[tuple[str, Path]]:
    for name in names:
        shown = measured(preset(name), python, repeats, say)
        shown.environment["load_average"] = found
        if (run := f"vllm-{name}") in OTHER_ENGINES and (trace := shown.comparison.runs["vLLM"].trace) is not None:
            trace.save(traces / f"{run}.jsonl")
        yield name, save(shown, folder / shown.workload)


def measured(asked_for: Preset, python: str, repeats: int = 5, say: Callable[[str], None] = lambda text: None) -> Shown:
    """vLLM, our `continuous` and transformers in rotated order, with as many threads each."""
    adapter, tokenizer = Models().get(asked_for.model, "cpu")
    asked = Asked.of(asked_for, tokenizer)
    engine = Engine(adapter, tokenizer, asked.config)
    say(f"{asked_for.name}: loading vLLM")
    with Vllm(asked, python, torch.get_num_threads()) as other:
        contenders = [vllm(asked, other), engine_contender(engine, asked.workload), transformers_batching(asked, adapter.model)]
        where = environment(engine.trace.header)
        result = compare(contenders, repeats, on_run=lambda p: say(f"{p.index + 1} of {p.total}: {p.contender}"))
    for run in result.runs.values():
        if run.trace is not None:
            run.trace.header = replace(run.trace.header, source="recorded")
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    name = f"engines-{asked_for.name}"
    return Shown(result, name, where, "recorded", asked_for.title, asked_for.shows, created, group=GROUP)
