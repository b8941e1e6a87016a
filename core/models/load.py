"""From a name to a model that can be run packed: built-in, local folder or hub id, probed before use.

Flags are not trusted. A probe watches one pass for what each layer asks of attention, its true window included (failing that, whether
every layer fills our cache). A check then runs two short requests packed, chunked and padded, and compares their logits with the
model's own. What differs is refused.
"""

from __future__ import annotations

import inspect
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import transformers
from huggingface_hub import constants, get_session
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
)

from core.assets import ASSETS
from core.attention import cpu
from core.attention.batch import PackedBatch, pack
from core.attention.kv_pool import KVPool, KVShape
from core.attention.observe import OBSERVER_NAME, ObservingCache, PrivateMask, observation, window_of
from core.attention.plug import ATTENTION_NAME, PagedCache, StepContext, additive_mask, step_context
from core.attention.spec import Backend
from core.errors import UnsupportedModel, first_sentence
from core.models import tensor_parallel
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable

BUILTIN_FOLDER = ASSETS / "models"
BUILTIN_MODELS = ("shakespeare-bpe", "shakespeare-char")
_HUB_TIMEOUT = 5.0  # seconds to find out whether the hub answers; its client alone would retry for most of a minute
_ROW_WIDE_ROPES = ("dynamic", "longrope")
_FAR = 2**15  # a position far from the start, for models that name no context


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """ "auto" takes CUDA, then MPS, then CPU; raises UnsupportedModel for a device that is not there."""
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
    builtin = name in BUILTIN_MODELS
    source = str(BUILTIN_FOLDER / name) if builtin else name
    local = builtin or os.path.exists(name)
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
        tokenizer = AutoTokenizer.from_pretrained(source, **options) if not local or _has_tokenizer(source) else None
        if shared:
            options |= tensor_parallel.loading_options()
        loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, output_loading_info=True, **options)
    except UnsupportedModel:
        raise
    except Exception as error:  # configs, tokenizers and weight files fail in many ways, bare exceptions of libraries among them
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


def _has_tokenizer(folder: str) -> bool:
    return any("token" in file or file.startswith("vocab") for file in os.listdir(folder))


def _hub_answers() -> bool:
    """Whether the hub can be reached now."""
    try:
        get_session().head(constants.ENDPOINT, timeout=_HUB_TIMEOUT)
    except Exception:  # no network, no name, a proxy that refuses, or the user's own offline switch
        return False
    return True


# -- one model, ready to run ---------------------------------------------------------------------------------------------

