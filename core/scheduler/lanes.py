"""Lanes: which request holds which. Made as they are used, so that their number costs nothing. Knows nothing of what requests compute."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from core.scheduler.state import RequestState


class Lanes:
    """`count` lanes; the lowest free one is taken first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._held: dict[int, RequestState] = {}
        self._returned: list[int] = []  # a heap
        self._num_touched = 0  # lanes beyond were never held

    def __iter__(self) -> Iterator[RequestState]:
        """Who holds a lane, in lane order."""
        return (state for _, state in sorted(self._held.items(), key=lambda item: item[0]))

    def __len__(self) -> int:
        """How many are held."""
        return len(self._held)

    @property
    def num_free(self) -> int:
        return self.count - len(self._held)

    def take(self, state: RequestState) -> int:
        """The lowest free lane, now held by this request; the caller checks `num_free` first."""
        assert self.num_free, "no lane is free"
        if self._returned:
            lane = heappop(self._returned)
        else:
            lane, self._num_touched = self._num_touched, self._num_touched + 1
        self._held[lane] = state
        return lane

    def give_back(self, lane: int) -> None:
        del self._held[lane]
        heappush(self._returned, lane)

    def holder(self, lane: int) -> RequestState | None:
        return self._held.get(lane)
