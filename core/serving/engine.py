"""A serving engine. It takes its steps on its own thread; requests join and leave at every step, each with its own stream.

    serving = ServingEngine(engine)
    serving.start()
    stream = await serving.submit(serving.check("O Romeo, ", sampling), sampling)
    async for piece in stream: ...
    serving.close()

These are the calls for other threads; each becomes a message to the engine's thread (`core.serving.engine_thread`).
"""

from __future__ import annotations

import asyncio
import copy
import secrets
from collections.abc import Sequence
from typing import Literal

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InvalidRequest, Unavailable
from core.serving import messages
from core.serving.engine_thread import EngineThread
from core.serving.event_log import EngineLog, Hidden
from core.serving.limits import ServingLimits
from core.serving.messages import ClassState, RunStart, ToEngine
from core.serving.metrics import ServingMetrics
from core.serving.output_processor import OutputProcessor
from core.serving.request_validator import CheckedPrompt, RequestValidator
from core.serving.session import Session
from core.serving.stream import TokenStream
from core.trace.trace import Trace
from core.workload.request import SamplingParams

Status = Literal["ok", "draining", "failed"]


class ServingEngine:
    """engine: idle, and used exclusively from `start` to `close`. name: what clients call the model. hidden: what viewers do not see."""

    def __init__(
        self,
        engine: EngineCore,
        limits: ServingLimits | None = None,
        name: str | None = None,
        hidden: Hidden = Hidden(),  # noqa: B008 (frozen)
    ) -> None:
        self.engine, self.limits, self.name = engine, limits or ServingLimits(), name or engine.model.name or ""
        # Tokenizers are not thread-safe: the engine's own belongs to its thread, this one to the event loop, a third to validation.
        self.tokenizer = copy.deepcopy(engine.tokenizer)
        self.event_log, self.metrics = EngineLog(hidden), ServingMetrics(self.name, engine)
        self._validator, self._session = RequestValidator(engine, self.limits, self.name), Session(self.limits.kept_tokens)
        engine.recorder = self._session
        engine.outputs = outputs = OutputProcessor(engine.tokenizer, self.metrics, self._validator, self.event_log)
        self._thread = EngineThread(engine, self._session, outputs)
        self.settings = messages.SetClass()
        self._change: messages.ChangeConfig | None = None  # the latest request
        self._draining = False

    # -- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread, which takes its first step when a request comes. Raises ExecutionFailed if the KV pool cannot be made."""
        self._thread.start()

    def drain(self) -> None:
        """Accept no more requests and show no more events; requests in progress continue."""
        self._draining = True
        self.send(messages.Command.DRAIN)

    def close(self) -> None:
        """End now: cancel requests in progress and join the thread."""
        self.drain()
        self.send(messages.Command.STOP)
        self._thread.join()

    def send(self, message: ToEngine) -> None:
        """Have the engine's thread handle a message between two steps."""
        self._thread.send(message)

    # -- how it is ---------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        """failed: the engine could not be restored after a failed step; the next request tries again."""
        return "draining" if self._draining or self._thread.has_ended else "ok" if self._thread.works else "failed"

    @property
    def num_requests(self) -> int:
        """Requests in progress."""
        return self._validator.num_under_way

    @property
    def num_step_failures(self) -> int:
        return self._thread.num_step_failures

    @property
    def is_idle(self) -> bool:
        """Whether no request is in progress or about to be submitted."""
        return not self.num_requests and not self.engine.has_work

    @property
    def config_to_come(self) -> EngineConfig | None:
        """The limits of a run that is about to begin."""
        change = self._change
        return change.config if change is not None and change is not self._thread.last_change else None

    @property
    def steps_per_s(self) -> float | None:
        """The pace; None for full speed."""
        return self._thread.pace.steps_per_s

    @property
    def class_state(self) -> ClassState:
        """The current settings, including changes that the engine's thread has not seen yet."""
        settings = messages.SetClass(self.settings.accepting and self.status != "draining", self.settings.shadow)
        return self._thread.class_state(settings, self.config_to_come)

    def session(self, run: int | None = None) -> Trace:
        """A run so far, by default the latest in which something happened: a trace that passes `check`. It may take a while: do not call on an event loop.

        It has no nicknames. Raises InflightError for a run that is not kept; see `Session`.
        """
        trace = self._session.copy(run)
        with self._validator.tokenizer() as tokenizer:
            trace.recorded_texts = trace.decoded(tokenizer)
        return trace

    @property
    def sessions(self) -> list[tuple[int, int]]:
        """(number, steps) of the runs that `session` has, oldest first."""
        return self._session.kept

    # -- what is asked of it -----------------------------------------------------------------------------------------

    def set_pace(self, steps_per_s: float | None) -> None:
        """See `SetPace`."""
        self.send(messages.SetPace(steps_per_s))

    def step(self, count: int = 1) -> None:
        """See `TakeSteps`."""
        self.send(messages.TakeSteps(count))

    def clear(self) -> None:
        """Cancel everything in progress."""
        self.send(messages.Command.CANCEL_ALL)

    def change(self, config: EngineConfig, start: RunStart = "barrier") -> None:
        """See `ChangeConfig`."""
        self._change = messages.ChangeConfig(config, start)
        self.send(self._change)

    def set_class(self, settings: messages.SetClass) -> None:
        """See `SetClass`."""
        self.settings = settings
        self.send(settings)

    def chat(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """See `RequestValidator.chat`."""
        return self._validator.chat(messages)

    def check(self, prompt: str | Sequence[int], sampling: SamplingParams) -> CheckedPrompt:
        """See `RequestValidator.check`."""
        return self._validator.check(prompt, sampling, self.engine.config)

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
        is_bot: bool = False,
    ) -> TokenStream:
        """Queue a request whose prompt `check` returned; returns as soon as the engine has queued it.

        num_top_logprobs: how many top tokens to report for each token. even_if_closed: also while no requests are accepted.
        is_bot: a program of ours asks, under a nickname that no client may have and that is never hidden.
        Raises Unavailable while the server accepts no requests, TooManyRequests when it is full, InvalidRequest for a request that the KV pool
        cannot hold and for a nickname that is not allowed.
        """
        nickname = nickname if is_bot else self._validator.nickname(nickname)
        if num_top_logprobs and sampling.looks_back and self.engine.trace.header.is_asynchronous:
            raise InvalidRequest(
                "Top log-probabilities cannot be combined with penalties here: a step is launched before the previous one is read."
            )
        if self.status == "draining":
            raise Unavailable("The server is closing and takes no more requests.", retry_after=10)
        if not self.settings.accepting and not even_if_closed:
            raise Unavailable("No requests are accepted right now.", retry_after=5)
        self._validator.acquire_slot(client)
        ids = prompt if isinstance(prompt, CheckedPrompt) else tuple(prompt)
        id = id or f"r-{secrets.token_hex(8)}"
        stream = TokenStream(id, ids, sampling, client, nickname, self.engine.now, self.send, num_top_logprobs, is_bot)
        self.send(messages.Submit(stream))
        try:
            await asyncio.shield(stream.accepted)
        except asyncio.CancelledError:
            stream.cancel()
            stream.accepted.add_done_callback(lambda future: future.exception())  # otherwise never retrieved
            raise
        return stream
