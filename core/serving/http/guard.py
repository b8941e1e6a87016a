"""Guards every route: checks the key, and the kind, size and pace of a body. Answers in the shape of the other errors; knows no route."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.serving.http.body import BodyBounds, BodyGuard
from core.serving.http.errors import error_response
from core.serving.limits import ServingLimits

_OPEN = frozenset({"/health"})  # to everybody: a load balancer has no key


def same_secret(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not reveal where they differ."""
    return hmac.compare_digest(given.encode(), expected.encode())


class Guard:
    """ASGI middleware. api_key: what `Authorization: Bearer` must carry, None for no key. refused: told of each status."""

    def __init__(self, app: ASGIApp, limits: ServingLimits, api_key: str | None, refused: Callable[[int], None]) -> None:
        self._app, self._api_key, self._refused = app, api_key, refused
        bounds = BodyBounds(limits.max_body_bytes, limits.body_s)
        self._bounded = BodyGuard(self._json_alone, lambda scope: bounds, self._refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call, app = Request(scope), self._app
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        scheme, _, given = call.headers.get("authorization", "").partition(" ")
        if (
            self._api_key is not None
            and path not in _OPEN
            and (scheme.lower() != "bearer" or not same_secret(given, self._api_key))
        ):
            app = self._refusal(401, "The API key is missing or wrong.")
        elif call.method in ("POST", "PUT", "PATCH"):
            kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
            is_json = kind == "application/json"
            app = self._bounded if is_json else self._refusal(415, "The body must be JSON: Content-Type: application/json.")
        await app(scope, receive, send)

    async def _json_alone(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is JSON."""
        try:
            body = await Request(scope, receive).body()
            json.loads(body)
        except ClientDisconnect:
            return
        except (ValueError, RecursionError):
            await self._refusal(400, "The body is not JSON.")(scope, receive, send)
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replayed() -> Message:
            nonlocal whole
            message, whole = whole, None
            return message if message is not None else await receive()

        await self._app(scope, replayed, send)

    def _refusal(self, status: int, message: str) -> ASGIApp:
        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            self._refused(status)
            await response(scope, receive, send)

        response = error_response(status, message, headers={"connection": "close"} if status in (408, 413) else {})
        return refuse
