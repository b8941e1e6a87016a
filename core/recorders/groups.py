"""The KV cache groups of another engine: layers that share a block table for each request, each
group with a table of its own.
"""

from __future__ import annotations

from typing import Any

from core.trace.header import FULL, GroupFacts


def kv_groups(facts: dict[str, Any]) -> tuple[GroupFacts, ...]:
    """The groups that a recording's header names; empty if all layers share one table and keep all
    of it.
    """
    known = tuple(
        GroupFacts(
            kind=group["kind"],
            window=group["window"],
            block_size=group["block_size"],
            layers=None if group["layers"] is None else tuple(group["layers"]),
            units=group.get("units"),
            most_blocks=group.get("most_blocks"),
        )
        for group in facts.get("kv_groups") or ()
    )
    return () if len(known) == 1 and known[0].kind in FULL else known
