"""A serving engine. It takes its steps on its own thread; requests join and leave at every step,
each with its own stream.

    serving = ServingEngine(engine)
    serving.start()
    stream = await serving.submit("O Romeo, ", sampling)
    async for piece in stream: ...
    serving.close()

These methods may be called from other threads; the engine's thread (`core.serving.engine_thread`)
carries them out between two steps.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InvalidRequest, Unavailable
from core.serving.engine_thread import ChangeConfig, ClassSettings, EngineThread, RunStart
from core.serving.event_log import EngineLog, Hidden
from core.serving.limits import AcceptedPlace, Places, ServingLimits
from core.serving.metrics import ServingMetrics
from core.serving.output_processor import OutputProcessor
from core.serving.request_validator import CheckedPrompt, RequestValidator, TokenizingQueue
from core.serving.session import Session
from core.serving.stream import TokenStream, closed
from core.torch_engine.models.names import public_name
from core.trace.trace import Trace
from core.workload.request import Message, SamplingParams

Status = Literal["ok", "draining", "failed"]


class ServingEngine:
    """engine: idle, and used exclusively from `start` to `close`. name: the name by which clients
    call the model; of a path, only the last part is used. hidden: what viewers do not see.
    """

    def __init__(
        self,
        engine: EngineCore,
        limits: ServingLimits | None = None,
        name: str | None = None,
        hidden: Hidden = Hidden(),  # noqa: B008
    ) -> None:
        self.engine = engine
        self.limits = limits or ServingLimits()
        self.name = public_name(name or engine.model.name or "")
        # Tokenizers are not thread-safe: the engine's own belongs to its thread, this one to the
        # event loop, others to prompts and to `session`.
        self.tokenizer = copy.deepcopy(engine.tokenizer)
        self._of_session = copy.deepcopy(engine.tokenizer)
        self._tokenizing = TokenizingQueue(copy.deepcopy(engine.tokenizer))
        self._saving = threading.Lock()
        self.event_log, self.metrics = EngineLog(hidden), ServingMetrics(self.name, engine)
        self._validator = RequestValidator(engine, self.limits, self.name)
        self._places = Places(self.limits)
        self._session = Session(self.limits.kept_tokens, self.name)
        engine.recorder = self._session
        engine.outputs = outputs = OutputProcessor(engine.tokenizer, self.metrics, self.event_log)
        self._thread = EngineThread(engine, self._session, outputs)
        self.settings = ClassSettings(system="" if self.is_asked_by_messages else None)
        self._change: ChangeConfig | None = None  # the latest request
        self._draining = False

    # -- its life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, which takes its first step when a request comes. Raises ExecutionFailed
        if the KV pool cannot be made.
        """
        self._thread.start()

    def drain(self) -> None:
        """Accept no more requests and show no more events; requests in progress continue."""
        self._draining = True
        self._thread.send(self._thread.drain)

    def close(self) -> None:
        """End now: cancel requests in progress and join the thread."""
        self.drain()
        self._thread.send(self._thread.stop)
        self._thread.join()

    # -- how it is ---------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """The state of the server. failed: the next request tries to restore the engine."""
        if self._draining:
            return "draining"
        return "ok" if self._thread.works and not self._thread.has_ended else "failed"

    @property
    def is_lost(self) -> bool:
        """Whether the engine's thread has ended because of a bug: nothing runs here any more."""
        return self._thread.has_ended and not self._draining

    @property
    def num_requests(self) -> int:
        """Requests in progress, counted from when they were received."""
        return self._places.num_taken

    @property
    def num_step_failures(self) -> int:
        """Steps that could not be computed since the server began."""
        return self._thread.num_step_failures

    @property
    def config_to_come(self) -> EngineConfig | None:
        """The limits of a run that is about to begin."""
        change = self._change
        return (
            change.config if change is not None and change is not self._thread.last_change else None
        )

    @property
    def steps_per_s(self) -> float | None:
        """The pace; None for full speed."""
        return self._thread.pace.steps_per_s

    @property
    def class_state(self) -> dict[str, Any]:
        """The current settings, including changes that the engine's thread has not seen yet."""
        accepting = self.settings.accepting and self.status != "draining"
        settings = replace(self.settings, accepting=accepting)
        return self._thread.class_state(settings, self.config_to_come)

    def session(self, run: int | None = None) -> Trace:
        """A run so far, by default the latest in which something happened, as a trace that passes
        `check`. It may take a while, so do not call it on an event loop.

        It has no nicknames. Raises InflightError for a run that is not kept; see `Session`.
        """
        trace = self._session.copy(run)
        with self._saving:
            trace.recorded_texts = trace.decoded(self._of_session)
        return trace

    @property
    def sessions(self) -> list[tuple[int, int]]:
        """(number, steps) of the runs that `session` has, oldest first."""
        return self._session.kept

    @property
    def is_asked_by_messages(self) -> bool:
        """Whether the model has a chat template; then what a person writes is a message to it."""
        return self._validator.has_template

    # -- what is asked of it -----------------------------------------------------------------------

    def set_pace(self, steps_per_s: float | None) -> None:
        """See `EngineThread.set_pace`."""
        self._thread.send(self._thread.set_pace, steps_per_s)

    def step(self, count: int = 1) -> None:
        """Take this many steps now, at any pace."""
        self._thread.send(self._thread.pace.ask, count)

    def clear(self) -> None:
        """Cancel everything in progress."""
        self._thread.send(self._thread.cancel_all)

    def change(self, config: EngineConfig, start: RunStart = "barrier") -> None:
        """See `ChangeConfig`."""
        self._change = ChangeConfig(config, start)
        self._thread.send(self._thread.change, self._change)

    def set_class(self, settings: ClassSettings) -> None:
        """See `ClassSettings`."""
        self.settings = settings
        self._thread.send(self._thread.set_class, settings)

    def receive(self, client: str = "", count: int = 1, *, even_if_closed: bool = False) -> Call:
        """Take places for this many requests of a client, and note the time. Call it before doing
        any work for the client.

        even_if_closed: also while no requests are accepted. Raises Unavailable while the server
        accepts no requests, and TooManyRequests when it is full.
        """
        if self.status == "draining":
            raise Unavailable("The server is closing and takes no more requests.", retry_after=10)
        if not self.settings.accepting and not even_if_closed:
            raise Unavailable("No requests are accepted right now.", retry_after=5)
        return Call(self, self._places.take(client, count), self.engine.time)

    async def submit(
        self,
        prompt: str | Sequence[int],
        sampling: SamplingParams,
        *,
        client: str = "",
        even_if_closed: bool = False,
        **options: Any,
    ) -> TokenStream:
        """`receive`, `Call.check` and `Call.submit` for one request. Raises what they raise."""
        with self.receive(client, even_if_closed=even_if_closed) as call:
            return await call.submit(await call.check(prompt, sampling), sampling, **options)

    async def ask(
        self,
        text: str,
        sampling: SamplingParams,
        *,
        client: str = "",
        even_if_closed: bool = False,
        **options: Any,
    ) -> TokenStream:
        """Like `submit`, for a text written by a person. A model with a chat template gets it as a
        message, after the teacher's system prompt; any other model continues the text.
        """
        with self.receive(client, even_if_closed=even_if_closed) as call:
            prompt, conversation = await call.written(text)
            checked = await call.check(prompt, sampling)
            return await call.submit(checked, sampling, conversation=conversation, **options)


