"""The HTTP routes of the server besides Gradio's: calls, jobs and the files of the store.

    POST inflight/call/NAME        {"args": […]} → the answer to a call that a page waits for
                                   (visualizer/jobs/calls.py), or {"error"}
    POST inflight/jobs             {"kind", "spec", "visitor"} → {"job"} or {"error"}
    GET  inflight/jobs/ID?from=N   the job's deltas from number N on, as server-sent events
    POST inflight/jobs/ID/cancel   → {"cancelled"}
    GET  inflight/files/NAME       a file of the store
    POST inflight/uploads?name=…   a saved trace, as it is, or several (see uploads.py) → {"id",
                                   "url"} or {"error"}
    POST inflight/datasets?name=…&model=…  a published workload, as it is → {"workload",
                                           "block_size", "says"} or {"error"}
    GET  inflight/state            models, presets, policies, limits and recorded runs
    GET  inflight/comparisons      recorded comparisons, and what can be compared

The number of requests that are answered at once is limited (`InTurn`), and an address may have at
most half of these places.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from anyio import CapacityLimiter, to_thread
from starlette.middleware import Middleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from core.errors import InflightError, TooManyRequests, Unavailable
from core.serving.http.guard import gone
from core.serving.turns import Turns
from visualizer.page.step import PLOTLY
from visualizer.server.api import Server
from visualizer.server.response_cache import FOREVER

_CALLS = 4  # answered at once: each takes a core
_FILES = 16  # files of visitors in memory at once
_READERS = 2  # of these, read at once, each in a process of its own
# calls or files that may wait; half of them from one address, so that a whole class may ask
_LINE = 80
_FOLLOWERS = 400  # readers of jobs
_PIECE = 2**16  # bytes of a file in memory per reader
_SENDING = 60  # seconds that a file may take to arrive
TAKING = 30  # seconds that a reader may take to receive what it is sent
_T = TypeVar("_T")
# for files of single visitors; `ResponseCache` compresses the others once, and better
PACKED = Middleware(
    GZipMiddleware,
    compresslevel=4,
    exclude_content_types=(*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream"),
)


def routes(
    server: Server,
    address_of: Callable[[Request], str],
    enter: Callable[[Request], None] = lambda request: None,
) -> list[Route]:
    """address_of: gives the address of a request's client. enter: called in a job's context."""

    async def begin(request: Request) -> Response:
        body = await object_in(request)
        if body is None:
            return refused("A job is asked for as a JSON object with a kind and a spec.", 400)
        enter(request)
        address = address_of(request)
        visitor = _visitor(body.get("visitor"), address)
        return answer(server.begin(body.get("kind"), body.get("spec"), visitor, address))

    async def follow(request: Request) -> Response:
        start = number_from(request, "from") or 0
        try:
            return streamed(server.follow(request.path_params["job"], start))
        except InflightError as error:
            return refused(error, 404)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        try:
            content, download = await to_thread.run_sync(server.store.open, name)
        except InflightError as error:
            return refused(error, 404)
        server.warm_up()  # the page has loaded: a run may follow
        headers = {"cache-control": FOREVER, "x-content-type-options": "nosniff"}
        if download:
            headers["content-disposition"] = f'attachment; filename="{download}"'
        media_type = _TYPES.get(Path(name).suffix)
        if _FIGURE.fullmatch(name):
            with content:
                before, here, after = content.read().partition(PLOTLY.encode())
            return _Sent(
                _cut(before, _plotly() if here else b"", after),
                media_type=media_type,
                headers=headers,
            )
        headers["content-length"] = str(os.fstat(content.fileno()).st_size)
        return _Sent(_pieces(content), media_type=media_type, headers=headers)

    calls = Turns(_CALLS, "questions are being answered", _LINE)

    async def call(request: Request) -> Response:
        asked = await object_in(request)
        if asked is None:
            return refused("A call is asked for as a JSON object with its arguments.", 400)
        name, client = request.path_params["name"], address_of(request)
        try:
            async with turn(calls, client, request):
                found = await _in_thread(server.call, name, asked.get("args"), client)
        except TooManyRequests as error:
            return refused(error)
        text = json.dumps(found).encode("ascii")
        return _Sent(
            _cut(text), media_type="application/json", headers={"content-length": str(len(text))}
        )

    files = Turns(_FILES, "files are being opened", _LINE)
    readers = Turns(_READERS, "files are being read", _FILES)

    async def opened(
        request: Request, client: str, read: Callable[[bytes], dict[str, Any]]
    ) -> Response:
        try:
            async with files.held(client):  # before its body takes memory
                async with asyncio.timeout(_SENDING):
                    await request.body()
                async with turn(readers, client, request):
                    return answer(await _in_thread(read, await request.body()))
        except TimeoutError:
            return refused(f"The file did not arrive within {_SENDING} seconds.", 408)
        except TooManyRequests as error:
            return refused(error)

    async def upload(request: Request) -> Response:
        names, client = request.query_params.getlist("name"), address_of(request)
        return await opened(request, client, lambda data: server.upload(data, names, client))

    async def dataset(request: Request) -> Response:
        name, model = (request.query_params.get(key, "") for key in ("name", "model"))
        return await opened(
            request, address_of(request), lambda data: server.dataset(data, name, model)
        )

    followers = Turns(_FOLLOWERS, "runs are being followed")
    return [
        Route("/inflight/call/{name}", call, methods=["POST"]),
        Route("/inflight/uploads", upload, methods=["POST"]),
        Route("/inflight/datasets", dataset, methods=["POST"]),
        Route("/inflight/state", lambda request: answer(server.state()), methods=["GET"]),
        Route(
            "/inflight/comparisons", lambda request: answer(server.comparisons()), methods=["GET"]
        ),
        Route("/inflight/jobs", begin, methods=["POST"]),
        Route("/inflight/jobs/{job}", InTurn(followers, address_of, follow), methods=["GET"]),
        Route(
            "/inflight/jobs/{job}/cancel",
            lambda request: answer(server.cancel(request.path_params["job"])),
            methods=["POST"],
        ),
        Route("/inflight/files/{name}", file, methods=["GET"], middleware=[PACKED]),
    ]


class InTurn:
    """An ASGI application that waits for a place, answers by `respond`, and frees the place once
    the answer has been sent. A client that leaves while waiting is not answered.
    """

    def __init__(
        self,
        turns: Turns,
        address_of: Callable[[Request], str],
        respond: Callable[[Request], Awaitable[Response]],
    ) -> None:
        self._turns, self._address_of, self._respond = turns, address_of, respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            await request.body()
            async with turn(self._turns, self._address_of(request), request):
                response = await self._respond(request)
                await response(scope, receive, send)
        except TooManyRequests as error:
            await refused(error)(scope, receive, send)


@asynccontextmanager
async def turn(turns: Turns, address: str, request: Request) -> AsyncIterator[None]:
    """Wait for a place and hold it. The body of the request must have been read. Raises
    TooManyRequests, and ClientDisconnect if the client leaves.
    """
    taking = asyncio.ensure_future(turns.take(address))
    leaving = asyncio.ensure_future(gone(request))
    leaving.add_done_callback(lambda _: taking.cancel())
    try:
        await taking
    except asyncio.CancelledError:
        if leaving.done():
            raise ClientDisconnect from None
        raise
    finally:
        leaving.cancel()
    try:
        if leaving.done():
            raise ClientDisconnect
        yield
    finally:
        turns.free(address)


async def _in_thread(work: Callable[..., _T], *args: Any) -> _T:
    """The result of slow work, in a thread that no other work waits for."""
    return await to_thread.run_sync(work, *args, limiter=CapacityLimiter(1))


async def _cut(*parts: bytes) -> AsyncIterator[memoryview]:
    """Bytes in pieces, without a copy for each reader."""
    for part in parts:
        for start in range(0, len(part), _PIECE):
            yield memoryview(part)[start : start + _PIECE]
            await asyncio.sleep(0)  # lets a disconnect be noticed


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """A file in pieces; it is closed at the end or when the reader leaves."""
    with file:
        while piece := await to_thread.run_sync(file.read, _PIECE):
            yield piece


_FIGURE = re.compile(r"[0-9a-f]+\.\d+\.html")  # see `Store.export`; it lacks Plotly
_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".js": "text/javascript",
    ".htm": "text/html; charset=utf-8",  # a sheet, for reading and printing
    ".html": "text/html; charset=utf-8",  # an export, which is downloaded and opened from disk
    ".gz": "application/gzip",
    ".png": "image/png",
}


async def object_in(request: Request) -> dict[str, Any] | None:
    """The JSON object in a request's body, or None."""
    try:
        found = json.loads(await request.body())
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def answer(data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    # in ASCII, since a lone surrogate has no UTF-8
    return Response(json.dumps(data), status, headers, "application/json")


def refused(error: InflightError | str, status: int = 422) -> Response:
    """An error as a JSON response; one that says when to try again has its own status."""
    if isinstance(error, Unavailable):
        status = 429 if isinstance(error, TooManyRequests) else 503
        return answer(
            {"error": str(error), "retry_after": error.retry_after},
            status,
            {"retry-after": str(error.retry_after)},
        )
    return answer({"error": str(error)}, status)


class _Sent(StreamingResponse):
    """A streaming response that ends, and frees its place, if its reader takes nothing."""

    async def stream_response(self, send: Send) -> None:
        async def sent(message: Message) -> None:
            async with asyncio.timeout(TAKING):
                await send(message)

        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            with suppress(TimeoutError):
                await super().stream_response(sent)


def streamed(events: AsyncIterator[bytes]) -> Response:
    """Server-sent events, with headers against buffering and caching by proxies."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return _Sent(events, media_type="text/event-stream", headers=headers)


def number_from(request: Request, name: str) -> int | None:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 12 else None


@cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs  # 5 MB, only for downloads of a figure

    return f"<script>{get_plotlyjs()}</script>".encode()


def _visitor(named: object, address: str) -> str:
    """A visitor by the name that the page generated. Without a name, all requests of an address are
    one visitor, which nobody can choose as a name.
    """
    return f"named {named[:64]}" if isinstance(named, str) and named else f"at {address}"
