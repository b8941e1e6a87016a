"""Turns sampled tokens into everything that is sent, once: text, held back where a stop string may
have begun, log-probabilities, finish reasons, metrics.

    token ids ─→ AnswerText (decoded once) ─→ the engine, which ends a request at a stop string
                                           ─→ ClientText ─→ Piece ─→ the request's stream
                                           ─→ ServedStep ─→ the log, from which viewers read

It holds the streams of the requests in the engine, belongs to the engine's thread, and works on
tokens and events only.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import compress
from typing import Any, NamedTuple

import torch

from core.engine.runner import SamplingRow, observing
from core.errors import InflightError, InvalidRequest
from core.serving.event_log import EngineLog, ServedStep
from core.serving.metrics import ServingMetrics
from core.serving.stream import Piece, TokenStream, TopLogprob, call_in, put_all
from core.torch_engine.sampling import adjust_logits
from core.trace.detokenize import AnswerText
from core.trace.events import RECORDS, Sampled, StepEvent
from core.trace.header import Header
from core.workload.request import Request


class ClientText:
    """The text of an answer that a client sees: up to a stop string, found where `AnswerText` finds
    it, and without special tokens. Text that may be the beginning of a stop string is held back
    until that is decided. special: the texts of special tokens. It gets text and decodes nothing.
    """

    def __init__(self, stop: Sequence[str], special: Mapping[int, str]) -> None:
        self._stop, self._special = tuple(stop), special
        self._held, self._over = "", False
        self._is_shown: list[bool] = []  # of each character held back

    def add(self, token_id: int, piece: str) -> str:
        """The text that may now be shown. piece: the text that the token adds to the answer."""
        shown = piece.removesuffix(self._special.get(token_id, ""))
        return self._show(piece, len(shown))

    def finish(self, rest: str) -> str:
        """The text held back. rest: the text after the last piece."""
        text = self._show(rest, len(rest)) + "".join(compress(self._held, self._is_shown))
        self._held, self._is_shown = "", []
        return text

    def _show(self, piece: str, shown: int) -> str:
        """Add a piece; returns the text to show. shown: its characters but special tokens."""
        if self._over:
            return ""
        text = self._held + piece
        is_shown = self._is_shown + [index < shown for index in range(len(piece))]
        found = [at for s in self._stop if (at := text.find(s)) >= 0]
        if found:
            self._held, self._over = "", True
            return "".join(compress(text[: min(found)], is_shown))
        end = len(text) - max((_overlap(text, s) for s in self._stop), default=0)
        self._held, self._is_shown = text[end:], is_shown[end:]
        return "".join(compress(text[:end], is_shown))


def _overlap(text: str, stop: str) -> int:
    """The length of the longest suffix of `text` that is a prefix of `stop`."""
    return next(
        (n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0
    )


class TopLogprobs:
    """The most probable tokens at each position, for requests that ask for them. They are computed
    with the passes, from the logits used for sampling, and only while requests ask for them.
    Results of a pass that is launched before its tokens are read stay on the device until then.
    """

    def __init__(self) -> None:
        self._asked: dict[str, int] = {}  # how many, by request
        # by request, then by position
        self._found: dict[str, dict[int, tuple[torch.Tensor, torch.Tensor]]] = {}

    def ask(self, request: str, count: int) -> None:
        """Keep this many for each further token of a request; a count of 0 keeps none."""
        if count:
            self._asked[request], self._found[request] = count, {}

    def forget(self, request: str) -> None:
        """Forget a request that has ended."""
        self._asked.pop(request, None)
        self._found.pop(request, None)

    def clear(self) -> None:
        """Forget all requests."""
        self._asked.clear()
        self._found.clear()

    def take(self, sampled: Sampled, position: int) -> tuple[TopLogprob, ...]:
        """The top tokens at a position, most probable first; none if they were not asked for. The
        one that was sampled has the log-probability on record, whose last digit may be another.
        """
        found = self._found.get(sampled.request, {}).pop(position, None)
        if found is None:
            return ()
        own: dict[int, Any] = {sampled.token_id: sampled.logprob}
        pairs = zip(found[0].tolist(), found[1].tolist(), strict=True)
        return tuple(TopLogprob(i, own.get(i, round(logprob, 5))) for i, logprob in pairs)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Observe the passes that are launched inside, if any request asks for it."""
        if not self._asked:
            yield
            return
        with observing(self._observe):
            yield

    def _observe(self, rows: Sequence[SamplingRow], logits: torch.Tensor) -> None:
        for row, own in zip(rows, logits, strict=True):
            if row.request in self._asked:
                logprobs = adjust_logits(own[None].float(), [row])[0].log_softmax(-1)
                likely = logprobs.topk(min(self._asked[row.request], len(logprobs)))
                self._found[row.request][row.position] = likely.indices, likely.values


