"""The floor of a run on a CPU: what its matrix products and the reading of its KV cache take alone,
on the same machine in the same rounds.

The products are computed again, pass by pass and layer by layer as the run's passes are on record,
from the model's own weights: every linear layer for all positions of a pass, the head for the
sampled ones. So weights come from memory or from a cache as they do in the run. The product is
oneDNN's on weights in its own layout, the fastest one that torch has but for few rows of small
float32 matrices on Intel's processors, in the number format in which this CPU multiplies the
model's. The bytes that attention reads count at the speed at which this machine reads memory. What
is left out (products within attention, norms, activations, sampling, scheduling) a run has to do,
too.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.pytorch_utils import Conv1D

from core.measure.rounds import Contender, RunResult
from core.torch_engine.cpu.modules import product_type
from core.torch_engine.engine import Engine
from core.torch_engine.models.adapter import ModelAdapter
from core.trace.events import StepEvent

FLOOR = "floor"
"""Its name as a contender; a contender's ratio against it is the share of the floor that it
reaches.
"""
_ROWS = 32  # that the layout is optimised for; 256 makes no difference
_READ_BYTES = 2**28  # many times a processor's cache
_READS = 3  # of which the fastest counts


class Floor:
    """The floor of an engine's latest run, which its first turn must come after.

    clock: seconds.
    """

    def __init__(self, engine: Engine, clock: Callable[[], float]) -> None:
        self._engine, self._clock = engine, clock
        model, dtype = engine.adapter.model, engine.adapter.dtype
        self._dtype = product_type(dtype) if torch.backends.mkldnn.is_available() else dtype
        head = model.get_output_embeddings()
        layers = [
            module
            for module in model.modules()
            if type(module) in (torch.nn.Linear, Conv1D) and module is not head
        ]
        self._layers, self._head = (
            [_product(layer, self._dtype) for layer in layers],
            _product(head, self._dtype),
        )
        self._turns: list[dict[str, float]] = []

    @property
    def contender(self) -> Contender:
        """It takes turns in a race as an engine does."""
        return Contender(FLOOR, self._ready, lambda seconds: RunResult({}, seconds=seconds))

    def about(self) -> dict[str, float]:
        """Medians over the turns after the warm-up: seconds of the products and of reading the
        cache, bytes of it that were read, bytes a second.
        """
        return {
            name: statistics.median(turn[name] for turn in self._turns[1:])
            for name in self._turns[0]
        }

    @contextmanager
    def _ready(self) -> Iterator[Callable[[], float]]:
        adapter, events = self._engine.adapter, self._engine.trace.events
        passes, read = list(rows_of_passes(events)), cache_bytes(events, adapter)
        most = max(rows for rows, _ in passes)
        given = {
            width: torch.randn(most, width, dtype=self._dtype)
            for width, _ in (*self._layers, self._head)
        }
        yield lambda: self._turn(passes, given, read)

    @torch.inference_mode()
    def _turn(
        self, passes: list[tuple[int, int]], given: dict[int, torch.Tensor], read: int
    ) -> float:
        started = self._clock()
        for rows, sampled in passes:
            for width, multiply in self._layers:
                multiply(given[width][:rows])
            if sampled:
                width, multiply = self._head
                multiply(given[width][:sampled])
        products = self._clock() - started
        speed = self._bytes_per_s()
        self._turns.append(
            {
                "products_s": products,
                "cache_s": read / speed,
                "cache_bytes": read,
                "bytes_per_s": speed,
            }
        )
        return products + read / speed

    def _bytes_per_s(self) -> float:
        memory, times = torch.ones(_READ_BYTES // 4), []
        for _ in range(_READS):
            started = self._clock()
            memory.sum()
            times.append(self._clock() - started)
        return _READ_BYTES / min(times)


def _product(layer: Any, dtype: torch.dtype) -> tuple[int, Callable[[torch.Tensor], torch.Tensor]]:
    """A linear layer's width, and what multiplies rows of that width with its weight, all in this
    number format.
    """
    weight, bias = (
        layer.weight.detach().to(dtype),
        (None if layer.bias is None else layer.bias.detach().to(dtype)),
    )
    weight = (weight.t() if isinstance(layer, Conv1D) else weight).contiguous()
    if not torch.backends.mkldnn.is_available():
        return weight.shape[1], lambda rows: torch.nn.functional.linear(rows, weight, bias)
    packed, multiply = (
        torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS),
        torch.ops.mkldnn._linear_pointwise,
    )
    return weight.shape[1], lambda rows: multiply(rows, packed, bias, "none", [], "")


def rows_of_passes(events: Iterable[StepEvent]) -> Iterator[tuple[int, int]]:
    """Of every pass of a run: the positions that were computed, padding included, and how many of
    them were sampled.
    """
    for event in events:
        sampled = [0] * len(event.passes)
        for token in event.sampled:
            sampled[token.pass_index] += 1
        yield from (
            (p.rows * p.width, count) for p, count in zip(event.passes, sampled, strict=True)
        )


def cache_bytes(events: Iterable[StepEvent], adapter: ModelAdapter) -> int:
    """What attention reads in a run: for each segment once, in each layer, the keys and values that
    any of its positions may attend to.
    """
    total = 0
    segments = [segment for event in events for segment in event.segments]
    for layer, shape in adapter.shapes.items():
        window = adapter.windows[layer]
        seen = sum(
            s.kv_len if window is None else min(s.kv_len, s.length + window - 1) for s in segments
        )
        total += (
            seen * shape.num_kv_heads * (shape.key_size + shape.value_size) * adapter.dtype.itemsize
        )
    return total
