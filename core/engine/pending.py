"""Requests that were accepted and have not arrived yet, by arrival and then in the order in which they came. Knows no clock."""

from __future__ import annotations

from bisect import bisect_left, insort

from core.scheduler.state import RequestState


class Pending:
    """Arrivals count in the unit of the run, steps or seconds."""

    def __init__(self) -> None:
        self._states: list[tuple[float, int, RequestState]] = []  # arrival, order, request; sorted

    def __bool__(self) -> bool:
        return bool(self._states)

    @property
    def next_arrival(self) -> float:
        """When the next request arrives; there must be one."""
        return self._states[0][0]

    def add(self, state: RequestState) -> None:
        insort(self._states, (*_key(state), state))

    def take_due(self, now: float) -> list[RequestState]:
        """Take out the requests whose arrival has come, in order."""
        due = 0
        while due < len(self._states) and self._states[due][0] <= now:
            due += 1
        taken = [state for _, _, state in self._states[:due]]
        del self._states[:due]
        return taken

    def withdraw(self, state: RequestState) -> bool:
        """Take out a request before its arrival; False if it has arrived."""
        index = bisect_left(self._states, _key(state))
        if index == len(self._states) or self._states[index][2] is not state:
            return False
        del self._states[index]
        return True


def _key(state: RequestState) -> tuple[float, int]:
    return state.request.arrival, state.arrival_index
