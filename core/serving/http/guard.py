"""Guards every route: checks the key, and the type, size and pace of a body."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.serving.http.errors import error_response
from core.serving.limits import ServingLimits
from core.serving.timeouts import Deadline

_OPEN = frozenset({"/health"})  # needs no key: load balancers have none


def same_secret(given: str, expected: str) -> bool:
    """Whether two secrets are equal, in a time that does not reveal where they differ."""
    return hmac.compare_digest(given.encode(), expected.encode())


class BodyBounds(NamedTuple):
    """most: bytes. seconds: for the whole body, or, if it may be long, for each part of it."""

    most: int
    seconds: float
    each_piece: bool = False


class BodyGuard:
    """ASGI middleware: answers 413 to a body that is too large, whether it announces its length or not, and 408 to one that comes too slowly.

    bounds: gives those of a call. refusal: makes an application that answers with a status and a sentence.
    """

    def __init__(self, app: ASGIApp, bounds: Callable[[Scope], BodyBounds], refusal: Callable[[int, str], ASGIApp]) -> None:
        self._app, self._bounds, self._refusal = app, bounds, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, seconds, each_piece = self._bounds(scope)
        too_large = self._refusal(413, f"A body has at most {most / 1024:,.0f} KiB here.")
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or int(announced) > most:
            await too_large(scope, receive, send)
            return
        received, more, started = 0, True, False
        refused: ASGIApp | None = None
        deadline = Deadline(seconds)

        async def bounded() -> Message:
            nonlocal received, more, refused, deadline
            try:
                message = await (deadline.wait_for(receive()) if more else receive())
            except TimeoutError:
                what = "Nothing more came for" if each_piece else "The body did not arrive within"
                refused = self._refusal(408, f"{what} {seconds:g} seconds.")
                return {"type": "http.disconnect"}
            received, more = received + len(message.get("body", b"")), message.get("more_body", False)
            if received > most:
                refused = too_large
                return {"type": "http.disconnect"}
            if each_piece or not more:
                deadline.cancel()
                deadline = Deadline(seconds) if more else deadline
            return message

        async def unless_refused(message: Message) -> None:
            nonlocal started
            if refused is None or started:
                started = True
                await send(message)

        try:
            await self._app(scope, bounded, unless_refused)
        except Exception:
            if refused is None:
                raise
        finally:
            deadline.cancel()
        if refused is not None and not started:
            await refused(scope, receive, send)


class ApiGuard:
    """ASGI middleware that answers in the shape of the other errors. api_key: what `Authorization: Bearer` must carry, None for no key. refused: called with each status."""

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
        """Pass on bodies that are JSON."""
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
