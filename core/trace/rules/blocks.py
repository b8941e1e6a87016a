"""The rules of the KV pool: which request owns each block, across all KV cache groups; how many
blocks are in use; and whether a request has the blocks for its computation.
"""

from collections import Counter

from core.trace.events import BlockChange, Segment, StepEvent
from core.trace.header import FULL, Header
from core.trace.rules.followable import quoted
from core.trace.run_state import RunState

BY_POSITION = (
    "full_attention",
    "mla_attention",
    "sliding_window",
    "sliding_window_mla",
    "chunked_local_attention",
    "ring",
    None,
)
"""Kinds of groups whose tables cover every position, or in a ring as many as its window has."""

_KEEP_ALL = (*FULL, None)  # kinds of groups in which no block may leave before its request


class PoolRules:
    """Follows the pool of one run, event by event."""

    def __init__(self, header: Header) -> None:
        self._groups = header.groups
        self._sizes = [group.block_size or header.config.block_size for group in self._groups]
        self._units = [group.units or 1 for group in self._groups]
        self._own = header.engine is None
        self._owners: Counter[int] = Counter()  # block -> number of tables that it is in

    def go_on_from(self, state: RunState) -> None:
        """Take the owners of all blocks from the tables of this state."""
        self._owners = Counter(
            block for request in state.tables for block in state.blocks_of(request)
        )

    def fault(self, event: StepEvent, state: RunState) -> str | None:
        """What is wrong with a step's block changes, or None. state: before them, but after all
        arrivals and departures that come before the passes.
        """
        used, total, hits = event.kv.used, event.kv.total, event.kv.cached_tokens
        most = len(self._owners)
        leaving = {left.request for left in event.released if left.when == "after"}
        # blocks that were in use while the passes ran, and are given back after them
        last: set[int] = set()
        taken: dict[str, list[int]] = {}  # so far in this step
        begun: set[tuple[str, int]] = set()  # tables that blocks have joined
        # requests whose tables from before the step have been given back
        returned: set[str] = set()
        for change in event.kv.changes:
            request, group = change.request, change.group
            added = [b for b in change.added if b is not None]
            if change.left and (fault := self._leaving(change, state)):
                return fault
            self._give_back(change.left)
            if len(set(added)) < len(added):
                return f"request {quoted(request)} got one block twice"
            may_share = hits.get(request, 0) // self._sizes[group] * self._units[group]
            if (request, group) in begun:
                may_share = 0
            if any(self._owners[b] for b in change.added[may_share:] if b is not None):
                return "a block has two owners"
            if change.added:
                begun.add((request, group))
            taken.setdefault(request, []).extend(added)
            self._owners.update(added)
            most = max(most, len(self._owners))
            if change.released:
                left = {b for c in event.kv.changes if c.request == request for b in c.left}
                held = [] if request in returned else state.blocks_of(request)
                own = [*(b for b in held if b not in left), *taken.pop(request)]
                self._give_back(own)
                last.update(own if request in leaving else ())
                returned.add(request)
        found = {request for request, cached in hits.items() if cached}
        in_use = len(self._owners) + len(last - self._owners.keys())
        as_told = (
            len(self._owners) <= used <= min(most, total) if self._own else used == in_use <= total
        )
        if not found <= {request for request, _ in begun} or not as_told:
            return f"{used} of {total} blocks cannot be in use"
        released_by = [c.request for c in event.kv.changes if c.released]
        if sorted(released_by) != sorted(
            [left.request for left in event.released] + [p.request for p in event.preempted]
        ):
            return "blocks are given back when a lane becomes free, and only then"
        return None

    def misfit(self, s: Segment, state: RunState, ahead: int) -> str | None:
        """Which blocks a segment lacks for its positions, in any group, or has too many; or None.
        state: while its pass runs. ahead: later positions for which it may have blocks, too.
        """
        tables = state.tables.get(s.request, {})
        for index, group in enumerate(self._groups):
            size, units, table = self._sizes[index], self._units[index], tables.get(index, [])
            if group.kind in BY_POSITION:
                held = len(table) - (table.count(None) if group.kind in _KEEP_ALL else 0)
                if held < group.blocks_of(s.kv_len, size):
                    return (
                        f"request {quoted(s.request)} has too few blocks for {s.kv_len} positions"
                    )
                whole = len(table) // units * units
                if not self._own and whole > group.blocks_of(s.kv_len + ahead, size):
                    return (
                        f"request {quoted(s.request)} has more blocks than {s.kv_len} positions"
                        " need"
                    )
            # one behind: a step may be scheduled before the last is read
            passed = group.first_seen(max(0, s.start - 1 - ahead)) or 0
            if any(block is not None for block in table[: passed // size * units]):
                return f"request {quoted(s.request)} keeps a block that its window has passed"
            first = group.first_seen(s.start)
            if (
                first is not None
                and None in table[first // size * units : -(-s.kv_len // size) * units]
            ):
                return f"request {quoted(s.request)} lacks a block that its window spans"
        return None

    def _leaving(self, change: BlockChange, state: RunState) -> str | None:
        group, size = self._groups[change.group], self._sizes[change.group]
        units = self._units[change.group]
        table = state.tables.get(change.request, {}).get(change.group, [])
        computed = state.computed.get(change.request, 0)
        first = 0 if group.kind in _KEEP_ALL else group.first_seen(computed)
        for block in change.left:
            if self._own or block not in table:
                return f"request {quoted(change.request)} gave back a block that it does not hold"
            if first is not None and (table.index(block) // units + 1) * size > first:
                return f"request {quoted(change.request)} gave back a block that it still needs"
        return None

    def _give_back(self, blocks: tuple[int, ...] | list[int]) -> None:
        for block in blocks:
            self._owners[block] -= 1
            if not self._owners[block]:
                del self._owners[block]
