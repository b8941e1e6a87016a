"""Lets our scheduler decide again what is recorded: in one of our runs, and in workloads that other
engines ran, without a model and without timing.

For a run, the scheduler gets the recorded inputs (arrivals, cancellations, tokens, failures), and
each of its decisions is compared with the recorded event, field by field; measured values are taken
from the record.

A recorded workload is a line of a file: `seqs`, `budget`, `blocks`, `size` and `caching` are its
limits, `requests` have `id`, `prompt` (token ids), `max_tokens` and `arrival` (a step), and `vllm`
or `transformers` is what that engine decided in each step that computed anything: `[admitted,
preempted, [[request, start, length], …], finished]`, each sorted. Some settings may differ from the
engine's defaults: vLLM's `reserve_full_isl` and `watermark`, transformers' `margin` (a share of the
pool) and `kv_reads` (tokens). There is no model: after n tokens a request's next token is
`crc32("request:n") % 1000`.
"""

import gzip
import json
import math
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import zip_longest
from pathlib import Path
from typing import Any

from core.config import EngineConfig
from core.engine.arrivals import ArrivalQueue, FutureRequests
from core.engine.loop import NOBODY, ManualClock, StepLoop
from core.engine.runner import FACTS_OF_A_PASS, PassResult, Sample
from core.engine.step import Step
from core.errors import InflightError, InvalidWorkload, PolicyFailed, malformed, shown
from core.files import read_json
from core.policy import POLICIES, Policy
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.trace.events import StepEvent
from core.trace.header import Header
from core.workload.request import Request, SamplingParams

_EARLY = 2e-6  # seconds by which two rounded readings of one clock may appear out of order
# a device's clock is ahead of its host's by at most these seconds, and this share of the time
_AHEAD, _DRIFT = 1e-3, 1e-4
_MOST_SLEEP = 60.0  # seconds that an engine sleeps in one step while it waits for an arrival
_SPARE_STEPS = 10


class Differs(Exception):
    """A recorded decision that this policy does not take; the message has no full stop."""


class Replay:
    """Follows a run event by event, as the rules do; `fault(event)` says in a sentence which
    decision is not that of the policy. The steps are made by the engine's own loop, whose runner,
    arrivals and clock return what is recorded.

    With asynchronous execution an event can be judged only once the next one is known, whose step
    had been launched by then: `fault` judges the previous event, and `fault_at_end` the last.
    Requests are added by `fault_of_request` before the step in which they arrive.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._runner = _RecordedRunner(header.is_asynchronous)
        self._arrivals = _RecordedArrivals(header)
        self._clock = ManualClock()
        self._scheduler = Scheduler(
            header.config, header.num_blocks, frozenset(header.model.eos_token_ids or ())
        )
        self._loop = StepLoop(
            self._scheduler,
            self._arrivals,
            self._clock,
            lambda: self._runner,
            record=self._judge,
            stopped=self._stopped,
        )
        self._before, self._t_end = 0.0, 0.0  # when the latest two events ended
        self._launched: StepEvent | None = None  # of the step in flight

    def fault_of_request(self, request: Request, prompt: Sequence[int]) -> str | None:
        """Add a future request; returns what is wrong if it should have arrived already."""
        if not self._header.is_interactive and self._arrivals.is_overdue(request.arrival):
            return f"request {request.id!r} stands after the step in which it was due."
        self._arrivals.add(request, prompt)
        return None

    def fault(self, event: StepEvent) -> str | None:
        """The decision that is not the policy's, as a sentence, or None."""
        return self._difference(event)

    def fault_at_end(self, complete: bool) -> str | None:
        """The same for the last step. In an asynchronous run that was cut short it is not judged,
        since the next step may have been launched.
        """
        return self._difference(None) if complete else None

    def _difference(self, event: StepEvent | None) -> str | None:
        number = self._loop.number
        try:
            # of a step that was launched ahead, the next event has the results
            if self._launched is not None and (event is None or event.step != number):
                self._loop.settle()
                if self._loop.in_flight is not None:
                    raise Differs(f"step {number}: it is not on record, and the policy takes it")
            if event is not None:
                self._follow(event)
        except Differs as difference:
            return f"{difference}."
        except PolicyFailed as failure:
            return f"step {event.step if event else number}: {failure}"
        return None

    def _follow(self, event: StepEvent) -> None:
        """Launch the step once the previous one is settled or in flight."""
        self._runner.event = event
        self._arrivals.begin(event, self._before)
        self._clock.now = event.t_start
        if self._launched is not None:
            self._loop.settle()
        if self._loop.in_flight is None:
            self._check_number(event)
        step = self._loop.begin()
        if step is None:
            raise Differs(f"step {event.step}: it is on record, and nothing could run")
        self._launched, self._before, self._t_end = event, self._t_end, event.t_end
        if not step.launched or not self._header.is_asynchronous:
            self._loop.settle()

    def _check_number(self, event: StepEvent) -> None:
        """Check the step number: consecutive while there is work, otherwise that of an arrival."""
        first, step = self._loop.number, event.step
        last = first
        if not self._scheduler.has_work:
            # a step that may have nothing else to record
            cancelled = any(f.when == "before" for f in event.finished)
            next_one = self._arrivals.future.first
            if self._header.is_interactive:
                last = max(first, step)
            elif self._header.counts_steps:
                last = max(first, math.ceil(next_one.request.arrival)) if next_one else first
                first = first if cancelled else last
            else:
                last += _SPARE_STEPS + int((event.t_start - self._t_end) / _MOST_SLEEP)
        if not first <= step <= last:
            before = self._loop.number - 1
            told = f"it cannot follow step {before}" if before >= 0 else "it cannot be the first"
            raise Differs(f"step {step}: {told}")
        self._loop.number = step

    def _stopped(self, output: SchedulerOutput, result: PassResult) -> frozenset[str]:
        """Requests that ended by their text in this pass, the last of the step that computed
        them.
        """
        assert self._launched is not None
        last = {segment.request: segment.start for segment in self._launched.segments}
        here = {s.request for s in output.scheduled if s.start == last.get(s.request)}
        stopped = {f.request for f in self._launched.finished if f.finish_reason == "stop"} & here
        return frozenset(r for r in stopped if self._loop.sampling[r].stop)

    def _judge(self, step: Step) -> None:
        """Compare a settled step with its event; raises Differs for the first difference."""
        event, self._launched = self._launched, None
        assert event is not None
        header = self._header
        again = step.event(0.0, event.t_start, event.t_end, header.num_blocks, header.config)
        again = again._replace(timings=event.timings)
        if again != event:
            raise Differs(next(_differences(event, again)))


