"""From a name to a model: built-in, local folder or hub id; devices and number formats by name.
Code that comes with a model never runs.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from typing import Any

import torch
import transformers
from huggingface_hub import HfApi, hf_hub_download, snapshot_download
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

from core.config import BUILTIN_MODELS
from core.errors import UnsupportedModel, first_sentence, malformed, require, shown
from core.torch_engine.models import tensor_parallel
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.models.names import folder_fault
from core.torch_engine.models.prepared import prepared
from core.torch_engine.models.pretrained import (
    HUB_TIMEOUT,
    check_hub,
    quoted,
    read_config,
    read_model,
    read_tokenizer,
)
from core.torch_engine.models.probe import probe
from core.torch_engine.models.tokenizer import is_tokenizer
from core.torch_engine.models.watch import FetchBar, Stopped, Watch, nobody, watching
from core.torch_engine.models.weight_files import WANTED, BadWeights, stored_weights

# transformers loads one model at a time, since loading changes torch's defaults
_loading = threading.Lock()


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """CUDA, MPS or CPU for "auto", in this order; raises UnsupportedModel for unknown devices."""
    require(device, (str, torch.device), 'A device is named, as "auto", "cpu" or "cuda"')
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(1, device=resolved).cpu()  # "meta" exists, but computes nothing
    except (
        RuntimeError,
        AssertionError,
        NotImplementedError,
        TypeError,
        ValueError,
        ImportError,
    ) as error:
        why = first_sentence(error)
        if why.startswith("Expected one of"):  # and forty names of devices
            why = "name auto, cpu, cuda or mps"
        raise UnsupportedModel(f"There is no device {str(device)!r} here: {why}.") from None
    return resolved


def resolve_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """ "auto" is float32 on CPU and MPS; on CUDA it is bfloat16 if the hardware has it (compute
    capability 8), else float16.
    """
    if dtype == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16
    resolved = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if resolved not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise UnsupportedModel(
            f"There is no floating-point type {shown(dtype)} to run in; use float32, bfloat16 or"
            " float16."
        )
    if resolved == torch.float64 and device.type == "mps":
        raise UnsupportedModel("MPS computes nothing in float64; use float32, bfloat16 or float16.")
    return resolved


# -- loading ---------------------------------------------------------------------------------------


def load(
    name: str, device: torch.device, dtype: torch.dtype, watch: Watch = nobody
) -> tuple[Any, Any]:
    """Model and tokenizer (None if there is none) by built-in name, local folder or hub id.

    Under torchrun it is this process's share of the model. Code that comes with a model is never
    run, and a pickle is never opened. watch: is told the progress. Raises UnsupportedModel with one
    sentence.
    """
    source = source_of(name, watch)
    folder = folder_of(source) or _fetched(name, source, watch)
    shared = tensor_parallel.world_size() > 1
    while not _loading.acquire(timeout=0.2):
        watch("wait", 0, 0)
    try:
        with refusing(name):
            config = check_config(read_config(folder), name)
            if shared and (obstacle := tensor_parallel.obstacle(config)):
                raise unloadable(name, obstacle)
            stored_weights(folder, getattr(config.get_text_config(), "num_hidden_layers", 0))
            tokenizer = read_tokenizer(folder) if is_tokenizer(os.listdir(folder)) else None
            options = tensor_parallel.loading_options() if shared else {}
            with watching(watch):
                model, report = read_model(folder, dtype=dtype, **options)
    finally:
        _loading.release()
    misshapen = (key for key, *_ in report["mismatched_keys"])
    absent = sorted([*report["missing_keys"], *misshapen])
    if absent:
        raise unloadable(
            name,
            f"{len(absent)} of its weights are missing or of another shape, such as {absent[0]}",
        )
    if not shared:
        model = model.to(device)
    elif model.device.type != device.type:
        raise unloadable(
            name, f"tensor parallelism runs on {model.device.type} here, not on {device.type}"
        )
    return model.eval(), tokenizer


def check_config(config: Any, name: str) -> Any:
    """The config of a decoder-only text model; raises UnsupportedModel for any other."""
    if config.is_encoder_decoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise unloadable(name, f"a {config.model_type} model is no causal language model")
    return config


# -- where its files are ---------------------------------------------------------------------------


def source_of(name: str, watch: Watch = nobody) -> str:
    """The folder or hub id of a model: see `prepared`. Raises UnsupportedModel."""
    try:
        return prepared(name, watch)
    except (BadWeights, OSError) as error:
        raise unloadable(name, str(error)) from None


def folder_of(source: str) -> str | None:
    """The folder of a model whose files are on this machine; None for a hub id that would have to
    be fetched. Raises UnsupportedModel for a folder without a model.
    """
    if fault := folder_fault(source):
        raise unloadable(source, fault)
    if os.path.exists(source):
        return source
    try:
        cached = snapshot_download(source, local_files_only=True)
        stored_weights(cached)
    except (BadWeights, OSError, ValueError):
        return None
    return cached if os.path.isfile(os.path.join(cached, "config.json")) else None


def _fetched(name: str, source: str, watch: Watch) -> str:
    """The folder of a model fetched from the hub: only its config, tokenizer and safetensors."""
    check_hub(name)
    with refusing(name):
        files = hub_files(source)
        total, done = sum(files.values()), 0

        def advance(size: int) -> None:
            nonlocal done
            done += size
            watch("fetch", done, total)

        bar: Any = FetchBar(advance)  # named like a class
        for file in files:
            path = hf_hub_download(source, file, tqdm_class=bar)
    return os.path.dirname(path)


def hub_files(source: str) -> dict[str, int]:
    """The needed files of a model on the hub, with their sizes, its weights last; raises BadWeights
    if it has none that are safe to open.
    """
    info = HfApi().model_info(source, files_metadata=True, timeout=2 * HUB_TIMEOUT)
    sizes = {
        file.rfilename: file.size or 0 for file in info.siblings or () if "/" not in file.rfilename
    }
    if "config.json" not in sizes:
        raise BadWeights("it has no config.json")
    wanted = {
        name: sizes[name] for name in sizes if any(fnmatch(name, pattern) for pattern in WANTED)
    }
    weights = [name for name in wanted if name.endswith(".safetensors")]
    if not weights:
        raise BadWeights(
            "it has no weights as safetensors, and a pickle can run code when it is opened"
        )
    if "model.safetensors" in weights:
        wanted = {
            name: size
            for name, size in wanted.items()
            if name not in weights or name == "model.safetensors"
        }
    return dict(
        sorted(wanted.items(), key=lambda file: (file[0].endswith(".safetensors"), file[0]))
    )


@contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turn any error inside into a refusal of this model: configs, tokenizers and weight files fail
    in many ways, including bare exceptions of libraries.
    """
    try:
        yield
    except (UnsupportedModel, Stopped):
        raise
    except BadWeights as error:
        raise unloadable(name, str(error)) from None
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise unloadable(name, malformed(error)) from None
    except Exception as error:
        raise unloadable(name, first_sentence(error)) from None


def unloadable(name: str, reason: str) -> UnsupportedModel:
    """The refusal of a model that cannot be loaded."""
    return UnsupportedModel(
        f"The model {quoted(name)} cannot be loaded: {reason}; built in are"
        f" {' and '.join(BUILTIN_MODELS)}."
    )


def load_adapter(
    name: str, device: str = "auto", dtype: str | torch.dtype = "auto", watch: Watch = nobody
) -> tuple[ModelAdapter, Any]:
    """A model by name, probed, and its tokenizer or None; raises UnsupportedModel."""
    where = resolve_device(device)
    model, tokenizer = load(name, where, resolve_dtype(dtype, where), watch)
    return probe(model, name), tokenizer


def versions() -> dict[str, str]:
    """The versions of the libraries that compute, for the header of a trace."""
    return {"torch": str(torch.__version__), "transformers": transformers.__version__}
