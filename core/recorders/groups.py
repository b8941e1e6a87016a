"""The KV cache groups of another engine: layers that share a block table for each request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from core.errors import InvalidTrace
from core.trace.events import StepEvent
from core.trace.header import FULL, GroupFacts
from core.trace.run_state import RunState, Table

_MOST_GROUPS = 1024
_MOST_TRIED = 8  # groups; every combination of them is tried


def kv_groups(facts: dict[str, Any]) -> tuple[GroupFacts, ...]:
    """The groups that a recording's header names; empty if all layers share one table and keep all
    of it. Older recordings only count the groups.

    Raises InvalidTrace for an impossible count.
    """
    groups = facts.get("kv_groups")
    if isinstance(groups, int):
        if not 0 < groups <= _MOST_GROUPS:
            raise InvalidTrace(f"there cannot be {groups} KV cache groups.")
        return (GroupFacts(block_size=facts["block_size"]),) * groups if groups > 1 else ()
    known = tuple(
        GroupFacts(
            kind=group["kind"],
            window=group["window"],
            block_size=group["block_size"],
            layers=None if group["layers"] is None else tuple(group["layers"]),
            units=group.get("units"),
            most_blocks=group.get("most_blocks"),
        )
        for group in groups or ()
    )
    return () if len(known) == 1 and known[0].kind in FULL else known


def infer_windows(
    facts: dict[str, Any], steps: Sequence[dict[str, Any]], events: Sequence[StepEvent]
) -> bool:
    """Work out which blocks left a window, for an older recording whose steps do not say, and write
    it into its header (`facts`) and its steps as today's recorder would.

    vLLM takes a block back once the request's next token attends to none of its positions. So a set
    of groups with a window of some length yields a number of free blocks in every step; the set and
    length that yield the recorded numbers are taken. events: as converted without windows. Returns
    whether exactly one set of groups fits. If several lengths fit it, the blocks do not show which
    it was, and the header leaves it out.
    """
    if facts["kv_groups"] > _MOST_TRIED:
        return False
    held_in = list(_held(events))
    size, total, count = facts["block_size"], facts["num_blocks"], facts["kv_groups"]
    used = [total - step["blocks_free"] for step in steps]
    telling = sorted(
        range(len(steps)), key=lambda at: used[at] - _in_use(held_in[at], frozenset(), 1, size)
    )[:_TELLING]
    longest = max((start for held in held_in for start, _ in held.values()), default=1)

    def fits(sliding: frozenset[int], window: int) -> bool:
        return all(
            _in_use(held, sliding, window, size) == n for n, held in zip(used, held_in, strict=True)
        )

    def is_long(sliding: frozenset[int], window: int) -> bool:
        return sum(_in_use(held_in[at], sliding, window, size) - used[at] for at in telling) >= 0

    groups = [
        frozenset(chosen) for n in range(count, 0, -1) for chosen in combinations(range(count), n)
    ]
    least = {
        sliding: 1 + bisect_left(range(1, longest + 2), True, key=partial(is_long, sliding))
        for sliding in groups
    }
    found = [(sliding, window) for sliding, window in least.items() if fits(sliding, window)]
    if len(found) != 1:
        return False
    ((sliding, window),) = found
    length = None if fits(sliding, window + 1) else window
    windowed = {"kind": "sliding_window", "window": length}
    other = {"kind": "full_attention", "window": None}
    facts["kv_groups"] = [
        {**(windowed if group in sliding else other), "block_size": size, "layers": None}
        for group in range(count)
    ]
    facts["inferred_windows"] = True
    first, empty = facts.get("first_block", 1), dict[tuple[str, int], tuple[Table, int]]()
    for step, held in zip(steps, held_in, strict=True):
        step["left"] = []
        for request, (start, tables) in held.items():
            for group in sliding & tables.keys():
                table, length = tables[group]
                known, gone = empty.get((request, group), (table, 0))
                places = range(
                    gone if known is table else 0, min(length, _passed(start, window, size))
                )
                stop = max(gone, places.stop) if known is table else places.stop
                empty[request, group] = table, stop
                blocks = [block for place in places if (block := table[place]) is not None]
                if blocks:
                    step["left"].append([request, group, [first + block for block in blocks]])
    return True


_TELLING = 64  # steps by which a window is searched: those with the most blocks too many
_Held = dict[str, tuple[int, dict[int, tuple[Table, int]]]]
"""While the passes of a step run, by request: the first position it computes, and for each group
its table and the table's length then.
"""


def _held(events: Sequence[StepEvent]) -> Iterator[_Held]:
    state, starts = RunState.of({}), dict[str, int]()
    for event in events:
        state.num_tokens |= {arrived.request: 0 for arrived in event.arrived}
        state.begin(event)
        starts |= {s.request: s.start for s in event.segments}
        yield {
            r: (starts.get(r, 0), {g: (table, len(table)) for g, table in tables.items()})
            for r, tables in state.tables.items()
        }
        state.end(event)


def _passed(start: int, window: int, size: int) -> int:
    """How many places at the head of a table no position from `start` on attends to."""
    return max(0, start - window + 1) // size


def _in_use(held: _Held, sliding: frozenset[int], window: int, size: int) -> int:
    return len(
        {
            block
            for start, tables in held.values()
            for group, (table, length) in tables.items()
            for block in table[_passed(start, window, size) if group in sliding else 0 : length]
            if block is not None
        }
    )
