"""The requests of a serving engine, run again under another policy on the same model while that engine is idle: measured, like its own steps.

Each request arrives and is cancelled at its original time, at the pace that was set then. The clock runs during steps and skips the waits
in between: half a minute at a slow pace is run again in the time that its passes take. It never runs ahead of the real engine's clock, since
what comes later is not known yet.

It has its own model, which shares the weights, and its own KV pool: a request that arrives during one of its passes waits for neither, and
before each step it checks that the engine is still idle.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from core.config import EngineConfig
from core.engine.engine import EngineCore
from core.engine.recorder import Window
from core.errors import InflightError, InvalidConfig, first_sentence
from core.runner.engine import Engine
from core.runner.threads import CORE_SHARES
from core.serving.event_log import LogEntry, ServedStep
from core.serving.pace import Pace
from core.trace.events import StepEvent
from core.trace.header import Header
from core.workload.request import Request

MOST_WAITING = 1000  # requests
_MOST_BYTES = 2**30  # of weights: some are copied, because each engine lays them out itself
_log = logging.getLogger("inflight.serving")


class StoppedClock:
    """A clock that runs only inside `going`, and otherwise moves by `advance`."""

    def __init__(self) -> None:
        self._at, self._since = 0.0, 0.0
        self._goes = False

    def __call__(self) -> float:
        return self._at + (time.perf_counter() - self._since if self._goes else 0.0)

    def advance(self, seconds: float) -> None:
        """Move the clock, by at least a nanosecond: a wait too short to change a large float would never end."""
        self._at += max(seconds, 1e-9)

    @contextmanager
    def going(self) -> Iterator[None]:
        """Inside, the clock runs."""
        self._since, self._goes = time.perf_counter(), True
        try:
            yield
        finally:
            self._at, self._goes = self(), False


class Twin(NamedTuple):
    """clock: the engine's."""

    engine: EngineCore
    clock: StoppedClock

    @staticmethod
    def check_room(engine: EngineCore) -> None:
        """Raises InvalidConfig if there is no room for another engine beside this one."""
        if not isinstance(engine, Engine):
            raise InvalidConfig(
                "There are no weights here for a second engine, which another policy beside this one needs."
            )
        adapter = engine.adapter
        if adapter.device.type != "cpu" or adapter.tensor_parallel > 1:
            raise InvalidConfig(
                "On an accelerator there is no room for a second engine, which another policy beside this one needs."
            )
        if adapter.num_parameters * adapter.dtype.itemsize > _MOST_BYTES:
            raise InvalidConfig(
                "The model is too large for a second engine, which another policy beside this one needs."
            )

    @classmethod
    def of(cls, engine: EngineCore) -> Twin:
        """An idle engine on the same weights, whose passes never wait for the other's; for an engine that `check_room` accepts."""
        assert isinstance(engine, Engine)
        adapter, clock = engine.adapter, StoppedClock()
        made = Engine(
            adapter.twin(),
            copy.deepcopy(engine.tokenizer),
            engine.config,
            execution=engine.execution,
            recorder=Window(2000),
            clock=clock,
            sleep=clock.advance,
        )
        return cls(made, clock)


@dataclass
class _Side:
    """One of the two engines so far. lane_steps, used: of its lanes. seconds: from arrival to the last token, of requests that ended in both."""

    lanes: int
    steps: int = 0
    lane_steps: int = 0
    used: int = 0
    seconds: float = 0.0

    def add(self, event: StepEvent) -> None:
        self.steps += 1
        self.lane_steps += self.lanes
        self.used += len({segment.request for segment in event.segments})

    @property
    def numbers(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "occupancy": round(self.used / self.lane_steps, 4) if self.lane_steps else None,
        }


