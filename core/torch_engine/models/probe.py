"""Whether a model can be run packed at all, determined by running it. Flags are not trusted.

One pass records what each layer passes to attention, its true window included (failing that,
whether every layer fills our cache). Then two short requests run packed, chunked and padded, and
their logits are compared with the model's own. A model whose results differ is refused.
"""

import inspect
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedModel

from core.errors import UnsupportedModel, first_sentence
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable
from core.torch_engine.attention.batch import pack
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.attention.observe import (
    OBSERVER_NAME,
    ObservingCache,
    PrivateMask,
    observation,
    window_of,
)
from core.torch_engine.attention.plug import given_cache
from core.torch_engine.cpu.threads import require_threads
from core.torch_engine.models.adapter import ModelAdapter

_ROW_WIDE_ROPES = ("dynamic", "longrope")
_FAR = 2**15  # a position far from the start, for models without a stated context


def probe(model: Any, name: str | None = None) -> ModelAdapter:
    """Find the plug that works and check that packed results equal the model's own; leave the model
    in evaluation mode.

    Raises UnsupportedModel with name and reason, and leaves the model unchanged.
    """
    if not isinstance(model, PreTrainedModel):
        raise UnsupportedModel(f"An engine runs a transformers model, not {type(model).__name__}.")
    name = name or getattr(model.config, "name_or_path", "") or model.config.model_type
    training = [module for module in model.modules() if module.training]
    try:
        reason = known_obstacle(model)
        if reason:
            raise _Unfit(reason)
        return _probed(ModelAdapter(model.eval(), name, tensor_parallel=model.tp_size or 1))
    except BaseException as error:
        for module in training:
            module.training = True
        if not isinstance(error, _Unfit):
            raise
        kind = model.config.model_type
        called = name if name == kind else f"{name} ({kind})"
        raise UnsupportedModel(f"{called} cannot be run in packed batches: {error}.") from None


def _probed(adapter: ModelAdapter) -> ModelAdapter:
    """The adapter, with plug, shapes and windows filled in and checked; raises _Unfit."""
    if adapter.device.type == "cpu":
        require_threads()
    with adapter.lock:
        softcaps = _find_plug(adapter)
        _check_cache(adapter)
        try:
            _check(adapter, softcaps)
        except _Unfit:
            if not adapter.keeps_logits:
                raise
            # some models drop all other positions before their last layers
            adapter.keeps_logits = False
            _check(adapter, softcaps)
    return adapter


def _find_plug(adapter: ModelAdapter) -> bool:
    """Fill in `plug`, `shapes` and `windows`; returns whether a layer caps its scores. Raises
    _Unfit if neither plug reaches every layer.
    """
    layers = set(range(adapter.config.num_hidden_layers))
    ids = torch.arange(8, device=adapter.device)[None] % adapter.vocab_size
    positions = torch.arange(8, device=adapter.device)[None]
    with observation() as observed, adapter.attending(OBSERVER_NAME), torch.inference_mode():
        try:
            adapter.model(input_ids=ids, position_ids=positions, use_cache=False)
        except Exception:  # a model's code may raise anything: this plug does not work for it
            observed.calls.clear()
    if set(observed.calls) == layers:
        adapter.plug = "attention"
        adapter.shapes = {layer: call.shape for layer, call in observed.calls.items()}
        adapter.num_heads = max(call.num_heads for call in observed.calls.values())
        for layer, call in observed.calls.items():
            try:
                adapter.windows[layer] = window_of(call, adapter.max_model_len)
            except PrivateMask as error:
                raise _Unfit(f"its layer {layer} {error}") from None
        return any(call.softcap is not None for call in observed.calls.values())
    adapter.plug, adapter.windows = "cache", dict.fromkeys(layers)
    cache = ObservingCache()
    mask = torch.zeros(1, 1, 8, 8, dtype=adapter.dtype, device=adapter.device)
    with adapter.attending("eager"), torch.inference_mode():
        try:
            given = given_cache(adapter.model, cache)
            adapter.model(
                input_ids=ids, position_ids=positions, use_cache=True, attention_mask=mask, **given
            )
        except Exception:
            cache.shapes.clear()
    if set(cache.shapes) != layers:
        raise _Unfit("some of its layers take neither our attention function nor our cache")
    adapter.shapes = cache.shapes
    return False


def _check_cache(adapter: ModelAdapter) -> None:
    """Refuse a model whose own cache, as `generate` uses it, drops what its masks show."""
    try:
        layers = DynamicCache(config=adapter.model.config).layers
    except Exception:  # an unusual cache; `_check` decides
        return
    for layer, cache in enumerate(layers):
        kept, shown = getattr(cache, "sliding_window", None), adapter.windows.get(layer)
        if kept is not None and kept < (shown or adapter.max_model_len or _FAR):
            shows = f"{shown} tokens" if shown else "every token"
            raise _Unfit(
                f"the cache of its layer {layer} forgets all but {kept} tokens, while its mask"
                f" shows {shows}"
            )


