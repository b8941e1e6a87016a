"""From a name to a model that can be run packed: built-in, local folder or hub id, probed before use.

Flags are not trusted. A probe runs one token and counts which layers call our attention (or, failing that, our cache); a check then
runs two short requests packed, chunked and padded, and compares their logits with the model's own. What differs is refused.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from core.attention import cpu
from core.attention.plug import ATTENTION_NAME, PagedCache, StepContext, additive_mask, step_context
from core.attention.spec import Backend
from core.errors import UnsupportedModel
from core.kv_pool import KVPool, KVShape
from core.packing import PackedBatch, pack
from core.request import BlockTable
from core.scheduler_output import ScheduledRequest, SchedulerOutput

BUILTIN_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "models"
BUILTIN_MODELS = ("shakespeare-bpe", "shakespeare-char")
_ROW_WIDE_ROPES = ("dynamic", "longrope")


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """ "auto" takes CUDA, then MPS, then CPU; raises UnsupportedModel for a device that is not there."""
    if str(device) == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError) as error:
        raise UnsupportedModel(f"There is no device {str(device)!r} here: {_first_sentence(error)}") from None
    return resolved


def resolve_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """ "auto" is float32 on CPU and MPS; on CUDA bfloat16 where the hardware has it (compute capability 8), else float16."""
    if dtype == "auto":
        if device.type != "cuda":
            return torch.float32
        return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16
    resolved = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(resolved, torch.dtype) or not resolved.is_floating_point:
        raise UnsupportedModel(f"There is no floating-point type {dtype!r}; use float32, bfloat16 or float16.")
    return resolved


def load(name: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, Any]:
    """Model and tokenizer by built-in name, local folder or hub id; raises UnsupportedModel in one sentence."""
    source = str(BUILTIN_FOLDER / name) if name in BUILTIN_MODELS else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise UnsupportedModel(
            f"The model {name!r} cannot be loaded: it is no built-in model ({', '.join(BUILTIN_MODELS)}), and as a folder or hub id "
            f"it failed with: {_first_sentence(error)}"
        ) from None
    return model.to(device).eval(), tokenizer


def _first_sentence(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    end = text.find(". ")
    return (text if end < 0 else text[: end + 1])[:300]


_locks: weakref.WeakKeyDictionary[torch.nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


def model_lock(model: torch.nn.Module) -> threading.RLock:
    """One lock a model: its attention implementation is swapped during a pass, so passes of two engines take turns."""
    with _locks_guard:
        return _locks.setdefault(model, threading.RLock())


@dataclass
class ModelAdapter:
    """A transformers causal language model, ready for packed passes.

    plug: "attention" or "cache", see `core.attention.plug`. shapes: cache shape by layer. windows: sliding window by layer.
    max_model_len: its context in tokens, None if the config names none.
    """

    model: Any
    name: str
    plug: str = "attention"
    shapes: dict[int, KVShape] = field(default_factory=dict)
    windows: dict[int, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.config = self.model.config.get_text_config()
        self.keeps_logits = bool(self.model._supports_logits_to_keep())
        self.lock = model_lock(self.model)
        self._configs = _configs(self.model)

    @classmethod
    def probe(cls, model: Any, name: str | None = None) -> ModelAdapter:
        """Find the plug that fits and check that packed results equal the model's own; raises UnsupportedModel by name and reason."""
        adapter = cls(model, name or getattr(model.config, "name_or_path", "") or model.config.model_type)
        reason = _known_obstacle(adapter.config)
        if reason:
            raise adapter._refusal(reason)
        adapter._find_plug()
        adapter._check()
        return adapter

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def vocab_size(self) -> int:
        return self.config.vocab_size

    @property
    def max_model_len(self) -> int | None:
        return getattr(self.config, "max_position_embeddings", None)

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """What generation would stop at."""
        generation = getattr(self.model, "generation_config", None)
        ids = getattr(generation, "eos_token_id", None)
        ids = self.config.eos_token_id if ids is None else ids
        return frozenset() if ids is None else frozenset(ids if isinstance(ids, (list, tuple)) else [ids])

    def forward(self, batch: PackedBatch, pool: KVPool, backend: Backend = cpu.attend) -> torch.Tensor:
        """The logits `[n, V]` of `batch.sample_rows`; K and V of the pass go to the pool."""
        context = StepContext(batch, pool, backend, self.windows)
        with self.lock, step_context(context), self._implementation(), torch.inference_mode():
            return self._call(context)

    def _call(self, context: StepContext) -> torch.Tensor:
        batch = context.batch
        inputs: dict[str, Any] = {"input_ids": batch.input_ids, "position_ids": batch.position_ids, "use_cache": False}
        if self.plug == "cache":
            inputs |= {"use_cache": True, "past_key_values": PagedCache(context), "attention_mask": self._masks(context)}
        # A padded row ends at its last column; a packed row's samples may be anywhere.
        packed = batch.layout == "packed"
        if self.keeps_logits:
            inputs["logits_to_keep"] = batch.sample_rows if packed and len(batch.sample_rows) else 1
        logits = self.model(**inputs).logits
        if not packed:
            return logits[:, -1][batch.sample_rows // batch.input_ids.shape[1]]
        if self.keeps_logits:
            return logits[0] if len(batch.sample_rows) else logits[0, :0]
        return logits[0, batch.sample_rows]

    def _masks(self, context: StepContext) -> torch.Tensor | dict[str, torch.Tensor]:
        """4-D masks for the cache plug: one, or one for each kind of layer."""
        kinds = _layer_kinds(self.config)
        masks = {kind: additive_mask(context.batch, window, self.dtype) for kind, window in kinds.items()}
        return next(iter(masks.values())) if len(masks) == 1 else masks

    @contextmanager
    def _implementation(self) -> Iterator[None]:
        """Route attention for the time of a pass: `model(...)` and `generate` keep working as before outside it."""
        name = ATTENTION_NAME if self.plug == "attention" else "eager"
        before = [config._attn_implementation_internal for config in self._configs]
        for config in self._configs:
            config._attn_implementation_internal = name
        try:
            yield
        finally:
            for config, implementation in zip(self._configs, before, strict=True):
                config._attn_implementation_internal = implementation

    # -- probing -----------------------------------------------------------------------------------------------------

    def _refusal(self, reason: str) -> UnsupportedModel:
        return UnsupportedModel(f"{self.name} ({self.config.model_type}) cannot be run in packed batches: {reason}.")

    def _find_plug(self) -> None:
        table = _windows(self.config)
        expected = set(range(self.config.num_hidden_layers))
        output = SchedulerOutput("packed", (_probe_request(0, [0], 0, 0),))
        batch = pack(output, 1, 0, self.device)
        for plug in ("attention", "cache"):
            self.plug = plug
            context = StepContext(batch, None, cpu.attend, table)
            try:
                with self.lock, step_context(context), self._implementation(), torch.inference_mode():
                    self._call(context)
            except Exception:  # whatever a foreign model's code raises: this plug is not for it
                continue
            if set(context.observed) == expected:
                self.shapes = {layer: shape for layer, (shape, _) in context.observed.items()}
                self.windows = {layer: spec.window for layer, (_, spec) in context.observed.items()}
                return
        raise self._refusal("some of its layers take neither our attention function nor our cache")

    def _check(self) -> None:
        """Two requests, the first in two chunks, in packed and then padded passes, against the model on each alone."""
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randint(0, self.vocab_size, (n,), generator=generator).tolist() for n in (6, 4))
        size = 4
        with self.lock, torch.inference_mode():
            try:
                own = [
                    self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False).logits[0, -1].float()
                    for ids in (a, a + [1], b)
                ]
            except Exception as error:
                raise self._refusal(f"it does not run by itself ({_first_sentence(error)})") from None
        pool = KVPool(self.shapes, 5, size, self.dtype, self.device)
        passes = (
            SchedulerOutput("packed", (_probe_request(0, a[:3], 0, 0),)),
            SchedulerOutput("packed", (_probe_request(0, a[3:], 3, 0), _probe_request(1, b, 0, 2))),
            SchedulerOutput("padded", (_probe_request(0, [1], 6, 0), _probe_request(1, b, 0, 2))),
        )
        expected = ((), (own[0], own[2]), (own[1], own[2]))
        for output, wanted in zip(passes, expected, strict=True):
            try:
                got = self.forward(pack(output, size, pool.trash_slot, self.device), pool).float()
            except Exception as error:
                raise self._refusal(f"a packed pass fails ({_first_sentence(error)})") from None
            for mine, theirs in zip(got, wanted, strict=False):
                tolerance = 1e-3 if self.dtype == torch.float32 else 0.1
                if not (mine - theirs).abs().max() <= tolerance * theirs.std():
                    raise self._refusal("its results change when requests share a pass, so something in it looks across them")


