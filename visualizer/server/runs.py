"""Runs asked for by visitors, as jobs. The engine appends events to its trace as it always does; what is streamed is read from there, so
that streaming costs the engine nothing but a turn of Python's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from core.errors import InflightError, InvalidRequest
from core.runner.threads import CORE_SHARES
from core.trace.messages import english
from visualizer.documents.replay import Deltas
from visualizer.server.jobs import Job
from visualizer.server.limits import Limits, Refused, Spec, as_the_page_says, check_tokens
from visualizer.server.store import Store

if TYPE_CHECKING:
    from core.models.cache import Models
    from core.runner.engine import Engine
    from core.trace.events import StepEvent
    from core.trace.trace import Trace
    from core.workload.workload import Workload


class Run(Job):
    """One run. trace, tokenizer: there once the requests are accepted. store: where it is kept; None where somebody else keeps it."""

    noun = "run"
    queue = "runs"
    period = 0.04

    def __init__(self, spec: Spec, limits: Limits, models: Models, store: Store | None = None) -> None:
        super().__init__(limits.seconds)
        self.trace: Trace | None = None
        self.tokenizer: Any = None
        self._spec, self._limits, self._models, self._store = spec, limits, models, store
        self._writer: Deltas | None = None
        self._num_told = 0
        self.progress = {"step": None, "tokens": 0, "total_tokens": sum(r.sampling.max_new_tokens for r in spec.workload)}

    def cancelled(self) -> str:
        if not self.has_begun:
            return super().cancelled()
        steps = len(self.trace.events) if self.trace else 0
        return english(f"The run was cancelled after {steps:,} [step|steps].")

    def work(self) -> dict[str, Any]:
        """Compute it."""
        engine, steps = self.prepare(self._spec.device)
        self.tokenizer, self.trace = engine.tokenizer, engine.trace
        for _ in steps:
            pass
        return {}

    def refused(self, error: InflightError) -> str:
        return refusal(error, self._spec.workload)

    def keep(self) -> dict[str, Any]:
        return self._store.keep(self.trace) if self._store is not None and self.trace is not None and self.trace.events else {}

    def prepare(self, device: str) -> tuple[Engine, Iterator[StepEvent]]:
        """The engine and its steps to come; raises InflightError if the model cannot run them or the page does not accept them."""
        engine = self._engine(device)
        return engine, bounded(engine, self._spec.workload, self, self._limits)

    def _engine(self, device: str) -> Engine:
        from core.runner.engine import Engine  # with torch, which the first paint does not wait for

        return Engine(*self._models.get(self._spec.model, device), self._spec.config, sleep=self.sleep)

    def news(self) -> dict[str, Any] | None:
        trace, body = self.trace, {}
        if trace is None:
            return None
        if self._writer is None:
            self._writer, body["header"] = Deltas.of(trace, self.tokenizer), trace.about()
        events = trace.events[self._num_told :]
        if events:
            body |= self._writer.delta(events)
            self._num_told += len(events)
            tokens = self.progress["tokens"] + sum(len(event.sampled) for event in events)
            self.progress = {**self.progress, "step": events[-1].step, "tokens": tokens}
        return {**body, "progress": self.progress} if body else None


class LeakyRun(Run):
    """A run with the mask's wall taken away: every request also reads the keys of the next one in the pass."""

    def _engine(self, device: str) -> Engine:
        from core.measure.mistakes import leaky_engine

        return leaky_engine(*self._models.get(self._spec.model, device), self._spec.config, self.sleep)


def refusal(error: InflightError, workload: Workload) -> str:
    """The refusal with the page's letter for the request."""
    return str(as_the_page_says(error, workload) if isinstance(error, InvalidRequest) else error)


def bounded(engine: Engine, workload: Workload, job: Job, limits: Limits) -> Iterator[StepEvent]:
    """The steps of an engine that can be stopped at every one of them. All is checked before the first; raises InflightError."""
    steps = engine.stream(workload)
    check_tokens(engine.trace.prompts, workload, limits)

    def taken() -> Iterator[StepEvent]:
        CORE_SHARES.apply()
        for count, event in enumerate(steps, 1):
            yield event
            CORE_SHARES.apply()
            if engine.has_work:
                job.check()
                if count >= limits.steps:
                    raise Refused(f"The {job.noun} was stopped after {count:,} steps, the most that this page runs.")

    return taken()


def lengths_checked(engine: Engine, workload: Workload, limits: Limits) -> None:
    """Prompts as tokens, by an engine that is asked to check them and nothing more; raises InflightError."""
    engine.stream(workload).close()  # type: ignore[attr-defined]
    check_tokens(engine.trace.prompts, workload, limits)
