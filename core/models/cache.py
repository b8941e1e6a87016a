"""Loaded models, kept for those who ask again."""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from typing import Any

from core.models.adapter import ModelAdapter
from core.models.load import load_adapter

_KEPT_MODELS = 3


class Models:
    """Loaded models by name and device, the last few of them. Weights are shared; tokenizers are copied, as they are not thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: OrderedDict[tuple[str, str], tuple[ModelAdapter, Any]] = OrderedDict()

    def get(self, name: str, device: str) -> tuple[ModelAdapter, Any]:
        """A model, loaded at its first use; raises UnsupportedModel."""
        with self._lock:
            key = (name, device)
            if key not in self._loaded:
                self._loaded[key] = load_adapter(name, device)
                while len(self._loaded) > _KEPT_MODELS:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(key)
            adapter, tokenizer = self._loaded[key]
            return adapter, copy.deepcopy(tokenizer)
