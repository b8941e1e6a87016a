"""Loaded models, kept for reuse."""

from __future__ import annotations

import copy
import gc
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from core.config import BUILTIN_MODELS
from core.errors import UnsupportedModel
from core.torch_engine.models.libraries import load_libraries

if TYPE_CHECKING:
    import torch

    from core.torch_engine.models.adapter import ModelAdapter
    from core.torch_engine.models.watch import Watch

_GIB = 2**30

_KEPT_MODELS = 3
_HEADROOM = 1.1  # of the weights, for passes and the pages of the files that they are read from


class ModelCache:
    """Loaded models by name, device and dtype: the built-in ones, and the last few others that fit
    into memory. Weights are shared; tokenizers are copied because they are not thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the loaded models: held only briefly
        # one model at a time, so that free memory can be measured
        self._loading = threading.Lock()
        self._loaded: OrderedDict[tuple[str, str, str], tuple[ModelAdapter, Any]] = OrderedDict()

    def get(
        self, name: str, device: str, dtype: str = "auto", watch: Watch | None = None
    ) -> tuple[ModelAdapter, Any]:
        """A model, loaded at its first use. dtype: as `core.torch_engine.models.load` takes it.
        watch: see `core.torch_engine.models.watch`; if it stops the loading, nothing changes.
        Raises UnsupportedModel.
        """
        load_libraries()
        from core.torch_engine.models.load import load_adapter, resolve_device, resolve_dtype
        from core.torch_engine.models.watch import nobody

        watch, where = watch or nobody, resolve_device(device)
        place = device_key(where)
        key = (name, place, str(resolve_dtype(dtype, where)).removeprefix("torch."))
        if found := self._found(key):
            return found
        while not self._loading.acquire(timeout=0.2):
            watch("wait", 0, 0)
        try:
            if found := self._found(key):  # another thread loaded it while this one waited
                return found
            if name not in BUILTIN_MODELS:
                self._make_room(name, place, key[2])
            loaded = load_adapter(name, place, key[2], watch)
            with self._lock:
                self._loaded[key] = loaded
                others = [kept for kept in self._loaded if kept[0] not in BUILTIN_MODELS]
                for old in others[:-_KEPT_MODELS]:
                    del self._loaded[old]
        finally:
            self._loading.release()
        found = self._found(key)
        assert found is not None
        return found

    def has(self, name: str, device: str = "", dtype: str = "") -> bool:
        """Whether a model is loaded now, on any device and in any format unless one is named."""
        with self._lock:
            return any(
                key[0] == name and device in ("", key[1]) and dtype in ("", key[2])
                for key in self._loaded
            )

    def _found(self, key: tuple[str, str, str]) -> tuple[ModelAdapter, Any] | None:
        with self._lock:
            if key not in self._loaded:
                return None
            self._loaded.move_to_end(key)
            adapter, tokenizer = self._loaded[key]
            return adapter, copy.deepcopy(tokenizer)

    def _make_room(self, name: str, place: str, dtype: str) -> None:
        """Drop the least recently used models until this one fits; raises UnsupportedModel, before
        reading it, if it does not.
        """
        from core.torch_engine.models.forecast import forecast
        from core.torch_engine.models.load import resolve_device
        from core.torch_engine.models.memory import free_memory

        needed = int(forecast(name, place, dtype).weights * _HEADROOM)
        device = resolve_device(place)
        with self._lock:
            others = {
                key: adapter.weight_bytes
                for key, (adapter, _) in self._loaded.items()
                if key[0] not in BUILTIN_MODELS and key[1] == place
            }
        free = free_memory(device)
        if free is not None and free + sum(others.values()) < needed:
            raise UnsupportedModel(_too_large(name, needed, dtype, free))
        for old in others:
            if free is None or free >= needed:
                return
            with self._lock:
                self._loaded.pop(old, None)
            gc.collect()
            free = free_memory(device)
        if free is not None and free < needed:  # running engines still hold dropped models
            raise UnsupportedModel(_too_large(name, needed, dtype, free))


def _too_large(name: str, needed: int, dtype: str, free: int) -> str:
    return (
        f"{name} takes {needed / _GIB:.1f} GiB of memory in {dtype}, and {free / _GIB:.1f} GiB are"
        " free here."
    )


def device_key(device: torch.device) -> str:
    """One name for each device: "cpu:1" is the CPU, and "cuda" means the first GPU."""
    return str(device) if device.type != "cpu" and device.index else device.type
