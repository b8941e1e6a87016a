"""How every server of this project listens, with an engine behind it or not. Knows nothing of what is served."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import uvicorn

from core.errors import InflightError
from core.serving.limits import ServingLimits
from core.serving.timeouts import KEPT_S, bounded_protocol

_DESCRIPTORS = 2**16


def server_config(app: Any, limits: ServingLimits, **more: Any) -> uvicorn.Config:
    """How uvicorn runs `app`: quietly, without trusting headers about the caller, and cutting off calls that arrive too slowly."""
    return uvicorn.Config(
        app,
        http=bounded_protocol(limits.body_s, limits.send_s),
        log_level="warning",
        access_log=False,
        proxy_headers=False,  # limits count by the address that really called
        server_header=False,
        timeout_keep_alive=KEPT_S,
        timeout_graceful_shutdown=max(1, round(limits.drain_s)),
        backlog=2048,
        lifespan="off",
        **more,
    )


def allow_connections() -> None:
    """Let this process hold as many connections as its system may grant: many begin with 1,024 descriptors, fewer than the browsers of a class open."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now != resource.RLIM_INFINITY:
            wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))


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
