"""The waiting queue: who is admitted next. Knows the arrival, prompt and status of requests, nothing of lanes or blocks.

Preempted requests come first, the oldest of them at the head, but where they join the end. A request that was admitted or cancelled is no longer
WAITING: its entry is dropped when it comes to the front, so that nothing ever searches the queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from core.config import BatchingPolicy, Order
from core.scheduler.state import RequestState, RequestStatus


class WaitingQueue:
    """First come, first served."""

    def __init__(self, policy: BatchingPolicy) -> None:
        self._aging = policy.aging
        self._preempted: deque[RequestState] = deque()
        self._arrived: deque[RequestState] = deque()  # by arrival
        self._num_arrived = 0  # ever
        self._num_new = 0  # waiting, and never admitted
        self._num_preempted = 0  # waiting, and preempted

    def __len__(self) -> int:
        return self._num_new + self._num_preempted

    def __iter__(self) -> Iterator[RequestState]:
        """The preempted, then the others by arrival."""
        yield from (s for s in self._preempted if s.status is RequestStatus.PREEMPTED)
        yield from (s for s in self._arrived if s.status is RequestStatus.WAITING)

    def add(self, state: RequestState) -> None:
        """Join the end of the queue; the place in it is the request's order."""
        state.order = self._num_arrived
        self._arrived.append(state)
        self._num_arrived += 1
        self._num_new += 1

    def put_back(self, state: RequestState) -> None:
        """Return to the head of the queue."""
        state.status = RequestStatus.PREEMPTED
        self._preempted.appendleft(state)
        self._num_preempted += 1

    def remove(self, state: RequestState, status: RequestStatus) -> None:
        """Take a request out of the queue. status: what became of it, admitted or cancelled."""
        if state.status is RequestStatus.PREEMPTED:
            self._num_preempted -= 1
        else:
            self._num_new -= 1
        state.status = status

    def head(self) -> RequestState | None:
        """Who is next."""
        while self._preempted and self._preempted[0].status is not RequestStatus.PREEMPTED:
            self._preempted.popleft()
        return self._preempted[0] if self._preempted else self._first()

    def _first(self) -> RequestState | None:
        """The next request that was never admitted."""
        return self._oldest()

    def _oldest(self) -> RequestState | None:
        while self._arrived and self._arrived[0].status is not RequestStatus.WAITING:
            self._arrived.popleft()
        return self._arrived[0] if self._arrived else None


class ShortestFirst(WaitingQueue):
    """The shortest prompt first, then by arrival; the oldest request is next once `aging` who came later have left before it."""

    def __init__(self, policy: BatchingPolicy) -> None:
        super().__init__(policy)
        self._by_length: list[tuple[int, int, RequestState]] = []  # a heap

    def add(self, state: RequestState) -> None:
        super().add(state)
        heappush(self._by_length, (state.num_prompt_tokens, state.order, state))

    def _first(self) -> RequestState | None:
        oldest = self._oldest()
        if oldest is None or self._is_due(oldest):
            return oldest
        while self._by_length[0][2].status is not RequestStatus.WAITING:
            heappop(self._by_length)
        return self._by_length[0][2]

    def _is_due(self, oldest: RequestState) -> bool:
        """All that came before the oldest have left, so of all that have left, those beyond its own number came later."""
        return self._aging is not None and self._num_arrived - self._num_new - oldest.order >= self._aging


class Requeue(WaitingQueue):
    """First come, first served; who is preempted comes anew."""

    def __init__(self, policy: BatchingPolicy) -> None:
        super().__init__(policy)
        self._waiting: dict[str, RequestState] = {}

    def __iter__(self) -> Iterator[RequestState]:
        yield from list(self._waiting.values())  # a copy: the caller may admit them one by one

    def add(self, state: RequestState) -> None:
        super().add(state)
        self._waiting[state.id] = state

    def put_back(self, state: RequestState) -> None:
        super().put_back(state)
        self._waiting[state.id] = state

    def remove(self, state: RequestState, status: RequestStatus) -> None:
        super().remove(state, status)
        del self._waiting[state.id]

    def head(self) -> RequestState | None:
        return next(iter(self._waiting.values()), None)


QUEUES: dict[Order, type[WaitingQueue]] = {"arrival": WaitingQueue, "shortest": ShortestFirst, "requeue": Requeue}
