"""The interface between an engine and the runner that computes its passes. Knows no model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple, Protocol

from core.scheduler.output import SchedulerOutput
from core.trace.header import ExecutionFacts
from core.workload.request import SamplingParams

if TYPE_CHECKING:
    import torch  # those who decide a run again need none

Observer = Callable[[SchedulerOutput, "torch.Tensor"], None]
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


class Sample(NamedTuple):
    """token_id: None where the logits were not finite. logprob: natural, at temperature 1. margin: best logit less the runner-up's.

    Both are of the logits after bias and penalties.
    """

    token_id: int | None
    logprob: float
    margin: float


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
    """What an engine calls to have its passes computed, in the order in which they are launched.

    asynchronous: `launch` returns before the pass is computed and takes UNREAD tokens from the passes launched before.
    execution: the options in effect, as a trace's header tells them; None for passes computed one by one at once. notes: a sentence
    for each thing that is not as one would expect.
    """

    @property
    def asynchronous(self) -> bool: ...
    @property
    def execution(self) -> ExecutionFacts | None: ...
    @property
    def notes(self) -> Sequence[str]: ...
    def begin(self) -> None:
        """A run begins: clocks are set."""
        ...

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> Launched: ...
