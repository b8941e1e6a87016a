"""How every server of this project listens, with an engine behind it or not. Knows nothing of what is served."""

from __future__ import annotations

import socket
from typing import Any

import uvicorn

from core.errors import InflightError
from core.serving.limits import ServingLimits
from core.serving.timeouts import headers_within


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


def bound(host: str, port: int) -> socket.socket:
    """A socket at this address. port: 0 for any free one. Raises InflightError if it cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family[0], socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(family[4])
    except OSError as error:
        raise InflightError(f"Cannot listen on {host}:{port}: {error.strerror or error}.") from None
    return listening
