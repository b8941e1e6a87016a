"""Replaces attention modules, gated MLPs and whole layers of a model on a CPU by a handful of
operations, where the modules take dozens.

A replacement is used only if it gave the module's result, keys and values in a trial pass of the
model. It calls no inner module, so it is not used while an inner module has hooks, or after one was
exchanged (for an adapter, say).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import torch
from transformers.activations import GELUTanh, NewGELUActivation, SiLUActivation

from core.errors import first_sentence
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable
from core.torch_engine.attention.batch import pack
from core.torch_engine.attention.kv_pool import KVPool
from core.torch_engine.attention.plug import current_context
from core.torch_engine.attention.spec import AttentionSpec, Backend
from core.torch_engine.cpu.modules import CPUModules, Operation
from core.torch_engine.models.adapter import ModelAdapter
from core.torch_engine.sampling import LogitStats
from core.torch_engine.stand_ins import Forwards, RMSNorm, are_close, epsilon, forwards_replaced


class CPUKernels(NamedTuple):
    """Kernels that replace torch operations on a CPU, besides attention: those of
    `core.torch_engine.cpu.rows`, and `core.torch_engine.cpu.heads.place`, which turns projections
    into queries and writes keys and values to the pool. norm, stats: None if torch computes them.
    """

    gelu: Operation
    gated: Callable[[torch.Tensor, str], torch.Tensor]
    place: Callable[..., torch.Tensor]
    norm: RMSNorm | None
    stats: LogitStats | None


_PROJECTIONS = (("q_proj", "k_proj", "v_proj"), ("qkv_proj",))
_BESIDE = {"q_norm", "k_norm", "rotary_emb"}  # parts that an attention module may have besides
_LAYER = ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
_GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}
_ACTIVATIONS = {
    SiLUActivation: "silu",
    torch.nn.SiLU: "silu",
    NewGELUActivation: "gelu",
    GELUTanh: "gelu",
}


@dataclass
class _Attention:
    """Replaces an attention module. product: queries, keys and values of some rows; out: the output
    projection; norms, eps: the RMS norms of queries and keys, if any; spec: of the layer's
    attention, known after a first call of the module.
    """

    layer: int
    product: Operation
    out: torch.nn.Module
    place: Callable[..., torch.Tensor]
    norms: Sequence[torch.nn.Module]
    eps: float
    spec: AttentionSpec | None = None

    def __call__(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        **_: Any,
    ) -> tuple[torch.Tensor, None]:
        context, size = current_context(), hidden_states.shape[:2]
        keys, values = context.pool.layers[self.layer]
        rotation = position_embeddings and tuple(
            part.expand(*size, -1).contiguous() for part in position_embeddings
        )
        weights = tuple(norm.get_parameter("weight") for norm in self.norms)
        slots = context.batch.slot_mapping
        rows = self.product(hidden_states)
        query = self.place(rows, rotation, weights, self.eps, keys, values, slots)
        assert self.spec is not None
        attended = context.backend.attend(query, keys, values, context.batch, self.spec)
        return self.out.forward(attended.flatten(2)), None


@dataclass
class _GatedMLP:
    """Replaces a gated MLP. product: the gates, followed by the numbers that they multiply."""

    product: Operation
    out: torch.nn.Module
    gated: Callable[[torch.Tensor, str], torch.Tensor]
    activation: str

    def __call__(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.out.forward(self.gated(self.product(hidden_states), self.activation))


@dataclass
class _Layer:
    """Replaces a pre-norm layer with residual connections: attention, then an MLP."""

    norm: torch.nn.Module
    attention: torch.nn.Module
    second_norm: torch.nn.Module
    mlp: torch.nn.Module

    def __call__(self, hidden_states: torch.Tensor, *_: None, **given: Any) -> torch.Tensor:
        attended, _weights = self.attention.forward(self.norm.forward(hidden_states), **given)
        hidden_states = hidden_states + attended
        return hidden_states + self.mlp.forward(self.second_norm.forward(hidden_states))


Block = _Attention | _GatedMLP | _Layer


class Blocks:
    """Replacements of a model's modules, in addition to those of its `CPUModules`. failures: a
    sentence for each kind of module whose trial raised an exception.
    """

    def __init__(
        self, blocks: Mapping[torch.nn.Module, Block], failures: Sequence[str] = ()
    ) -> None:
        self.failures = failures
        self._blocks = [
            (module.__dict__, block, _Within.of(module)) for module, block in blocks.items()
        ]

    @property
    def forwards(self) -> Forwards:
        """All replacements but those of modules that now have inner hooks or exchanged parts."""
        return [(names, block) for names, block, within in self._blocks if within.is_as_it_was]


class _Within(NamedTuple):
    """The inner parts of a module. hooks: the hooks that calls of inner modules would run, now;
    parts: inner modules by name as they are now, and as they were at the trial.
    """

    hooks: Sequence[Mapping[int, Any]]
    parts: Sequence[tuple[Mapping[str, Any], list[Any]]]

    @classmethod
    def of(cls, module: torch.nn.Module) -> Self:
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
    adapter: ModelAdapter, modules: CPUModules, kernels: CPUKernels, backend: Backend
) -> Blocks:
    """The replacements that give the same results as their modules in a trial pass. Without a
    kernel for norms, attention with norms is not replaced.
    """
    blocks = dict(_candidates(adapter, modules, kernels))
    agreed: dict[torch.nn.Module, Block] = {}
    failures: dict[str, str] = {}
    specs: list[AttentionSpec] = []  # of the latest call of attention

    def attend(*given: Any) -> torch.Tensor:
        specs[:] = [given[-1]]
        return backend.attend(*given)

    def after(
        module: torch.nn.Module, args: tuple[Any, ...], given: dict[str, Any], own: Any
    ) -> None:
        block = blocks[module]
        try:
            if isinstance(block, _Attention):
                block.spec = specs[0]
            if _agrees(block, args, given, own):
                agreed[module] = block
        except Exception as error:  # foreign modules may be called in any way
            name = type(module).__name__
            failures.setdefault(name, f"Nothing stands in for {name}: {first_sentence(error)}.")

    with ExitStack() as stack:
        stack.enter_context(adapter.lock)
        stack.enter_context(forwards_replaced(modules.forwards()))
        for module in blocks:
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        if blocks:
            _run(adapter, replace(backend, attend=attend))
    return Blocks(agreed, tuple(failures.values()))


def _candidates(
    adapter: ModelAdapter, modules: CPUModules, kernels: CPUKernels
) -> Iterator[tuple[torch.nn.Module, Block]]:
    """A possible replacement for each module that is made of the right parts."""
    for module in adapter.model.modules():
        if "forward" in module.__dict__:
            continue
        parts, layer = dict(module.named_children()), getattr(module, "layer_idx", None)
        if parts.keys() == {*_LAYER}:
            yield module, _Layer(*(parts[name] for name in _LAYER))
        if parts.keys() == _GATED:
            product = modules.product_of((parts["gate_proj"], parts["up_proj"]))
            activation = _ACTIVATIONS.get(type(parts["act_fn"]))
            if product and activation:
                yield module, _GatedMLP(product, parts["down_proj"], kernels.gated, activation)
        for projections in _PROJECTIONS:
            needed = {*projections, "o_proj"}
            if layer not in adapter.shapes or not needed <= parts.keys() <= needed | _BESIDE:
                continue
            product = modules.product_of([parts[name] for name in projections])
            own = [parts[name] for name in ("q_norm", "k_norm") if name in parts]
            size = adapter.shapes[layer].key_size
            eps = _shared_epsilon(own, size) if kernels.norm or not own else None
            if product and eps is not None:
                out = parts["o_proj"]
                yield module, _Attention(layer, product, out, kernels.place, own, eps)


def _shared_epsilon(norms: Sequence[torch.nn.Module], size: int) -> float | None:
    """The epsilon of two RMS norms for heads of this size, 0 if there are no norms, else None."""
    epsilons = {epsilon(norm) for norm in norms if norm.get_parameter("weight").shape == (size,)}
    return epsilons.pop() if len(norms) == 2 and len(epsilons) == 1 else None if norms else 0.0


def _agrees(block: Block, args: Sequence[Any], given: Mapping[str, Any], own: Any) -> bool:
    """Whether a replacement gives the result `own` of its module and writes the same keys and
    values. It does not agree if it would ignore an argument, softcap or sinks.
    """
    written: list[torch.Tensor] = []
    context = current_context()
    if isinstance(block, _Attention):
        assert block.spec is not None
        if block.spec.softcap is not None or block.spec.sinks is not None:
            return False
        rotation = given.get("position_embeddings") or ()
        if any(part.dtype != own[0].dtype for part in rotation):
            return False
        written = list(context.pool.layers[block.layer])
    slots = context.batch.slot_mapping
    before = [pool[slots] for pool in written]
    if any(other is not None for other in args[1:]) and isinstance(block, _Layer):
        return False
    mine: Any = block(*args, **given)
    if isinstance(own, tuple) != isinstance(mine, tuple):
        return False
    if isinstance(own, tuple):
        if own[1:] != (None,):
            return False
        mine, own = mine[0], own[0]
    now = [pool[slots] for pool in written]
    pairs = zip((mine, *now), (own, *before), strict=True)
    return all(are_close(one, other, 4) for one, other in pairs)


def _run(adapter: ModelAdapter, backend: Backend) -> None:
    """A pass with two prompts, one of them at the end of the model's context, and a decode."""
    size = 8
    pool = KVPool(adapter.shapes, 3, size, adapter.dtype, adapter.device)
    ids = torch.arange(1, 11).remainder(adapter.vocab_size).tolist()
    parts = (("prompt", ids[:6], 0), ("far", ids[6:9], 0), ("decode", ids[9:], 5))
    scheduled = tuple(
        ScheduledRequest(
            request=name,
            lane=lane,
            phase="prefill",
            tokens=tuple(tokens),
            start=start,
            block_table=BlockTable((lane,)),
            samples=True,
        )
        for lane, (name, tokens, start) in enumerate(parts)
    )
    batch = pack(SchedulerOutput("packed", scheduled), size, pool.trash_slot, adapter.device)
    shift = torch.zeros_like(batch.position_ids)
    shift[0, 6:9] = max(0, (adapter.max_model_len or 0) - 3)
    adapter.forward(replace(batch, position_ids=batch.position_ids + shift), pool, backend)
