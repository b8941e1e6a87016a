"""An engine that serves. It takes its steps on a thread of its own; requests join and leave at every step, each with its own stream.

    serving = ServingEngine(engine)
    serving.start()
    stream = await serving.submit(serving.check("O Romeo, ", sampling), sampling)
    async for piece in stream: ...
    serving.close()

What other threads may call is here; the work of the engine's thread is in files of its own: its `loop`, the requests that come in
(`admission`), the `runs`, telling clients and viewers (`delivery`), and a step that failed (`recovery`). The engine is driven by its public
functions alone. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections.abc import Callable, Sequence
from typing import Literal

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InvalidRequest, Unavailable
from core.serving.admission import Admission, When
from core.serving.engine_thread import EngineThread
from core.serving.feed import Feed, Hidden
from core.serving.limits import ServingLimits
from core.serving.metrics import ServingMetrics
from core.serving.output_processor import Message, OutputProcessor
from core.serving.recovery import recover
from core.serving.request_validator import RequestValidator
from core.serving.runs import Runs
from core.serving.session import Session
from core.serving.stream import TokenStream
from core.serving.text import ClientText
from core.trace.trace import Trace
from core.workload.request import SamplingParams

Status = Literal["ok", "draining", "failed"]


class ServingEngine:
    """engine: idle, and used by nobody else from `start` to `close`. name: what clients call the model. hidden: what viewers are not told."""

    def __init__(
        self,
        engine: EngineCore,
        limits: ServingLimits | None = None,
        name: str | None = None,
        hidden: Hidden = Hidden(),  # noqa: B008 (frozen)
    ) -> None:
        self.engine, self.limits, self.name = engine, limits or ServingLimits(), name or engine.model.name or ""
        # Tokenizers are not thread-safe: the engine's own belongs to its thread, this one to the event loop, a third to those who check.
        self.tokenizer, self._intake = copy.deepcopy(engine.tokenizer), RequestValidator(engine, self.limits, self.name)
        self.feed, self._session = Feed(hidden=hidden), Session(self.limits.kept_tokens)
        self.metrics = ServingMetrics(
            self.name,
            lambda: len(engine.running),
            lambda: engine.num_waiting,
            lambda: engine.kv_blocks[0] / engine.kv_blocks[1],
        )
        self.num_step_failures = 0
        self.accepting = True
        self.record_is_full = False  # later steps of this run are not kept: see `Session`
        self.on_message: Callable[[Message], None] | None = None  # called by the thread with everything that the feed is told
        self.on_change: Callable[[], None] = lambda: (
            None
        )  # called by the thread when other limits are in force or waited for, and as the record fills
        self._draining = False
        self._config_asked_for: EngineConfig | None = None  # until the thread has seen it
        self._loop = EngineThread(lambda: engine.has_work, self._step, self._end)
        self._delivery = OutputProcessor(self.metrics, self._intake, self._say)
        self._runs = Runs(engine, self._session, self._delivery)
        self._admission = Admission(engine, self._runs, self._delivery, lambda: self._loop.pace.owe(), lambda: self.on_change())

    # -- for everybody -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the first step when the first request comes. Raises ExecutionFailed where the KV pool cannot be had."""
        self.engine.recorder = self._session
        self._runs.begin()
        self.set_pace(self.steps_per_s)  # for those who watch
        self._loop.start()

    def drain(self) -> None:
        """Take no more requests and show no more events; what is under way goes on."""
        self._draining = True
        self.set_pace(None)
        self.ask(self.feed.close)

    def close(self) -> None:
        """End now: what is under way is cancelled, the thread joined."""
        self.drain()
        self._loop.stop()

    def ask(self, function: Callable[[], None]) -> None:
        """Have the thread call the function, between two steps."""
        self._loop.ask(function)

    @property
    def status(self) -> Status:
        """failed: the engine could not be made ready again after a step that failed; the next request tries once more."""
        return "draining" if self._draining else "ok" if self._runs.works else "failed"

    @property
    def num_requests(self) -> int:
        """Requests under way."""
        return self._intake.num_under_way

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a request under way, or is about to hand one over."""
        return not self.num_requests and not self.engine.has_work

    @property
    def num_held(self) -> int:
        """Requests under way that wait for the next run."""
        return len(self._admission.held)

    @property
    def config_to_come(self) -> EngineConfig | None:
        """The limits of a run that is about to begin."""
        to_come = self._admission.to_come
        return self._config_asked_for or (to_come.config if to_come is not None else None)

    @property
    def steps_per_s(self) -> float | None:
        """The pace; None for full speed."""
        return self._loop.pace.steps_per_s

    def chat(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """See `RequestValidator.chat`."""
        return self._intake.chat(messages)

    def check(self, prompt: str | Sequence[int], sampling: SamplingParams) -> tuple[int, ...]:
        """See `RequestValidator.check`."""
        return self._intake.check(prompt, sampling, self.engine)

    def set_pace(self, steps_per_s: float | None) -> None:
        """Set the most steps a second; None for full speed, 0 to stand still except for single steps."""

        def change() -> None:
            self._loop.pace.set(steps_per_s)
            self._say({"kind": "pace", "steps_per_s": steps_per_s})

        self.ask(change)

    def step(self, count: int = 1) -> None:
        """Take this many steps now, at any pace."""
        self.ask(lambda: self._loop.pace.ask(count))

    def clear(self) -> None:
        """Cancel everything under way."""
        self.ask(self._admission.cancel_all)

    def change(self, config: EngineConfig, when: When = "barrier") -> None:
        """Begin a new run with other limits: at once if the engine is idle, else as soon as it is.

        when: "barrier" lets no request into a lane from now on; those that wait, and those that arrive meanwhile, join the new run.
        """
        self._config_asked_for = config

        def change() -> None:
            if self._config_asked_for is config:
                self._config_asked_for = None
            self._admission.change(config, when)

        self.ask(change)

    def session(self, run: int | None = None) -> Trace:
        """A run so far, by default the latest in which something happened: a trace that passes `check`. May take a while: not for an event loop.

        Nicknames are not in it. Raises InflightError for a run that is not kept; see `Session`.
        """
        trace = self._session.copy(run)
        with self._intake.tokenizer() as tokenizer:
            trace.recorded_texts = trace.decoded(tokenizer)
        return trace

    @property
    def sessions(self) -> list[tuple[int, int]]:
        """(number, steps) of the runs that `session` has, oldest first."""
        return self._session.kept

    async def submit(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        *,
        client: str = "",
        id: str | None = None,
        nickname: str | None = None,
        num_top_logprobs: int = 0,
        even_if_closed: bool = False,
    ) -> TokenStream:
        """Queue a request whose prompt `check` returned; returns as soon as the engine has queued it.

        num_top_logprobs: alternatives told beside each token, see `TopLogprobs`. even_if_closed: also while `accepting` is false.
        Raises Unavailable while the server takes no requests, TooManyRequests when it is full, InvalidRequest for a request that the KV pool
        cannot hold and for a nickname that is not allowed.
        """
        nickname = self._intake.nickname(nickname)
        if num_top_logprobs and sampling.looks_back and self.engine.trace.header.is_asynchronous:
            raise InvalidRequest(
                "Here the likeliest tokens cannot be told beside penalties: a step is launched before the last is read."
            )
        if self._draining:
            raise Unavailable("The server is closing and takes no more requests.", retry_after=10)
        if not self.accepting and not even_if_closed:
            raise Unavailable("No requests are taken just now.", retry_after=5)
        self._intake.acquire_slot(client)
        text = ClientText(self.tokenizer, sampling.stop, prompt)
        id = id or f"r-{secrets.token_hex(8)}"
        stream = TokenStream(id, prompt, sampling, text, client, nickname, self.engine.now, self._ask_to_cancel, num_top_logprobs)
        self.ask(lambda: self._admission.accept(stream))
        try:
            await asyncio.shield(stream.accepted)
        except asyncio.CancelledError:
            stream.cancel()
            stream.accepted.add_done_callback(lambda future: future.exception())  # nobody else will look
            raise
        return stream

    def _ask_to_cancel(self, stream: TokenStream) -> None:
        self.ask(lambda: self._admission.cancel(stream))

    # -- the thread --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        try:
            with self._delivery.watching():
                event = self.engine.step()
            if event is not None:
                self._delivery.tell(event)
        except Exception as error:  # any error: the server goes on without the requests that it concerns
            self.num_step_failures += 1
            self.metrics.step_failures.inc()
            recover(error, self.engine, self._session, self._delivery, self._runs, self._admission)
        self._admission.begin_what_is_to_come()
        if self._session.is_full != self.record_is_full:
            self.record_is_full = self._session.is_full
            self.on_change()

    def _end(self) -> None:
        """The thread ends, perhaps because of a bug: nobody may be left waiting for it."""
        self._draining = True
        self.feed.close()
        self._loop.do_what_was_asked()
        for stream in self._admission.all:
            self._delivery.end(stream, Unavailable("The server was closed."))

    def _say(self, message: Message) -> None:
        self.feed.add(message)
        if self.on_message is not None:
            self.on_message(message)
