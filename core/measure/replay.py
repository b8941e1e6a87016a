"""Decisions taken again by our scheduler: those of a recorded run, and of other engines' recorded workloads, without a model and without timing.

A run: the scheduler is given what came from outside (arrivals, cancellations, tokens, failures), and each of its decisions is compared with
the recorded event, field by field; measured values are taken from the record.

A recorded workload is a line of a file: `seqs`, `budget`, `blocks`, `size` and `caching` are its limits, `requests` have `id`, `prompt` (token
ids), `max_tokens` and `arrival` (a step), and `vllm` or `transformers` is what that engine decided in each step that computed anything:
`[admitted, preempted, [[request, start, length], …], finished]`, each sorted. Some settings may differ from the engine's defaults: vLLM's
`reserve_full_isl` and `watermark`, transformers' `margin` (a share of the pool) and `kv_reads` (tokens). There is no model: after n tokens a
request's next token is `crc32("request:n") % 1000`.
"""

from __future__ import annotations

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
from core.engine.runner import CARRIED, PassResult, Sample
from core.engine.step import Step
from core.errors import InflightError, InvalidWorkload, PolicyFailed, malformed, shown
from core.policy import POLICIES, Policy
from core.scheduler.output import SchedulerOutput
from core.scheduler.scheduler import Scheduler
from core.scheduler.state import RequestState
from core.trace.events import Arrived, StepEvent
from core.trace.header import Header
from core.workload.request import Request, SamplingParams

_EARLY = 2e-6  # seconds by which two rounded readings of one clock may appear out of order
_MOST_SLEEP = 60.0  # seconds that an engine sleeps in one step while it waits for an arrival
_SPARE_STEPS = 10


class Differs(Exception):
    """The record contains a decision that this policy does not take; the message names it, without a full stop."""


