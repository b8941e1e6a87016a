"""The server's own HTTP addresses beside Gradio's: jobs and the files of the store.

    POST inflight/jobs             {"kind", "spec", "visitor"} → {"job"} or {"error"}
    GET  inflight/jobs/ID?from=N   the job's deltas from number N on, as server-sent events
    POST inflight/jobs/ID/cancel   → {"cancelled"}
    GET  inflight/files/NAME       a file of the store
    POST inflight/uploads?name=…   a saved trace, as it is, or several (see uploads.py) → {"id", "url"} or {"error"}
    POST inflight/datasets?name=…&model=…  a published workload, as it is → {"workload", "block_size", "says"} or {"error"}
    GET  inflight/state            models, presets, policies, limits and recorded runs
    POST inflight/models           {"model", "device", "dtype"} → what it is and will take, or {"error"}
    GET  inflight/comparisons      recorded comparisons, and what can be compared

A job's stream notices at once when its reader leaves, and a delta costs a reader only its bytes: Gradio's queue can do neither.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from anyio import CapacityLimiter, to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Send

from core.errors import InflightError, TooManyRequests, Unavailable
from visualizer.page.step import PLOTLY
from visualizer.server.api import Server
from visualizer.server.response_cache import FOREVER
from visualizer.server.uploads import BUSY

_FILES = 16  # opened by visitors at once; more would exhaust memory
_FILES_OF_ONE = 4  # per address, so that one slow sender cannot block everyone
_PIECE = 2**16  # bytes of a file in memory per reader
_SENDING = 60  # seconds that a file may take to arrive
_TAKING = 30  # seconds that a reader may take to receive what it is sent


def routes(
    server: Server, address_of: Callable[[Request], str], enter: Callable[[Request], None] = lambda request: None
) -> list[Route]:
    """address_of: gives the address of a request's client. enter: called in the context in which its job will run."""

    async def begin(request: Request) -> Response:
        body = await object_in(request)
        if body is None:
            return answer({"error": "A job is asked for as a JSON object with a kind and a spec."}, 400)
        enter(request)
        address = address_of(request)
        visitor = body.get("visitor")
        return answer(server.begin(body.get("kind"), body.get("spec"), _visitor(visitor, address), address))

    async def follow(request: Request) -> Response:
        try:
            return streamed(server.follow(request.path_params["job"], number_from(request, "from") or 0))
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
        if name.endswith(".html"):  # an export: opened from disk, never from here
            with content:
                page = content.read().decode("utf-8").replace(PLOTLY, _plotly(), 1)
            return Response(page, media_type="text/html", headers=headers)
        headers["content-length"] = str(os.fstat(content.fileno()).st_size)
        return StreamingResponse(_pieces(content), media_type=_TYPES.get(Path(name).suffix), headers=headers)

    opening = Counter[str]()  # files by address
    looking = CapacityLimiter(2)  # at models that may be on the hub, which takes seconds

    async def opened(request: Request, read: Callable[[bytes], dict[str, Any]]) -> Response:
        whose = address_of(request)
        if opening[whose] >= _FILES_OF_ONE:
            return answer({"error": f"{_FILES_OF_ONE} of your files are already being opened: try again in a moment."})
        if opening.total() >= _FILES:  # before its body takes memory
            return answer({"error": BUSY})
        opening[whose] += 1
        try:
            async with asyncio.timeout(_SENDING):
                data = await request.body()
            return answer(await to_thread.run_sync(read, data, limiter=CapacityLimiter(1)))  # a separate thread, because it waits
        except TimeoutError:
            return answer({"error": f"The file did not arrive within {_SENDING} seconds."}, 408)
        finally:
            opening[whose] -= 1
            if not opening[whose]:
                del opening[whose]

    async def upload(request: Request) -> Response:
        names = request.query_params.getlist("name")
        return await opened(request, lambda data: server.upload(data, names))

    async def dataset(request: Request) -> Response:
        name, model = (request.query_params.get(key, "") for key in ("name", "model"))
        return await opened(request, lambda data: server.dataset(data, name, model))

    async def model(request: Request) -> Response:
        body = await object_in(request)
        if body is None:
            return answer({"error": "A model is asked for as a JSON object."}, 400)
        return answer(await to_thread.run_sync(server.model, body, limiter=looking))

    return [
        Route("/inflight/models", model, methods=["POST"]),
        Route("/inflight/uploads", upload, methods=["POST"]),
        Route("/inflight/datasets", dataset, methods=["POST"]),
        Route("/inflight/state", lambda request: answer(server.state()), methods=["GET"]),
        Route("/inflight/comparisons", lambda request: answer(server.comparisons()), methods=["GET"]),
        Route("/inflight/jobs", begin, methods=["POST"]),
        Route("/inflight/jobs/{job}", follow, methods=["GET"]),
        Route("/inflight/jobs/{job}/cancel", lambda request: answer(server.cancel(request.path_params["job"])), methods=["POST"]),
        Route("/inflight/files/{name}", file, methods=["GET"]),
    ]


async def _pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    """A file in pieces; it is closed at the end or when the reader leaves."""
    with file:
        while piece := await to_thread.run_sync(file.read, _PIECE):
            yield piece


_TYPES = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".js": "text/javascript",
    ".htm": "text/html; charset=utf-8",  # a sheet to read and to print; a file with the suffix .html is downloaded
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
    """Plain data as JSON."""
    return Response(json.dumps(data), status, headers, "application/json")  # ASCII: a lone surrogate has no UTF-8


def refused(error: InflightError, status: int = 422) -> Response:
    """A refusal as JSON; one that says when to try again has its own status."""
    if isinstance(error, Unavailable):
        status = 429 if isinstance(error, TooManyRequests) else 503
        return answer({"error": str(error), "retry_after": error.retry_after}, status, {"retry-after": str(error.retry_after)})
    return answer({"error": str(error)}, status)


class _Events(StreamingResponse):
    """Ends when its reader receives nothing for too long, which frees its place."""

    async def stream_response(self, send: Send) -> None:
        async def sent(message: Message) -> None:
            async with asyncio.timeout(_TAKING):
                await send(message)

        async with aclosing(self.body_iterator):  # type: ignore[type-var]
            with suppress(TimeoutError):
                await super().stream_response(sent)


def streamed(events: AsyncIterator[bytes]) -> Response:
    """Server-sent events, which no proxy may buffer or cache."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return _Events(events, media_type="text/event-stream", headers=headers)


def number_from(request: Request, name: str) -> int | None:
    """A whole number from the query, or None."""
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 12 else None


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs  # 5 MB, only for downloads of a figure

    return f"<script>{get_plotlyjs()}</script>"


def _visitor(named: object, address: str) -> str:
    """A visitor by the name that its page generated; without one, each address is one visitor."""
    return named[:64] if isinstance(named, str) and named else f"at {address}"
