"""The work that a page can ask for: each kind has a checked spec and runs as a generator.

The generator yields wherever it can be stopped or may have news, and returns its answer, which
becomes the last delta. Its driver limits the time and does other things in between: a thread of the
server (`visualizer.server.jobs`), or the worker of a browser tab (`visualizer.browser.answers`).
"""

import logging
from collections.abc import Callable, Generator, Iterator
from typing import Any, Protocol, TypeVar

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InflightError, InvalidRequest
from core.trace.events import RECORDS, StepEvent
from core.trace.messages import english
from core.trace.trace import Trace
from core.workload.workload import Workload
from visualizer.documents.replay import Deltas
from visualizer.jobs.limits import Limits, Refused, Spec, TimeIsUp, as_the_page_says, check_tokens

Going = Generator[Any, None, dict[str, Any]]
Turn = TypeVar("Turn")
Made = TypeVar("Made")
log = logging.getLogger("inflight")


class Host(Protocol):
    """Provides engines and storage for the work, on the server or in a tab."""

    def engine(self, spec: Spec, config: EngineConfig, leaks: bool = False) -> EngineCore:
        """An engine on the spec's model with these limits. leaks: every request also reads the keys
        of its neighbour in the pass. Raises InflightError.
        """
        ...

    def between(self) -> None:
        """Called between steps of a timed run, which cannot yield; may raise to stop it."""
        ...

    def keep(self, trace: Trace) -> dict[str, Any]:
        """Store a run if possible: `{"id", "url"}`, or `{"unkept": why not}`."""
        ...

    def keep_document(self, document: dict[str, Any]) -> str:
        """Store a document; returns its address. Raises InflightError."""
        ...

    def recorded(self, run: object) -> Trace:
        """A stored run by its id. Raises InflightError."""
        ...


class Work:
    """One piece of work. Each kind defines what is done (`run`, then `keep`) and what is reported
    meanwhile (`news`).

    noun: its name in sentences. period: the least seconds between two deltas.
    """

    noun = "job"
    period = 0.1

    def __init__(self, spec: Spec, limits: Limits) -> None:
        self.spec, self.limits = spec, limits
        self.progress: dict[str, Any] = {}
        self._last_news: dict[str, Any] | None = None

    def run(self, host: Host) -> Going:
        """Do the work; returns the answer. Raises InflightError."""
        raise NotImplementedError

    def keep(self, host: Host) -> dict[str, Any]:
        """Store what there is after the work, even if it failed; returns a part of the answer."""
        return {}

    def news(self) -> dict[str, Any] | None:
        """The next delta, None if nothing is new. May be called from another thread."""
        progress = self.so_far()
        if progress == self._last_news:
            return None
        self._last_news = dict(progress)
        return {"progress": self._last_news}

    def so_far(self) -> dict[str, Any]:
        """The current progress. May be called from another thread."""
        return self.progress

    def stopped(self) -> str:
        """The reason for an early end, in a sentence."""
        return f"The {self.noun} was cancelled."

    def failed(self, error: Exception) -> dict[str, Any]:
        """The answer if the work raised this: a refusal, a bug, or lack of memory."""
        if isinstance(error, InvalidRequest):
            # its requests have the page's letters
            return {"error": str(as_the_page_says(error, self.spec.workload))}
        if isinstance(error, InflightError | TimeIsUp):
            return {"error": str(error)}
        log.error("a %s failed", self.noun, exc_info=error)
        return {"error": f"The {self.noun} failed inside the engine: {type(error).__name__}."}

    # -- for the kinds -----------------------------------------------------------------------------

    def followed(
        self, turns: Generator[Turn, None, Made], progress: Callable[[Turn], dict[str, Any]]
    ) -> Generator[None, None, Made]:
        """Run a generator to its end; returns its result. Each value sets the progress."""
        try:
            while True:
                self.progress = progress(next(turns))
                try:
                    yield
                except TimeIsUp as up:
                    turns.throw(up)
        except StopIteration as end:
            return end.value

    def steps(self, engine: EngineCore, workload: Workload) -> Iterator[StepEvent | None]:
        """The steps of an engine, None while it waits for an arrival. Everything is checked before
        the first step; raises InflightError.
        """
        turns = engine.turns(workload)
        check_tokens(engine.trace.prompts, workload, self.limits)

        def taken() -> Iterator[StepEvent | None]:
            count = 0
            for event in turns:
                yield event
                count += event is not None
                if count >= self.limits.steps and engine.has_work:
                    raise Refused(
                        f"The {self.noun} was stopped after {count:,} steps, the most that this"
                        " page runs."
                    )

        return taken()


class Run(Work):
    """One run, reported step by step. trace, tokenizer: set once the requests are accepted."""

    noun = "run"
    period = 0.04
    leaks = False

    def __init__(self, spec: Spec, limits: Limits) -> None:
        super().__init__(spec, limits)
        self.trace: Trace | None = None
        self.tokenizer: Any = None
        self._deltas: Deltas | None = None
        self._num_sent = 0
        self.progress = {
            "step": None,
            "tokens": 0,
            "total_tokens": sum(r.sampling.max_new_tokens for r in spec.workload),
        }

    def stopped(self) -> str:
        steps = len(self.trace.events) if self.trace else 0
        return english(f"The run was cancelled after {steps:,} [step|steps].")

    def run(self, host: Host) -> Going:
        engine = host.engine(self.spec, self.spec.config, self.leaks)
        steps = self.steps(engine, self.spec.workload)
        self.tokenizer, self.trace = engine.tokenizer, engine.trace
        for _ in steps:
            if engine.has_work:
                yield
        return {}

    def keep(self, host: Host) -> dict[str, Any]:
        return host.keep(self.trace) if self.trace is not None and self.trace.events else {}

    def news(self) -> dict[str, Any] | None:
        trace, body = self.trace, {}
        if trace is None:
            return super().news() if "loading" in self.progress else None
        if self._deltas is None:
            self._deltas = Deltas.of(trace, self.tokenizer)
            body = {"records": RECORDS, "header": trace.about()}
        events = trace.events[self._num_sent :]
        if events:
            body |= self._deltas.delta(events)
            self._num_sent += len(events)
            tokens = self.progress["tokens"] + sum(len(event.sampled) for event in events)
            self.progress = {**self.progress, "step": events[-1].step, "tokens": tokens}
        return {**body, "progress": self.progress} if body else None


class LeakyRun(Run):
    """A run with a leaking mask: every request also reads the keys of the next one in the pass."""

    leaks = True
