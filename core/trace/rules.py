"""The rules that every recorded run obeys, checked event by event against the state of the run before. Knows the events alone.

Another engine's recording obeys the same rules except those that are our own: lane order, who is next, who is the newest.
What a policy would have decided is not asked here: `core.measure.replay` runs the scheduler again and compares.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from itertools import groupby
from typing import Any

from core.trace.block_rules import PoolRules
from core.trace.bounds import in_order, parts_fit, plausible_arrival, plausible_graph, plausible_greedy, plausible_reason
from core.trace.events import BeforeOrAfter, Segment, StepEvent
from core.trace.header import Header
from core.trace.inferred import REASONS, inferred_reasons
from core.trace.run_state import RunState
from core.trace.schema import misshapen
from core.workload.request import Request, is_text

_FINISH_REASONS = ("length", "stop", "cancelled", "error")


class Checker:
    """Follows a run from its header on; `fault_of_request` is told of each request before the step in which it arrives, and `fault(event)` says
    in a sentence what a step contradicts, or returns None.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        self._vocab_size, self._end_tokens = header.model.vocab_size, header.model.eos_token_ids
        self._config, self._policy, self._num_blocks = header.config, header.policy, header.num_blocks
        self._own = header.engine is None
        self._numbers_absent = [name for name in ("logprob", "margin") if name in header.absent]
        self._ahead = (
            header.is_asynchronous or not self._own
        )  # a step may have been scheduled before the one before it had been read
        self._ids: set[str] = set()  # of everybody: all that is kept of a request that is over
        self._requests: dict[str, Request] = {}
        self._num_prompt: dict[str, int] = {}
        self._longest = 1  # tokens that a request may come to
        self._ends_by: dict[str, tuple[str, bool]] = {}  # of requests with stop strings: the reason, and whether by an end token
        self._state = RunState.of({}, header.policy.requeue)
        self._pool = PoolRules(header)
        self._due: set[str] = set()  # over since the step before, and still in their lanes: they leave after this one
        self._late: set[str] = set()  # over since the step before: may have a row in this one, for nothing
        self._in_vain: set[str] = set()  # of the step before: rows of requests that have not finished by then
        self._told: set[str] = set()  # whose texts have been read, and who still hold their lanes
        self._cut_off: str | None = None  # the first whose texts were read though it had not finished
        self._step, self._t = -1, 0.0

    def fault_of_request(self, request: Request, prompt: Any) -> str | None:
        """What is wrong with what was asked: before its step, inside the vocabulary, and not more than the model and the pool hold."""
        if request.id in self._ids:
            return f"two requests are called {request.id!r}."
        if not isinstance(prompt, list) or not prompt or not all([type(i) is int and i >= 0 for i in prompt]):
            return f"the prompt of request {request.id!r} is not a list of token ids."
        if request.prompt_token_ids not in (None, tuple(prompt)):
            return f"the prompt of request {request.id!r} is not the workload's."
        if self._vocab_size is not None and max(prompt) >= self._vocab_size:
            return f"the prompt of request {request.id!r} has a token id beyond the vocabulary of {self._vocab_size}."
        tokens = len(prompt) + request.sampling.max_new_tokens
        if self._own and tokens > min(self._header.model.context or math.inf, self._num_blocks * self._config.block_size):
            return f"request {request.id!r} may come to {tokens} tokens, more than the model or the pool can hold."
        self._ids.add(request.id)
        self._requests[request.id], self._num_prompt[request.id] = request, len(prompt)
        self._state.num_tokens[request.id] = len(prompt)
        self._longest = max(self._longest, tokens)
        return None

    def fault(self, event: StepEvent) -> str | None:
        """What is wrong with this step, given all steps before it."""
        if self._cut_off is not None:
            return "a step stands among the texts of those who had not finished."
        rules = (self._shape, self._clock, self._arrivals, self._cancels, self._preemptions, self._admissions, self._waiting)
        for rule in (
            *rules,
            self._reasons,
            self._blocks,
            self._passes,
            self._samples,
            self._overruns,
            self._work,
            self._budget,
            self._ends,
        ):
            if fault := rule(event):
                return f"step {event.step}: {fault}."
        for request in self._told.difference(self._state.lanes.values()):
            self._forget(request)
        return None

    def fault_of_texts(self, request: Any, prompt: Any, output: Any) -> str | None:
        """What is wrong with the texts of a request: every token has its piece of text. A request that is over is then forgotten."""
        if not isinstance(request, str) or request not in self._num_prompt or request in self._told:
            return "these are the texts of no request."
        counts = (self._num_prompt[request], self._state.num_tokens[request] - self._num_prompt[request])
        for pieces, count in zip((prompt, output), counts, strict=True):
            if not isinstance(pieces, list) or len(pieces) != count or not all([isinstance(p, str) for p in pieces]):
                return f"the texts of request {request!r} do not match its tokens."
            if not is_text("".join(pieces)):
                return f"the texts of request {request!r} are no text."
        if self._own and self._requests[request].sampling.stop and (fault := self._stop_strings(request, output)):
            return fault
        if request not in self._state.finished:
            self._cut_off = self._cut_off or request
        self._told.add(request)
        if request not in self._state.lanes.values():
            self._forget(request)
        return None

    def forget_finished(self) -> None:
        """Drop whoever is over and holds no lane, whose id may come again: for a run that has no end."""
        for request in self._state.finished.keys() - set(self._state.lanes.values()):
            self._forget(request)
            self._ids.discard(request)

    def _forget(self, request: str) -> None:
        self._told.discard(request)
        self._ends_by.pop(request, None)
        del self._requests[request], self._num_prompt[request]
        self._state.forget(request)

    def _stop_strings(self, request: str, output: list[str]) -> str | None:
        """A request goes on until its text has a stop string, and no further."""
        reason, by_token = self._ends_by.get(request, ("", False))
        stops = self._requests[request].sampling.stop
        has = [any(stop in "".join(pieces) for stop in stops) for pieces in (output[:-1], output)]
        must = reason == "stop" and not by_token and self._end_tokens is not None
        if has[0] or (must and not has[1]) or (has[1] and reason not in ("stop", "error")):
            return f"request {request!r} does not end with its stop string."
        return None

    def fault_at_end(self, complete: object) -> str | None:
        """What is wrong with the last line: a complete run has ended, every request has its texts, and the pool is no larger than all lanes
        could use.
        """
        if type(complete) is not bool:
            return "the last line does not say whether the run is complete."
        left = min(self._num_prompt.keys() - self._state.finished.keys(), default=self._cut_off)
        if complete and left is not None:
            return f"the run is said to be complete, but request {left!r} has not finished."
        if missing := self._num_prompt.keys() - self._told:
            return f"the texts of request {min(missing)!r} are missing."
        most = max(1, -(-self._longest // self._config.block_size) * self._config.num_lanes)
        is_sized = self._own and self._config.num_blocks is None and not self._header.is_interactive
        if is_sized and self._num_blocks > most:
            return f"a pool of {self._num_blocks} blocks is more than {self._config.num_lanes} lanes can use."
        return None

    # -- the rules, in the order of a step ---------------------------------------------------------------------------

    def _shape(self, event: StepEvent) -> str | None:
        wrong = misshapen(event)
        return f"the values of {wrong} are of the wrong kind" if wrong else None

    def _clock(self, event: StepEvent) -> str | None:
        if event.step <= self._step:
            return f"it follows step {self._step}"
        if not in_order(event, self._t):
            return "its times run backwards"
        if any((getattr(event.timings, name) is None) != (name in self._header.absent) for name in ("prepare", "sample")):
            return "not those of its parts are on record that were recorded"
        if not parts_fit(event, self._header.has_one_clock):
            return f"its parts do not fit into its {event.t_end - event.t_start:g} s"
        self._step, self._t = event.step, event.t_end
        return None

    def _arrivals(self, event: StepEvent) -> str | None:
        for arrived in event.arrived:
            if arrived.request not in self._num_prompt or arrived.request in self._state.arrived:
                return f"request {arrived.request!r} cannot arrive"
            if not plausible_arrival(arrived, event, self._header.has_one_clock, self._header.counts_steps):
                return f"request {arrived.request!r} arrives at a time at which it cannot have come"
            self._state.arrive(event.step, arrived)
        return None

    def _cancels(self, event: StepEvent) -> str | None:
        """Cancellations come before everything else in their step."""
        state = self._state
        cancelled = [f for f in event.finished if f.when == "before"]
        if self._in_vain - {f.request for f in cancelled}:
            return f"request {min(self._in_vain)!r} lost a token but goes on"
        leaving: list[str] = []
        for finished in cancelled:
            request = finished.request
            if request in state.running:
                leaving.append(request)
            elif request not in state.waiting:
                return f"request {request!r} cannot be cancelled"
            state.finish(event.step, finished)
        return self._leave(event, "before", self._freed_by(leaving), ())

    def _leave(self, event: StepEvent, when: BeforeOrAfter, due: Collection[str], may_linger: Collection[str]) -> str | None:
        """Requests that are due leave their lanes; those that may linger leave now or after the next step."""
        leaving = [left for left in event.released if left.when == when]
        requests = {left.request for left in leaving}
        if len(requests) < len(leaving) or not set(due) <= requests | set(may_linger) or not requests <= set(due):
            return f"not those leave their lanes {when} the passes who have to"
        if any(self._state.lanes.get(left.lane) != left.request for left in leaving):
            return "a request leaves a lane that it does not hold"
        for left in leaving:
            self._state.leave(event.step, left)
        return None

    def _freed_by(self, ended: list[str]) -> list[str]:
        """Whose lanes become free when these end: their own, or at the barrier the whole wave's once nobody of it goes on."""
        if not self._policy.keeps_finished or not ended:
            return ended
        return [] if self._state.running else list(self._state.lanes.values())

    def _preemptions(self, event: StepEvent) -> str | None:
        state, computing = self._state, {s.request for s in event.segments}
        for preempted in event.preempted:
            request, lost, lane = preempted.request, preempted.tokens_lost, preempted.lane
            if state.lanes.get(lane) != request or request in state.finished or state.computed.get(request) != lost:
                return f"request {request!r} was not running as the preemption says"
            if self._own and self._policy.victim == "blocked":
                if request in computing:
                    return f"request {request!r} was preempted but computes"
            elif self._own and self._policy.victim == "newest" and request != state.running[-1]:
                return f"request {request!r} was preempted but is not the newest"
            state.preempt(event.step, preempted)
        return None

    def _admissions(self, event: StepEvent) -> str | None:
        state, hits = self._state, event.kv.cached_tokens
        if not hits.keys() <= {a.request for a in event.admitted}:
            return "a prefix was found for a request that was not admitted"
        if len(hits) < len(event.kv.prefix_hits):
            return "a prefix was found twice for one request"
        if hits and not self._config.prefix_caching:
            return "a prefix was found though nothing is cached"
        for admitted in event.admitted:
            request, lane = admitted.request, admitted.lane
            if request not in self._next():
                return f"request {request!r} was admitted before another that came first"
            if lane in state.lanes:
                return f"lane {lane} is taken"
            if not 0 <= lane < self._config.num_lanes:
                return f"there is no lane {lane}"
            cached = hits.get(request, 0)
            if cached % self._config.block_size or not 0 <= cached < state.num_tokens[request]:
                return f"a prefix of {cached} tokens cannot be found for request {request!r}"
            state.admit(admitted, cached)
        return None

    def _waiting(self, event: StepEvent) -> str | None:
        head, why, waiting = event.waiting.request, event.waiting.why, self._state.waiting
        known = head in self._next() if waiting else head is None
        if event.waiting.count != len(waiting) or not known or (why is None) != (head is None):
            return f"{len(waiting)} requests wait, not as it says"
        if why and why.limit == "lanes" and len(self._state.lanes) < self._config.num_lanes:
            return "the first of those waiting waits for a lane though one is free"
        return None

    def _reasons(self, event: StepEvent) -> str | None:
        """Of another engine's: ours are decided again."""
        if self._own:
            return None
        why = event.waiting.why
        totals = {"lanes": self._config.num_lanes, "budget": event.budget.limit, "blocks": self._num_blocks}
        reasons = [why, *(a.why for a in event.admitted), *(s.why for s in event.stalled)]
        if not all([plausible_reason(reason, totals) for reason in reasons]):
            return "a reason has numbers that no limit has"
        if event.budget.binding != (why.limit if why else "none"):
            return f"it was not held back by {event.budget.binding!r}"
        if self._header.inferred.get("reasons") == REASONS and reasons != inferred_reasons(
            event, self._state, self._config, self._num_blocks
        ):
            return "a reason is not what follows from what is free"
        return None

    def _next(self) -> Collection[str]:
        """Who may be next: the first of those waiting, or any of them where they are not taken in order of arrival."""
        waiting = self._state.waiting
        if self._policy.order_by != "arrival" or self._policy.requeue or not self._own:
            return waiting
        return [waiting[0]] if waiting else []

    def _blocks(self, event: StepEvent) -> str | None:
        if fault := self._pool.fault(event, self._state):
            return fault
        self._state.take_blocks(event.kv)
        return None

    def _passes(self, event: StepEvent) -> str | None:
        if {s.pass_index for s in event.segments} != set(range(len(event.passes))):
            return "segments and passes do not match"
        for index, forward in enumerate(event.passes):
            segments = [s for s in event.segments if s.pass_index == index]
            lengths = [s.length for s in segments]
            padded, over = forward.layout == "padded", forward.finished_rows
            rows, width = (len(segments) + len(over), max(lengths)) if padded else (1, sum(lengths))
            if forward.layout not in ("packed", "padded") or (over and not padded):
                return f"pass {index} has a layout that there is not"
            if (forward.rows, forward.width, forward.tokens, forward.padding) != (
                rows,
                width,
                sum(lengths),
                rows * width - sum(lengths),
            ):
                return f"the positions of pass {index} do not add up"
            if forward.bucket is not None and not plausible_graph(forward, self._header.execution):
                return f"pass {index} cannot have been a CUDA graph of {forward.bucket} positions"
            lanes = [s.lane for s in segments]
            if len(set(lanes)) < len(lanes) or (self._own and lanes != sorted(lanes)):
                return f"pass {index} is not in lane order"
            if any(r.request not in self._state.finished or self._state.lanes.get(r.lane) != r.request for r in over):
                return f"pass {index} computes a finished row that has no lane"
            drafted = {d.request: d.drafted for d in event.drafts}
            for segment in segments:
                if fault := self._segment(segment, drafted.get(segment.request, 0)):
                    return fault
            if fault := self._tokens(event, index, segments):
                return fault
        return None

    def _segment(self, s: Segment, drafted: int) -> str | None:
        """drafted: how many of its last positions hold proposed tokens, which are not the request's yet."""
        state, late = self._state, s.request in self._late
        if state.lanes.get(s.lane) != s.request or (s.request in state.finished and not late):
            return f"request {s.request!r} does not hold lane {s.lane}"
        if s.length < 1 or s.kv_len != s.start + s.length or s.start != state.computed[s.request]:
            return f"request {s.request!r} computes positions that do not follow its cache"
        num_tokens = state.num_tokens[s.request]
        if (s.kv_len - drafted > num_tokens or (drafted and s.kv_len - drafted < num_tokens)) and not late:
            return f"request {s.request!r} computes tokens that it does not have"
        decoding = s.length - drafted == 1 and (late or s.kv_len - drafted == num_tokens > self._num_prompt[s.request])
        if s.phase != ("decode" if decoding else "prefill"):
            return f"request {s.request!r} is not in the phase {s.phase!r}"
        if fault := self._pool.lacking(s, state):
            return fault
        state.compute(s)
        return None

    def _tokens(self, event: StepEvent, index: int, segments: list[Segment]) -> str | None:
        """Each request that has computed all its tokens gets a new one, in packed order, unless its logits were not finite."""
        nothing = {f.request for f in event.finished if f.finish_reason == "error"} | {row.request for row in event.overrun}
        due = [s.request for s in segments if s.kv_len >= self._state.num_tokens[s.request] and s.request not in nothing]
        sampled = [s for s in event.sampled if s.pass_index == index]
        if [request for request, _ in groupby(s.request for s in sampled)] != due:
            return f"pass {index} samples for others than those whose tokens are computed"
        vocabulary = self._vocab_size or math.inf
        accepted, ended = {d.request: d.accepted for d in event.drafts}, {f.request for f in event.finished}
        for request, count in Counter(s.request for s in sampled).items():
            most = 1 + accepted.get(request, 0)
            if count > most or (count < most and request not in ended):
                return f"request {request!r} got {count} tokens in one pass"
        is_measured = self._own and not self._header.is_simulated
        for s in sampled:
            if self._own and (s.margin is None or s.logprob is None):
                return f"the numbers of token {s.token_id} of request {s.request!r} are missing"
            if any(getattr(s, name) is not None for name in self._numbers_absent):
                return f"token {s.token_id} of request {s.request!r} has numbers that nobody recorded"
            if not 0 <= s.token_id < vocabulary or (s.margin or 0) < 0 or (s.logprob or 0) > 0:
                return f"token {s.token_id} of request {s.request!r} is not one that can be sampled"
            if is_measured and not self._requests[s.request].sampling.temperature and not plausible_greedy(s, self._vocab_size):
                return f"token {s.token_id} of request {s.request!r} cannot have that probability at that margin"
            self._state.sample(s)
        return self._drafts(event, index, segments)

    def _drafts(self, event: StepEvent, index: int, segments: list[Segment]) -> str | None:
        """Proposed tokens are the last of a segment; those not taken are forgotten."""
        lengths = {s.request: s.length for s in segments}
        of_pass = [d for d in event.drafts if d.request in lengths]
        if (self._own and of_pass) or (index == 0 and len({d.request for d in event.drafts}) < len(event.drafts)):
            return "nothing was drafted"
        for draft in of_pass:
            if not 0 <= draft.accepted <= draft.drafted < lengths[draft.request]:
                return f"{draft.drafted} tokens cannot have been drafted for request {draft.request!r}"
            self._state.reject(draft)
        return None

    def _samples(self, event: StepEvent) -> str | None:
        if any(not 0 <= s.pass_index < len(event.passes) for s in event.sampled):
            return "a token was sampled in no pass"
        return None

    def _overruns(self, event: StepEvent) -> str | None:
        """Rows for nothing: of requests that had finished, or will turn out cancelled."""
        last = {s.request: s for s in event.segments}
        self._in_vain = set()
        if len({row.request for row in event.overrun}) < len(event.overrun):
            return "one row is said twice to be for nothing"
        for overrun in event.overrun:
            request, rows = overrun.request, overrun.rows
            if not self._ahead:
                return "only asynchronous execution computes rows for nothing"
            if request not in last or last[request].length != rows:
                return f"request {request!r} has no row of {rows} positions for nothing"
            if request not in self._late:
                self._in_vain.add(request)
        if {s.request for s in event.segments if s.request in self._late} - {row.request for row in event.overrun}:
            return "a request that had finished computes"
        return None

    def _work(self, event: StepEvent) -> str | None:
        running = self._state.running
        computing = {s.request for s in event.segments} - self._late
        stalled = [s.request for s in event.stalled if s.request not in self._late]
        if computing | set(stalled) != set(running) or len(computing) + len(stalled) != len(running):
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
        if limit != (self._config.max_num_batched_tokens if self._policy.token_budget else None):
            return f"the budget is not {limit}"
        if limit is None and unused:
            return "without a budget nothing of it is unused"
        if limit is not None and (unused < 0 or decode + prefill + unused != limit):
            return f"{decode + prefill} tokens do not fit the budget of {limit}"
        return None

    def _ends(self, event: StepEvent) -> str | None:
        state, ended = self._state, []
        newest = {s.request: s.token_id for s in event.sampled}
        for finished in event.finished:
            request, reason = finished.request, finished.finish_reason
            if finished.when == "before":
                continue
            if reason not in _FINISH_REASONS or request in state.finished or state.lane_of(request) is None:
                return f"request {request!r} cannot finish by {reason!r}"
            full = state.num_tokens[request] == self._max_tokens(request)
            failed = state.computed[request] == state.num_tokens[request]
            sampling = self._requests[request].sampling
            stops = request in newest and (not sampling.ignore_eos or bool(sampling.stop))
            if {"length": not full, "stop": not stops, "error": not failed}[reason]:
                return f"request {request!r} has not come to its end by {reason!r}"
            state.finish(event.step, finished)
            ended.append(request)
            if sampling.stop:
                self._ends_by[request] = reason, newest.get(request) in (self._end_tokens or ())
        if beyond := [r for r in newest if r not in state.finished and state.num_tokens[r] >= self._max_tokens(r)]:
            return f"request {beyond[0]!r} goes on beyond its last token"
        leaving = set(self._freed_by(ended))
        if fault := self._leave(event, "after", self._due | leaving, leaving - self._due if self._ahead else ()):
            return fault
        self._late = set(ended) if self._ahead else set()
        self._due = leaving & set(state.lanes.values())
        return None

    def _max_tokens(self, request: str) -> int:
        return self._num_prompt[request] + self._requests[request].sampling.max_new_tokens
