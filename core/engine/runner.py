"""The interfaces of what an engine is given: an executor with the facts of a model on a device, and
the runner that computes its passes. No tensors appear here.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol, Self

from core.config import EngineConfig
from core.scheduler.output import SchedulerOutput
from core.trace.events import Pass
from core.trace.header import ExecutionFacts, ModelFacts
from core.workload.request import SamplingParams


class SamplingRow(NamedTuple):
    """How to choose the token at `position`. prompt, generated: earlier tokens, if needed."""

    params: SamplingParams
    position: int
    prompt: tuple[int, ...] = ()
    generated: tuple[int, ...] = ()
    request: str = ""

    @property
    def noise_key(self) -> int:
        """SplitMix64 of seed and position, as a signed 64-bit integer."""
        mask = 2**64 - 1
        z = (self.params.seed + (self.position + 1) * 0x9E3779B97F4A7C15) & mask
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
        z ^= z >> 31
        return z - 2**64 if z >= 2**63 else z


def sampling_rows(
    output: SchedulerOutput, params: Mapping[str, SamplingParams]
) -> list[SamplingRow]:
    """A row for each request of a pass that samples, in order. params: by request id."""
    return [
        SamplingRow(params[s.request], s.kv_len, s.prompt, s.generated, s.request)
        for s in output.scheduled
        if s.samples
    ]


class Sample(NamedTuple):
    """A chosen token. token_id: None if the logits were not finite. logprob: natural logarithm, at
    temperature 1. margin: the best logit minus the second best.

    Both are of the logits after bias and penalties.
    """

    token_id: int | None
    logprob: float
    margin: float


def as_samples(
    tokens: Iterable[float], logprobs: Iterable[float], margins: Iterable[float]
) -> list[Sample]:
    """Samples from numbers; a token or a logprob that is not finite means bad logits."""
    return [
        (
            Sample(int(token), round(logprob, 5), round(margin, 5))
            if math.isfinite(logprob) and math.isfinite(token)
            else Sample(None, 0.0, 0.0)
        )
        for token, logprob, margin in zip(tokens, logprobs, margins, strict=True)
    ]


@dataclass(slots=True, kw_only=True)
class PassResult:
    """The result of a pass.

    samples: one for each scheduled request that samples, in order. t_start, t_end: the clock's
    times, in seconds. prepare, forward, sample: seconds of its parts. bucket: positions of the CUDA
    graph it ran as, see `core.trace.events.Pass`.
    """

    samples: list[Sample]
    t_start: float
    t_end: float
    prepare: float
    forward: float
    sample: float
    bucket: int | None = None

    def result(self) -> Self:
        """The result itself: a pass that is computed at once is also `Launched`."""
        return self


FACTS_OF_A_PASS = tuple(
    f.name
    for f in fields(PassResult)
    if f.name in Pass._fields and f.name not in ("t_start", "t_end")
)
"""The facts of a pass that enter its step's event unchanged: the fields that `PassResult` and
`Pass` share.
"""


class Launched(Protocol):
    """A pass that has been started."""

    def result(self) -> PassResult:
        """Wait for the result. Passes are read in the order in which they were launched."""
        ...


class Runner(Protocol):
    """What an engine calls to have its passes computed, in the order in which they are launched."""

    @property
    def asynchronous(self) -> bool:
        """Whether `launch` returns before the pass is computed, and accepts UNREAD tokens."""

    @property
    def own_clock(self) -> bool:
        """Whether times come from a device's own clock, off by microseconds."""

    @property
    def execution(self) -> ExecutionFacts | None:
        """The options in effect, as a trace's header has them; None for eager passes."""

    @property
    def notes(self) -> Sequence[str]:
        """A sentence for each unusual circumstance."""

    @property
    def memory(self) -> Mapping[str, int] | None:
        """Bytes of a GPU's memory, by purpose; None elsewhere."""

    def begin(self) -> None:
        """A run begins: reset the clocks."""
        ...

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> Launched:
        """Start one pass, or compute it at once: feed the scheduled tokens, store their K and V in
        the blocks of each request's table, and choose a token for every request that samples.
        params: sampling parameters by request id.

        Errors of the device are raised here or by `result`, see `Executor.failure`.
        """
        ...


class Executor(Protocol):
    """A model on a device: its facts, how many KV blocks it has room for, and its runners."""

    @property
    def model(self) -> ModelFacts:
        """The facts of the model that it computes."""

    @property
    def header(self) -> Mapping[str, Any]:
        """Fields of the header that say where passes are computed: device, dtype, versions."""

    @property
    def memory_sentence(self) -> str:
        """A sentence on how a device's memory is used, if it was measured; otherwise empty."""

    def check_config(self, config: EngineConfig) -> None:
        """Raises InvalidConfig for limits under which this model cannot be run here."""
        ...

    def most_blocks(
        self, config: EngineConfig, longest: int, drop_pool: Callable[[], None]
    ) -> int | None:
        """How many KV blocks the device has memory for; None if memory is no limit. longest: tokens
        of the longest request.

        drop_pool: releases the engine's current pool, so that free memory can be measured. Raises
        InvalidConfig if there is not even room for a pass.
        """
        ...

    def new_runner(
        self, config: EngineConfig, num_blocks: int, clock: Callable[[], float]
    ) -> Runner:
        """A runner with a pool of that many blocks. clock: seconds, as the engine counts them."""
        ...

    def failure(self, error: Exception) -> str | None:
        """What happened to the device, as the end of a sentence; None if it did not fail."""
        ...


# -- observers -------------------------------------------------------------------------------------

Observer = Callable[[Sequence[SamplingRow], Any], None]
"""Receives the requests of each pass that sample, and their logits `[n, V]`, which it must copy to
keep them.
"""

_observer: ContextVar[Observer | None] = ContextVar("inflight_logits_observer", default=None)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Show `observer` the logits of every pass that runs inside the block."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def current_observer() -> Observer | None:
    """The current observer of passes, if any."""
    return _observer.get()