class _AnswerSoFar(NamedTuple):
    """pieces: those of tokens that were sampled but are not in an event yet."""

    text: AnswerText
    shown: ClientText
    pieces: deque[str]


class OutputProcessor:
    """tokenizer: used by this thread only. log: read by viewers."""

    def __init__(self, tokenizer: Any | None, metrics: ServingMetrics, log: EngineLog) -> None:
        self.metrics, self.log = metrics, log
        self._tokenizer = tokenizer
        self._special: dict[int, str] = {}
        if tokenizer is not None:
            self._special = {i: tokenizer.decode([i]) for i in tokenizer.all_special_ids}
        self.top_logprobs = TopLogprobs()
        self._answers: dict[str, _AnswerSoFar] = {}
        self.streams: dict[str, TokenStream] = {}  # unfinished and in the engine, by request
        self.last_step = -1  # the last step of this run that was processed
        self._began = 0.0  # when this run began, on the clock of `Times`

    # -- while the engine takes a step: see `core.engine.outputs` ----------------------------------

    def __len__(self) -> int:
        return len(self._answers)

    def begin(self, request: Request, prompt: Sequence[int]) -> None:
        """See `Outputs`."""
        stop = request.sampling.stop
        text = AnswerText(self._tokenizer, stop, prompt)
        self._answers[request.id] = _AnswerSoFar(text, ClientText(stop, self._special), deque())

    def add(self, request: str, token_id: int) -> bool:
        """See `Outputs`. The piece of text is kept until the step's event is processed."""
        answer = self._answers.get(request)
        if answer is None:  # it has ended; the engine was a step ahead
            return False
        answer.pieces.append(answer.text.add(token_id))
        return answer.text.is_stopped

    def end(self, request: str) -> None:
        """See `Outputs`. Nothing to do: the request's last event is still to be processed."""

    def clear(self) -> None:
        """See `Outputs`."""
        self._answers.clear()
        self.top_logprobs.clear()

    # -- what happened -----------------------------------------------------------------------------

    def begin_run(self, run: int, header: Header, began: float) -> None:
        """A run begins at this time of the engine's clock; its requests follow one by one."""
        self.last_step, self._began = -1, began
        self.metrics.configured(header.config, header.num_blocks)
        self.log.add({"kind": "run", "run": run, "header": header.to_json(), "records": RECORDS})

    def queued(self, stream: TokenStream, request: Request) -> None:
        """The engine has queued a stream's request."""
        self.streams[stream.id] = stream
        self.top_logprobs.ask(stream.id, stream.num_top_logprobs)
        self.log.add(
            {
                "kind": "request",
                "id": stream.id,
                "prompt_tokens": len(stream.prompt),
                "max_new_tokens": stream.sampling.max_new_tokens,
                "nickname": stream.nickname,
                "is_bot": stream.is_bot,
                "prompt_token_ids": stream.prompt,
                "messages": stream.conversation,
                "sampling": request.to_json()["sampling"],
            }
        )
        stream.call(stream.accept)

    def process(self, event: StepEvent) -> None:
        """Process a step: streams, log and metrics, with one call for each loop."""
        self.last_step = event.step
        handed: list[tuple[TokenStream, Piece]] = []
        texts: dict[str, list[str]] = {}
        ended = [f for f in event.finished if f.request in self.streams]  # see `carried`
        reasons: dict[str, Any] = {f.request: f.finish_reason for f in ended}
        last = {s.request: index for index, s in enumerate(event.sampled)}
        try:
            first = {s.request: event.passes[s.pass_index] for s in reversed(event.segments)}
            for admitted in event.admitted:
                stream = self.streams[admitted.request]
                if stream.times.first_pass is None:  # it may be preempted, and admitted again
                    stream.times.first_pass = self._began + first[stream.id].t_start
                    self.metrics.admitted(stream, event.kv.cached_tokens.get(stream.id, 0))
            for at, sampled in enumerate(event.sampled):
                stream, answer = self.streams[sampled.request], self._answers[sampled.request]
                reason = reasons.pop(stream.id, None) if last[stream.id] == at else None
                piece = answer.pieces.popleft()
                shown = answer.shown.add(sampled.token_id, piece)
                if reason is not None:
                    rest = answer.text.finish()
                    piece, shown = piece + rest, shown + answer.shown.finish(rest)
                texts.setdefault(stream.id, []).append(piece)
                t = self._began + event.passes[sampled.pass_index].t_end
                index, token_id = stream.num_tokens, sampled.token_id
                likely = self.top_logprobs.take(sampled, len(stream.prompt) + index)
                made = Piece(index, token_id, shown, sampled.logprob, reason, likely)
                handed.append((stream, made))
                self.metrics.token(stream, t)
                stream.took(t)
            for request, reason in reasons.items():
                stream, answer = self.streams[request], self._answers[request]
                rest = answer.shown.finish(answer.text.finish())
                handed.append((stream, Piece(stream.num_tokens, None, rest, None, reason)))
            for stream, made in handed:
                if made.finish_reason is not None:
                    self.metrics.finished(stream, made.finish_reason)
            self.metrics.step(event)
            self.log.add(ServedStep(event, texts))
        finally:  # even if something failed above, tokens that exist are delivered
            self._hand_over(handed)

    def cancelled(self, stream: TokenStream) -> None:
        """A request was cancelled before it reached the engine."""
        with suppress(BaseException):  # whoever waits is told, whatever becomes of the count
            self.metrics.finished(stream, "cancelled")
        self._hand_over([(stream, Piece(stream.num_tokens, None, "", None, "cancelled"))])

    def carried(self, streams: Sequence[TokenStream]) -> None:
        """These requests move to another run's queue; their streams do not end here."""
        for stream in streams:
            del self.streams[stream.id]
        if streams:
            self.log.add({"kind": "carried", "requests": [stream.id for stream in streams]})

    def let_go(self) -> list[TokenStream]:
        """Forget and return the streams in the engine, whose requests have been dropped."""
        streams = list(self.streams.values())
        self.streams.clear()
        return streams

    def fail(self, stream: TokenStream, error: InflightError) -> None:
        """End a request with an error."""
        with suppress(BaseException):  # as above
            self._end(stream)
            if not isinstance(error, InvalidRequest):
                self.metrics.finished(stream, "error")
        stream.call(stream.fail, error)

    # -- inside ------------------------------------------------------------------------------------

    def _hand_over(self, handed: Sequence[tuple[TokenStream, Piece]]) -> None:
        """Give pieces to their streams, and forget the requests that end."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[TokenStream, Piece]]] = {}
        for stream, piece in handed:
            by_loop.setdefault(stream.loop, []).append((stream, piece))
        try:
            for stream, piece in handed:
                if piece.finish_reason is not None:
                    self._end(stream)
        finally:
            for loop, pieces in by_loop.items():
                call_in(loop, put_all, pieces)

    def _end(self, stream: TokenStream) -> None:
        """Free the place of a request that ended or never began, and forget the request."""
        if self.streams.get(stream.id) is stream:
            del self.streams[stream.id]
            self._answers.pop(stream.id, None)
            self.top_logprobs.forget(stream.id)
        stream.place.free()
