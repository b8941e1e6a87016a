"""The runs of a serving engine, each kept from its first step, so that a saved run can be replayed
and passes `check`.

A trace that begins in the middle could not be replayed, so the beginning of a run is never cut off.
When room runs out between two requests, the engine begins a new run and the oldest one is dropped
(`is_due`). When it runs out while the engine is busy without a pause, the later steps of that run
are not kept, and the trace says so.
"""

from __future__ import annotations

import pickle
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from core.engine.recorder import TraceRecorder
from core.errors import InflightError, shown
from core.trace.events import StepEvent
from core.trace.header import Header
from core.trace.messages import english
from core.trace.trace import Trace
from core.workload.request import Request

_REQUEST = 16  # a request takes the room of this many tokens beside its prompt
_PACKED = 256  # steps


class Session(TraceRecorder):
    """tokens: room for the tokens of prompts and answers in all runs; a step counts as at least
    one. model: the name of the model in the header, because its path may be private.
    """

    def __init__(self, tokens: int, model: str) -> None:
        # the lock: for readers in other threads than the engine's
        self._most, self._model, self._lock = tokens, model, threading.Lock()
        self._runs: deque[_RecordedRun] = deque()
        self.run = -1  # its number, from 0
        self.latest: deque[StepEvent] = deque(maxlen=4)  # events, kept or not

    def begin(self, header: Header, tokenizer: Any | None) -> None:
        with self._lock:
            header = replace(header, model=replace(header.model, name=self._model))
            super().begin(header, tokenizer)
            if self._runs and not self._runs[-1].events:
                self._runs.pop()  # nothing ran
            self.run += 1
            self.latest.clear()
            self._runs.append(_RecordedRun(self.run, self.trace))

    def knows(self, request: str) -> bool:
        return super().knows(request) or request in self._now.open

    def request(self, request: Request, prompt: Sequence[int]) -> None:
        with self._lock:
            if self._has_room(len(prompt) + _REQUEST):
                super().request(request, prompt)
            self._now.open.add(request.id)

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        made = event()
        weight = max(1, len(made.sampled))
        with self._lock:
            run = self._now
            self.latest.append(made)
            if self._has_room(weight):
                run.events.append(made)
            else:
                run.num_lost += 1
            # last: a run is whole only if the ends of its requests are kept
            run.open.difference_update(finished.request for finished in made.finished)
        return made

    @property
    def is_due(self) -> bool:
        """Whether the next request should begin a new run."""
        return self._now.is_cut or self._now.size > self._most // 2

    @property
    def is_full(self) -> bool:
        """Whether later steps of this run are no longer kept."""
        return self._now.is_cut

    def copy(self, run: int | None = None) -> Trace:
        """A copy of a run so far, by default the latest in which something happened. Raises
        InflightError if it is not kept. It has no texts.
        """
        with self._lock:
            there = [kept for kept in self._runs if kept.events and run in (None, kept.number)]
            if not there:
                raise InflightError(
                    "Nothing has run yet." if run is None else f"Run {shown(run)} is not kept."
                )
            kept = there[-1]
            header, asked, events = kept.trace.header, dict(kept.trace.asked), kept.events.copy()
            if kept.is_cut:
                header = replace(header, notes=(*header.notes, kept.sentence))
            complete = not kept.open and not kept.is_cut
        # unpacked while the engine goes on
        return Trace(header, asked, list(events), complete=complete)

    @property
    def kept(self) -> list[tuple[int, int]]:
        """(number, steps) of every run that `copy` has."""
        with self._lock:
            return [(kept.number, len(kept.events)) for kept in self._runs if kept.events]

    @property
    def _now(self) -> _RecordedRun:
        return self._runs[-1]

    def _has_room(self, more: int) -> bool:
        """Reserve room for a part of the run, dropping older runs if needed; returns whether there
        is room. Once room has run out, the rest of this run is not kept.
        """
        run = self._now
        while len(self._runs) > 1 and sum(kept.size for kept in self._runs) + more > self._most:
            self._runs.popleft()
        run.is_cut = run.is_cut or run.size + more > self._most
        if not run.is_cut:
            run.size += more
        return not run.is_cut


class _Events:
    """The events of a run, in order. All but the last few are compressed: an event's objects take
    some 3 kB and are walked by each garbage collection; compressed, an event takes 0.2 kB.
    """

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._last: list[StepEvent] = []

    def append(self, event: StepEvent) -> None:
        self._last.append(event)
        if len(self._last) == _PACKED:
            self._packed.append(zlib.compress(pickle.dumps(self._last), 1))
            self._last = []

    def copy(self) -> _Events:
        made = _Events()
        made._packed, made._last = self._packed[:], self._last[:]
        return made

    def __len__(self) -> int:
        return len(self._packed) * _PACKED + len(self._last)

    def __iter__(self) -> Iterator[StepEvent]:
        for packed in self._packed:
            yield from pickle.loads(zlib.decompress(packed))
        yield from self._last


class _RecordedRun:
    """trace: without its events. open: requests that have not ended. is_cut: whether something was
    not kept for lack of room. num_lost: how many steps were not kept.
    """

    def __init__(self, number: int, trace: Trace) -> None:
        self.number, self.trace, self.events = number, trace, _Events()
        self.open: set[str] = set()
        self.size = self.num_lost = 0
        self.is_cut = False

    @property
    def sentence(self) -> str:
        steps = english(f"{self.num_lost:,} later [step was|steps were]")
        return (
            f"The engine was busy without a pause for longer than the record has room: {steps} not"
            " kept."
        )