class Replay:
    """Follows a run event by event, as the rules do; `fault(event)` says in a sentence which decision is not the policy's.

    With asynchronous execution an event can be judged only once the next one is known, whose step had been launched by then: `fault` judges
    the event before, and `fault_at_end` the last. Requests are added by `fault_of_request` before the step in which they arrive.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._scheduler = Scheduler(
            header.config, header.num_blocks, frozenset(header.model.eos_token_ids or ())
        )
        self._to_come: list[
            tuple[float, int, RequestState]
        ] = []  # a heap: by arrival, then by order of submission
        self._num_asked = 0
        self._states: dict[str, RequestState] = {}  # of future requests
        self._stops: set[str] = set()  # requests with stop strings
        self._latest = 0.0  # the latest arrival so far, by the workload
        self._arrived: list[Arrived] = []  # since the previous step was closed
        self._step, self._t_start, self._t_end = -1, 0.0, 0.0  # of the previous event
        self._launched: tuple[Step, StepEvent] | None = None  # launched, not judged yet

    def fault_of_request(self, request: Request, prompt: Sequence[int]) -> str | None:
        """Add a future request; returns what is wrong if it should have arrived already."""
        arrival = request.arrival
        if not self._header.is_interactive:
            overdue = (
                arrival <= self._step
                if self._header.counts_steps
                else arrival < self._t_start - _EARLY and not self._header.is_asynchronous
            )
            if overdue or arrival < self._latest:
                return f"request {request.id!r} stands after the step in which it was due."
        state = RequestState(request, request.prompt_token_ids or tuple(prompt), self._num_asked)
        heappush(self._to_come, (arrival, self._num_asked, state))
        self._num_asked += 1
        self._states[request.id] = state
        if request.sampling.stop:
            self._stops.add(request.id)
        return None

    def fault(self, event: StepEvent) -> str | None:
        """The decision that is not the policy's, as a sentence, or None."""
        try:
            if self._header.is_asynchronous:
                self._follow(event)
            else:
                self._number(event)
                step = self._begin(event)
                for output in step.plan:
                    self._read(step, output, event)
                    step.launched.append((output, step.results[-1]))
                    tokens = [s.token_id for s in step.results[-1].samples]
                    self._scheduler.update_from_output(output, tokens, self._stopped(event))
                self._close(step)
                self._judge(step, event)
        except Differs as difference:
            return f"{difference}."
        except PolicyFailed as failure:
            return f"step {event.step}: {failure}"
        return None

    def fault_at_end(self, complete: bool) -> str | None:
        """The same for the last step. In an asynchronous run that was cut short it is not judged, since the next step may have been launched."""
        if self._launched is None or not complete:
            return None
        try:
            self._settle(followed=False)
        except Differs as difference:
            return f"{difference}."
        return None

    # -- what came from outside --------------------------------------------------------------------------------------

    def _number(self, event: StepEvent) -> None:
        """Check the step number: steps are consecutive while there is work; otherwise the engine skips to the next arrival."""
        first, step = self._step + 1, event.step
        last = first
        if not self._scheduler.has_work:
            cancelled = any(
                f.when == "before" for f in event.finished
            )  # a step that may have nothing else to record
            next_one = self._next()
            if self._header.is_interactive:
                last = max(first, step)
            elif self._header.counts_steps:
                last = max(first, math.ceil(next_one.request.arrival)) if next_one else first
                first = first if cancelled else last
            else:
                last += _SPARE_STEPS + int((event.t_start - self._t_end) / _MOST_SLEEP)
        if not first <= step <= last:
            raise Differs(f"step {step}: it cannot follow step {self._step}")
        self._step, self._t_start, self._t_end = step, event.t_start, event.t_end

    def _inputs(self, event: StepEvent) -> None:
        """Cancellations, each after its request's arrival, then the arrivals that are due."""
        times = {arrived.request: arrived.t for arrived in event.arrived}
        for finished in event.finished:
            if finished.when == "before":
                if finished.request in self._states:
                    self._arrive(finished.request, times)
                self._scheduler.cancel(finished.request)
        for request in self._due(event, times):
            self._latest = self._states[request].request.arrival
            plan = round(self._latest, 6)
            if not self._header.counts_steps and times.get(request) != plan:
                raise Differs(
                    f"step {event.step}: request {request!r} does not arrive at {plan} s as the workload says"
                )
            self._arrive(request, times)

    def _due(self, event: StepEvent, times: Mapping[str, float]) -> Iterator[str]:
        """The requests that arrive now. Arrivals in steps follow from the workload; arrivals in seconds are read from the record, as far as the
        clock permits."""
        if self._header.is_interactive:
            yield from [request for request in times if request in self._states]
            return
        while state := self._next():
            arrival, overdue = state.request.arrival, event.t_start - _EARLY
            late = arrival < overdue and not self._header.is_asynchronous
            if not (
                arrival <= event.step if self._header.counts_steps else state.id in times or late
            ):
                return
            yield state.id

    def _next(self) -> RequestState | None:
        """The next request to arrive."""
        while self._to_come and self._to_come[0][2].id not in self._states:
            heappop(self._to_come)
        return self._to_come[0][2] if self._to_come else None

    def _arrive(self, request: str, times: Mapping[str, float]) -> None:
        self._scheduler.add(self._states.pop(request))
        self._arrived.append(Arrived(request, times.get(request, 0.0)))

    # -- steps, as the engine takes them -----------------------------------------------------------------------------

    def _begin(self, event: StepEvent, in_flight: bool = False) -> Step:
        self._inputs(event)
        return Step(event.step, event.t_start, self._scheduler.schedule(in_flight))

    def _close(self, step: Step) -> None:
        """The step is fully planned: whatever happens from now on belongs to the next one."""
        step.facts, step.arrived = self._scheduler.end_step(), tuple(self._arrived)
        self._arrived.clear()

    def _follow(self, event: StepEvent) -> None:
        """Launch the event's step. A step in flight is read once this one has been launched, if that is possible."""
        step = None
        if self._launched is not None:
            if event.step == self._step + 1:  # otherwise nothing could be launched by then
                step = self._launch(event, in_flight=True)
            self._settle(followed=step is not None)
        if step is None:
            self._number(event)
            step = self._launch(event)
        self._step, self._t_start, self._t_end = event.step, event.t_start, event.t_end
        if step is None:  # nothing but cancellations
            step = Step(event.step, event.t_start, iter(()))
            self._close(step)
            self._judge(step, event)
            return
        self._scheduler.advance(step.latest)
        self._close(step)
        self._launched = step, event

    def _launch(self, event: StepEvent, in_flight: bool = False) -> Step | None:
        """The step with its one pass, if anything can be computed."""
        step = self._begin(event, in_flight)
        output = next(step.plan, None)
        if output is None:
            return None
        step.launched.append((output, _NOT_READ))
        return step

    def _settle(self, followed: bool) -> None:
        """Read the step in flight, and judge it."""
        assert self._launched is not None
        (step, event), self._launched = self._launched, None
        self._read(step, step.latest, event)
        tokens = [s.token_id for s in step.results[-1].samples]
        self._scheduler.settle(step.latest, tokens, self._stopped(event), step.facts, followed)
        self._judge(step, event)

    def _read(self, step: Step, output: SchedulerOutput, event: StepEvent) -> None:
        """Apply the recorded results of a pass."""
        index = len(step.results)
        drawn = {
            s.request: Sample(s.token_id, s.logprob or 0.0, s.margin or 0.0)
            for s in event.sampled
            if s.pass_index == index
        }
        samples = [drawn.get(s.request, _NOT_FINITE) for s in output.scheduled if s.samples]
        result = replace(_NOT_READ, samples=samples)
        if index < len(event.passes):
            forward = event.passes[index]
            carried = {name: getattr(forward, name) for name in CARRIED}
            result = replace(result, t_start=forward.t_start, t_end=forward.t_end, **carried)
        step.results.append(result)

    def _stopped(self, event: StepEvent) -> frozenset[str]:
        """Requests ended by their text. If the end tokens are recorded, no other request is accepted as stopped."""
        stopped = {f.request for f in event.finished if f.finish_reason == "stop"}
        if self._header.model.eos_token_ids is None:
            return frozenset(stopped)
        return frozenset(stopped & self._stops)

    # -- judging -----------------------------------------------------------------------------------------------------

    def _judge(self, step: Step, event: StepEvent) -> None:
        """Compare the step with the event; raises Differs for the first decision that differs."""
        limit = (
            self._header.config.max_num_batched_tokens if self._header.policy.token_budget else None
        )
        again = step.event(0.0, event.t_start, event.t_end, self._header.num_blocks, limit)
        again = again._replace(timings=event.timings)
        if again != event:
            raise Differs(next(_differences(event, again)))
        self._stops.difference_update([f.request for f in event.finished])


