"""An engine that serves: it takes its steps on a thread of its own, requests join and leave at every step, each with its own stream.

    serving = ServingEngine(engine)
    serving.start()
    stream = await serving.submit(serving.check("O Romeo, ", sampling), sampling)
    async for piece in stream: ...
    serving.close()

The thread drives the engine by its public functions alone. A step that fails ends the requests that were in a lane, with an error; those
that waited are queued again. Other limits begin a new run, which those that wait join. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import queue
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

from core.config import EngineConfig
from core.engine.engine import Engine
from core.errors import InflightError, InvalidRequest, Unavailable
from core.serving.alternatives import Alternatives
from core.serving.feed import Feed, Hidden
from core.serving.intake import Intake, as_sentence
from core.serving.limits import ServingLimits
from core.serving.metrics import ServingMetrics
from core.serving.pace import Pace
from core.serving.session import Session
from core.serving.stream import Token, TokenStream, call_in, put_all, step_failed
from core.serving.text import ClientText
from core.threads import SHARES
from core.trace.detokenize import pieces
from core.trace.events import StepEvent
from core.trace.trace import Texts, Trace
from core.workload.request import Request, SamplingParams

Status = Literal["ok", "draining", "failed"]
When = Literal["idle", "barrier"]
_log = logging.getLogger("inflight.serving")


class ServingEngine:
    """engine: idle, and nobody else's from `start` to `close`. name: what clients call the model. hidden: what viewers are not told."""

    def __init__(
        self,
        engine: Engine,
        limits: ServingLimits | None = None,
        name: str | None = None,
        hidden: Hidden = Hidden(),  # noqa: B008 (frozen)
    ) -> None:
        self.engine, self.limits, self.name = engine, limits or ServingLimits(), name or engine.adapter.name
        # Tokenizers are not thread-safe: the engine's own belongs to its thread, this one to the event loop, a third to those who check.
        self.tokenizer, self._intake = copy.deepcopy(engine.tokenizer), Intake(engine, self.limits, self.name)
        self.feed, self._session = Feed(hidden=hidden), Session(self.limits.kept_tokens)
        self.metrics = ServingMetrics(
            self.name,
            lambda: len(engine.running),
            lambda: engine.num_waiting,
            lambda: engine.kv_blocks[0] / engine.kv_blocks[1],
        )
        self.num_step_failures = 0
        self.accepting = True
        self.on_message: Callable[[dict[str, Any] | StepEvent], None] | None = (
            None  # called by the thread with whatever the feed is told
        )
        self.on_change: Callable[[], None] = lambda: None  # called by the thread when other limits are in force, or waited for
        self._pace, self._alternatives = Pace(), Alternatives()
        self._engine_works = True
        self._draining = self._stopping = False
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[
            str, TokenStream
        ] = {}  # unfinished and in the engine, by request; the thread's alone, as the next three
        self._next: tuple[EngineConfig, When] | None = None  # limits to come
        self._held: dict[str, TokenStream] = {}  # unfinished, for the run to come
        self._withdrawn: set[str] = set()  # of those held, who have left the queue and will be told of as cancelled
        self._thread = threading.Thread(target=self._run, name="inflight-engine", daemon=True)

    # -- for everybody -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the first step when the first request comes. Raises ExecutionFailed where the KV pool cannot be had."""
        self.engine.recorder = self._session
        self._begin()
        self.set_pace(self.steps_per_s)  # for those who watch
        self._thread.start()

    def drain(self) -> None:
        """Take no more requests and show no more events; what is under way goes on."""
        self._draining = True
        self.set_pace(None)
        self.ask(self.feed.close)

    def close(self) -> None:
        """End now: what is under way is cancelled, the thread joined."""
        self.drain()
        self._stopping = True
        self.ask(lambda: None)
        if self._thread.ident is not None:
            self._thread.join()

    def ask(self, function: Callable[[], None]) -> None:
        """Have the thread call it, between two steps."""
        self._inbox.put(function)

    @property
    def status(self) -> Status:
        """failed: the engine could not be made ready again after a step that failed; the next request tries once more."""
        return "draining" if self._draining else "ok" if self._engine_works else "failed"

    @property
    def num_requests(self) -> int:
        """Under way."""
        return self._intake.num_under_way

    @property
    def num_held(self) -> int:
        """Of them, those that wait for the next run."""
        return len(self._held)

    @property
    def config_to_come(self) -> EngineConfig | None:
        """The limits of a run that is about to begin."""
        return self._next[0] if self._next is not None else None

    @property
    def steps_per_s(self) -> float | None:
        """The pace; None for full speed."""
        return self._pace.steps_per_s

    def chat(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """See `Intake.chat`."""
        return self._intake.chat(messages)

    def check(self, prompt: str | Sequence[int], sampling: SamplingParams) -> tuple[int, ...]:
        """See `Intake.check`."""
        return self._intake.check(prompt, sampling, self.engine)

    def set_pace(self, steps_per_s: float | None) -> None:
        """So many steps a second at most; None for full speed, 0 to stand still except for single steps."""

        def change() -> None:
            self._pace.set(steps_per_s)
            self._say({"kind": "pace", "steps_per_s": steps_per_s})

        self.ask(change)

    def step(self, count: int = 1) -> None:
        """Take so many steps now, whatever the pace."""
        self.ask(lambda: self._pace.ask(count))

    def clear(self) -> None:
        """Cancel whatever is under way."""

        def cancel() -> None:
            for stream in [*self._streams.values(), *self._held.values()]:
                self._cancel(stream)
            self._pace.ask(1)  # the step in which they leave

        self.ask(cancel)

    def change(self, config: EngineConfig, when: When = "barrier") -> None:
        """Begin a new run with other limits: at once if the engine is idle, else as soon as it is.

        when: "barrier" lets nobody into a lane from now on; those that wait, and those that come meanwhile, join the new run.
        """
        self.ask(lambda: self._prepare(config, when))

    def session(self, run: int | None = None) -> Trace:
        """A run so far, by default the latest in which something happened: a trace that passes `check`. May take a while: not for an event loop.

        Nicknames are not in it. Raises InflightError for a run that is not kept; see `Session`.
        """
        trace = self._session.copy(run)
        with self._intake.tokenizer() as tokenizer:
            outputs = trace.outputs
            trace.recorded_texts = Texts(
                {r: pieces(tokenizer, ids) for r, ids in trace.prompts.items()},
                {r: pieces(tokenizer, outputs[r], context=ids) for r, ids in trace.prompts.items()},
            )
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
        likeliest: int = 0,
        even_if_closed: bool = False,
    ) -> TokenStream:
        """Queue a request whose prompt `check` gave; back as soon as the engine has queued it.

        likeliest: tokens told beside each one, see `Alternatives`. even_if_closed: whatever `accepting` says.
        Raises Unavailable while the server takes no requests, TooManyRequests when it is full, InvalidRequest for what the KV pool cannot hold
        and for a nickname that is none.
        """
        nickname = self._intake.nickname(nickname)
        if likeliest and sampling.looks_back and self.engine.trace.is_asynchronous:
            raise InvalidRequest(
                "Here the likeliest tokens cannot be told beside penalties: a step is launched before the last is read."
            )
        if self._draining:
            raise Unavailable("The server is closing and takes no more requests.", retry_after=10)
        if not self.accepting and not even_if_closed:
            raise Unavailable("No requests are taken just now.", retry_after=5)
        self._intake.take_place(client)
        text = ClientText(self.tokenizer, sampling.stop, prompt)
        id = id or f"r-{secrets.token_hex(8)}"
        stream = TokenStream(id, prompt, sampling, text, client, nickname, self.engine.now, self._ask_to_cancel, likeliest)
        self.ask(lambda: self._accept(stream))
        try:
            await asyncio.shield(stream.accepted)
        except asyncio.CancelledError:
            stream.cancel()
            stream.accepted.add_done_callback(lambda future: future.exception())  # nobody else will look
            raise
        return stream

    def _ask_to_cancel(self, stream: TokenStream) -> None:
        self.ask(lambda: self._cancel(stream))

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._read_inbox(wait=True)
                if self._may_step:
                    with SHARES.at_work():
                        while self._may_step:
                            SHARES.take()
                            self._step()
                            self._read_inbox(wait=False)
        finally:
            self._draining = True  # also where a bug ends the thread: nobody may wait for it
            self.feed.close()
            with contextlib.suppress(queue.Empty):
                while True:
                    self._inbox.get_nowait()()
            for stream in [*self._streams.values(), *self._held.values()]:
                self._end(stream, Unavailable("The server was closed."))

    @property
    def _may_step(self) -> bool:
        return self.engine.has_work and self._pace.wait_s == 0 and not self._stopping

    def _step(self) -> None:
        self._pace.stepped()
        try:
            with self._alternatives.watching():
                event = self.engine.step()
            if event is not None:
                self._tell(event)
        except Exception as error:  # whatever it is: the server goes on without the requests that it concerns
            self._recover(error)
        self._change_if_ready()

    def _read_inbox(self, wait: bool) -> None:
        """What was asked since the last step; waits, if it may, while there is nothing else to do yet."""
        wait_s = self._pace.wait_s if self.engine.has_work else None
        try:
            self._inbox.get(block=wait and wait_s != 0 and not self._stopping, timeout=wait_s)()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            return

    def _say(self, message: dict[str, Any] | StepEvent) -> None:
        self.feed.add(message)
        if self.on_message is not None:
            self.on_message(message)

    # -- requests, by the thread -------------------------------------------------------------------------------------

    def _accept(self, stream: TokenStream) -> None:
        """Queue a request, or hold it for the next run."""
        if self._next is not None and self._next[1] == "barrier":
            self._held[stream.id] = stream
            stream.call(stream.accept)
            return
        engine = self.engine
        try:
            if not self._engine_works or (not engine.has_work and self._session.is_due):
                self._begin()
            arrived = min(stream.times.arrived, engine.now)
            engine.add_request(Request(stream.id, prompt_token_ids=stream.prompt, sampling=stream.sampling, arrival=arrived))
        except InvalidRequest as error:
            self._end(stream, InvalidRequest(as_sentence(error.message)))
        except Exception as error:
            _log.error("A request could not be queued.", exc_info=error)
            self._end(stream, error if isinstance(error, InflightError) else step_failed())
        else:
            stream.times.arrived = arrived
            self._streams[stream.id] = stream
            self._alternatives.ask(stream.id, stream.likeliest, stream.sampling)
            self._say(
                {
                    "kind": "request",
                    "id": stream.id,
                    "prompt_tokens": len(stream.prompt),
                    "max_new_tokens": stream.sampling.max_new_tokens,
                    "nickname": stream.nickname,
                    "prompt_token_ids": stream.prompt,
                }
            )
            stream.call(stream.accept)

    def _cancel(self, stream: TokenStream) -> None:
        if stream.id in self._streams:
            self.engine.cancel(stream.id)
        elif self._held.pop(stream.id, None) is not None:
            self.metrics.finished(stream, "cancelled")
            self._hand_over([(stream, Token(None, None, "cancelled"))])

    def _end(self, stream: TokenStream, error: InflightError) -> None:
        """A request ends without having finished."""
        self._streams.pop(stream.id, None)
        self._alternatives.forget(stream.id)
        self._intake.leave_place(stream.client)
        if not isinstance(error, InvalidRequest):
            self.metrics.finished(stream, "error")
        stream.call(lambda: stream.fail(error))

    # -- runs, by the thread -----------------------------------------------------------------------------------------

    def _begin(self, config: EngineConfig | None = None) -> None:
        """A new run, from an empty engine."""
        engine = self.engine
        engine.begin("s", config=config)
        self._engine_works, self._last_told = True, -1
        self._withdrawn.clear()
        self.metrics.configured(engine.config, engine.kv_blocks[1])
        header = {name: value for name, value in engine.trace.header.items() if name not in ("prompts", "workload")}
        self._say({"kind": "run", "run": self._session.run, "header": copy.deepcopy(header)})

    def _prepare(self, config: EngineConfig, when: When) -> None:
        """A run with other limits is to come."""
        self._next = config, when
        if when == "barrier" and self.engine.has_work:
            running = self.engine.running
            waiting = [s for s in self._streams.values() if s.times.admitted is None and s.id not in running]
            for stream in waiting:
                self.engine.cancel(stream.id)
                self._held[stream.id] = self._streams.pop(stream.id)
                self._withdrawn.add(stream.id)
            if waiting:
                self.feed.add({"kind": "carried", "requests": [stream.id for stream in waiting]})
        self._change_if_ready()
        self.on_change()

    def _change_if_ready(self) -> None:
        """Begin the run to come once nobody is left in this one; those held join it."""
        if self._next is None or self._streams:
            return
        if self.engine.has_work:  # those withdrawn leave the queue in a step of their own
            self._pace.ask(1)
            return
        (config, _), self._next = self._next, None
        before = self.engine.config
        try:
            self._begin(config)
        except Exception as error:
            _log.error("The engine cannot have these limits.", exc_info=error)
            self._restart(before)
        held, self._held = self._held, {}
        self._rejoin(held.values())
        self.on_change()

    def _restart(self, config: EngineConfig | None = None) -> None:
        """Begin again after a failure, as far as that is possible."""
        try:
            self._begin(config)
        except Exception as error:
            _log.error("The engine cannot be made ready.", exc_info=error)
            self._engine_works = False

    def _rejoin(self, streams: Iterable[TokenStream]) -> None:
        """Those that waited when their run ended are queued again."""
        for stream in streams:
            stream.times.arrived = 0.0
            self._accept(stream)

    def _recover(self, error: Exception) -> None:
        """After a step that failed: those in a lane end, those waiting are queued again."""
        _log.error("A step failed; the server goes on without the requests in it.", exc_info=error)
        self.num_step_failures += 1
        self.metrics.step_failures.inc()
        for event in list(self._session.latest):  # running ahead, a step may have been read before the next one failed
            if event.step > self._last_told:
                self._tell(event)
        concerned = {*self.engine.running, *(id for id, stream in self._streams.items() if stream.num_tokens)} or set(
            self._streams
        )
        before, self._streams = self._streams, {}
        for stream in before.values():
            if stream.id in concerned:
                self._end(stream, step_failed())
        self._restart()
        self._rejoin(stream for stream in before.values() if stream.id not in concerned)

    # -- telling what happened, by the thread ------------------------------------------------------------------------

    def _tell(self, event: StepEvent) -> None:
        """Everybody of what happened: metrics, those who watch, and the streams in one call of their loop."""
        self._last_told = event.step
        handed: list[tuple[TokenStream, Token]] = []
        reasons: dict[str, Any] = {f.request: f.finish_reason for f in event.finished if f.request not in self._withdrawn}
        ends = [p.t_end for p in event.passes]
        try:
            for admitted in event.admitted:
                self._admit(self._streams[admitted.request], event.t_start)
            for index, request, token_id, logprob, _ in event.sampled:
                stream = self._streams[request]
                likeliest = self._alternatives.take(request, len(stream.prompt) + stream.num_tokens)
                self.metrics.token(stream, ends[index])
                stream.took(ends[index])
                handed.append((stream, Token(token_id, logprob, reasons.pop(request, None), likeliest)))
            handed += [(self._streams[request], Token(None, None, reason)) for request, reason in reasons.items()]
            for stream, token in handed:
                if token.finish_reason is not None:
                    self.metrics.finished(stream, token.finish_reason)
            self.metrics.step(event)
            self._say(event)
        finally:  # whatever failed above, nobody waits for a token that is there
            self._hand_over(handed)

    def _admit(self, stream: TokenStream, t: float) -> None:
        if stream.times.admitted is None:  # it may be preempted, and admitted again
            stream.times.admitted = t
            self.metrics.admitted(stream)

    def _hand_over(self, handed: Sequence[tuple[TokenStream, Token]]) -> None:
        """Tokens to their streams; the places of those that end are free."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[TokenStream, Token]]] = {}
        for stream, token in handed:
            by_loop.setdefault(stream.loop, []).append((stream, token))
            if token.finish_reason is not None:
                self._streams.pop(stream.id, None)
                self._alternatives.forget(stream.id)
                self._intake.leave_place(stream.client)
        for loop, tokens in by_loop.items():
            call_in(loop, put_all, tokens)
