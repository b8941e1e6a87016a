"""Loaded models, kept for reuse."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from core.config import BUILTIN_MODELS

if TYPE_CHECKING:
    import torch

    from core.models.adapter import ModelAdapter

_KEPT_MODELS = 3


class ModelCache:
    """Loaded models by name, device and dtype: the built-in ones, and the last few others. Weights are shared; tokenizers are copied, as they are not thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: OrderedDict[tuple[str, str, str], tuple[ModelAdapter, Any]] = OrderedDict()

    def get(self, name: str, device: str, dtype: str = "auto") -> tuple[ModelAdapter, Any]:
        """A model, loaded at its first use. dtype: as `core.models.load` takes it. Raises UnsupportedModel."""
        from core.models.load import (
            load_adapter,
            resolve_device,
        )  # imports torch and transformers, which must not delay a page's first paint

        place = device_key(resolve_device(device))
        key = (name, place, dtype)
        with self._lock:
            if key not in self._loaded:
                self._loaded[key] = load_adapter(name, place, dtype)
                others = [kept for kept in self._loaded if kept[0] not in BUILTIN_MODELS]
                for old in others[:-_KEPT_MODELS]:
                    del self._loaded[old]
            self._loaded.move_to_end(key)
            adapter, tokenizer = self._loaded[key]
            return adapter, copy.deepcopy(tokenizer)


def device_key(device: torch.device) -> str:
    """One name for each device: "cpu:1" is the CPU, and "cuda" means the first GPU."""
    return str(device) if device.type != "cpu" and device.index else device.type
