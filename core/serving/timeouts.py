"""Timeouts that count only time in which this process was listening. While its event loop is
blocked for lack of a core, nothing can arrive, so that time does not count.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from uvicorn.protocols.http.auto import AutoHTTPProtocol

# that a connection may be idle between two calls: longer than clients' libraries keep one, or each
# would now and then write to a closed one
KEPT_S = 30
_LOOKS = 20  # however long the loop is blocked, only one interval counts

T = TypeVar("T")
# the others take a descriptor of their own
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


class Wait:
    """Calls back on the event loop after so many seconds of listening, unless cancelled."""

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
        """End it before its time."""
        self._next.cancel()


class Deadline:
    """A budget of seconds of listening, for one wait or several in succession."""

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
        """Lift it."""
        self._wait.cancel()


def bounded_protocol(headers_s: float, send_s: float, most: int | None) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which would wait forever for the headers of a call, and for a client to
    take what it is sent, with limits on both, and on the connections at once.

    headers_s: from the connection to its first call's headers, and from the first byte of every
    later call to the end of its headers. send_s: without anything taken of what waits; only systems
    that have such a limit (Linux) keep it. most: beyond, the connection that has been silent for
    longest is closed for a new one; None for any number. Nor is a kept connection closed over a
    call that has come but has not been read: its client would be told of a reset.
    """

    made: dict[Calls, None] = {}  # the one whose latest call is longest ago is first

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
    """Let the system end a connection whose client takes nothing, and free what it holds."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * seconds)
        )


def _has_come(transport: asyncio.Transport) -> bool:
    """Whether something waits to be read that the event loop has not seen."""
    with _Selector() as selector:
        selector.register(transport.get_extra_info("socket"), selectors.EVENT_READ)
        return bool(selector.select(0))
