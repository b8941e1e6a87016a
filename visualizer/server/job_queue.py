"""Who is next: the places for jobs that run at once, and the line before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Queued(Protocol):
    """What a queue knows of a job. round: in its queue, see `JobQueue.enter`."""

    visitor: str
    address: str
    round: int
    has_begun: bool
    is_idle: bool

    def cancel(self) -> None: ...


J = TypeVar("J", bound=Queued)


class JobQueue(Generic[J]):
    """The running and waiting jobs, round robin by address: a round has one job of each, so that
    many jobs from one address wait behind the first of every other.

    places: jobs running at once. waiting: jobs that may wait.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self._places, self._waiting = places, waiting
        self._jobs: list[J] = []  # in order of arrival
        self._last_round: dict[str, int] = {}  # by address

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[J]:
        return iter(self._jobs)

    def of(self, visitor: str) -> J | None:
        return next((job for job in self._jobs if job.visitor == visitor), None)

    def enter(self, job: J) -> None:
        """Queue a job: its round is the one after the last job of its address, and not before the
        current round.
        """
        if not self._jobs:
            self._last_round.clear()
        served = max((j.round for j in self._jobs if j.has_begun), default=1)
        job.round = self._last_round[job.address] = max(
            served, self._last_round.get(job.address, 0) + 1
        )
        self._jobs.append(job)

    def make_room(self, address: str) -> bool:
        """Whether there is room; if not, the job that would wait longest is ended, provided the
        next one of this address would be served before it.
        """
        if len(self._jobs) < self._places + self._waiting:
            return True
        last = max((j for j in self._jobs if not j.has_begun), key=lambda j: j.round, default=None)
        if last is None or last.round <= self._last_round.get(address, 0) + 1:
            return False
        last.cancel()
        return True

    def leave(self, job: J) -> None:
        if job in self._jobs:
            self._jobs.remove(job)

    def ahead(self, job: J) -> int:
        """How many jobs must end before this one begins; 0 if a place is free."""
        begun = [j for j in self._jobs if j.has_begun]
        taken = max(
            sum(not j.is_idle for j in begun), len(begun) - self._places
        )  # a job that waits for an arrival lends out its place
        waiting = [j for j in self._jobs if not j.has_begun]
        # in order of arrival within a round
        before = sorted(waiting, key=lambda j: j.round).index(job)
        return max(0, before + taken - self._places + 1)
