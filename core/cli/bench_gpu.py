"""`bench gpu`: the CUDA path against transformers and against its memory."""

from __future__ import annotations

from typing import Annotated, Any

import torch
import typer
from transformers.utils import logging as transformers_logging

from core.bench import gpu as gpu_benchmark
from core.cli.bench_gpu_report import print_gpu
from core.cli.options import Json, Out, Quick, writable
from core.cli.output import finish, sentence
from core.errors import InflightError


def gpu(
    parts: Annotated[str | None, typer.Option(help="Which parts, separated by commas.", show_default="all")] = None,
    quick: Quick = False,
    resume: Annotated[bool, typer.Option("--resume", help="Keep the parts that --out holds already.")] = False,
    minutes: Annotated[float, typer.Option(min=0, help="Parts that would end later are not begun.")] = 8.0,
    out: Out = None,
    json: Json = False,
) -> None:
    """Measure the CUDA path against transformers and against the memory it reads; --out is written after every part."""
    writable(out)
    if resume and out is None:
        raise InflightError("--resume needs the file to go on from: give --out too.")
    if not torch.cuda.is_available():
        raise InflightError("The GPU benchmark needs a CUDA device, and torch finds none here.")
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    names = [name.strip() for name in parts.split(",")] if parts else None
    device = gpu_benchmark.Device(torch.device("cuda", torch.cuda.current_device()))
    scale = gpu_benchmark.TINY if quick else gpu_benchmark.FULL
    data: dict[str, Any] = gpu_benchmark.run(scale, device, names=names, out=out, resume=resume, minutes=minutes, note=sentence)
    finish(data, print_gpu, None, json)
