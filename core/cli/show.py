"""`show`: a recorded run, or one step of it with its packed row and its mask."""

from __future__ import annotations

from typing import Annotated

import typer

from core.cli.options import SLO, Json, Order, TraceFile, parse_slos
from core.cli.output import line, out, print_json
from core.cli.report import headline, print_steps, print_summary, summary
from core.cli.terminal import mask_lines, step_json
from core.errors import InflightError
from core.trace.trace import Trace


def show(
    trace: TraceFile,
    step: Annotated[
        int | None, typer.Option("--step", "-s", min=0, help="Draw this step; without it the whole run is summed up.")
    ] = None,
    pass_index: Annotated[int, typer.Option("--pass", min=0, help="Which forward pass of the step.")] = 0,
    order: Annotated[
        Order, typer.Option(help="Keys by request (cached, then new), or all cached keys before all new ones.")
    ] = "request",
    layer: Annotated[
        int | None, typer.Option(min=0, help="A layer's own mask, where windows differ.", show_default="the widest")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Fold nothing, however large the mask.")] = False,
    steps: Annotated[bool, typer.Option("--steps", help="Print every step in a line.")] = False,
    slo: SLO = None,
    json: Json = False,
) -> None:
    """Print a recorded run, or the packed row and the mask of one of its steps."""
    if not trace.is_file():
        raise InflightError(f"There is no file {trace}.")
    found, slos = Trace.load(trace), parse_slos(slo)
    if step is not None:
        layers = found.header.model.layers
        if layer is not None and layers is not None and layer >= layers:
            raise InflightError(f"The model has {layers} layers, so there is no layer {layer}.")
        if json:
            print_json(step_json(found, step, pass_index, order, layer))
            return
        drawn = mask_lines(found, step, pass_index, order, layer, width=None if full else out().width)
        line(headline(found))
        for text in drawn:
            line(text)
    elif json:
        print_json(summary(found, slos))
    else:
        if steps:
            print_steps(found)
        print_summary(found, slos)
