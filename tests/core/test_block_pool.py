"""Blocks: consecutive where possible, shared by content, never lost."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.scheduler.block_pool import BlockPool
from core.scheduler.state import BlockTable
from worlds.examples import examples
from worlds.integrity import check_blocks


def test_a_planned_sequence_stays_consecutive() -> None:
    pool = BlockPool(12, 4)
    first, second = pool.allocate(1, plan=4), pool.allocate(1, plan=4)
    assert (first, second) == ((0,), (4,))
    assert pool.allocate(2, after=0, plan=3) == (1, 2) and pool.allocate(1, after=4, plan=3) == (5,)
    assert pool.allocate(2, plan=2) == (8, 9)
    assert pool.num_used == 7 and pool.num_free == 5
    pool = BlockPool(12, 4)
    hole, second = pool.allocate(1, plan=1), pool.allocate(1, plan=3)
    pool.free(hole)
    assert second == (1,) and pool.allocate(1, plan=3) == (4,) and pool.allocate(1, plan=1) == (0,)


def test_where_a_sequence_has_to_break_only_what_is_left_of_it_needs_room() -> None:
    """Five blocks, and two together: then three are looked for, not five or half of that."""
    pool = BlockPool(16, 4)
    held = [pool.allocate(1) for _ in range(16)]
    for block in (0, 1, 8, 9, 12, 13, 14):
        pool.free(held[block])
    assert pool.allocate(5) == (0, 1, 12, 13, 14)


def test_a_full_pool_gives_its_last_block_and_no_more() -> None:
    pool = BlockPool(3, 4)
    assert sorted(pool.allocate(2, plan=2) + pool.allocate(1, plan=9)) == [0, 1, 2]
    with pytest.raises(AssertionError):
        pool.allocate(1)


def test_freed_twice_is_a_bug() -> None:
    pool = BlockPool(3, 4)
    blocks = pool.allocate(1)
    pool.free(blocks)
    with pytest.raises(AssertionError, match="freed twice"):
        pool.free(blocks)


def filled(pool: BlockPool, ids: list[int]) -> tuple[int, ...]:
    """Blocks that hold these tokens, registered where full."""
    blocks = pool.allocate(-(-len(ids) // pool.block_size))
    for i in range(len(ids) // pool.block_size):
        pool.register(
            blocks[i],
            blocks[i - 1] if i else None,
            tuple(ids[i * pool.block_size : (i + 1) * pool.block_size]),
        )
    return blocks


def test_prefixes_are_found_by_content_and_one_token_is_left() -> None:
    pool = BlockPool(8, 2)
    blocks = filled(pool, [1, 2, 3, 4, 5])
    assert pool.match([1, 2, 3, 4, 9]) == blocks[:2]
    assert pool.match([1, 2, 3, 4]) == blocks[:1]
    assert pool.match([1, 2]) == pool.match([3, 4, 5]) == pool.match([2, 1, 3]) == ()


def test_equal_keys_are_not_enough() -> None:
    """Python's hash of 2 ** 61 - 1 is that of 0."""
    pool = BlockPool(4, 2)
    filled(pool, [0, 5])
    assert hash((0, 5)) == hash((2**61 - 1, 5)) and pool.match(
        [2**61 - 1, 5, 9]
    ) == () != pool.match([0, 5, 9])


def test_what_is_unused_stays_findable_until_its_space_is_needed_tail_first() -> None:
    pool = BlockPool(4, 2)
    blocks = filled(pool, [1, 2, 3, 4])
    pool.free(blocks)
    assert pool.num_free == 4 and pool.num_unused(blocks) == 2
    assert pool.match([1, 2, 3, 4, 5]) == blocks
    pool.allocate(3)
    assert pool.match([1, 2, 3, 4, 5]) == blocks[:1]
    check_blocks(pool, [tuple(b for b in range(4) if b != blocks[0])])


def test_shared_blocks_live_as_long_as_one_holder() -> None:
    pool = BlockPool(4, 2)
    blocks = filled(pool, [1, 2])
    pool.share(pool.match([1, 2, 3]))
    check_blocks(pool, [blocks, blocks])
    pool.free(blocks)
    assert pool.num_used == 1
    pool.free(blocks)
    assert pool.num_used == 0
    check_blocks(pool, [])


