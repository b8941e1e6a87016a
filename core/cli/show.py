"""`show`: a recorded run, or one of its steps with the packed row and the mask."""

from typing import Annotated

import typer

from core.cli.given import refuse_idle
from core.cli.long import is_long, print_file
from core.cli.options import SLO, Html, Json, TraceFile, parse_slos, require_page
from core.cli.output import ProgressReporter, finish, out, print_line, saved
from core.cli.report import headline, print_delays, print_steps, print_summary, summary
from core.cli.terminal import mask_lines, step_json
from core.errors import InflightError, shown
from core.files import require_file, require_writable
from core.trace.mask import Order
from core.trace.messages import english
from core.trace.trace import Trace


def show(
    trace: TraceFile,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", "-s", min=0, help="Draw this step; without it the run is summarized."
        ),
    ] = None,
    pass_index: Annotated[
        int, typer.Option("--pass", min=0, help="Which forward pass of the step.")
    ] = 0,
    order: Annotated[
        Order,
        typer.Option(
            help=(
                "Order of the keys: by request (cached, then new), or all cached keys before all"
                " new ones."
            )
        ),
    ] = "request",
    layer: Annotated[
        int | None,
        typer.Option(
            min=0, help="Mask of this layer, where windows differ.", show_default="the widest"
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Draw the mask in full, however large.")
    ] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Print every step, one line each.")
    ] = False,
    delays: Annotated[
        bool, typer.Option("--delays", help="Print where each request's time went, one line each.")
    ] = False,
    html: Html = None,
    slo: SLO = None,
    json: Json = False,
) -> None:
    """Print a summary of a recorded run, or the packed row and the mask of one of its steps."""
    if step is None:
        refuse_idle("without --step", "pass_index", "order", "layer", "full")
    else:
        refuse_idle("with --step", "steps", "delays", "slo")
    if json:
        refuse_idle("with --json", "steps", "full")
    require_page(html)
    require_writable(html, read=[trace])
    slos = parse_slos(slo)
    if is_long(require_file(trace)) and not (json or html or steps or delays or step is not None):
        print_file(trace, slos)
        return
    with ProgressReporter(f"Reading {trace.name}"):
        found = Trace.load(trace)
    layers = found.header.model.layers
    if step is not None and layer is not None and layers is not None and layer >= layers:
        raise InflightError(
            english(f"The model has {layers} [layer|layers], so there is no layer {shown(layer)}.")
        )

    def print_it(_: object) -> None:
        if step is None:
            if steps:
                print_steps(found)
            if delays:
                print_delays(found)
            print_summary(found, slos)
            return
        drawn = mask_lines(
            found, step, pass_index, order, layer, width=None if full else out().width
        )
        for text in (headline(found), *drawn):
            print_line(text)

    if not json:
        data = None  # a mask of any size is drawn; as JSON it is whole
    elif step is None:
        data = {"schema": "run/1", **summary(found, slos)}
    else:
        data = {"schema": "step/1", **step_json(found, step, pass_index, order, layer)}
    finish(data, print_it, json, refused=saved(found.show(step).save, html))
