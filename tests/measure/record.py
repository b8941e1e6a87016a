"""`python tests/measure/record.py`: what ships with the page, made again: the recorded runs, and
with `--comparisons` the comparisons, which are timed only on a quiet machine.

`record` runs the presets, and runs with a deliberate mistake, which are kept separate: lessons
count what the mistake did to the texts, and no view draws them, since the drawn mask would not be
the one that ran. `record_comparisons` times policies and baselines; `record_engines.py` times vLLM
and transformers beside our engine.
"""

from __future__ import annotations

import datetime
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import typer

from core.cli.given import refuse_idle
from core.cli.options import Threads
from core.cli.output import INTERRUPTED, print_json, print_line, print_note
from core.config import EngineConfig
from core.errors import InflightError
from core.measure import baselines
from core.measure.compare import (
    QUIET,
    compare,
    engine_contender,
    environment,
    nearest_to_median,
    too_busy,
)
from core.measure.cost_curve import measuring_cost
from core.measure.load import Sweep, sweep_load
from core.measure.rounds import Contender, load_average, planned, turn_of
from core.proof.equivalence import equivalence
from core.proof.mistakes import leaky_engine
from core.torch_engine.attention.spec import Backend
from core.torch_engine.engine import Engine
from core.torch_engine.models.cache import ModelCache
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.presets import PRESETS, Preset, preset
from core.workload.workload import Workload
from measure import Repeats, script
from visualizer.documents.catalogue import LEAKS, TRACES
from visualizer.documents.comparison import RECORDED, Shown, trace_in
from worlds import hand
from worlds.hiccups import far_steps
from worlds.saved_comparison import save
from worlds.turns import ended
from worlds.unmasked import unmasked_pads

Say = Callable[[str], None]

# -- runs ------------------------------------------------------------------------------------------


class Mistake(NamedTuple):
    """A run with a mistake. note: the mistake, as the trace describes it."""

    preset: Preset
    engine: Callable[..., Engine]
    note: str


MISTAKES = {
    "mistakes/greedy-unmasked": Mistake(
        replace(PRESETS["greedy-together"], config=EngineConfig("static", max_num_seqs=4)),
        partial(Engine, backend=Backend(unmasked_pads)),
        "Computed with a wrong mask on purpose: every token of a padded row also read the pads"
        " before it.",
    )
}


def run_preset(
    preset: Preset,
    models: ModelCache,
    device: str = "cpu",
    engine: Callable[..., Engine] = Engine,
    note: str = "",
    repeats: int = 1,
    warmup: int = 0,
) -> Trace:
    """Run a preset from an empty pool: of several rounds, the run nearest to their median.

    engine: made from model, tokenizer and limits; with a mistake it has a note, which the trace
    gets. Raises InflightError for a run with a step far from its kind among all rounds, if there
    are several.
    """
    contender = engine_contender(
        engine(*models.get(preset.model, device, preset.dtype), preset.config), preset.workload
    )
    taken = [turn_of(contender, turn.round) for turn in planned([contender], repeats, warmup)]
    turns = [turn for turn in taken if turn.round]
    nearest = nearest_to_median([turn.seconds for turn in turns])
    traces = [turn.run.trace for turn in turns if turn.run.trace is not None]
    trace = traces.pop(nearest)
    if repeats > 1:
        _refuse_far_step(preset.name, trace, traces)
    trace.header = replace(
        trace.header, source="recorded", notes=(note,) if note else trace.header.notes
    )
    return trace


def compared(name: str) -> Trace:
    """The round of a preset's own policy that its comparison shows."""
    _, trace = trace_in(RECORDED / name, PRESETS[name].config.policy.name)
    return trace


def _refuse_far_step(name: str, trace: Trace, rounds: Sequence[Trace] = ()) -> None:
    """Raises InflightError for a run with a step far from its kind. rounds: other rounds of it."""
    for step, times in far_steps(trace.events, [other.events for other in rounds])[:1]:
        raise InflightError(
            f"Step {step} of {name} took {times:.1f} times as long as others of its kind: record it"
            " again."
        )