class Call:
    """The requests of one call by a client. Used in a `with` statement, after which the places that
    no request has taken are free again.

    arrived: when the call came, on the engine's clock.
    """

    def __init__(self, serving: ServingEngine, places: list[AcceptedPlace], arrived: float) -> None:
        self._serving, self._places, self.arrived = serving, places, arrived

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *_: object) -> None:
        for place in self._places:
            place.free()

    async def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See `RequestValidator.chat`."""
        validator = self._serving._validator
        validator.check_chat()
        size = sum(len(message["content"]) for message in messages)
        return await self._serving._tokenizing.run(
            size, lambda tokenizer: validator.chat(messages, tokenizer)
        )

    async def written(
        self, prompt: str | Sequence[int]
    ) -> tuple[str | Sequence[int], tuple[Message, ...] | None]:
        """The prompt for a text by a person, and the messages from which it was written, if any;
        token ids stay as they are. See `ServingEngine.ask`.
        """
        if not (self._serving.is_asked_by_messages and isinstance(prompt, str) and prompt):
            return prompt, None
        said = {"system": self._serving.settings.system, "user": prompt}
        conversation = tuple({"role": r, "content": c} for r, c in said.items() if c)
        return await self.chat(conversation), conversation

    async def check(self, prompt: str | Sequence[int], sampling: SamplingParams) -> CheckedPrompt:
        """The prompt's token ids; raises InvalidRequest if this server would not run it."""
        validator, config = self._serving._validator, self._serving.engine.config
        if not isinstance(prompt, str):
            return validator.check(prompt, sampling, config, self._serving.tokenizer)
        return await self._serving._tokenizing.run(
            len(prompt), lambda tokenizer: validator.check(prompt, sampling, config, tokenizer)
        )

    async def submit(
        self,
        prompt: CheckedPrompt,
        sampling: SamplingParams,
        *,
        id: str | None = None,
        nickname: str | None = None,
        num_top_logprobs: int = 0,
        is_bot: bool = False,
        conversation: tuple[Message, ...] | None = None,
    ) -> TokenStream:
        """Queue a request, which takes one of the places; returns once the engine has queued it.

        num_top_logprobs: how many top tokens to report for each token. is_bot: whether it is asked
        by one of our own programs, under a nickname that no client may have and that is never
        hidden. conversation: the messages that the prompt was written from, recorded in its place.
        Raises InvalidRequest for a request that the KV pool cannot hold, for an id that is in use
        and for a nickname that is not allowed, and Unavailable once the server is closed.
        """
        serving, thread = self._serving, self._serving._thread
        nickname = nickname if is_bot else serving._validator.nickname(nickname)
        if num_top_logprobs and sampling.looks_back and serving.engine.trace.header.is_asynchronous:
            raise InvalidRequest(
                "Top log-probabilities cannot be combined with penalties here: a step is launched"
                " before the previous one is read.",
                param="logprobs",
            )
        id = id or f"r-{secrets.token_hex(8)}"
        place = self._places[-1]
        stream = TokenStream(
            id=id,
            prompt=prompt,
            sampling=sampling,
            place=place,
            nickname=nickname,
            arrived=self.arrived,
            on_cancel=partial(thread.send, thread.cancel),
            num_top_logprobs=num_top_logprobs,
            is_bot=is_bot,
            conversation=conversation,
        )
        if not thread.send(thread.submit, stream):
            raise closed()
        self._places.pop()  # the engine's thread gives it back, however the request ends
        try:
            await asyncio.shield(stream.accepted)
        except asyncio.CancelledError:
            stream.cancel()
            # otherwise asyncio would complain that its exception was never retrieved
            stream.accepted.add_done_callback(lambda future: future.exception())
            raise
        return stream
