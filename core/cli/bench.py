"""`bench speed`: runs and steps beside other ways to do the same."""

from __future__ import annotations

import platform
from typing import Annotated, Any

import torch
import typer

from core.bench.report import Options, Report
from core.bench.speed import BENCHMARKS
from core.cli.bench_report import print_benchmarks
from core.cli.options import Json, Out, Quick, Threads, writable
from core.cli.output import Work, finish
from core.errors import InflightError
from core.measure.environment import machine
from core.models import load as models


def speed(
    names: Annotated[list[str] | None, typer.Argument(help=f"Which of {', '.join(BENCHMARKS)}.", show_default="all")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Timed rounds, after one to warm up.")] = 5,
    quick: Quick = False,
    out: Out = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Measure speed beside other ways to serve the same requests."""
    writable(out)
    finish(_benchmarks(names, Options(repeats, quick), threads), print_benchmarks, out, json)


def _benchmarks(names: list[str] | None, options: Options, threads: int | None) -> dict[str, Any]:
    chosen = names or list(BENCHMARKS)
    unknown = [name for name in chosen if name not in BENCHMARKS]
    if unknown:
        raise InflightError(f"There is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}.")
    if threads is not None:
        torch.set_num_threads(threads)
    versions = {"python": platform.python_version(), **models.versions()}
    any_model = {"name": "as each benchmark says", "parameters": None}
    world = machine("cpu", platform.machine(), torch.get_num_threads(), "float32", any_model, versions)
    reports: list[Report] = []
    with Work("benchmarks", len(chosen)) as work:
        for index, name in enumerate(chosen):

            def on_run(what: str, index: int = index, name: str = name) -> None:
                work.update(index, f"{name}: {what}")

            reports.append(BENCHMARKS[name](Options(options.repeats, options.quick, on_run)))
    return {
        "environment": world,
        "repeats": options.repeats,
        "quick": options.quick,
        "benchmarks": [r.to_json() for r in reports],
    }
