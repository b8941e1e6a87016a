"""`presets` and `models`: lists of presets and of models."""

import json as jsonlib
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from core.cli.options import Json
from core.cli.output import finish, print_line, print_note, table
from core.config import BUILTIN_MODELS, SMOLLM2, EngineConfig, model_source
from core.errors import InflightError, UnsupportedModel
from core.torch_engine.models.names import is_fetched
from core.trace.messages import english
from core.workload.presets import PRESETS, Preset


def presets(json: Json = False) -> None:
    """List the presets: named workloads, each with the model, policy and limits that show it
    best.
    """
    finish(
        {"schema": "presets/1", "presets": [_preset_json(preset) for preset in PRESETS.values()]},
        _print_presets,
        json,
    )


def _print_presets(_: object) -> None:
    for preset in PRESETS.values():
        count = len(preset.workload)
        about = f"  {count} [request|requests], {_limits(preset.config)}, {preset.model}"
        name = Text(preset.name, style="bold")
        print_line(name.append(english(about), style="not bold"))
        print_line(f"    {preset.shows}")


Fetch = Annotated[
    str | None,
    typer.Option(
        "--fetch",
        metavar="NAME",
        help="First fetch this model, unless it is here: smollm2, 98 MB, once.",
    ),
]


def models(fetch: Fetch = None, json: Json = False) -> None:
    """List the models that have a name; `--model` also takes a local folder, a GGUF file or a hub
    id.
    """
    if fetch is not None:
        _fetch(fetch)
    here = [*BUILTIN_MODELS, *([SMOLLM2] if is_fetched() else ())]
    listed = [describe_model(name) for name in here]
    finish({"schema": "models/1", "models": listed}, _print_models, json)


def _fetch(name: str) -> None:
    if name in BUILTIN_MODELS:
        return
    if name != SMOLLM2:
        raise UnsupportedModel(
            f"Only {SMOLLM2} is fetched ahead; any other model comes at its first use."
        )
    from core.browser.pyodide import fetch_pyodide
    from core.torch_engine.models import smollm2
    from core.torch_engine.models.watch import ProgressBar

    with ProgressBar(name) as bar:
        smollm2.fetch(bar)
        try:
            smollm2.packed(bar)
        except UnsupportedModel as error:
            print_note(f"It is here, but not the file with which a browser runs it. {error}")
    try:
        fetch_pyodide()
    except InflightError as error:
        print_note(str(error))


def _print_models(found: dict[str, Any]) -> None:
    rows = [
        (
            m["name"],
            m["type"],
            f"{m['parameters'] / 1e6:.2f} M",
            str(m["layers"]),
            f"{m['context']:,}",
            f"{m['vocab_size']:,}",
            f"{m['bytes'] / 2**20:.1f} MiB",
        )
        for m in found["models"]
    ]
    columns = ("model", "architecture", "parameters", "layers", "context", "vocabulary", "weights")
    table(columns, rows, right=columns[2:])
    print_line()
    print_line(
        "--model also takes a local folder, a GGUF file or a hub id. A model that cannot be run"
        " exactly is refused, with the reason."
    )


def describe_model(name: str) -> dict[str, Any]:
    """The facts of a named model, from its folder, without loading it."""
    from safetensors import safe_open

    folder = Path(model_source(name))
    config = jsonlib.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = folder / "model.safetensors"
    with safe_open(weights, framework="numpy") as tensors:
        parameters = sum(math.prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
    return {
        "name": name,
        "type": config["model_type"],
        "parameters": parameters,
        "layers": config.get("num_hidden_layers", config.get("n_layer")),
        "context": config.get("max_position_embeddings", config.get("n_positions")),
        "vocab_size": config["vocab_size"],
        "bytes": weights.stat().st_size,
    }


def _preset_json(preset: Preset) -> dict[str, Any]:
    return {
        "name": preset.name,
        "title": preset.title,
        "shows": preset.shows,
        "model": preset.model,
        "config": preset.config.to_json(),
        "workload": preset.workload.to_json(),
    }


def _limits(config: EngineConfig) -> str:
    """The policy, the lanes, and the limits that differ from the defaults."""
    parts = [config.policy.name, english(f"{config.num_lanes} [lane|lanes]")]
    if config.policy.token_budget:
        parts.append(f"budget {config.max_num_batched_tokens}")
    if config.num_blocks is not None:
        parts.append(f"{config.num_blocks} blocks of {config.block_size}")
    if not config.chunked_prefill:
        parts.append("unchunked")
    if config.prefix_caching:
        parts.append("prefix caching")
    if config.prefill_first:
        parts.append("prefill first")
    return ", ".join(parts)
