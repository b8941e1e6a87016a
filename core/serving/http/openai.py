"""OpenAI's interface: `/v1/completions`, `/v1/chat/completions`, `/v1/models`. The tests use its unmodified client."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.serving.engine import ServingEngine
from core.serving.http.answers import (
    CheckedRequest,
    answer_unless_gone,
    event_stream,
    gather_pieces,
    merge_pieces,
    submit_all,
    usage,
)
from core.serving.http.errors import UnknownModel
from core.serving.http.schemas import ChatBody, CompletionBody, StreamOptions
from core.serving.stream import Piece, TokenStream


def openai_routes(serving: ServingEngine) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["openai"])
    started = int(time.time())

    def described() -> dict[str, Any]:
        length = serving.engine.model.context
        return {"id": serving.name, "object": "model", "created": started, "owned_by": "inflight", "max_model_len": length}

    @router.get("/models", summary="The model that is served")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described()]}

    @router.get("/models/{model:path}", summary="One model")
    async def model(model: str) -> dict[str, Any]:
        _check_model(serving, model)
        return described()

    @router.post("/completions", summary="Continue prompts")
    async def completions(body: CompletionBody, request: Request) -> Response:
        _check_model(serving, body.model)
        asked: list[CheckedRequest] = []
        for prompt in body.prompts:
            samplings = body.samplings(body.max_tokens)
            ids = await asyncio.to_thread(serving.check, prompt, samplings[0])
            asked += [(ids, sampling) for sampling in samplings]
        logprobs = body.logprobs is not None, body.logprobs or 0
        shape = _Completions(serving, f"cmpl-{secrets.token_hex(12)}", body.stream_options, *logprobs)
        return await _answer(shape, asked, body, request)

    @router.post("/chat/completions", summary="Continue a conversation")
    async def chat(body: ChatBody, request: Request) -> Response:
        _check_model(serving, body.model)
        ids = await asyncio.to_thread(serving.chat, [message.plain for message in body.messages])
        context = serving.engine.model.context or 2**31 - 1
        room = max(1, min(context - len(ids), serving.limits.max_new_tokens))
        samplings = body.samplings(body.max_completion_tokens or body.max_tokens or room)
        ids = await asyncio.to_thread(serving.check, ids, samplings[0])
        logprobs = body.logprobs, body.num_top_logprobs
        shape = _Chat(serving, f"chatcmpl-{secrets.token_hex(12)}", body.stream_options, *logprobs)
        return await _answer(shape, [(ids, sampling) for sampling in samplings], body, request)

    return router


def _check_model(serving: ServingEngine, model: str) -> None:
    if model != serving.name:
        raise UnknownModel(f"The model asked for is not served here; {serving.name} is.")


async def _answer(shape: _Shape, asked: Sequence[CheckedRequest], body: CompletionBody | ChatBody, request: Request) -> Response:
    prompt_tokens = sum(len(prompt) for prompt, _ in asked[:: body.n])  # a prompt with several answers counts once
    streams = await submit_all(shape.serving, asked, request, shape.id, num_top_logprobs=shape.num_top_logprobs)
    if body.stream:
        return event_stream(shape.serving, streams, _chunks(shape, streams, prompt_tokens))
    return await answer_unless_gone(request, streams, _whole(shape, streams, prompt_tokens))


async def _whole(shape: _Shape, streams: Sequence[TokenStream], prompt_tokens: int) -> Response:
    choices = [shape.choice(index, pieces, shape.whole) for index, pieces in enumerate(await gather_pieces(streams))]
    used = usage(prompt_tokens, sum(stream.num_tokens for stream in streams))
    return JSONResponse({**shape.head(shape.kind), "choices": choices, "usage": used})


async def _chunks(shape: _Shape, streams: Sequence[TokenStream], prompt_tokens: int) -> AsyncIterator[dict[str, Any] | str]:
    options, written = shape.options, 0
    head = shape.head(shape.chunk_kind) | ({"usage": None} if options.include_usage else {})
    for index in range(len(streams)):
        for choice in shape.first(index):
            yield {**head, "choices": [choice]}
    async for index, piece in merge_pieces(streams):
        written += piece.token_id is not None
        if options.include_usage and options.continuous_usage_stats:
            head["usage"] = usage(prompt_tokens, written)
        yield {**head, "choices": [shape.choice(index, [piece], shape.part)]}
    if options.include_usage:
        yield {**head, "choices": [], "usage": usage(prompt_tokens, sum(stream.num_tokens for stream in streams))}
    yield "[DONE]"


@dataclass
class _Shape:
    """How answers are written. logprobs: whether to give the log-probability of each token, and how many top tokens with it."""

    serving: ServingEngine
    id: str
    options: StreamOptions
    logprobs: bool
    num_top_logprobs: int
    created: int = field(default_factory=lambda: int(time.time()))

    kind = chunk_kind = ""

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.serving.name}

    def choice(self, index: int, pieces: Sequence[Piece], content: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
        """Pieces of an answer. content: its text, `whole` or `part` of it."""
        text = "".join(piece.text for piece in pieces)
        logprobs = self._logprobs(index, pieces) if self.logprobs else None
        return {"index": index, **content(text), "logprobs": logprobs, "finish_reason": pieces[-1].finish_reason}

    def first(self, index: int) -> list[dict[str, Any]]:
        """The opening events of a streamed choice."""
        return []

    def whole(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def part(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        raise NotImplementedError

    def _token(self, token_id: int) -> str:
        tokenizer = self.serving.tokenizer
        return f"token_id:{token_id}" if tokenizer is None else tokenizer.decode([token_id])


@dataclass
class _Completions(_Shape):
    _offsets: dict[int, int] = field(default_factory=dict)  # characters of a choice that were written

    kind = chunk_kind = "text_completion"

    def whole(self, text: str) -> dict[str, Any]:
        return {"text": text}

    part = whole

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        offsets = []
        for piece in pieces:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(piece.text)
        rows = [(p, p.token_id, at) for p, at in zip(pieces, offsets, strict=True) if p.token_id is not None]
        return {
            "tokens": [self._token(token_id) for _, token_id, _ in rows],
            "token_logprobs": [piece.logprob for piece, _, _ in rows],
            "top_logprobs": [self._top(piece, token_id) for piece, token_id, _ in rows] if self.num_top_logprobs else None,
            "text_offset": [at for _, _, at in rows],
        }

    def _top(self, piece: Piece, token_id: int) -> dict[str, float | None]:
        """The top tokens, and the chosen one."""
        return {self._token(i): logprob for i, logprob in piece.top_logprobs} | {self._token(token_id): piece.logprob}


@dataclass
class _Chat(_Shape):
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def first(self, index: int) -> list[dict[str, Any]]:
        return [{"index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}]

    def whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def part(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}}

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        rows = [
            self._logprob(piece.token_id, piece.logprob) | {"top_logprobs": [self._logprob(*top) for top in piece.top_logprobs]}
            for piece in pieces
            if piece.token_id is not None
        ]
        return {"content": rows, "refusal": None}

    def _logprob(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        token = self._token(token_id)
        return {"token": token, "logprob": logprob, "bytes": list(token.encode())}
