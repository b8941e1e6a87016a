"""Simulates another policy on the requests of a serving engine: the same scheduler on a cost model. It assumes that

- the cost of a pass lies on a line fitted to the real engine's measured passes (`core.simulate.cost.fit_loads`), extrapolated where it pads or
  reads more than any of those;
- nothing else costs time, and under a pace a step takes at least that long;
- an answer is as long as the real one, so that the simulation waits until the real engine has written as much.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from core.config import EngineConfig
from core.errors import InflightError
from core.runner.base import PassResult, Sample
from core.scheduler.output import SchedulerOutput
from core.serving.output_processor import Message
from core.serving.shadow.beside import Beside
from core.simulate.cost import Cost, Load, fit_loads, kv_bytes_per_token, measured, measured_on
from core.simulate.runner import TOKEN, SimulatedClock, SimulatedEngine, SimulatedRunner
from core.trace.events import StepEvent
from core.trace.header import SIMULATED, Header
from core.workload.request import Request, SamplingParams

PASSES = 16  # measured before there is a cost model
BEHIND = "The simulation could not keep up with the engine; it begins again with the next run."
_SHARE = 0.1  # of a core
_LATE = 10.0  # seconds behind at which it gives up for the run
_END = Sample(1, 0.0, 0.0)


class Simulated:
    """header: of the real engine's run. config: of the policy that is simulated. now: the real engine's clock. wait: takes in the news."""

    def __init__(self, header: Header, config: EngineConfig, now: Callable[[], float], wait: Callable[[], None]) -> None:
        self._header, self._config, self._now, self._wait = header, config, now, wait
        self._per_token = kv_bytes_per_token(header)
        self.beside = Beside(header.config.num_lanes, config.num_lanes)
        self._engine: _Shadow | None = None  # once there is a cost model
        self._loads: list[Load] = []
        self._seconds: list[float] = []
        self._asked: dict[str, Request] = {}
        self._arrivals: deque[Request] = deque()
        self._cancelled: deque[str] = deque()
        self._lives: dict[str, _Life] = {}
        self._steps_per_s: float | None = None
        self._not_before = 0.0  # when the real engine was let go on
        self._last_step = 0.0  # when the real engine took it
        self._waited_s = 0.0  # for lengths
        self._is_behind = False

    @property
    def state(self) -> dict[str, Any]:
        """What those who watch are told beside the numbers."""
        sentence: str | None
        if self._is_behind:
            status, sentence = "behind", BEHIND
        elif self._engine is None:
            status, sentence = "waiting", f"There is no cost model yet: {PASSES} measured passes are needed."
        else:
            status, sentence = "running", self._engine.beyond  # where passes lay beyond what was measured
        return {"source": SIMULATED, "status": status, "sentence": sentence}

    @property
    def _has_costs(self) -> bool:
        return len(self._loads) >= PASSES

    # -- what the real engine does -----------------------------------------------------------------------------------

    def hear(self, t: float, message: Message) -> None:
        """What the real engine's feed was told at `t`."""
        if self._is_behind:
            return
        if isinstance(message, StepEvent):
            self._hear_step(message)
        elif message["kind"] == "pace":
            if self._steps_per_s == 0:
                self._not_before = t
            self._steps_per_s = message["steps_per_s"]
        elif message["kind"] == "request":
            sampling = SamplingParams(message["max_new_tokens"])
            self._asked[message["id"]] = Request(message["id"], prompt_token_ids=message["prompt_token_ids"], sampling=sampling)

    def _hear_step(self, event: StepEvent) -> None:
        if not self._has_costs:
            loads, seconds = measured([event], self._per_token)
            self._loads += loads
            self._seconds += seconds
        for request, t in event.arrived:
            self._lives[request] = _Life()
            asked = self._asked.pop(request)
            self._arrivals.append(Request(request, prompt_token_ids=asked.prompt_token_ids, sampling=asked.sampling, arrival=t))
        for sampled in event.sampled:
            if life := self._lives.get(sampled.request):
                life.tokens += 1
        for finished in event.finished:
            if life := self._lives.get(finished.request):
                life.reason = finished.finish_reason
            if finished.finish_reason == "cancelled":
                self._cancelled.append(finished.request)
        self.beside.hear(event)
        self._last_step = event.t_start

    # -- its own steps -----------------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """A step, if there is one to take by now; takes ten times as long as the step itself."""
        engine = self._engine
        if self._is_behind:
            return False
        if engine is None:
            if not self._has_costs:
                return False
            engine = self._engine = self._made()
        self._put_in(engine)
        engine.clock.now = max(engine.clock.now, self._not_before)
        if not engine.has_work or engine.now > self._now() or not self._may_step(engine):
            return False
        began, waited = time.perf_counter(), self._waited_s
        event = engine.step()
        if event is not None:
            self.beside.add(event)
            for finished in event.finished:
                self._lives.pop(finished.request, None)
        time.sleep((time.perf_counter() - began - (self._waited_s - waited)) * (1 / _SHARE - 1))
        self._is_behind = self._now() - engine.now - self._waited_s > _LATE  # but for the seconds in which it waited for lengths
        return True

    def _made(self) -> _Shadow:
        header = self._header
        cost = fit_loads(self._loads, self._seconds, self._per_token, measured_on(header))

        def writer(cost: Cost, clock: SimulatedClock) -> _Writer:
            return _Writer(cost, clock, lambda: self._steps_per_s, self._is_last)

        engine = _Shadow(cost, self._config, vocab_size=header.model.vocab_size or 0, window=2000, runner=writer)
        engine.begin("s", "shadow")
        return engine

    def _put_in(self, engine: _Shadow) -> None:
        """Requests that arrived, and requests that left."""
        while self._arrivals:
            engine.add_request(self._arrivals.popleft())
        while self._cancelled:
            with suppress(InflightError):  # it has ended here, and is forgotten
                engine.cancel(self._cancelled.popleft())

    def _may_step(self, engine: _Shadow) -> bool:
        """At a pace of 0 it takes a step for each of the real engine's, at the same time."""
        if self._steps_per_s != 0:
            return True
        real, own = self.beside.steps
        if own >= real:
            return False
        engine.clock.now = max(engine.clock.now, self._last_step)
        return True

    def _is_last(self, request: str, count: int) -> bool:
        """Whether token number `count` of an answer is its last; waits until the real engine has written as much."""
        life = self._lives[request]
        began = time.perf_counter()
        while life.tokens < count and not life.reason:
            self._wait()
        self._waited_s += time.perf_counter() - began
        return life.reason in ("stop", "length", "error") and count >= life.tokens


