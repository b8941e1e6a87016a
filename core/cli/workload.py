"""`workload`: a recorded trace of a real service as a workload file, scaled to a model."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.given import refuse_idle
from core.cli.options import Json, cost_for
from core.cli.output import ProgressReporter, finish, print_line, print_note
from core.config import DEFAULT_MODEL
from core.errors import InvalidWorkload
from core.files import require_writable
from core.simulate.cost import Deployment
from core.torch_engine.models.tokenizer import MOST_CONTEXT, describe_model
from core.workload.datasets import Dataset, read_dataset
from core.workload.workload import save_requests


def workload(
    file: Annotated[
        Path,
        typer.Argument(
            help="Mooncake JSONL, Azure LLM or BurstGPT CSV, ShareGPT JSON, or lengths of our own."
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Save the workload here, - for standard output; `run --workload` takes it.",
        ),
    ],
    model: Annotated[
        str,
        typer.Option(
            "--model", "-m", help="Model whose vocabulary and context the requests must fit."
        ),
    ] = DEFAULT_MODEL,
    simulate: Annotated[
        str | None,
        typer.Option(
            help=(
                "For `run --simulate` with this cost model: its model's vocabulary and context"
                " instead."
            ),
            show_default=False,
        ),
    ] = None,
    requests: Annotated[
        int, typer.Option(min=1, help="Number of requests, from the start of the file.")
    ] = 50,
    speed: Annotated[
        float, typer.Option(min=0.0, help="Factor by which arrivals are sped up.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed for the made-up tokens.")] = 0,
    json: Json = False,
) -> None:
    """Turn a trace that a real service published into requests for this model: lengths are scaled
    to its context, and the scale is shown.
    """
    is_piped = out == Path("-")
    if is_piped:
        refuse_idle("where the workload itself is printed", "json")
        out = Path("/dev/stdout")
    require_writable(out, read=[file])
    if speed <= 0:
        raise InvalidWorkload(f"The speed must be above 0, not {speed:g}.")
    with ProgressReporter(f"Reading {file.name}"):
        described = describe_model(model)
        known = cost_for(simulate).deployment if simulate is not None else Deployment()
        context = known.context or described.context or MOST_CONTEXT
        vocab_size = known.vocab_size or described.vocab_size
        dataset = read_dataset(file, described.count, requests).scaled(context)
        if not dataset.span:
            refuse_idle(f"with {file.name}, whose requests arrive all at once", "speed")
        if is_piped:  # before what follows fills the pipe
            _print(dataset, speed, "Standard output", print_note)
        save_requests(out, dataset.requests(vocab_size, speed, seed), dataset.name)

    def print_it(_: object) -> None:
        if not is_piped:
            _print(dataset, speed, out.name, print_line)

    finish({"schema": "workload/1", **_about(dataset, speed)}, print_it, json)


def _print(dataset: Dataset, speed: float, to: str, tell: Callable[[str], None]) -> None:
    for number, words in enumerate(dataset.sentences(speed)):
        tell(words if number else f"{to}: {words}")
    if dataset.hash_ids:
        tell(f"Run it with --prefix-caching --block-size {dataset.block_tokens}.")


def _about(dataset: Dataset, speed: float) -> dict[str, Any]:
    prompts = [size.prompt_tokens for size in dataset.sizes]
    outputs = [size.output_tokens for size in dataset.sizes]
    about: dict[str, Any] = {
        "requests": len(dataset.sizes),
        "arrives_within_s": dataset.span / speed,
        "prompt_tokens": [min(prompts), max(prompts)],
        "output_tokens": [min(outputs), max(outputs)],
        "scale": dataset.scale,
        "skipped": dataset.skipped,
    }
    if dataset.hash_ids:
        about |= {"block_size": dataset.block_tokens, "hit_ratio": dataset.hit_ratio()}
    return about
