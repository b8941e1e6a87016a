"""The rules of a step, in order, each with the part of the event by which it updates the state of
the run. They read only the events.

A rule says in words what is wrong with its part of an event, or returns None.
`core.trace.rules.followable` has checked before that the part can be followed.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import groupby
from typing import NamedTuple

from core.trace.events import BeforeOrAfter, Segment, StepEvent
from core.trace.header import Header
from core.trace.rules import bounds, followable, resumption
from core.trace.rules.blocks import PoolRules
from core.trace.rules.followable import quoted
from core.trace.rules.recorded import RecordedRules
from core.trace.run_state import RunState
from core.workload.request import Request


class StepRule(NamedTuple):
    """One part of an event. can_follow: must hold before the state can `take` the part. rule: must
    hold in addition; it also updates the rules' state, record by record. take: None if the part
    does not change the state.
    """

    can_follow: Callable[[StepEvent, RunState, Header], str | None] | None
    rule: Callable[[StepEvent], str | None]
    take: Callable[[RunState, StepEvent], None] | None


class StepRules:
    """The rules of one run. requests, num_prompt: requests and the lengths of their prompts by id,
    kept up to date by the caller. state: the run so far.
    """

    def __init__(
        self, header: Header, requests: Mapping[str, Request], num_prompt: Mapping[str, int]
    ) -> None:
        self._header, self._requests, self._num_prompt = header, requests, num_prompt
        self._vocab_size, self._end_tokens = header.model.vocab_size, header.model.eos_token_ids
        self._config, self._policy = header.config, header.policy
        self._own, self._recorded = header.engine is None, RecordedRules(header)
        self._numbers_absent = [name for name in ("logprob", "margin") if name in header.absent]
        # whether a step may be scheduled before the results of the previous one are read
        self._runs_ahead = header.is_asynchronous or not self._own
        self.came: dict[str, float] = {}  # when each request did
        # of requests with stop strings: the reason, and whether by an end token
        self.ends_by: dict[str, tuple[str, bool]] = {}
        self.state = RunState.of({}, header.policy.requeue)
        self._pool = PoolRules(header)
        # finished in the previous step and still in their lanes, which they leave after this one
        self._must_leave: set[str] = set()
        # finished in the previous step, so that a row in this one is an overrun
        self._ended_last_step: set[str] = set()
        # requests with an overrun in the previous step that had not finished by then
        self._overran: set[str] = set()
        recorded = self._recorded
        self.parts = (
            *self._of_recorded(recorded.numbering),
            StepRule(None, self._clock, None),
            *self._of_recorded(recorded.times),
            StepRule(resumption.followable, self._resumption, RunState.take_resumption),
            StepRule(followable.arrivals, self._arrivals, RunState.take_arrivals),
            StepRule(followable.cancellations, self._cancels, RunState.take_cancellations),
            *self._of_recorded(recorded.preemptions),
            StepRule(followable.preemptions, self._preemptions, RunState.take_preemptions),
            *self._of_recorded(recorded.admissions),
            StepRule(followable.admissions, self._admissions, RunState.take_admissions),
            StepRule(followable.queue, self._waiting, RunState.take_queue),
            *self._of_recorded(recorded.queue),
            *self._of_recorded(recorded.reasons),
            StepRule(
                followable.blocks, self._blocks, lambda state, event: state.take_blocks(event.kv)
            ),
            *self._of_recorded(recorded.chunks),
            StepRule(followable.passes, self._passes, RunState.take_passes),
            StepRule(None, self._overruns, None),
            StepRule(None, self._work, None),
            StepRule(None, self._budget, None),
            StepRule(followable.ends, self._ends, RunState.take_ends),
        )

    def _of_recorded(
        self, rule: Callable[[StepEvent, RunState], str | None]
    ) -> tuple[StepRule, ...]:
        """A rule of another engine's steps, which changes nothing; ours are decided again."""
        return () if self._own else (StepRule(None, lambda event: rule(event, self.state), None),)

    def go_on_from(self, state: RunState, event: StepEvent) -> None:
        """Continue from `state` after this event, which broke a rule: forget all before it."""
        self.state = state
        self._pool.go_on_from(state)
        self._overran = {row.request for row in event.overrun} - self._ended_last_step
        self._ended_last_step = {f.request for f in event.finished if f.when == "after"}
        self._must_leave = state.finished.keys() & set(state.lanes.values())

    def _clock(self, event: StepEvent) -> str | None:
        missing = [name for name in ("prepare", "sample") if getattr(event.timings, name) is None]
        if missing != [name for name in ("prepare", "sample") if name in self._header.absent]:
            return "the recorded parts of the step are not those that the header names"
        if self._header.is_simulated and bounds.is_measured(event):
            return "it has numbers that a simulated run does not have"
        if not bounds.parts_fit(event, self._header.has_one_clock, self._header.is_asynchronous):
            return f"its parts do not fit into its {event.t_end - event.t_start:g} s"
        return None

    def _resumption(self, event: StepEvent) -> str | None:
        """After steps that are not shown, a recorded state replaces what was known."""
        if event.resumed is None:
            return None
        elsewhere = self._recorded.lanes_after(event.resumed, self.state)
        self.state.take_resumption(event)
        self._pool.go_on_from(self.state)
        self._ended_last_step = self._must_leave = self.state.finished.keys() & set(
            self.state.lanes.values()
        )
        self._overran = set()
        return elsewhere or resumption.oddity(event.resumed, self.state, self._header)

    def _arrivals(self, event: StepEvent) -> str | None:
        for arrived in event.arrived:
            if not bounds.plausible_arrival(
                arrived, event, self._header.has_one_clock, self._header.counts_steps
            ):
                return f"request {quoted(arrived.request)} cannot have arrived at that time"
            self.state.arrive(event.step, arrived)
            self.came[arrived.request] = arrived.t
        return None

    def _cancels(self, event: StepEvent) -> str | None:
        """Cancellations come before everything else in their step."""
        state = self.state
        cancelled = [f for f in event.finished if f.when == "before"]
        # launched before the cancellation was known, too
        again = {row.request for row in event.overrun}
        goes_on = self._overran - {f.request for f in cancelled} - again
        # with several batches in flight this step may be another batch's, scheduled before the
        # cancellation
        if not self._own:
            goes_on &= {s.request for s in event.segments}
        if goes_on:
            return f"request {quoted(min(goes_on))} lost a token but goes on"
        leaving: list[str] = []
        for finished in cancelled:
            request = finished.request
            if finished.t is not None and (
                self._own
                or not self.came.get(request, 0.0) - bounds.ROUNDING <= finished.t <= event.t_start
            ):
                return f"request {quoted(request)} cannot have been cancelled at that time"
            if request in state.running:
                leaving.append(request)
            state.finish(event.step, finished)
        return self._leave(event, "before", self._freed_by(leaving), ())

    def _leave(
        self,
        event: StepEvent,
        when: BeforeOrAfter,
        due: Collection[str],
        may_linger: Collection[str],
    ) -> str | None:
        """Requests that are due must leave their lanes; some may linger for a step."""
        leaving = [left for left in event.released if left.when == when]
        requests = {left.request for left in leaving}
        if not set(due) <= requests | set(may_linger) or not requests <= set(due):
            return (
                f"the requests that leave their lanes {when} the passes are not those that have to"
            )
        for left in leaving:
            self.state.leave(event.step, left)
        return None

    def _freed_by(self, ended: list[str]) -> list[str]:
        """The requests whose lanes become free when these end: these themselves or, with a barrier,
        the whole wave once all of it has ended.
        """
        if not self._policy.keeps_finished or not ended:
            return ended
        return [] if self.state.running else list(self.state.lanes.values())

    def _preemptions(self, event: StepEvent) -> str | None:
        state, computing = self.state, {s.request for s in event.segments}
        of_skipped = self._policy.victim == "blocked" or self._policy.preemption == "after"
        for preempted in event.preempted:
            request, lost = preempted.request, preempted.tokens_lost
            if state.computed.get(request) != lost:
                return f"request {quoted(request)} was not running as the preemption says"
            if self._own and of_skipped:
                if request in computing:
                    return f"request {quoted(request)} was preempted but computes"
            elif self._own and self._policy.victim == "newest" and request != state.running[-1]:
                return f"request {quoted(request)} was preempted but is not the newest"
            state.preempt(event.step, preempted)
        return None

    def _admissions(self, event: StepEvent) -> str | None:
        state, hits = self.state, event.kv.cached_tokens
        if hits and not self._config.prefix_caching:
            return "a prefix was found though nothing is cached"
        for admitted in event.admitted:
            request = admitted.request
            if request not in self._next():
                return f"request {quoted(request)} was admitted before another that came first"
            cached = hits.get(request, 0)
            if cached % self._config.block_size:
                return f"a prefix of {cached} tokens cannot be found for request {quoted(request)}"
            state.admit(admitted, cached)
        return None

    def _waiting(self, event: StepEvent) -> str | None:
        if self._own and event.queue:
            return "the order of its queue is that in which requests came"
        self.state.take_queue(event)
        head, why, waiting = event.waiting.request, event.waiting.why, self.state.waiting
        if event.waiting.count != len(waiting):
            return (
                f"the queue has a length of {len(waiting)}, but the step says {event.waiting.count}"
            )
        if head not in self._next() if waiting else head is not None:
            return f"request {quoted(str(head))} is said to be the head of the queue, but is not"
        if why and why.limit == "lanes" and len(self.state.lanes) < self._config.num_lanes:
            return "the head of the queue is said to wait for a lane, but one is free"
        if self._own and why and why.limit in ("budget", "blocks") and why.have >= why.need:
            return (
                f"the head of the queue is said to wait for “{why.limit}”, but needs {why.need} and"
                f" {why.have} are left"
            )
        return None

    def _next(self) -> Collection[str]:
        """The requests that may be next: the first, or any, without an order or with skips."""
        waiting, policy = self.state.waiting, self._policy
        is_any = policy.order_by != "arrival" or policy.requeue or policy.preemption == "after"
        if is_any or not self._own:
            return waiting
        return [waiting[0]] if waiting else []

    def _blocks(self, event: StepEvent) -> str | None:
        if fault := self._pool.fault(event, self.state):
            return fault
        self.state.take_blocks(event.kv)
        return None

    def _passes(self, event: StepEvent) -> str | None:
        for index, forward in enumerate(event.passes):
            segments = [s for s in event.segments if s.pass_index == index]
            mixed = any(s.length > 1 for s in segments)
            if forward.bucket is not None and not bounds.plausible_graph(
                forward, mixed, self._header.execution
            ):
                return f"pass {index} cannot have been a CUDA graph of {forward.bucket} positions"
            lanes = [s.lane for s in segments]
            if self._own and lanes != sorted(lanes):
                return f"pass {index} is not in lane order"
            drafted = {d.request: d.drafted for d in event.drafts}
            for segment in segments:
                if fault := self._segment(segment, drafted.get(segment.request, 0)):
                    return fault
            if fault := self._tokens(event, index, segments):
                return fault
        return None

    def _segment(self, s: Segment, drafted: int) -> str | None:
        """drafted: how many of the last positions hold tokens that are only proposed."""
        state, late = self.state, s.request in self._ended_last_step or s.request in self._overran
        if s.request in state.finished and not late:
            return f"request {quoted(s.request)} does not hold lane {s.lane}"
        if s.start != state.computed[s.request]:
            return f"request {quoted(s.request)} computes positions that do not follow its cache"
        num_tokens = state.num_tokens[s.request]
        if (
            s.kv_len - drafted > num_tokens or (drafted and s.kv_len - drafted < num_tokens)
        ) and not late:
            return f"request {quoted(s.request)} computes tokens that it does not have"
        decoding = s.length - drafted == 1 and (
            late or s.kv_len - drafted == num_tokens > self._num_prompt[s.request]
        )
        if s.phase != ("decode" if decoding else "prefill"):
            return f"request {quoted(s.request)} is not in the phase “{s.phase}”"
        if fault := self._pool.misfit(s, state, self._recorded.ahead):
            return fault
        state.compute(s)
        return None

    def _tokens(self, event: StepEvent, index: int, segments: list[Segment]) -> str | None:
        """Each request whose tokens are all computed gets one, if its logits are finite."""
        nothing = {f.request for f in event.finished if f.finish_reason == "error"} | {
            row.request for row in event.overrun
        }
        due = [
            s.request
            for s in segments
            if s.kv_len >= self.state.num_tokens[s.request] and s.request not in nothing
        ]
        if "tokens" in self._header.absent:
            due = []
        sampled = [s for s in event.sampled if s.pass_index == index]
        if [request for request, _ in groupby(s.request for s in sampled)] != due:
            return (
                f"pass {index} samples for other requests than those whose tokens are all computed"
            )
        vocabulary = self._vocab_size or math.inf
        accepted = {d.request: d.accepted for d in event.drafts}
        ended = {f.request for f in event.finished}
        for request, count in Counter(s.request for s in sampled).items():
            most = 1 + accepted.get(request, 0)
            if count > most or (count < most and request not in ended):
                return f"request {quoted(request)} got {count} tokens in one pass"
        is_measured = self._own and not self._header.is_simulated
        for s in sampled:
            if self._own and (s.margin is None or s.logprob is None):
                return (
                    f"the numbers of token {s.token_id} of request {quoted(s.request)} are missing"
                )
            if any(getattr(s, name) is not None for name in self._numbers_absent):
                return (
                    f"token {s.token_id} of request {quoted(s.request)} has numbers although none"
                    " were recorded"
                )
            if s.token_id >= vocabulary or (s.margin or 0) < 0 or (s.logprob or 0) > 0:
                return (
                    f"token {s.token_id} of request {quoted(s.request)} is not one that can be"
                    " sampled"
                )
            sampling = self._requests[s.request].sampling
            is_greedy = not sampling.temperature or sampling.top_k == 1
            if not (
                bounds.plausible_numbers(s, self._vocab_size, is_greedy)
                if is_measured
                else self._own or bounds.plausible_margin(s)
            ):
                return (
                    f"token {s.token_id} of request {quoted(s.request)} cannot have that"
                    " probability at that margin"
                )
            self.state.sample(s)
        return self._drafts(event, index, segments)

    def _drafts(self, event: StepEvent, index: int, segments: list[Segment]) -> str | None:
        """Proposed tokens come last in a segment; those that are not accepted are dropped."""
        here = {s.request for s in segments}
        of_pass = [d for d in event.drafts if d.request in here]
        if self._own and of_pass:
            return "nothing was drafted"
        for draft in of_pass:
            self.state.reject(draft)
        return None

    def _overruns(self, event: StepEvent) -> str | None:
        """Wasted rows are of requests that had finished, or turn out to be cancelled."""
        last = {s.request: s for s in event.segments}
        in_vain = {row.request for row in event.overrun}
        self._overran = in_vain - self._ended_last_step
        if len(in_vain) < len(event.overrun):
            return "an overrun is listed twice"
        for overrun in event.overrun:
            request, rows = overrun.request, overrun.rows
            if not self._runs_ahead:
                return "only asynchronous execution has overruns"
            if request not in last or last[request].length != rows:
                return (
                    f"request {quoted(request)} has no row of {rows} positions to match its overrun"
                )
        if last.keys() & self._ended_last_step - in_vain:
            return "a request that had finished computes"
        return None

    def _work(self, event: StepEvent) -> str | None:
        running = self.state.running
        computing = {s.request for s in event.segments} - self._ended_last_step
        stalled = [s.request for s in event.stalled if s.request not in self._ended_last_step]
        count = len(computing) + len(stalled)
        if count != len(running) or computing | set(stalled) != set(running):
            return "a running request neither computed nor stalled"
        return None

    def _budget(self, event: StepEvent) -> str | None:
        budget = event.budget
        limit, decode, prefill, unused = budget.limit, budget.decode, budget.prefill, budget.unused
        of_phase: Counter[str] = Counter()
        for s in event.segments:
            of_phase[s.phase] += s.length
        if (decode, prefill) != (of_phase["decode"], of_phase["prefill"]):
            return "the budget's split is not what was computed"
        if limit != self._config.token_budget:
            return f"the budget is not {limit}"
        if limit is None and unused:
            return "without a budget, none of it can be unused"
        if limit is not None and (unused < 0 or decode + prefill + unused != limit):
            return f"{decode + prefill} tokens do not fit the budget of {limit}"
        return None

    def _ends(self, event: StepEvent) -> str | None:
        state, ended = self.state, []
        newest = {s.request: s.token_id for s in event.sampled}
        for finished in event.finished:
            request, reason = finished.request, finished.finish_reason
            if finished.when == "before":
                continue
            if finished.t is not None:
                return f"request {quoted(request)} ended in the step, at no time before it"
            full = state.num_tokens[request] == self._max_tokens(request)
            failed = state.computed[request] == state.num_tokens[request]
            sampling = self._requests[request].sampling
            stops = request in newest and sampling.may_stop
            stops |= "tokens" in self._header.absent
            if {"length": not full, "stop": not stops, "error": not failed}[reason]:
                return f"request {quoted(request)} has not come to its end by “{reason}”"
            state.finish(event.step, finished)
            ended.append(request)
            if sampling.stop:
                ends = sampling.ends_with(newest.get(request, -1), self._end_tokens or ())
                self.ends_by[request] = reason, ends
        for r in newest:
            if r not in state.finished and state.num_tokens[r] >= self._max_tokens(r):
                return f"request {quoted(r)} goes on beyond its last token"
        leaving = set(self._freed_by(ended))
        lingering = leaving - self._must_leave if self._runs_ahead else ()
        if fault := self._leave(event, "after", self._must_leave | leaving, lingering):
            return fault
        self._ended_last_step = set(ended) if self._runs_ahead else set()
        self._must_leave = leaving & set(state.lanes.values())
        return None

    def _max_tokens(self, request: str) -> int:
        return self._num_prompt[request] + self._requests[request].sampling.max_new_tokens
