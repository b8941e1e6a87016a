"""Layers of a model on a CPU, their attention and gated MLPs, each in a handful of operations where modules take dozens.

With few rows an operation takes its time before it computes. What stands in for a module was tried beside it, in a pass of the model: that it asks the
same of attention, with the same queries, keys and values, and gives the same result. It calls no module within, so none stands in where somebody
watches those by hooks, or has put others in their place since (an adapter, say).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
_LAYER = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
_GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_ACTIVATIONS = {
    SiLUActivation: "silu",
    torch.nn.SiLU: "silu",
    NewGELUActivation: "gelu",
    GELUTanh: "gelu",
}


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
        self,
        asked: _Asked | None,
        output: Any,
        hidden_states: torch.Tensor,
        position_embeddings: Rotation | None = None,
        **_: Any,
    ) -> bool:
        """Whether its queries, keys, values and results are those that the module has just had."""
        if asked is None or not isinstance(output, tuple) or output[1:] != (None,):
            return False
        if asked.spec.softcap is not None or asked.spec.sinks is not None:
            return False
        if position_embeddings is not None and any(
            part.dtype != hidden_states.dtype for part in position_embeddings
        ):
            return False
        context = current_context()
        slots, pools = context.batch.slot_mapping, context.pool.layers[self.layer]
        own = [asked.query, *(pool[slots] for pool in pools), output[0]]
        self.spec = asked.spec
        query, keys, values = self._placed(hidden_states, position_embeddings)
        mine = [query, keys[slots], values[slots], self(hidden_states, position_embeddings)[0]]
        return all(map(_are_close, mine, own))

    def _placed(
        self, rows: torch.Tensor, rotation: Rotation | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries `[R, H, W, Dk]`, and the layer's pool with the new keys and values in it."""
        context = current_context()
        keys, values = context.pool.layers[self.layer]
        if rotation is not None:
            cos, sin = (part.expand(*rows.shape[:2], -1).contiguous() for part in rotation)
            rotation = cos, sin
        weights = tuple(norm.get_parameter("weight") for norm in self.norms)
        query = self.place(
            self.product(rows),
            rotation,
            weights,
            self.eps,
            keys,
            values,
            context.batch.slot_mapping,
        )
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

    def tried(self, asked: _Asked | None, output: Any, hidden_states: torch.Tensor) -> bool:
        """Whether its result is the one that the module has just had."""
        return isinstance(output, torch.Tensor) and _are_close(self(hidden_states), output)


class _Layer:
    """Stands in for a layer that adds to its rows what attention makes of them, and then what an MLP does, each after a norm."""

    def __init__(
        self,
        norm: torch.nn.Module,
        attention: torch.nn.Module,
        second_norm: torch.nn.Module,
        mlp: torch.nn.Module,
    ) -> None:
        self._norm, self._attention, self._second_norm, self._mlp = (
            norm,
            attention,
            second_norm,
            mlp,
        )

    def __call__(self, hidden_states: torch.Tensor, *_: None, **given: Any) -> torch.Tensor:
        attended, _weights = self._attention.forward(self._norm.forward(hidden_states), **given)
        hidden_states = hidden_states + attended
        return hidden_states + self._mlp.forward(self._second_norm.forward(hidden_states))

    def tried(
        self,
        asked: _Asked | None,
        output: Any,
        hidden_states: torch.Tensor,
        *other: Any,
        **given: Any,
    ) -> bool:
        """Whether its result is the one that the module has just had, which was given nothing else that it would leave out."""
        given_all = isinstance(output, torch.Tensor) and all(one is None for one in other)
        return given_all and _are_close(self(hidden_states, **given), output)


class Blocks:
    """What stands in for modules of a model in its passes, inside `modules.in_use()`."""

    def __init__(self, blocks: Mapping[torch.nn.Module, Callable[..., Any]]) -> None:
        self._blocks = [
            (module.__dict__, block, _Within.of(module)) for module, block in blocks.items()
        ]

    @property
    def forwards(self) -> Forwards:
        """All but those for modules in which somebody watches or has exchanged others."""
        return [(names, block) for names, block, within in self._blocks if within.is_as_it_was]


