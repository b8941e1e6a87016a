"""Runs asked for by visitors: one engine thread each, a line when too many come at once, and nothing shared but the models.

The engine appends events to its trace as it always does; the one who streams reads them from there, so that streaming costs the
engine nothing but a turn of Python's lock. Knows nothing of Gradio.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from core.engine import Engine
from core.errors import InflightError
from core.models import ModelAdapter
from core.trace import Trace
from visualizer.limits import Limits, Refused, Spec, check, check_tokens
from visualizer.replay import Deltas, public_header
from visualizer.shelf import Shelf

PERIOD = 0.04  # seconds between two looks at the trace
_ALIVE = 1.0  # a delta at least this often, so that a closed tab is noticed
_KEPT_RUNS = 8  # whose deltas can be asked for again
_KEPT_MODELS = 3
log = logging.getLogger("inflight")


class Cancelled(Exception):
    """Raised inside an engine thread whose run was cancelled while it waited."""


class Models:
    """Loaded models by name and device, the last few of them. Weights are shared; tokenizers are copied, as they are not thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: OrderedDict[tuple[str, str], Engine] = OrderedDict()

    def get(self, name: str, device: str) -> tuple[ModelAdapter, Any]:
        """A model, loaded at its first use; raises UnsupportedModel."""
        with self._lock:
            key = (name, device)
            if key not in self._loaded:
                self._loaded[key] = Engine.from_pretrained(name, device=device)
                while len(self._loaded) > _KEPT_MODELS:
                    self._loaded.popitem(last=False)
            self._loaded.move_to_end(key)
            engine = self._loaded[key]
            return engine.adapter, copy.deepcopy(engine.tokenizer)


class Run:
    """One run and its engine thread. `stream` is its only reader."""

    def __init__(self, spec: Spec, limits: Limits, models: Models, shelf: Shelf) -> None:
        self.id = secrets.token_urlsafe(12)
        self.deltas: list[dict] = []
        self.trace: Trace | None = None
        self._spec, self._limits, self._models, self._shelf = spec, limits, models, shelf
        self._cancelled, self._ended = threading.Event(), threading.Event()
        self._error: str | None = None  # why it failed, one sentence
        self._stopped: str | None = None  # why it ended early, one sentence
        self._tokenizer: Any = None

    def cancel(self) -> None:
        """End the run after the step it is in."""
        self._cancelled.set()

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled.is_set()

    async def stream(self, turn: Callable[[], int]) -> AsyncIterator[dict]:
        """The run's deltas, numbered by `seq`, until `done`. turn: how many runs are ahead; the engine starts at 0."""
        while (ahead := turn()) and not self.is_cancelled:
            yield self._delta({"progress": {"ahead": ahead}})
            await asyncio.sleep(_ALIVE / 2)
        if self.is_cancelled:
            yield self._delta({"done": True, "stopped": "The run was cancelled before it began."})
            return
        threading.Thread(target=self._work, name=f"run-{self.id}", daemon=True).start()
        try:
            async for delta in self._follow():
                yield delta
        finally:
            self.cancel()  # whoever watched has gone, or all is done

    async def _follow(self) -> AsyncIterator[dict]:
        taken, told, writer, tokens = 0, 0.0, None, 0
        while True:
            ended = self._ended.is_set()  # before looking, so that nothing is missed
            trace = self.trace
            events = trace.events[taken:] if trace is not None else []
            if events or time.monotonic() - told > _ALIVE:
                body: dict[str, Any] = {}
                if writer is None and trace is not None:
                    writer, body["header"] = Deltas(trace.header, self._tokenizer), public_header(trace.header)
                if writer is not None and events:
                    body |= writer.delta(events)
                    taken += len(events)
                    tokens += sum(len(event.sampled) for event in events)
                asked = sum(r.sampling.max_new_tokens for r in self._spec.workload)
                step = events[-1].step if events else None
                yield self._delta(body | {"progress": {"step": step, "tokens": tokens, "total_tokens": asked}})
                told = time.monotonic()
            if ended and (trace is None or taken == len(trace.events)):
                break
            await asyncio.sleep(PERIOD)
        last: dict[str, Any] = {"done": True}
        if self._error:
            last["error"] = self._error
        if self._stopped:
            last["stopped"] = self._stopped
        if self.trace is not None and self.trace.events:
            last |= await asyncio.to_thread(self._shelf.put, self.trace)
        yield self._delta(last)

    def _delta(self, body: dict) -> dict:
        delta = {"run": self.id, "seq": len(self.deltas), **body}
        self.deltas.append(delta)
        return delta

    def _work(self) -> None:
        """The engine thread."""
        try:
            adapter, tokenizer = self._models.get(self._spec.model, self._spec.device)
            engine = Engine(adapter, tokenizer, self._spec.config, sleep=self._sleep)
            steps = engine.stream(self._spec.workload)
            check_tokens(engine.trace.prompts, self._spec.workload, self._limits)
            self._tokenizer, self.trace = tokenizer, engine.trace
            deadline = time.monotonic() + self._limits.seconds
            for count, _ in enumerate(steps, 1):
                if self.is_cancelled:
                    raise Cancelled
                if engine.has_work and count >= self._limits.steps:
                    raise Refused(f"The run was stopped after {count:,} steps, the most that this page runs.")
                if engine.has_work and time.monotonic() > deadline:
                    raise Refused(
                        f"The run was stopped after {self._limits.seconds:,.0f} seconds, the longest that this page runs."
                    )
        except Cancelled:
            steps_run = len(self.trace.events) if self.trace else 0
            self._stopped = f"The run was cancelled after {steps_run:,} step{'' if steps_run == 1 else 's'}."
        except InflightError as error:
            self._error = str(error)
        except Exception as error:  # a bug or a machine out of memory: this run fails, the server goes on
            log.exception("run %s failed", self.id)
            self._error = f"The run failed inside the engine: {type(error).__name__}."
        finally:
            self._ended.set()

    def _sleep(self, seconds: float) -> None:
        """How the engine waits for the next arrival: not beyond a cancellation."""
        if self._cancelled.wait(seconds):
            raise Cancelled


