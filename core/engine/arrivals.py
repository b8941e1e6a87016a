"""Requests that have been accepted but have not arrived yet, and how they reach a step loop."""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any

from core.engine.loop import StepLoop
from core.scheduler.state import RequestState
from core.workload.workload import ArrivalUnit


class FutureRequests:
    """The requests that have not arrived yet, by arrival and then in the order of submission.
    Arrivals count in the unit of the run, steps or seconds.
    """

    def __init__(self) -> None:
        self._states: dict[str, RequestState] = {}
        # A request that is taken out of turn stays in the heap until it reaches the front.
        self._heap: list[tuple[float, int, RequestState]] = []

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, request: str) -> bool:
        return request in self._states

    @property
    def first(self) -> RequestState | None:
        """The request that arrives next, or None if no request is left."""
        while self._heap:
            state = self._heap[0][2]
            if self._states.get(state.id) is state:
                return state
            heappop(self._heap)
        return None

    def add(self, state: RequestState) -> None:
        """Take in a request that has not arrived."""
        self._states[state.id] = state
        heappush(self._heap, (state.request.arrival, state.arrival_index, state))

    def turn(self, request: str) -> tuple[float, int]:
        """When a request arrives, and its place among those that arrive then; it must be here."""
        state = self._states[request]
        return state.request.arrival, state.arrival_index

    def take(self, request: str) -> RequestState:
        """Take out a request before its arrival; it must be here."""
        return self._states.pop(request)

    def take_due(self, now: float) -> Iterator[RequestState]:
        """Take out the requests whose arrival has come, in order."""
        while (state := self.first) is not None and state.request.arrival <= now:
            yield self.take(state.id)


class ArrivalQueue:
    """The source of a live engine's loop. Requests arrive at their time by the engine's clock and
    leave at theirs; a client may cancel one before any step.
    """

    def __init__(self, unit: ArrivalUnit) -> None:
        self.future = FutureRequests()
        self._unit = unit
        self._cancelled: list[str] = []
        self._leaving: list[tuple[float, str]] = []  # a heap: when, by the clock of arrivals

    def __bool__(self) -> bool:
        return bool(self.future) or bool(self._cancelled)

    def cancel(self, request: str) -> None:
        """End an unfinished request when the next step begins."""
        self._cancelled.append(request)

    def deliver(self, loop: StepLoop[Any]) -> None:
        """See `Source`. A request that is cancelled before its arrival arrives first."""
        for request in self._cancelled:
            if request in self.future:
                self._arrive(self.future.take(request), loop)
            loop.scheduler.cancel(request)
        self._cancelled.clear()
        now = loop.number if self._unit == "step" else loop.elapsed
        for state in self.future.take_due(now):
            self._arrive(state, loop)
        while self._leaving and self._leaving[0][0] <= now:
            loop.scheduler.cancel(heappop(self._leaving)[1])

    def _arrive(self, state: RequestState, loop: StepLoop[Any]) -> None:
        planned = state.request.arrival if self._unit == "s" else loop.now
        loop.arrive(state, round(min(planned, loop.now), 6))
        if (leaves := state.request.leaves_after) is not None:
            heappush(self._leaving, (state.request.arrival + leaves, state.id))