class _Within(NamedTuple):
    """What a module is made of. hooks: those that calls of the modules within would call, as they are now; parts: modules by name, as they are now, and
    as they were.
    """

    hooks: Sequence[Mapping[int, Any]]
    parts: Sequence[tuple[Mapping[str, Any], list[Any]]]

    @classmethod
    def of(cls, module: torch.nn.Module) -> _Within:
        _, *within = module.modules()
        everywhere = torch.nn.modules.module
        hooks = [hooks for one in within for hooks in (one._forward_hooks, one._forward_pre_hooks)]
        return cls(
            [everywhere._global_forward_hooks, everywhere._global_forward_pre_hooks, *hooks],
            [(one._modules, [*one._modules.values()]) for one in (module, *within) if one._modules],
        )

    @property
    def is_as_it_was(self) -> bool:
        return not any(self.hooks) and all([*now.values()] == then for now, then in self.parts)


def cpu_blocks(
    adapter: ModelAdapter, modules: CPUModules, kernels: BlockKernels, backend: Backend, norms: bool
) -> Blocks:
    """For which modules there are stand-ins. norms: whether for attention with norms of its own, too."""
    blocks = dict(_candidates(adapter, modules, kernels, norms))
    if not blocks:
        return Blocks({})
    agreed: set[torch.nn.Module] = set()
    asked: list[_Asked] = []

    def attend(
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        batch: PackedBatch,
        spec: AttentionSpec,
    ) -> torch.Tensor:
        asked[:] = [_Asked(query, spec)]
        return backend.attend(query, keys, values, batch, spec)

    def after(
        module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> None:
        with suppress(
            Exception
        ):  # the module is called with something else, or gives something else
            if blocks[module].tried(asked[0] if asked else None, output, *args, **kwargs):
                agreed.add(module)

    with ExitStack() as stack:
        stack.enter_context(modules.in_use())
        for module in blocks:
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        _run(adapter, replace(backend, attend=attend))
    return Blocks({module: block for module, block in blocks.items() if module in agreed})


def _candidates(
    adapter: ModelAdapter, modules: CPUModules, kernels: BlockKernels, norms: bool
) -> Iterator[tuple[torch.nn.Module, _Attention | _GatedMLP | _Layer]]:
    """What may stand in for the modules that are made of the right parts."""
    for module in adapter.model.modules():
        parts, layer = dict(module.named_children()), getattr(module, "layer_idx", None)
        if "forward" in module.__dict__:
            continue
        if parts.keys() == {*_LAYER}:
            yield module, _Layer(*(parts[name] for name in _LAYER))
        if parts.keys() == _GATED:
            product, activation = (
                modules.product_of((parts["gate_proj"], parts["up_proj"])),
                type(parts["act_fn"]),
            )
            if product and activation in _ACTIVATIONS:
                yield (
                    module,
                    _GatedMLP(product, parts["down_proj"], kernels.gated, _ACTIVATIONS[activation]),
                )
        for projections in _PROJECTIONS:
            if layer in adapter.shapes and {*projections, "o_proj"} <= parts.keys() <= {
                *projections,
                "o_proj",
                *_BESIDE,
            }:
                product = modules.product_of([parts[name] for name in projections])
                own = [parts[name] for name in ("q_norm", "k_norm") if name in parts]
                eps = (
                    _shared_epsilon(own, adapter.shapes[layer].key_size)
                    if norms or not own
                    else None
                )
                if product and eps is not None:
                    yield (
                        module,
                        _Attention(layer, product, parts["o_proj"], kernels.place, tuple(own), eps),
                    )


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
    return mine.shape == own.shape and torch.allclose(
        mine, own, rtol=error, atol=error * float(own.abs().max())
    )
