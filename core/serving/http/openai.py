"""OpenAI's interface: `/v1/completions`, `/v1/chat/completions`, `/v1/models`."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from core.browser.tokenizer import byte_characters
from core.errors import InvalidRequest
from core.serving.engine import Call, ServingEngine
from core.serving.http.answers import (
    CheckedRequest,
    answer_unless_gone,
    event_stream,
    gather_pieces,
    merge_pieces,
    received,
    submit_all,
    usage,
)
from core.serving.http.errors import UnknownModel
from core.serving.http.schemas import ChatBody, CompletionBody
from core.serving.stream import Piece, TokenStream


def openai_routes(serving: ServingEngine) -> APIRouter:
    """`/v1/models`, `/v1/completions` and `/v1/chat/completions`."""
    router = APIRouter(prefix="/v1", tags=["openai"])
    tokens = TokenNames(serving.tokenizer)
    described = {
        "id": serving.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "inflight",
        "max_model_len": serving.engine.model.context,
    }

    @router.get("/models", summary="The model that is served")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [described]}

    @router.get("/models/{model:path}", summary="One model")
    async def model(model: str) -> dict[str, Any]:
        _check_model(serving, model)
        return described

    @router.post("/completions", summary="Continue prompts")
    async def completions(body: CompletionBody, request: Request) -> Response:
        _check_model(serving, body.model)
        shape = _Completions(serving, tokens, body, body.logprobs is not None, body.logprobs or 0)
        with received(serving, request, len(body.prompts) * body.n) as call:
            asked: list[CheckedRequest] = []
            for prompt in body.prompts:
                samplings = body.samplings(body.max_tokens)
                ids = await call.check(prompt, samplings[0])
                asked += [(ids, sampling) for sampling in samplings]
            streams = await shape.submitted(call, asked)
        return await shape.answer(streams, request)

    @router.post("/chat/completions", summary="Continue a conversation")
    async def chat(body: ChatBody, request: Request) -> Response:
        _check_model(serving, body.model)
        shape = _Chat(serving, tokens, body, body.logprobs, body.num_top_logprobs)
        try:
            with received(serving, request, body.n) as call:
                ids = await call.chat([message.plain for message in body.messages])
                samplings = body.samplings(body.most_new_tokens or _room(serving, len(ids)))
                checked = await call.check(ids, samplings[0])
                streams = await shape.submitted(
                    call, [(checked, sampling) for sampling in samplings]
                )
        except InvalidRequest as error:
            if error.param is not None:
                error.param = body.engines_names.get(error.param, error.param)
            raise
        return await shape.answer(streams, request)

    return router


def _room(serving: ServingEngine, prompt_tokens: int) -> int:
    """How long an answer may become if the client gave no length."""
    engine = serving.engine
    # while the pool is made anew its size is 0
    holds = (engine.model.context, engine.kv_blocks[1] * engine.config.block_size)
    rooms = [most - prompt_tokens for most in holds if most]
    return max(1, min([*rooms, serving.limits.max_new_tokens]))


def _check_model(serving: ServingEngine, model: str) -> None:
    if model != serving.name:
        raise UnknownModel(f"The model asked for is not served here; {serving.name} is.")


class _Shape:
    """The form of answers. logprobs: whether to give them, and for how many top tokens."""

    prefix = kind = chunk_kind = ""

    def __init__(
        self,
        serving: ServingEngine,
        tokens: TokenNames,
        body: CompletionBody | ChatBody,
        logprobs: bool,
        num_top_logprobs: int,
    ) -> None:
        self.serving, self.tokens, self.body = serving, tokens, body
        self.logprobs, self.num_top_logprobs = logprobs, num_top_logprobs
        self.id, self.created = f"{self.prefix}-{secrets.token_hex(12)}", int(time.time())
        self._offsets: dict[int, int] = {}  # characters of a choice that were written

    async def submitted(self, call: Call, asked: Sequence[CheckedRequest]) -> list[TokenStream]:
        return await submit_all(call, asked, self.id, num_top_logprobs=self.num_top_logprobs)

    async def answer(self, streams: Sequence[TokenStream], request: Request) -> Response:
        # a prompt with several answers counts once
        prompt_tokens = sum(len(stream.prompt) for stream in streams[:: self.body.n])
        if self.body.stream:
            chunks = self._chunks(streams, prompt_tokens)
            return event_stream(self.serving, streams, chunks, "[DONE]")
        return await answer_unless_gone(request, streams, self._whole(streams, prompt_tokens))

    async def _whole(self, streams: Sequence[TokenStream], prompt_tokens: int) -> Response:
        choices = [
            self.choice(index, pieces, self.whole)
            for index, pieces in enumerate(await gather_pieces(streams))
        ]
        used = usage(prompt_tokens, sum(stream.num_tokens for stream in streams))
        return JSONResponse({**self.head(self.kind), "choices": choices, "usage": used})

    async def _chunks(
        self, streams: Sequence[TokenStream], prompt_tokens: int
    ) -> AsyncIterator[dict[str, Any]]:
        options, written = self.body.stream_options, 0
        head = self.head(self.chunk_kind) | ({"usage": None} if options.include_usage else {})
        for index in range(len(streams)):
            for choice in self.first(index):
                yield {**head, "choices": [choice]}
        async for index, piece in merge_pieces(streams):
            written += piece.token_id is not None
            if options.include_usage and options.continuous_usage_stats:
                head["usage"] = usage(prompt_tokens, written)
            yield {**head, "choices": [self.choice(index, [piece], self.part)]}
        if options.include_usage:
            used = usage(prompt_tokens, sum(stream.num_tokens for stream in streams))
            yield {**head, "choices": [], "usage": used}

    def head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.serving.name}

    def choice(
        self, index: int, pieces: Sequence[Piece], content: Callable[[str], dict[str, Any]]
    ) -> dict[str, Any]:
        """A choice with these pieces. content: makes the field of its text, whole or part."""
        text = "".join(piece.text for piece in pieces)
        logprobs = self._logprobs(index, pieces) if self.logprobs else None
        return {
            "index": index,
            **content(text),
            "logprobs": logprobs,
            "finish_reason": pieces[-1].finish_reason,
        }

    def first(self, index: int) -> list[dict[str, Any]]:
        """The opening events of a streamed choice."""
        return []

    def whole(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def part(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        raise NotImplementedError


class _Completions(_Shape):
    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def whole(self, text: str) -> dict[str, Any]:
        return {"text": text}

    part = whole

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        offsets = []
        for piece in pieces:
            offsets.append(self._offsets.get(index, 0))
            self._offsets[index] = offsets[-1] + len(piece.text)
        rows = [
            (piece, piece.token_id, at)
            for piece, at in zip(pieces, offsets, strict=True)
            if piece.token_id is not None
        ]
        return {
            "tokens": [self.tokens.name(token_id) for _, token_id, _ in rows],
            "token_logprobs": [piece.logprob for piece, _, _ in rows],
            "top_logprobs": (
                [self._top(piece, token_id) for piece, token_id, _ in rows]
                if self.num_top_logprobs
                else None
            ),
            "text_offset": [at for _, _, at in rows],
        }

    def _top(self, piece: Piece, token_id: int) -> dict[str, float | None]:
        """The top tokens after the chosen one, whose name is therefore the same as in `tokens`."""
        logprobs = {token_id: piece.logprob} | dict(piece.top_logprobs)
        return {name: logprobs[i] for i, name in self.tokens.distinct(logprobs).items()}


class _Chat(_Shape):
    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first(self, index: int) -> list[dict[str, Any]]:
        return [
            {
                "index": index,
                "delta": {"role": "assistant", "content": ""},
                "logprobs": None,
                "finish_reason": None,
            }
        ]

    def whole(self, text: str) -> dict[str, Any]:
        return {"message": {"role": "assistant", "content": text}}

    def part(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text}}

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any]:
        rows = [
            self._logprob(piece.token_id, piece.logprob)
            | {"top_logprobs": [self._logprob(*top) for top in piece.top_logprobs]}
            for piece in pieces
            if piece.token_id is not None
        ]
        return {"content": rows, "refusal": None}

    def _logprob(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        own = self.tokens.bytes(token_id) or b""  # whoever has a chat template has a tokenizer
        return {"token": self.tokens.name(token_id), "logprob": logprob, "bytes": list(own)}


_REPLACEMENT = "\ufffd"
_BYTE_OF = {character: byte for byte, character in byte_characters().items()}
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class TokenNames:
    """The names of tokens for clients: each with its text and its bytes, and unique. tokenizer: a
    transformers tokenizer, or None, in which case tokens have only ids.
    """

    def __init__(self, tokenizer: Any | None) -> None:
        self._tokenizer = tokenizer

    def bytes(self, token_id: int) -> bytes | None:
        """The bytes of a token, even if they are only a part of a character; joined, they are those
        of the text. None without a tokenizer.
        """
        tokenizer = self._tokenizer
        if tokenizer is None:
            return None
        text: str = tokenizer.decode([token_id])
        if _REPLACEMENT in text:
            piece = tokenizer.convert_ids_to_tokens(token_id)
            if byte := _BYTE.fullmatch(piece):
                return bytes([int(byte[1], 16)])
            if all(character in _BYTE_OF for character in piece):
                return bytes(_BYTE_OF[character] for character in piece)
            return text.encode()
        # the first of a text may lose the space before it
        return str(tokenizer.decode([token_id, token_id]))[len(text) :].encode()

    def name(self, token_id: int) -> str:
        """The token's text. Without one: its bytes, as in OpenAI's API, or its id, as in vLLM."""
        own = self.bytes(token_id)
        if own is None:
            return f"token_id:{token_id}"
        try:
            return own.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in own)

    def distinct(self, token_ids: Iterable[int]) -> dict[int, str]:
        """The names of several tokens; all but the first of equal names become ids."""
        names: dict[int, str] = {}
        for token_id in dict.fromkeys(token_ids):
            name = self.name(token_id)
            names[token_id] = f"token_id:{token_id}" if name in names.values() else name
        return names
