"""The pieces of one request, on their way from the engine's thread to the coroutine that waits for
them, and the times of its events.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.errors import ExecutionFailed, InflightError, Unavailable
from core.serving.limits import AcceptedPlace
from core.workload.request import FinishReason, Message, SamplingParams


class TopLogprob(NamedTuple):
    """A likely token, and its log-probability at temperature 1, after bias and penalties."""

    token_id: int
    logprob: float


@dataclass(frozen=True)
class Piece:
    """A token as a client sees it. index: of the token in the answer. text: the text that can now
    be shown, often more or less than that of the token. finish_reason: of the last piece. token_id:
    None in a last piece without a token. top_logprobs: as many as were requested.
    """

    index: int
    token_id: int | None
    text: str
    logprob: float | None
    finish_reason: FinishReason | None
    top_logprobs: tuple[TopLogprob, ...] = ()


@dataclass
class Times:
    """Seconds on the engine's clock (`EngineCore.time`, which continues from run to run), None for
    what has not happened yet.

    arrived: when the client's call was received.
    """

    arrived: float
    first_pass: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def to_json(self) -> dict[str, float | None]:
        """As sent to clients: seconds from arrival to the first pass, the first and last token."""
        named = {"queue_s": self.first_pass, "ttft_s": self.first_token, "e2e_s": self.last_token}
        return {
            name: None if t is None else round(max(0.0, t - self.arrived), 6)
            for name, t in named.items()
        }


class TokenStream:
    """The pieces of a request. Iterate it once, in the loop in which it was created. A reader that
    stops early calls `cancel`, which has no effect after the end.
    """

    def __init__(
        self,
        id: str,
        prompt: tuple[int, ...],
        sampling: SamplingParams,
        place: AcceptedPlace,
        nickname: str | None,
        arrived: float,
        on_cancel: Callable[[TokenStream], object],
        num_top_logprobs: int = 0,
        is_bot: bool = False,
        conversation: tuple[Message, ...] | None = None,
    ) -> None:
        self.conversation = conversation  # the messages that the prompt was written from, if any
        self.id, self.prompt, self.sampling, self.nickname = id, prompt, sampling, nickname
        self.place = place  # given back by the engine's thread when the request has ended
        self.num_top_logprobs = num_top_logprobs  # top tokens reported for each one
        self.is_bot = is_bot  # whether the request is from one of our own programs
        self.times = Times(arrived)
        self.num_tokens = 0  # delivered; written by the engine's thread
        # cancelled, to be reported by the next step; written by the engine's thread
        self.is_leaving = False
        self.finish_reason: FinishReason | None = None  # once the last piece has been read
        self.loop = asyncio.get_running_loop()
        self.accepted: asyncio.Future[None] = self.loop.create_future()
        self._pieces: asyncio.Queue[Piece | InflightError] = asyncio.Queue()
        self._on_cancel = on_cancel

    def cancel(self) -> None:
        """Cancel the request: its lane and blocks are free in the next step."""
        if self.finish_reason is None:
            self._on_cancel(self)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """The pieces; raises ExecutionFailed if a step of this request failed."""
        while self.finish_reason is None:
            piece = await self._pieces.get()
            if isinstance(piece, InflightError):
                self.finish_reason = "error"
                raise piece
            self.finish_reason = piece.finish_reason
            yield piece

    # -- by the engine's thread --------------------------------------------------------------------

    def took(self, t: float) -> None:
        """A token was generated at `t`."""
        self.num_tokens += 1
        self.times.last_token = t
        if self.times.first_token is None:
            self.times.first_token = t

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """Have the stream's loop call one of the methods below."""
        call_in(self.loop, function, *args)

    # -- from the engine's thread, through the loop ------------------------------------------------

    def accept(self) -> None:
        """The engine has queued it."""
        if not self.accepted.done():
            self.accepted.set_result(None)

    def put(self, piece: Piece) -> None:
        """Hand a piece to the reader; never waits."""
        self._pieces.put_nowait(piece)

    def fail(self, error: InflightError) -> None:
        """End the stream with an error; if it was not accepted yet, `submit` raises instead."""
        if not self.accepted.done():
            self.finish_reason = "error"
            self.accepted.set_exception(error)
        else:
            self._pieces.put_nowait(error)


def call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call a function in a loop from another thread; does nothing if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)


def put_all(pieces: Sequence[tuple[TokenStream, Piece]]) -> None:
    """Give each piece to its stream; all streams belong to the loop that calls this."""
    for stream, piece in pieces:
        stream.put(piece)


def step_failed() -> ExecutionFailed:
    """The error sent to clients; the reason goes only to the log, because it may quote a prompt."""
    return ExecutionFailed("The step that computed this request failed; the server goes on.")


def closed() -> Unavailable:
    """The error of requests that the server no longer begins or finishes."""
    return Unavailable("The server was closed.", retry_after=10)
