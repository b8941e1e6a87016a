"""One model, ready for packed passes: the facts that an engine needs, its forward pass over the KV
pool, and its lock.

Outside a pass the model is unchanged: `model(...)` and `generate` keep working. The findings of
`core.torch_engine.models.probe` are taken as given.
"""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from core.torch_engine.attention import cpu
from core.torch_engine.attention.batch import PackedBatch
from core.torch_engine.attention.kv_pool import KVPool, KVShape
from core.torch_engine.attention.plug import (
    ATTENTION_NAME,
    PagedCache,
    StepContext,
    additive_mask,
    given_cache,
    step_context,
)
from core.torch_engine.attention.spec import Backend
from core.torch_engine.models.tokenizer import MOST_CONTEXT

_IMPLEMENTATION = {"attention": ATTENTION_NAME, "cache": "eager"}

_locks: weakref.WeakKeyDictionary[torch.nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


def model_lock(model: torch.nn.Module) -> threading.RLock:
    """One lock per model: its attention implementation is swapped during a pass, so passes of two
    engines take turns.

    Hold it to call the model from another thread while an engine steps.
    """
    with _locks_guard:
        return _locks.setdefault(model, threading.RLock())


@dataclass
class ModelAdapter:
    """A transformers causal language model, ready for packed passes.

    plug: "attention" or "cache", see `core.torch_engine.attention.plug`. shapes: cache shape by
    layer. windows: sliding window by layer. num_heads: the most query heads of a layer, if known.
    tensor_parallel: processes that share the model, each with its own part of the heads.
    max_model_len: its context in tokens, None if the config names none.
    """

    model: Any
    name: str
    plug: str = "attention"
    shapes: dict[int, KVShape] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)
    num_heads: int = 0
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        self.config = self.model.config.get_text_config()
        self.keeps_logits = bool(self.model._supports_logits_to_keep())
        self.lock = model_lock(self.model)
        self._configs = _configs(self.model)
        self._warners = [m.__dict__ for m in self.model.modules() if hasattr(m, _PAD_WARNING)]

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        """The number format of its weights."""
        return self.model.dtype

    @property
    def vocab_size(self) -> int:
        """Tokens that its config names; the last of them may have no text."""
        return self.config.vocab_size

    @property
    def max_model_len(self) -> int | None:
        """The context in tokens, prompt and answer; None if its config does not say."""
        return context_of(self.config)

    @property
    def kv_bytes_per_token(self) -> int:
        """Over all layers."""
        return sum(shape.numbers for shape in self.shapes.values()) * self.dtype.itemsize

    @property
    def num_parameters(self) -> int:
        """Weights, shared ones counted once."""
        return sum(p.numel() for p in self.model.parameters())

    @property
    def weight_bytes(self) -> int:
        """Memory that its parameters and buffers take."""
        tensors = {
            id(t): t.numel() * t.element_size()
            for t in (*self.model.parameters(), *self.model.buffers())
        }
        return sum(tensors.values())

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """The token ids at which generation stops."""
        generation = getattr(self.model, "generation_config", None)
        ids = getattr(generation, "eos_token_id", None)
        ids = getattr(self.config, "eos_token_id", None) if ids is None else ids
        if ids is None:
            return frozenset()
        several = ids if isinstance(ids, (list, tuple)) else [ids]
        return frozenset(one for one in several if isinstance(one, int))  # others are no tokens

    def forward(
        self, batch: PackedBatch, pool: KVPool, backend: Backend = cpu.BACKEND
    ) -> torch.Tensor:
        """The logits `[n, V]` of `batch.sample_rows`; K and V of the pass go to the pool."""
        context = StepContext(batch, pool, backend, self.windows)
        with (
            self.lock,
            step_context(context),
            self.attending(_IMPLEMENTATION[self.plug]),
            torch.inference_mode(),
        ):
            return self._call(context)

    def _call(self, context: StepContext) -> torch.Tensor:
        batch = context.batch
        inputs: dict[str, Any] = {
            "input_ids": batch.input_ids,
            "position_ids": batch.position_ids,
            "use_cache": False,
        }
        cache = None
        if self.plug == "cache":
            cache = PagedCache(context)
            inputs |= {
                "use_cache": True,
                "attention_mask": additive_mask(batch, self.dtype),
            } | given_cache(self.model, cache)
        # A padded row ends at its last column; a packed row's samples may be anywhere.
        packed = batch.layout == "packed"
        if self.keeps_logits:
            inputs["logits_to_keep"] = batch.sample_rows if packed and len(batch.sample_rows) else 1
        logits = self.model(**inputs).logits
        if not packed:
            logits = logits[:, -1][batch.sample_rows // batch.input_ids.shape[1]]
        elif not self.keeps_logits:
            logits = logits[0, batch.sample_rows]
        else:
            logits = logits[0] if len(batch.sample_rows) else logits[0, :0]
        if cache is not None:
            logits = logits.masked_fill(
                cache.sees_broken(inputs["attention_mask"])[batch.sample_rows, None], torch.nan
            )
        return logits

    @contextmanager
    def attending(self, name: str) -> Iterator[None]:
        """Route attention to the implementation `name` during a pass."""
        before = [config._attn_implementation_internal for config in self._configs]
        try:
            for config in self._configs:
                config._attn_implementation_internal = name
            for names in self._warners:
                names[_PAD_WARNING] = _no_warning
            yield
        finally:
            for names in self._warners:
                names.pop(_PAD_WARNING, None)
            for config, implementation in zip(self._configs, before, strict=True):
                config._attn_implementation_internal = implementation


def context_of(config: Any) -> int | None:
    """The context that a config states, in tokens, of which a tensor can number each."""
    names = (
        "max_position_embeddings",
        "n_positions",
        "max_target_positions",
        "max_seq_len",
        "n_ctx",
    )
    stated = next((length for name in names if (length := getattr(config, name, None))), None)
    return stated and min(stated, MOST_CONTEXT)


# It looks for the pad token among the ids, which waits for the device.
_PAD_WARNING = "warn_if_padding_and_no_attention_mask"


def _no_warning(*args: Any, **kwargs: Any) -> None:
    """Replaces the warning: a packed row has no padding to warn about."""


def _configs(model: Any) -> list[Any]:
    """Every config object that a module of the model reads its attention implementation from."""
    found = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
    return list(found.values())
