"""What stands between the network and Gradio: a bound on what a request may carry, and a packed first page. Knows nothing of what is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.middleware.gzip import GZipMiddleware

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class PackedFront:
    """Compresses the first page: Gradio goes by the extension of a file's name, and `/` has none."""

    def __init__(self, app: Callable) -> None:
        self._plain, self._packed = app, GZipMiddleware(app, minimum_size=1000)

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        front = scope["type"] == "http" and scope["path"] == "/"
        await (self._packed if front else self._plain)(scope, receive, send)


class MaxBody:
    """Answers 413 in a sentence to a body of more than `max_bytes`, whether it announces its length or not."""

    def __init__(self, app: Callable, max_bytes: int) -> None:
        self._app, self._max = app, max_bytes

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not announced.isdigit() or int(announced) > self._max:
            await self._refuse(send)
            return
        received, started, refused = 0, False, False

        async def counted() -> Message:
            nonlocal received, refused
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max:
                refused = True
                return {"type": "http.disconnect"}
            return message

        async def watched(message: Message) -> None:
            nonlocal started
            if refused and not started:
                return
            started = True
            await send(message)

        try:
            await self._app(scope, counted, watched)
        except Exception:
            if not refused:
                raise
        if refused and not started:
            await self._refuse(send)

    async def _refuse(self, send: Send) -> None:
        sentence = f'{{"error": "This page takes at most {self._max >> 20} MiB at once."}}'.encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(sentence)).encode())]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": sentence})