class Runs:
    """All runs of a server. A visitor has one at a time; beyond `concurrent_runs` they wait in line, first come, first served."""

    def __init__(self, limits: Limits, shelf: Shelf, models: Models) -> None:
        self.limits = limits
        self._shelf, self._models = shelf, models
        self._line: dict[str, Run] = {}  # by visitor, in order of arrival; the first few are running
        self._kept: OrderedDict[str, Run] = OrderedDict()

    async def stream(self, spec: object, visitor: str) -> AsyncIterator[dict]:
        """Start a run and stream its deltas. Every refusal is one delta with `error` and `done`."""
        try:
            run = self._enter(spec, visitor)
        except InflightError as error:
            yield {"run": "", "seq": 0, "done": True, "error": str(error)}
            return
        try:
            async for delta in run.stream(lambda: self._ahead(visitor)):
                yield delta
        finally:
            run.cancel()
            del self._line[visitor]

    def cancel(self, run: str) -> bool:
        """Cancel a run by its id, which only its visitor knows; whether there was one."""
        found = self._kept.get(run)
        if found is None:
            return False
        found.cancel()
        return True

    def missing(self, run: str, seq_from: int) -> list[dict]:
        """The deltas of a run from `seq_from` on, for a reader that lost some; empty for a run that is unknown or long over."""
        found = self._kept.get(run)
        return [] if found is None else found.deltas[max(0, seq_from) :]

    def _enter(self, spec: object, visitor: str) -> Run:
        if visitor in self._line:
            raise Refused("Your last run is still going: cancel it or wait for its end.")
        if len(self._line) >= self.limits.concurrent_runs + self.limits.line:
            raise Refused("Too many visitors wait for a run just now: try again in a minute. The recorded runs play on.")
        run = Run(check(spec, self.limits), self.limits, self._models, self._shelf)
        self._line[visitor] = self._kept[run.id] = run
        while len(self._kept) > _KEPT_RUNS + len(self._line):
            self._kept.popitem(last=False)
        return run

    def _ahead(self, visitor: str) -> int:
        """How many runs must end before this visitor's begins."""
        return max(0, list(self._line).index(visitor) - self.limits.concurrent_runs + 1)
