"""Simulates what another policy would have done with the same requests: the same scheduler on a cost model, beside a serving engine.

It is fed with the real engine's arrivals, cancellations and pace, and with how long each answer turned out to be. It assumes that

- the cost of a pass lies on a line fitted to the real engine's measured passes (`core.simulate.cost.fit_loads`), extrapolated where it pads or
  reads more than any of those;
- nothing else costs time, and under a pace a step takes at least that long;
- an answer is as long as the real one, so that the shadow waits until the real engine has written as much.

Always labelled simulated. It has a thread of its own, takes at most a tenth of a core, and holds nobody up: when it is too far behind it
gives up for that run and says so.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as field_of
from typing import Any

from core.config import POLICIES, EngineConfig
from core.errors import InflightError
from core.runner.base import PassResult, Sample
from core.scheduler.output import SchedulerOutput
from core.simulate.cost import Cost, Load, fit_loads, kv_bytes_per_token, measured, measured_on
from core.simulate.runner import TOKEN, SimulatedClock, SimulatedEngine, SimulatedRunner
from core.trace.events import StepEvent
from core.trace.header import Header
from core.workload.request import Request, SamplingParams

PASSES = 16  # measured before there is a cost model
_SHARE = 0.1  # of a core
_LATE = 10.0  # seconds behind at which it gives up, but for those in which it waits for lengths
_MOST = 4096  # messages that may wait for it
_TELL = 0.5  # seconds between two messages of its own
_LOOK = 0.02  # seconds between two looks for news
_END = Sample(1, 0.0, 0.0)
Message = dict[str, Any] | StepEvent


def shadow_config(real: EngineConfig, policy: str, num_blocks: int) -> EngineConfig:
    """The real limits and the real pool under another policy; raises InvalidConfig where that policy cannot have them."""
    shares = policy in POLICIES and POLICIES[policy].prefix_caching
    limits = {**real.to_json(), "policy": policy, "num_blocks": num_blocks, "prefix_caching": real.prefix_caching and shares}
    return EngineConfig(**limits)


class _Over(Exception):
    """The simulated run is over, or no longer wanted."""


class Shadow:
    """policy: of the shadow. now: the real engine's clock. say: takes messages {"kind": "shadow"}; called by the shadow's thread, which ends
    with `close` or once `is_over`.

    `hear` takes what the real engine's feed is told, from a run's beginning on; it never waits.
    """

    def __init__(
        self, policy: str, now: Callable[[], float], say: Callable[[dict[str, Any]], None], is_over: Callable[[], bool]
    ) -> None:
        self.policy, self._now, self._say, self._is_over = policy, now, say, is_over
        self._news: deque[Message] = deque()
        self._closed = False
        self._not_before = 0.0  # when the real engine was let go on
        self._begun: dict[str, Any] | None = None  # a run's first message, read and not simulated yet
        self._steps_per_s: float | None = None
        self._thread = threading.Thread(target=self._work, name="inflight-shadow", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def hear(self, message: Message) -> None:
        if len(self._news) < 2 * _MOST:  # a shadow this far behind gives up, and begins again with the next run
            self._news.append(message)
        elif isinstance(message, dict) and message["kind"] == "run":
            self._news.clear()
            self._news.append(message)

    def close(self) -> None:
        """Ask it to end; it does so soon."""
        self._closed = True

    # -- its thread --------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._ends:
            try:
                if self._begun is None:
                    self._listen(None)
                else:
                    begun, self._begun = self._begun, None
                    self._run(Header.from_json(begun["header"]))
            except _Over:
                continue
            except InflightError as error:
                self._say({"kind": "shadow", "policy": self.policy, "status": "refused", "sentence": str(error)})

    @property
    def _ends(self) -> bool:
        return self._closed or self._is_over()

    def _run(self, header: Header) -> None:
        """Beside one run of the real engine, from its first step until another begins."""
        real = _Real(kv_bytes_per_token(header), header.config.num_lanes)
        self._not_before = 0.0
        self._tell(real, None, "waiting", f"There is no cost model yet: {PASSES} measured passes are needed.")
        while len(real.loads) < PASSES:
            self._listen(real)
        engine = self._engine(header, real)
        behind, told = 0.0, 0.0
        while True:
            self._put_in(engine, real)
            engine.clock.now = max(engine.clock.now, self._not_before)
            if not engine.has_work or engine.now > self._now() or not self._may_step(real, engine):
                self._listen(real)
            else:
                began, waited = time.perf_counter(), real.waited_s
                event = engine.step()
                if event is not None:
                    real.shadow.add(event, engine.config.num_lanes)
                waited = real.waited_s - waited
                time.sleep((time.perf_counter() - began - waited) * (1 / _SHARE - 1))
                behind = self._now() - engine.now - real.waited_s
            if behind > _LATE or len(self._news) > _MOST:
                self._give_up(real)
            if time.monotonic() - told > _TELL and real.has_news():
                self._tell(real, engine)
                told = time.monotonic()

    def _engine(self, header: Header, real: _Real) -> _Shadow:
        cost = fit_loads(real.loads, real.seconds, kv_bytes_per_token(header), measured_on(header))
        config = shadow_config(header.config, self.policy, header.num_blocks)

        def writer(cost: Cost, clock: SimulatedClock) -> _Writer:
            return _Writer(cost, clock, lambda: self._steps_per_s, lambda request, count: self._is_last(real, request, count))

        engine = _Shadow(cost, config, vocab_size=header.model.vocab_size or 0, window=2000, runner=writer)
        engine.begin("s", "shadow")
        return engine

    def _put_in(self, engine: _Shadow, real: _Real) -> None:
        """Requests that arrived, and requests that left."""
        while real.arrivals:
            request, t = real.arrivals.popleft()
            engine.add_request(
                Request(request.id, prompt_token_ids=request.prompt_token_ids, sampling=request.sampling, arrival=t)
            )
        while real.cancelled:
            with suppress(InflightError):  # it has ended here, and is forgotten
                engine.cancel(real.cancelled.popleft())

    def _may_step(self, real: _Real, engine: _Shadow) -> bool:
        """At a pace of 0 it takes a step for each of the real engine's, at the same time."""
        if self._steps_per_s != 0:
            return True
        if real.shadow.steps >= real.real.steps:
            return False
        engine.clock.now = max(engine.clock.now, real.last_step)
        return True

    def _is_last(self, real: _Real, request: str, count: int) -> bool:
        """Whether token number `count` of an answer is its last; waits until the real engine has written as much."""
        life = real.lives[request]
        began = time.perf_counter()
        while life.tokens < count and not life.reason:
            self._listen(real)
        real.waited_s += time.perf_counter() - began
        return life.reason in ("stop", "length", "error") and count >= life.tokens

    def _listen(self, real: _Real | None) -> None:
        """Take in the news, for nobody where `real` is None, after a short sleep where there is none; raises _Over for a run that begins, and
        at the end."""
        if not self._news:
            time.sleep(_LOOK)
        for _ in range(len(self._news)):
            message = self._news.popleft()
            if isinstance(message, StepEvent):
                if real is not None:
                    real.hear(message)
            elif message["kind"] == "pace":
                if self._steps_per_s == 0:
                    self._not_before = self._now()
                self._steps_per_s = message["steps_per_s"]
            elif message["kind"] == "request" and real is not None:
                real.meet(message)
            elif message["kind"] == "run":
                self._begun = message
                raise _Over
        if self._ends:
            raise _Over

    def _give_up(self, real: _Real) -> None:
        self._tell(real, None, "behind", "The simulation could not keep up with the engine; it begins again with the next run.")
        while True:
            self._listen(None)

    def _tell(self, real: _Real, engine: _Shadow | None, status: str = "running", sentence: str | None = None) -> None:
        told = {"kind": "shadow", "policy": self.policy, "source": "simulated", "status": status}
        self._say({**told, "sentence": sentence or (engine.beyond if engine is not None else None), **real.told()})


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


