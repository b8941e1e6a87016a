"""Who computes what in each step. `schedule()` decides a step pass by pass; `advance()` and `settle()` alone change requests.

A step is one pass for the packed and padded layouts. The split layout decides its decode pass after its prefill passes, so
`schedule()` is a generator: run each pass and report it before asking for the next.

    for output in scheduler.schedule():
        scheduler.update_from_output(output, run(output))  # advance, then settle
    facts = scheduler.end_step()

With asynchronous execution a step, which then has one pass, is planned before the tokens of the last one are read. All that scheduling
needs is known by then except who stops early: `advance` counts a launched pass, its new tokens as UNREAD, and `settle` fills them in
later. A request that turns out to have stopped may already have a row in the next step; that row is an overrun, and its lane and blocks
are freed after it.

The rules have modules of their own: `waiting` orders the requests that wait, `admission` lets them in, `layouts` decides the passes,
`plan` how much each computes, all on the same `books`. Knows nothing of tensors, models or time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.config import BatchingPolicy, EngineConfig
from core.scheduler.block_pool import BlockPool
from core.scheduler.books import Books
from core.scheduler.facts import NOBODY_WAITS, StepFacts
from core.scheduler.lanes import Lanes
from core.scheduler.layouts import passes
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import UNREAD, RequestState, RequestStatus
from core.scheduler.waiting import WaitingQueue
from core.trace.events import Finished, Left, Overrun, When
from core.workload.request import FinishReason


class Scheduler:
    """The requests of one run, and the rules by which they are served.

    eos_token_ids: tokens that end a request unless it ignores them. policy: as data, by default the config's.
    """

    def __init__(
        self,
        config: EngineConfig,
        num_blocks: int,
        eos_token_ids: frozenset[int] = frozenset(),
        policy: BatchingPolicy | None = None,
    ) -> None:
        self.config, self.policy, self.eos_token_ids = config, policy or config.batching, eos_token_ids
        self.requests: dict[str, RequestState] = {}  # unfinished
        self._books = Books(config, self.policy, num_blocks)
        self._leaving: dict[str, RequestState] = {}  # at their last token, which is unread; they no longer hold lane and blocks
        self._is_anybody_over = False  # of the running

    # -- what there is -----------------------------------------------------------------------------------------------

    @property
    def pool(self) -> BlockPool:
        return self._books.pool

    @property
    def running(self) -> list[RequestState]:
        """In the order in which they were admitted."""
        return self._books.running

    @property
    def waiting(self) -> WaitingQueue:
        return self._books.waiting

    @property
    def lanes(self) -> Lanes:
        return self._books.lanes

    @property
    def has_news(self) -> bool:
        """Whether somebody has finished between steps."""
        return bool(self._books.facts.finished)

    @property
    def has_work(self) -> bool:
        return bool(self.requests) or bool(self._leaving) or self.has_news

    # -- requests in and out -----------------------------------------------------------------------------------------

    def add(self, state: RequestState) -> None:
        """Join the end of the waiting queue."""
        self.requests[state.id] = state
        self._books.waiting.add(state)

    def cancel(self, request: str) -> bool:
        """End a request wherever it is; whether there was such a request. The fact belongs to the next step's event."""
        state = self.requests.get(request)
        if state is None:
            return False
        if state.status is not RequestStatus.RUNNING:
            self._books.waiting.remove(state, RequestStatus.FINISHED)
        self._finish(state, "cancelled", self._books.facts)
        self._let_go(self._books.facts, "before")
        return True

    # -- the three verbs' first and last -----------------------------------------------------------------------------

    def schedule(self, in_flight: bool = False) -> Iterator[SchedulerOutput]:
        """Decide the passes of this step, one after the other.

        in_flight: another step is not settled yet; nobody is preempted then, since its tokens are needed to compute them again.
        """
        self._books.facts.waiting = NOBODY_WAITS
        return passes(self._books, in_flight)

    def advance(self, output: SchedulerOutput) -> None:
        """Count a pass that has been launched. The step before it must be settled."""
        for scheduled in output.scheduled:
            self._advance(scheduled)
        self._let_go(self._books.facts, "after")

    def settle(
        self,
        output: SchedulerOutput,
        token_ids: Sequence[int | None],
        stopped: frozenset[str],
        facts: StepFacts,
        followed: bool,
    ) -> None:
        """Fill in the tokens of a launched pass.

        token_ids, stopped: see `update_from_output`. facts: of the pass's own step, for who has finished. followed: the next step's
        first pass has been launched, so that lanes and blocks are given back after that one.
        """
        tokens = iter(token_ids)
        for scheduled in output.scheduled:
            self._settle(scheduled, next(tokens) if scheduled.samples else None, stopped, facts)
        self._let_go(self._books.facts if followed else facts, "after")

    def update_from_output(
        self, output: SchedulerOutput, token_ids: Sequence[int | None], stopped: frozenset[str] = frozenset()
    ) -> None:
        """Advance and settle a pass whose tokens are known.

        token_ids: one for each scheduled request that samples, in order; None where its logits were not finite.
        stopped: requests whose text now contains one of their stop strings.
        """
        tokens, facts = iter(token_ids), self._books.facts
        for scheduled in output.scheduled:
            self._advance(scheduled)
            self._settle(scheduled, next(tokens) if scheduled.samples else None, stopped, facts)
        self._let_go(facts, "after")

    def _advance(self, scheduled: ScheduledRequest) -> None:
        state = self.requests.get(scheduled.request)
        if state is None:  # a finished row, or one that has turned out to be an overrun
            return
        state.num_computed_tokens = scheduled.start + len(scheduled.tokens)
        if self.config.prefix_caching:  # what was unread when the pass was planned is known by now
            self._books.register(state, scheduled.start, state.num_computed_tokens)
        if scheduled.samples:
            state.token_ids.append(UNREAD)
            if len(state.token_ids) == state.max_num_tokens:
                state.finish_reason = "length"  # unless that token says otherwise
                self._leaving[state.id] = self.requests.pop(state.id)
                self._stop_running(state)

    def _settle(self, scheduled: ScheduledRequest, token: int | None, stopped: frozenset[str], facts: StepFacts) -> None:
        request = scheduled.request
        state = self.requests.get(request) or self._leaving.get(request)
        if state is None:
            if scheduled.tokens:
                facts.overrun.append(Overrun(request, len(scheduled.tokens)))
            return
        if not scheduled.samples:
            return
        position = scheduled.start + len(scheduled.tokens)
        if token is None:
            del state.token_ids[position:]
            self._finish(state, "error", facts)
            return
        state.token_ids[position] = token
        if request in stopped or (token in self.eos_token_ids and not state.request.sampling.ignore_eos):
            del state.token_ids[position + 1 :]
            self._finish(state, "stop", facts)
        elif position + 1 == state.max_num_tokens:
            self._finish(state, "length", facts)

    def end_step(self) -> StepFacts:
        """The facts of the step; the next step starts with none."""
        facts, self._books.facts = self._books.facts, StepFacts()
        return facts

    def check_integrity(self) -> None:
        """Assert every invariant that holds between steps."""
        self._books.check_integrity()

    def _finish(self, state: RequestState, reason: FinishReason, facts: StepFacts) -> None:
        """End a request. facts: of the step in which it ended."""
        state.finish_reason = reason
        self._books.recovering = False
        facts.finished.append(Finished(state.id, reason))
        if self._leaving.pop(state.id, None) is None:
            del self.requests[state.id]
            if state.status is RequestStatus.RUNNING:
                self._stop_running(state)

    def _stop_running(self, state: RequestState) -> None:
        state.status = RequestStatus.FINISHED
        self._is_anybody_over = True

    def _let_go(self, facts: StepFacts, when: When) -> None:
        """Requests that are over give back lane and blocks: at once, or with the whole wave at the barrier.

        Blocks are freed in the order of admission, which decides what of the prefix cache is dropped first. facts: of the step before or
        after whose passes that happens.
        """
        if not self._is_anybody_over:
            return
        self._is_anybody_over = False
        leaving = [s for s in self.running if s.status is RequestStatus.FINISHED]
        self.running[:] = [s for s in self.running if s.status is not RequestStatus.FINISHED]
        if self.policy.keeps_finished:
            leaving = [] if self.running else list(self.lanes)
        tables = [state.block_table.blocks for state in leaving]
        for state in sorted(leaving, key=lambda s: s.held_lane):
            facts.left.append(Left(state.id, state.held_lane, when))
            self._books.vacate(state, facts)
        for blocks in tables:
            self._books.pool.free(blocks)
