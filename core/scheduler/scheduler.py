"""Who computes what in each step. `schedule()` decides a turn pass by pass; `advance()` and `settle()` alone change requests.

A turn is one pass for the packed and padded layouts. The split layout decides its decode pass after its prefill passes, so
`schedule()` is a generator: run each pass and report it before asking for the next.

    for output in scheduler.schedule():
        scheduler.update_from_output(output, run(output))  # advance, then settle
    facts = scheduler.end_step()

With asynchronous execution a turn, of one pass then, is planned before the last one's tokens are read. All that scheduling asks is
known by then but for who stops early: `advance` counts a launched pass, its new tokens as UNREAD, and `settle` fills them in later. A
request that turns out to have stopped may by then have a row in the next turn; that row is an overrun, and lane and blocks fall free
after it.

Waiting requests form one line, first come, first served; only its head is ever looked at. Knows nothing of tensors, models or time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from core.config import EngineConfig
from core.scheduler.block_pool import BlockPool
from core.scheduler.output import ScheduledRequest, SchedulerOutput
from core.scheduler.state import BlockTable, RequestState, RequestStatus
from core.trace.events import (
    Admitted,
    BlockChange,
    Budget,
    Finished,
    Left,
    Limit,
    Overrun,
    Preempted,
    PrefixHit,
    Stalled,
    Waiting,
    When,
    Why,
)
from core.workload.request import FinishReason, Phase

UNREAD = -1  # stands for a sampled token that the host has not read yet
_UNLIMITED = 2**62
_NOTHING_BINDS = Why("none")
_NOBODY_WAITS = Waiting(0)

Plan = list[tuple[int, RequestState, int]]  # lane, request, tokens; one entry a lane, so that sorting never looks further


@dataclass(slots=True)
class StepFacts:
    """What the scheduler decided in a turn, and why."""

    admitted: list[Admitted] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    stalled: list[Stalled] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    block_changes: list[BlockChange] = field(default_factory=list)
    prefix_hits: list[PrefixHit] = field(default_factory=list)
    overrun: list[Overrun] = field(default_factory=list)
    waiting: Waiting = _NOBODY_WAITS
    decode_tokens: int = 0
    prefill_tokens: int = 0
    cut: Limit = "none"  # what cut a prompt into chunks
    blocks_used: int = 0

    def budget(self, limit: int | None) -> Budget:
        used = self.decode_tokens + self.prefill_tokens
        if self.waiting.why is not None:
            binding = self.waiting.why.limit
        elif self.stalled:
            binding = self.stalled[0].why.limit
        else:
            binding = self.cut
        return Budget(limit, self.decode_tokens, self.prefill_tokens, 0 if limit is None else limit - used, binding)


class Scheduler:
    """The waiting line, the lanes and the block pool of one run.

    eos_token_ids: tokens that end a request unless it ignores them.
    """

    def __init__(self, config: EngineConfig, num_blocks: int, eos_token_ids: frozenset[int] = frozenset()) -> None:
        self.config, self.policy, self.eos_token_ids = config, config.batching, eos_token_ids
        self.pool = BlockPool(num_blocks, config.block_size)
        self.waiting: deque[RequestState] = deque()
        # By order of arrival, since the line is admitted from its head and the preempted return there.
        self.running: list[RequestState] = []
        self.lanes: list[RequestState | None] = [None] * config.num_lanes  # a finished request keeps its lane until the barrier
        self.requests: dict[str, RequestState] = {}  # unfinished
        self._leaving: dict[str, RequestState] = {}  # at their last token, which is unread; lane and blocks are theirs no more
        self._num_added = 0
        self._num_cancelled_waiting = 0
        self._facts = StepFacts()

    # -- requests in and out -----------------------------------------------------------------------------------------

    def add(self, state: RequestState) -> None:
        """Join the end of the line."""
        state.order, self._num_added = self._num_added, self._num_added + 1
        self.requests[state.id] = state
        self.waiting.append(state)

    def cancel(self, request: str) -> bool:
        """End a request wherever it is; whether there was such a request. The fact belongs to the next step's event."""
        state = self.requests.get(request)
        if state is None:
            return False
        if state.status is not RequestStatus.RUNNING:
            self._num_cancelled_waiting += 1  # left in the line, dropped when it reaches the head
        self._finish(state, "cancelled", self._facts, self._facts)
        return True

    @property
    def num_waiting(self) -> int:
        return len(self.waiting) - self._num_cancelled_waiting

    @property
    def has_news(self) -> bool:
        """Whether somebody has finished between turns."""
        return bool(self._facts.finished)

    @property
    def has_work(self) -> bool:
        return bool(self.requests) or bool(self._leaving) or self.has_news

    # -- the three verbs' first and last -----------------------------------------------------------------------------

    def schedule(self, in_flight: bool = False) -> Iterator[SchedulerOutput]:
        """Decide the passes of this turn, one after the other.

        in_flight: another turn is not settled yet; nobody is preempted then, since its tokens are needed to compute them again.
        """
        self._facts.waiting = _NOBODY_WAITS
        if self.policy.layout == "packed":
            yield from self._packed_pass(in_flight)
        elif self.policy.layout == "padded":
            yield from self._padded_pass()
        else:
            yield from self._split_passes()

    def advance(self, output: SchedulerOutput) -> None:
        """Count a pass that has been launched. The turn before it must be settled."""
        for scheduled in output.scheduled:
            self._advance(scheduled)

    def settle(
        self,
        output: SchedulerOutput,
        token_ids: Sequence[int | None],
        stopped: frozenset[str],
        facts: StepFacts,
        followed: bool,
    ) -> None:
        """Fill in the tokens of a launched pass.

        token_ids, stopped: see `update_from_output`. facts: of the pass's own turn, for who has finished. followed: the next turn's
        first pass has been launched, so what falls free does so after that one.
        """
        tokens = iter(token_ids)
        releases = self._facts if followed else facts
        for scheduled in output.scheduled:
            self._settle(scheduled, next(tokens) if scheduled.samples else None, stopped, facts, releases)

    def update_from_output(
        self, output: SchedulerOutput, token_ids: Sequence[int | None], stopped: frozenset[str] = frozenset()
    ) -> None:
        """Advance and settle a pass whose tokens are known.

        token_ids: one for each scheduled request that samples, in order; None where its logits were not finite.
        stopped: requests whose text now contains one of their stop strings.
        """
        tokens, facts = iter(token_ids), self._facts
        for scheduled in output.scheduled:
            self._advance(scheduled)
            self._settle(scheduled, next(tokens) if scheduled.samples else None, stopped, facts, facts)

    def _advance(self, scheduled: ScheduledRequest) -> None:
        state = self.requests.get(scheduled.request)
        if state is None:  # a finished row, or one that has turned out to be an overrun
            return
        state.num_computed_tokens = scheduled.start + len(scheduled.tokens)
        if self.config.prefix_caching:
            self._register_full_blocks(state, scheduled.start)
        if scheduled.samples:
            state.token_ids.append(UNREAD)
            if len(state.token_ids) == state.max_num_tokens:
                state.finish_reason = "length"  # unless that token says otherwise
                self._leaving[state.id] = self.requests.pop(state.id)
                self._leave(state, self._facts, "after")

    def _settle(
        self, scheduled: ScheduledRequest, token: int | None, stopped: frozenset[str], facts: StepFacts, releases: StepFacts
    ) -> None:
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
            self._finish(state, "error", facts, releases)
            return
        state.token_ids[position] = token
        if request in stopped or (token in self.eos_token_ids and not state.request.sampling.ignore_eos):
            del state.token_ids[position + 1 :]
            self._finish(state, "stop", facts, releases)
        elif position + 1 == state.max_num_tokens:
            self._finish(state, "length", facts, releases)

    def end_step(self) -> StepFacts:
        """The facts of the turn; the next turn starts with a clean sheet."""
        facts, self._facts = self._facts, StepFacts()
        return facts

    def check_integrity(self) -> None:
        """Assert every invariant that holds between steps."""
        held = [s for s in self.lanes if s is not None]
        assert [s for s in held if s.finish_reason is None] == sorted(self.running, key=lambda s: s.held_lane)
        assert len(self.running) <= self.config.num_lanes
        assert self.running == sorted(self.running, key=lambda s: s.order)
        assert list(self.waiting) == sorted(self.waiting, key=lambda s: s.order)
        assert self.num_waiting == sum(s.finish_reason is None for s in self.waiting)
        for s in held:
            assert self.lanes[s.held_lane] is s
            assert len(s.block_table.blocks) >= self._blocks_for(s.num_computed_tokens)
        self.pool.check_integrity([s.block_table.blocks for s in held])

    @property
    def _may_preempt(self) -> bool:
        """Whether blocks are handed out as tokens need them; the other policies promise each request room to its end."""
        return self.policy.token_budget and self.policy.layout == "packed"

    # -- layouts -----------------------------------------------------------------------------------------------------

    def _packed_pass(self, in_flight: bool) -> Iterator[SchedulerOutput]:
        while True:
            plan = self._plan_packed()
            if plan or not self.running or in_flight:
                break
            self._preempt(self.running[-1])  # nothing at all could go on: the newest makes room
        if plan:
            yield self._output("packed", plan)

    def _plan_packed(self) -> Plan:
        """What a packed pass may compute; an empty plan has changed nothing."""
        facts = self._facts
        facts.stalled.clear()
        facts.cut = "none"
        left = self.config.max_num_batched_tokens if self.policy.token_budget else _UNLIMITED
        plan: Plan = []
        decoding: list[RequestState] = []
        prefilling: list[RequestState] = []
        for state in self.running:
            (decoding if state.is_decoding else prefilling).append(state)
        if not self.config.prefill_first:
            left = self._continue(decoding, left, plan)
        left = self._continue(prefilling, left, plan)
        left = self._admit(left, plan, self._num_growing(decoding) if self.config.prefill_first else 0)
        if self.config.prefill_first:
            self._continue(decoding, left, plan)
        return plan

    def _padded_pass(self) -> Iterator[SchedulerOutput]:
        plan: Plan = []
        self._continue(self.running, _UNLIMITED, plan)
        if self.policy.admission == "immediate" or not self.running:
            self._admit(_UNLIMITED, plan)
        elif self.num_waiting:
            self._wait(Why("barrier", len(self.running), 0, self.config.num_lanes))
        if plan:
            plan += [(s.held_lane, s, 0) for s in self.lanes if s is not None and s.finish_reason is not None]
            yield self._output("padded", plan)

    def _split_passes(self) -> Iterator[SchedulerOutput]:
        left = self.config.max_num_batched_tokens if self.policy.token_budget else _UNLIMITED
        decoding = {s for s in self.running if s.is_decoding}
        left -= len(decoding)
        prefills: Plan = []
        left = self._continue([s for s in self.running if s not in decoding], left, prefills)
        left = self._admit(left, prefills)
        for prefill in prefills:
            yield self._output("packed", [prefill])
        decoding.update([s for s in self.running if s not in decoding and s.is_decoding][:left])  # the newly prefilled
        plan: Plan = []
        self._continue([s for s in self.running if s in decoding], _UNLIMITED, plan)
        if plan:
            yield self._output("padded", plan)

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _continue(self, states: Sequence[RequestState], left: int, plan: Plan) -> int:
        """Give each running request its next tokens, first come, first served; the budget that is left."""
        size, facts = self.config.block_size, self._facts
        for state in states:
            count = pending = len(state.token_ids) - state.num_computed_tokens
            if count > left:
                count, facts.cut = left, "budget"
                if not left:
                    facts.stalled.append(Stalled(state.id, Why("budget", 0, pending, self.config.max_num_batched_tokens)))
                    continue
            room = len(state.block_table.blocks) * size - state.num_computed_tokens
            if count > room:
                room += self.pool.num_free * size
                if not room:
                    facts.stalled.append(Stalled(state.id, Why("blocks", 0, 1, self.pool.num_blocks)))
                    continue
                if count > room:
                    count, facts.cut = room, "blocks"
                self._grow(state, count)
            plan.append((state.held_lane, state, count))
            left -= count
        return left

    def _admit(self, left: int, plan: Plan, reserve: int = 0) -> int:
        """Let waiting requests into free lanes while lanes, budget and blocks allow; the budget that is left.

        reserve: blocks that running requests still need in this step.
        """
        while state := self._head():
            why = self._no_lane()
            matched = self.pool.match(state.token_ids) if self.config.prefix_caching and not why else ()
            why = why or self._no_room(state, matched, left, reserve)
            if why:
                self._wait(why)
                break
            self.waiting.popleft()
            left -= self._start(state, matched, left, plan)
        return left

    def _no_lane(self) -> Why | None:
        """What keeps anybody from being admitted, if anything."""
        if None not in self.lanes:
            return Why("lanes", 0, 1, len(self.lanes))
        if self.policy.one_prefill and not all(s.is_decoding for s in self.running):
            return Why("prefill", 0, 1, 1)
        return None

    def _no_room(self, state: RequestState, matched: tuple[int, ...], left: int, reserve: int) -> Why | None:
        """The limit that keeps the head of the line waiting though there is a lane, if any. matched: its cached blocks."""
        budget = self.config.max_num_batched_tokens
        pending = state.num_tokens - len(matched) * self.config.block_size
        whole = not self.config.chunked_prefill and pending <= budget  # a longer recomputation has to be cut all the same
        if left <= 0 or (whole and left < pending):
            return Why("budget", max(0, left), pending, budget)
        if not self._may_preempt:  # room to the end is promised
            need = self._blocks_for(state.max_num_tokens)
            free = self.pool.num_blocks - sum(self._blocks_for(s.max_num_tokens) for s in self.lanes if s is not None)
        elif self._facts.preempted or any(s.why.limit == "blocks" for s in self._facts.stalled):
            need, free = self._blocks_for(state.num_tokens) - len(matched), 0  # blocks are short for those who run already
        else:
            need = self._blocks_for(state.num_tokens) - len(matched)
            free = self.pool.num_free - self.pool.num_unused(matched) - reserve
        return Why("blocks", max(0, free), need, self.pool.num_blocks) if need > free else None

    def _start(self, state: RequestState, matched: tuple[int, ...], left: int, plan: Plan) -> int:
        """Put a request into the lowest free lane with its first chunk; the tokens that takes."""
        lane, facts = self.lanes.index(None), self._facts
        state.status, state.lane = RequestStatus.RUNNING, lane
        self.lanes[lane] = state
        self.running.append(state)
        state.num_cached_tokens = state.num_computed_tokens = len(matched) * self.config.block_size
        if matched:
            self.pool.share(matched)
            state.block_table = BlockTable().extend(matched)
            facts.block_changes.append(BlockChange(state.id, matched, False))
            facts.prefix_hits.append(PrefixHit(state.id, state.num_cached_tokens))
        count, why = state.num_pending, _NOTHING_BINDS
        if count > left:
            why = Why("budget", left, count, self.config.max_num_batched_tokens)
            count, facts.cut = left, "budget"
        self._grow(state, count)
        plan.append((lane, state, count))
        facts.admitted.append(Admitted(state.id, lane, why))
        return count

    def _head(self) -> RequestState | None:
        """The head of the line, cancelled requests dropped on the way."""
        while self.waiting and self.waiting[0].finish_reason is not None:
            self.waiting.popleft()
            self._num_cancelled_waiting -= 1
        return self.waiting[0] if self.waiting else None

    def _wait(self, why: Why) -> None:
        head = self._head()
        assert head is not None
        self._facts.waiting = Waiting(self.num_waiting, head.id, why)

    def _preempt(self, state: RequestState) -> None:
        """Take everything from a running request but its tokens, and put it at the head of the line."""
        self._facts.preempted.append(Preempted(state.id, state.num_computed_tokens, state.held_lane))
        self.running.remove(state)
        self._vacate(state, self._facts)
        state.status, state.num_computed_tokens, state.num_cached_tokens = RequestStatus.PREEMPTED, 0, 0
        self.waiting.appendleft(state)

    # -- blocks and lanes --------------------------------------------------------------------------------------------

    def _blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def _num_growing(self, states: list[RequestState]) -> int:
        """Requests whose next token needs a new block."""
        return sum(s.num_computed_tokens == len(s.block_table.blocks) * self.config.block_size for s in states)

    def _grow(self, state: RequestState, count: int) -> None:
        """Blocks for the next `count` tokens."""
        held = state.block_table.blocks
        more = self._blocks_for(state.num_computed_tokens + count) - len(held)
        if more > 0:
            plan = self._blocks_for(state.max_num_tokens) - len(held)
            added = self.pool.allocate(more, held[-1] if held else None, plan)
            state.block_table = state.block_table.extend(added)
            self._facts.block_changes.append(BlockChange(state.id, added, False))

    def _register_full_blocks(self, state: RequestState, start: int) -> None:
        size, blocks = self.config.block_size, state.block_table.blocks
        for index in range(start // size, state.num_computed_tokens // size):
            tokens = tuple(state.token_ids[index * size : (index + 1) * size])
            self.pool.register(blocks[index], blocks[index - 1] if index else None, tokens)

    def _vacate(self, state: RequestState, facts: StepFacts) -> None:
        """Give back lane and blocks."""
        self.pool.free(state.block_table.blocks)
        if state.block_table.blocks:
            facts.block_changes.append(BlockChange(state.id, (), True))
        self.lanes[state.held_lane] = None
        state.lane, state.block_table = None, BlockTable()

    def _leave(self, state: RequestState, facts: StepFacts, when: When) -> None:
        """Stop running; lane and blocks fall free at once, or with the whole wave's at the barrier."""
        state.status = RequestStatus.FINISHED
        self.running.remove(state)
        leaving: list[RequestState] = []
        if self.policy.admission == "immediate":
            leaving = [state]
        elif not self.running:
            leaving = [other for other in self.lanes if other is not None]
        for other in leaving:
            facts.left.append(Left(other.id, other.held_lane, when))
            self._vacate(other, facts)

    def _finish(self, state: RequestState, reason: FinishReason, facts: StepFacts, releases: StepFacts) -> None:
        """End a request. facts: of the turn in which it ended; releases: of the turn after which what it holds falls free."""
        state.finish_reason = reason
        facts.finished.append(Finished(state.id, reason))
        if self._leaving.pop(state.id, None) is None:
            del self.requests[state.id]
            if state.status is RequestStatus.RUNNING:
                self._leave(state, releases, "before" if reason == "cancelled" else "after")
            state.status = RequestStatus.FINISHED

    def _output(self, layout: Literal["packed", "padded"], plan: Plan) -> SchedulerOutput:
        """Freeze a plan in lane order."""
        scheduled, decode_tokens = [], 0
        for lane, state, count in sorted(plan):
            token_ids, start = state.token_ids, state.num_computed_tokens
            end, length = start + count, len(token_ids)
            phase: Phase = "prefill"
            if count == 1 and end == length and state.is_decoding:
                phase = "decode"
                decode_tokens += 1
            tokens = tuple(token_ids[start:end])
            samples = end == length and count > 0
            scheduled.append(ScheduledRequest(state.request.id, lane, phase, tokens, start, state.block_table, samples))
        output = SchedulerOutput(layout, tuple(scheduled))
        facts = self._facts
        facts.decode_tokens += decode_tokens
        facts.prefill_tokens += sum([entry[2] for entry in plan]) - decode_tokens
        facts.blocks_used = max(facts.blocks_used, self.pool.num_used)
        return output
