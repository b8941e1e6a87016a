"""The step loop: begin a step, launch its passes, settle their results, close the step.

The loop is the same for every run. It is given a runner that computes the passes, a source of
arrivals and a clock:

                  runner                     source                  clock
    live engine   a model on a device        requests as they come   the machine's
    simulation    what a pass would cost     the same                moved by each pass
    replay        the results on record      the arrivals on record  the times on record

A runner is synchronous or asynchronous. A synchronous runner returns a computed pass: the loop
settles each pass before the scheduler plans the next, and closes the step after its last one. An
asynchronous runner only starts a pass: the loop closes the step, begins the next one and launches
its first pass, and only then settles the step before, so that the device never waits for the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from core.engine.runner import Launched, PassResult, Runner
from core.engine.step import Step
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.trace.events import Arrived, to_microseconds
from core.workload.request import SamplingParams


class ManualClock:
    """A clock that moves only when it is told to. `now` is its time in seconds; calling the clock
    returns the same, as calling `time.perf_counter` does.
    """

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock, by at least a nanosecond: a wait that moves no float never ends."""
        self.now += max(seconds, 1e-9)


Recorded = TypeVar("Recorded")
NOBODY: frozenset[str] = frozenset()


class Source(Protocol):
    """Where requests and cancellations come from."""

    def deliver(self, loop: StepLoop[Any]) -> None:
        """A step begins: call `loop.arrive` for each request that has arrived by now, and
        `loop.scheduler.cancel` for each request that is to end.
        """
        ...


class StepLoop(Generic[Recorded]):
    """The steps of one run.

    runner: returns the runner, which may be made at the first call. record: receives each step once
    it is closed and settled; what it returns is what `step` returns. stopped: returns the requests
    of a settled pass whose text now contains one of their stop strings. failed: receives an
    exception of the runner and the step's number, and may raise another exception in its place.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        source: Source,
        clock: Callable[[], float],
        runner: Callable[[], Runner],
        *,
        record: Callable[[Step], Recorded],
        stopped: Callable[[SchedulerOutput, PassResult], frozenset[str]],
        failed: Callable[[Exception, int], None] = lambda error, number: None,
    ) -> None:
        self.scheduler, self._source, self._clock, self._runner = scheduler, source, clock, runner
        self._record, self._stopped, self._failed = record, stopped, failed
        self.number = 0  # of the next step
        self.origin = clock()  # the clock's time at which the run began
        self.in_flight: Step | None = None  # begun and launched, but not settled
        self.sampling: dict[str, SamplingParams] = {}  # of the unfinished requests that arrived
        self._arrived: list[Arrived] = []  # since the last step was closed

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return self._clock() - self.origin

    @property
    def now(self) -> float:
        """Seconds since the run began, rounded as they are recorded."""
        return to_microseconds(self._clock() - self.origin)

    def arrive(self, state: RequestState, t: float) -> None:
        """A request arrives in the step that begins; t is its recorded time of arrival."""
        self._arrived.append(Arrived(state.id, t))
        self.sampling[state.id] = state.request.sampling
        self.scheduler.add(state)

    def step(self) -> Recorded | None:
        """Take one step; returns None if there was nothing to compute or to record."""
        return None if self.begin() is None else self.settle()

    def begin(self) -> Step | None:
        """Begin a step unless one is in flight, and launch what can be launched of it; returns
        the step in flight, or None if there is nothing to compute or to record.
        """
        if self.in_flight is None:
            self.in_flight = step = self._begin(behind=False)
            if step is not None and step.launched and self._runner().asynchronous:
                self._launch_rest(step)
        return self.in_flight

    def settle(self) -> Recorded:
        """Settle and record the step in flight; an asynchronous runner's next begins before."""
        step, self.in_flight = self.in_flight, None
        assert step is not None
        failure = None
        if not (step.launched and self._runner().asynchronous):
            self._settle_passes(step)
            self._close(step)
        else:
            self._close(step)
            try:
                self.in_flight = self._begin(behind=True)
            except Exception as error:  # this step has run all the same, and is recorded
                failure = error
            for output, launched in step.launched:
                tokens, stopped = self._read(step, output, launched)
                began = self._clock()
                is_followed = self.in_flight is not None
                self.scheduler.settle(output, tokens, stopped, step.facts, is_followed)
                step.scheduling += self._clock() - began
            if self.in_flight is not None:
                self._launch_rest(self.in_flight)
        recorded = self._record(step)
        for finished in step.facts.finished:
            self.sampling.pop(finished.request, None)
        if failure is not None:
            raise failure
        return recorded

    # -- the parts of a step -----------------------------------------------------------------------

    def _begin(self, behind: bool) -> Step | None:
        """Plan the next step and launch its first pass; returns None if the step has nothing to
        compute or to record. behind: the step before it is not settled yet.
        """
        started = self.now
        self._source.deliver(self)
        step = Step(self.number, started, self.scheduler.schedule(behind))
        launched = self._launch_next(step)
        if launched or not behind:
            self.number += 1
        return step if launched or (self.scheduler.has_news and not behind) else None

    def _launch_next(self, step: Step) -> bool:
        """Launch the step's next pass; returns whether there was one."""
        began = self._clock()
        output = next(step.plan, None)
        step.scheduling += self._clock() - began
        if output is None:
            return False
        try:
            launched = self._runner().launch(output, self.sampling)
        except Exception as error:
            self._failed(error, step.number)
            raise
        step.launched.append((output, launched))
        return True

    def _launch_rest(self, step: Step) -> None:
        """Launch the rest of the step's passes without waiting for their results."""
        while True:
            self.scheduler.advance(step.latest)
            if not self._launch_next(step):
                break

    def _settle_passes(self, step: Step) -> None:
        """Settle each pass of the step before the next one is planned."""
        while len(step.results) < len(step.launched):
            output, launched = step.launched[-1]
            tokens, stopped = self._read(step, output, launched)
            began = self._clock()
            self.scheduler.update_from_output(output, tokens, stopped)
            step.scheduling += self._clock() - began
            self._launch_next(step)

    def _read(
        self, step: Step, output: SchedulerOutput, launched: Launched
    ) -> tuple[list[int | None], frozenset[str]]:
        """Wait for a pass; returns its tokens, and the requests that a stop string ends."""
        try:
            result = launched.result()
        except Exception as error:
            self._failed(error, step.number)
            raise
        step.results.append(result)
        return [s.token_id for s in result.samples], self._stopped(output, result)

    def _close(self, step: Step) -> None:
        """The step is fully planned: whatever happens from now on belongs to the next one."""
        began = self._clock()
        step.facts, step.arrived = self.scheduler.end_step(), tuple(self._arrived)
        self._arrived.clear()
        step.scheduling += self._clock() - began
