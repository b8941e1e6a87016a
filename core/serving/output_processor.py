"""Delivers what happened: tokens to each request's stream, counts to the metrics, messages to the viewers.

Holds the streams of the requests in the engine. Belongs to the engine's thread. Knows no engine: it is handed events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from core.errors import InflightError, InvalidRequest
from core.serving.metrics import ServingMetrics
from core.serving.request_validator import RequestValidator
from core.serving.stream import Token, TokenStream, call_in, put_all
from core.serving.top_logprobs import TopLogprobs
from core.trace.events import StepEvent
from core.trace.header import Header
from core.workload.request import Request

Message = dict[str, Any] | StepEvent


class OutputProcessor:
    """say: takes the messages for viewers. intake: gets the places of ended requests back."""

    def __init__(self, metrics: ServingMetrics, intake: RequestValidator, say: Callable[[Message], None]) -> None:
        self._metrics, self._intake, self._say = metrics, intake, say
        self._alternatives = TopLogprobs()
        self.streams: dict[str, TokenStream] = {}  # unfinished and in the engine, by request
        self.last_told = -1  # the number of the last step of this run that was told

    def begin(self, run: int, header: Header) -> None:
        """A run begins; requests come one by one."""
        self.last_told = -1
        self._metrics.configured(header.config, header.num_blocks)
        self._say({"kind": "run", "run": run, "header": header.to_json()})

    def queued(self, stream: TokenStream, request: Request) -> None:
        """The engine has queued a stream's request."""
        self.streams[stream.id] = stream
        self._alternatives.ask(stream.id, stream.num_top_logprobs, stream.sampling)
        self._say(
            {
                "kind": "request",
                "id": stream.id,
                "prompt_tokens": len(stream.prompt),
                "max_new_tokens": stream.sampling.max_new_tokens,
                "nickname": stream.nickname,
                "prompt_token_ids": stream.prompt,
                "sampling": request.to_json()["sampling"],
            }
        )
        stream.call(stream.accept)

    def watching(self) -> AbstractContextManager[None]:
        """A step is taken inside; alternatives to its tokens are computed if somebody asked."""
        return self._alternatives.watching()

    def tell(self, event: StepEvent) -> None:
        """Tell everybody of a step; the streams in one call of their loop."""
        self.last_told = event.step
        handed: list[tuple[TokenStream, Token]] = []
        reasons: dict[str, Any] = {
            f.request: f.finish_reason for f in event.finished if f.request in self.streams
        }  # see `carried`
        ends = [p.t_end for p in event.passes]
        try:
            for admitted in event.admitted:
                self._admit(self.streams[admitted.request], event.t_start)
            for sampled in event.sampled:
                request, t = sampled.request, ends[sampled.pass_index]
                stream = self.streams[request]
                top_logprobs = self._alternatives.take(request, len(stream.prompt) + stream.num_tokens)
                self._metrics.token(stream, t)
                stream.took(t)
                handed.append((stream, Token(sampled.token_id, sampled.logprob, reasons.pop(request, None), top_logprobs)))
            handed += [(self.streams[request], Token(None, None, reason)) for request, reason in reasons.items()]
            for stream, token in handed:
                if token.finish_reason is not None:
                    self._metrics.finished(stream, token.finish_reason)
            self._metrics.step(event)
            self._say(event)
        finally:  # even if something failed above, nobody waits for a token that is there
            self._hand_over(handed)

    def cancelled(self, stream: TokenStream) -> None:
        """A request that was not in the engine yet has left."""
        self._metrics.finished(stream, "cancelled")
        self._hand_over([(stream, Token(None, None, "cancelled"))])

    def carried(self, streams: Sequence[TokenStream]) -> None:
        """These leave the engine for the queue of another run; their streams are not told of the end in this run."""
        for stream in streams:
            del self.streams[stream.id]
        if streams:
            self._say({"kind": "carried", "requests": [stream.id for stream in streams]})

    def end(self, stream: TokenStream, error: InflightError) -> None:
        """A request ends without having finished."""
        self._release(stream)
        if not isinstance(error, InvalidRequest):
            self._metrics.finished(stream, "error")
        stream.call(lambda: stream.fail(error))

    # -- inside ------------------------------------------------------------------------------------------------------

    def _admit(self, stream: TokenStream, t: float) -> None:
        if stream.times.admitted is None:  # it may be preempted, and admitted again
            stream.times.admitted = t
            self._metrics.admitted(stream)

    def _hand_over(self, handed: Sequence[tuple[TokenStream, Token]]) -> None:
        """Give tokens to their streams, and free the places of requests that end."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[TokenStream, Token]]] = {}
        for stream, token in handed:
            by_loop.setdefault(stream.loop, []).append((stream, token))
            if token.finish_reason is not None:
                self._release(stream)
        for loop, tokens in by_loop.items():
            call_in(loop, put_all, tokens)

    def _release(self, stream: TokenStream) -> None:
        self.streams.pop(stream.id, None)
        self._alternatives.forget(stream.id)
        self._intake.release_slot(stream.client)