class _NoModel:
    """Common parts of runners that compute nothing, see `Runner`."""

    asynchronous = own_clock = False
    execution = memory = None
    notes: Sequence[str] = ()

    def begin(self) -> None:
        """Nothing is to be prepared."""


class _RecordedRunner(_NoModel):
    """A runner that returns the recorded results. event: of the step that is being launched."""

    event: StepEvent

    def __init__(self, asynchronous: bool) -> None:
        self.asynchronous = asynchronous
        self._step, self._index = -1, 0  # of the next pass

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        event = self.event
        if event.step != self._step:
            self._step, self._index = event.step, 0
        index, self._index = self._index, self._index + 1
        drawn = {
            s.request: Sample(s.token_id, s.logprob or 0.0, s.margin or 0.0)
            for s in event.sampled
            if s.pass_index == index
        }
        samples = [drawn.get(s.request, _NOT_FINITE) for s in output.scheduled if s.samples]
        if index >= len(event.passes):
            return replace(_NO_RESULT, samples=samples)
        forward = event.passes[index]
        return replace(
            _NO_RESULT,
            samples=samples,
            t_start=forward.t_start,
            t_end=forward.t_end,
            **{name: getattr(forward, name) for name in FACTS_OF_A_PASS},
        )


class _RecordedArrivals:
    """The recorded arrivals and cancellations. event: of the step that begins."""

    event: StepEvent | None = None

    def __init__(self, header: Header) -> None:
        self._header = header
        self._now = 0.0  # by the clock of arrivals, when the step began, or surely not later
        self.future = FutureRequests()
        self._num_requests = 0
        self._latest = 0.0  # the latest arrival so far, by the workload
        # when clients leave, by the workload: a heap, as of an `ArrivalQueue`
        self._leaving: list[tuple[float, str]] = []

    def begin(self, event: StepEvent, before: float) -> None:
        """The step of this event begins. before: the end of the step before the last, whose results
        had been read when an asynchronous step began; only the start on the device is recorded.
        """
        self.event = event
        if self._header.counts_steps:
            self._now = event.step
        elif self._header.is_asynchronous:
            self._now = before * (1 - _DRIFT) - _AHEAD
        else:
            self._now = event.t_start - _EARLY

    def is_overdue(self, arrival: float) -> bool:
        """Whether a request with this arrival should have come in a step that has begun."""
        if self.event is None:
            return False
        by_now = arrival <= self._now if self._header.counts_steps else arrival < self._now
        return by_now or arrival < self._latest

    def add(self, request: Request, prompt: Sequence[int]) -> None:
        ids = tuple(request.prompt_token_ids or prompt)
        self.future.add(RequestState(request, ids, self._num_requests))
        self._num_requests += 1
        if request.leaves_after is not None:
            heappush(self._leaving, (request.arrival + request.leaves_after, request.id))

    def deliver(self, loop: StepLoop[None]) -> None:
        """See `Source`: cancellations up to the last one of a request that comes out of turn, each
        after its own arrival; then due arrivals, and then all others that leave.
        """
        event = self.event
        assert event is not None
        times = {arrived.request: arrived.t for arrived in event.arrived}
        ended = [finished.request for finished in event.finished if finished.when == "before"]
        early = [n for n, r in enumerate(ended) if r in self.future and self._is_early(r, times)]
        first = max(early, default=-1) + 1
        for request in ended[:first]:
            if request in self.future:
                loop.arrive(self.future.take(request), times.get(request, 0.0))
            loop.scheduler.cancel(request)
        for request in self._due(event, times):
            state = self.future.take(request)
            self._latest = state.request.arrival
            plan = round(self._latest, 6)
            if not self._header.counts_steps and times.get(request) != plan:
                raise Differs(
                    f"step {event.step}: request {request!r} does not arrive at {plan} s as the"
                    " workload says"
                )
            loop.arrive(state, times.get(request, 0.0))
        for request in ended[first:]:
            loop.scheduler.cancel(request)
        while self._leaving and self._leaving[0][0] <= self._now:
            _, request = heappop(self._leaving)
            if request in loop.scheduler.requests:
                raise Differs(
                    f"step {event.step}: request {request!r} does not leave as the workload says"
                )

    def _is_early(self, request: str, times: Mapping[str, float]) -> bool:
        """Whether a future request that left in this step came out of turn, since it was cancelled:
        before it was due, or before others whose turn it was.
        """
        turn, came = self.future.turn(request), list(times)
        is_due = (
            turn[0] <= self._now
            if self._header.counts_steps
            else times[request] == round(turn[0], 6)
        )
        after = came[came.index(request) + 1 :]
        return not is_due or any(self.future.turn(r) < turn for r in after if r in self.future)

    def _due(self, event: StepEvent, times: Mapping[str, float]) -> Iterator[str]:
        """The requests that arrive now. Arrivals in steps follow from the workload; arrivals in
        seconds are taken from the record, if the clock permits.
        """
        if self._header.is_interactive:
            yield from [request for request in times if request in self.future]
            return
        while state := self.future.first:
            if not (
                state.request.arrival <= self._now
                if self._header.counts_steps
                else state.id in times or state.request.arrival < self._now
            ):
                return
            yield state.id