def record(
    folder: Path = TRACES, device: str = "cpu", names: tuple[str, ...] = (), repeats: int = 5
) -> Iterator[tuple[str, Path]]:
    """Record all presets, leaks and mistakes, or only those named, yielding each as it is written.
    A preset that is compared is not run again (`SHOWN_BY_BOTH`).

    Raises InflightError for an unknown name, and at the end for the runs that were refused
    (`run_preset`), of which nothing is written.
    """
    models = ModelCache()
    timed_run = partial(run_preset, models=models, repeats=repeats, warmup=1)
    runs: dict[str, Callable[[], Trace]] = {
        name: partial(timed_run, preset, device=device) for name, preset in PRESETS.items()
    }
    runs |= {name: partial(compared, name) for name in SHOWN_BY_BOTH}
    runs |= {
        leak: partial(timed_run, PRESETS[name], engine=leaky_engine) for name, leak in LEAKS.items()
    }
    runs |= {
        name: partial(timed_run, m.preset, engine=m.engine, note=m.note)
        for name, m in MISTAKES.items()
    }
    if unknown := [name for name in names if name not in runs]:
        raise InflightError(
            f"There is no run {unknown[0]!r} to record; there are {', '.join(runs)}."
        )
    refused: list[InflightError] = []
    if not names and folder == TRACES:
        hand.write()  # it is decided on the settings of recorded runs, which hold no times
        yield hand.HAND.stem, hand.HAND
    for name, run in runs.items():
        if not names or name in names:
            path = folder / f"{name}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                run().save(path)
            except InflightError as error:
                refused.append(error)
                continue
            yield name, path
    if refused:
        raise InflightError(" ".join(map(str, refused)))


# -- comparisons -----------------------------------------------------------------------------------


class PolicyVariant(NamedTuple):
    """A policy under the preset's limits, or under others, by which `name` tells it apart."""

    policy: str
    name: str | None = None
    limits: Mapping[str, Any] = {}


class ShippedComparison(NamedTuple):
    """The contenders on a preset; sentences are about the first two. outside: baselines other than
    our engine. load: whether each policy is also measured at increasing rates.
    """

    policies: tuple[str | PolicyVariant, ...]
    outside: tuple[str, ...] = ()
    load: bool = False

    @property
    def variants(self) -> list[PolicyVariant]:
        return [
            PolicyVariant(policy) if isinstance(policy, str) else policy for policy in self.policies
        ]


_BUDGET_256 = PolicyVariant("continuous", "continuous, budget 256", {"max_num_batched_tokens": 256})
RECORDINGS = {  # by preset
    "six-questions": ShippedComparison(
        ("static", "continuous", "sequential", "dynamic", "split"),
        ("generate-waves", "generate-serial", "transformers-continuous"),
    ),
    "gpt2-six": ShippedComparison(
        ("static", "continuous", "sequential", "dynamic", "split"),
        ("generate-waves", "generate-serial", "transformers-continuous"),
    ),
    "where-padding-costs": ShippedComparison(("dynamic", "continuous", "split", "static")),
    "equal-lengths": ShippedComparison(("static", "continuous", _BUDGET_256, "dynamic")),
    "scheduler-zoo": ShippedComparison(
        ("stall", "continuous", "no-evict", "mini-sglang", "nano-vllm", "transformers")
    ),
    "poisson-32": ShippedComparison(("static", "continuous", "dynamic", "split"), load=True),
}


def _workload(name: str) -> Workload:
    """What is asked in a comparison: beside baselines, which decode greedily, all do."""
    asked = PRESETS[name].workload
    return asked.greedy() if RECORDINGS[name].outside else asked


SHOWN_BY_BOTH = [name for name in RECORDINGS if _workload(name) == PRESETS[name].workload]
"""Presets of which Watch shows the round that Compare shows, so that both tell of the same seconds,
as do the opening and the story."""

LOAD = Sweep(seconds=10.0)
"""Poisson arrivals, seeded; at most ten seconds per point, six rates per policy."""


def record_comparisons(
    names: Sequence[str] = (),
    folder: Path = RECORDED,
    *,
    repeats: int = 5,
    device: str = "cpu",
    threads: int | None = None,
    load: Callable[[], float | None] = load_average,
    say: Say = lambda text: None,
) -> Iterator[tuple[str, Path]]:
    """Measure and write all of `RECORDINGS`, or only those named, yielding each as it is written.

    Raises InflightError, before anything is measured, for an unknown name and for a machine that is
    not quiet.
    """
    if unknown := [name for name in names if name not in RECORDINGS]:
        raise InflightError(
            f"There is no comparison {unknown[0]!r} to record; there are {', '.join(RECORDINGS)}."
        )
    before = load_of_a_quiet_machine(load)
    if threads is not None:
        torch.set_num_threads(threads)
    made = ((name, _compare_policies(name, repeats, device, say)) for name in names or RECORDINGS)
    return save_all(made, folder, before)


