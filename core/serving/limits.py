"""The limits of a server as data, and the number of requests in progress, in total and by client.
Each request takes a place, from when it is received until it has ended.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass

from core.errors import TooManyRequests
from core.trace.messages import english

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServingLimits:
    """max_requests: in progress, including waiting ones; max_requests_per_client: of one address.

    max_prompt_tokens, max_new_tokens: of a request. max_choices: prompts times `n` in one call.
    max_stop_strings and max_stop_characters: of a request. max_body_bytes: of a call. body_s:
    seconds a call may take to arrive. send_s: seconds a client may take to read what it is sent.
    max_viewers: of the live events at once; one address may have half. max_nickname_characters: of
    a client; max_system_characters: of the system prompt that a teacher sets. max_lanes,
    max_budget: the most that a teacher may set. kept_tokens: of the runs that can be saved.
    drain_s: seconds that requests in progress get to finish when the server shuts down.
    """

    max_requests: int = 1024
    max_requests_per_client: int = 1024
    max_prompt_tokens: int = 16_384
    max_new_tokens: int = 4096
    max_choices: int = 64
    max_stop_strings: int = 8
    max_stop_characters: int = 256
    max_body_bytes: int = 2**20
    body_s: float = 10.0
    send_s: float = 30.0
    max_viewers: int = 512
    max_nickname_characters: int = 24
    max_system_characters: int = 1000
    max_lanes: int = 256
    max_budget: int = 16_384
    kept_tokens: int = 100_000
    drain_s: float = 30.0


class Places:
    """The places that `limits` allow. May be called from any thread."""

    def __init__(self, limits: ServingLimits) -> None:
        self._limits = limits
        self._taken: Counter[str] = Counter()  # by client
        self._lock = threading.Lock()

    @property
    def num_taken(self) -> int:
        """Places taken by all clients."""
        return self._taken.total()

    def take(self, client: str, count: int = 1) -> list[AcceptedPlace]:
        """Take this many places for a client, or none and raise TooManyRequests."""
        most, most_of_one = self._limits.max_requests, self._limits.max_requests_per_client
        with self._lock:
            if self._taken.total() + count > most:
                raise TooManyRequests(
                    english(
                        f"{self._taken.total():,} [request is|requests are] in progress; this"
                        f" server's limit is {most:,}."
                    )
                )
            if self._taken[client] + count > most_of_one:
                raise TooManyRequests(
                    english(
                        f"{self._taken[client]:,} of your requests [is|are] in progress; the limit"
                        f" per client is {most_of_one:,}."
                    )
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
    """The place of one request, counted for its client."""

    def __init__(self, places: Places, client: str) -> None:
        self._places, self.client, self.is_taken = places, client, True

    def free(self) -> None:
        """Give the place back; calling it again has no effect."""
        self._places._give_back(self)
