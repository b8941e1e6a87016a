"""Recorders keep what an engine did: everything, or the last part of an endless run."""

from collections.abc import Callable, Sequence
from typing import Any

from core.trace.events import StepEvent
from core.trace.file import TokenizedRequest
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.request import Request


class TraceRecorder:
    """Keeps the whole run."""

    trace: Trace

    def begin(self, header: Header, tokenizer: Any | None) -> None:
        """A run begins: start a new trace; the previous one stays as it is."""
        self.trace = Trace(header, {}, [], complete=False, tokenizer=tokenizer)

    def knows(self, request: str) -> bool:
        """Whether a request with this id is recorded."""
        return request in self.trace.asked

    def request(self, request: Request, prompt: Sequence[int]) -> None:
        """A request was accepted. prompt: its token ids."""
        self.trace.asked[request.id] = TokenizedRequest(request, list(prompt))

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        """A step was taken; records and returns the event that `event` creates."""
        made = event()
        self.trace.events.append(made)
        return made


class Window(TraceRecorder):
    """Keeps the end of a run: the steps of its last `tokens` tokens, with their requests."""

    def __init__(self, tokens: int) -> None:
        self._most = tokens

    def begin(self, header: Header, tokenizer: Any | None) -> None:
        super().begin(header, tokenizer)
        self._kept = 0

    def record(self, event: Callable[[], StepEvent]) -> StepEvent:
        made = super().record(event)
        events, gone = self.trace.events, 0
        self._kept += _weight(made)
        while self._kept - _weight(events[gone]) >= self._most:
            self._kept -= _weight(events[gone])
            for finished in events[gone].finished:
                del self.trace.asked[finished.request]
            gone += 1
        del events[:gone]
        return made


def _weight(event: StepEvent) -> int:
    """The tokens of a step, at least 1, since a step without tokens takes memory too."""
    return max(1, len(event.sampled))
