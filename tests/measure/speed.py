"""Our speed beside other ways to serve the same requests: generate, transformers' continuous
batching, the article's, vLLM.

    python tests/measure/speed.py --repeats 5
    python tests/measure/speed.py decode-step --json
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import typer

from core.cli.options import Json, Out, Threads
from core.cli.output import INTERRUPTED, ProgressReporter, finish, print_line, print_note
from core.cli.report import measured_on
from core.errors import InflightError
from core.files import require_writable
from core.measure.compare import machine
from core.torch_engine.models import load as models
from measure import Quick, Repeats, script
from measure.bench.printed import print_report
from measure.bench.report import Options
from measure.bench.speed import BENCHMARKS, WITH_VLLM
from measure.bench.vllm import PYTHON, vllm_python


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
    """Compare our speed with other ways to serve the same requests: generate, transformers'
    continuous batching, the article's, vLLM.
    """
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
            f"Left out: {', '.join(WITH_VLLM)}. Name the Python of an environment with vLLM by"
            f" {PYTHON} to run them."
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
    finish(data, print_speed, json, out)
    if not done:
        print_note(f"Interrupted in {chosen[len(reports)]}: these are the benchmarks before it.")
        raise typer.Exit(INTERRUPTED)


def print_speed(data: Mapping[str, Any]) -> None:
    for report in data["benchmarks"]:
        print_report(report)
        print_line()
    print_line(
        f"Medians of {data['repeats']} rounds; the median of the rounds' ratios is not the ratio of"
        " the two medians."
    )
    print_line(measured_on(data["environment"]))


if __name__ == "__main__":
    script(speed)
