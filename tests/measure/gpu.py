"""The CUDA path against transformers and against its memory bandwidth; docs/gpu.md has its parts.

python tests/measure/gpu.py --out gpu.json
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import typer
from transformers.utils import logging as transformers_logging

from core.cli.options import Json, Out
from core.cli.output import INTERRUPTED, finish, print_line, print_note
from core.errors import InflightError
from core.files import require_writable
from measure import Quick, script
from measure.bench import gpu as gpu_benchmark
from measure.bench.printed import print_report


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
    """Measure the CUDA path against transformers and against its memory bandwidth; --out is written
    after every part.
    """
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


if __name__ == "__main__":
    script(gpu)
