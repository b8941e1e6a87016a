"""`run`: runs a workload and prints what happened."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import (
    SLO,
    DeviceOptions,
    Json,
    Model,
    PresetName,
    WorkloadFile,
    engine_for,
    parse_slos,
    plan,
    require_writable,
    with_options,
)
from core.cli.output import ProgressReporter, finish, print_note
from core.cli.report import print_steps, print_summary, summary
from core.config import EngineConfig, Execution
from core.models.tensor_parallel import is_first
from core.models.tokenizer import describe_model
from core.runner.engine import Engine
from core.simulate.cost import cost_named
from core.simulate.engine import SimulatedEngine
from core.workload.workload import Workload

INTERRUPTED = 130


@with_options
def run(
    preset: PresetName = None,
    workload: WorkloadFile = None,
    model: Model = None,
    policy: Annotated[str | None, typer.Option(help="The batching policy.", show_default="the preset's")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the trace here.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Print every step as well.")] = False,
    slo: SLO = None,
    simulate: Annotated[
        str | None,
        typer.Option(
            help="Simulate without a forward pass: a trace to fit a cost model to, or ACCELERATOR:SIZE such as h100:8b.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    *,
    limits: dict[str, Any],
    device_options: DeviceOptions,
    execution: dict[str, Any],
) -> None:
    """Run a preset or a workload file and print what happened.

    Options override the preset. Ctrl-C ends the run and keeps the trace so far.
    """
    if not is_first():
        out = None
    slos, asked = parse_slos(slo), plan(preset, workload, model, limits, device_options)
    config = asked.config(policy)
    require_writable(out)
    engine = (
        _simulated(simulate, config, asked.model)
        if simulate
        else engine_for(asked.model, config, asked.device_options, Execution(**execution))
    )
    done = _run_to_end(engine, asked.workload)
    trace = engine.trace
    if out is not None:
        trace.save(out)

    def print_run(_: object) -> None:
        if steps:
            print_steps(trace)
        print_summary(trace, slos)
        if isinstance(engine, SimulatedEngine) and engine.beyond:
            print_note(engine.beyond)

    finish(summary(trace, slos), print_run, json)
    if out is not None:
        print_note(f"Saved {out.name}: {len(trace.events)} steps, {out.stat().st_size / 1024:,.0f} KB.")
    if not done:
        print_note(f"Interrupted after {len(trace.events)} steps" + ("; the trace so far is saved." if out else "."))
        raise typer.Exit(INTERRUPTED)


def _simulated(spec: str, config: EngineConfig, model: str) -> SimulatedEngine:
    """For requests meant for `model`, whose tokenizer and context it uses; its weights are not loaded."""
    described = describe_model(model)
    return SimulatedEngine(
        cost_named(spec), config, described.tokenizer, vocab_size=described.vocab_size, max_model_len=described.context
    )


def _run_to_end(engine: Engine | SimulatedEngine, workload: Workload) -> bool:
    """False if Ctrl-C came first."""
    total = sum(request.sampling.max_new_tokens for request in workload)
    tokens = 0
    events = engine.stream(workload)
    try:
        with ProgressReporter("tokens", total) as work:
            for event in events:
                tokens += len(event.sampled)
                running = len({segment.request for segment in event.segments})
                work.update(tokens, f"step {event.step}, {running} running, {event.waiting.count} waiting")
    except KeyboardInterrupt:
        return False
    return True