def _probe_request(lane: int, tokens: list[int], start: int, first_block: int) -> ScheduledRequest:
    table = BlockTable(tuple(range(first_block, first_block + 2)))
    return ScheduledRequest(f"probe{lane}", lane, "prefill", tuple(tokens), start, table, start + len(tokens) != 3)


def _known_obstacle(config: Any) -> str | None:
    """Why this architecture cannot be packed, where the config says so."""
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "it adds ALiBi position biases inside its own attention, which takes no mask of ours"
    if config.model_type == "gpt_neo":
        return "its attention keeps a private causal mask"
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {rope.get("rope_type")} | {v.get("rope_type") for v in rope.values() if isinstance(v, dict)}
    wide = kinds.intersection(_ROW_WIDE_ROPES)
    if wide:
        return f"its {wide.pop()} RoPE rescales a whole row by its longest position, so one long request would change the others"
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder model"
    return None


def _layer_kinds(config: Any) -> dict[str, int | None]:
    """Sliding window by kind of layer."""
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False:
        window = None
    types = getattr(config, "layer_types", None)
    if not types:
        return {"full_attention": window}
    return {kind: window if kind == "sliding_attention" else None for kind in dict.fromkeys(types)}


def _windows(config: Any) -> dict[int, int | None]:
    kinds = _layer_kinds(config)
    types = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    return {layer: kinds[kind] for layer, kind in enumerate(types)}


def _configs(model: Any) -> list[Any]:
    """Every config object that a module of the model reads its attention implementation from."""
    found = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
    return list(found.values())


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__}
