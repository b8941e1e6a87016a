"""The browser folds a run as Python does: both show the same frames of every recorded run, and of
runs made to be awkward.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from core import Workload
from core.config import POLICIES, EngineConfig
from core.recorders.convert import to_trace
from core.recorders.raw import read_raw
from core.trace.run_state import Frame
from core.trace.trace import Texts, Trace
from visualizer.documents.catalogue import TRACES
from visualizer.documents.comparison import RECORDED
from visualizer.documents.replay import replay
from worlds.asynchronous import real_run
from worlds.small import memory_engine, request
from worlds.visual import record
from worlds.visual import request as visual_request

SCRIPT = Path(__file__).parents[1] / "js" / "frames.js"


def plain(frame: Frame) -> dict:
    return {
        "step": frame.step,
        "lanes": [
            [row.lane, row.request, sorted(set(row.doing)), row.kv_len] for row in frame.lanes
        ],
        "waiting": [[row.request, row.since, row.preempted] for row in frame.waiting],
        "blocks": {str(block): sorted(owners) for block, owners in frame.blocks.items()},
    }


def differences(traces: list[tuple[str, Trace]], folder: Path) -> Iterator[str]:
    """Steps whose frame is another in the browser."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    paths = []
    for index, (_, trace) in enumerate(traces):
        paths.append(folder / f"{index}.json")
        paths[-1].write_text(json.dumps(replay(trace)), encoding="utf-8")
    done = subprocess.run([node, SCRIPT, *paths], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for (name, trace), line in zip(traces, done.stdout.splitlines(), strict=True):
        for frame, theirs in zip(map(plain, trace.frames()), json.loads(line), strict=True):
            if frame != theirs:
                yield f"{name}, step {frame['step']}: {frame} here, {theirs} there"


@pytest.mark.slow
def test_every_recorded_run(tmp_path: Path) -> None:
    files = [*sorted(TRACES.glob("*.jsonl")), *sorted(RECORDED.glob("*/*.jsonl"))]
    assert files
    assert (
        list(differences([(f"{f.parent.name}/{f.name}", Trace.load(f)) for f in files], tmp_path))
        == []
    )


def cancelled(policy: str) -> Trace:
    """Requests cancelled while they wait, while they run, and the last of a wave."""
    engine = memory_engine(
        policy, max_num_seqs=3, max_num_batched_tokens=9, block_size=4, num_blocks=8
    )
    for event in engine.stream(Workload([request(f"r{i}", 6, 4 + i, i) for i in range(8)])):
        if event.step in (2, 9):
            for other in {s.request for s in event.segments}:
                engine.cancel(other)
        if event.step == 5:
            engine.cancel("r7")
    trace = engine.trace
    trace.recorded_texts = Texts(
        {r: [""] * len(p) for r, p in trace.prompts.items()},
        {r: [""] * len(o) for r, o in trace.outputs.items()},
    )
    return trace


@pytest.mark.slow
def test_runs_made_to_be_awkward(tmp_path: Path) -> None:
    plan = [visual_request(f"r{i}", 3 + 5 * i % 17, 4 + i % 7, i // 2) for i in range(12)]
    made = [(policy, cancelled(policy)) for policy in POLICIES]
    made += [
        (
            f"{policy}, few blocks",
            record(
                EngineConfig(
                    policy, max_num_seqs=4, max_num_batched_tokens=8, block_size=2, num_blocks=15
                ),
                *plan,
            ),
        )
        for policy in POLICIES
    ]
    made += [
        (f"{policy}, launched ahead", real_run(policy, 1))
        for policy in POLICIES
        if POLICIES[policy].layout != "split"
    ]
    assert any(e.preempted for _, t in made for e in t.events) and any(
        e.overrun for _, t in made for e in t.events
    )
    assert list(differences(made, tmp_path)) == []


@pytest.mark.slow
def test_runs_that_go_on_after_steps_that_are_missing(tmp_path: Path) -> None:
    made = []
    for first in range(1, 200, 13):
        (recording,) = read_raw(
            [Path(__file__).parents[1] / "data" / "vllm-0.32-snapshots.raw.jsonl.gz"]
        )
        recording.steps = [
            s
            for s in recording.steps
            if s["step"] % 67 != first % 67 and not first <= s["step"] < first + 3
        ]
        made.append((f"without {first}", to_trace(recording)))
    assert all(any(e.resumed for e in trace.events) for _, trace in made)
    assert list(differences(made, tmp_path)) == []