def load_of_a_quiet_machine(load: Callable[[], float | None]) -> float | None:
    """The load average; raises InflightError if other work would disturb the measurement."""
    found, cpus = load(), os.cpu_count()
    if too_busy(found, cpus):
        raise InflightError(
            f"This machine is busy: a load of {found:g} on {cpus} CPUs, and published times allow"
            f" at most {QUIET:g} per CPU."
        )
    return found


def save_all(
    made: Iterator[tuple[str, Shown]], folder: Path, load_before: float | None
) -> Iterator[tuple[str, Path]]:
    """Write each comparison as it is made, with the load measured before the first."""
    for name, shown in made:
        # later comparisons would see the load of earlier ones
        shown.environment["load_average"] = load_before
        yield name, save(shown, folder / shown.workload)


def _compare_policies(name: str, repeats: int, device: str, say: Say) -> Shown:
    """Every contender, the cost curve, the equivalence of each request with and without the leak,
    and the load if requested.
    """
    recording, asked, workload = RECORDINGS[name], preset(name), _workload(name)
    adapter, tokenizer = ModelCache().get(asked.model, device)
    engines = [
        Engine(adapter, tokenizer, asked.config.under(v.policy, **v.limits))
        for v in recording.variants
    ]
    contenders = [
        engine_contender(engine, workload, name=variant.name)
        for engine, variant in zip(engines, recording.variants, strict=True)
    ]
    if recording.outside:
        limits = (asked.config.max_num_seqs, asked.config.max_num_batched_tokens)
        work = baselines.baseline_requests(workload, tokenizer, adapter.eos_token_ids)
        contenders += [
            baselines.contender(other, adapter.model, work, *limits) for other in recording.outside
        ]
    shown = timed(contenders, name, asked, engines[0].trace.header, repeats, say)
    say("cost curve")
    shown.cost = ended(measuring_cost(engines[0].executor))
    for switch in ("honest", "leak"):
        say(f"equivalence, {switch}")
        shown.equivalence[switch] = equivalence(
            adapter, tokenizer, workload, asked.config, leak=switch == "leak"
        )
    if recording.load:
        by_policy = {engine.config.policy.name: engine for engine in engines}
        shown.load = sweep_load(
            by_policy, LOAD, lambda policy, rate: say(f"load: {policy}, {rate:.3g} requests/s")
        )
    return shown


def timed(
    contenders: Sequence[Contender],
    name: str,
    chosen: Preset,
    header: Header,
    repeats: int,
    say: Say,
    group: str = "",
) -> Shown:
    """Time contenders in rotated order; their runs are marked as recorded. Raises InflightError if
    a run of our engine has a step far from its kind.
    """
    where = environment(header)
    result = compare(
        contenders, repeats, on_run=lambda p: say(f"{p.index + 1} of {p.total}: {p.contender}")
    )
    for contender, run in result.runs.items():
        if run.trace is not None:
            if not run.trace.header.engine:
                _refuse_far_step(f"{contender} on {name}", run.trace)
            run.trace.header = replace(run.trace.header, source="recorded")
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Shown(result, name, where, "recorded", chosen.title, chosen.shows, created, group=group)


# -- the script ------------------------------------------------------------------------------------


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Presets, or comparisons; all by default.")
    ] = None,
    comparisons: Annotated[
        bool,
        typer.Option("--comparisons", help="Measure the comparisons. Needs a quiet machine."),
    ] = False,
    repeats: Repeats = 5,
    threads: Threads = None,
    device: Annotated[str, typer.Option(help="Device to run them on.")] = "cpu",
    json: Annotated[
        bool, typer.Option("--json", help="Print name, path and bytes of each as JSON.")
    ] = False,
) -> None:
    """Run presets and write their traces to assets/traces, together with the runs that contain a
    deliberate mistake; or measure the comparisons, into assets/comparisons. Ctrl-C keeps what is
    saved.
    """
    if comparisons:
        made = record_comparisons(
            names or (), repeats=repeats, threads=threads, device=device, say=print_note
        )
    else:
        refuse_idle("without --comparisons", "threads")
        made = record(device=device, names=tuple(names or ()), repeats=repeats)
    found: list[dict[str, Any]] = []
    complete = True
    try:
        for name, path in made:
            files = [path] if path.is_file() else path.iterdir()
            size = sum(file.stat().st_size for file in files)
            found.append({"name": name, "path": str(path), "bytes": size})
            if not json:
                print_line(f"{name}: {size:,} bytes")
    except KeyboardInterrupt:
        complete = False
    if json:
        print_json({"complete": complete, "recorded": found})
    if not complete:
        print_note("Interrupted: what is listed is saved.")
        raise typer.Exit(INTERRUPTED)


if __name__ == "__main__":
    script(main)