_NOT_FINITE = Sample(None, 0.0, 0.0)
_NO_RESULT = PassResult(samples=[], t_start=0.0, t_end=0.0, prepare=0.0, forward=0.0, sample=0.0)


def _differences(event: StepEvent, again: StepEvent) -> Iterator[str]:
    for name in event._fields:
        mine, theirs = getattr(again, name), getattr(event, name)
        if mine == theirs:
            continue
        if type(mine) is tuple:  # the first record that differs
            pairs = [*zip(mine, theirs, strict=False)]
            index = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            mine, theirs = (side[index] if index < len(side) else None for side in (mine, theirs))
        yield (
            f"step {event.step}: {name}: {_or_nothing(theirs)} is on record, and the policy decides"
            f" {_or_nothing(mine)}"
        )


def _or_nothing(record: object) -> str:
    return "nothing" if record is None else shown(record)


# -- other engines' recorded workloads -------------------------------------------------------------


Decisions = list[Any]  # of a step: admitted, preempted, computed, finished
# in the order in which they are taken
_DECISIONS = ("preempted", "admitted", "computed", "finished")
_MOST_STEPS = 100_000
# the engine, and our policy that makes the same decisions
_POLICIES = {"vllm": "continuous", "transformers": "transformers"}


@dataclass(frozen=True)
class Agreement:
    """steps: how many the other engine made. first_differences: by kind of decision, the number of
    workloads whose first difference is of that kind.
    """

    workloads: int
    identical: int
    steps: int
    first_differences: dict[str, int]


