"""A list of deltas that only grows, followed by any number of readers, each from its own place. Each delta is encoded once.

Knows neither what a delta says nor who reads. Everything happens on the event loop; from a thread, `loop.call_soon_threadsafe(feed.append, …)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from visualizer.server.sse import COMMENT, KEEP_ALIVE, decoded, encoded


class Feed:
    """Deltas as server-sent events.

    period: seconds for which deltas are gathered before readers are woken, once for all of them; 0 wakes them at once.
    """

    def __init__(self, period: float = 0.0) -> None:
        self.is_closed = False
        self._encoded: list[bytes] = []
        self._period = period
        self._waiting: set[asyncio.Future[Any]] = set()
        self._wake_up: asyncio.Handle | None = None

    def __len__(self) -> int:
        return len(self._encoded)

    def append(self, delta: dict[str, Any]) -> None:
        """Add a delta, numbered by its place: `seq`."""
        self._encoded.append(encoded({"seq": len(self._encoded), **delta}))
        if self._waiting and self._wake_up is None:
            self._wake_up = asyncio.get_running_loop().call_later(self._period, self._wake)

    def close(self) -> None:
        """Nothing more will come: readers end once they have everything."""
        self.is_closed = True
        self._wake()

    def encoded(self, start: int) -> bytes:
        """The deltas from `start` on, encoded for readers."""
        return b"".join(self._encoded[max(0, start) :])

    def deltas(self, start: int = 0) -> list[dict[str, Any]]:
        """The deltas from `start` on, decoded."""
        return [decoded(event) for event in self._encoded[max(0, start) :]]

    async def read(self, start: int = 0) -> AsyncIterator[bytes]:
        """The deltas from `start` on, then those still to come; deltas that arrive together are sent in one piece."""
        at = max(0, start)
        while True:
            if at < len(self._encoded):
                piece, at = b"".join(self._encoded[at:]), len(self._encoded)
                yield piece
            elif self.is_closed:
                return
            elif not await self._news():
                yield COMMENT

    async def _news(self) -> bool:
        """Wait to be woken; False after long silence."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            async with asyncio.timeout(KEEP_ALIVE):
                await woken
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(woken)
        return True

    def _wake(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)
