"""How all servers of this project listen: sockets, settings of uvicorn, connection limits."""

import asyncio
import errno
import logging
import socket
import time
from contextlib import suppress
from typing import Any

import uvicorn

from core.errors import InflightError
from core.serving.limits import ServingLimits
from core.serving.timeouts import KEPT_S, bounded_protocol

_log = logging.getLogger("inflight")
_DESCRIPTORS = 2**16
_WAITING = 2048  # connections that the system holds until they are accepted
_AT_ONCE = 8  # connections that are accepted before any is read
_AGAIN_S = 60.0  # between two warnings that no descriptors are left
# lines that uvicorn logs because of what clients send or do not read; anybody could fill the log
_OF_CLIENTS = (
    "Invalid HTTP request received.",
    "ASGI callable returned without completing response.",
    "Unsupported upgrade request.",
    "No supported WebSocket library detected.",
)


def server_config(app: Any, limits: ServingLimits, **more: Any) -> uvicorn.Config:
    """uvicorn's settings for `app`: quiet, without trusting headers about the caller, cutting off
    calls that arrive too slowly, and silent connections if there is no room for others. more:
    settings of uvicorn that differ.
    """
    settings: dict[str, Any] = {
        "http": bounded_protocol(limits.body_s, limits.send_s, _most_connections()),
        "log_level": "warning",
        "access_log": False,
        "proxy_headers": False,  # limits count by the address that really called
        "server_header": False,
        "timeout_keep_alive": KEPT_S,
        "timeout_graceful_shutdown": max(1, round(limits.drain_s)),
        "backlog": _AT_ONCE,  # asyncio accepts this many at once; see also `HttpServer.startup`
        "lifespan": "off",
    }
    logging.getLogger("uvicorn.error").addFilter(_is_ours)
    return uvicorn.Config(app, **settings | more)


def _is_ours(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_OF_CLIENTS)


class HttpServer(uvicorn.Server):
    """A uvicorn server that is given its sockets."""

    _told = -_AGAIN_S

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and log no traceback for connections for which no descriptor is left."""
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(_WAITING)
        asyncio.get_running_loop().set_exception_handler(self._failed)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error, now = context.get("exception"), time.monotonic()
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif now - self._told >= _AGAIN_S:
            self._told = now
            _log.warning("%s: new connections wait until others are closed.", error.strerror)


def _most_connections() -> int | None:
    """The most connections that leave a quarter of the descriptors, or 64 if there are few, for
    everything else; None for no limit.
    """
    with suppress(ImportError):
        import resource

        now = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if now != resource.RLIM_INFINITY:
            return max(now // 4, now - max(now // 4, 64))
    return None


def allow_connections() -> None:
    """Raise this process's limit of connections as far as the system allows: many begin with 1,024
    descriptors, fewer than the browsers of a class open.
    """
    with suppress(ImportError, ValueError, OSError):
        import resource

        now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if now != resource.RLIM_INFINITY:
            wanted = _DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(now, wanted), most))


def bound(host: str, port: int) -> socket.socket:
    """A socket bound to this address; port 0: any. Raises InflightError if it is taken."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family[0], socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(family[4])
    except (OSError, UnicodeError) as error:
        if getattr(error, "errno", None) == errno.EADDRINUSE:
            raise InflightError(f"Port {port} is taken: choose another with --port.") from None
        shown = host if host.isprintable() else ascii(host)
        why = getattr(error, "strerror", None) or error
        raise InflightError(f"Cannot listen on {shown}:{port}: {why}.") from None
    return listening
