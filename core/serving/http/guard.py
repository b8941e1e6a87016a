"""Guards every route: checks the key, and the kind, size and pace of a body. Answers in the shape of the other errors; knows no route."""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from core.serving.http.errors import error_response
from core.serving.limits import ServingLimits
from core.serving.timeouts import within

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
_OPEN = frozenset({"/health"})  # to everybody: a load balancer has no key


def same(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not reveal where they differ."""
    return hmac.compare_digest(given.encode(), expected.encode())


class Guard:
    """ASGI middleware. api_key: what `Authorization: Bearer` must carry, None for no key. refused: told of each status."""

    def __init__(
        self, app: Callable[..., Any], limits: ServingLimits, api_key: str | None, refused: Callable[[int], None]
    ) -> None:
        self._app, self._limits, self._api_key, self._refused = app, limits, api_key, refused

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if self._api_key is not None and path not in _OPEN:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not same(given, self._api_key):
                await self._refuse(401, "The API key is missing or wrong.", scope, receive, send)
                return
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, send)
            return
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            await self._refuse(415, "The body must be JSON: Content-Type: application/json.", scope, receive, send)
            return
        announced = headers.get("content-length", "0")
        if not announced.isdigit() or int(announced) > self._limits.max_body_bytes:
            await self._refuse(413, self._too_large, scope, receive, send)
            return
        try:
            body = await within(self._limits.body_s, self._read(receive))
        except TimeoutError:
            await self._refuse(408, f"The body did not arrive within {self._limits.body_s:g} seconds.", scope, receive, send)
            return
        if body is None:
            return  # the client is gone
        if len(body) > self._limits.max_body_bytes:
            await self._refuse(413, self._too_large, scope, receive, send)
            return
        try:
            json.loads(body)
        except (ValueError, RecursionError):
            await self._refuse(400, "The body is not JSON.", scope, receive, send)
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replayed() -> Message:
            nonlocal whole
            message, whole = whole, None
            return message if message is not None else await receive()

        await self._app(scope, replayed, send)

    @property
    def _too_large(self) -> str:
        return f"A body has at most {self._limits.max_body_bytes:,} bytes."

    async def _read(self, receive: Receive) -> bytes | None:
        """The body, or as much of it as shows that it is too large; None if the client left."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            part = message.get("body", b"")
            parts.append(part)
            size += len(part)
            if size > self._limits.max_body_bytes or not message.get("more_body"):
                return b"".join(parts)

    async def _refuse(self, status: int, message: str, scope: Any, receive: Receive, send: Send) -> None:
        self._refused(status)
        close = {"connection": "close"} if status in (408, 413) else {}  # the rest of the body is not waited for
        await error_response(status, message, headers=close)(scope, receive, send)
