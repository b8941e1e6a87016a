"""The engine: schedule, execute, update, and an event for every step. It is given the runner that
computes the passes; it has no model of its own.
"""

import datetime
import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from types import NoneType
from typing import Any

from core.collector import gc_off
from core.config import EngineConfig, PolicyOrName
from core.engine.arrivals import ArrivalQueue
from core.engine.loop import NOBODY, StepLoop
from core.engine.outputs import Outputs, StopStrings
from core.engine.recorder import TraceRecorder
from core.engine.requests import check_room, validate_request
from core.engine.runner import Executor, PassResult, Runner
from core.engine.step import Step
from core.errors import ExecutionFailed, InflightError, InvalidRequest, InvalidWorkload, require
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.trace.events import StepEvent, to_microseconds
from core.trace.header import Header
from core.trace.trace import Trace
from core.workload.request import Request
from core.workload.workload import INTERACTIVE, ArrivalUnit, Workload

_A_CONFIG = "The limits of an engine are an EngineConfig"


class EngineCore:
    """Continuous batching, or an older policy, with any executor that computes passes: a model
    (`core.torch_engine.engine.Engine`) or a cost model (`core.simulate.engine.SimulatedEngine`).

    tokenizer: needed for text prompts and stop strings, else None. recorder: keeps what happened,
    by default all of it; it may be replaced between runs. clock, sleep: in seconds, replaced in
    tests and simulations. policy: used instead of the config's, by name or as a `Policy`.

    Raises InvalidConfig for an unknown policy, and for limits that the executor does not support.
    """

    _most_sleep = 60.0  # seconds at a time
    _is_stepping = False
    _loop: StepLoop[StepEvent]
    _arrivals: ArrivalQueue
    _made_runner: Runner | None

    def __init__(
        self,
        executor: Executor,
        tokenizer: Any | None = None,
        config: EngineConfig | None = None,
        *,
        policy: PolicyOrName | None = None,
        recorder: TraceRecorder | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        limits = EngineConfig() if config is None else require(config, EngineConfig, _A_CONFIG)
        self.model = executor.model
        self.tokenizer = tokenizer
        self.config = limits if policy is None else limits.under(policy)
        self.recorder = recorder or TraceRecorder()
        self.outputs: Outputs = StopStrings(tokenizer)  # may be replaced between runs
        self.executor, self._clock, self._sleep = executor, clock, sleep
        executor.check_config(self.config)
        self._num_pool_blocks, self._made_runner = 0, None
        self._reset("step", INTERACTIVE, None)

    # -- a whole workload --------------------------------------------------------------------------

    def run(
        self, workload: Workload, on_event: Callable[[StepEvent], object] | None = None
    ) -> Trace:
        """Run a workload from an empty engine to its end; returns the trace. After Ctrl-C the trace
        so far is in `engine.trace`.

        on_event: called with each event. Raises what `stream`, `step` and `on_event` raise.
        """
        require(on_event, (Callable, NoneType), "What is told of each step is a function")
        events = self.stream(workload)
        trace = self.trace
        with gc_off():
            for event in events:
                if on_event is not None:
                    on_event(event)
        return trace

    def stream(self, workload: Workload) -> Generator[StepEvent, None, None]:
        """Run a workload, yielding each step's event once the step has run and is in
        `engine.trace`. The next step runs when its event is asked for.

        All requests are checked when this is called, before the first step. Closing or dropping the
        stream, an exception in it, or `begin` ends the run: its trace stays as it is, and the
        engine is free for another. An engine is for one thread at a time.

        Raises InflightError while other requests are unfinished, InvalidWorkload and InvalidRequest
        for requests that could never run, and ExecutionFailed if the KV pool cannot be made; then,
        step by step, what `step` raises.
        """
        return self._begun(workload, waits=False)

    def turns(self, workload: Workload) -> Generator[StepEvent | None, None, None]:
        """Like `stream`, but yields None after each moment of waiting for an arrival, for a caller
        that has other things to do meanwhile.
        """
        return self._begun(workload, waits=True)

    def _begun(self, workload: Workload, waits: bool) -> Generator[Any, None, None]:
        of = "such as Workload(requests) or preset(name).workload"
        require(workload, Workload, f"An engine runs a Workload, {of}")
        if self.has_work:
            raise InflightError(
                "The engine is still at work on other requests: close their stream, or drop them"
                " with `begin`."
            )
        if self.executor.header.get("tensor_parallel", 1) > 1 and workload.arrival_unit == "s":
            raise InvalidWorkload(
                "Arrivals in seconds need a model in one process: the clocks of several would not"
                " agree."
            )
        if self.tokenizer is None:
            workload = workload.without_texts()
        prompts = [self._validated(request) for request in workload]
        longest = max(
            (len(p) + r.sampling.max_new_tokens for p, r in zip(prompts, workload, strict=True)),
            default=1,
        )
        num_blocks = self._num_blocks_for(longest)
        for prompt, request in zip(prompts, workload, strict=True):
            self._check_room(request, prompt, num_blocks)
        self._reset(workload.arrival_unit, workload.name, num_blocks)
        self._start()
        for prompt, request in zip(prompts, workload, strict=True):
            self._enqueue(request, prompt)
        steps = self._steps(waits)
        # enter its `try`: closing a generator that was never started would not free the engine
        next(steps)
        return steps

    def _steps(self, waits: bool) -> Generator[Any, None, None]:
        trace = self.trace
        try:
            yield None
            while trace is self.trace and self.has_work:
                event = self.step()
                if event is not None or waits:
                    yield event
                # skip the empty steps before the next arrival
                if (
                    event is None
                    and self._unit == "step"
                    and (first := self._arrivals.future.first)
                ):
                    number = math.ceil(first.request.arrival)
                    self._loop.number = max(self._loop.number, number)
            trace.complete |= trace is self.trace  # of no requests, too
        finally:
            if trace is self.trace:
                if self._made_runner is not None:
                    self._describe()
                if not trace.complete:  # the caller stopped early
                    self._drop_work()

    # -- request by request ------------------------------------------------------------------------

    def begin(
        self,
        arrival_unit: ArrivalUnit = "step",
        name: str = INTERACTIVE,
        config: EngineConfig | None = None,
    ) -> None:
        """Drop all work and start a new trace at step 0, with the runner ready and the clock at 0.

        arrival_unit: the unit of the requests' arrivals. config: new limits from now on. Raises
        InvalidConfig or InvalidWorkload, changing nothing, for limits that are not possible here or
        another unit than "step" or "s", and ExecutionFailed if the KV pool cannot be made.
        """
        Workload((), name, arrival_unit)  # refuses a name or a unit that no workload can have
        if config is not None and require(config, EngineConfig, _A_CONFIG) != self.config:
            self.check_config(config)
            self.config, self._made_runner = config, None
        self._reset(arrival_unit, name, None)
        self._start()

    def check_config(self, config: EngineConfig) -> None:
        """Raises InvalidConfig for limits that `begin` would refuse."""
        self.executor.check_config(require(config, EngineConfig, _A_CONFIG))

    def add_request(self, request: Request, prompt: tuple[int, ...] | None = None) -> None:
        """Queue a request; raises InvalidRequest, changing nothing, if it could never run.

        prompt: its token ids, if `validate_request` has already produced them.
        """
        require(request, Request, "An engine takes a Request")
        prompt = self._validated(request) if prompt is None else prompt
        if self.recorder.knows(request.id):
            raise InvalidRequest(f"There is already a request {request.id!r}.")
        self._check_room(request, prompt, self._num_pool_blocks)
        self._enqueue(request, prompt)

    def cancel(self, request: str) -> None:
        """End a request before the next step; raises InflightError if it is unknown. A finished
        request is not changed.
        """
        require(request, str, "A request is cancelled by its id")
        if request in self._loop.sampling or request in self._arrivals.future:
            self._arrivals.cancel(request)
        elif not self.recorder.knows(request):
            raise InflightError(f"There is no request {request!r}.")

    @property
    def has_work(self) -> bool:
        """Whether requests are running, waiting or still to arrive."""
        return (
            self._loop.in_flight is not None
            or bool(self._arrivals)
            or self._loop.scheduler.has_work
        )

    @property
    def trace(self) -> Trace:
        """What has happened since the run began; the same object throughout a run."""
        return self.recorder.trace

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self._loop.now

    @property
    def time(self) -> float:
        """Seconds on the engine's clock, which a new run does not reset."""
        return self._clock()

    @property
    def began(self) -> float:
        """The `time` at which the run began."""
        return self._loop.origin

    @property
    def running(self) -> tuple[str, ...]:
        """Requests in a lane, including those of a failed step, in order of admission."""
        return tuple(state.id for state in self._loop.scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue."""
        return len(self._loop.scheduler.waiting)

    @property
    def kv_blocks(self) -> tuple[int, int]:
        """KV blocks in use, and in the pool."""
        return self._loop.scheduler.pool.num_used, self._num_pool_blocks

    @property
    def num_steps(self) -> int:
        """Steps taken, including those without an event."""
        return self._loop.number

    def step(self) -> StepEvent | None:
        """Take one step: schedule, execute, update. Returns None if nothing could run.

        With asynchronous execution the next step has already been launched when this one is read
        and returned. Raises ExecutionFailed if the device fails: the steps before it are recorded,
        the pool's memory is released, and `begin` starts over. Raises InflightError, changing
        nothing, if another thread, or the policy of this very step, asks for a step meanwhile.
        """
        if self._is_stepping:
            raise InflightError("The engine is in the middle of a step: it is for one thread.")
        self._is_stepping = True
        try:
            event = self._loop.step()
        finally:
            self._is_stepping = False
        if event is None:
            self._wait_for_arrival()
        self.trace.complete = not self.has_work
        return event

    # -- inside ------------------------------------------------------------------------------------

    def _reset(self, unit: ArrivalUnit, name: str, num_blocks: int | None) -> None:
        """An empty engine at step 0."""
        if num_blocks is None:
            num_blocks = self._num_blocks_for(self.model.context or 2048)
        if self._num_pool_blocks != num_blocks:
            self._drop_pool()
            self._num_pool_blocks = num_blocks
        self._unit = unit
        self._begin_loop()
        self._num_requests, self._last_end = 0, 0.0
        header = Header(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            model=self.model,
            config=self.config,
            num_blocks=num_blocks,
            workload=name,
            arrival_unit=unit,
            **{"source": "live", **self.executor.header},
        )
        self.recorder.begin(header, self.tokenizer)

    def _start(self) -> None:
        """Prepare the runner and set the clock to zero."""
        self._describe()
        self._runner().begin()
        self._loop.origin = self._clock()

    def _runner(self) -> Runner:
        """The runner, which is made when it is first needed, because it allocates the pool."""
        if self._made_runner is None:
            try:
                self._made_runner = self.executor.new_runner(
                    self.config, self._num_pool_blocks, self._clock
                )
            except Exception as error:
                self._raise_failure(error, "The KV pool and its passes could not be prepared")
                raise
            self._describe()
        return self._made_runner

    def _pass_failed(self, error: Exception, step: int) -> None:
        self._raise_failure(error, f"Step {step} could not be computed")

    def _raise_failure(self, error: Exception, failure: str) -> None:
        """If the device has failed, release the pool's memory and raise ExecutionFailed."""
        reason = self.executor.failure(error)
        if reason is not None:
            self._made_runner = None
            raise ExecutionFailed(f"{failure}: {reason}.") from error

    def _num_blocks_for(self, longest: int) -> int:
        """Blocks of the pool: as configured, or `longest` tokens for each lane if possible."""
        config = self.config
        if config.num_blocks is not None:
            return config.num_blocks
        wanted = -(-longest // config.block_size) * config.num_lanes
        most = self.executor.most_blocks(config, longest, self._drop_pool)
        return wanted if most is None else max(1, min(wanted, most))

    def _check_room(self, request: Request, prompt: Sequence[int], num_blocks: int) -> None:
        sized = self.executor.memory_sentence if self.config.num_blocks is None else ""
        check_room(request, prompt, num_blocks, self.config.block_size, sized)

    def _drop_pool(self) -> None:
        self._num_pool_blocks, self._made_runner = 0, None

    def _drop_work(self) -> None:
        """Drop all requests, future ones too; the trace, the clock and the step count stay."""
        number, origin = self._loop.number, self._loop.origin
        self._begin_loop()
        self._loop.number, self._loop.origin = number, origin

    def _begin_loop(self) -> None:
        """A loop without requests, at step 0."""
        self._arrivals = ArrivalQueue(self._unit)
        self._loop = StepLoop(
            Scheduler(
                self.config, self._num_pool_blocks, frozenset(self.model.eos_token_ids or ())
            ),
            self._arrivals,
            self._clock,
            self._runner,
            record=self._record,
            stopped=self._stopped,
            failed=self._pass_failed,
        )
        self.outputs.clear()

    def _validated(self, request: Request) -> tuple[int, ...]:
        """The prompt's token ids; raises InvalidRequest."""
        return validate_request(request, self.model, self.tokenizer, self.config)

    def _enqueue(self, request: Request, prompt: tuple[int, ...]) -> None:
        self.trace.complete = False
        state = RequestState(request, prompt, arrival_index=self._num_requests)
        self._num_requests += 1
        self.outputs.begin(request, prompt)
        self.recorder.request(request, prompt)
        self._arrivals.future.add(state)  # last: nothing runs that is not on record

    def _wait_for_arrival(self) -> None:
        """Sleep until the next request arrives, if arrivals count in seconds."""
        first = self._arrivals.future.first
        if first is not None and self._unit == "s":
            wait = first.request.arrival - self._loop.elapsed
            self._sleep(min(self._most_sleep, max(0.0, wait)))

    def _stopped(self, output: SchedulerOutput, result: PassResult) -> frozenset[str]:
        """The requests whose text now contains one of their stop strings."""
        if not self.outputs:
            return NOBODY
        sampling = (s.request for s in output.scheduled if s.samples)
        drawn = zip(sampling, (sample.token_id for sample in result.samples), strict=True)
        return frozenset(
            r for r, token_id in drawn if token_id is not None and self.outputs.add(r, token_id)
        )

    def _record(self, step: Step) -> StepEvent:
        """Record what happened, and forget the requests that have finished."""
        event = self.recorder.record(lambda: self._event(step))
        self._last_end = event.t_end
        for finished in step.facts.finished:
            self.outputs.end(finished.request)
        return event

    def _event(self, step: Step) -> StepEvent:
        runner, origin = self._runner(), self._loop.origin
        start, end = step.started, self.now
        ahead, own_clock = runner.asynchronous, runner.own_clock
        if own_clock:
            step.not_before(self._last_end + origin)
            start = max(start, self._last_end)
        if step.results and (ahead or own_clock):
            last = to_microseconds(step.results[-1].t_end - origin)
            end = last if ahead else max(end, last)
            if ahead:  # the host's times overlap, the device's are in order
                start = to_microseconds(step.results[0].t_start - origin)
        return step.event(origin, start, end, self._num_pool_blocks, self.config)

    def _describe(self) -> None:
        """Complete the header with how passes are computed, which the runner knows."""
        runner, header = self._runner(), self.trace.header
        notes = tuple(runner.notes) or header.notes
        self.trace.header = replace(
            header, execution=runner.execution, memory=runner.memory, notes=notes
        )
