"""Attention and gated MLPs of a model on a CPU, each in a handful of operations where a module takes dozens.

With few rows an operation takes its time before it computes. What stands in for a module was tried beside it, in a pass of the model: that it asks the
same of attention, with the same queries, keys and values, and gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from transformers.activations import GELUTanh, NewGELUActivation, SiLUActivation

from core.attention.batch import PackedBatch, pack
from core.attention.kv_pool import KVPool
from core.attention.plug import current_context
from core.attention.spec import AttentionSpec, Backend
from core.models.adapter import ModelAdapter
from core.runner.cpu_modules import CPUModules, Operation
from core.runner.fused_norms import epsilon
from core.runner.stand_ins import Forwards
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of a pass's positions, `[R, W, D]` each, for the first D numbers of a head."""


class Place(Protocol):
    """A kernel: out of projections come queries; keys and values go to the pool."""

    def __call__(
        self,
        projected: torch.Tensor,
        rotation: Rotation | None,
        norms: tuple[torch.Tensor, ...],
        eps: float,
        keys: torch.Tensor,
        values: torch.Tensor,
        slots: torch.Tensor,
    ) -> torch.Tensor:
        """projected: `[R, W, (H + Hkv) * Dk + Hkv * Dv]`, queries, keys and values of all heads, in this order; norms: weights of the RMS norms of a
        query's and of a key's heads, or none; keys, values: a layer's pool; slots: of every position. Returns queries `[R, H, W, Dk]`.
        """
        ...


Gated = Callable[[torch.Tensor, str], torch.Tensor]
"""A kernel: of rows `[..., 2 * D]` the first half, through an activation ("silu", "gelu"), times the second."""


class BlockKernels(NamedTuple):
    """What computes between products."""

    place: Place
    gated: Gated


_PROJECTIONS = (("q_proj", "k_proj", "v_proj"), ("qkv_proj",))
_BESIDE = {"q_norm", "k_norm", "rotary_emb"}  # parts that an attention may have, too
_GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_ACTIVATIONS = {SiLUActivation: "silu", torch.nn.SiLU: "silu", NewGELUActivation: "gelu", GELUTanh: "gelu"}


class _Asked(NamedTuple):
    """What a module has asked of attention."""

    query: torch.Tensor
    spec: AttentionSpec


