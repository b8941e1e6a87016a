"""`POST /generate`, as in the server article: one JSON object, or an event per token."""

import secrets
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.serving.engine import ServingEngine
from core.serving.http.answers import (
    answer_unless_gone,
    event_stream,
    gather_pieces,
    merge_pieces,
    received,
    submit_all,
    usage,
)
from core.serving.http.schemas import GenerateBody
from core.serving.stream import TokenStream


def generate_routes(serving: ServingEngine) -> APIRouter:
    """`/generate`, the engine's own address, without OpenAI's fields."""
    router = APIRouter(tags=["generate"])

    @router.post("/generate", summary="Continue a prompt")
    async def generate(body: GenerateBody, request: Request) -> Response:
        """`{"id", "text", "token_ids", "finish_reason", "usage", "queue_s", "ttft_s", "e2e_s"}`;
        with `stream`, events `{"id", "index", "token_id", "text"}` and then one with all but the
        token ids. Times are the engine's, in seconds from arrival.
        """
        sampling = body.sampling()
        with received(serving, request) as call:
            asked = [(await call.check(body.prompt, sampling), sampling)]
            id = f"gen-{secrets.token_hex(8)}"
            streams = await submit_all(call, asked, id, nickname=body.nickname)
        if body.stream:
            return event_stream(serving, streams, _events(streams[0]))
        return await answer_unless_gone(request, streams, _whole(streams[0]))

    return router


async def _whole(stream: TokenStream) -> Response:
    (pieces,) = await gather_pieces([stream])
    token_ids = [piece.token_id for piece in pieces if piece.token_id is not None]
    text = "".join(piece.text for piece in pieces)
    return JSONResponse({**_rest(stream, text), "token_ids": token_ids})


async def _events(stream: TokenStream) -> AsyncIterator[dict[str, Any]]:
    text = ""
    async for _, piece in merge_pieces([stream]):
        text += piece.text
        if piece.token_id is not None:
            yield {
                "id": stream.id,
                "index": piece.index,
                "token_id": piece.token_id,
                "text": piece.text,
            }
    yield _rest(stream, text)


def _rest(stream: TokenStream, text: str) -> dict[str, Any]:
    return {
        "id": stream.id,
        "text": text,
        "finish_reason": stream.finish_reason,
        "usage": usage(len(stream.prompt), stream.num_tokens),
        **stream.times.to_json(),
    }
