"""What a model is and how much memory it needs, before its weights are read: from its config, the
headers of its weight files, and a pass on torch's "meta" device.

Tensors there have shapes and no contents, so parameters and the size of the KV cache are exact.
"""

import json
import os
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from core.errors import UnsupportedModel
from core.torch_engine.attention.kv_pool import KVShape
from core.torch_engine.attention.observe import SHAPES_NAME, ObservingCache, observation
from core.torch_engine.attention.plug import given_cache
from core.torch_engine.models.adapter import context_of
from core.torch_engine.models.load import (
    check_config,
    folder_of,
    hub_files,
    refusing,
    resolve_device,
    resolve_dtype,
    source_of,
)
from core.torch_engine.models.pretrained import check_hub, read_config
from core.torch_engine.models.probe import known_obstacle
from core.torch_engine.models.tokenizer import is_tokenizer
from core.torch_engine.models.weight_files import stored_weights


@dataclass(frozen=True)
class Forecast:
    """stored: number formats of the weight files. dtype: the one to compute in. weights: bytes in
    memory. kv_bytes_per_token: over all layers, None if only loading can tell. context: in tokens,
    None if the config states none. download: bytes to be fetched first.
    """

    name: str
    architecture: str
    parameters: int
    layers: int
    vocab_size: int
    context: int | None
    stored: tuple[str, ...]
    dtype: str
    device: str
    weights: int
    kv_bytes_per_token: int | None
    has_tokenizer: bool
    has_chat_template: bool
    download: int


def forecast(name: str, device: str = "auto", dtype: str = "auto") -> Forecast:
    """The forecast of a built-in model, a folder or a hub id. If it is already certain that the
    model cannot be run, raises UnsupportedModel with the sentence that loading would give.
    """
    where = resolve_device(device)
    number = resolve_dtype(dtype, where)
    source = source_of(name)
    with refusing(name):
        if folder := folder_of(source):
            config = read_config(folder)
            stored, files, download = stored_weights(folder), os.listdir(folder), 0
        else:
            config, stored, files, download, folder = _on_the_hub(source)
        kind: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(check_config(config, name))]
        with torch.device("meta"):
            # transformers' own functions change torch's defaults, even for runs in other threads
            model = kind(config).eval()
    if obstacle := known_obstacle(model):
        raise UnsupportedModel(
            f"{name} ({config.model_type}) cannot be run in packed batches: {obstacle}."
        )
    parameters = sum(p.numel() for p in model.parameters())
    buffers = sum(b.numel() * b.element_size() for b in model.buffers())
    text = model.config.get_text_config()
    numbers = sum(shape.numbers for shape in _kv_shapes(model).values())
    return Forecast(
        name=name,
        architecture=type(model).__name__,
        parameters=parameters,
        layers=text.num_hidden_layers,
        vocab_size=text.vocab_size,
        context=context_of(text),
        stored=stored,
        dtype=str(number).removeprefix("torch."),
        device=where.type,
        weights=parameters * number.itemsize + buffers,
        kv_bytes_per_token=numbers * number.itemsize or None,
        has_tokenizer=is_tokenizer(files),
        has_chat_template=_has_template(folder, files),
        download=download,
    )


def _on_the_hub(source: str) -> tuple[Any, tuple[str, ...], list[str], int, str]:
    """The config of a model that is only on the hub, number formats of its weights, names of its
    files, bytes to fetch, and where its small files are.
    """
    check_hub(source)
    files = hub_files(source)
    config = read_config(source, offline=False)
    folder = os.path.dirname(hf_hub_download(source, "config.json"))
    if "tokenizer_config.json" in files:
        hf_hub_download(source, "tokenizer_config.json")
    stored = () if config.dtype is None else (str(config.dtype).removeprefix("torch."),)
    return config, stored, list(files), sum(files.values()), folder


def _has_template(folder: str, names: list[str]) -> bool:
    """Whether a folder's tokenizer has a chat template; names: of its files."""
    if any(name.startswith("chat_template.") for name in names):
        return True
    try:
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
            return bool(json.load(file).get("chat_template"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def _kv_shapes(model: Any) -> dict[int, KVShape]:
    """The cache that each layer would fill, from a pass on "meta"; empty if the pass fails."""
    cache, layers = ObservingCache(), set(range(model.config.get_text_config().num_hidden_layers))
    positions = torch.arange(4, device="meta")[None]
    try:
        model.to(torch.bfloat16)  # the only format that the kernels of experts take
        model.set_attn_implementation(SHAPES_NAME)
        with observation() as observed, torch.inference_mode():
            model(
                input_ids=torch.zeros_like(positions),
                position_ids=positions,
                use_cache=True,
                **given_cache(model, cache),
            )
    except Exception:  # what looks at contents
        return {}
    # in the order in which the probe tries them
    asked = {layer: call.shape for layer, call in observed.calls.items()}
    return next((shapes for shapes in (asked, cache.shapes) if set(shapes) == layers), {})