@dataclass
class _Attention:
    """Stands in for an attention module.

    product: queries, keys and values of some rows; out: the product after attention; norms, eps: weights of the RMS norms of queries and keys, if they
    are normed; spec: what its layer asks of attention.
    """

    layer: int
    product: Operation
    out: torch.nn.Module
    place: Place
    norms: tuple[torch.nn.Module, ...]
    eps: float
    spec: AttentionSpec | None = None

    def __call__(
        self, hidden_states: torch.Tensor, position_embeddings: Rotation | None = None, **_: Any
    ) -> tuple[torch.Tensor, None]:
        context = current_context()
        query, keys, values = self._placed(hidden_states, position_embeddings)
        assert self.spec is not None
        attended = context.backend.attend(query, keys, values, context.batch, self.spec)
        return self.out.forward(attended.flatten(2)), None

    def tried(
        self, asked: _Asked, output: Any, hidden_states: torch.Tensor, position_embeddings: Rotation | None = None, **_: Any
    ) -> bool:
        """Whether its queries, keys, values and results are those that the module has just had."""
        if (
            asked.spec.softcap is not None
            or asked.spec.sinks is not None
            or not isinstance(output, tuple)
            or output[1:] != (None,)
        ):
            return False
        if position_embeddings is not None and any(part.dtype != hidden_states.dtype for part in position_embeddings):
            return False
        context = current_context()
        slots, pools = context.batch.slot_mapping, context.pool.layers[self.layer]
        own = [asked.query, *(pool[slots] for pool in pools), output[0]]
        self.spec = asked.spec
        query, keys, values = self._placed(hidden_states, position_embeddings)
        mine = [query, keys[slots], values[slots], self(hidden_states, position_embeddings)[0]]
        return all(map(_are_close, mine, own))

    def _placed(self, rows: torch.Tensor, rotation: Rotation | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries `[R, H, W, Dk]`, and the layer's pool with the new keys and values in it."""
        context = current_context()
        keys, values = context.pool.layers[self.layer]
        if rotation is not None:
            cos, sin = (part.expand(*rows.shape[:2], -1).contiguous() for part in rotation)
            rotation = cos, sin
        weights = tuple(norm.get_parameter("weight") for norm in self.norms)
        query = self.place(self.product(rows), rotation, weights, self.eps, keys, values, context.batch.slot_mapping)
        return query, keys, values


@dataclass
class _GatedMLP:
    """Stands in for a gated MLP. product: gates, then what goes through them."""

    product: Operation
    out: torch.nn.Module
    gated: Gated
    activation: str

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.out.forward(self.gated(self.product(hidden_states), self.activation))

    def tried(self, asked: _Asked, output: Any, hidden_states: torch.Tensor) -> bool:
        """Whether its result is the one that the module has just had."""
        return isinstance(output, torch.Tensor) and _are_close(self(hidden_states), output)


def cpu_blocks(adapter: ModelAdapter, modules: CPUModules, kernels: BlockKernels, backend: Backend, norms: bool) -> Forwards:
    """What stands in for modules of a model in its passes, inside `modules.in_use()`: see `Forwards`. norms: whether for attention with norms
    of its own, too.
    """
    blocks = dict(_candidates(adapter, modules, kernels, norms))
    if not blocks:
        return ()
    agreed: set[torch.nn.Module] = set()
    asked: list[_Asked] = []

    def attend(
        query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, batch: PackedBatch, spec: AttentionSpec
    ) -> torch.Tensor:
        asked[:] = [_Asked(query, spec)]
        return backend.attend(query, keys, values, batch, spec)

    def after(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        with suppress(TypeError):  # the module is called with something else
            if blocks[module].tried(asked[0], output, *args, **kwargs):
                agreed.add(module)

    with ExitStack() as stack:
        stack.enter_context(modules.in_use())
        for module in blocks:
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        _run(adapter, replace(backend, attend=attend))
    return tuple((module.__dict__, block) for module, block in blocks.items() if module in agreed)


def _candidates(
    adapter: ModelAdapter, modules: CPUModules, kernels: BlockKernels, norms: bool
) -> Iterator[tuple[torch.nn.Module, _Attention | _GatedMLP]]:
    """What may stand in for the modules that are made of the right parts."""
    for module in adapter.model.modules():
        parts, layer = dict(module.named_children()), getattr(module, "layer_idx", None)
        if "forward" in module.__dict__:
            continue
        if parts.keys() == _GATED:
            product, activation = modules.product_of((parts["gate_proj"], parts["up_proj"])), type(parts["act_fn"])
            if product and activation in _ACTIVATIONS:
                yield module, _GatedMLP(product, parts["down_proj"], kernels.gated, _ACTIVATIONS[activation])
        for projections in _PROJECTIONS:
            if layer in adapter.shapes and {*projections, "o_proj"} <= parts.keys() <= {*projections, "o_proj", *_BESIDE}:
                product = modules.product_of([parts[name] for name in projections])
                own = [parts[name] for name in ("q_norm", "k_norm") if name in parts]
                eps = _shared_epsilon(own, adapter.shapes[layer].key_size) if norms or not own else None
                if product and eps is not None:
                    yield module, _Attention(layer, product, parts["o_proj"], kernels.place, tuple(own), eps)


def _shared_epsilon(norms: Sequence[torch.nn.Module], size: int) -> float | None:
    """That of two RMS norms of heads of this size, or of none; None for others."""
    epsilons = {epsilon(norm) for norm in norms if norm.get_parameter("weight").shape == (size,)}
    return epsilons.pop() if len(norms) == 2 and len(epsilons) == 1 else None if norms else 0.0


def _run(adapter: ModelAdapter, backend: Backend) -> None:
    """A pass of two prompts, one of them at the end of the model's context, and of a decode."""
    size = 8
    pool = KVPool(adapter.shapes, 3, size, adapter.dtype, adapter.device)
    ids = torch.arange(1, 11).remainder(adapter.vocab_size).tolist()
    parts = (("prompt", ids[:6], 0), ("far", ids[6:9], 0), ("decode", ids[9:], 5))
    scheduled = tuple(
        ScheduledRequest(name, lane, "prefill", tuple(tokens), start, BlockTable((lane,)), True)
        for lane, (name, tokens, start) in enumerate(parts)
    )
    batch = pack(SchedulerOutput("packed", scheduled), size, pool.trash_slot, adapter.device)
    shift = torch.zeros_like(batch.position_ids)
    shift[0, 6:9] = max(0, (adapter.max_model_len or 0) - 3)
    adapter.forward(replace(batch, position_ids=batch.position_ids + shift), pool, backend)


def _are_close(mine: torch.Tensor, own: torch.Tensor) -> bool:
    error = 1e-3 if own.dtype == torch.float32 else 4 * torch.finfo(own.dtype).eps
    return mine.shape == own.shape and torch.allclose(mine, own, rtol=error, atol=error * float(own.abs().max()))
