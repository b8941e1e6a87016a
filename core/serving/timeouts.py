"""Timeouts that count only time in which this process was listening. While its event loop is
blocked for lack of a CPU core, nothing can arrive, so that time does not count.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# seconds that a connection may be idle between two calls; longer than clients keep one, so that
# they do not write to a closed one
KEPT_S = 30
_LOOKS = 20  # intervals of a wait; while the loop is blocked, at most one interval passes

T = TypeVar("T")
# other selectors take a descriptor themselves
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Wait:
    """Calls a function on the event loop after this many seconds of listening, unless cancelled."""

    def __init__(self, seconds: float, then: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._each = seconds / _LOOKS
        self._then = then
        self._left = _LOOKS
        self._next = self._loop.call_later(self._each, self._look)

    def _look(self) -> None:
        self._left -= 1
        if self._left:
            self._next = self._loop.call_later(self._each, self._look)
        else:
            self._then()

    def cancel(self) -> None:
        """Cancel the call."""
        self._next.cancel()


class Deadline:
    """A budget of seconds of listening, for one wait or several in succession."""

    def __init__(self, seconds: float) -> None:
        self._is_late = asyncio.get_running_loop().create_future()
        self._wait = Wait(seconds, lambda: self._is_late.set_result(None))

    async def wait_for(self, coming: Awaitable[T]) -> T:
        """The result of an awaitable; raises TimeoutError if it does not come in time."""
        task = asyncio.ensure_future(coming)
        try:
            await asyncio.wait({task, self._is_late}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise TimeoutError
        finally:
            task.cancel()

    def cancel(self) -> None:
        """Remove the deadline."""
        self._wait.cancel()


def bounded_protocol(headers_s: float, send_s: float, most: int | None) -> type[asyncio.Protocol]:
    """uvicorn's protocol with limits on the time for a call's headers, on the time for a client to
    read what it is sent, and on the number of connections; by default it would wait forever.

    headers_s: from the connection to its first call's headers, and from the first byte of every
    later call to the end of its headers. send_s: how long a client may read nothing of what waits
    for it; only systems with such a limit (Linux) enforce it. most: beyond it, the connection that
    has been silent for longest is closed for a new one; None for any number. A kept connection is
    not closed if a call has arrived but has not been read, since its client would see a reset.
    """

    made: dict[Calls, None] = {}  # ordered by the latest call, the oldest first

    class Calls(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        _waiting: Wait | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            made[self] = None
            if most is not None and len(made) > most:
                silent = next((one for one in made if one._is_silent()), self)
                del made[silent]
                silent.transport.close()
            _bound_sending(transport, send_s)
            self._wait_for_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_called():
                self._stop_waiting()
                if self in made:
                    made[self] = made.pop(self)
            elif self._waiting is None:
                self._wait_for_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_waiting()
            made.pop(self, None)
            super().connection_lost(exc)

        def timeout_keep_alive_handler(self) -> None:
            if not self.transport.is_closing() and not _has_come(self.transport):
                super().timeout_keep_alive_handler()

        def _is_called(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _is_silent(self) -> bool:
            return not self._is_called() and not _has_come(self.transport)

        def _wait_for_headers(self) -> None:
            self._waiting = Wait(headers_s, self._give_up)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Calls


def _bound_sending(transport: asyncio.Transport, seconds: float) -> None:
    """Let the system end a connection whose client reads nothing, and free its memory."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * seconds)
        )


def _has_come(transport: asyncio.Transport) -> bool:
    """Whether data waits to be read that the event loop has not seen."""
    with _Selector() as selector:
        selector.register(transport.get_extra_info("socket"), selectors.EVENT_READ)
        return bool(selector.select(0))
