"""The thread that takes an engine's steps. Calls from other threads are made between steps, in the
order in which they were sent; results go out through the `OutputProcessor`.

    submit, cancel, set_pace, change, … ─→ EngineThread ─→ OutputProcessor ─→ each request's stream,
        the log for viewers, the metrics

Only this thread touches the engine and its helpers, so nothing here needs a lock. It uses only the
engine's public methods.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.errors import InflightError, InvalidRequest
from core.serving.output_processor import OutputProcessor
from core.serving.request_validator import CheckedPrompt
from core.serving.session import Session
from core.serving.stream import TokenStream, closed, step_failed
from core.torch_engine.cpu.threads import CORE_SHARES
from core.trace.events import to_microseconds
from core.workload.request import Request

RunStart = Literal["idle", "barrier"]
# the limits that a teacher can set
LIMITS = {"policy", "max_num_seqs", "max_num_batched_tokens", "chunked_prefill", "prefix_caching"}


@dataclass(frozen=True)
class ChangeConfig:
    """A new run with other limits. start: "idle" begins it once no request is in progress;
    "barrier" admits no further request to a lane, and waiting requests join the new run.
    """

    config: EngineConfig
    start: RunStart


@dataclass(frozen=True)
class ClassSettings:
    """What a teacher has set besides the limits. accepting: whether requests are accepted. system:
    the system prompt for questions of people, None if the model takes no messages.
    """

    accepting: bool = True
    system: str | None = None


class Pace:
    """Decides when the next step may run. steps_per_s: None: full speed, 0: single steps."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.steps_per_s: float | None = None
        self._clock, self._last = clock, -float("inf")
        self._asked, self._owed = 0, False

    def set(self, steps_per_s: float | None) -> None:
        """Set the pace from the next step on; requested single steps are dropped."""
        self.steps_per_s, self._asked = steps_per_s, 0

    def ask(self, steps: int) -> None:
        """Take this many steps, at any pace."""
        self._asked += steps

    def owe(self) -> None:
        """Take one more step, even if the pace is changed before it."""
        self._owed = True

    def rest(self) -> None:
        """There is nothing to do: drop requested steps."""
        self._asked, self._owed = 0, False

    @property
    def wait_s(self) -> float | None:
        """Seconds until the next step may be taken, 0 for now; None until one is requested."""
        if self.steps_per_s is None or self._asked or self._owed:
            return 0.0
        if self.steps_per_s == 0:
            return None
        due_in = self._last + 1 / self.steps_per_s - self._clock()
        return min(max(0.0, due_in), threading.TIMEOUT_MAX)  # nothing can wait for longer

    def stepped(self) -> None:
        """Call after a step was taken."""
        self._last, self._asked, self._owed = self._clock(), max(0, self._asked - 1), False


_log = logging.getLogger("inflight.serving")


