"""Places that clients share by address, so that none can take them all: for viewers, for files
being opened, for questions being answered.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

from core.errors import TooManyRequests

T = TypeVar("T")


class Turns:
    """A number of places with a queue before them. One address holds at most half of the places and
    half of the queue, so there is always room for others, while a class behind one router gets in.
    A free place goes to the address that was served least recently. Use it on one event loop.

    places: held at once. what: what they are held for, as in "400 viewers are connected". waiting:
    how many may wait for a place. retry_after: in seconds, for clients that are refused.
    """

    def __init__(self, places: int, what: str, waiting: int = 0, retry_after: int = 1) -> None:
        self._places, self._what, self._line, self._retry_after = places, what, waiting, retry_after
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # least recently served first

    @property
    def num_waiting(self) -> int:
        """How many wait for a place."""
        return sum(map(len, self._waiting.values()))

    @asynccontextmanager
    async def held(self, address: str) -> AsyncIterator[None]:
        """Hold a place; see `take`."""
        await self.take(address)
        try:
            yield
        finally:
            self.free(address)

    async def take(self, address: str) -> None:
        """Take a place when it is this address's turn, to be given back by `free`. Raises
        TooManyRequests if the queue is full.
        """
        if self._has_place_for(address):
            self._held[address] += 1
            return
        own = len(self._waiting.get(address, ()))
        if own >= _half(self._line) if self._line else self._held[address] >= _half(self._places):
            raise self._refusal(
                f"From your address {self._held[address] + own:,} {self._what}, as many as one may"
                " have"
            )
        if self.num_waiting >= self._line:
            raise self._refusal(
                f"{self._held.total() + self.num_waiting:,} {self._what}, as many as there is"
                " room for"
            )
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # it was handed out a moment ago
                self.free(address)
            elif turn in (line := self._waiting.get(address, deque())):
                line.remove(turn)
                if not line:
                    del self._waiting[address]
            raise

    def free(self, address: str) -> None:
        """Give a place back."""
        self._held -= Counter([address])
        for other in list(self._waiting):
            if not self._has_place_for(other):
                continue
            line = self._waiting.pop(other)  # added again behind all others if more of it wait
            turn = None
            while line and (turn is None or turn.cancelled()):
                turn = line.popleft()
            if line:
                self._waiting[other] = line
            if turn is not None and not turn.cancelled():
                self._held[other] += 1
                turn.set_result(None)
                return

    def _has_place_for(self, address: str) -> bool:
        return self._held.total() < self._places and self._held[address] < _half(self._places)

    def _refusal(self, why: str) -> TooManyRequests:
        return TooManyRequests(f"{why}: try again in a moment.", self._retry_after)


def beyond(most: int, kept: Iterable[T], whose: Callable[[T], str]) -> list[T]:
    """The items, from a list with the oldest first, that have to go so that at most this many
    remain: again and again the oldest item of the owner who has most.
    """
    left = list(kept)
    gone = []
    while len(left) > most:
        shares = Counter(map(whose, left))
        # the first of these is the oldest
        gone.append(max(left, key=lambda one: shares[whose(one)]))
        left.remove(gone[-1])
    return gone


def _half(number: int) -> int:
    return -(-number // 2)
