"""How many requests are in progress, in all and of each client. Each has a place, from when it is
received until it has ended.

Everything here may be called from any thread.
"""

from __future__ import annotations

import threading
from collections import Counter

from core.errors import TooManyRequests
from core.serving.limits import ServingLimits


class Places:
    """As many as `limits` allow."""

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()  # by client
        self._lock = threading.Lock()

    @property
    def num_taken(self) -> int:
        """Places taken, by all together."""
        return self._taken.total()

    def take(self, client: str, count: int = 1) -> list[AcceptedPlace]:
        """Take this many for a client, or none: raises TooManyRequests."""
        most, most_of_one = self._limits.max_requests, self._limits.max_requests_per_client
        with self._lock:
            if self._taken.total() + count > most:
                raise TooManyRequests(
                    f"{self._taken.total():,} requests are in progress; this server's limit is"
                    f" {most:,}."
                )
            if self._taken[client] + count > most_of_one:
                raise TooManyRequests(
                    f"{self._taken[client]:,} of your requests are in progress; the limit per"
                    f" client is {most_of_one:,}."
                )
            self._taken[client] += count
        return [AcceptedPlace(self, client) for _ in range(count)]

    def _give_back(self, place: AcceptedPlace) -> None:
        with self._lock:
            if place.is_taken:
                place.is_taken = False
                self._taken[place.client] -= 1
                if not self._taken[place.client]:
                    del self._taken[place.client]


class AcceptedPlace:
    """One request's, counted as its client's."""

    def __init__(self, places: Places, client: str) -> None:
        self._places, self.client, self.is_taken = places, client, True

    def free(self) -> None:
        """Give it back; once, however often it is called."""
        self._places._give_back(self)