class EngineThread:
    """works: False if the engine could not be made ready. held: unfinished requests that wait for
    the next run. next_change: the limits of the next run. last_change: the latest that took effect.
    """

    def __init__(self, engine: EngineCore, session: Session, outputs: OutputProcessor) -> None:
        self._engine, self._session, self._outputs = engine, session, outputs
        self.pace, self.works, self.num_step_failures = Pace(), True, 0
        self.held: dict[str, TokenStream] = {}
        self.next_change: ChangeConfig | None = None
        self.last_change: ChangeConfig | None = None
        self._class: ClassSettings | None = None  # set by a teacher
        self._announced: dict[str, Any] | None = None
        self._inbox: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]]]
        self._inbox = queue.SimpleQueue()
        self._stopping = self.has_ended = False
        # held so that nothing is sent after the end; reentrant: a signal may interrupt the holder
        self._door = threading.RLock()
        self._thread = threading.Thread(target=self._run, name="inflight-engine", daemon=True)

    # -- for any thread ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the first run; raises ExecutionFailed if the KV pool cannot be made."""
        self._begin_run()
        self._outputs.log.add(self._pace_entry)
        self._thread.start()

    def send(self, call: Callable[..., object], *args: Any) -> bool:
        """Have the thread make a call between two steps; False if it has ended."""
        with self._door:
            if not self.has_ended:
                self._inbox.put((call, args))
            return not self.has_ended

    def join(self) -> None:
        """Wait until the thread has ended; see `stop`."""
        if self._thread.ident is not None:
            self._thread.join()

    def class_state(self, settings: ClassSettings, next: EngineConfig | None) -> dict[str, Any]:
        """The settings as viewers see them, which is the content of an entry of kind "class". next:
        the limits of a run that is about to begin, for which `held` requests wait. record_is_full:
        later steps of this run are no longer kept.
        """
        hidden = self._outputs.log.hidden
        return {
            **_limits(self._engine.config),
            "changing": next is not None,
            "next": None if next is None else _limits(next),
            "held": len(self.held),
            "record_is_full": self._session.is_full,
            "hide_texts": hidden.texts,
            "hide_nicknames": hidden.nicknames,
            "accepting": settings.accepting,
            "system": settings.system,
        }

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                try:
                    self._work()
                # the server continues without the requests concerned
                except BaseException as error:  # such as a panic in Rust
                    self._recover(error)
        finally:
            self._end()

    def _work(self) -> None:
        self._handle_all(self.pace.wait_s if self._engine.has_work else None)
        if self._may_step:
            with CORE_SHARES.at_work():
                while self._may_step:
                    CORE_SHARES.apply()
                    self.pace.stepped()
                    self._step()
                    self._handle_all()
        if not self._engine.has_work:
            self.pace.rest()

    @property
    def _may_step(self) -> bool:
        return self._engine.has_work and self.pace.wait_s == 0 and not self._stopping

    def _handle_all(self, wait_s: float | None = 0.0) -> None:
        """Make all calls that were sent; wait up to `wait_s` for the first, None: for ever."""
        with suppress(queue.Empty):
            while True:
                call, args = self._inbox.get(block=wait_s != 0, timeout=wait_s)
                try:
                    call(*args)
                    self._announce()
                except BaseException:  # handled like a failed step
                    if call == self.submit:
                        self._outputs.fail(args[0], step_failed())
                    raise
                wait_s = 0.0

    def _step(self) -> None:
        with self._outputs.top_logprobs.watching():
            event = self._engine.step()
        if event is not None:
            self._outputs.process(event)
        self._begin_next_run()
        self._announce()

    def _recover(self, error: BaseException) -> None:
        """After a failed step: requests in a lane end with an error, others wait again."""
        # the reason may quote a prompt, so it goes only to the log
        _log.error("A step failed; the server goes on without the requests in it.", exc_info=error)
        self.num_step_failures += 1
        self._outputs.metrics.count("step_failures")
        # with asynchronous execution a step may have been read before the next one failed
        for event in list(self._session.latest):
            if event.step > self._outputs.last_step:
                self._outputs.process(event)
        streams = list(self._outputs.streams.values())
        begun = {*self._engine.running, *(stream.id for stream in streams if stream.num_tokens)}
        for stream in streams:
            if stream.id in begun or not begun:
                self._outputs.fail(stream, step_failed())
        self._restart()
        self._rejoin(self._outputs.let_go())
        self._begin_next_run()  # there may be no request left, and so no further step
        self._announce()

    def _end(self) -> None:
        """Release every waiting client, because the thread ends, perhaps due to a bug."""
        with self._door:
            self.has_ended = True
        self._outputs.log.close()
        late: list[TokenStream] = []
        with suppress(queue.Empty):
            while True:
                call, args = self._inbox.get_nowait()
                late += args if call == self.submit else ()
        for stream in (*self._under_way, *late):
            self._outputs.fail(stream, closed())

    # -- to be sent --------------------------------------------------------------------------------

    def set_pace(self, steps_per_s: float | None) -> None:
        """steps_per_s: the upper limit; None for full speed, 0 to pause except for single steps."""
        self.pace.set(steps_per_s)
        self._outputs.log.add(self._pace_entry)

    def change(self, change: ChangeConfig) -> None:
        """Begin a new run with other limits."""
        self.next_change = change
        if change.start == "barrier" and self._engine.has_work:
            self._hold_waiting()
        self._begin_next_run()

    def set_class(self, settings: ClassSettings) -> None:
        """Set what viewers are told from now on."""
        self._class = settings

    def drain(self) -> None:
        """Continue at full speed; the events for viewers end once they have received everything."""
        self.set_pace(None)
        self._outputs.log.close()

    def stop(self) -> None:
        """End after the current step."""
        self._stopping = True

    def cancel_all(self) -> None:
        """Cancel every request in progress."""
        for stream in self._under_way:
            self.cancel(stream)
        self.pace.owe()  # the step that records that they leave

    def submit(self, stream: TokenStream) -> None:
        """Queue a request, or hold it for the next run."""
        if stream.id in self._outputs.streams or stream.id in self.held:
            self._outputs.fail(stream, InvalidRequest("A request with this id is in progress."))
            return
        # if others wait for the next run already, whatever its start, it must not be put off
        if self.next_change is not None and (self.next_change.start == "barrier" or self.held):
            self.held[stream.id] = stream
            stream.call(stream.accept)
            return
        engine = self._engine
        try:
            if not self.works or (not engine.has_work and self._session.is_due):
                self._begin_run()
            since = max(0.0, stream.times.arrived - engine.began)  # 0 for one from before this run
            request = Request(
                stream.id,
                prompt_token_ids=None if stream.conversation else stream.prompt,
                messages=stream.conversation,
                sampling=stream.sampling,
                arrival=min(to_microseconds(since), engine.now),
            )
            is_checked = (
                isinstance(stream.prompt, CheckedPrompt) and stream.prompt.config == engine.config
            )
            engine.add_request(request, stream.prompt if is_checked else None)
        except InvalidRequest as error:
            self._outputs.fail(stream, error.alone())
        except Exception as error:
            _log.error("A request could not be queued.", exc_info=error)
            self._outputs.fail(stream, error if isinstance(error, InflightError) else step_failed())
        else:
            self._outputs.queued(stream, request)

    def cancel(self, stream: TokenStream) -> None:
        """End a request; a finished one is not changed."""
        if stream.id in self._outputs.streams:
            stream.is_leaving = True
            self._engine.cancel(stream.id)
        elif self.held.pop(stream.id, None) is not None:
            self._outputs.cancelled(stream)

    # -- requests ----------------------------------------------------------------------------------

    @property
    def _under_way(self) -> list[TokenStream]:
        return [*self._outputs.streams.values(), *self.held.values()]

    def _rejoin(self, streams: Iterable[TokenStream]) -> None:
        """Queue again the requests that waited when their run ended, except cancelled ones."""
        for stream in streams:
            try:
                if stream.is_leaving:
                    self._outputs.cancelled(stream)
                else:
                    stream.times.first_pass = None  # it was computed only in the run that has ended
                    self.submit(stream)
            except BaseException as error:  # the others are still to be queued
                _log.error("A request could not be queued again.", exc_info=error)
                self._outputs.fail(stream, step_failed())

    # -- runs: each begins from an empty engine and is kept whole ----------------------------------

    def _begin_run(self, config: EngineConfig | None = None) -> None:
        """Begin a new run, by default under the current limits; raises what `begin` raises."""
        self._engine.begin("s", config=config)
        self.works = True
        self._outputs.begin_run(self._session.run, self._engine.trace.header, self._engine.began)

    def _restart(self, config: EngineConfig | None = None) -> None:
        """Begin again after a failure, if possible."""
        try:
            self._begin_run(config)
        except BaseException as error:
            _log.error("The engine cannot be made ready.", exc_info=error)
            self.works = False

    def _hold_waiting(self) -> None:
        """Take requests without a lane out of this run, whose record shows them as cancelled."""
        running = self._engine.running
        waiting = [
            s
            for s in self._outputs.streams.values()
            if s.times.first_pass is None and s.id not in running and not s.is_leaving
        ]
        for stream in waiting:
            self._engine.cancel(stream.id)
        self.held |= {stream.id: stream for stream in waiting}
        self._outputs.carried(waiting)

    def _begin_next_run(self) -> None:
        """Begin the next run once this one is empty; the held requests join it."""
        change = self.next_change
        if change is None or self._outputs.streams:
            return
        if self._engine.has_work:  # held requests leave the queue in a separate step
            self.pace.owe()
            return
        before, self.next_change = self._engine.config, None
        try:
            self._begin_run(change.config)
        except BaseException as error:
            _log.error("The engine cannot have these limits.", exc_info=error)
            self._restart(before)
        self.last_change = change
        held, self.held = self.held, {}
        self._rejoin(held.values())

    # -- viewers -----------------------------------------------------------------------------------

    @property
    def _pace_entry(self) -> dict[str, object]:
        """The entry of the log. t: when the pace was set, in seconds since the run began."""
        return {"kind": "pace", "steps_per_s": self.pace.steps_per_s, "t": self._engine.now}

    def _announce(self) -> None:
        """Announce the settings to viewers if they have changed."""
        if self._class is None:
            return
        state = self.class_state(self._class, self.next_change.config if self.next_change else None)
        if state != self._announced:
            self._announced = state
            self._outputs.log.add({"kind": "class", **state})


@lru_cache(4)
def _limits(config: EngineConfig) -> dict[str, Any]:
    return {name: value for name, value in config.to_json().items() if name in LIMITS}
