"""The server alone: one process, one engine, one port. SIGTERM or Ctrl-C drains it: no new requests are accepted, those in progress are finished."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI

from core.errors import InflightError
from core.serving.engine import ServingEngine
from core.serving.limits import ServingLimits
from core.serving.timeouts import headers_within


class _Server(uvicorn.Server):
    """Drains the engine at the first signal; a second Ctrl-C ends it at once."""

    def __init__(self, config: uvicorn.Config, serving: ServingEngine, ready: Callable[[str], None]) -> None:
        super().__init__(config)
        self._serving, self._ready = serving, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._ready(f"http://{f'[{host}]' if ':' in host else host}:{port}")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._serving.drain()
        super().handle_exit(sig, frame)


def server_config(app: Any, limits: ServingLimits, **more: Any) -> uvicorn.Config:
    """How uvicorn runs `app`: quietly, without trusting headers about the caller, and cutting off calls that arrive too slowly."""
    return uvicorn.Config(
        app,
        http=headers_within(limits.body_s),
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # limits count by the address that really called
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=max(1, round(limits.drain_s)),
        backlog=2048,
        limit_concurrency=4 * limits.max_requests + limits.max_viewers,
        lifespan="off",
        **more,
    )


def serve(
    serving: ServingEngine, app: FastAPI, host: str, port: int, ready: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until a signal. port: 0 for any free one. ready: called with the address once calls are taken.

    Raises InflightError if the port cannot be used.
    """
    config = server_config(app, serving.limits)
    listening = _bound(host, port)
    serving.start()
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn raises the signal again after shutdown
    try:
        asyncio.run(_Server(config, serving, ready).serve([listening]))
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        serving.close()
        listening.close()


def _bound(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family[0], socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(family[4])
    except OSError as error:
        raise InflightError(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from None
    return listening