def _check(adapter: ModelAdapter, softcaps: bool) -> None:
    """Compare two requests, the first in two chunks, in packed and then padded passes with the
    model on each alone; check that a long request does not change one that has just begun.
    """
    generator = torch.Generator().manual_seed(0)
    a, b = (
        torch.randint(0, adapter.vocab_size, (n,), generator=generator).tolist() for n in (6, 4)
    )
    # others may drop the cap
    own_implementation = adapter.attending("eager") if softcaps else nullcontext()
    try:
        with own_implementation, torch.inference_mode():
            own = [
                adapter.model(
                    input_ids=torch.tensor([ids], device=adapter.device), use_cache=False
                ).logits[0, -1]
                for ids in (a, a + [1], b)
            ]
    except Exception as error:
        raise _Unfit(f"it does not run by itself ({first_sentence(error)})") from None
    size = 4
    pool = KVPool(adapter.shapes, 5, size, adapter.dtype, adapter.device)

    def results(layout, *parts, far: int = 0) -> torch.Tensor:
        batch = pack(SchedulerOutput(layout, parts), size, pool.trash_slot, adapter.device)
        if far:
            shift = torch.zeros_like(batch.position_ids)
            shift[0, -len(b) :] = far
            batch = replace(batch, position_ids=batch.position_ids + shift)
        try:
            return adapter.forward(batch, pool)
        except Exception as error:
            raise _Unfit(f"a {layout} pass fails ({first_sentence(error)})") from None

    results("packed", _part(0, a[:3], 0, samples=False))
    packed = results("packed", _part(0, a[3:], 3), _part(1, b, 0))
    padded = results("padded", _part(0, [1], 6), _part(1, b, 0))
    far = (adapter.max_model_len or _FAR) - len(b)
    beside_far = results("packed", _part(0, a[3:], 3), _part(1, b, 0), far=max(0, far))
    if not (_agree(packed[0], own[0]) and _agree(packed[1], own[2])):
        if "position_ids" not in inspect.signature(adapter.model.forward).parameters:
            raise _Unfit(
                "it takes no position_ids, so a token's position in its request cannot be passed"
            )
        if not _agree(results("packed", _part(0, a, 0))[0], own[0]):
            raise _Unfit(
                "even a single request gives different results, so it handles positions or masks in"
                " its own way"
            )
        raise _Unfit(
            "its results change when requests share a pass, so something in it looks across them"
        )
    if not (_agree(padded[0], own[1]) and _agree(padded[1], own[2])):
        raise _Unfit("its results change when a pass is padded")
    if not _agree(beside_far[0], own[0]):
        raise _Unfit("one long request in a pass changes the results of the others")


class _Unfit(Exception):
    """Why a model cannot be packed; completes "it cannot be run in packed batches: …"."""


def _part(lane: int, tokens: list[int], start: int, samples: bool = True) -> ScheduledRequest:
    table = BlockTable((2 * lane, 2 * lane + 1))
    return ScheduledRequest(
        request=f"probe{lane}",
        lane=lane,
        phase="prefill",
        tokens=tuple(tokens),
        start=start,
        block_table=table,
        samples=samples,
    )


def _agree(mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two rows of logits are equal up to rounding; NaN equals NaN, an infinity itself."""
    exact = mine.dtype in (torch.float32, torch.float64)
    mine, theirs = mine.float(), theirs.float()
    if not torch.equal(mine.isnan(), theirs.isnan()):
        return False
    difference = (mine - theirs).nan_to_num(0.0)
    size = theirs.nan_to_num(0.0, 0.0, 0.0).std()
    if exact:
        return bool(difference.abs().max() <= 1e-3 * size)
    # a leak changes logits by their own size; rounding by far less
    return bool(difference.square().mean().sqrt() <= 0.2 * size)


def known_obstacle(model: PreTrainedModel) -> str | None:
    """Why this architecture cannot be packed, if its config or code shows it."""
    if model.config.is_encoder_decoder:
        return "it is an encoder-decoder model"
    if not model.can_generate():
        return "it has no language-model head"
    try:
        config = model.config.get_text_config()
        if min(config.num_hidden_layers, config.vocab_size) < 1:
            raise AttributeError
    except (ValueError, AttributeError, TypeError):
        return "it has no text decoder whose layers and vocabulary its config names"
    if getattr(config, "alibi", False) or config.model_type in ("bloom", "mpt"):
        return "it adds ALiBi position biases inside its own attention, which takes no mask of ours"
    if config.model_type == "gpt_neo":
        return "its attention keeps a private causal mask"
    sparse = [kind for kind in _kinds(config) if any(word in kind for word in _SPARSE_LAYERS)]
    if sparse:
        return (
            f"its layers of the kind {sparse[0]} choose with their own index which tokens to"
            " attend to"
        )
    if getattr(config, "attention_type", None) == "block_sparse":
        return "its attention skips blocks of tokens at random"
    stateful = [kind for kind in _kinds(config) if any(word in kind for word in _STATEFUL_LAYERS)]
    if stateful:
        return (
            f"its layers of the kind {stateful[0]} keep a running state instead of keys and values"
            " for each token"
        )
    if getattr(model, "_is_stateful", False):
        return "it keeps a running state instead of keys and values for each token"
    rope = getattr(config, "rope_parameters", None) or {}
    types = {rope.get("rope_type")} | {
        v.get("rope_type") for v in rope.values() if isinstance(v, dict)
    }
    wide = types.intersection(_ROW_WIDE_ROPES)
    if wide:
        return (
            f"its {wide.pop()} RoPE rescales a whole row by its longest position, so one long"
            " request would change the others"
        )
    return None


_SPARSE_LAYERS = ("indexed", "compressed", "_sparse")
_STATEFUL_LAYERS = ("linear", "conv", "mamba", "recurrent", "hybrid")


def _kinds(config: Any) -> list[str]:
    """The kinds of layer that the config names, each once."""
    types = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or ()
    return list(dict.fromkeys(str(kind) for kind in types))