@dataclass
class _Life:
    """tokens: that the real engine has written. reason: why it ended."""

    tokens: int = 0
    reason: str = ""


class _Shadow(SimulatedEngine):
    """clock: of what is simulated, in seconds since the run began."""

    @property
    def clock(self) -> SimulatedClock:
        return self._simulated.clock


class _Writer(SimulatedRunner):
    """Ends an answer where the real one ended, and keeps the real pace. is_last: of a request's token by its number, from 1."""

    eos_token_ids = frozenset({1})

    def __init__(
        self,
        cost: Cost,
        clock: SimulatedClock,
        steps_per_s: Callable[[], float | None],
        is_last: Callable[[str, int], bool],
    ) -> None:
        super().__init__(cost, clock)
        self._steps_per_s, self._is_last = steps_per_s, is_last
        self._written: dict[str, int] = {}

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        result = super().launch(output, params)
        pace = self._steps_per_s()
        self.clock.now = max(self.clock.now, result.t_start + (1 / pace if pace else 0.0))
        return result._replace(samples=list(self._samples(output, params)), t_end=self.clock.now)

    def _samples(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> Iterator[Sample]:
        for scheduled in output.scheduled:
            if scheduled.samples:
                request = scheduled.request
                count = self._written[request] = self._written.get(request, 0) + 1
                most = params[request].max_new_tokens
                last = count < most and self._is_last(request, count)
                if last or count == most:
                    del self._written[request]
                yield _END if last else TOKEN
