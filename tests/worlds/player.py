"""Traces and replays for tests of the player. `traces` is a fixture: a small run of every
policy.
"""

from __future__ import annotations

import pytest

from core.config import POLICIES, EngineConfig
from core.trace.events import RECORDS, StepEvent
from core.trace.trace import Trace
from worlds.visual import record, request


def trace_of(policy: str, **config) -> Trace:
    """Six requests that make lanes, blocks and chunks scarce."""
    limits = {
        "max_num_seqs": 3,
        "max_num_batched_tokens": 8,
        "block_size": 4,
        "num_blocks": 24,
        **config,
    }
    plan = [(9, 5, 0), (3, 8, 0), (17, 3, 1), (2, 1, 2), (6, 4, 2), (5, 6, 9)]
    requests = [
        request(f"r{i}", prompt, new, at, first=100 * i) for i, (prompt, new, at) in enumerate(plan)
    ]
    return record(EngineConfig(policy=policy, **limits), *requests)


@pytest.fixture(scope="session")
def traces() -> dict[str, Trace]:
    return {policy: trace_of(policy) for policy in POLICIES}


def wide_replay(rows: int = 64, keys: int = 700, lanes: int = 10, steps: int = 60) -> dict:
    """Steps of `rows` queries and `keys` keys on `lanes` lanes, made up: what costs is drawing
    them.
    """
    requests = [f"r{i}" for i in range(lanes)]
    chunk = rows - (lanes - 1)
    length = (keys - chunk) // (lanes - 1)
    events = []
    for n in range(steps):
        segments = [
            [0, r, i, "decode", length - 1, 1, length] for i, r in enumerate(requests[:-1])
        ] + [[0, requests[-1], lanes - 1, "prefill", 0, chunk, chunk]]
        changes = (
            [[r, list(range(i * 8, i * 8 + 8)), False] for i, r in enumerate(requests)]
            if n == 0
            else []
        )
        events.append(
            StepEvent.from_json(
                {
                    "step": n,
                    "t_start": n / 100,
                    "t_end": n / 100 + 0.009,
                    "timings": [0.001, 0.001, 0.006, 0.001],
                    "arrived": [[r, 0.0] for r in requests] if n == 0 else [],
                    "admitted": (
                        [[r, i, ["none", 0, 0, 0]] for i, r in enumerate(requests)]
                        if n == 0
                        else []
                    ),
                    "waiting": [0, None, None],
                    "preempted": [],
                    "stalled": [],
                    "passes": [["packed", 1, rows, rows, 0, 0.0, 0.001, []]],
                    "segments": segments,
                    "sampled": [],
                    "finished": [],
                    "kv": [8 * lanes, 8 * lanes, changes, []],
                    "budget": [rows, lanes - 1, chunk, 0, "none"],
                    "overrun": [],
                }
            ).to_json()
        )
    texts = {
        "prompt": {r: [f"w{i % 37}" for i in range(max(length, chunk) + steps)] for r in requests},
        "output": {r: [] for r in requests},
    }
    captions = [
        {
            "say": (
                [{"r": r} for r in requests[:4]] + [f" and more each add one token in step {n}."]
            ),
            "why": [["because ", {"r": "r1"}]] * 6,
        }
        for n in range(steps)
    ]
    header = {
        "model": {"name": "invented", "windows": [None]},
        "policy": "continuous",
        "device": "none",
        "workload": {"requests": []},
        "num_blocks": 8 * lanes,
        "config": {
            "policy": "continuous",
            "max_num_seqs": lanes,
            "max_num_batched_tokens": rows,
            "block_size": max(1, -(-max(length, chunk) // 8)),
        },
    }
    return {
        "schema": 3,
        "records": RECORDS,
        "header": header,
        "complete": True,
        "texts": texts,
        "events": events,
        "captions": captions,
    }
