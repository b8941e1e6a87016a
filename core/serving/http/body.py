"""Bounds the bodies of calls, by size and by pace, for whoever listens. Knows no route and no wording of refusals but its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from core.serving.timeouts import Deadline


class BodyBounds(NamedTuple):
    """most: bytes. seconds: for the whole body, or, where it may be long, for each piece of it."""

    most: int
    seconds: float
    each_piece: bool = False


class BodyGuard:
    """ASGI middleware: answers 413 to a body that is too large, whether it announces its length or not, and 408 to one that comes too slowly.

    bounds: of a call. refusal: what answers with a status and a sentence.
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
