"""`bench speed` and `bench gpu`, and how their reports read in a terminal: contenders, ratios and limits, each bar met or missed."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Annotated, Any

import torch
import typer
from transformers.utils import logging as transformers_logging

from core.bench import gpu as gpu_benchmark
from core.bench.floor import FLOOR
from core.bench.report import Options
from core.bench.speed import BENCHMARKS, WITH_VLLM
from core.bench.vllm import PYTHON, vllm_python
from core.cli.options import Json, Out, Quick, Repeats, Threads
from core.cli.output import (
    INTERRUPTED,
    ProgressReporter,
    finish,
    print_line,
    print_note,
    seconds,
    table,
)
from core.cli.report import measured_on
from core.errors import InflightError
from core.files import require_writable
from core.measure.compare import machine
from core.models import load as models


def speed(
    names: Annotated[
        list[str] | None,
        typer.Argument(help=f"Any of {', '.join(BENCHMARKS)}.", show_default="all"),
    ] = None,
    repeats: Repeats = 5,
    quick: Quick = False,
    out: Out = None,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compare our speed with other ways to serve the same requests: generate, transformers' continuous batching, the article's, vLLM."""
    require_writable(out)
    chosen = names or [name for name in BENCHMARKS if vllm_python() or name not in WITH_VLLM]
    if unknown := [name for name in chosen if name not in BENCHMARKS]:
        raise InflightError(
            f"There is no benchmark {unknown[0]!r}; there are {', '.join(BENCHMARKS)}."
        )
    if threads is not None:
        torch.set_num_threads(threads)
    if not names and not vllm_python():
        print_note(
            f"Left out: {', '.join(WITH_VLLM)}. Name the Python of an environment with vLLM by {PYTHON} to run them."
        )
    versions = {"python": platform.python_version(), **models.versions()}
    short = any(name.endswith(("bf16", "fp16")) for name in chosen)
    number_format = "the 16 bits that are named, else float32" if short else "float32"
    any_model = {"name": "models as named above", "parameters": None}
    where = machine(
        "cpu", platform.machine(), torch.get_num_threads(), number_format, any_model, versions
    )
    reports: list[dict[str, Any]] = []
    with ProgressReporter("benchmarks", len(chosen)) as work:
        try:
            for index, name in enumerate(chosen):

                def on_run(what: str, index: int = index, name: str = name) -> None:
                    work.update(index, f"{name}: {what}")

                reports.append(BENCHMARKS[name](Options(repeats, quick, on_run)).to_json())
        except KeyboardInterrupt:
            if not reports:
                raise
    done = len(reports) == len(chosen)
    data = {
        "schema": "bench-speed/1",
        "complete": done,
        "environment": where,
        "repeats": repeats,
        "quick": quick,
        "benchmarks": reports,
    }
    finish(data, _print_speed, json, out)
    if not done:
        print_note(f"Interrupted in {chosen[len(reports)]}: these are the benchmarks before it.")
        raise typer.Exit(INTERRUPTED)


def _print_speed(data: Mapping[str, Any]) -> None:
    for report in data["benchmarks"]:
        print_report(report)
        print_line()
    print_line(
        f"Medians of {data['repeats']} rounds; the median of the rounds' ratios is not the ratio of the two medians."
    )
    print_line(measured_on(data["environment"]))


def gpu(
    parts: Annotated[
        str | None, typer.Option(help="Parts to run, separated by commas.", show_default="all")
    ] = None,
    quick: Quick = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the finished parts that --out already holds.")
    ] = False,
    minutes: Annotated[
        float, typer.Option(min=0, help="Time budget: a part that would end later is not started.")
    ] = 8.0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure the CUDA path against transformers and against its memory bandwidth; --out is written after every part."""
    require_writable(out)
    if resume and out is None:
        raise InflightError("--resume needs a file to continue: give --out too.")
    if not torch.cuda.is_available():
        raise InflightError("The GPU benchmark needs a CUDA device, and torch finds none here.")
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    names = [name.strip() for name in parts.split(",")] if parts else None
    device = gpu_benchmark.Device(torch.device("cuda", torch.cuda.current_device()))
    scale = gpu_benchmark.TINY if quick else gpu_benchmark.FULL
    data = gpu_benchmark.run(
        scale, device, names=names, out=out, resume=resume, minutes=minutes, note=print_note
    )
    finish(data, print_gpu, json)
    if not data["complete"]:
        print_note("Interrupted: these are the parts before it.")
        raise typer.Exit(INTERRUPTED)


def print_gpu(data: Mapping[str, Any]) -> None:
    """What each part noted, then every bar met or missed."""
    if data["quick"]:
        print_line("Tiny shapes: this proves that everything runs; no number means anything.")
    for part in data["parts"].values():
        print_line(gpu_benchmark.headline(part))
        for note in part["notes"]:
            print_line(f"  {note}")
    print_line()
    print_report(data["report"])
    print_line()
    key = data["key"]
    versions = ", ".join(
        f"{name} {version}" for name, version in key["versions"].items() if version is not None
    )
    print_line(f"{key['name']} ({key['device']}), bfloat16, random weights; {versions}.")


def print_report(report: Mapping[str, Any]) -> None:
    """A `core.bench.report.Report` as JSON."""
    print_line(report["title"])
    if report["seconds"]:
        rows = [
            (
                f"  {name}",
                seconds(t["median"]),
                f"{seconds(t['min'])} to {seconds(t['max'])}",
                *map(seconds, (t.get("setup_s"), t.get("teardown_s"))),
            )
            for name, t in report["seconds"].items()
        ]
        columns = ("  contender", "median", "min to max", "setup", "teardown")
        table(columns, rows, right=columns[1:])
    for ratio in report["ratios"]:
        spread = f" ({ratio['min']:.2f} to {ratio['max']:.2f})" if len(ratio["runs"]) > 1 else ""
        of_floor = ratio["than"] == FLOOR
        sign, found = ("", "share of the floor") if of_floor else ("×", f"against {ratio['than']}")
        print_line(
            f"  {ratio['faster']} {found}: {ratio['median']:.2f}{sign}{spread}"
            + _verdict(ratio["met"], f"at least {ratio['at_least']}{sign}")
        )
        if of_floor:
            parts = report["about"][FLOOR]
            print_line(
                f"  {FLOOR}: matrix products {seconds(parts['products_s'])}, reading the KV cache {seconds(parts['cache_s'])} "
                f"({parts['cache_bytes'] / 1e9:.2f} GB at {parts['bytes_per_s'] / 1e9:.1f} GB/s)"
            )
    for limit in report["limits"]:
        bars = [
            f"{word} {limit[key]:g}"
            for word, key in (("at least", "at_least"), ("at most", "at_most"))
            if limit[key] is not None
        ]
        print_line(
            f"  {limit['what']}: {limit['value']:g} {limit['unit']}"
            + _verdict(limit["met"], " and ".join(bars))
        )
    if report["outputs_identical"] is not None:
        same = "".join(
            f"; {name} wrote {same} of {whole} as the first"
            for name, (same, whole) in report["outputs_same"].items()
        )
        print_line(
            f"  outputs: {'identical, token for token' if report['outputs_identical'] else 'THEY DIFFER'}{same}"
        )
    if report["load_average"]:
        print_line(
            f"  load average {report['load_average'][0]} before, {report['load_average'][1]} after"
        )


def _verdict(met: bool | None, bar: str) -> str:
    return "" if met is None else f"; the bar is {bar}: {'met' if met else 'MISSED'}"
