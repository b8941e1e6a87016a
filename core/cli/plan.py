"""`plan`: what a recorded run would have been under other settings."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.options import SLO, Json, Out, check_policy, parse_slos, require_page
from core.cli.output import (
    ProgressReporter,
    finish,
    number,
    percent,
    print_line,
    print_note,
    saved,
    seconds,
    table,
)
from core.cli.report import cost_sentences
from core.errors import InflightError
from core.files import require_file, require_writable
from core.measure.plan import MOST_SETTINGS, Plan, Point
from core.measure.plan import plan as planned
from core.recorders.convert import open_run

_COLUMNS = (
    "TTFT p50",
    "p99",
    "ITL p50",
    "p99 ",
    "E2E p50",
    " p99",
    "tok/s",
    "preempted",
    "waiting",
)
_TIMES = [(name, share) for name in ("ttft_s", "itl_s", "e2e_s") for share in ("p50", "p99")]


def plan(
    recording: Annotated[
        Path,
        typer.Argument(
            help="A trace of a measured run, or a raw recording of another engine.",
            show_default=False,
        ),
    ],
    lanes: Annotated[
        list[str] | None,
        typer.Option("--lanes", help="Requests at once: 8,16,32.", show_default="as recorded"),
    ] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget", help="Token budgets of a step: 512,2048.", show_default="as recorded"
        ),
    ] = None,
    blocks: Annotated[
        list[str] | None,
        typer.Option("--blocks", help="KV blocks in the pool.", show_default="as recorded"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option("--policy", help="Policies, by name.", show_default="as recorded"),
    ] = None,
    slo: SLO = None,
    request: Annotated[
        list[str] | None,
        typer.Option("--request", help="Tell what becomes of this request; repeatable."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help=(
                "Save the picture, throughput against latency: one file, for a browser. With"
                " --traces a click on a point opens its run."
            ),
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            help="Save the simulated run of each setting in this folder, to be watched: its name"
            " is the row's number.",
            show_default=False,
        ),
    ] = None,
    out: Out = None,
    json: Json = False,
) -> None:
    """Simulate the requests of a recorded run under other settings, on the cost that is fitted to
    it: every combination of what is given.

    The setting that was recorded is simulated first, with its error beside the measured run.
    """
    require_file(recording)
    require_page(html)
    if traces is not None and not traces.is_dir():
        raise InflightError(f"There is no folder {traces}.")
    slos, policies = parse_slos(slo), _parts(policy)
    for name in policies:
        check_policy(name)
    numbers = [
        _numbers(option, given)
        for option, given in (("--lanes", lanes), ("--budget", budget), ("--blocks", blocks))
    ]
    total = math.prod(max(1, len(values)) for values in numbers) * max(1, len(policies))
    kinds = (".jsonl", *([] if html is None else [".html"]))
    names = [f"{n}{kind}" for n in range(min(total, MOST_SETTINGS) + 1) for kind in kinds]
    kept = [traces / name for name in names] if traces else []
    require_writable(out, html, *kept, read=[recording])
    with ProgressReporter(f"Reading {recording.name}"):
        trace = open_run(recording)
    unknown = [name for name in request or () if name not in trace.asked]
    if unknown:
        raise InflightError(f"{recording.name} has no request {unknown[0]!r}.")
    done = iter(range(total + 2))
    with ProgressReporter("settings", total + 1) as work:
        made = planned(
            trace,
            lanes=numbers[0],
            budgets=numbers[1],
            blocks=numbers[2],
            policies=policies,
            slos=slos,
            on_point=lambda name: work.update(next(done), name),
        )
    data = made.to_json()
    if request:
        data["requests"] = {name: _story(made, name) for name in request}
    pages = traces if html is not None else None
    refused = saved(partial(made.save_html, pages=pages), html)
    for n, point in enumerate((made.again, *made.points)):
        if traces is not None and point.numbers is not None:
            run = made.run(point)
            refused += saved(run.save, traces / f"{n}.jsonl")
            refused += saved(run.save_html, pages and pages / f"{n}.html")
    finish(data, lambda _: _print(made, request or ()), json, out, refused)


def _parts(given: Sequence[str] | None) -> list[str]:
    """Values given with commas or one by one, each once."""
    parts = [part.strip() for text in given or () for part in text.split(",")]
    return list(dict.fromkeys(parts))


def _numbers(option: str, given: Sequence[str] | None) -> list[int]:
    try:
        return [int(part) for part in _parts(given)]
    except ValueError:
        raise InflightError(f"{option} takes whole numbers, as in 8,16,32.") from None


def _print(plan: Plan, requests: Sequence[str]) -> None:
    good = ("good/s",) if plan.has_slos else ()
    rows = [
        ("", "measured", *_cells(plan.measured, plan)),
        ("0", "as recorded", *_cells(plan.again, plan)),
        ("", "  off by", *_errors(plan)),
        *(
            (str(n), plan.name_of(point.config), *_cells(point, plan))
            for n, point in enumerate(plan.points, 1)
        ),
    ]
    print_line("Simulated, but for the first row: a fitted cost stands in for the forward pass.")
    columns = ("", "setting", *_COLUMNS, *good)
    table(columns, rows, right=columns[2:])
    print_line(plan.verdict)
    for name in requests:
        print_line()
        story = [
            (row["setting"], *(seconds(row[key]) for key in ("queue_s", "ttft_s", "e2e_s")))
            for row in _story(plan, name)
        ]
        table((f"request {name}", "queued", "TTFT", "E2E"), story, right=("queued", "TTFT", "E2E"))
    for point in plan.points:
        if told := point.refused or point.beyond:
            print_note(f"{plan.name_of(point.config)}: {told}")
    for text in (*plan.notes, *cost_sentences({"error": plan.cost.error})):
        print_note(text)


def _cells(point: Point, plan: Plan) -> tuple[str, ...]:
    numbers = point.numbers
    if numbers is None:
        return ("cannot run", *("–" for _ in _COLUMNS[1:]), *("–" for _ in range(plan.has_slos)))
    times = [seconds(numbers[name][share]) for name, share in _TIMES]
    counts = (numbers["output_tok_s"], numbers["preemptions"], numbers["most_waiting"])
    good = (number(numbers["goodput"]["requests_per_s"], 2),) if plan.has_slos else ()
    return (*times, *map(number, counts), *good)


def _errors(plan: Plan) -> tuple[str, ...]:
    names = [f"{name} {share}" for name, share in _TIMES]
    return (*(_signed(plan.errors[name]) for name in (*names, "output_tok_s")), "", "")


def _signed(error: float | None) -> str:
    return "–" if error is None else f"{'+' if round(100 * error, 1) > 0 else ''}{percent(error)}"


def _story(plan: Plan, request: str) -> list[dict[str, Any]]:
    """How long a request waited, and took in all, under each setting."""
    points = [
        ("measured", plan.measured),
        ("as recorded", plan.again),
        *((plan.name_of(point.config), point) for point in plan.points),
    ]
    return [
        {"setting": name, **point.requests[request].to_json()}
        for name, point in points
        if point.numbers is not None
    ]