@pytest.mark.parametrize("pieces", [[(3, 4), (5,)], [(3,), (5,), (6,)], [(4, 3)], [(1,), (0, 1)]])
def test_a_table_knows_whether_its_blocks_are_consecutive(pieces: list[tuple[int, ...]]) -> None:
    table = BlockTable()
    for n, more in enumerate(pieces, 1):
        table = table.extend(more)
        blocks = sum(pieces[:n], ())
        assert table.blocks == blocks
        assert table.consecutive == (blocks == tuple(range(blocks[0], blocks[0] + len(blocks))))


BLOCKS = 9


class Sequences(RuleBasedStateMachine):
    """Sequences that grow, share and leave, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(BLOCKS, 2)
        self.tables: list[tuple[list[int], tuple[int, ...]]] = []  # tokens, blocks
        # which blocks have to be taken is worked out beside the pool, on sets of all its blocks
        self.free, self.unplanned = set(range(BLOCKS)), set(range(BLOCKS))
        self.plans: dict[int, range] = {}
        self.cached: list[int] = []  # oldest first

    @rule(
        length=st.integers(1, 8),
        symbols=st.integers(1, 2),
        plan=st.integers(0, 9),
        seed=st.integers(0, 255),
    )
    def join(self, length: int, symbols: int, plan: int, seed: int) -> None:
        ids = [(seed >> i) % symbols for i in range(length)]
        matched = self.pool.match(ids)
        need = -(-length // 2) - len(matched)
        if need > self.pool.num_free - self.pool.num_unused(matched):
            return
        self.pool.share(matched)
        self.cached = [b for b in self.cached if b not in matched]
        self._grow(ids, matched, need, plan)

    def _grow(self, ids: list[int], blocks: tuple[int, ...], need: int, plan: int) -> None:
        start = len(blocks)
        expected = self._expected(need, blocks[-1] if blocks else None, plan)
        taken = self.pool.allocate(need, blocks[-1] if blocks else None, plan)
        assert taken == expected
        blocks += taken
        for i in range(max(0, start - 1), len(ids) // 2):
            self.pool.register(
                blocks[i], blocks[i - 1] if i else None, tuple(ids[2 * i : 2 * i + 2])
            )
        self.tables.append((ids, blocks))

    def _expected(self, count: int, after: int | None, plan: int) -> tuple[int, ...]:
        """The block after the one before, where it is free; otherwise the first with the longest
        room, halved until there is some; with none free the one that was used least recently.
        """
        taken: list[int] = []
        for n in range(count):
            block = (taken[-1] if taken else BLOCKS if after is None else after) + 1
            if block not in self.free:
                block = self._room(max(plan, count) - n) if self.free else self.cached.pop(0)
            if after is None and not taken:
                self.plans[block] = range(block, min(block + max(plan, count), BLOCKS))
                self.unplanned -= set(self.plans[block])
            self.free.discard(block)
            self.unplanned.discard(block)
            taken.append(block)
        return tuple(taken)

    def _room(self, length: int) -> int:
        while length > 1:
            for first in range(BLOCKS - length + 1):
                if self.unplanned.issuperset(range(first, first + length)):
                    return first
            length //= 2
        return min(self.unplanned or self.free)

    @precondition(lambda self: self.tables and self.pool.num_free)
    @rule(which=st.integers(0, 99), token=st.integers(0, 1))
    def grow(self, which: int, token: int) -> None:
        ids, blocks = self.tables.pop(which % len(self.tables))
        self._grow([*ids, token], blocks, -(-(len(ids) + 1) // 2) - len(blocks), 3)

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 99))
    def leave(self, which: int) -> None:
        _, blocks = self.tables.pop(which % len(self.tables))
        held = {block for _, others in self.tables for block in others}
        self.pool.free(blocks)
        for block in reversed(blocks):
            if block in held:
                continue
            if block in self.pool._content:
                self.cached.append(block)
            else:
                self.free.add(block)
                self.unplanned.add(block)
        for block in self.plans.pop(blocks[0], ()):
            (self.unplanned.add if block in self.free else self.unplanned.discard)(block)

    @invariant()
    def books_agree(self) -> None:
        check_blocks(self.pool, [blocks for _, blocks in self.tables])

    @invariant()
    def what_is_found_is_true(self) -> None:
        for block, content in self.pool._content.items():
            holders = [
                ids[2 * i : 2 * i + 2]
                for ids, blocks in self.tables
                for i, b in enumerate(blocks)
                if b == block
            ]
            assert all(tuple(tokens) == content.tokens for tokens in holders)

    def teardown(self) -> None:
        for _, blocks in self.tables:
            self.pool.free(blocks)
        assert self.pool.num_used == 0


Sequences.TestCase.settings = examples(60, stateful_step_count=25)
TestSequences = Sequences.TestCase
