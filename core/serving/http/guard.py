"""Middleware that guards every route: which calls are answered, and bodies' size and speed."""

import hmac
import json
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.errors import InflightError
from core.files import no_number
from core.serving.http.errors import error_response
from core.serving.http.sites import Sites
from core.serving.limits import ServingLimits
from core.serving.timeouts import Deadline

_OPEN = frozenset({"/health"})  # open to all: load balancers have no key and use any name


def same_secret(given: str, expected: str) -> bool:
    """Whether two secrets are equal, compared in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())


def sendable(secret: str, called: str) -> str:
    """A secret that a client can send in a header; raises InflightError for any other. called: its
    name, as the beginning of a sentence.
    """
    if not re.fullmatch("[!-~]+", secret):
        raise InflightError(f"{called} is empty, or has characters that no header can carry.")
    return secret


def path_of(scope: Scope) -> str:
    """The path within the application, whether or not a proxy strips its prefix."""
    return scope.get("path", "").removeprefix(scope.get("root_path", "")) or "/"


async def gone(request: Request) -> None:
    """Wait until the client has disconnected. The request's body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class BodyBounds(NamedTuple):
    """most: bytes. seconds: for the whole body or, with each_piece, for each part of it."""

    most: int
    seconds: float
    each_piece: bool = False


class Refusal(NamedTuple):
    """Why a call is not answered, in a sentence, and the HTTP status."""

    status: int
    message: str


Check = Callable[[Scope], Refusal | None]


def sites_check(sites: Sites) -> Check:
    """A check that refuses pages of other sites."""

    def check(scope: Scope) -> Refusal | None:
        return Refusal(403, refusal) if (refusal := sites.refusal(scope)) else None

    return check


def key_check(api_key: str) -> Check:
    """A check that refuses calls without this key as `Authorization: Bearer`."""

    def check(scope: Scope) -> Refusal | None:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not same_secret(given, api_key):
            return Refusal(401, "The API key is missing or wrong.")
        return None

    return check


def json_check(scope: Scope) -> Refusal | None:
    """Refuses a body that is not JSON, since any page may send a form's types unasked, and one that
    is packed.
    """
    headers = Headers(scope=scope)
    if headers.get("content-encoding", "identity").lower() != "identity":
        return Refusal(415, "The body must not be compressed: leave out Content-Encoding.")
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return None
    if headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        return None
    return Refusal(415, "The body must be JSON: Content-Type: application/json.")


TWO_LENGTHS = "A call has a Content-Length or a Transfer-Encoding, not both."


def _closing(send: Send) -> Send:
    """`send` for an answer after which the connection is closed."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["connection"] = "close"
        await send(message)

    return sent


class Guard:
    """ASGI middleware that answers calls that a check refuses, 400 to a call of two lengths, 413 to
    a body that is too large, whether it announces its length or not, and 408 to one that arrives
    too slowly.

    bounds: returns the bounds of a call. refusal: makes the answer from a status and a sentence.
    """

    def __init__(
        self,
        app: ASGIApp,
        checks: Sequence[Check],
        bounds: Callable[[Scope], BodyBounds],
        refusal: Callable[[int, str], ASGIApp],
    ) -> None:
        self._app, self._checks, self._bounds, self._refusal = app, checks, bounds, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if "transfer-encoding" in headers and "content-length" in headers:
            # a proxy may disagree with us about where such a call ends and the next one begins
            await self._refusal(400, TWO_LENGTHS)(scope, receive, _closing(send))
            return
        for check in self._checks:
            if refused_by := check(scope):
                await self._refusal(*refused_by)(scope, receive, send)
                return
        most, seconds, each_piece = self._bounds(scope)
        too_large = self._refusal(413, f"A body has at most {most / 1024:,.0f} KiB here.")
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or int(announced) > most:
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
            received += len(message.get("body", b""))
            more = message.get("more_body", False)
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


class BoundedCalls:
    """ASGI middleware that answers 503 while too many calls are in progress."""

    def __init__(self, app: ASGIApp, most: int, refusal: Callable[[int, str], ASGIApp]) -> None:
        self._app, self._most, self._calls = app, most, 0
        self._busy = refusal(503, "Too many calls are under way: try again in a moment.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._calls += 1
        try:
            app = self._app if self._calls <= self._most else self._busy
            await app(scope, receive, send)
        finally:
            self._calls -= 1


class JsonBodies:
    """ASGI middleware that answers 400 to a body that is not JSON, or whose text is not Unicode."""

    def __init__(self, app: ASGIApp, refusal: Callable[[int, str], ASGIApp]) -> None:
        self._app = app
        self._refused = refusal(400, "The body is not JSON, or has text that is not Unicode.")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("POST", "PUT", "PATCH"):
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
            given = json.loads(body.decode("utf-8-sig"), parse_constant=no_number)
            # halves of characters are no text, and cannot be answered either
            json.dumps(given, ensure_ascii=False).encode()
        except ClientDisconnect:
            return
        except (ValueError, RecursionError):
            await self._refused(scope, receive, send)
            return
        whole: Message | None = {"type": "http.request", "body": body, "more_body": False}

        async def replayed() -> Message:
            nonlocal whole
            message, whole = whole, None
            return message if message is not None else await receive()

        await self._app(scope, replayed, send)


def api_guard(
    app: ASGIApp,
    limits: ServingLimits,
    sites: Sites,
    api_key: str | None,
    refused: Callable[[int], None],
) -> ASGIApp:
    """ASGI middleware with all guards of the server. It answers as many calls at once as there can
    be requests and viewers.

    sites: whose pages may call. api_key: None for no key. refused: called with each status.
    """

    def refusal(status: int, message: str) -> ASGIApp:
        headers = {408: {"connection": "close"}, 503: {"retry-after": "1"}}.get(status, {})
        response = error_response(status, message, headers=headers)

        async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
            refused(status)
            await response(scope, receive, send)

        return refuse

    def unless_open(check: Check) -> Check:
        return lambda scope: None if path_of(scope) in _OPEN else check(scope)

    keys = [] if api_key is None else [key_check(api_key)]
    checks = [*map(unless_open, (sites_check(sites), *keys)), json_check]
    bounds = BodyBounds(limits.max_body_bytes, limits.body_s)
    guarded = Guard(JsonBodies(app, refusal), checks, lambda scope: bounds, refusal)
    return BoundedCalls(guarded, 4 * limits.max_requests + limits.max_viewers, refusal)
