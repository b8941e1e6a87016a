"""An engine that serves: it takes its steps on a thread of its own, requests join and leave at every step, each with its own stream.

    serving = ServingEngine(engine)
    serving.start()
    stream = await serving.submit(serving.check("O Romeo, ", sampling), sampling)
    async for piece in stream: ...
    serving.close()

The thread drives the engine by its public functions alone. A step that fails ends the requests that were in a lane, with an error; those
that waited are queued again. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import queue
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from core.engine.check import checked_prompt
from core.engine.engine import Engine
from core.engine.recorder import Window
from core.errors import InflightError, InvalidRequest, TooManyRequests, Unavailable, first_sentence
from core.serving.feed import Feed
from core.serving.limits import ServingLimits
from core.serving.metrics import ServingMetrics
from core.serving.pace import Pace
from core.serving.stream import Token, TokenStream, step_failed
from core.serving.text import ClientText
from core.trace.events import StepEvent
from core.workload.request import Request, SamplingParams

Status = Literal["ok", "draining", "failed"]
WINDOW = 20_000  # tokens whose steps the engine's own trace keeps
_log = logging.getLogger("inflight.serving")


class ServingEngine:
    """engine: idle, and nobody else's from `start` to `close`. name: what clients call the model."""

    def __init__(self, engine: Engine, limits: ServingLimits | None = None, name: str | None = None) -> None:
        self.engine, self.limits, self.name = engine, limits or ServingLimits(), name or engine.adapter.name
        # Tokenizers are not thread-safe: the engine's own belongs to its thread, this one to the event loop, the last to `encoding`.
        self.tokenizer, self._encoder = copy.deepcopy(engine.tokenizer), copy.deepcopy(engine.tokenizer)
        self.feed = Feed()
        config, (_, num_blocks) = engine.config, engine.kv_blocks
        cache = {
            "block_size": str(config.block_size),
            "num_gpu_blocks": str(num_blocks),
            "enable_prefix_caching": str(config.prefix_caching),
        }
        self.metrics = ServingMetrics(
            self.name,
            cache,
            lambda: len(engine.running),
            lambda: engine.num_waiting,
            lambda: engine.kv_blocks[0] / engine.kv_blocks[1],
        )
        self.num_step_failures = 0
        self._pace = Pace()
        self._engine_works = True
        self._draining = self._stopping = False
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._streams: dict[str, TokenStream] = {}  # unfinished, by request; the thread's alone
        self._under_way: Counter[str] = Counter()  # by client
        self._lock = threading.Lock()  # of the counter
        self._encoding = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="inflight-engine", daemon=True)

    # -- for everybody -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Take the first step when the first request comes. Raises ExecutionFailed where the KV pool cannot be had."""
        self.engine.recorder = Window(WINDOW)
        self._begin()
        self._thread.start()

    def drain(self) -> None:
        """Take no more requests and show no more events; what is under way goes on."""
        self._draining = True
        self.set_pace(None)
        self._inbox.put(self.feed.close)

    def close(self) -> None:
        """End now: what is under way is cancelled, the thread joined."""
        self.drain()
        self._stopping = True
        self._inbox.put(lambda: None)
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def status(self) -> Status:
        """failed: the engine could not be made ready again after a step that failed; the next request tries once more."""
        return "draining" if self._draining else "ok" if self._engine_works else "failed"

    @property
    def num_requests(self) -> int:
        """Under way."""
        return self._under_way.total()

    def chat(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """A conversation as the model's own template writes it; raises InvalidRequest where there is none, or it takes no such thing."""
        if self._encoder is None or not self._encoder.chat_template:
            raise InvalidRequest(f"The model {self.name} has no chat template; use /v1/completions.")
        try:
            with self._encoding:
                ids = self._encoder.apply_chat_template(
                    list(messages), add_generation_prompt=True, tokenize=True, return_dict=False
                )
        except Exception as error:  # templates are programs of others
            raise InvalidRequest(f"The model's chat template refuses these messages: {first_sentence(error)}.") from None
        return tuple(ids)

    def set_pace(self, steps_per_s: float | None) -> None:
        """So many steps a second at most; None for full speed, 0 to stand still but for single steps."""

        def change() -> None:
            self._pace.set(steps_per_s)
            self.feed.add({"kind": "pace", "steps_per_s": steps_per_s})

        self._inbox.put(change)

    def step(self, count: int = 1) -> None:
        """Take so many steps now, whatever the pace."""
        self._inbox.put(lambda: self._pace.ask(count))

    def clear(self) -> None:
        """Cancel whatever is under way."""

        def cancel() -> None:
            for request in self._streams:
                self.engine.cancel(request)
            self._pace.ask(1)  # the step in which they leave

        self._inbox.put(cancel)

    @property
    def steps_per_s(self) -> float | None:
        """The pace; None for full speed."""
        return self._pace.steps_per_s

    def check(self, prompt: str | Sequence[int], sampling: SamplingParams) -> tuple[int, ...]:
        """The prompt's token ids; raises InvalidRequest for what this server would not run. May take a while: not for an event loop."""
        limits = self.limits
        if isinstance(prompt, str) and len(prompt) > 64 * limits.max_prompt_tokens:  # not even worth tokenizing
            raise InvalidRequest(
                f"The prompt has {len(prompt):,} characters; at most {limits.max_prompt_tokens:,} tokens are taken."
            )
        if sampling.max_new_tokens > limits.max_new_tokens:
            raise InvalidRequest(f"At most {limits.max_new_tokens:,} new tokens are written, not {sampling.max_new_tokens:,}.")
        if len(sampling.stop) > limits.max_stop_strings or any(len(s) > limits.max_stop_characters for s in sampling.stop):
            raise InvalidRequest(
                f"At most {limits.max_stop_strings} stop strings of at most {limits.max_stop_characters} characters are taken."
            )
        given = {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": tuple(prompt)}
        try:
            request = Request("r", sampling=sampling, **given)
            with self._encoding:
                ids = checked_prompt(request, self.engine.adapter, self._encoder, self.engine.config)
        except InvalidRequest as error:
            raise InvalidRequest(_as_sentence(error.message)) from None
        if len(ids) > limits.max_prompt_tokens:
            raise InvalidRequest(f"The prompt has {len(ids):,} tokens; at most {limits.max_prompt_tokens:,} are taken.")
        return ids

    async def submit(
        self, prompt: Sequence[int], sampling: SamplingParams, *, client: str = "", id: str | None = None
    ) -> TokenStream:
        """Queue a request whose prompt `check` gave; back as soon as the engine has queued it.

        Raises Unavailable while the server drains, TooManyRequests when it is full, InvalidRequest for what the KV pool cannot hold.
        """
        self._take_place(client)
        text = ClientText(self.tokenizer, sampling.stop, prompt)
        id = id or f"r-{secrets.token_hex(8)}"
        stream = TokenStream(id, prompt, sampling, text, client, self.engine.now, self._ask_to_cancel)
        self._inbox.put(lambda: self._accept(stream))
        try:
            await asyncio.shield(stream.accepted)
        except asyncio.CancelledError:
            stream.cancel()
            stream.accepted.add_done_callback(lambda future: future.exception())  # nobody else will look
            raise
        return stream

    def _take_place(self, client: str) -> None:
        if self._draining:
            raise Unavailable("The server is closing and takes no more requests.", retry_after=10)
        with self._lock:
            if self._under_way.total() >= self.limits.max_requests:
                raise TooManyRequests(f"{self.limits.max_requests:,} requests are under way, which is all this server takes.")
            if self._under_way[client] >= self.limits.max_requests_per_client:
                raise TooManyRequests(
                    f"{self.limits.max_requests_per_client:,} of your requests are under way; more are not taken."
                )
            self._under_way[client] += 1

    def _leave_place(self, client: str) -> None:
        with self._lock:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]

    def _ask_to_cancel(self, stream: TokenStream) -> None:
        self._inbox.put(lambda: self._cancel(stream))

    # -- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._read_inbox()
                if self.engine.has_work and self._pace.wait_s == 0 and not self._stopping:
                    self._step()
        finally:
            self._draining = True  # also where a bug ends the thread: nobody may wait for it
            self.feed.close()
            with contextlib.suppress(queue.Empty):
                while True:
                    self._inbox.get_nowait()()
            for stream in list(self._streams.values()):
                self._end(stream, Unavailable("The server was closed."))

    def _step(self) -> None:
        self._pace.stepped()
        try:
            event = self.engine.step()
            if event is not None:
                self._tell(event)
        except Exception as error:  # whatever it is: the server goes on without the requests that it concerns
            self._recover(error)

    def _read_inbox(self) -> None:
        """What was asked since the last step; waits if there is nothing else to do yet."""
        wait_s = self._pace.wait_s if self.engine.has_work else None
        try:
            self._inbox.get(block=wait_s != 0 and not self._stopping, timeout=wait_s)()
            while True:
                self._inbox.get_nowait()()
        except queue.Empty:
            return

    def _accept(self, stream: TokenStream) -> None:
        engine = self.engine
        try:
            if not self._engine_works:
                self._begin()
            arrived = min(stream.times.arrived, engine.now)
            engine.add_request(Request(stream.id, prompt_token_ids=stream.prompt, sampling=stream.sampling, arrival=arrived))
        except InvalidRequest as error:
            self._end(stream, InvalidRequest(_as_sentence(error.message)))
        except Exception as error:
            _log.error("A request could not be queued.", exc_info=error)
            self._end(stream, error if isinstance(error, InflightError) else step_failed())
        else:
            stream.times.arrived = arrived
            self._streams[stream.id] = stream
            asked = {"prompt_tokens": len(stream.prompt), "max_new_tokens": stream.sampling.max_new_tokens}
            self.feed.add({"kind": "request", "id": stream.id, **asked})
            _call(stream, stream.accept)

    def _cancel(self, stream: TokenStream) -> None:
        if stream.id in self._streams:
            self.engine.cancel(stream.id)

    def _begin(self) -> None:
        """A new run, from an empty engine."""
        self.engine.begin("s", "serving")
        self._engine_works, self._last_told = True, -1
        header = {name: value for name, value in self.engine.trace.header.items() if name not in ("prompts", "workload")}
        self.feed.add({"kind": "run", "header": copy.deepcopy(header)})

    def _tell(self, event: StepEvent) -> None:
        """Everybody of what happened: metrics, those who watch, and the streams in one call of their loop."""
        self._last_told = event.step
        handed: list[tuple[TokenStream, Token]] = []
        reasons: dict[str, Any] = dict(event.finished)
        ends = [p.t_end for p in event.passes]
        try:
            for admitted in event.admitted:
                self._admit(self._streams[admitted.request], event.t_start)
            for index, request, token_id, logprob, _ in event.sampled:
                stream = self._streams[request]
                self._time(stream, ends[index])
                handed.append((stream, Token(token_id, logprob, reasons.pop(request, None))))
            handed += [(self._streams[request], Token(None, None, reason)) for request, reason in reasons.items()]
            for stream, token in handed:
                if token.finish_reason is not None:
                    self.metrics.finished(stream, token.finish_reason)
            self.metrics.step(event)
            self.feed.add(event)
        finally:  # whatever failed above, nobody waits for a token that is there
            self._hand_over(handed)

    def _admit(self, stream: TokenStream, t: float) -> None:
        if stream.times.admitted is None:  # it may be preempted, and admitted again
            stream.times.admitted = t
            self.metrics.admitted(stream)

    def _time(self, stream: TokenStream, t: float) -> None:
        """A token came at `t`."""
        self.metrics.token(stream, t)
        stream.num_tokens += 1
        stream.times.last_token = t
        if stream.times.first_token is None:
            stream.times.first_token = t

    def _hand_over(self, handed: list[tuple[TokenStream, Token]]) -> None:
        """Tokens to their streams; the places of those that end are free."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[TokenStream, Token]]] = {}
        for stream, token in handed:
            by_loop.setdefault(stream.loop, []).append((stream, token))
            if token.finish_reason is not None:
                del self._streams[stream.id]
                self._leave_place(stream.client)
        for loop, tokens in by_loop.items():
            _call_in(loop, _put, tokens)

    def _recover(self, error: Exception) -> None:
        """After a step that failed: those in a lane end, those waiting are queued again."""
        _log.error("A step failed; the server goes on without the requests in it.", exc_info=error)
        self.num_step_failures += 1
        self.metrics.step_failures.inc()
        for event in self.engine.trace.events:  # running ahead, a step may have been read before the next one failed
            if event.step > self._last_told:
                self._tell(event)
        concerned = {*self.engine.running, *(id for id, stream in self._streams.items() if stream.num_tokens)} or set(
            self._streams
        )
        before, self._streams = self._streams, {}
        for stream in before.values():
            if stream.id in concerned:
                self._end(stream, step_failed())
        try:
            self._begin()
        except Exception as again:
            _log.error("The engine cannot be made ready.", exc_info=again)
            self._engine_works = False
        for stream in before.values():
            if stream.id not in concerned:
                stream.times.arrived = 0.0
                self._accept(stream)

    def _end(self, stream: TokenStream, error: InflightError) -> None:
        """A request ends without having finished."""
        self._streams.pop(stream.id, None)
        self._leave_place(stream.client)
        if not isinstance(error, InvalidRequest):
            self.metrics.finished(stream, "error")
        _call(stream, lambda: stream.fail(error))


def _put(tokens: list[tuple[TokenStream, Token]]) -> None:
    for stream, token in tokens:
        stream.put(token)


def _call(stream: TokenStream, function: Callable[[], None]) -> None:
    _call_in(stream.loop, function)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _as_sentence(message: str) -> str:
    return message[:1].upper() + message[1:]
