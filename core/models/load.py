"""From a name to a model: built-in, local folder or hub id; devices and number formats by name. Code that comes with a model never runs."""

from __future__ import annotations

import os
from typing import Any

import torch
import transformers
from huggingface_hub import constants, get_session
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig, AutoModelForCausalLM, AutoTokenizer

from core.config import BUILTIN_MODELS, model_source
from core.errors import UnsupportedModel, first_sentence
from core.models import tensor_parallel
from core.models.adapter import ModelAdapter
from core.models.probe import probe
from core.models.tokenizer import has_tokenizer

_HUB_TIMEOUT = 5.0  # seconds to find out whether the hub answers; its client would retry for most of a minute


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """ "auto" takes CUDA, then MPS, then CPU; raises UnsupportedModel for a device that does not exist."""
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(1, device=resolved).cpu()  # "meta" exists, but computes nothing
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise UnsupportedModel(f"There is no device {str(device)!r} here: {first_sentence(error)}.") from None
    return resolved


def resolve_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """ "auto" is float32 on CPU and MPS; on CUDA bfloat16 where the hardware has it (compute capability 8), else float16."""
    if dtype == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16
    resolved = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if resolved not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        raise UnsupportedModel(f"There is no floating-point type {dtype!r} to run in; use float32, bfloat16 or float16.")
    if resolved == torch.float64 and device.type == "mps":
        raise UnsupportedModel("MPS computes nothing in float64; use float32, bfloat16 or float16.")
    return resolved


# -- loading -------------------------------------------------------------------------------------------------------------


def load(name: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """Model and tokenizer (None where a local folder has none) by built-in name, local folder or hub id.

    Under torchrun it is this process's share of the model. Code that comes with a model is never run. Raises UnsupportedModel in one
    sentence.
    """
    source = model_source(name)
    local = name in BUILTIN_MODELS or os.path.exists(name)
    if local and not os.path.isfile(os.path.join(source, "config.json")):
        raise _unloadable(name, "there is no config.json in that folder")
    offline = local or not _hub_answers()
    shared = tensor_parallel.world_size() > 1
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": offline}
    try:
        config = AutoConfig.from_pretrained(source, **options)
        if config.is_encoder_decoder or type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise _unloadable(name, f"a {config.model_type} model is no causal language model")
        if shared and (obstacle := tensor_parallel.obstacle(config)):
            raise _unloadable(name, obstacle)
        tokenizer = AutoTokenizer.from_pretrained(source, **options) if not local or has_tokenizer(source) else None
        if shared:
            options |= tensor_parallel.loading_options()
        loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, output_loading_info=True, **options)
    except UnsupportedModel:
        raise
    except Exception as error:  # configs, tokenizers and weight files fail in many ways, including bare exceptions of libraries
        if offline and not local and isinstance(error, OSError):
            raise UnsupportedModel(
                f"The model {_quoted(name)} is neither built in ({', '.join(BUILTIN_MODELS)}) nor a folder here, "
                "and the Hugging Face hub cannot be reached."
            ) from None
        raise _unloadable(name, first_sentence(error)) from None
    model, report = loaded
    absent = sorted(map(str, [*report["missing_keys"], *report["mismatched_keys"]]))
    if absent:
        raise _unloadable(name, f"{len(absent)} of its weights are missing or of another shape, such as {absent[0]}")
    if not shared:
        model = model.to(device)
    elif model.device.type != device.type:
        raise _unloadable(name, f"tensor parallelism runs on {model.device.type} here, not on {device.type}")
    return model.eval(), tokenizer


def _unloadable(name: str, reason: str) -> UnsupportedModel:
    return UnsupportedModel(f"The model {_quoted(name)} cannot be loaded: {reason}; built in are {' and '.join(BUILTIN_MODELS)}.")


def _quoted(name: str) -> str:
    return repr(name if len(name) <= 200 else name[:200] + "…")


def _hub_answers() -> bool:
    """Whether the hub can be reached now."""
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT)
    except Exception:  # no network, no name, a proxy that refuses, or the user's own offline switch
        return False
    return True


def load_adapter(name: str, device: str = "auto", dtype: str | torch.dtype = "auto") -> tuple[ModelAdapter, Any]:
    """A model by name, probed, and its tokenizer (None where a local folder has none); raises UnsupportedModel in one sentence."""
    where = resolve_device(device)
    model, tokenizer = load(name, where, resolve_dtype(dtype, where))
    return probe(model, name), tokenizer


def versions() -> dict[str, str]:
    return {"torch": str(torch.__version__), "transformers": transformers.__version__}