@dataclass
class _Life:
    """tokens: that the real engine has written. reason: why it ended."""

    arrived: float
    tokens: int = 0
    reason: str = ""


@dataclass
class _Side:
    """One of the two engines so far. ends: when each request finished, in seconds since the run began. lane_steps, used: of its lanes."""

    steps: int = 0
    lane_steps: int = 0
    used: int = 0
    running: int = 0
    waiting: int = 0
    ends: dict[str, float] = field_of(default_factory=dict)

    def add(self, event: StepEvent, lanes: int) -> None:
        self.steps += 1
        self.running = len({segment.request for segment in event.segments})
        self.used, self.lane_steps, self.waiting = self.used + self.running, self.lane_steps + lanes, event.waiting.count
        self.ends |= {f.request: event.t_end for f in event.finished if f.finish_reason != "cancelled"}

    def told(self, news: list[str]) -> dict[str, Any]:
        occupancy = self.used / self.lane_steps if self.lane_steps else None
        return {
            "steps": self.steps,
            "occupancy": None if occupancy is None else round(occupancy, 4),
            "running": self.running,
            "waiting": self.waiting,
            "finished": [[request, round(self.ends[request], 4)] for request in news],
        }


class _Real:
    """What is known of the real engine's run, and the two side by side."""

    def __init__(self, kv_bytes_per_token: int, lanes: int) -> None:
        self._per_token, self._lanes = kv_bytes_per_token, lanes
        self.loads: list[Load] = []
        self.seconds: list[float] = []
        self.lives: dict[str, _Life] = {}
        self.arrivals: deque[tuple[Request, float]] = deque()
        self.cancelled: deque[str] = deque()
        self.real, self.shadow = _Side(), _Side()
        self.last_step = 0.0  # when the real engine took it
        self.waited_s = 0.0  # for lengths
        self._asked: dict[str, Request] = {}
        self._told: tuple[set[str], set[str]] = set(), set()
        self._both, self._sums, self._last = 0, (0.0, 0.0), (-1, -1)

    def meet(self, message: Mapping[str, Any]) -> None:
        sampling = SamplingParams(message["max_new_tokens"])
        self._asked[message["id"]] = Request(message["id"], prompt_token_ids=message["prompt_token_ids"], sampling=sampling)

    def hear(self, event: StepEvent) -> None:
        if len(self.loads) < PASSES:
            loads, seconds = measured([event], self._per_token)
            self.loads += loads
            self.seconds += seconds
        for arrived in event.arrived:
            self.lives[arrived.request] = _Life(arrived.t)
            self.arrivals.append((self._asked.pop(arrived.request), arrived.t))
        for sampled in event.sampled:
            self.lives[sampled.request].tokens += 1
        for finished in event.finished:
            self.lives[finished.request].reason = finished.finish_reason
            if finished.finish_reason == "cancelled":
                self.cancelled.append(finished.request)
                self.shadow.ends.pop(finished.request, None)
                self._told[1].discard(finished.request)
        self.real.add(event, self._lanes)
        self.last_step = event.t_start

    def has_news(self) -> bool:
        now = self.real.steps, self.shadow.steps
        changed, self._last = now != self._last, now
        return changed

    def told(self) -> dict[str, Any]:
        """Both sides: requests that finished since the last call, and the means over those that have finished on both."""
        news = [[r for r in side.ends if r not in told] for side, told in zip((self.real, self.shadow), self._told, strict=True)]
        for told, new in zip(self._told, news, strict=True):
            told.update(new)
        data = {"real": self.real.told(news[0]), "shadow": self.shadow.told(news[1])}
        for request in {r for new in news for r in new if r in self.real.ends and r in self.shadow.ends}:
            arrived = self.lives.pop(request).arrived
            ends = self.real.ends.pop(request), self.shadow.ends.pop(request)
            for told in self._told:
                told.discard(request)
            self._both += 1
            self._sums = self._sums[0] + ends[0] - arrived, self._sums[1] + ends[1] - arrived
        mean = [round(total / self._both, 4) for total in self._sums] if self._both else None
        return {**data, "finished_in_both": self._both, "mean_e2e_s": mean}
