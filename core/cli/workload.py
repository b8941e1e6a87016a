"""`workload`: a recorded trace of a real service as a workload file, scaled to a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core.assets import ASSETS
from core.cli.options import Json
from core.cli.output import line, percent, print_json
from core.errors import InvalidWorkload, UnsupportedModel
from core.workload.datasets import CountTokens, Dataset, read_dataset


def workload(
    file: Annotated[
        Path, typer.Argument(help="Mooncake JSONL, Azure LLM or BurstGPT CSV, ShareGPT JSON, or lengths of our own.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where the workload goes; `run --workload` takes it.")],
    model: Annotated[
        str, typer.Option("--model", "-m", help="Whose vocabulary and context the requests must fit.")
    ] = "shakespeare-bpe",
    requests: Annotated[int, typer.Option(min=1, help="The first so many.")] = 50,
    speed: Annotated[float, typer.Option(min=0.0, help="How much faster than on record they arrive.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of made-up tokens.")] = 0,
    json: Json = False,
) -> None:
    """Turn what a real service recorded into requests that this model can run: lengths are scaled to its context, and the scale is shown."""
    if speed <= 0:
        raise InvalidWorkload(f"The speed must be above 0, not {speed:g}.")
    vocab_size, context, count = _model(model)
    dataset = read_dataset(file, count, requests).scaled(context)
    dataset.workload(vocab_size, speed, seed).save(out)
    found = _about(dataset, speed)
    if json:
        print_json(found)
        return
    last = found["arrives_within_s"]
    line(
        f"{out.name}: {found['requests']} requests within {last:,.1f} s, prompts of {found['prompt_tokens']} and answers of {found['output_tokens']} tokens."
    )
    if dataset.scale < 1:
        line(
            f"Lengths are {percent(dataset.scale)} of those on record: the longest fits the model's context of {context:,} tokens."
        )
    if dataset.hash_ids:
        line(
            f"Prefixes are shared in blocks of {dataset.block_tokens} tokens: a cache without limit finds {percent(dataset.hit_ratio())} "
            f"of the prompt tokens (run with --prefix-caching --block-size {dataset.block_tokens})."
        )
    if dataset.skipped:
        line(f"{dataset.skipped:,} requests without an answer are left out.")


def _about(dataset: Dataset, speed: float) -> dict[str, Any]:
    prompts = [shape.prompt_tokens for shape in dataset.shapes]
    outputs = [shape.output_tokens for shape in dataset.shapes]
    return {
        "requests": len(dataset.shapes),
        "arrives_within_s": (dataset.shapes[-1].arrival or 0.0) / speed,
        "prompt_tokens": f"{min(prompts):,} to {max(prompts):,}",
        "output_tokens": f"{min(outputs):,} to {max(outputs):,}",
        "scale": dataset.scale,
        "skipped": dataset.skipped,
        **({"block_size": dataset.block_tokens, "hit_ratio": dataset.hit_ratio()} if dataset.hash_ids else {}),
    }


def _model(name: str) -> tuple[int, int, CountTokens]:
    """Vocabulary, context and a count of tokens; no weights are loaded."""
    from transformers import AutoConfig, AutoTokenizer  # seconds to import: `--help` must not wait for them

    folder = ASSETS / "models" / name
    source = str(folder) if folder.is_dir() else name
    try:
        config = AutoConfig.from_pretrained(source).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError, KeyError) as error:
        raise UnsupportedModel(f"The model {name!r} cannot be read: {' '.join(str(error).split())[:200]}") from None
    return config.vocab_size, config.max_position_embeddings, lambda text: len(tokenizer(text).input_ids)
