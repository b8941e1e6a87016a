"""Timeouts that count only time in which this process was listening. While its event loop is blocked for lack of a core, nothing can
arrive, so that time does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_LOOKS = 20  # however long the loop is blocked, only one interval counts

T = TypeVar("T")


class Wait:
    """Calls back on the event loop after this many seconds of listening. `cancel` ends it for good."""

    def __init__(self, seconds: float, then: Callable[[], object]) -> None:
        self._loop, self._each, self._then, self._left = asyncio.get_running_loop(), seconds / _LOOKS, then, _LOOKS
        self._next = self._loop.call_later(self._each, self._look)

    def _look(self) -> None:
        self._left -= 1
        if self._left:
            self._next = self._loop.call_later(self._each, self._look)
        else:
            self._then()

    def cancel(self) -> None:
        self._next.cancel()


class Deadline:
    """A budget of seconds of listening, for one wait or several in succession. `cancel` ends it for good."""

    def __init__(self, seconds: float) -> None:
        self._is_late = asyncio.get_running_loop().create_future()
        self._wait = Wait(seconds, lambda: self._is_late.set_result(None))

    async def wait_for(self, coming: Awaitable[T]) -> T:
        """The awaited result; raises TimeoutError if it does not come in time."""
        task = asyncio.ensure_future(coming)
        try:
            await asyncio.wait({task, self._is_late}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise TimeoutError
        finally:
            task.cancel()

    def cancel(self) -> None:
        self._wait.cancel()


def headers_within(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which would wait forever for the headers of a call, with a limit on that wait.

    It runs from the connection to its first call's headers, and from the first byte of every later call to the end of its headers.
    """

    class Calls(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _waiting: Wait | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait_for_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop_waiting()
            elif self._waiting is None:
                self._wait_for_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            super().connection_lost(exc)

        def _wait_for_headers(self) -> None:
            self._waiting = Wait(seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Calls
