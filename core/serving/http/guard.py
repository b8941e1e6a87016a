"""Guards every route: checks the key, and the type, size and pace of a body."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.serving.http.errors import error_response
from core.serving.http.sites import Sites
from core.serving.limits import ServingLimits
from core.serving.timeouts import Deadline

_OPEN = frozenset({"/health"})  # for anybody: load balancers have no key, and call it by any name


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

    def __init__(
        self,
        app: ASGIApp,
        bounds: Callable[[Scope], BodyBounds],
        refusal: Callable[[int, str], ASGIApp],
    ) -> None:
        self._app, self._bounds, self._refusal = app, bounds, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most, seconds, each_piece = self._bounds(scope)
        too_large = self._refusal(413, f"A body has at most {most / 1024:,.0f} KiB here.")
        announced = next(
            (value for name, value in scope["headers"] if name == b"content-length"), b"0"
        )
        if not announced.isdigit() or int(announced) > most:
            await too_large(scope, receive, send)
            return
        received, more, started = 0, True, False
        refused: ASGIApp | None = None
        deadline: Deadline | None = None  # it runs from when the body is asked for

        async def bounded() -> Message:
            nonlocal received, more, refused, deadline
            deadline = deadline or Deadline(seconds)
            try:
                message = await (deadline.wait_for(receive()) if more else receive())
            except TimeoutError:
                what = "Nothing more came for" if each_piece else "The body did not arrive within"
                refused = self._refusal(408, f"{what} {seconds:g} seconds.")
                return {"type": "http.disconnect"}
            received, more = (
                received + len(message.get("body", b"")),
                message.get("more_body", False),
            )
            if received > most:
                refused = too_large
                return {"type": "http.disconnect"}
            if each_piece or not more:
                deadline.cancel()
                deadline = None
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
            if deadline is not None:
                deadline.cancel()
        if refused is not None and not started:
            await refused(scope, receive, send)


class ApiGuard:
    """ASGI middleware that answers in the shape of the other errors, and so many calls at once as there can be requests and viewers. sites: whose pages
    may call. api_key: what `Authorization: Bearer` must carry, None for no key. refused: called with each status."""

    def __init__(
        self,
        app: ASGIApp,
        limits: ServingLimits,
        sites: Sites,
        api_key: str | None,
        refused: Callable[[int], None],
    ) -> None:
        self._app, self._sites, self._api_key, self._refused = app, sites, api_key, refused
        self._calls, self._most = 0, 4 * limits.max_requests + limits.max_viewers
        bounds = BodyBounds(limits.max_body_bytes, limits.body_s)
        self._bounded = BodyGuard(self._json_alone, lambda scope: bounds, self._refusal)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._calls += 1
        try:
            await self._admitted(scope)(scope, receive, send)
        finally:
            self._calls -= 1

    def _admitted(self, scope: Scope) -> ASGIApp:
        """What answers a call: the application, or a refusal."""
        if self._calls > self._most:
            return self._refusal(
                503, "Too many calls are under way: try again in a moment.", {"retry-after": "1"}
            )
        call = Request(scope)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path not in _OPEN and (refusal := self._sites.refusal(scope)):
            return self._refusal(403, refusal)
        scheme, _, given = call.headers.get("authorization", "").partition(" ")
        if (
            self._api_key is not None
            and path not in _OPEN
            and (scheme.lower() != "bearer" or not same_secret(given, self._api_key))
        ):
            return self._refusal(401, "The API key is missing or wrong.")
        if call.method in ("POST", "PUT", "PATCH"):
            kind = call.headers.get("content-type", "").partition(";")[0].strip().lower()
            is_json = kind == "application/json"
            return (
                self._bounded
                if is_json
                else self._refusal(415, "The body must be JSON: Content-Type: application/json.")
            )
        return self._app

    async def _json_alone(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on bodies that are JSON."""
        try:
            body = await Request(scope, receive).body()
            given = json.loads(body)
            if b"\\u" in body:
                json.dumps(
                    given, ensure_ascii=False
                ).encode()  # halves of characters are no text, and cannot be answered either
        except ClientDisconnect:
            return
        except (ValueError, RecursionError):
            await self._refusal(400, "The body is not JSON, or has text that is not Unicode.")(
                scope, receive, send
            )
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replayed() -> Message:
            nonlocal whole
            message, whole = whole, None
            return message if message is not None else await receive()

        await self._app(scope, replayed, send)

    def _refusal(
        self, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> ASGIApp:
        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            self._refused(status)
            await response(scope, receive, send)

        response = error_response(
            status, message, headers={"connection": "close"} if status == 408 else headers
        )
        return refuse
