"""How long the headers of a call may take to arrive on uvicorn's connections. Knows no route."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from core.serving.patience import Wait, after


def headers_within(seconds: float) -> type[asyncio.Protocol]:
    """uvicorn's protocol, which would wait for the headers of a call forever, with a limit on that wait.

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
            self._waiting = after(seconds, self._give_up)

        def _stop_waiting(self) -> None:
            if self._waiting is not None:
                self._waiting.cancel()
                self._waiting = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self.transport.close()

    return Calls