class Rerun:
    """header: of the real engine's run. config: of the other policy. now: the real engine's clock. twin: idle."""

    def __init__(
        self, header: Header, config: EngineConfig, now: Callable[[], float], twin: Twin
    ) -> None:
        self._engine, self._clock = twin
        self._config, self._now = config, now
        self._origin: float | None = None  # of the run on the clock, once it has begun
        self._pace = Pace(self._clock)
        self._real, self._own = _Side(header.config.num_lanes), _Side(config.num_lanes)
        self._refusal = ""  # the reason, once it has given up on this run
        self._num_finished = self._num_other_texts = 0
        self._asked: dict[str, Request] = {}
        self._answers: dict[str, _AnswerPair] = {}  # those that have not ended in both
        self._arrivals: deque[tuple[float, Request]] = deque()
        self._cancelled: deque[tuple[float, str]] = deque()
        self._paces: deque[tuple[float, float | None]] = (
            deque()
        )  # future changes: start time, and steps a second
        self._stands = False  # the real engine takes single steps
        self._single: deque[float] = deque()  # the times of those not yet taken here

    @property
    def is_done(self) -> bool:
        """Whether it has answered all requests so far."""
        return not self._refusal and bool(self._num_finished) and not self._answers

    @property
    def state(self) -> dict[str, Any]:
        """What viewers see: the progress, and the numbers once it is done.

        other_texts: answers that differ from the real engine's. sentence: why it has stopped.
        """
        return {
            "status": "refused" if self._refusal else "done" if self.is_done else "waiting",
            "sentence": self._refusal or None,
            "requests": self._num_finished + len(self._answers),
            "finished": self._num_finished,
            "other_texts": self._num_other_texts,
            **(self._numbers if self.is_done else {}),
        }

    @property
    def _numbers(self) -> dict[str, Any]:
        """mean_e2e_s: of both, from arrival to the last token."""
        mean = [round(side.seconds / self._num_finished, 4) for side in (self._real, self._own)]
        return {"real": self._real.numbers, "shadow": self._own.numbers, "mean_e2e_s": mean}

    # -- what the real engine does -----------------------------------------------------------------------------------

    def hear(self, entry: LogEntry) -> None:
        """Process an entry of the real engine's log."""
        if self._refusal:
            return
        if isinstance(entry, ServedStep):
            self._hear_step(entry.event)
        elif entry["kind"] == "pace":
            self._stands = entry["steps_per_s"] == 0
            self._paces.append((entry["t"], entry["steps_per_s"]))
        elif entry["kind"] == "request":
            names = ("id", "sampling", "prompt_token_ids")
            self._asked[entry["id"]] = Request.from_json({name: entry[name] for name in names})

    def _hear_step(self, event: StepEvent) -> None:
        if self._stands:
            self._single.append(event.t_start)
        for arrived in event.arrived:
            request, t = arrived.request, arrived.t
            self._arrivals.append((t, self._asked.pop(request)))
            self._answers[request] = _AnswerPair(t)
        for sampled in event.sampled:
            self._answers[sampled.request].real.append(sampled.token_id)
        for finished in event.finished:
            if finished.finish_reason == "cancelled":
                self._cancelled.append((event.t_start, finished.request))
                del self._answers[finished.request]
            else:
                self._answers[finished.request].real_end = event.t_end
                self._compare(finished.request)
        self._real.add(event)
        if len(self._answers) > MOST_WAITING:
            self._give_up(
                f"More than {MOST_WAITING:,} requests came without a pause: this run is not run again for real."
            )

    # -- its own steps -----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Take a step, if one is due; to be called only while the real engine is idle."""
        if self._refusal or (self._origin is None and not self._arrivals):
            return False
        try:
            with CORE_SHARES.at_work():
                CORE_SHARES.apply()
                return self._advance()
        except Exception as error:  # nothing that happens here may stop the serving engine
            _log.error("What was served could not be run again.", exc_info=error)
            self._give_up(f"This run could not be run again for real: {first_sentence(error)}.")
            return False

    def _advance(self) -> bool:
        if self._origin is None:
            self._engine.begin("s", "rerun", self._config)
            self._origin = self._clock()
        self._put_in()
        if not self._engine.has_work or not self._is_due():
            return False
        self._put_in()  # the clock may have moved
        self._step()
        return True

    @property
    def _at(self) -> float:
        """Seconds since the run began."""
        return self._clock() - (self._origin or 0.0)

    def _put_in(self) -> None:
        """Add the requests that are due, or the next one if there is nothing else to do; cancel those that left."""
        engine = self._engine
        while self._arrivals and (self._arrivals[0][0] <= self._at or not engine.has_work):
            t, request = self._arrivals.popleft()
            if not engine.has_work:
                self._move_to(t)
                while (
                    self._single and self._single[0] < t
                ):  # taken when there was nothing to do here
                    self._single.popleft()
            engine.add_request(replace(request, arrival=min(t, engine.now)))
        while self._cancelled and (self._cancelled[0][0] <= self._at or not engine.has_work):
            with suppress(InflightError):  # it has ended here already
                engine.cancel(self._cancelled.popleft()[1])

    def _is_due(self) -> bool:
        """Move the clock to the next step's time, by the pace that was set then; whether the real engine's clock has reached it."""
        while True:
            while self._paces and self._paces[0][0] <= self._at:
                since, steps_per_s = self._paces.popleft()
                self._pace.set(steps_per_s)
                while steps_per_s != 0 and self._single and self._single[0] < since:
                    self._single.popleft()
            wait_s = self._pace.wait_s
            if wait_s == 0:
                return self._at <= self._now()
            single = self._single[0] if self._single else math.inf
            step, change = (
                single if wait_s is None else self._at + wait_s,
                self._paces[0][0] if self._paces else math.inf,
            )
            if min(step, change) == math.inf:
                return False  # paused, as the real engine is
            self._move_to(min(step, change))
            if wait_s is None and step <= change:
                self._single.popleft()
                self._pace.ask(1)

    def _move_to(self, t: float) -> None:
        if t > self._at:
            self._clock.advance(t - self._at)

    def _step(self) -> None:
        self._pace.stepped()
        with self._clock.going():
            event = self._engine.step()
        if event is None:
            return
        self._own.add(event)
        for sampled in event.sampled:
            if answer := self._answers.get(sampled.request):
                answer.own.append(sampled.token_id)
        for finished in event.finished:
            if answer := self._answers.get(finished.request):
                answer.own_end = event.t_end
                self._compare(finished.request)

    def _compare(self, request: str) -> None:
        answer = self._answers[request]
        if answer.real_end is not None and answer.own_end is not None:
            self._num_finished += 1
            self._real.seconds += answer.real_end - answer.arrived
            self._own.seconds += answer.own_end - answer.arrived
            self._num_other_texts += answer.real != answer.own
            del self._answers[request]

    def _give_up(self, sentence: str) -> None:
        self._refusal = sentence
        for kept in (
            self._asked,
            self._answers,
            self._arrivals,
            self._cancelled,
            self._paces,
            self._single,
        ):
            kept.clear()


@dataclass
class _AnswerPair:
    """The tokens of the serving engine and of the other policy; when the request arrived, and when it ended in each. Cancelled requests do not count."""

    arrived: float
    real: list[int] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    real_end: float | None = None
    own_end: float | None = None
