"""The server alone: one process, one engine, one port. SIGTERM or Ctrl-C drains it: no new requests are accepted, those in progress are finished."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from core.serving.engine import ServingEngine
from core.serving.listening import bound, server_config


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


def serve(
    serving: ServingEngine, app: FastAPI, host: str, port: int, ready: Callable[[str], None] = lambda address: None
) -> None:
    """Serve until a signal. port: 0 for any free one. ready: called with the address once calls are taken.

    Raises InflightError if the port cannot be used.
    """
    config = server_config(app, serving.limits)
    listening = bound(host, port)
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
