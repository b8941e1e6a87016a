"""Shared by routes: queueing requests together, merging their pieces, and cancelling them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from fastapi import Request
from sse_starlette import EventSourceResponse
from starlette.responses import Response

from core.errors import ExecutionFailed, InflightError, InvalidRequest
from core.serving.engine import Call, ServingEngine
from core.serving.http.errors import error_body, status_of
from core.serving.http.guard import gone
from core.serving.request_validator import CheckedPrompt
from core.serving.stream import Piece, TokenStream
from core.workload.request import SamplingParams

CheckedRequest = tuple[CheckedPrompt, SamplingParams]


def received(serving: ServingEngine, request: Request, count: int = 1) -> Call:
    """The call of a client who asks for this many answers. Raises what `ServingEngine.receive`
    raises, and InvalidRequest for too many.
    """
    if count > serving.limits.max_choices:
        raise InvalidRequest(
            f"At most {serving.limits.max_choices} answers are written in one call, not {count}.",
            param="n",
        )
    return serving.receive(request.client.host if request.client else "", count)


async def submit_all(
    call: Call, asked: Sequence[CheckedRequest], id: str, **options: Any
) -> list[TokenStream]:
    """Queue all requests or none, with options of `Call.submit`; raises what it raises."""
    streams: list[TokenStream] = []
    try:
        for index, (prompt, sampling) in enumerate(asked):
            name = id if len(asked) == 1 else f"{id}-{index}"
            streams.append(await call.submit(prompt, sampling, id=name, **options))
    except BaseException:
        cancel(streams)
        raise
    return streams


def cancel(streams: Sequence[TokenStream]) -> None:
    """Cancel the requests of these streams; those that have ended are unchanged."""
    for stream in streams:
        stream.cancel()


async def merge_pieces(streams: Sequence[TokenStream]) -> AsyncIterator[tuple[int, Piece]]:
    """The pieces of several streams as they come, each with the index of its stream. Raises what
    the streams raise, and ExecutionFailed for logits that are not finite.
    """
    if len(streams) == 1:
        async for piece in _finite(streams[0]):
            yield 0, piece
        return
    items: asyncio.Queue[tuple[int, Piece] | InflightError] = asyncio.Queue()

    async def pump(index: int, stream: TokenStream) -> None:
        try:
            async for piece in _finite(stream):
                items.put_nowait((index, piece))
        except InflightError as error:
            items.put_nowait(error)

    pumps = [asyncio.create_task(pump(index, stream)) for index, stream in enumerate(streams)]
    try:
        left = len(streams)
        while left:
            item = await items.get()
            if isinstance(item, InflightError):
                raise item
            yield item
            left -= item[1].finish_reason is not None
    finally:
        for task in pumps:
            task.cancel()


async def _finite(stream: TokenStream) -> AsyncIterator[Piece]:
    async for piece in stream:
        if piece.finish_reason == "error":
            raise ExecutionFailed("The model gave numbers that are not finite.")
        yield piece


async def gather_pieces(streams: Sequence[TokenStream]) -> list[list[Piece]]:
    """All pieces of each stream."""
    pieces: list[list[Piece]] = [[] for _ in streams]
    async for index, piece in merge_pieces(streams):
        pieces[index].append(piece)
    return pieces


async def answer_unless_gone(
    request: Request, streams: Sequence[TokenStream], work: Coroutine[Any, Any, Response]
) -> Response:
    """The response that `work` makes. The streams are cancelled if the client leaves first."""
    making, leaving = asyncio.create_task(work), asyncio.create_task(gone(request))
    try:
        await asyncio.wait({making, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return making.result() if making.done() else Response(status_code=499)  # the client is gone
    finally:
        cancel(streams)
        making.cancel()
        leaving.cancel()


def event_stream(
    serving: ServingEngine,
    streams: Sequence[TokenStream],
    events: AsyncIterator[dict[str, Any]],
    end: str | None = None,
) -> EventSourceResponse:
    """A response with each event as a `data:` line, and `end` after the last. The streams are
    cancelled if the client leaves, even before the first event. A failure becomes the last event.
    """

    async def lines() -> AsyncIterator[bytes]:
        try:
            async for event in events:
                yield _event(event)
        except InflightError as error:
            yield _event(error_body(status_of(error), str(error)))
        if end is not None:
            yield _event(end)

    return EventStream(serving, lines(), partial(cancel, streams))


class EventStream(EventSourceResponse):
    """A stream that calls `ended` at its end, however it ends; the `finally` of a generator would
    not run if it was never begun.
    """

    def __init__(
        self, serving: ServingEngine, lines: AsyncIterator[bytes], ended: Callable[[], None]
    ) -> None:
        super().__init__(lines, sep="\n", send_timeout=serving.limits.send_s)
        self._ended = ended

    async def __call__(self, *connection: Any) -> None:
        try:
            await super().__call__(*connection)
        finally:
            self._ended()


def _event(data: dict[str, Any] | str) -> bytes:
    """An event of one line: a text, or JSON without spaces."""
    if not isinstance(data, str):
        data = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"data: {data}\n\n".encode()


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """OpenAI's count of tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }
