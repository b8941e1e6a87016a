"""What the player lets move in a step is what happened in it: the events' own lists, and the blocks
that are taken.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from core.config import POLICIES, EngineConfig
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.scheduler.block_pool import BlockPool
from core.trace.trace import Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED
from visualizer.documents.replay import replay
from worlds.visual import record, request

SCRIPT = Path(__file__).parents[1] / "js" / "happenings.js"
DATA = Path(__file__).parents[1] / "data"


def happenings(traces: list[Trace], folder: Path) -> list[list[dict | None]]:
    """Of each trace, what moved between its steps; None where there is no step before on record."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    paths = [folder / f"{index}.json" for index in range(len(traces))]
    for path, trace in zip(paths, traces, strict=True):
        path.write_text(json.dumps(replay(trace)), encoding="utf-8")
    done = subprocess.run([node, SCRIPT, *paths], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def blocks(moves: list[dict]) -> Counter:
    return Counter((move["block"], move["request"]) for move in moves)


def agree(trace: Trace, found: list[dict | None]) -> None:
    frames = list(trace.frames())
    for before, event, moved in zip([None, *frames], trace.events, found, strict=False):
        assert (moved is None) == (before is None or event.resumed is not None)
        if moved is not None and before is not None:
            assert moved["before"] == frames.index(before)
            assert [(m["request"], m["lane"]) for m in moved["admitted"]] == [
                (a.request, a.lane) for a in event.admitted
            ]
            assert [(m["request"], m["lane"], m["tokensLost"]) for m in moved["preempted"]] == [
                (p.request, p.lane, p.tokens_lost) for p in event.preempted
            ]
            computed = [
                (
                    m["passIndex"],
                    m["request"],
                    m["lane"],
                    m["phase"],
                    m["start"],
                    m["length"],
                    m["kvLen"],
                )
                for m in moved["computed"]
            ]
            assert computed == list(map(tuple, event.segments))
            assert {
                (m["request"], m["passIndex"]): m["count"] for m in moved["sampled"]
            } == Counter((s.request, s.pass_index) for s in event.sampled)
            joined = Counter(
                (b, c.request) for c in event.kv.changes for b in c.added if b is not None
            )
            assert blocks(moved["taken"]) + blocks(moved["shared"]) == joined
            assert {m["request"] for m in moved["shared"]} <= set(event.kv.cached_tokens)
            assert {m["block"] for m in moved["evicted"]} <= {m["block"] for m in moved["taken"]}


@pytest.mark.slow
def test_every_recorded_run(tmp_path: Path) -> None:
    files = [*sorted(TRACES.glob("*.jsonl")), *sorted(RECORDED.glob("*/*.jsonl"))]
    traces = [Trace.load(file) for file in files]
    for file, trace, found in zip(files, traces, happenings(traces, tmp_path), strict=True):
        try:
            agree(trace, found)
        except AssertionError as error:
            raise AssertionError(f"{file.parent.name}/{file.name}: {error}") from error


@pytest.mark.slow
def test_runs_of_another_engine(tmp_path: Path) -> None:
    """With windows, speculation that forgets, and steps that are missing."""
    traces = [
        to_trace(recording)
        for name in ("hybrid", "sliding-window", "speculation", "snapshots")
        for recording in read_raw([DATA / f"vllm-0.32-{name}.raw.jsonl.gz"])
    ]
    found = happenings(traces, tmp_path)
    for trace, moved in zip(traces, found, strict=True):
        agree(trace, moved)


@pytest.mark.slow
def test_preempted_in_every_policy(tmp_path: Path) -> None:
    plan = [request(f"r{i}", 3 + 5 * i % 17, 4 + i % 7, i // 2) for i in range(12)]
    traces = [
        record(
            EngineConfig(
                policy, max_num_seqs=4, max_num_batched_tokens=8, block_size=2, num_blocks=15
            ),
            *plan,
        )
        for policy in POLICIES
    ]
    found = happenings(traces, tmp_path)
    for trace, moved in zip(traces, found, strict=True):
        agree(trace, moved)
    assert any(moved["preempted"] for run in found for moved in run if moved)


def test_what_the_prefix_cache_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks that the pool itself evicts, step by step."""
    evicted: list[int] = []
    evict = BlockPool._evict
    monkeypatch.setattr(
        BlockPool, "_evict", lambda pool: evicted.append(evict(pool)) or evicted[-1]
    )
    plan = [request(f"r{i}", 9 + 3 * (i % 3), 5, i // 2, first=100 * (i % 4)) for i in range(14)]
    trace = record(
        EngineConfig(
            "continuous",
            max_num_seqs=3,
            max_num_batched_tokens=16,
            block_size=4,
            num_blocks=14,
            prefix_caching=True,
        ),
        *plan,
    )
    (found,) = happenings([trace], tmp_path)
    agree(trace, found)
    assert (
        sorted(m["block"] for moved in found if moved for m in moved["evicted"]) == sorted(evicted)
        and evicted
    )
    assert any(moved["shared"] for moved in found if moved)
