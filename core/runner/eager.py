"""Runs one scheduled pass: pack, forward, sample. Owns the KV tensors, returns tokens and timings, changes nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, Protocol

import torch

from core.attention import cpu
from core.attention.batch import pack
from core.attention.kv_pool import KVPool
from core.attention.spec import Backend
from core.models.load import ModelAdapter
from core.runner.sampling import Sample, SamplingRow, sample
from core.runner.weights import packed_weights
from core.scheduler.output import SchedulerOutput
from core.workload.request import SamplingParams

Observer = Callable[[SchedulerOutput, torch.Tensor], None]
"""Is shown each pass and the logits `[n, V]` of the requests in it that sample, in their order."""

_observer: ContextVar[Observer | None] = ContextVar("inflight_logits_observer", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show `observer` the logits of every pass that runs inside."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def current_observer() -> Observer | None:
    """Who watches the passes now, if anybody."""
    return _observer.get()


class PassResult(NamedTuple):
    """samples: one for each scheduled request that samples, in order. Times are those of the clock, in seconds.

    bucket: see `core.trace.events.Pass`.
    """

    samples: list[Sample]
    t_start: float
    t_end: float
    prepare: float
    forward: float
    sample: float
    bucket: int | None = None

    def result(self) -> PassResult:
        """Itself: a pass that was computed at once has been `Launched` too."""
        return self


class Launched(Protocol):
    """A pass on its way; `result` waits for it."""

    def result(self) -> PassResult: ...


class Runner(Protocol):
    """What an engine needs of whatever computes its passes, in the order in which they are launched.

    asynchronous: `launch` returns before the pass is computed and takes UNREAD tokens from the passes launched before.
    execution: the options in effect, as a trace's header tells them; empty for passes computed one by one at once. notes: a sentence
    for whatever is not as one would expect.
    """

    @property
    def asynchronous(self) -> bool: ...
    @property
    def execution(self) -> dict: ...
    @property
    def notes(self) -> Sequence[str]: ...
    def begin(self) -> None:
        """A run begins: clocks are set."""
        ...

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> Launched: ...


class ModelRunner:
    """A model and its KV pool of `num_blocks` blocks."""

    asynchronous = False
    execution: dict = {}
    notes: Sequence[str] = ()

    def __init__(
        self,
        adapter: ModelAdapter,
        num_blocks: int,
        block_size: int,
        backend: Backend = cpu.BACKEND,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.adapter, self.backend, self.clock = adapter, backend, clock
        self.pool = KVPool(adapter.shapes, num_blocks, block_size, adapter.dtype, adapter.device)
        self._weights = packed_weights(getattr(adapter, "model", None))

    def begin(self) -> None:
        """See `Runner`."""

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        """Compute a pass. params: sampling by request id."""
        t0 = self.clock()
        batch = pack(output, self.pool.block_size, self.pool.trash_slot, self.adapter.device)
        rows = [SamplingRow(params[s.request], s.kv_len) for s in output.scheduled if s.samples]
        t1 = self.clock()
        with self._weights.in_use():
            logits = self.adapter.forward(batch, self.pool, self.backend)
        if self.adapter.device.type != "cpu":
            torch.accelerator.synchronize()  # or sampling would be charged with what the device still computes
        t2 = self.clock()
        observer = current_observer()
        if observer is not None:
            observer(output, logits)
        samples = sample(logits, rows) if rows else []
        t3 = self.clock()
        return PassResult(samples, t0, t3, t1 - t0, t2 - t1, t3 - t2)
