"""The KV pool's book-keeping: which block is free, shared or cached. Knows ids and token ids, nothing of tensors or requests.

A block is free, in use (reference count of at least 1), or cached: unused, but kept under the hash of its tokens until its space is
needed (least recently used first). Blocks are handed out consecutively where possible, so that a backend can view a sequence's
cache without copying: an allocation names the length it may grow to, and new sequences start outside the room others planned.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

_FREE, _TAKEN = b"\x01", b"\x00"


class CachedBlock(NamedTuple):
    """A full block findable by content: `key` chains the hashes of all blocks before it."""

    key: int
    parent: int
    tokens: tuple[int, ...]


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._free = bytearray(_FREE * num_blocks)  # 1: free and uncached
        self._unplanned = bytearray(_FREE * num_blocks)  # 1: free and not in the room another sequence planned
        self._references = [0] * num_blocks
        self._content: dict[int, CachedBlock] = {}  # block -> what it holds
        self._by_key: dict[int, int] = {}  # key -> block
        self._cached: OrderedDict[int, None] = OrderedDict()  # unused blocks with content, oldest first
        self._num_free = num_blocks
        self._plans: dict[int, range] = {}  # first block of a sequence -> the room it planned

    @property
    def num_free(self) -> int:
        """Blocks that an allocation may take, cached ones included."""
        return self._num_free + len(self._cached)

    @property
    def num_used(self) -> int:
        return self.num_blocks - self.num_free

    def allocate(self, count: int, after: int | None = None, plan: int = 0) -> tuple[int, ...]:
        """Take `count` blocks, following block `after` where that is free; `plan` is how many the sequence may come to need.

        The caller checks `num_free` first: taking more than there are is a bug, not a refusal.
        """
        assert count <= self.num_free, "allocate() beyond num_free"
        taken: list[int] = []
        expected = -1 if after is None else after + 1
        for _ in range(count):
            if not (0 <= expected < self.num_blocks and self._free[expected]):
                expected = self._start_of_room(max(plan, count) - len(taken)) if self._num_free else self._evict()
            if after is None and not taken:
                self._plan(expected, max(plan, count))
            self._free[expected] = 0
            self._unplanned[expected] = 0
            self._num_free -= 1
            self._references[expected] = 1
            taken.append(expected)
            expected += 1
        return tuple(taken)

    def free(self, blocks: tuple[int, ...]) -> None:
        """Give back one reference to each block; content stays findable until the block is taken again."""
        for block in reversed(blocks):  # the tail goes first, so that eviction takes a prefix's end before its head
            self._references[block] -= 1
            assert self._references[block] >= 0, f"block {block} freed twice"
            if self._references[block] == 0:
                if block in self._content:
                    self._cached[block] = None
                else:
                    self._release(block)
        if blocks:
            for block in self._plans.pop(blocks[0], range(0)):
                self._unplanned[block] = self._free[block]

    def match(self, token_ids: list[int]) -> tuple[int, ...]:
        """The cached blocks that hold the longest prefix of `token_ids`, at least one token always left to compute."""
        found: list[int] = []
        parent, size = 0, self.block_size
        for start in range(0, len(token_ids) - size, size):
            tokens = tuple(token_ids[start : start + size])
            key = hash((parent, tokens))
            block = self._by_key.get(key)
            if block is None or self._content[block] != CachedBlock(key, parent, tokens):
                break
            found.append(block)
            parent = key
        return tuple(found)

    def num_unused(self, blocks: tuple[int, ...]) -> int:
        """How many of these cached blocks nobody references: sharing them shrinks `num_free`."""
        return sum(block in self._cached for block in blocks)

    def share(self, blocks: tuple[int, ...]) -> None:
        """Take one reference to each of the matched blocks."""
        for block in blocks:
            self._cached.pop(block, None)
            self._references[block] += 1

    def register(self, block: int, previous: int | None, tokens: tuple[int, ...]) -> None:
        """Make a full block findable; `previous` is the block before it in its sequence. Equal content is registered once."""
        parent = 0
        if previous is not None:
            if previous not in self._content:  # a copy of content registered elsewhere: its chain is not ours to extend
                return
            parent = self._content[previous].key
        key = hash((parent, tokens))
        if block not in self._content and key not in self._by_key:
            self._content[block] = CachedBlock(key, parent, tokens)
            self._by_key[key] = block

    def check_integrity(self, tables: list[tuple[int, ...]]) -> None:
        """Assert that the books agree with the block tables of all running requests: nothing leaked, nothing owned twice."""
        held = [0] * self.num_blocks
        for table in tables:
            assert len(set(table)) == len(table), f"a block twice in one table: {table}"
            for block in table:
                held[block] += 1
        assert held == self._references, "reference counts differ from the block tables"
        for block in range(self.num_blocks):
            states = (self._free[block] == 1) + (block in self._cached) + (held[block] > 0)
            assert states == 1, f"block {block} is in {states} states"
            assert held[block] <= 1 or block in self._content, f"block {block} is shared without content"
        assert self._num_free == sum(self._free)
        assert {self._by_key[c.key] for c in self._content.values()} == set(self._content)

    def _start_of_room(self, length: int) -> int:
        """A free block with as much room after it as can be had, at best outside everybody's plan."""
        while length > 1:
            start = self._unplanned.find(_FREE * length)
            if start >= 0:
                return start
            length //= 2
        start = self._unplanned.find(_FREE)
        return start if start >= 0 else self._free.find(_FREE)

    def _plan(self, first: int, length: int) -> None:
        room = range(first, min(first + length, self.num_blocks))
        self._plans[first] = room
        self._unplanned[room.start : room.stop] = _TAKEN * len(room)

    def _evict(self) -> int:
        block, _ = self._cached.popitem(last=False)
        del self._by_key[self._content.pop(block).key]
        self._release(block)
        return block

    def _release(self, block: int) -> None:
        self._free[block] = 1
        self._unplanned[block] = 1
        self._num_free += 1
