"""The KV cache groups of another engine: layers that share a block table for each request."""

from typing import Any

from core.errors import InvalidTrace
from core.trace.header import FULL, GroupFacts

_MOST_GROUPS = 1024


def kv_groups(facts: dict[str, Any]) -> tuple[GroupFacts, ...]:
    """The groups that a recording's header names; empty if all layers share one block table and
    keep all of it. Older recordings only count the groups.

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
