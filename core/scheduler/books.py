"""The books that every rule of the scheduler reads and changes: who waits, who runs, who holds which lane and blocks, and the facts of
the step. Each change is recorded as a fact where it is made. Decides nothing.
"""

from __future__ import annotations

from core.config import BatchingPolicy, EngineConfig
from core.scheduler.block_pool import BlockPool
from core.scheduler.facts import StepFacts
from core.scheduler.lanes import Lanes
from core.scheduler.state import UNREAD, BlockTable, RequestState, RequestStatus
from core.scheduler.waiting import QUEUES
from core.trace.events import BlockChange, Preempted, PrefixHit, Waiting, Why

UNLIMITED = 2**62


class Books:
    """The state of one run.

    running: in the order in which they were admitted. A request that has finished keeps its lane until the barrier. recovering: somebody has
    given way and nobody finished since; where that closes the door (see `passing`).
    """

    def __init__(self, config: EngineConfig, policy: BatchingPolicy, num_blocks: int) -> None:
        self.config, self.policy = config, policy
        self.pool = BlockPool(num_blocks, config.block_size)
        self.waiting = QUEUES[policy.order](policy)
        self.running: list[RequestState] = []
        self.lanes = Lanes(config.num_lanes)
        self.facts = StepFacts()
        self.recovering = False

    @property
    def kv_reads(self) -> int:
        """Cached tokens that a step may read."""
        share = self.policy.kv_reads
        return UNLIMITED if share is None else round(share * self.pool.num_blocks * self.config.block_size)

    @property
    def token_budget(self) -> int:
        """Tokens that a step may compute."""
        return self.config.max_num_batched_tokens if self.policy.token_budget else UNLIMITED

    @property
    def cuts_prompts(self) -> bool:
        """Whether a prompt that fits the budget may be computed in pieces."""
        return self.config.chunked_prefill and not self.policy.whole_prompts

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.config.block_size)

    def start(self, state: RequestState, matched: tuple[int, ...]) -> None:
        """Put a waiting request into the lowest free lane; `matched` are its cached blocks."""
        self.waiting.remove(state, RequestStatus.RUNNING)
        state.lane = self.lanes.take(state)
        self.running.append(state)
        state.num_to_prefill = state.num_tokens
        state.num_cached_tokens = state.num_computed_tokens = len(matched) * self.config.block_size
        if matched:
            self.pool.share(matched)
            state.block_table = BlockTable().extend(matched)
            self.facts.block_changes.append(BlockChange(state.id, matched, False))
            self.facts.prefix_hits.append(PrefixHit(state.id, state.num_cached_tokens))

    def wait(self, why: Why) -> None:
        """Record what keeps the head of the queue waiting."""
        head = self.waiting.head()
        assert head is not None
        self.facts.waiting = Waiting(len(self.waiting), head.id, why)

    def grow(self, state: RequestState, count: int) -> None:
        """Blocks for the next `count` tokens."""
        held = state.block_table.blocks
        more = self.blocks_for(state.num_computed_tokens + count) - len(held)
        if more > 0:
            plan = self.blocks_for(state.max_num_tokens) - len(held)
            added = self.pool.allocate(more, held[-1] if held else None, plan)
            state.block_table = state.block_table.extend(added)
            self.facts.block_changes.append(BlockChange(state.id, added, False))

    def register(self, state: RequestState, start: int, end: int) -> None:
        """Let the blocks that positions `start` … `end - 1` fill be found, except those with an unread token.

        Early enough once it is planned: a pass stores its keys and values before any request in it attends, so that one admitted in the
        same step can share them.
        """
        size, blocks = self.config.block_size, state.block_table.blocks
        for index in range(start // size, end // size):
            tokens = tuple(state.token_ids[index * size : (index + 1) * size])
            if tokens[-1] != UNREAD:
                self.pool.register(blocks[index], blocks[index - 1] if index else None, tokens)

    def preempt(self, state: RequestState) -> None:
        """Take everything from a running request but its tokens, and put it back into the queue."""
        self.running.remove(state)
        self.facts.preempted.append(Preempted(state.id, state.num_computed_tokens, state.held_lane))
        self.pool.free(self.vacate(state, self.facts))
        state.num_computed_tokens = state.num_cached_tokens = 0
        self.waiting.put_back(state)

    def preempt_newest(self) -> None:
        self.preempt(self.running[-1])

    def vacate(self, state: RequestState, facts: StepFacts) -> tuple[int, ...]:
        """Give back the lane; the blocks that were held, which the caller frees."""
        blocks = state.block_table.blocks
        if blocks:
            facts.block_changes.append(BlockChange(state.id, (), True))
        self.lanes.give_back(state.held_lane)
        state.lane, state.block_table = None, BlockTable()
        return blocks

    def check_integrity(self) -> None:
        """Assert every invariant that holds between steps."""
        held = list(self.lanes)
        assert [s for s in held if s.finish_reason is None] == sorted(self.running, key=lambda s: s.held_lane)
        assert len(held) <= self.lanes.count
        waiting = list(self.waiting)
        assert len(waiting) == len(self.waiting) and all(s.finish_reason is None and s.lane is None for s in waiting)
        if self.policy.order == "arrival":
            for queue in (self.running, waiting):
                assert queue == sorted(queue, key=lambda s: s.order)
        for s in held:
            assert self.lanes.holder(s.held_lane) is s
            assert len(s.block_table.blocks) >= self.blocks_for(s.num_computed_tokens)
        self.pool.check_integrity([s.block_table.blocks for s in held])
