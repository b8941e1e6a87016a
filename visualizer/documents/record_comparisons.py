"""The comparisons that ship with the page: which they are, and how they are measured. Refuses a machine that has other work to do."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from core.engine.engine import Engine
from core.errors import InflightError
from core.measure import baselines
from core.measure.compare import compare, config_for, engine_contender
from core.measure.cost_curve import cost_curve
from core.measure.environment import QUIET, environment, too_busy
from core.measure.equivalence import equivalence
from core.measure.load import Sweep, sweep_load
from core.measure.rounds import load_average
from core.models.cache import Models
from core.workload.presets import preset
from visualizer.documents.comparison import Shown
from visualizer.documents.comparison_files import RECORDED, save


class Variant(NamedTuple):
    """A policy under the preset's limits, or some of its own; `name` tells it from the policy as the preset has it."""

    policy: str
    name: str | None = None
    limits: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Recording:
    """A preset and who serves it; sentences are about the first two. outside: baselines that are no engine of ours. load: whether ever
    more requests are offered to each policy, too.
    """

    name: str
    variants: tuple[Variant, ...]
    outside: tuple[str, ...] = ()
    load: bool = False


def _policies(*names: str) -> tuple[Variant, ...]:
    return tuple(Variant(name) for name in names)


RECORDINGS = {
    r.name: r
    for r in (
        Recording(
            "gpt2-six",
            _policies("static", "continuous", "sequential", "dynamic", "split"),
            ("generate-waves", "generate-serial", "transformers-continuous"),
        ),
        Recording("where-padding-costs", _policies("dynamic", "continuous", "split", "static")),
        Recording(
            "equal-lengths",
            (
                *_policies("static", "continuous"),
                Variant("continuous", "continuous, budget 256", {"max_num_batched_tokens": 256}),
                Variant("dynamic"),
            ),
        ),
        Recording(
            "scheduler-zoo",
            _policies("stall", "continuous", "no-evict", "mini-sglang", "nano-vllm", "transformers"),
        ),
        Recording("poisson-32", _policies("static", "continuous", "dynamic", "split"), load=True),
    )
}
LOAD = Sweep(seconds=10.0)
"""Poisson arrivals, seeded; at most ten seconds a point, six rates a policy."""


def record_comparisons(
    names: Sequence[str] = (),
    folder: Path = RECORDED,
    *,
    repeats: int = 5,
    device: str = "cpu",
    threads: int | None = None,
    load: Callable[[], float | None] = load_average,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[tuple[str, Path]]:
    """Measure and write all of them, or those named, yielding each as it is written.

    Raises InflightError, before anything is measured, for an unknown name and for a machine that is not quiet.
    """
    unknown = [name for name in names if name not in RECORDINGS]
    if unknown:
        raise InflightError(f"There is no comparison {unknown[0]!r} to record; there are {', '.join(RECORDINGS)}.")
    found = checked_quiet(load)
    if threads is not None:
        torch.set_num_threads(threads)
    return _record_all(names or tuple(RECORDINGS), folder, repeats, device, found, say)


def checked_quiet(load: Callable[[], float | None]) -> float | None:
    """The machine's load; raises InflightError if it has other work to do."""
    found, cpus = load(), os.cpu_count()
    if too_busy(found, cpus):
        raise InflightError(
            f"This machine is busy: a load of {found:g} on {cpus} CPUs, and at most {QUIET:g} a CPU is allowed where times are published."
        )
    return found


def _record_all(
    names: Sequence[str], folder: Path, repeats: int, device: str, found: float | None, say: Callable[[str], None]
) -> Iterator[tuple[str, Path]]:
    for name in names:
        shown = measured(RECORDINGS[name], repeats, device, say)
        shown.environment["load_average"] = found  # before the first of them: later ones find the load of those before
        yield name, save(shown, folder / name)


def measured(
    recording: Recording,
    repeats: int = 5,
    device: str = "cpu",
    say: Callable[[str], None] = lambda text: None,
    sweep: Sweep = LOAD,
) -> Shown:
    """Every contender, the cost curve, the equivalence of each request with and without the leak, and the load where that is asked for.

    Beside baselines, which decode greedily, every contender does.
    """
    asked = preset(recording.name)
    workload = asked.workload
    adapter, tokenizer = Models().get(asked.model, device)
    if recording.outside:
        workload = workload.greedy()
    engines = [Engine(adapter, tokenizer, config_for(v.policy, asked.config, v.limits)) for v in recording.variants]
    contenders = [
        engine_contender(engine, workload, name=variant.name) for engine, variant in zip(engines, recording.variants, strict=True)
    ]
    lanes, budget = asked.config.max_num_seqs, asked.config.max_num_batched_tokens
    if recording.outside:
        work = baselines.jobs(workload, tokenizer)
        contenders += [baselines.contender(name, adapter.model, work, lanes, budget) for name in recording.outside]
    where = environment(engines[0].trace.header)
    result = compare(contenders, repeats, on_run=lambda p: say(f"{p.index + 1} of {p.total}: {p.contender}"))
    for run in result.runs.values():
        if run.trace is not None:
            run.trace.header = replace(run.trace.header, source="recorded")
    say("cost curve")
    cost = cost_curve(adapter)
    found = {}
    for switch in ("honest", "leak"):
        say(f"equivalence, {switch}")
        same = equivalence(adapter, tokenizer, workload, asked.config, leak=switch == "leak")
        found[switch] = same.to_json()
    offered = None
    if recording.load:
        by_policy = {engine.config.policy: engine for engine in engines}
        offered = sweep_load(by_policy, sweep, lambda policy, rate: say(f"load: {policy}, {rate:.3g} requests/s"))
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Shown(result, recording.name, where, "recorded", asked.title, asked.shows, created, cost, found, offered)
