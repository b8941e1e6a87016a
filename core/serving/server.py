"""The server by itself: one process, one engine, one port. The first SIGTERM or Ctrl-C drains it,
the second one ends it at once.

a signal ─→ new requests are refused, those in progress go on ─→ the rest end with a last word ─→
nothing listens any more
"""

import asyncio
import gc
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from core.errors import ExecutionFailed
from core.serving.engine import ServingEngine
from core.serving.listening import HttpServer, allow_connections, bound, server_config

_LAST_WORDS = 2  # seconds for answers that are still being written at the end
_ORDERS = (signal.SIGINT, signal.SIGTERM)


class _DrainingServer(HttpServer):
    has_lost_engine = False

    def __init__(
        self, config: uvicorn.Config, serving: ServingEngine, ready: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        config.timeout_graceful_shutdown = _LAST_WORDS
        self._serving, self._ready = serving, ready
        self._until = float("inf")  # when the time of requests in progress is up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        for order in _ORDERS:
            # the second signal ends the process directly
            signal.signal(order, signal.SIG_DFL)
        self._until = time.monotonic() + self._serving.limits.drain_s
        self._serving.drain()
        self.should_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Whether to stop: not while requests have time left, but at once if the engine is lost."""
        ends = await super().on_tick(counter)
        self.has_lost_engine |= self._serving.is_lost
        is_time = not self._serving.num_requests or time.monotonic() >= self._until
        return self.has_lost_engine or (ends and is_time)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await asyncio.to_thread(self._serving.close)  # streams end, and viewers
        for connection in list(self.server_state.connections):
            connection.shutdown()  # after its answer, if there is one under way
        until = time.monotonic() + _LAST_WORDS
        while self.server_state.tasks and time.monotonic() < until:
            await asyncio.sleep(0.05)
        for connection in list(self.server_state.connections):
            connection.transport.abort()  # who takes nothing is gone, for its handler too
        await super().shutdown(sockets)


def serve(
    serving: ServingEngine,
    app: FastAPI,
    host: str,
    port: int,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve until a signal. port: 0 for any free one. ready: called with the address once calls are
    accepted.

    Raises InflightError if the port cannot be used, and ExecutionFailed once the engine's thread
    has ended because of a bug, so that whatever started this process can start another.
    """
    allow_connections()
    config = server_config(app, serving.limits)
    listening = bound(host, port)
    serving.start()
    gc.collect()
    # model and libraries stay: otherwise the garbage collector would walk them again and again
    # while a body with many small lists is read
    gc.freeze()
    server = _DrainingServer(config, serving, ready)
    try:
        asyncio.run(server.serve([listening]))
    finally:
        serving.close()
        listening.close()
    if server.has_lost_engine:
        raise ExecutionFailed(
            "The engine has ended because of a bug, which the log describes: start the server"
            " again."
        )
