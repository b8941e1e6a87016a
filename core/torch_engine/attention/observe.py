"""Learns which attention each layer of a model needs, by watching one forward pass that stores
nothing and attends to nothing.

Configs are not trusted: the window that counts is the one in the mask that the model builds for
itself. So the observer also registers a mask builder, keeps the rule of every mask it builds, and
sees which mask reaches which layer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from transformers import AttentionInterface, AttentionMaskInterface

from core.torch_engine.attention.kv_pool import KVShape
from core.torch_engine.attention.plug import CacheOfNoLength

OBSERVER_NAME, SHAPES_NAME = "inflight_observer", "inflight_shapes"
# positions at which a mask's rule is read if the model's context is not shorter
_LONGEST_ROW = 2**20

MaskRule = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""From the positions of queries and of keys: whether each query may attend to each key."""


class PrivateMask(Exception):
    """A layer has neither causal nor sliding-window attention; completes "its layer 3 …"."""


@dataclass
class LayerCall:
    """A layer's call of attention.

    num_heads: of the queries. rule: of the mask that it was given, None if there was none. altered:
    whether the mask was not one that was built here.
    """

    num_heads: int
    shape: KVShape
    passed_window: int | None
    rule: MaskRule | None
    altered: bool
    softcap: float | None = None
    count: int = 1


@dataclass
class Observation:
    """The calls of one pass, by layer."""

    calls: dict[int, LayerCall] = field(default_factory=dict)
    _masks: list[tuple[torch.Tensor, MaskRule]] = field(default_factory=list)

    def build_mask(
        self, q_length: int, kv_length: int, mask_function, device, **kwargs
    ) -> torch.Tensor:
        """Replaces transformers' mask builders: a bool mask `[1, 1, Q, K]` with its rule."""
        zero = torch.zeros((), dtype=torch.long, device=device)

        def rule(query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
            return mask_function(zero, zero, query.to(device), keys.to(device)).cpu()

        queries, keys = torch.arange(q_length)[:, None], torch.arange(kv_length)[None]
        mask = rule(queries, keys).expand(q_length, kv_length)[None, None].contiguous().to(device)
        self._masks.append((mask, rule))
        return mask

    def call(
        self, module, query, key, value, attention_mask, sliding_window=None, softcap=None, **kwargs
    ) -> tuple[torch.Tensor, None]:
        """Replaces attention: records the call and returns zeros."""
        layer = module.layer_idx
        if layer in self.calls:
            self.calls[layer].count += 1
        else:
            rule = self._rule_of(attention_mask)
            altered = attention_mask is not None and rule is None
            shape = KVShape(key.shape[1], key.shape[3], value.shape[3])
            self.calls[layer] = LayerCall(
                num_heads=query.shape[1],
                shape=shape,
                passed_window=sliding_window,
                rule=rule,
                altered=altered,
                softcap=softcap,
            )
        rows, heads, width, _ = query.shape
        return value.new_zeros(rows, width, heads, value.shape[3]), None

    def _rule_of(self, mask) -> MaskRule | None:
        """The rule of a mask built here, or of a view of one; None for any other mask."""
        if isinstance(mask, torch.Tensor):
            for built, rule in self._masks:
                if mask.data_ptr() == built.data_ptr() and mask.shape[-2:] == built.shape[-2:]:
                    return rule
        return None


class ObservingCache(CacheOfNoLength):
    """A cache that notes the shapes of what each layer would store."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, KVShape] = {}

    def update(
        self, key_states, value_states, layer_idx, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Note the shapes of keys and values, `[batch, heads, tokens, head size]`."""
        self.shapes[layer_idx] = KVShape(
            key_states.shape[1], key_states.shape[3], value_states.shape[3]
        )
        return key_states, value_states


_observation: ContextVar[Observation] = ContextVar("inflight_observation")


@contextmanager
def observation() -> Iterator[Observation]:
    """Record the calls of a pass that runs with the attention `OBSERVER_NAME`, or, for a model on
    the meta device, with `SHAPES_NAME`, which builds no masks.
    """
    token = _observation.set(Observation())
    try:
        yield _observation.get()
    finally:
        _observation.reset(token)


for _name in (OBSERVER_NAME, SHAPES_NAME):
    AttentionInterface.register(
        _name, lambda *args, **kwargs: _observation.get().call(*args, **kwargs)
    )
AttentionMaskInterface.register(
    OBSERVER_NAME, lambda **kwargs: _observation.get().build_mask(**kwargs)
)
AttentionMaskInterface.register(SHAPES_NAME, lambda **kwargs: None)


def window_of(call: LayerCall, context: int | None) -> int | None:
    """The sliding window of a layer, None for full causal attention, checked for the first
    `context` positions. Raises PrivateMask for anything else.
    """
    if call.altered:
        raise PrivateMask("puts a mask or position bias of its own in place of the causal one")
    if call.count > 1:
        raise PrivateMask(f"calls attention {call.count} times a pass")
    if call.rule is None:  # no mask: comparing results will show whether that means causal
        if call.passed_window is not None:
            raise PrivateMask("asks for a sliding window, but is handed no mask that confirms it")
        return None
    length = min(context or _LONGEST_ROW, _LONGEST_ROW)
    keys = torch.arange(length)
    last = call.rule(torch.tensor(length - 1), keys)
    width = int(last.sum())
    window = None if width == length else width
    edges = {
        0,
        1,
        2,
        length // 3,
        length // 2,
        length - 2,
        *(m * width + d for m in (1, 2, 3) for d in (-2, -1, 0, 1)),
    }
    for position in sorted(p for p in edges if 0 <= p < length) + [length - 1]:
        expected = keys <= position
        if window is not None:
            expected &= position - keys < window
        if not torch.equal(call.rule(torch.tensor(position), keys).expand(length), expected):
            raise PrivateMask("has a mask that is neither causal nor a sliding window")
    return window