_NOT_FINITE = Sample(None, 0.0, 0.0)
_NOT_READ = PassResult(samples=[], t_start=0.0, t_end=0.0, prepare=0.0, forward=0.0, sample=0.0)


def _differences(event: StepEvent, again: StepEvent) -> Iterator[str]:
    for name in event._fields:
        mine, theirs = getattr(again, name), getattr(event, name)
        if mine == theirs:
            continue
        if type(mine) is tuple:  # the first record that differs
            pairs = [*zip(mine, theirs, strict=False)]
            index = next((i for i, (a, b) in enumerate(pairs) if a != b), len(pairs))
            mine, theirs = (side[index] if index < len(side) else None for side in (mine, theirs))
        yield f"step {event.step}: {name}: {_or_nothing(theirs)} is on record, and the policy decides {_or_nothing(mine)}"


def _or_nothing(record: object) -> str:
    return "nothing" if record is None else shown(record)


# -- other engines' recorded workloads ---------------------------------------------------------------------------------


Decisions = list[Any]  # of a step: admitted, preempted, computed, finished
_DECISIONS = (
    "preempted",
    "admitted",
    "computed",
    "finished",
)  # in the order in which they are taken
_MOST_STEPS = 100_000
_POLICIES = {
    "vllm": "continuous",
    "transformers": "transformers",
}  # the engine, and our policy that makes the same decisions


@dataclass(frozen=True)
class Agreement:
    """steps: taken by the other engine. first_differences: by kind of decision, the number of workloads in which the two first differ in it."""

    workloads: int
    identical: int
    steps: int
    first_differences: dict[str, int]


def agree(path: Path) -> Agreement:
    """Replay every workload of a `.jsonl` or `.jsonl.gz` file; raises InvalidWorkload for anything that is not such a recording."""
    workloads = steps = 0
    differences: Counter[str] = Counter()
    for number, recorded in _lines(path):
        try:
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
    scheduler = Scheduler(config, recorded["blocks"])
    pending = sorted(recorded["requests"], key=lambda r: r["arrival"])
    decided: list[Decisions] = []
    for step in range(_MOST_STEPS):
        if not pending and not scheduler.has_work:
            return decided
        while pending and pending[0]["arrival"] <= step:
            scheduler.add(_state(pending.pop(0)))
        computed = []
        for output in scheduler.schedule():
            computed += [[s.request, s.start, len(s.tokens)] for s in output.scheduled]
            scheduler.update_from_output(
                output, [next_token(s.request, s.kv_len) for s in output.scheduled if s.samples]
            )
        facts = scheduler.end_step()
        if computed:
            names = (facts.admitted, facts.preempted, facts.finished)
            admitted, preempted, finished = (
                sorted(record.request for record in records) for records in names
            )
            decided.append([admitted, preempted, sorted(computed), finished])
    raise InvalidWorkload(f"the workload does not end within {_MOST_STEPS:,} steps.")


def first_difference(theirs: list[Decisions], ours: list[Decisions]) -> str | None:
    """The kind of decision in which the two first differ, or None; "steps" if one continues after the other has ended."""
    for before, after in zip_longest(theirs, ours):
        if before is None or after is None:
            return "steps"
        if before != after:
            by_kind = dict(
                zip(
                    ("admitted", "preempted", "computed", "finished"),
                    zip(before, after, strict=True),
                    strict=True,
                )
            )
            return next(kind for kind in _DECISIONS if by_kind[kind][0] != by_kind[kind][1])
    return None


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as file
        ):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, json.loads(line)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InvalidWorkload(
            f"{path} cannot be read as recorded workloads: {malformed(error)}."
        ) from None


def _engine(recorded: dict[str, Any]) -> str:
    """Which engine decided; a workload without decisions is replayed as vLLM's."""
    return next((name for name in _POLICIES if name in recorded), "vllm")


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


def _state(recorded: dict[str, Any]) -> RequestState:
    sampling = SamplingParams(max_new_tokens=recorded["max_tokens"], ignore_eos=True)
    request = Request(recorded["id"], prompt_token_ids=tuple(recorded["prompt"]), sampling=sampling)
    return RequestState(request, request.prompt_token_ids or ())


def next_token(request: str, num_tokens: int) -> int:
    """The next token of a request after `num_tokens` tokens."""
    return zlib.crc32(f"{request}:{num_tokens}".encode()) % 1000
