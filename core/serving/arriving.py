"""How long a call may take to arrive: its headers on uvicorn's connections, and whatever else somebody waits for. Knows no route."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_LOOKS = 10

T = TypeVar("T")


async def within(seconds: float, coming: Awaitable[T]) -> T:
    """What comes; raises TimeoutError where it has not come within so many seconds during which this process listened.

    It looks ten times: a process that stood still itself, short of a core, must not blame its client for that.
    """
    task = asyncio.ensure_future(coming)
    try:
        for _ in range(_LOOKS):
            there, _ = await asyncio.wait({task}, timeout=seconds / _LOOKS)
            if there:
                return task.result()
        raise TimeoutError
    finally:
        task.cancel()


def headers_within(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which would wait for the headers of a call forever, with a limit on that wait.

    It runs from the connection to its first call's headers, and from the first byte of every later call to the end of its headers.
    """

    class Calls(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _waiting: asyncio.TimerHandle | None = None

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
            self._waiting = self.loop.call_later(seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Calls
