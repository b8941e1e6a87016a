"""Whether a scheduler's books agree: lanes, blocks and requests, between two steps."""

from __future__ import annotations

from collections.abc import Sequence

from core.policy import Policy
from core.scheduler.block_pool import BlockPool
from core.scheduler.scheduler import Scheduler


def check_integrity(scheduler: Scheduler) -> None:
    """Assert every invariant that holds between steps."""
    state = scheduler._state
    held, waiting = list(state.lanes), list(state.waiting)
    assert [s for s in held if s.finish_reason is None] == sorted(
        state.running, key=lambda s: s.held_lane
    )
    assert len(held) <= state.lanes.count
    assert len(waiting) == len(state.waiting) and all(
        s.finish_reason is None and s.lane is None for s in waiting
    )
    if keeps_arrival_order(state.policy):
        for queue in (state.running, waiting):
            assert queue == sorted(queue, key=lambda s: s.arrival_index)
    for s in held:
        assert state.lanes.held.get(s.held_lane) is s
        assert s.num_blocks >= state.blocks_for(s.num_computed_tokens)
    check_blocks(state.pool, [s.block_table.blocks for s in held])


def keeps_arrival_order(policy: Policy) -> bool:
    """Whether running requests always arrived before waiting ones: only arrival decides who joins,
    none is passed over, and the newest give way.
    """
    return (
        policy.order_by == "arrival"
        and policy.victim == "newest"
        and policy.preemption != "after"
        and not policy.requeue
    )


def check_blocks(pool: BlockPool, tables: Sequence[tuple[int, ...]]) -> None:
    """Assert that all block tables agree with the pool: nothing leaked, nothing owned twice."""
    held = [0] * len(pool._references)
    for table in tables:
        assert len(set(table)) == len(table), f"a block twice in one table: {table}"
        for block in table:
            held[block] += 1
    assert held == pool._references, "reference counts differ from the block tables"
    for block in range(len(pool._references)):
        states = (pool._free[block] == 1) + (block in pool._cached) + (held[block] > 0)
        assert states == 1, f"block {block} is in {states} states"
        assert held[block] <= 1 or block in pool._content, (
            f"block {block} is shared without content"
        )
    assert pool._num_free == sum(pool._free) + pool.num_blocks - len(pool._free)
    assert {block: c.key for block, c in pool._content.items()} == {
        b: key for key, held in pool._by_key.items() for b in held
    }
