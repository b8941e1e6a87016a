"""Runs asked for by visitors: one engine thread each, a line when too many come at once, and nothing shared but the models.

The engine appends events to its trace as it always does; the one who streams reads them from there, so that streaming costs the
engine nothing but a turn of Python's lock. Knows nothing of Gradio.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from core.errors import InflightError
from core.models.cache import Models
from visualizer.documents.replay import Deltas, public_header
from visualizer.server.lent_gpu import work_for
from visualizer.server.limits import Limits, Refused, Spec, check
from visualizer.server.store import Shelf

PERIOD = 0.04  # seconds between two looks at the trace
_ALIVE = 1.0  # a delta at least this often, so that a closed tab is noticed
_KEPT_RUNS = 8  # whose deltas can be asked for again


class Run:
    """One run as its visitor sees it. `stream` is its only reader."""

    def __init__(self, spec: Spec, limits: Limits, models: Models, shelf: Shelf) -> None:
        self.id = secrets.token_urlsafe(12)
        self.deltas: list[dict] = []
        self._spec, self._shelf = spec, shelf
        self._work = work_for(spec, limits, models)

    def cancel(self) -> None:
        """End the run after the step it is in."""
        self._work.cancel()

    @property
    def is_cancelled(self) -> bool:
        return self._work.is_cancelled

    async def stream(self, turn: Callable[[], int]) -> AsyncIterator[dict]:
        """The run's deltas, numbered by `seq`, until `done`. turn: how many runs are ahead; the engine starts at 0."""
        while (ahead := turn()) and not self.is_cancelled:
            yield self._delta({"progress": {"ahead": ahead}})
            await asyncio.sleep(_ALIVE / 2)
        if self.is_cancelled:
            yield self._delta({"done": True, "stopped": "The run was cancelled before it began."})
            return
        self._work.start()
        try:
            async for delta in self._follow():
                yield delta
        finally:
            self.cancel()  # whoever watched has gone, or all is done

    async def _follow(self) -> AsyncIterator[dict]:
        work, taken, told, writer, tokens = self._work, 0, 0.0, None, 0
        while True:
            ended = work.ended.is_set()  # before looking, so that nothing is missed
            trace = work.trace
            events = trace.events[taken:] if trace is not None else []
            if events or time.monotonic() - told > _ALIVE:
                body: dict[str, Any] = {}
                if writer is None and trace is not None:
                    writer, body["header"] = Deltas(trace.header, work.tokenizer), public_header(trace.header)
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
        if work.error:
            last["error"] = work.error
        if work.stopped:
            last["stopped"] = work.stopped
        if work.trace is not None and work.trace.events:
            last |= await asyncio.to_thread(self._shelf.put, work.trace)
        yield self._delta(last)

    def _delta(self, body: dict) -> dict:
        delta = {"run": self.id, "seq": len(self.deltas), **body}
        self.deltas.append(delta)
        return delta


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
