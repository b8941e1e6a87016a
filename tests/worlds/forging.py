"""Traces as rows of plain data, which a test forges and seals again; runs of every policy in which
limits are scarce.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from core import Trace
from core.config import POLICIES
from core.errors import InvalidTrace
from core.proof.verify import CheckResult, verify
from core.trace.file import Seal
from worlds.small import memory_trace

Rows = list[dict[str, Any]]


def sealed(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines without their ends, each with its checksum."""
    return map(Seal().line, rows)


def rows_of(trace: Trace) -> Rows:
    return [{k: v for k, v in json.loads(line).items() if k != "crc"} for line in trace.lines()]


def checked(rows: Rows, **how: Any) -> CheckResult:
    return verify(sealed(rows), **how)


def refusal(rows: Rows, **how: Any) -> str:
    with pytest.raises(InvalidTrace) as caught:
        checked(rows, **how)
    return str(caught.value)


def steps(rows: Rows) -> Rows:
    return [r for r in rows if "step" in r]


MIXED = ((9, 5), (3, 8), (14, 3, 1), (2, 1, 2), (6, 4, 2), (5, 6, 4))


def small_runs() -> dict[str, Rows]:
    """A run of every policy in which lanes, blocks and budget are scarce, and one with shared
    prefixes.
    """
    limits = {"max_num_seqs": 3, "max_num_batched_tokens": 8, "block_size": 4, "num_blocks": 12}
    traces = {policy: memory_trace(*MIXED, policy=policy, **limits) for policy in POLICIES}
    traces["prefixes"] = memory_trace(
        (9, 4), (9, 4, 3), (5, 3, 5), max_num_batched_tokens=16, block_size=4, prefix_caching=True
    )
    traces["preempted"] = memory_trace(
        (6, 14),
        (6, 14),
        (6, 9, 1),
        max_num_seqs=3,
        max_num_batched_tokens=9,
        block_size=4,
        num_blocks=7,
    )
    assert any(e.preempted for e in traces["preempted"].events) and any(
        e.kv.prefix_hits for e in traces["prefixes"].events
    )
    return {name: rows_of(trace) for name, trace in traces.items()}