def agree(path: Path) -> Agreement:
    """Replay the workloads of a `.jsonl` or `.jsonl.gz` file; raises InvalidWorkload for others."""
    workloads = steps = 0
    lines: dict[str, int] = {}  # by what they record
    differences: Counter[str] = Counter()
    for number, recorded in _lines(path):
        try:
            if unknown := recorded.keys() - _settings_of(_engine(recorded)):
                raise InvalidWorkload(f"it has no setting {shown(min(unknown))}")
            if not recorded["requests"]:
                raise InvalidWorkload("it has no requests")
            if (first := lines.setdefault(json.dumps(recorded), number)) != number:
                raise InvalidWorkload(f"it is line {first} once more")
            difference = first_difference(recorded[_engine(recorded)], decisions(recorded))
        except (InflightError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidWorkload(
                f"{path}, line {number}: this is not a recorded workload: {malformed(error)}."
            ) from None
        workloads, steps = workloads + 1, steps + len(recorded[_engine(recorded)])
        if difference is not None:
            differences[difference] += 1
    if not workloads:
        raise InvalidWorkload(f"{path} holds no workloads.")
    return Agreement(
        workloads, workloads - differences.total(), steps, dict(differences.most_common())
    )


def decisions(recorded: dict[str, Any]) -> list[Decisions]:
    """What our scheduler decides in each step that computes anything."""
    config = EngineConfig(
        policy=_policy(POLICIES[_POLICIES[_engine(recorded)]], recorded),
        max_num_seqs=recorded["seqs"],
        max_num_batched_tokens=recorded["budget"],
        block_size=recorded["size"],
        num_blocks=recorded["blocks"],
        prefix_caching=recorded["caching"],
    )
    arrivals = ArrivalQueue("step")
    for index, request in enumerate(recorded["requests"]):
        arrivals.future.add(_state(request, index))
    loop = StepLoop(
        Scheduler(config, recorded["blocks"]),
        arrivals,
        ManualClock(),
        _MadeUpTokens,
        record=_decisions_of,
        stopped=lambda output, result: NOBODY,
    )
    decided: list[Decisions] = []
    while arrivals or loop.scheduler.has_work:
        if loop.number == _MOST_STEPS:
            raise InvalidWorkload(f"the workload does not end within {_MOST_STEPS:,} steps.")
        step = loop.step()
        if step is None:
            loop.scheduler.end_step()  # the other engines record no step without a pass
        else:
            decided.append(step)
    return decided


def _decisions_of(step: Step) -> Decisions:
    facts = step.facts
    admitted, preempted, finished = (
        sorted(record.request for record in records)
        for records in (facts.admitted, facts.preempted, facts.finished)
    )
    computed = [
        [s.request, s.start, len(s.tokens)] for output, _ in step.launched for s in output.scheduled
    ]
    return [admitted, preempted, sorted(computed), finished]


class _MadeUpTokens(_NoModel):
    """A runner without a model: a token follows from its request and its position."""

    def launch(self, output: SchedulerOutput, params: Mapping[str, SamplingParams]) -> PassResult:
        samples = [
            Sample(next_token(s.request, s.kv_len), 0.0, 0.0) for s in output.scheduled if s.samples
        ]
        return replace(_NO_RESULT, samples=samples)


def first_difference(theirs: list[Decisions], ours: list[Decisions]) -> str | None:
    """The kind of the first different decision, or None; "steps" if one list is longer."""
    for before, after in zip_longest(theirs, ours):
        if before is None or after is None:
            return "steps"
        if before != after:
            kinds = ("admitted", "preempted", "computed", "finished")
            compared = zip(kinds, before, after, strict=True)
            differ = {kind for kind, mine, theirs in compared if mine != theirs}
            return next(kind for kind in _DECISIONS if kind in differ)
    return None


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8")
        ) as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, read_json(line)
    except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
        raise InvalidWorkload(
            f"{path} cannot be read as recorded workloads: {malformed(error)}."
        ) from None


def _engine(recorded: dict[str, Any]) -> str:
    """Which engine decided; a workload without decisions counts as vLLM's."""
    return next((name for name in _POLICIES if name in recorded), "vllm")


def _settings_of(engine: str) -> set[str]:
    """The fields that a workload of this engine may have."""
    own = {"vllm": {"reserve_full_isl", "watermark"}, "transformers": {"margin", "kv_reads"}}
    return {"seqs", "budget", "blocks", "size", "caching", "requests", engine} | own[engine]


def _policy(policy: Policy, recorded: dict[str, Any]) -> Policy:
    """The engine's rule under the settings of the recording."""
    if policy.preemption == "after":
        pool = recorded["blocks"] * recorded["size"]
        return replace(
            policy,
            margin=recorded.get("margin", policy.margin),
            kv_reads=recorded.get("kv_reads", pool) / pool,
        )
    return replace(
        policy,
        reserve="prompt" if recorded.get("reserve_full_isl", True) else "chunk",
        watermark=float(recorded.get("watermark", 0)),
    )


def _state(recorded: dict[str, Any], index: int) -> RequestState:
    prompt = tuple(recorded["prompt"])
    sampling = SamplingParams(max_new_tokens=recorded["max_tokens"], ignore_eos=True)
    request = Request(
        recorded["id"], prompt_token_ids=prompt, sampling=sampling, arrival=recorded["arrival"]
    )
    return RequestState(request, prompt, index)


def next_token(request: str, num_tokens: int) -> int:
    """The next token of a request after `num_tokens` tokens."""
    return zlib.crc32(f"{request}:{num_tokens}".encode()) % 1000
