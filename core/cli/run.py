"""`run`: runs a workload and prints what happened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.given import refuse_idle
from core.cli.long import MOST_REQUESTS, print_long
from core.cli.options import (
    LOADED,
    POLICY,
    SLO,
    Chat,
    DeviceOptions,
    Html,
    Json,
    Model,
    PresetName,
    Simulate,
    WorkloadFile,
    asked_for,
    engine_for,
    parse_slos,
    refuse_idle_limits,
    require_page,
    simulated_engine,
    with_options,
)
from core.cli.output import INTERRUPTED, ProgressReporter, finish, print_note, saved
from core.cli.report import print_steps, print_summary, summary
from core.config import Execution
from core.engine.recorder import Window
from core.engine.writing import writing
from core.files import require_writable
from core.simulate.engine import SimulatedEngine
from core.simulate.totals import RunTotals, run_stream
from core.torch_engine.models.tensor_parallel import is_first
from core.trace.messages import english
from core.workload.request import Request
from core.workload.workload import Workload

if TYPE_CHECKING:
    from core.torch_engine.engine import Engine

_WINDOW = 20_000  # tokens whose steps are kept of a run that is summed up as it goes


@with_options
def run(
    preset: PresetName = None,
    workload: WorkloadFile = None,
    model: Model = None,
    chat: Chat = False,
    policy: Annotated[str | None, typer.Option(help=POLICY, show_default="the preset's")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Save the trace here.")] = None,
    html: Html = None,
    steps: Annotated[bool, typer.Option("--steps", help="Print every step as well.")] = False,
    slo: SLO = None,
    simulate: Simulate = None,
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
        out = html = None
    if simulate:
        refuse_idle("with --simulate, which loads no model", *LOADED)
    if json:
        refuse_idle("with --json, which has no steps", "steps")
    require_page(html)
    require_writable(
        out, html, read=[*([workload] if workload else []), *([Path(simulate)] if simulate else [])]
    )
    slos = parse_slos(slo)
    asked = asked_for(preset, workload, model, limits, device_options, chat, streams=True)
    if asked.stream is not None:
        refuse_idle("for a stream of requests, of which totals alone are kept", "steps", "html")
    config = asked.config(policy)
    refuse_idle_limits(config)
    engine = (
        simulated_engine(simulate, config, asked)
        if simulate
        else engine_for(asked.model, config, asked.device_options, Execution(**execution))
    )
    is_long = len(asked.workload) > MOST_REQUESTS and not (steps or json or html)
    long = RunTotals(slos) if is_long or asked.stream is not None else None
    if long is not None:
        engine.recorder = Window(_WINDOW)
    with writing(engine, out) if out is not None else nullcontext():
        done = (
            _run_to_end(engine, asked.workload, long)
            if asked.stream is None or long is None
            else _run_stream(engine, asked.stream, long)
        )
    trace = engine.trace
    beyond = engine.beyond if isinstance(engine, SimulatedEngine) else None
    refused = saved(trace.save_html, html)

    def print_run(_: object) -> None:
        if steps:
            print_steps(trace)
        if long is not None:
            print_long(trace.header, long, done)
        else:
            print_summary(trace, slos)
        if beyond:
            print_note(beyond)

    data: dict[str, Any] | None = None
    if json and long is not None:
        about = {"header": trace.header.to_json(), "complete": done, "beyond": beyond}
        data = {"schema": "run-stream/1", **about, "totals": long.to_json()}
    elif json:
        data = {"schema": "run/1", **summary(trace, slos)}
    finish(data, print_run, json, refused=refused)
    num_steps = len(trace.events) if long is None else long.steps
    steps_made = english(f"{num_steps:,} [step|steps]")
    if out is not None:
        print_note(f"Saved {out.name}: {steps_made}, {out.stat().st_size / 1024:,.0f} KB.")
    if not done:
        print_note(
            f"Interrupted after {steps_made}" + ("; the trace so far is saved." if out else ".")
        )
        raise typer.Exit(INTERRUPTED)


def _run_stream(
    engine: Engine | SimulatedEngine, requests: Iterator[Request], totals: RunTotals
) -> bool:
    """Like `_run_to_end`, with requests read as they come, whose number is unknown."""
    try:
        with ProgressReporter("requests", None) as work:
            run_stream(
                engine, requests, lambda so_far: work.note(f"{so_far.finished:,} done"), totals
            )
    except KeyboardInterrupt:
        return False
    return True


def _run_to_end(
    engine: Engine | SimulatedEngine, workload: Workload, totals: RunTotals | None
) -> bool:
    """Run a workload; returns whether it came to its end. totals: of a run that is not kept."""
    total = sum(request.sampling.max_new_tokens for request in workload)
    tokens = 0
    events = engine.stream(workload)
    try:
        with ProgressReporter("tokens", total) as work:
            for event in events:
                tokens += len(event.sampled)
                if totals is not None:
                    totals.add(event)
                running = len({segment.request for segment in event.segments})
                work.update(
                    tokens, f"step {event.step}, {running} running, {event.waiting.count} waiting"
                )
    except KeyboardInterrupt:
        return False
    return True