_locks: weakref.WeakKeyDictionary[torch.nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_locks_guard = threading.Lock()


def model_lock(model: torch.nn.Module) -> threading.RLock:
    """One lock a model: its attention implementation is swapped during a pass, so passes of two engines take turns.

    Whoever calls the model from another thread while an engine steps must hold it too.
    """
    with _locks_guard:
        return _locks.setdefault(model, threading.RLock())


@dataclass
class ModelAdapter:
    """A transformers causal language model, ready for packed passes.

    plug: "attention" or "cache", see `core.attention.plug`. shapes: cache shape by layer. windows: sliding window by layer.
    num_heads: the most query heads of a layer, as far as they are known. tensor_parallel: processes that share the model, each with its
    own part of the heads. max_model_len: its context in tokens, None if the config names none.
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
        self._softcaps = False

    @classmethod
    def probe(cls, model: Any, name: str | None = None) -> ModelAdapter:
        """Find the plug that fits and check that packed results equal the model's own; leaves the model in evaluation mode.

        Raises UnsupportedModel by name and reason.
        """
        if not isinstance(model, PreTrainedModel):
            raise UnsupportedModel(f"An engine runs a transformers model, not {type(model).__name__}.")
        name = name or getattr(model.config, "name_or_path", "") or model.config.model_type
        try:
            reason = _known_obstacle(model)
            if reason:
                raise _Unfit(reason)
            adapter = cls(model.eval(), name, tensor_parallel=model.tp_size or 1)
            with adapter.lock:
                adapter._find_plug()
                adapter._check_cache()
                try:
                    adapter._check()
                except _Unfit:
                    if not adapter.keeps_logits:
                        raise
                    adapter.keeps_logits = False  # some models drop all other positions before their last layers
                    adapter._check()
        except _Unfit as unfit:
            kind = model.config.model_type
            called = name if name == kind else f"{name} ({kind})"
            raise UnsupportedModel(f"{called} cannot be run in packed batches: {unfit}.") from None
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
        names = ("max_position_embeddings", "n_positions", "max_target_positions", "max_seq_len", "n_ctx")
        return next((length for name in names if (length := getattr(self.config, name, None))), None)

    @property
    def num_parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """What generation would stop at."""
        generation = getattr(self.model, "generation_config", None)
        ids = getattr(generation, "eos_token_id", None)
        ids = getattr(self.config, "eos_token_id", None) if ids is None else ids
        return frozenset() if ids is None else frozenset(ids if isinstance(ids, (list, tuple)) else [ids])

    def forward(self, batch: PackedBatch, pool: KVPool, backend: Backend = cpu.BACKEND) -> torch.Tensor:
        """The logits `[n, V]` of `batch.sample_rows`; K and V of the pass go to the pool."""
        context = StepContext(batch, pool, backend, self.windows)
        with self.lock, step_context(context), self._implementation(_IMPLEMENTATION[self.plug]), torch.inference_mode():
            return self._call(context)

    def _call(self, context: StepContext) -> torch.Tensor:
        batch = context.batch
        inputs: dict[str, Any] = {"input_ids": batch.input_ids, "position_ids": batch.position_ids, "use_cache": False}
        cache = None
        if self.plug == "cache":
            cache = PagedCache(context)
            inputs |= {"use_cache": True, "past_key_values": cache, "attention_mask": additive_mask(batch, self.dtype)}
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
            logits = logits.masked_fill(cache.sees_broken(inputs["attention_mask"])[batch.sample_rows, None], torch.nan)
        return logits

    @contextmanager
    def _implementation(self, name: str) -> Iterator[None]:
        """Route attention for the time of a pass: `model(...)` and `generate` keep working as before outside it."""
        before = [config._attn_implementation_internal for config in self._configs]
        # Where there is a pad token, some models look for it among the ids, which waits for the device.
        pads = [(config, pad) for config in self._configs if (pad := getattr(config, "pad_token_id", None)) is not None]
        for config in self._configs:
            config._attn_implementation_internal = name
        for config, _ in pads:
            config.pad_token_id = None
        try:
            yield
        finally:
            for config, implementation in zip(self._configs, before, strict=True):
                config._attn_implementation_internal = implementation
            for config, pad in pads:
                config.pad_token_id = pad

    # -- probing -----------------------------------------------------------------------------------------------------

    def _find_plug(self) -> None:
        """Fill `plug`, `shapes` and `windows`; raises _Unfit if neither plug reaches every layer."""
        layers = set(range(self.config.num_hidden_layers))
        ids = torch.arange(8, device=self.device)[None] % self.vocab_size
        positions = torch.arange(8, device=self.device)[None]
        with observation() as observed, self._implementation(OBSERVER_NAME), torch.inference_mode():
            try:
                self.model(input_ids=ids, position_ids=positions, use_cache=False)
            except Exception:  # whatever a foreign model's code raises: this plug is not for it
                observed.calls.clear()
        if set(observed.calls) == layers:
            self.plug = "attention"
            self.shapes = {layer: call.shape for layer, call in observed.calls.items()}
            self.num_heads = max(call.num_heads for call in observed.calls.values())
            self._softcaps = any(call.softcap is not None for call in observed.calls.values())
            for layer, call in observed.calls.items():
                try:
                    self.windows[layer] = window_of(call, self.max_model_len)
                except PrivateMask as error:
                    raise _Unfit(f"its layer {layer} {error}") from None
            return
        self.plug, self.windows = "cache", dict.fromkeys(layers)
        cache, mask = ObservingCache(), torch.zeros(1, 1, 8, 8, dtype=self.dtype, device=self.device)
        with self._implementation("eager"), torch.inference_mode():
            try:
                self.model(input_ids=ids, position_ids=positions, use_cache=True, past_key_values=cache, attention_mask=mask)
            except Exception:
                cache.shapes.clear()
        if set(cache.shapes) != layers:
            raise _Unfit("some of its layers take neither our attention function nor our cache")
        self.shapes = cache.shapes

    def _check_cache(self) -> None:
        """Refuse a model whose own cache, the one `generate` uses, forgets tokens that its masks still show."""
        try:
            layers = DynamicCache(config=self.model.config).layers
        except Exception:  # a cache of its own kind; `_check` has the last word
            return
        for layer, cache in enumerate(layers):
            kept, shown = getattr(cache, "sliding_window", None), self.windows.get(layer)
            if kept is not None and kept < (shown or self.max_model_len or _FAR):
                shows = f"{shown} tokens" if shown else "every token"
                raise _Unfit(f"the cache of its layer {layer} forgets all but {kept} tokens, while its mask shows {shows}")

    def _check(self) -> None:
        """Two requests, the first in two chunks, in packed and then padded passes, against the model on each alone; and whether
        a request far along changes one that has just begun.
        """
        generator = torch.Generator().manual_seed(0)
        a, b = (torch.randint(0, self.vocab_size, (n,), generator=generator).tolist() for n in (6, 4))
        own_implementation = self._implementation("eager") if self._softcaps else nullcontext()  # others may drop the cap
        try:
            with own_implementation, torch.inference_mode():
                own = [
                    self.model(input_ids=torch.tensor([ids], device=self.device), use_cache=False).logits[0, -1]
                    for ids in (a, a + [1], b)
                ]
        except Exception as error:
            raise _Unfit(f"it does not run by itself ({first_sentence(error)})") from None
        size = 4
        pool = KVPool(self.shapes, 5, size, self.dtype, self.device)

        def results(layout, *parts, far: int = 0) -> torch.Tensor:
            batch = pack(SchedulerOutput(layout, parts), size, pool.trash_slot, self.device)
            if far:
                shift = torch.zeros_like(batch.position_ids)
                shift[0, -len(b) :] = far
                batch = replace(batch, position_ids=batch.position_ids + shift)
            try:
                return self.forward(batch, pool)
            except Exception as error:
                raise _Unfit(f"a {layout} pass fails ({first_sentence(error)})") from None

        results("packed", _part(0, a[:3], 0, samples=False))
        packed = results("packed", _part(0, a[3:], 3), _part(1, b, 0))
        padded = results("padded", _part(0, [1], 6), _part(1, b, 0))
        far = (self.max_model_len or _FAR) - len(b)
        beside_far = results("packed", _part(0, a[3:], 3), _part(1, b, 0), far=max(0, far))
        if not (_agree(packed[0], own[0]) and _agree(packed[1], own[2])):
            if "position_ids" not in inspect.signature(self.model.forward).parameters:
                raise _Unfit("it takes no position_ids, so it cannot be told where in its request a token stands")
            if not _agree(results("packed", _part(0, a, 0))[0], own[0]):
                raise _Unfit("even one request alone gives other results, so it counts positions or masks in a way of its own")
            raise _Unfit("its results change when requests share a pass, so something in it looks across them")
        if not (_agree(padded[0], own[1]) and _agree(padded[1], own[2])):
            raise _Unfit("its results change when a pass is padded")
        if not _agree(beside_far[0], own[0]):
            raise _Unfit("one long request in a pass changes the results of the others")


_IMPLEMENTATION = {"attention": ATTENTION_NAME, "cache": "eager"}


class _Unfit(Exception):
    """Why a model cannot be packed; the message completes "it cannot be run in packed batches: …"."""


def _part(lane: int, tokens: list[int], start: int, samples: bool = True) -> ScheduledRequest:
    table = BlockTable((2 * lane, 2 * lane + 1))
    return ScheduledRequest(f"probe{lane}", lane, "prefill", tuple(tokens), start, table, samples)


def _agree(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two rows of logits are equal but for rounding; NaN equals NaN."""
    exact = mine.dtype in (torch.float32, torch.float64)
    mine, theirs = mine.float(), theirs.float()
    if not torch.equal(mine.isnan(), theirs.isnan()):
        return False
    difference, size = (mine - theirs).nan_to_num(0.0, 0.0, 0.0), theirs.nan_to_num(0.0, 0.0, 0.0).std()
    if exact:
        return bool(difference.abs().max() <= 1e-3 * size)
    return bool(difference.square().mean().sqrt() <= 0.2 * size)  # a leak changes logits by their own size; rounding by far less


def _known_obstacle(model: PreTrainedModel) -> str | None:
    """Why this architecture cannot be packed, where the model says so itself."""
    if model.config.is_encoder_decoder:
        return "it is an encoder-decoder model"
    try:
        config = model.config.get_text_config()
        if not config.num_hidden_layers or not config.vocab_size:
            raise AttributeError
    except (ValueError, AttributeError):
        return "it has no text decoder whose layers and vocabulary its config names"
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "it adds ALiBi position biases inside its own attention, which takes no mask of ours"
    if config.model_type == "gpt_neo":
        return "its attention keeps a private causal mask"
    sparse = [kind for kind in _kinds(config) if any(word in kind for word in _SPARSE_LAYERS)]
    if sparse:
        return f"its layers of the kind {sparse[0]} choose by an index of their own which tokens to attend to"
    if getattr(config, "attention_type", None) == "block_sparse":
        return "its attention skips blocks of tokens at random"
    stateful = [kind for kind in _kinds(config) if any(word in kind for word in _STATEFUL_LAYERS)]
    if stateful:
        return f"its layers of the kind {stateful[0]} keep a running state instead of keys and values for each token"
    if getattr(model, "_is_stateful", False):
        return "it keeps a running state instead of keys and values for each token"
    rope = getattr(config, "rope_parameters", None) or {}
    types = {rope.get("rope_type")} | {v.get("rope_type") for v in rope.values() if isinstance(v, dict)}
    wide = types.intersection(_ROW_WIDE_ROPES)
    if wide:
        return f"its {wide.pop()} RoPE rescales a whole row by its longest position, so one long request would change the others"
    return None


_SPARSE_LAYERS = ("indexed", "compressed", "_sparse")
_STATEFUL_LAYERS = ("linear", "conv", "mamba", "recurrent", "hybrid")


def _kinds(config: Any) -> list[str]:
    """The kinds of layer that the config names, each once."""
    types = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    return list(dict.fromkeys(str(kind) for kind in types))


def _configs(model: Any) -> list[Any]:
    """Every config object that a module of the model reads its attention implementation from."""
    found = {}
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
    return list(found.values())


def load_adapter(name: str, device: str = "auto", dtype: str | torch.dtype = "auto") -> tuple[ModelAdapter, Any]:
    """A model by name, probed, and its tokenizer (None where a local folder has none); raises UnsupportedModel in one sentence."""
    where = resolve_device(device)
    model, tokenizer = load(name, where, resolve_dtype(dtype, where))
    return ModelAdapter.probe(model, name), tokenizer


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__}
