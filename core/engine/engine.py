"""The engine: schedule, execute, update, and an event for every step. Wires the rooms together and checks what comes in."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from core.attention.spec import Backend
from core.config import EngineConfig, Execution
from core.engine.describe import as_executed, header_of, model_facts
from core.engine.pool_size import PoolSize
from core.engine.recorder import Recorder
from core.engine.requests import Pending, validate_request
from core.engine.step import Step
from core.errors import ExecutionFailed, InflightError, InvalidRequest, InvalidWorkload
from core.models.load import load_adapter
from core.models.probe import probe
from core.runner.base import PassResult, Runner
from core.runner.choose import Choice, choose_attention, failure_reason, is_device_failure, new_runner
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.trace.detokenize import StopWatch
from core.trace.events import Arrived, StepEvent, to_microseconds
from core.trace.trace import Trace
from core.workload.request import Request, SamplingParams
from core.workload.workload import INTERACTIVE, ArrivalUnit, Workload

_MOST_SLEEP = 60.0  # seconds in one step


class Engine:
    """Continuous batching, or an older policy, on a transformers model.

    model: a loaded causal language model or a `ModelAdapter`. tokenizer: needed for text prompts and stop strings, else None.
    execution: how passes are computed. backend: another attention, see `core.attention.spec`. runner: makes what computes the
    passes, for a pool of so many blocks; by default what `core.runner.choose` finds for the device. recorder: keeps what happened, by
    default all of it; another may take its place between runs. clock: seconds, and sleep: how to wait, for tests and simulations.

    Raises UnsupportedModel for a model that cannot be run exactly, InvalidConfig for an execution that cannot be had here.
    """

    _num_steps: int  # taken; the number of the next one
    _in_flight: Step | None  # launched, not read
    _made_runner: Runner | None

    def __init__(
        self,
        model: Any,
        tokenizer: Any | None = None,
        config: EngineConfig | None = None,
        *,
        execution: Execution | None = None,
        backend: Backend | None = None,
        runner: Callable[[int], Runner] | None = None,
        recorder: Recorder | None = None,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.adapter = probe(model) if isinstance(model, torch.nn.Module) else model
        self.tokenizer, self.config, self.execution = tokenizer, config or EngineConfig(), execution or Execution()
        self.model = model_facts(self.adapter)
        self._clock, self._sleep = clock, sleep
        self._backend, self._choice = backend, choose_attention(self.adapter, self.config, self.execution, backend)
        self._new_runner = runner or self._chosen_runner
        self.recorder = recorder or Recorder()
        self._on_cuda = self.adapter.device.type == "cuda"  # asking a model takes longer than recording a step
        self._pool_size = PoolSize(self.adapter, self.execution, self._drop_pool)
        self._num_pool_blocks, self._made_runner = 0, None
        self._reset("step", INTERACTIVE, None)

    @classmethod
    def from_pretrained(
        cls,
        name: str,
        config: EngineConfig | None = None,
        device: str = "auto",
        dtype: str | torch.dtype = "auto",
        execution: Execution | None = None,
    ) -> Engine:
        """Load a built-in model, a local folder or a hub id; raises UnsupportedModel in one sentence.

        Under torchrun the model is shared out among its processes, which must then all do the same with their engines.
        """
        adapter, tokenizer = load_adapter(name, device, dtype)
        return cls(adapter, tokenizer, config, execution=execution)

    # -- a whole workload --------------------------------------------------------------------------------------------

    def run(self, workload: Workload) -> Trace:
        """Run a workload from an empty engine to its end; the trace. On Ctrl-C the trace so far is in `engine.trace`."""
        for _ in self.stream(workload):
            pass
        return self.trace

    def stream(self, workload: Workload) -> Iterator[StepEvent]:
        """Run a workload, handing out each step's event as it happens. All requests are checked before the first step."""
        if self.has_work:
            raise InflightError("The engine is still at work on other requests.")
        if self.adapter.tensor_parallel > 1 and workload.arrival_unit == "s":
            raise InvalidWorkload("Arrivals in seconds need a model in one process: the clocks of several would not agree.")
        prompts = [self._validated(request) for request in workload]
        longest = max((len(p) + r.sampling.max_new_tokens for p, r in zip(prompts, workload, strict=True)), default=1)
        num_blocks = self._pool_size.num_blocks(self.config, longest, self._choice.backend)
        for prompt, request in zip(prompts, workload, strict=True):
            self._pool_size.check_request(request, prompt, self.config, num_blocks)
        self._reset(workload.arrival_unit, workload.name, num_blocks)
        self._start()
        for prompt, request in zip(prompts, workload, strict=True):
            self._enqueue(request, prompt)
        return self._steps()

    def _steps(self) -> Iterator[StepEvent]:
        trace = self.trace
        try:
            while self.has_work:
                event = self.step()
                if event is not None:
                    yield event
                elif self._unit == "step" and self._pending:  # empty steps, taken at once
                    self._num_steps = max(self._num_steps, math.ceil(self._pending.next_arrival))
            trace.complete = True
        finally:
            if trace is self.trace and self._made_runner is not None:
                self._describe()
            if not trace.complete and trace is self.trace:  # left early: the engine is free for another run, the trace stays
                self._drop_work()

    # -- request by request ------------------------------------------------------------------------------------------

    def begin(self, arrival_unit: ArrivalUnit = "step", name: str = INTERACTIVE, config: EngineConfig | None = None) -> None:
        """Drop all work and start a new trace at step 0, with everything ready and the clock at zero.

        arrival_unit: what requests count their arrivals in. config: other limits from now on. Raises InvalidConfig, changing nothing, for
        limits that cannot be had here, and ExecutionFailed where the KV pool cannot.
        """
        if config is not None and config != self.config:
            self._choice = self._choice_for(config)
            self.config, self._made_runner = config, None
        self._reset(arrival_unit, name, None)
        self._start()

    def check_config(self, config: EngineConfig) -> None:
        """Raises InvalidConfig for limits that `begin` would refuse."""
        self._choice_for(config)

    def add_request(self, request: Request, prompt: tuple[int, ...] | None = None) -> None:
        """Queue a request; raises InvalidRequest, leaving everything as it was, if it could never run.

        prompt: its token ids, where `validate_request` has found them already.
        """
        prompt = self._validated(request) if prompt is None else prompt
        if self.recorder.knows(request.id):
            raise InvalidRequest(f"There is already a request {request.id!r}.")
        self._pool_size.check_request(request, prompt, self.config, self._num_pool_blocks)
        self._enqueue(request, prompt)

    def cancel(self, request: str) -> None:
        """End a request before the next step; raises InflightError if it is unknown. One that has finished stays as it is."""
        if request in self._requests:
            self._cancelled.append(request)
        elif not self.recorder.knows(request):
            raise InflightError(f"There is no request {request!r}.")

    @property
    def has_work(self) -> bool:
        """Whether requests are running, waiting or still to arrive."""
        return self._in_flight is not None or bool(self._pending) or bool(self._cancelled) or self._scheduler.has_work

    @property
    def trace(self) -> Trace:
        """What has happened since the run began; the same object throughout a run."""
        return self.recorder.trace

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return to_microseconds(self._clock() - self._origin)

    @property
    def running(self) -> tuple[str, ...]:
        """Requests in a lane, those of a step that failed included, in the order in which they were admitted."""
        return tuple(state.id for state in self._scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests in the waiting queue."""
        return len(self._scheduler.waiting)

    @property
    def kv_blocks(self) -> tuple[int, int]:
        """KV blocks in use, and in the pool."""
        return self._scheduler.pool.num_used, self._num_pool_blocks

    @property
    def num_steps(self) -> int:
        """Steps taken, those without an event included."""
        return self._num_steps

    def step(self) -> StepEvent | None:
        """One step: schedule, execute, update. None if nothing could run.

        With asynchronous execution the next step has been launched, too, by the time this one is read and returned.
        """
        step, self._in_flight = self._in_flight, None
        if step is None:
            step = self._begin()
            if step is None:
                if self._pending:
                    self._wait_for_arrival()
                return None
            if self._runner.asynchronous and step.launched:
                self._go_on(step)
        if self._runner.asynchronous and step.launched:
            self._overlap(step)
        else:
            self._complete(step)
        return self._record(step)

    # -- a step ------------------------------------------------------------------------------------------------------

    def _begin(self, in_flight: bool = False) -> Step | None:
        """Plan a step and launch its first pass; None if there is nothing to do. in_flight: the last step is not read yet."""
        started = self.now
        self._cancel()
        self._receive()
        step = Step(self._num_steps, started, self._scheduler.schedule(in_flight))
        launched = self._launch_next(step)
        if launched or not in_flight:
            self._num_steps += 1
        return step if launched or (self._scheduler.has_news and not in_flight) else None

    def _launch_next(self, step: Step) -> bool:
        """Launch the step's next pass, if it has one more."""
        began = self._clock()
        output = next(step.plan, None)
        step.scheduling += self._clock() - began
        if output is None:
            return False
        with self._computing(f"Step {step.number} could not be computed"):
            step.launched.append((output, self._runner.launch(output, self._params)))
        return True

    @contextmanager
    def _computing(self, failure: str) -> Iterator[None]:
        """A failure inside becomes ExecutionFailed with one sentence, and the pool's memory is given back."""
        try:
            yield
        except Exception as error:
            if not is_device_failure(error):
                raise
            self._made_runner = None
            raise ExecutionFailed(f"{failure}: {failure_reason(error, self.adapter.device)}.") from error

    def _go_on(self, step: Step) -> None:
        """Launch what is left of a step, its tokens unread."""
        while True:
            self._scheduler.advance(step.latest)
            if not self._launch_next(step):
                break

    def _complete(self, step: Step) -> None:
        """Read each pass of the step before the next one is planned."""
        while len(step.results) < len(step.launched):
            output, launched = step.launched[-1]
            with self._computing(f"Step {step.number} could not be computed"):
                result = launched.result()
            step.results.append(result)
            stopped = self._stopped(output, result)
            began = self._clock()
            self._scheduler.update_from_output(output, [s.token_id for s in result.samples], stopped)
            step.scheduling += self._clock() - began
            self._launch_next(step)
        self._close(step)

    def _overlap(self, step: Step) -> None:
        """Launch the next step's first pass, then read this step, then launch the rest of the next."""
        self._close(step)
        failure = None
        try:
            self._in_flight = self._begin(in_flight=True)
        except Exception as error:  # what was launched before it has run all the same, and goes on record
            failure = error
        for output, launched in step.launched:
            with self._computing(f"Step {step.number} could not be computed"):
                result = launched.result()
            step.results.append(result)
            stopped = self._stopped(output, result)
            began = self._clock()
            tokens = [s.token_id for s in result.samples]
            self._scheduler.settle(output, tokens, stopped, step.facts, followed=self._in_flight is not None)
            step.scheduling += self._clock() - began
        if failure is not None:
            self._record(step)
            raise failure
        if self._in_flight is not None:
            self._go_on(self._in_flight)

    def _close(self, step: Step) -> None:
        """Everything is planned: what happens from now on belongs to the next step."""
        began = self._clock()
        step.facts, step.arrived = self._scheduler.end_step(), tuple(self._arrived)
        self._arrived.clear()
        step.scheduling += self._clock() - began

    # -- inside ------------------------------------------------------------------------------------------------------

    def _reset(self, unit: ArrivalUnit, name: str, num_blocks: int | None) -> None:
        """An empty engine at step 0."""
        if num_blocks is None:
            num_blocks = self._pool_size.num_blocks(self.config, self.adapter.max_model_len or 2048, self._choice.backend)
        if self._num_pool_blocks != num_blocks:
            self._drop_pool()
            self._num_pool_blocks = num_blocks
        self._drop_work()
        self._unit, self._num_steps, self._origin = unit, 0, self._clock()
        self._num_requests, self._last_end = 0, 0.0
        header = header_of(self.adapter, self.config, name, unit, num_blocks, self._choice.backend.leaks)
        self.recorder.begin(header, self.tokenizer)

    def _start(self) -> None:
        """Have everything ready, and the clock at zero."""
        self._describe()
        self._runner.begin()
        if self._on_cuda:
            torch.cuda.reset_peak_memory_stats(self.adapter.device)
        self._origin = self._clock()

    @property
    def _runner(self) -> Runner:
        """Made when it is first needed: it takes the pool's memory."""
        if self._made_runner is None:
            with self._computing("The KV pool and its passes could not be prepared"):
                self._made_runner = self._new_runner(self._num_pool_blocks)
            self._describe()
        return self._made_runner

    def _choice_for(self, config: EngineConfig) -> Choice:
        self._pool_size.check_config(config)
        return choose_attention(self.adapter, config, self.execution, self._backend)

    def _chosen_runner(self, num_blocks: int) -> Runner:
        return new_runner(self.adapter, self.config, self.execution, self._choice, num_blocks, self._clock)

    def _drop_pool(self) -> None:
        self._num_pool_blocks, self._made_runner = 0, None

    def _drop_work(self) -> None:
        """Nobody running, waiting or still to arrive; the trace stays."""
        self._scheduler = Scheduler(self.config, self._num_pool_blocks, self.adapter.eos_token_ids)
        self._budget = self.config.max_num_batched_tokens if self.config.policy.token_budget else None
        self._requests: dict[str, RequestState] = {}  # unfinished
        self._params: dict[str, SamplingParams] = {}
        self._watches: dict[str, StopWatch] = {}  # of requests with stop strings
        self._pending = Pending()
        self._arrived: list[Arrived] = []
        self._cancelled: list[str] = []
        self._in_flight = None

    def _validated(self, request: Request) -> tuple[int, ...]:
        """The prompt's token ids; raises InvalidRequest."""
        return validate_request(request, self.model, self.tokenizer, self.config)

    def _enqueue(self, request: Request, prompt: tuple[int, ...]) -> None:
        state = RequestState(request, prompt, arrival_index=self._num_requests)
        self._num_requests += 1
        self._requests[request.id] = state
        self._params[request.id] = request.sampling
        if request.sampling.stop:
            self._watches[request.id] = StopWatch(self.tokenizer, request.sampling.stop, prompt)
        self._pending.add(state)
        self.recorder.request(request, prompt)

    def _receive(self) -> None:
        """Arrivals that are due join the waiting queue."""
        now = self._num_steps if self._unit == "step" else self._clock() - self._origin
        for state in self._pending.take_due(now):
            self._arrive(state)

    def _cancel(self) -> None:
        """Cancelled requests leave; one that has not arrived yet arrives first."""
        for request in self._cancelled:
            state = self._requests.get(request)
            if state is None:  # it ended first
                continue
            if self._pending.withdraw(state):
                self._arrive(state)
            self._scheduler.cancel(request)
        self._cancelled.clear()

    def _arrive(self, state: RequestState) -> None:
        planned = state.request.arrival if self._unit == "s" else self.now
        self._arrived.append(Arrived(state.id, round(min(planned, self.now), 6)))
        self._scheduler.add(state)

    def _wait_for_arrival(self) -> None:
        if self._unit == "s":
            self._sleep(min(_MOST_SLEEP, max(0.0, self._pending.next_arrival - (self._clock() - self._origin))))

    def _stopped(self, output: SchedulerOutput, result: PassResult) -> frozenset[str]:
        """Requests whose text now contains one of their stop strings."""
        if not self._watches:
            return frozenset()
        stopped = set()
        sampling = (s.request for s in output.scheduled if s.samples)
        for request, drawn in zip(sampling, result.samples, strict=True):
            watch = self._watches.get(request)
            if watch and drawn.token_id is not None and watch.add(drawn.token_id):
                stopped.add(request)
        return frozenset(stopped)

    def _record(self, step: Step) -> StepEvent:
        """Record what happened, and forget the requests that have finished."""
        event = self.recorder.record(lambda: self._event(step))
        self._last_end = event.t_end
        for finished in step.facts.finished:
            del self._requests[finished.request], self._params[finished.request]
            self._watches.pop(finished.request, None)
        return event

    def _event(self, step: Step) -> StepEvent:
        """The event of a step."""
        start, end = step.started, self.now
        if self._on_cuda:
            step.not_before(self._last_end + self._origin)
            start = max(start, self._last_end)
        ahead = self._runner.asynchronous
        if step.results and (ahead or self._on_cuda):
            last = to_microseconds(step.results[-1].t_end - self._origin)
            end = last if ahead else max(end, last)
            if ahead:  # the host's own times overlap: the device's are in order
                start = to_microseconds(step.results[0].t_start - self._origin)
        return step.event(self._origin, start, end, self._num_pool_blocks, self._budget)

    def _describe(self) -> None:
        """What the header says of how passes are computed: known in full once they have been."""
        pool_bytes = self._num_pool_blocks * self.config.block_size * self.adapter.kv_bytes_per_token
        self.trace.header = as_executed(self.trace.header, self.adapter, self._runner, self._choice.notes, pool_bytes)
